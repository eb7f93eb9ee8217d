"""Zstandard bodies of several pages, decompressed in one call.

Each call makes a context of its own, which costs as much as a small page: to find out what the processor can do it
asks it (CPUID), and a virtual machine answers that through its host. Frames behind one another are one stream to the
codec, so the bodies are joined. Only frames that tell what they come to are: the pages are told apart by that.

Source: RFC 8878 (3.1, frames; 3.1.1.1, the frame header).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.memory import pool

__all__ = ["MOST_TOGETHER", "decompress_frames", "frame_size"]

MOST_TOGETHER: Final = 1 << 20
"""Bytes that bodies decompressed together come to: few enough to stay in the processor's cache."""
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT: Final = 0x20
_SIZED: Final = _MAGIC + b"\xa0"
"""The head of a frame in one segment that comes to 65,792 bytes and more: its size in four bytes follows."""
_RESERVED_OR_DICTIONARY: Final = 0x0B
_LONGEST_HEADER: Final = 14


def frame_size(body: memoryview) -> int:
    """Bytes that a body, which begins with a frame, says that the frame comes to; -1 where it does not say."""
    head = bytes(body[:_LONGEST_HEADER])
    if len(head) < 6 or head[:4] != _MAGIC or head[4] & _RESERVED_OR_DICTIONARY:
        return -1
    flags = head[4]
    single = flags & _SINGLE_SEGMENT
    start, width = (5 if single else 6), 1 << (flags >> 6)
    if width == 1 and not single:
        return -1
    size = int.from_bytes(head[start : start + width], "little")
    return size + 256 if width == 2 else size


def decompress_frames(
    bodies: Sequence[memoryview], sizes: Sequence[int]
) -> list[npt.NDArray[np.uint8]] | None:
    """What each body decompresses to; None where one does not come to just its size, or does not say so."""
    for body, size in zip(bodies, sizes, strict=True):
        # As writers begin it that know the size, and in every other form.
        if bytes(body[:9]) != _SIZED + size.to_bytes(4, "little") and frame_size(body) != size:
            return None
    total = sum(sizes)
    joined = pa.py_buffer(b"".join(bodies))
    try:
        data = pa.Codec("zstd").decompress(joined, decompressed_size=total, memory_pool=pool())
    except (pa.ArrowException, OSError, ValueError):
        return None
    # pyarrow refuses less or more than that; and each frame less or more than it says.
    raw = np.frombuffer(data, np.uint8)
    found, start = [], 0
    for size in sizes:
        found.append(raw[start : start + size])
        start += size
    return found
