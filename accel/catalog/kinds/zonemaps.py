"""The kind `zonemap`: bounds of a column, or of an expression over it, in each row group, from its values.

Expressions are those of an embedded zone map: `lower(name)`, `year(day)`, `month(day)`, `day(day)` and
`hour(time)`. Bounds of an expression rule out what bounds of the column cannot: `name ILIKE 'b%'` where names
differ in case, a test for one instant where files go over years. Zone maps of a column itself are for files
whose writer left out its statistics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.arrays import integers
from accel.catalog.describing import column_text, paths_of_text
from accel.catalog.kinds.keys import key_type
from accel.catalog.kinds.kind import (
    CatalogQuestion,
    FileRowsBuilder,
    Hits,
    IndexTableBuilder,
    Lookup,
    RowHits,
    RowwiseIndex,
    TableEncoding,
    check_ordinals,
    file_column,
    path_named,
)
from accel.errors import IndexFormatError, SchemaMismatchError
from accel.indexes.expressions import Expression, output_type, parse_member
from accel.indexes.kind import IndexKind, Presence
from accel.indexes.question import LeafQuestion
from accel.indexes.stored_bounds import BOUND_FIELDS, StoredBounds
from accel.indexes.zonemap import Zonemap, bounds_of_values, expression_type, prune_bounds
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound, Node
from accel.predicate.prune import Evidence, prune

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Zonemaps"]

_PAGE_ROWS: Final = 4096
_EXPRESSION = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
_SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        *BOUND_FIELDS,
    ]
)


class Zonemaps(RowwiseIndex):
    """Bounds of an expression by row group."""

    embedded: ClassVar[type[IndexKind] | None] = Zonemap
    values: ClassVar[str] = "one value for each row, which its expression, if any, has a meaning for"

    @property
    def expression(self) -> Expression:
        """The expression over the column."""
        call = _EXPRESSION.fullmatch(self.of)
        return Expression.VALUE if call is None else Expression(call[1])

    def read_columns(self, of: str) -> tuple[tuple[str, ...], ...]:
        """Return the paths of the columns whose values are needed; see `CatalogIndex.read_columns`."""
        call = _EXPRESSION.fullmatch(of)
        if call is None:
            return paths_of_text(of)
        Expression(call[1])  # raises where there is no such expression
        return paths_of_text(call[2])

    @classmethod
    def spelled(cls, columns: str | Sequence[str]) -> str:
        """Return the text of columns as a caller names them; see `CatalogIndex.spelled`."""
        if not isinstance(columns, str):
            return super().spelled(columns)
        member = parse_member(columns)
        if len(member.columns) > 1:
            raise ValueError(
                f"an index of kind 'zonemap' outside the files is of one column, not of {columns!r}"
            )
        (name,) = member.columns
        text = column_text(path_named(name) if isinstance(name, str) else name)
        return text if member.of is Expression.VALUE else f"{member.of}({text})"

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by; see `CatalogIndex.order`."""
        return (("file", "ascending"), ("row_group", "ascending"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written; see `CatalogIndex.encoding`."""
        return TableEncoding(page_rows=_PAGE_ROWS, use_dictionary=["family"])

    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment; see `CatalogIndex.builder`."""
        return _Builder(self)

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; see `CatalogIndex.ask`."""
        questions = [
            (node, leaf)
            for node, leaf in self.leaf_questions(question)
            if expression_type(self.expression, leaf) is not None
        ]
        if not questions:
            return None

        def hits(rows: pa.Table, covered: Bools) -> Hits:
            return ZoneHits.of(rows, covered, of=self.expression, questions=questions, bound=question.bound)

        return Lookup(_SCHEMA.names, None, hits)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneHits(Hits):
    """The outcomes that parts of a predicate may have in each row group."""

    files: Int64s
    groups: Int64s
    covered: Bools
    found: Mapping[int, Evidence]
    """By the identity of the part, for each row group."""
    may: Bools
    """Whether each row group may hold rows that match."""
    nodes: Sequence[Node]

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        covered: Bools,
        *,
        of: Expression,
        questions: Sequence[tuple[Node, LeafQuestion]],
        bound: Bound,
    ) -> ZoneHits:
        """Make them of rows of the table.

        Raises
        ------
        IndexFormatError
            A row is of a file that the segment does not have, or has a bound that is none.
        """
        rows = rows.combine_chunks()
        files = check_ordinals(file_column(rows), len(covered))
        stored = StoredBounds.of_table(rows)
        presence = Presence(stored.null_count != 0, stored.num_values != stored.null_count)
        found: dict[int, Evidence] = {}
        for node, leaf in questions:
            kind = expression_type(of, leaf)
            if kind is None:
                continue
            evidence = prune_bounds(of, stored.decode(kind), presence, question=leaf)
            if evidence is not None:
                found[id(node)] = evidence
        may = prune(bound, {}, len(files), index_evidence=lambda node: found.get(id(node))).may_true
        return cls(files, _integers(rows, "row_group"), covered, found, may, tuple(n for n, _ in questions))

    def may_match(self) -> Bools:
        """Return whether each file may hold rows that match; see `Hits.may_match`."""
        return self._of_files(self.may)

    def evidence(self, node: Node) -> Evidence | None:
        """Return the outcomes that a part of the predicate may have in each file; see `Hits.evidence`."""
        found = self.found.get(id(node))
        if found is None:
            return None
        flags = (found.may_true, found.may_false, found.may_null)
        return Evidence(*(self._of_files(each) for each in flags))

    def _of_files(self, groups: Bools) -> Bools:
        out = ~self.covered
        out[self.files[groups]] = True
        return out

    def rows(self, file: int, handle: FileHandle) -> RowHits | None:
        """Return the rows of a file that may match; see `Hits.rows`."""
        if not self.covered[file]:
            return None
        sizes = handle.group_rows.tolist()
        at = np.flatnonzero(self.files == file)
        groups = self.groups[at].tolist()
        if set(groups) != {group for group, size in enumerate(sizes) if size}:
            raise IndexFormatError("the catalog has a zone map of other row groups than a file has")
        may = self.may[at].tolist()
        return RowHits(
            {
                group: RowSelection.of([(0, sizes[group])])
                for group, here in sorted(zip(groups, may, strict=True))
                if here
            }
        )


def _integers(table: pa.Table, name: str) -> Int64s:
    column = table.column(name)
    return np.asarray(integers(column.chunk(0)), np.int64) if column.num_chunks else np.zeros(0, np.int64)


class _Builder(FileRowsBuilder):
    def __init__(self, index: Zonemaps) -> None:
        super().__init__(index.order)
        self._index = index

    def accepts(self, handle: FileHandle) -> bool:
        """Return whether the file has the column, flat and of a type for which the expression is defined."""
        kind = key_type(handle, self._index.columns[0])
        try:
            return kind is not None and output_type(self._index.expression, kind) is not None
        except SchemaMismatchError:
            return False

    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        column = values[0]
        sizes = np.asarray(handle.group_rows, np.int64)
        if len(column) != int(sizes.sum()):
            raise ValueError(f"{len(column)} values for {int(sizes.sum())} rows")
        some = np.flatnonzero(sizes)
        if not len(some):
            self.rows.add(_SCHEMA.empty_table())
            return True
        of = self._index.expression
        firsts = (np.cumsum(sizes) - sizes)[some]
        try:
            bounds = bounds_of_values(of, pa.concat_arrays(column.chunks), firsts)
        except SchemaMismatchError:
            return False
        arrays = [
            pa.array(np.full(len(some), file, np.int32)),
            pa.array(some.astype(np.int32)),
            *StoredBounds.of(bounds, output_type(of, column.type)).arrays(),
        ]
        self.rows.add(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        return True
