"""The kind `distinct`: the values that a column has in each file, for columns of few.

Any part of a predicate over that column alone is evaluated on them: which files have a value, or a null, of
which it is true. A file with more values than an embedded index `distinct` lists is not covered, nor is one
that has the column in another type than the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.arrays import mask, validity
from accel.catalog.kinds.keys import key_type, stored_type
from accel.catalog.kinds.kind import (
    CatalogQuestion,
    FileRowsBuilder,
    Hits,
    IndexTableBuilder,
    Lookup,
    RowwiseIndex,
    TableEncoding,
    check_ordinals,
    file_column,
)
from accel.indexes.distinct import Distinct
from accel.indexes.kind import IndexKind
from accel.planning.handle import FileHandle
from accel.predicate.atoms import Bound, BoundColumn, Node, over_first_column, single_column_parts
from accel.predicate.evaluate import outcome
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Distincts", "EvidenceHits"]

_PAGE_ROWS: Final = 4096
_LIMITS: Final = Distinct()


class Distincts(RowwiseIndex):
    """Values of a column by file."""

    embedded: ClassVar[type[IndexKind] | None] = Distinct

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by; see `CatalogIndex.order`."""
        return (("value", "ascending"), ("file", "ascending"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written; see `CatalogIndex.encoding`."""
        return TableEncoding(
            page_rows=_PAGE_ROWS, use_dictionary=["value"], column_encoding={"file": "DELTA_BINARY_PACKED"}
        )

    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment; see `CatalogIndex.builder`."""
        return _Builder(self)

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; see `CatalogIndex.ask`."""
        column = question.paths.get(self.columns[0])
        if column is None:
            return None
        own, kind = stored.field("value").type, question.type_of(self.columns[0])
        parts = [node for at, node in single_column_parts(question.bound.root) if at == column]
        if not parts or isinstance(kind, pa.BaseExtensionType) or stored_type(kind) != own:
            return None

        def hits(rows: pa.Table, covered: Bools) -> Hits:
            files = check_ordinals(file_column(rows), len(covered))
            values = rows.column("value").combine_chunks()
            found = {}
            for node in parts:
                bound = Bound((BoundColumn(("value",), own),), over_first_column(node))
                result = outcome(bound, {("value",): values}, len(files))
                valid = validity(result)
                true = mask(result) & valid
                flags = [_files(which, files, covered) for which in (true, valid & ~true, ~valid)]
                found[id(node)] = Evidence(*flags)
            return EvidenceHits(tuple(parts), found)

        return Lookup(("value", "file"), None, hits)


def _files(rows: Bools, files: Int64s, covered: Bools) -> Bools:
    """Return the files that have one of some rows, or that the table does not cover."""
    out = ~covered
    out[files[rows]] = True
    return out


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceHits(Hits):
    """The outcomes that parts of a predicate may have in each file."""

    nodes: Sequence[Node]
    """They are referred to by identity, which is theirs while they live."""
    found: Mapping[int, Evidence]

    def evidence(self, node: Node) -> Evidence | None:
        """Return the outcomes that a part of the predicate may have in each file; see `Hits.evidence`."""
        return self.found.get(id(node))


class _Builder(FileRowsBuilder):
    def __init__(self, index: Distincts) -> None:
        super().__init__(index.order)
        self._index = index
        self._type: pa.DataType | None = None

    def accepts(self, handle: FileHandle) -> bool:
        """Return whether the file has the column, flat and of the type that the first file settled."""
        kind = key_type(handle, self._index.columns[0])
        self._type = kind if self._type is None else self._type
        return kind is not None and bool(self._type == kind)

    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        column = values[0]
        found = (column.cast(self._type) if column.type != self._type else column).unique()
        most = _LIMITS.max_bytes + 16 * len(found)
        if len(found) > _LIMITS.max_values or found.nbytes > most:
            return False
        files = pa.array(np.full(len(found), file, np.int32))
        self.rows.add(pa.table({"value": found, "file": files}))
        return True
