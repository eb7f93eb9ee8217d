"""The bitmap indexes of all row groups made into one: a value is looked up in one part, not in a part of each.

They are ascending runs of keys, and are merged as such: of each only the parts are held that the next stretch of
keys stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.bitmap_parts import BitmapHead, Part, cut_parts, encode_head, keys_per_part, read_head
from accel.indexes.kind import Presence
from accel.indexes.parts import Directory, head_length

if TYPE_CHECKING:
    from accel.arrays import Int64s, Uint64s

__all__ = ["join_bitmaps"]

Read = Callable[[int, int], bytes]

_AT_ONCE = 1 << 19
"""Keys merged at a time, about: some 50 bytes each."""
_MOST_UNITS = (1 << 31) - 1


def join_bitmaps(runs: Sequence[Read], *, keep: Callable[[bytes], None]) -> bytes | None:
    """One index of version 2 from indexes by page, of one column, of all row groups in their order.

    Parameters
    ----------
    runs : sequence of callables
        For each index what gives the bytes of a half-open range of it.
    keep : callable
        Is given the parts of the new index, in order.

    Returns
    -------
    bytes or None
        Its head, which stands before the parts. None, and nothing has been kept, where they cannot be one: for what they
        hold is not of one type, or their pages are too many.
    """
    heads = [_read_head(read) for read in runs]
    groups = np.array([len(head.presence) for head in heads], np.int64)
    units = int(groups.sum())
    alike = len({(head.tag, head.exact, head.range_rows, head.groups is None) for head in heads}) == 1
    if not alike or heads[0].range_rows or heads[0].groups is not None or not 0 < units <= _MOST_UNITS:
        return None
    at_most = sum(int(head.directory.sizes.sum()) for head in heads)
    step = keys_per_part(at_most, units)
    placed: list[Directory] = []
    for keys, cells in _merged(runs, heads, groups):
        for low, high, part in cut_parts(keys, cells, step=step, units=units):
            keep(part)
            # A copy: what is left of the keys is not held by it.
            first = keys[low : low + 1].copy()
            placed.append(Directory.of(first, np.array([high - low], np.int64), [part]))
    return encode_head(
        Presence.joined([head.presence for head in heads]),
        range_rows=0,
        tag=heads[0].tag,
        exact=heads[0].exact,
        counts=np.concatenate([head.counts for head in heads]),
        directory=Directory.joined(placed),
        groups=groups,
    )


def _read_head(read: Read) -> BitmapHead:
    return read_head(read(0, head_length(read(0, 8))), rows=0)


def _merged(
    runs: Sequence[Read], heads: Sequence[BitmapHead], groups: Int64s
) -> Iterator[tuple[Uint64s, Int64s]]:
    """Stretches of distinct keys, ascending, and the cells of their matrix that are set."""
    units = int(groups.sum())
    sources = [
        _Run(read, head, first)
        for read, head, first in zip(runs, heads, (np.cumsum(groups) - groups).tolist(), strict=True)
    ]
    for end in _ends(heads):
        taken = [run.take(end) for run in sources]
        keys = np.concatenate([keys for keys, _ in taken])
        places = np.concatenate([places for _, places in taken])
        if not len(keys):
            continue
        # The units of a key ascend from run to run, and within each.
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        new = np.ones(len(keys), bool)
        new[1:] = keys[1:] != keys[:-1]
        cells = (np.cumsum(new) - 1) * units
        cells += places
        yield keys[new], cells


def _ends(heads: Sequence[BitmapHead]) -> list[int | None]:
    """Keys before which stretches end, so that each has about as many; None: the last has no end."""
    firsts = np.concatenate([head.directory.first_keys for head in heads])
    sizes = np.concatenate([head.directory.sizes for head in heads])
    order = np.argsort(firsts, kind="stable")
    stretch = np.cumsum(sizes[order]) // _AT_ONCE
    begins = np.flatnonzero(np.diff(stretch) > 0) + 1
    return [*dict.fromkeys(firsts[order][begins].tolist()), None]


class _Run:
    """The parts of one row group's index, taken in order."""

    def __init__(self, read: Read, head: BitmapHead, first_unit: int) -> None:
        self._read = read
        self._head = head
        self._spans = head.spans()
        self._first_unit = first_unit
        self._next = 0
        self._keys: Uint64s = np.zeros(0, np.uint64)
        self._places: Int64s = np.zeros(0, np.int64)

    def take(self, end: int | None) -> tuple[Uint64s, Int64s]:
        """A key for each of its units, and these, of the keys before `end` that have not been taken."""
        keys, places = [self._keys], [self._places]
        firsts = self._head.directory.first_keys
        while self._next < len(self._spans) and (end is None or int(firsts[self._next]) < end):
            more = self._part(self._next)
            keys.append(more[0])
            places.append(more[1])
            self._next += 1
        all_keys, all_places = np.concatenate(keys), np.concatenate(places)
        stop = len(all_keys) if end is None else int(np.searchsorted(all_keys, np.uint64(end)))
        self._keys, self._places = all_keys[stop:].copy(), all_places[stop:].copy()
        return all_keys[:stop], all_places[:stop]

    def _part(self, number: int) -> tuple[Uint64s, Int64s]:
        begin, end = self._spans[number]
        part = Part.read(memoryview(self._read(begin, end)), self._head, number)
        rows, units = part.matrix.cells()
        if not len(rows) or int(rows[-1]) >= len(part.keys):
            raise IndexFormatError("a part of a bitmap index has keys that stand nowhere")
        return part.keys[rows], units + self._first_unit
