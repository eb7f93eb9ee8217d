"""Runs of Thrift numbers, decoded at once with numpy, with a plain loop behind it.

Every varint ends at its first byte below 128, so the ends of a run of them are found in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from accel.format.thrift import ThriftReader

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["decode_tokens", "read_zigzags", "split_tokens"]

_FEW: Final = 24
"""Below this many numbers the plain loop is faster."""
_LONGEST: Final = 9
"""Bytes of a varint that the fast pass takes: 63 bits, which cannot overflow."""


def split_tokens(
    data: npt.NDArray[np.uint8], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Starts and lengths of the first `count` varints; None where there are not so many."""
    ends = np.flatnonzero(data < 128)[:count] + 1
    if len(ends) < count:
        return None
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    return starts, ends - starts


def decode_tokens(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> Int64s | None:
    """The zigzag numbers of the varints at `starts`; None where one is longer than the fast pass takes."""
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST:
        return None
    values = (data[starts] & 127).astype(np.int64)
    for k in range(1, longest):
        longer = lengths > k
        values[longer] |= (data[starts[longer] + k] & 127).astype(np.int64) << (7 * k)
    return (values >> 1) ^ -(values & 1)


def read_zigzags(reader: ThriftReader, count: int) -> Int64s:
    """The next `count` numbers; raises ParquetFormatError where one is invalid or they end early."""
    if count >= _FEW:
        # A number has at most ten bytes: what lies beyond is none of this run's.
        stop = min(reader.size, reader.pos + 10 * count)
        data = np.frombuffer(reader.buf, np.uint8, stop - reader.pos, reader.pos)
        tokens = split_tokens(data, count)
        values = None if tokens is None else decode_tokens(data, *tokens)
        if tokens is not None and values is not None:
            reader.pos += int(tokens[0][-1] + tokens[1][-1])
            return values
    return np.array([reader.zigzag() for _ in range(count)], np.int64)
