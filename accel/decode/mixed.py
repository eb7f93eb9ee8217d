"""Chunks whose pages are of several forms, cut into parts that each have one way to be decoded.

Writers begin with a dictionary and fall back to PLAIN once it is too large. Either kind of page has a faster way
than both together; and PLAIN pages may be of a form that is read as it lies, or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.decode.bodies import DataPage
from accel.decode.chunks import ChunkPages
from accel.decode.entries import pays
from accel.decode.forms import Form
from accel.decode.plain import is_plain
from accel.decode.units import Unit, Verified
from accel.decode.verify import IS_DATA
from accel.format.model import Physical
from accel.ranges import Buffer

__all__ = ["Way", "cut_pages", "cut_ways"]

_LEAST_ROWS = 1 << 14
"""Fewer rows are decoded together: each part costs a call of its own."""
_MOST_PARTS = 8
_FEW = 8
"""Of one row in so many, copies of numbers are saved by gathering them."""
_LEAST_SHARE = 8
"""Texts are split only where one part in this many of them names entries: most PLAIN ones gain nothing."""


class Way(NamedTuple):
    """Data pages next to each other that are decoded alike."""

    start: int
    stop: int
    plain: bool
    """Read as they lie, by `read_plain`."""


def cut_ways(
    known: Verified,
    unit: Unit,
    *,
    kind: pa.DataType,
    form: Form | None,
    pages: Sequence[DataPage],
    wanted: int,
) -> list[Way]:
    """The parts of a unit, which is a flat column; none where all of it is best decoded in the common way.

    `pages` may be empty where there is no `form`; `wanted` counts the rows that are selected.
    """
    leaf = known.schema.leaves[unit.leaves[0]]
    facts = known.facts[leaf.ordinal]
    encoded = facts.encoded.tolist()
    optional = leaf.max_definition > 0
    plain = [form is not None and is_plain(page, form, optional=optional) for page in pages]
    plain = plain or [False] * len(encoded)
    if plain and all(plain):
        return [Way(0, len(plain), True)]
    if unit.num_rows < _LEAST_ROWS or all(encoded):
        return []
    if form is not None and not form.one_by_one and wanted * _FEW > unit.num_rows:
        # Beside pages of a dictionary these gain less than another call costs.
        return []
    indices = _as_indices(known, leaf.ordinal, kind)
    # 2: as they lie, 1: as indices, 0: the rest.
    ways = [2 if flat else int(indices and named) for flat, named in zip(plain, encoded, strict=True)]
    ways = _without_short(ways, facts.page_values.tolist())
    cut = _runs(ways)
    return [Way(start, stop, way == 2) for way, start, stop in cut] if 1 < len(cut) <= _MOST_PARTS else []


def _as_indices(known: Verified, ordinal: int, kind: pa.DataType) -> bool:
    """Whether the dictionary-encoded pages are worth a part of their own."""
    leaf = known.schema.leaves[ordinal]
    element, facts = known.schema.elements[leaf.element], known.facts[ordinal]
    named = facts.dictionary
    if named is None or not pays(kind, element, named, known.chunks[ordinal].codec):
        return False
    return element.physical is not Physical.BYTE_ARRAY or named.named * _LEAST_SHARE >= facts.num_values


def _runs(ways: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each run of equal ways: the way, its first page and the one after its last."""
    found: list[tuple[int, int, int]] = []
    start = 0
    for way, run in groupby(ways):
        stop = start + len(list(run))
        found.append((way, start, stop))
        start = stop
    return found


def _without_short(ways: list[int], rows: Sequence[int]) -> list[int]:
    """The ways, with short runs of pages that could be read as they lie among the rest."""
    kept = list(ways)
    for way, start, stop in _runs(ways):
        if way == 2 and sum(rows[start:stop]) < _LEAST_ROWS:
            kept[start:stop] = [0] * (stop - start)
    return kept


def cut_pages(known: Verified, ordinal: int, *, start: int, stop: int) -> ChunkPages:
    """Some data pages of a chunk as a chunk: neighbours back to back as they were."""
    facts, chunk = known.facts[ordinal], known.chunks[ordinal]
    stops = np.cumsum(facts.page_values) if chunk.whole else chunk.stop_rows
    firsts = stops - facts.page_values if chunk.whole else chunk.first_rows
    named = facts.dictionary if facts.encoded[start:stop].any() else None
    return ChunkPages(
        leaf=ordinal,
        codec=chunk.codec,
        dictionary=None if named is None else named.page,
        buffers=_cut_buffers(known, ordinal, start, stop),
        first_rows=firsts[start:stop],
        stop_rows=stops[start:stop],
        num_values=chunk.num_values,
        whole=False,
        sizes=_sizes(known, ordinal)[start:stop],
    )


def _sizes(known: Verified, ordinal: int) -> npt.NDArray[np.int64]:
    """Bytes of each data page, header included."""
    found = []
    for table in known.facts[ordinal].tables:
        size = table.end - table.start
        data = IS_DATA[table.type]
        found.append(size if data.all() else size[data])
    return np.concatenate(found)


def _cut_buffers(known: Verified, ordinal: int, start: int, stop: int) -> tuple[Buffer, ...]:
    kept: list[Buffer] = []
    seen = 0
    for buffer, table in zip(known.chunks[ordinal].buffers, known.facts[ordinal].tables, strict=True):
        data = np.flatnonzero(IS_DATA[table.type])
        inside = data[max(start - seen, 0) : max(stop - seen, 0)]
        if len(inside):
            kept.append(memoryview(buffer)[int(table.start[inside[0]]) : int(table.end[inside[-1]])])
        seen += len(data)
    return tuple(kept)
