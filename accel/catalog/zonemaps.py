"""The kind `zonemap`: bounds of a column, or of an expression over it, in each row group, from its values.

Expressions are those of an embedded zone map: `lower(name)`, `year(day)`, `month(day)`, `day(day)` and `hour(time)`. Bounds of an expression
rule out what bounds of the column cannot: `name ILIKE 'b%'` where names differ in case, a test for one instant where files go over years.
Zone maps of a column itself are for files whose writer left out its statistics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.arrays import integers
from accel.catalog.bound_bytes import End, decode_bounds, encode_bounds
from accel.catalog.describing import column_text, paths_of_text
from accel.catalog.keys import key_type
from accel.catalog.kind import (
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
)
from accel.errors import IndexFormatError, SchemaMismatchError
from accel.format.domain import Bounds, Domain
from accel.indexes.expressions import Expression, output_type, parse_member
from accel.indexes.kind import ChunkValues, Level, Presence
from accel.indexes.question import LeafQuestion, question_of
from accel.indexes.zonemap import Zonemap, expression_type, prune_bounds
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound, Node, column_atoms
from accel.predicate.expr import column_named
from accel.predicate.kinds import kind_of
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
        pa.field("family", pa.string(), nullable=False),
        pa.field("lower", pa.binary()),
        pa.field("upper", pa.binary()),
        pa.field("null_count", pa.int64(), nullable=False),
        pa.field("nan_count", pa.int64(), nullable=False),
        pa.field("num_rows", pa.int64(), nullable=False),
    ]
)


class Zonemaps(RowwiseIndex):
    """Bounds of an expression by row group."""

    kind: ClassVar[str] = "zonemap"

    @property
    def expression(self) -> Expression:
        """The expression over the column."""
        call = _EXPRESSION.fullmatch(self.of)
        return Expression.VALUE if call is None else Expression(call[1])

    def read_columns(self, of: str) -> tuple[tuple[str, ...], ...]:
        """See `CatalogIndex.read_columns`."""
        call = _EXPRESSION.fullmatch(of)
        if call is None:
            return paths_of_text(of)
        Expression(call[1])  # raises where there is no such expression
        return paths_of_text(call[2])

    @classmethod
    def spelled(cls, columns: str | Sequence[str]) -> str:
        """See `CatalogIndex.spelled`."""
        if not isinstance(columns, str):
            return super().spelled(columns)
        member = parse_member(columns)
        if len(member.columns) > 1:
            raise ValueError(
                f"an index of kind 'zonemap' outside the files is of one column, not of {columns!r}"
            )
        (name,) = member.columns
        text = column_text(column_named(name).path if isinstance(name, str) else name)
        return text if member.of is Expression.VALUE else f"{member.of}({text})"

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """See `CatalogIndex.order`."""
        return (("file", "ascending"), ("row_group", "ascending"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """See `CatalogIndex.encoding`."""
        return TableEncoding(page_rows=_PAGE_ROWS, use_dictionary=["family"])

    def builder(self) -> IndexTableBuilder:
        """See `CatalogIndex.builder`."""
        return _Builder(self)

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """See `CatalogIndex.ask`."""
        column = question.paths.get(self.columns[0])
        if column is None:
            return None
        asked = []
        for node in column_atoms(question.bound.root):
            leaf = question_of(node, question.bound.columns[column]) if node.column == column else None
            if leaf is not None and expression_type(self.expression, leaf) is not None:
                asked.append((node, leaf))
        if not asked:
            return None

        def hits(rows: pa.Table, covered: Bools) -> Hits:
            return ZoneHits.of(rows, covered, of=self.expression, asked=asked, bound=question.bound)

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
        asked: Sequence[tuple[Node, LeafQuestion]],
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
        counts = {name: _integers(rows, name) for name in ("null_count", "nan_count", "num_rows")}
        presence = Presence(counts["null_count"] > 0, counts["num_rows"] > counts["null_count"])
        families = np.array(rows.column("family").to_pylist(), object)
        found: dict[int, Evidence] = {}
        for node, leaf in asked:
            kind = expression_type(of, leaf)
            if kind is None:
                continue
            evidence = prune_bounds(of, _bounds(rows, kind, families, counts), presence, question=leaf)
            if evidence is not None:
                found[id(node)] = evidence
        may = prune(bound, {}, len(files), index_evidence=lambda node: found.get(id(node))).may_true
        return cls(files, _integers(rows, "row_group"), covered, found, may, tuple(n for n, _ in asked))

    def may_match(self) -> Bools:
        """See `Hits.may_match`."""
        return self._of_files(self.may)

    def evidence(self, node: Node) -> Evidence | None:
        """See `Hits.evidence`."""
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
        """See `Hits.rows`."""
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


def _bounds(rows: pa.Table, type_: pa.DataType, families: np.ndarray, counts: Mapping[str, Int64s]) -> Bounds:
    """The bounds of row groups, in the form of a type; none where they are of values that do not compare with it."""
    kind = kind_of(type_)
    alike = families == kind.family.group.value
    encoded = [rows.column(name).combine_chunks() for name in ("lower", "upper")]
    lower, upper = (
        pa.array([v if same else None for v, same in zip(each.to_pylist(), alike, strict=True)], pa.binary())
        for each in encoded
    )
    low, has_low = decode_bounds(lower, kind=kind, end=End.LOWER)
    high, has_high = decode_bounds(upper, kind=kind, end=End.UPPER)
    nans = (
        np.where(alike, counts["nan_count"], -1) if kind.domain is Domain.FLOAT else counts["nan_count"] * 0
    )
    return Bounds(kind.domain, low, high, has_low, has_high, counts["num_rows"], counts["null_count"], nans)


class _Builder(FileRowsBuilder):
    def __init__(self, index: Zonemaps) -> None:
        super().__init__(index.order)
        self._index = index

    def accepts(self, handle: FileHandle) -> bool:
        """Whether the column is in a file, flat, and of a type that the expression has a meaning for."""
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
        # Row groups are the pages of a zone map of the file.
        firsts = (np.cumsum(sizes) - sizes)[some]
        chunk = ChunkValues(pa.concat_arrays(column.chunks), firsts, len(column))
        made = Zonemap(of=str(of))
        try:
            data = made.build([chunk], level=Level.PAGE)
        except SchemaMismatchError:
            return False
        stats = made.parse(data, level=Level.PAGE, units=len(some)).stats((), of)
        if stats is None:
            return False
        bounds, kind = stats.bounds(), kind_of(output_type(of, column.type))
        n = len(some)
        arrays = [
            pa.array(np.full(n, file, np.int32)),
            pa.array(some.astype(np.int32)),
            pa.repeat(pa.scalar(kind.family.group.value, pa.string()), n),
            encode_bounds(bounds.lower, bounds.has_lower, kind=kind, end=End.LOWER),
            encode_bounds(bounds.upper, bounds.has_upper, kind=kind, end=End.UPPER),
            pa.array(stats.nulls),
            pa.array(stats.nans),
            pa.array(stats.rows),
        ]
        self.rows.add(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        return True
