"""Chunks whose dictionary ran full midway: the pages before and behind that place, each part for itself.

Writers begin with a dictionary and fall back to PLAIN once it is too large. Either kind of page has a faster way
than both together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from accel.decode.chunks import ChunkPages
from accel.decode.entries import pays
from accel.decode.units import Unit, Verified
from accel.format.model import Leaf, PageType, Physical
from accel.ranges import Buffer

__all__ = ["split_pages"]

_LEAST_ROWS = 1 << 14
"""Fewer rows are decoded together: each part costs a call of its own."""
_LEAST_SHARE = 8
"""Texts are split only where one part in this many of them names entries: PLAIN ones gain nothing."""


def split_pages(known: Verified, unit: Unit, kind: pa.DataType) -> tuple[ChunkPages, ChunkPages] | None:
    """The dictionary-encoded pages of a unit and those behind them; None where it is not worth it, or not so."""
    leaf = known.schema.leaves[unit.leaves[0]]
    facts, chunk = known.facts[leaf.ordinal], known.chunks[leaf.ordinal]
    named, encoded = facts.dictionary, facts.encoded
    if named is None or encoded.all() or unit.num_rows < _LEAST_ROWS or not _is_flat(unit, leaf):
        return None
    element = known.schema.elements[leaf.element]
    if not pays(kind, element, named, chunk.codec):
        return None
    if element.physical is Physical.BYTE_ARRAY and named.named * _LEAST_SHARE < facts.num_values:
        return None
    turn = int(np.flatnonzero(~encoded)[0])
    if encoded[turn:].any():
        return None
    stops = np.cumsum(facts.page_values) if chunk.whole else chunk.stop_rows
    firsts = stops - facts.page_values if chunk.whole else chunk.first_rows
    head, tail = _cut_buffers(known, leaf.ordinal, turn)
    return (
        ChunkPages(
            leaf=leaf.ordinal,
            codec=chunk.codec,
            dictionary=named.page,
            buffers=head,
            first_rows=firsts[:turn],
            stop_rows=stops[:turn],
            num_values=chunk.num_values,
        ),
        ChunkPages(
            leaf=leaf.ordinal,
            codec=chunk.codec,
            dictionary=None,
            buffers=tail,
            first_rows=firsts[turn:],
            stop_rows=stops[turn:],
            num_values=chunk.num_values,
        ),
    )


def _is_flat(unit: Unit, leaf: Leaf) -> bool:
    return len(unit.leaves) == 1 and leaf.max_repetition == 0 and len(leaf.path) == 1


def _cut_buffers(known: Verified, leaf: int, turn: int) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """The data pages before number `turn` and from there on, neighbours back to back as they were."""
    head: list[Buffer] = []
    tail: list[Buffer] = []
    seen = 0
    for buffer, table in zip(known.chunks[leaf].buffers, known.facts[leaf].tables, strict=True):
        view = memoryview(buffer)
        data = np.flatnonzero((table.type == PageType.DATA_PAGE) | (table.type == PageType.DATA_PAGE_V2))
        if not len(data):
            continue
        starts, end = table.start[data], int(table.end[data[-1]])
        cut = min(max(turn - seen, 0), len(data))
        place = end if cut == len(data) else int(starts[cut])
        if cut:
            head.append(view[int(starts[0]) : place])
        if place < end:
            tail.append(view[place:end])
        seen += len(data)
    return tuple(head), tuple(tail)
