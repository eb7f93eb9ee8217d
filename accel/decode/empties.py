"""Chunks verified, and made such that pyarrow reads them.

Pages without a value are left out: pyarrow takes the first one for the end of its column, and what follows is lost.
Checksums that are not to be looked at are left out too (`accel.decode.checksums`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from accel.decode.checksums import leave_checksums, may_leave_checksums
from accel.decode.chunks import ChunkPages
from accel.decode.verify import IS_DATA, PageFacts, verify_chunk, walk_dictionary
from accel.format.model import Leaf, PageTable, SchemaElement
from accel.ranges import Buffer

__all__ = ["verify_readable"]


def verify_readable(
    chunk: ChunkPages,
    leaf: Leaf,
    *,
    element: SchemaElement,
    memory_limit: int | None,
    place: Callable[[], str],
    tables: Sequence[PageTable | None] | None = None,
    verify_checksums: bool = True,
) -> tuple[ChunkPages, PageFacts]:
    """Verify a chunk, and leave out what would stop pyarrow: what is left of it, and what holds of that.

    Other parameters and errors are those of `verify_chunk`.

    Parameters
    ----------
    verify_checksums : bool
        Whether pages that have a checksum are to be held against it.
    """
    facts = verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place, tables=tables)
    dictionary = () if chunk.dictionary is None else (walk_dictionary(chunk.dictionary),)
    bare = may_leave_checksums((*facts.tables, *dictionary), verify=verify_checksums)
    if facts.page_values.all() and not bare:
        return chunk, facts
    if bare:
        chunk = leave_checksums(chunk, facts.tables, verify=verify_checksums)
        facts = verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place)
        if facts.page_values.all():
            return chunk, facts
    chunk = _without_empty_pages(chunk, facts)
    return chunk, verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place)


def _without_empty_pages(chunk: ChunkPages, facts: PageFacts) -> ChunkPages:
    # Verified, they are of no rows.
    kept = [_kept(buffer, table) for buffer, table in zip(chunk.buffers, facts.tables, strict=True)]
    buffers = tuple(buffer for buffer in kept if len(buffer))
    if chunk.whole:
        return replace(chunk, buffers=buffers, ahead=None)
    filled = facts.page_values > 0
    return replace(
        chunk,
        buffers=buffers,
        first_rows=chunk.first_rows[filled],
        stop_rows=chunk.stop_rows[filled],
        sizes=None if chunk.sizes is None else chunk.sizes[filled],
        ahead=None,
    )


def _kept(buffer: Buffer, table: PageTable) -> Buffer:
    empty = IS_DATA[table.type] & (table.num_values == 0)
    if not empty.any():
        return buffer
    view = memoryview(buffer)
    # Between the ends of empty pages and the starts of the next.
    ends = [0, *table.end[empty].tolist()]
    starts = [*table.start[empty].tolist(), int(table.end[-1])]
    return b"".join(view[first:stop] for first, stop in zip(ends, starts, strict=True))
