"""The page indexes of a whole file: those it has, and new ones for the chunks that have none."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from accel.decode.arrow import projected_schema
from accel.decode.columns import decode_columns
from accel.decode.nested import count_levels
from accel.errors import AccelError
from accel.format.model import ColumnOrder, Leaf, OffsetIndex
from accel.options import Options
from accel.planning.selection import RowSelection
from accel.writing.original import At, Original
from accel.writing.page_bounds import BoundsBuilder, bounds_builder
from accel.writing.page_locations import ChunkPageList, encode_offset_index, list_pages
from accel.writing.source import Source
from accel.writing.values import flat_leaf, whole_chunk

__all__ = ["PageIndexMaking", "PageIndexes"]


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


class PageIndexMaking:
    """Makes the page indexes that a file lacks, chunk by chunk.

    A file of which some pages cannot be located gets no offset index that it had not: readers expect
    them of all columns of a row group or of none.
    """

    def __init__(self, original: Original, source: Source, *, options: Options) -> None:
        self.original = original
        self.source = source
        self.metadata = original.metadata
        self.options = options
        self.offset_indexes = dict(original.offset_indexes)
        """Those found are here for indexes by page, whether or not they are written."""
        self.new: dict[At, OffsetIndex] = {}
        self.bounds: dict[At, bytes] = {}
        self.unknown: dict[str, None] = {}
        self.type_orders = False
        self.ordered = self._orders()

    def lacks(self, at: At) -> bool:
        """Whether a chunk has rows, and no offset index."""
        return bool(self.metadata.group_rows[at[0]]) and at not in self.original.offset_indexes

    def locate(self, at: At) -> OffsetIndex | None:
        """The offset index of a chunk that lacks one; None where its pages cannot be told apart."""
        leaf = self.metadata.schema.leaves[at[1]]
        index = self._locate(at, leaf)
        if index is None:
            self.unknown[".".join(leaf.path)] = None
        else:
            self.new[at] = self.offset_indexes[at] = index
        return index

    def bounds_of(self, at: At, kind: pa.DataType) -> BoundsBuilder | None:
        """To be fed with the pages of a chunk that was located; None where it can have no bounds.

        `kind` is the type of the decoded values.
        """
        leaf = self.metadata.schema.leaves[at[1]]
        # Whoever wrote one half alone may have had a reason.
        if at not in self.new or at in self.original.offset_bytes or self.unknown:
            return None
        if not self.ordered[leaf.ordinal] or not flat_leaf(leaf):
            return None
        return bounds_builder(self.metadata.schema.elements[leaf.element], kind)

    def take_bounds(self, at: At, builder: BoundsBuilder) -> None:
        data = builder.finish()
        if data is not None:
            self.bounds[at] = data

    def finish(self) -> PageIndexes:
        """All that the file has and is to have."""
        original = self.original
        found = PageIndexes(dict(original.offset_bytes), dict(original.column_bytes), self.offset_indexes)
        found.unknown = list(self.unknown)
        if not self.unknown:
            found.offset_bytes |= {at: encode_offset_index(index) for at, index in self.new.items()}
            found.column_bytes |= self.bounds
            found.added, found.added_bounds = len(self.new), len(self.bounds)
            found.type_orders = self.type_orders and bool(self.bounds)
        return found

    def _locate(self, at: At, leaf: Leaf) -> OffsetIndex | None:
        chunks = self.metadata.chunks
        num_rows = int(self.metadata.group_rows[at[0]])
        pages = list_pages(
            self.source,
            int(chunks.start[at]),
            end=int(chunks.end[at]),
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
        num_rows = int(self.metadata.group_rows[at[0]])
        if int(chunks.end[at] - chunks.start[at]) > self.options.memory_limit // 4:
            return None
        whole = whole_chunk(self.source, self.metadata, at)
        try:
            [array] = decode_columns(
                schema,
                self.metadata.key_value,
                chunks={leaf.ordinal: whole},
                rows=RowSelection.all(num_rows),
                arrow_schema=projected_schema(schema, self.metadata.key_value, leaves=[leaf.ordinal]),
                leaves=[leaf.ordinal],
                path=self.source.name,
                row_group=at[0],
                memory_limit=self.options.memory_limit,
                created_by=self.metadata.created_by,
                verify_checksums=self.options.verify_checksums,
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
            if (
                bool((chunks.min_start >= 0).any() | (chunks.max_start >= 0).any())
                or self.original.column_bytes
            ):
                return [False] * len(orders)
            self.type_orders = True
            return [True] * len(orders)
        return [order == ColumnOrder.TYPE_DEFINED for order in orders.tolist()]
