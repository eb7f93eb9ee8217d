"""Roaring bitmaps in their portable format, checked before the library sees them.

CRoaring reads within the buffer whatever it holds, but its behaviour on a bitmap that breaks its own
rules (members out of order, a wrong cardinality) is undefined; so those are checked here.
Source: RoaringFormatSpec, the 32-bit format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError

if TYPE_CHECKING:
    from pyroaring import BitMap

    from accel.arrays import Bools, Int64s

__all__ = ["bitmap_runs", "decode_bitmap", "encode_bitmap"]

_PLAIN_COOKIE = 12346
_RUN_COOKIE = 12347
_OFFSETS_FROM = 4
"""With runs, offsets are written from that many containers on."""
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

    Raises
    ------
    IndexFormatError
        The bytes are no roaring bitmap, or more than one, or it has a member at or above the limit.
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
    """The members as ascending runs, the first and the last of each, a container at a time: few bytes may be a run of
    very many."""
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
    """The upper 16 bits of each container's members, their number, whether they are stored as runs, and where it starts;
    at the end where the last one ends."""
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
    said = np.frombuffer(_piece(data, at, 4 * count), "<u4") if offsets else None
    at += 4 * count if offsets else 0
    starts = _check_containers(data, at, cards, runs)
    if int(starts[-1]) != size or (said is not None and bool((said != starts[:-1]).any())):
        raise _broken("containers are not where they should be")
    return keys, cards, runs, starts


def _check_containers(
    data: memoryview, at: int, cards: npt.NDArray[np.int64], runs: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Check each container; gives where they start, and where the last one ends."""
    if not bool(runs.any()) and bool((cards <= _ARRAY_MAX).all()):
        # Sparse bitmaps are arrays throughout: all at once.
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
