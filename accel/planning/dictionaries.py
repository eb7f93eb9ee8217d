"""Dictionary pages as indexes: where all data pages of a chunk are dictionary-encoded, its dictionary lists
every value that the chunk holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import mask
from accel.errors import AccelError
from accel.format.domain import Domain
from accel.format.model import Physical, SchemaElement
from accel.planning.handle import FileHandle
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.planning.task import ScanTask
from accel.planning.witness import Statement, Witnesses
from accel.predicate.atoms import Bound, BoundColumn, Node, over_first_column, single_column_parts
from accel.predicate.evaluate import outcome
from accel.predicate.prune import Evidence
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

__all__ = ["Dictionaries", "ReadDictionary"]

# A dictionary is fetched for pruning only when the pages that it may save are so many times its size.
_WORTH = 4

# Of a dictionary page, what lists no values.
_HEADER = 32

# The values of smaller ones are kept with the file's metadata, in bytes.
_SMALL = 64 << 10

ReadDictionary: TypeAlias = Callable[[memoryview, int, SchemaElement, pa.DataType], pa.Array]
"""Decodes a dictionary page (its bytes, codec, leaf, and the column's type); it lives in a room below."""


@dataclass(frozen=True, slots=True)
class _Column:
    leaf: int
    column: BoundColumn
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class Dictionaries:
    """The dictionaries that a predicate can ask, over the row groups of one file."""

    handle: FileHandle
    columns: list[_Column]
    read: ReadDictionary

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery, read: ReadDictionary) -> Dictionaries | None:
        """None where no column of the predicate is dictionary-encoded throughout any row group."""
        chunks = handle.metadata.chunks
        if query.bound is None or handle.distrusted:
            return None
        nodes: dict[int, list[Node]] = {}
        for ordinal, node in single_column_parts(query.bound.root):
            nodes.setdefault(ordinal, []).append(node)
        # Not of a struct of one field: that is null in other rows than its field.
        plain = {path: leaf for path, leaf, _ in query.prunable}
        columns = []
        for ordinal, asked in nodes.items():
            column = query.bound.columns[ordinal]
            leaf = plain.get(column.path)
            if leaf is None:
                continue
            throughout = (chunks.plain_pages[:, leaf] == 0) & (chunks.dictionary_pages[:, leaf] > 0)
            # Decoded as they are, INT96 entries may have wrapped around: decode/instants.py sees to that elsewhere.
            schema = handle.metadata.schema
            if schema.elements[schema.leaves[leaf].element].physical is Physical.INT96:
                continue
            if bool(throughout.any()):
                columns.append(_Column(leaf, column, tuple(asked)))
        return cls(handle, columns, read) if columns else None

    def wants(self, drafts: Mapping[int, ScanTask]) -> list[Want]:
        """The dictionaries that cost less than they may save."""
        wants = []
        for group, column, place in self._places(drafts):
            if (group, column.leaf) in self.handle.dictionaries:
                continue
            if place.length * _WORTH <= drafts[group].nbytes and not self._is_dense(group, column, place):
                wants.append(Want(ReadKey(Kind.DICTIONARY, group, column.leaf), place))
        return wants

    def _is_dense(self, group: int, column: _Column, place: ByteRange) -> bool:
        """Whether a dictionary is about as long as the range of its whole numbers is wide: it lists nearly all of them,
        and has next to nothing to say that the range does not."""
        bounds = self.handle.chunk_bounds.get(column.leaf)
        if bounds is None or bounds.domain is not Domain.INTEGER:
            return False
        if not (bounds.has_lower[group] and bounds.has_upper[group]):
            return False
        return int(bounds.upper[group]) - int(bounds.lower[group]) < place.length - _HEADER

    def testify(self, drafts: Mapping[int, ScanTask], stash: Stash, witnesses: Witnesses) -> None:
        """State for every atom what the dictionaries prove of its row group."""
        metadata = self.handle.metadata
        for group, column, _ in self._places(drafts):
            held = self.handle.dictionaries
            values = held.get((group, column.leaf))
            page = stash.get(ReadKey(Kind.DICTIONARY, group, column.leaf))
            if values is None and page is not None:
                element = metadata.schema.elements[metadata.schema.leaves[column.leaf].element]
                try:
                    codec = int(metadata.chunks.codec[group, column.leaf])
                    values = self.read(page, codec, element, column.column.type)
                except AccelError:
                    continue  # reading the pages will say what is wrong
                if values.nbytes <= _SMALL:
                    held[group, column.leaf] = values
            if values is None:
                continue
            for node in column.nodes:
                witnesses.add(node, group, self._statement(column, node, values, group))

    def _statement(self, column: _Column, node: Node, values: pa.Array, group: int) -> Statement:
        bounds = group_bounds(self.handle, column.leaf, kind=column.column.type)
        if bounds.null_count[group] != 0:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        alone = Bound((BoundColumn(column.column.path, values.type),), over_first_column(node))
        result = outcome(alone, {column.column.path: values}, len(values))
        true, nulls = int(mask(result).sum()), result.null_count
        found = (true > 0, true + nulls < len(values), nulls > 0)
        return Statement(np.zeros(1, np.int64), Evidence(*(np.array([flag]) for flag in found)))

    def _places(self, drafts: Mapping[int, ScanTask]) -> Iterator[tuple[int, _Column, ByteRange]]:
        chunks = self.handle.metadata.chunks
        for group in drafts:
            for column in self.columns:
                at = (group, column.leaf)
                if chunks.plain_pages[at] != 0 or chunks.dictionary_pages[at] <= 0:
                    continue
                start, data = int(chunks.start[at]), int(chunks.data_page_offset[at])
                if 4 <= start < data <= int(chunks.end[at]):
                    yield group, column, ByteRange(start, data)
