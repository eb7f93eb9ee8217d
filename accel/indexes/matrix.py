"""A sparse matrix of bits, by key and unit, in roaring bitmaps.

Cell (key, unit) is member `key * units + unit` of a bitmap in the portable format of RoaringFormatSpec.
Members have 32 bits, so a matrix is cut into blocks of whole keys. CRoaring's behaviour on a bitmap that
breaks the rules of the format (members out of order, a wrong cardinality) is undefined, so they are checked
here first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError

if TYPE_CHECKING:
    from pyroaring import BitMap

    from accel.arrays import Bools, Int64s
    from accel.indexes.wire import BlobReader, BlobWriter

__all__ = [
    "Matrix",
    "bitmap_runs",
    "decode_bitmap",
    "distinct_cells",
    "encode_bitmap",
    "keys_per_block",
    "write_matrix",
]

_PLAIN_COOKIE = 12346
_RUN_COOKIE = 12347
_OFFSETS_FROM = 4
"""Fewest containers with which a bitmap of runs has offsets."""
_ARRAY_MAX = 4096
_BITSET_BYTES = 8192


def encode_bitmap(members: npt.NDArray[np.uint32]) -> bytes:
    """Serialise a set of members, given in any order."""
    from pyroaring import BitMap

    bitmap = BitMap(np.ascontiguousarray(members, np.uint32))
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def decode_bitmap(data: memoryview, *, limit: int) -> BitMap:
    """Read a set whose members are all below `limit`.

    Raises IndexFormatError where the bytes are not exactly one roaring bitmap, or it has a member at or above
    the limit.
    """
    from pyroaring import BitMap

    _check(data)
    try:
        bitmap = BitMap.deserialize(bytes(data))
    except (ValueError, IndexError, MemoryError) as error:
        raise IndexFormatError(f"an index holds a broken bitmap: {error}") from error
    if bitmap and bitmap.max() >= limit:
        raise IndexFormatError("an index holds a bitmap with members that are not")
    return bitmap


def bitmap_runs(bitmap: BitMap) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the members as ascending runs, the first and the last of each, a container at a time.

    Since few bytes may encode a run of very many members, these must not be listed one by one.
    """
    data = memoryview(bitmap.serialize())
    keys, cards, runs, starts = _check(data)
    every = zip(keys.tolist(), cards.tolist(), runs.tolist(), starts[:-1].tolist(), strict=True)
    for key, card, run, at in every:
        base = key << 16
        if run:
            count = int.from_bytes(data[at : at + 2], "little")
            pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(count, 2).astype(np.int64)
            first = base + pairs[:, 0]
            yield first, first + pairs[:, 1]
        elif card <= _ARRAY_MAX:
            members = base + np.frombuffer(data, "<u2", card, at).astype(np.int64)
            yield members, members
        else:
            bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITSET_BYTES, at), bitorder="little")
            edges = np.diff(bits.view(np.int8), prepend=0, append=0)
            yield base + np.flatnonzero(edges == 1), base + np.flatnonzero(edges == -1) - 1


