"""Pages without a value, left out: pyarrow takes the first one for the end of its column, and what follows is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from accel.decode.chunks import ChunkPages
from accel.decode.verify import IS_DATA, PageFacts, verify_chunk
from accel.format.model import Leaf, PageTable, SchemaElement
from accel.ranges import Buffer

__all__ = ["verify_without_empties"]


def verify_without_empties(
    chunk: ChunkPages,
    leaf: Leaf,
    *,
    element: SchemaElement,
    memory_limit: int | None,
    place: Callable[[], str],
    tables: Sequence[PageTable | None] | None = None,
) -> tuple[ChunkPages, PageFacts]:
    """Verify a chunk, and leave out its data pages of no values: what is left of it, and what holds of that.

    Parameters and errors are those of `verify_chunk`.
    """
    facts = verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place, tables=tables)
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
