"""The page indexes of a whole file: those it has, and new ones for the chunks that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import decode_columns
from accel.decode.nested import count_levels
from accel.errors import AccelError
from accel.format.model import ColumnOrder, Leaf, OffsetIndex
from accel.options import Options
from accel.planning.selection import RowSelection
from accel.writing.original import At, Original
from accel.writing.page_bounds import BoundsBuilder, bounds_builder
from accel.writing.page_locations import ChunkPageList, encode_offset_index, list_pages
from accel.writing.values import ColumnValues, flat_leaf

__all__ = ["PageIndexes", "complete_page_indexes"]


@dataclass(slots=True, eq=False)
class PageIndexes:
    """Of the chunks that have them: the bytes of both halves, and what the offset indexes say."""

    offset_bytes: dict[At, bytes]
    column_bytes: dict[At, bytes]
    offset_indexes: dict[At, OffsetIndex]
    added: int = 0
    """Offset indexes that the file had not."""
    added_bounds: int = 0
    """Column indexes that it had not."""
    type_orders: bool = False
    """The footer must say that bounds are in the order that their type defines."""
    unknown: list[str] = field(default_factory=list)
    """Columns whose pages could not be located."""


def complete_page_indexes(
    original: Original, *, options: Options, note: Callable[[int], None]
) -> PageIndexes:
    """Make the page indexes that the file lacks.

    A file of which some pages cannot be located gets no offset index that it had not: readers expect
    them of all columns of a row group or of none.

    Parameters
    ----------
    note : callable
        Told the stored bytes of each chunk that was looked through.
    """
    job = _Completion(original, options, note)
    job.locate()
    job.bound()
    return job.found


class _Completion:
    def __init__(self, original: Original, options: Options, note: Callable[[int], None]) -> None:
        self.original = original
        self.metadata = original.metadata
        self.options = options
        self.note = note
        self.found = PageIndexes(
            dict(original.offset_bytes), dict(original.column_bytes), dict(original.offset_indexes)
        )

    def locate(self) -> None:
        """Offset indexes."""
        new: dict[At, OffsetIndex] = {}
        unknown: dict[str, None] = {}
        for at in self._chunks():
            if at in self.found.offset_indexes:
                continue
            leaf = self.metadata.schema.leaves[at[1]]
            index = self._locate(at, leaf)
            if index is None:
                unknown[".".join(leaf.path)] = None
            else:
                new[at] = index
        self.found.unknown = list(unknown)
        # Known here, for indexes by page, whether or not they are written.
        self.found.offset_indexes.update(new)
        if unknown:
            return
        self.found.added = len(new)
        self.found.offset_bytes.update({at: encode_offset_index(index) for at, index in new.items()})

    def bound(self) -> None:
        """Column indexes, for flat columns."""
        if self.found.unknown:
            return
        ordered = self._orders()
        for leaf in self.metadata.schema.leaves:
            lacking = [
                group
                for group in range(self.metadata.num_row_groups)
                if (group, leaf.ordinal) in self.found.offset_bytes
                and (group, leaf.ordinal) not in self.found.column_bytes
                # Whoever wrote one half alone may have had a reason.
                and (group, leaf.ordinal) not in self.original.offset_bytes
            ]
            if lacking and ordered[leaf.ordinal] and flat_leaf(leaf):
                self._bound(leaf, lacking)
        if not self.found.added_bounds:
            self.found.type_orders = False

    def _chunks(self) -> list[At]:
        groups = [g for g, rows in enumerate(self.metadata.group_rows.tolist()) if rows]
        return [(group, leaf.ordinal) for group in groups for leaf in self.metadata.schema.leaves]

    def _locate(self, at: At, leaf: Leaf) -> OffsetIndex | None:
        chunks = self.metadata.chunks
        num_rows = int(self.metadata.group_rows[at[0]])
        pages = list_pages(
            self.original.source,
            int(chunks.start[at]),
            int(chunks.end[at]),
            num_values=int(chunks.num_values[at]),
        )
        if pages is None:
            return None
        if flat_leaf(leaf):
            return pages.locate_flat(num_rows)
        return pages.locate_versioned(num_rows) or self._locate_counted(at, leaf, pages)

    def _locate_counted(self, at: At, leaf: Leaf, pages: ChunkPageList) -> OffsetIndex | None:
        """By decoding the chunk: pages of version 1 inside lists do not say how many rows they hold."""
        chunks, schema = self.metadata.chunks, self.metadata.schema
        start, end = int(chunks.start[at]), int(chunks.end[at])
        num_rows = int(self.metadata.group_rows[at[0]])
        if end - start > self.options.memory_limit // 4:
            return None
        [data] = self.original.source.read([(start, end)])
        whole = ChunkPages(
            leaf=leaf.ordinal,
            codec=int(chunks.codec[at]),
            dictionary=None,
            buffers=(data,),
            first_rows=np.zeros(1, np.int64),
            stop_rows=np.full(1, num_rows, np.int64),
            num_values=int(chunks.num_values[at]),
        )
        try:
            [array] = decode_columns(
                schema,
                self.metadata.key_value,
                {leaf.ordinal: whole},
                RowSelection.all(num_rows),
                arrow_schema=projected_schema(schema, self.metadata.key_value, [leaf.ordinal]),
                leaves=[leaf.ordinal],
                path=self.original.source.name,
                row_group=at[0],
                memory_limit=self.options.memory_limit,
                created_by=self.metadata.created_by,
            )
            parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
            counts = [count_levels(part) for part in parts]
        except AccelError:
            return None
        levels = [np.ones(len(p), np.int64) if c is None else c for p, c in zip(parts, counts, strict=True)]
        return pages.locate_counted(np.concatenate(levels))

    def _orders(self) -> list[bool]:
        """Of each leaf, whether bounds in its type's order would be taken as such."""
        orders = self.metadata.column_orders
        chunks = self.metadata.chunks
        if not bool((orders != ColumnOrder.UNDEFINED).any()):
            # Without column orders, new ones must not give a meaning to bounds that had none.
            if bool((chunks.min_start >= 0).any() | (chunks.max_start >= 0).any()) or self.found.column_bytes:
                return [False] * len(orders)
            self.found.type_orders = True
            return [True] * len(orders)
        return [order == ColumnOrder.TYPE_DEFINED for order in orders.tolist()]

    def _bound(self, leaf: Leaf, groups: list[int]) -> None:
        element = self.metadata.schema.elements[leaf.element]
        values = ColumnValues(self.original.source, self.metadata, leaf, self.options)
        if bounds_builder(element, values.type) is None:
            return
        for group in groups:
            at = (group, leaf.ordinal)
            index = self.found.offset_indexes[at]
            builder = bounds_builder(element, values.type)
            assert builder is not None
            _fill(builder, values, group, index)
            data = builder.finish()
            self.note(int(self.metadata.chunks.compressed[at]))
            if data is not None:
                self.found.column_bytes[at] = data
                self.found.added_bounds += 1


def _fill(builder: BoundsBuilder, values: ColumnValues, group: int, index: OffsetIndex) -> None:
    """Hand the pages over one by one; pieces are cut between pages, but an array's parts need not be."""
    num_rows = int(values.metadata.group_rows[group])
    stops = np.append(index.first_row[1:], num_rows).tolist()
    firsts = index.first_row.tolist()
    page, row = 0, 0
    carried: pa.Array | None = None
    for part in values.read_pieces(group, index):
        if builder.void:
            return
        array = part if carried is None else pa.concat_arrays([carried, part])
        start = row
        while page < len(stops) and stops[page] <= start + len(array):
            builder.add(array.slice(firsts[page] - start, stops[page] - firsts[page]))
            page += 1
        row = firsts[page] if page < len(stops) else start + len(array)
        carried = array.slice(row - start) if row - start < len(array) else None