def _check(data: memoryview) -> tuple[Int64s, Int64s, Bools, Int64s]:
    """Check a bitmap; return each container's upper 16 bits, number of members, form (runs or not) and start.

    The starts have one more entry, the end of the last container.
    """
    size = len(data)
    cookie = int.from_bytes(_piece(data, 0, 4), "little")
    if cookie & 0xFFFF == _RUN_COOKIE:
        count, at = (cookie >> 16) + 1, 4
        bits = np.frombuffer(_piece(data, at, (count + 7) // 8), np.uint8)
        runs = np.unpackbits(bits, bitorder="little")[:count].astype(bool)
        at += len(bits)
        offsets = count >= _OFFSETS_FROM
    elif cookie == _PLAIN_COOKIE:
        count, at, offsets = int.from_bytes(_piece(data, 4, 4), "little"), 8, True
        if count > 1 << 16:
            raise _broken("too many containers")
        runs = np.zeros(count, bool)
    else:
        raise _broken("no cookie")
    head = np.frombuffer(_piece(data, at, 4 * count), "<u2").reshape(count, 2)
    at += 4 * count
    keys, cards = head[:, 0].astype(np.int64), head[:, 1].astype(np.int64) + 1
    if bool((np.diff(keys) <= 0).any()):
        raise _broken("containers out of order")
    stated = np.frombuffer(_piece(data, at, 4 * count), "<u4") if offsets else None
    at += 4 * count if offsets else 0
    starts = _check_containers(data, at, cards, runs)
    if int(starts[-1]) != size or (stated is not None and bool((stated != starts[:-1]).any())):
        raise _broken("containers are not where they should be")
    return keys, cards, runs, starts


def _check_containers(
    data: memoryview, at: int, cards: npt.NDArray[np.int64], runs: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Check each container; return their starts, and the end of the last one."""
    if not bool(runs.any()) and bool((cards <= _ARRAY_MAX).all()):
        # A sparse bitmap has only arrays, which are checked together.
        ends = np.cumsum(cards)
        members = np.frombuffer(_piece(data, at, 2 * int(cards.sum())), "<u2")
        rising = np.diff(members.astype(np.int32)) > 0
        rising[ends[:-1] - 1] = True
        if not bool(rising.all()):
            raise _broken("members out of order")
        return np.append(at, at + 2 * ends)
    starts = [at]
    for card, run in zip(cards.tolist(), runs.tolist(), strict=True):
        if run:
            at = _check_runs(data, at, card)
        elif card <= _ARRAY_MAX:
            members = np.frombuffer(_piece(data, at, 2 * card), "<u2")
            if bool((members[1:] <= members[:-1]).any()):
                raise _broken("members out of order")
            at += 2 * card
        else:
            bits = np.frombuffer(_piece(data, at, _BITSET_BYTES), np.uint8)
            if int(np.unpackbits(bits).sum()) != card:
                raise _broken("a wrong cardinality")
            at += _BITSET_BYTES
        starts.append(at)
    return np.array(starts, np.int64)


def _check_runs(data: memoryview, at: int, card: int) -> int:
    count = int.from_bytes(_piece(data, at, 2), "little")
    pairs = np.frombuffer(_piece(data, at + 2, 4 * count), "<u2").reshape(count, 2).astype(np.int64)
    first, last = pairs[:, 0], pairs[:, 0] + pairs[:, 1]
    wrong = bool((last > 0xFFFF).any()) or bool((first[1:] <= last[:-1]).any())
    if wrong or int((last - first + 1).sum()) != card:
        raise _broken("runs that overlap or do not add up")
    return at + 2 + 4 * count


def _piece(data: memoryview, at: int, length: int) -> Any:
    if at + length > len(data):
        raise _broken("it ends early")
    return data[at : at + length]


def _broken(what: str) -> IndexFormatError:
    return IndexFormatError(f"an index holds a broken bitmap: {what}")


MEMBERS = 1 << 32
_DENSE = 1 << 20
"""Most cells for which a flag for each is cheaper than sorting."""
_MOST_CELLS = 1 << 27
"""Cells of a part that are listed: 16 bytes of memory for each."""
FEW = 64
"""Most keys that are looked up one by one; for more, all runs of cells are read."""


def distinct_cells(rows: Int64s, columns: Int64s, *, width: int, height: int) -> Int64s:
    """Return the distinct cells `row * width + column`, ascending; rows are below `height`, columns below
    `width`."""
    cells = rows * width
    cells += columns
    if width * height > 16 * len(cells) + _DENSE:
        return sort_distinct(cells)
    seen = np.zeros(width * height, bool)
    seen[cells] = True
    return np.flatnonzero(seen)


def keys_per_block(units: int) -> int:
    """Return the number of keys of every block but the last."""
    return MEMBERS // max(units, 1)


def write_matrix(out: BlobWriter, cells: Int64s, *, keys: int, units: int) -> None:
    """Write the set cells, given ascending as `key * units + unit`, in one block for each bitmap."""
    step = keys_per_block(units)
    for first in range(0, keys, step):
        low, high = np.searchsorted(cells, (first * units, min(first + step, keys) * units))
        out.block(encode_bitmap((cells[low:high] - first * units).astype(np.uint32)))


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A parsed matrix."""

    keys: int
    units: int
    blocks: tuple[BitMap, ...]
    nbytes: int

    @classmethod
    def read(cls, data: BlobReader, *, keys: int, units: int) -> Matrix:
        """Read a matrix; raises IndexFormatError for other bytes, and for cells outside of it."""
        if units < 1 and keys:
            raise IndexFormatError("an index has keys and no units")
        step = keys_per_block(units)
        before = data.left
        blocks = tuple(
            decode_bitmap(data.block(), limit=min(step, keys - first) * units)
            for first in range(0, keys, step)
        )
        return cls(keys, units, blocks, before - data.left + 64)

    def row(self, key: int) -> Int64s:
        """Return the units of a key, ascending."""
        from pyroaring import BitMap

        step = keys_per_block(self.units)
        low = key % step * self.units
        found = self.blocks[key // step] & BitMap(range(low, low + self.units))
        return np.frombuffer(found.to_array(), np.uint32).astype(np.int64) - low

    def cells(self, *, most: int) -> tuple[Int64s, Int64s]:
        """Return the key and the unit of each cell that is set, ordered by key, then unit.

        Raises IndexFormatError where more than `most` are set: a few bytes may set all of them.
        """
        count = sum(map(len, self.blocks))
        if count > min(most, _MOST_CELLS):
            raise IndexFormatError(f"an index has a part of {count} units of keys, more than are written")
        step = keys_per_block(self.units)
        found = [
            np.frombuffer(block.to_array(), np.uint32).astype(np.int64) + number * step * self.units
            for number, block in enumerate(self.blocks)
        ]
        keys, units = np.divmod(np.concatenate([np.zeros(0, np.int64), *found]), max(self.units, 1))
        return keys, units

    def any(self, keys: Bools) -> Bools:
        """Return the units that have one of the keys, given as flags for all keys."""
        out = np.zeros(self.units, bool)
        wanted = np.flatnonzero(keys)
        if len(wanted) <= FEW:
            for key in wanted.tolist():
                out[self.row(key)] = True
            return out
        step = keys_per_block(self.units)
        for number, block in enumerate(self.blocks):
            out |= _units_of_runs(block, keys[number * step : (number + 1) * step], self.units)
        return out

    def all(self, keys: Iterable[int]) -> Bools:
        """Return the units that have every one of the keys."""
        out = np.ones(self.units, bool)
        for key in keys:
            here = np.zeros(self.units, bool)
            here[self.row(key)] = True
            out &= here
            if not bool(out.any()):
                break
        return out


def _units_of_runs(block: BitMap, keys: Bools, units: int) -> Bools:
    """Return the units that have one of the keys, given as flags for the keys of the block."""
    before = np.concatenate(([0], np.cumsum(keys)))
    # The number of runs with each unit, less that of the unit before it.
    rises = np.zeros(units + 1, np.int64)
    for first, last in bitmap_runs(block):
        (first_key, low), (last_key, high) = np.divmod(first, units), np.divmod(last, units)
        longer = last_key > first_key
        starts, ends = keys[first_key], longer & keys[last_key]
        np.add.at(rises, low[starts], 1)
        np.subtract.at(rises, np.where(longer, units, high + 1)[starts], 1)
        np.subtract.at(rises, high[ends] + 1, 1)
        # Keys whose units all lie in one run.
        between = longer & (before[last_key] > before[first_key + longer])
        rises[0] += np.count_nonzero(ends) + np.count_nonzero(between)
        rises[units] -= np.count_nonzero(between)
    found: Bools = np.cumsum(rises[:-1]) > 0
    return found
