"""The figures of a zone map as bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.native import Tag, from_natives, native_values, tag_of
from accel.indexes.wire import BlobReader, BlobWriter
from accel.indexes.zone_stats import FILL, ZoneStats

__all__ = ["MAX_PARTS", "read_path", "read_stats", "read_text", "write_path", "write_stats"]

MAX_PARTS = 1000
"""Of a path, of a tuple, and of an index."""
_SUM_BYTES = 16


def write_path(out: BlobWriter, path: tuple[str, ...]) -> None:
    """A u32 and as many blocks."""
    out.u32(len(path))
    for part in path:
        out.block(part.encode())


def read_path(blob: BlobReader) -> tuple[str, ...]:
    """Raises IndexFormatError."""
    parts = blob.u32()
    if parts > MAX_PARTS:
        raise IndexFormatError(f"a zone map has a path of {parts} parts")
    return tuple(read_text(blob) for _ in range(parts))


def read_text(blob: BlobReader) -> str:
    """Raises IndexFormatError."""
    try:
        return bytes(blob.block()).decode()
    except UnicodeDecodeError as error:
        raise IndexFormatError(f"a zone map has a text that is none: {error}") from None


def write_stats(out: BlobWriter, stats: ZoneStats) -> None:
    """The figures of one column or expression."""
    out.array(stats.rows, "<i8")
    out.array(stats.nulls, "<i8")
    out.array(stats.nans, "<i8")
    out.flags(stats.exact)
    for bounds in (stats.lower, stats.upper):
        out.flags(np.array([value is not None for value in bounds], bool))
        filled = [FILL[stats.tag] if value is None else value for value in bounds]
        out.values(from_natives(filled, stats.tag))
    sums = stats.sums
    whole = sums is not None and stats.tag is not Tag.FLOAT64
    if sums is None or (whole and any(abs(total) >> 126 for total in sums if isinstance(total, int))):
        out.u32(0)
    elif whole:
        out.u32(1)
        raw = b"".join(int(total).to_bytes(_SUM_BYTES, "little", signed=True) for total in sums)
        out.array(np.frombuffer(raw, np.uint8), "u1")
    else:
        out.u32(2)
        out.array(np.array(sums, np.float64), "<f8")


def read_stats(blob: BlobReader, units: int) -> ZoneStats:
    """Raises IndexFormatError for what is not, or contradicts itself."""
    rows, nulls, nans = (blob.array(units, "<i8").astype(np.int64) for _ in range(3))
    good = (nulls >= 0) & (nans >= 0) & (nulls <= rows) & (nans <= rows - nulls)
    if not bool(good.all()):
        raise IndexFormatError("a zone map's counts contradict each other")
    exact = blob.flags(units)
    sides: list[tuple[Any, ...]] = []
    tags = set()
    for _ in range(2):
        has = blob.flags(units)
        values = blob.values()
        if len(values) != units:
            raise IndexFormatError("a zone map has bounds of another number of units")
        tags.add(tag_of(values.type))
        natives = native_values(values).tolist()
        sides.append(tuple(v if there else None for v, there in zip(natives, has.tolist(), strict=True)))
    tag = tags.pop()
    if tags or tag is None:
        raise IndexFormatError("a zone map has bounds of two types")
    if tag is Tag.FLOAT64 and any(v is not None and math.isnan(v) for side in sides for v in side):
        raise IndexFormatError("a zone map has NaN for a bound")
    form = blob.u32()
    sums: tuple[int | float, ...] | None = None
    if form == 1:
        raw = bytes(blob.take(units * _SUM_BYTES))
        pieces = (raw[i : i + _SUM_BYTES] for i in range(0, len(raw), _SUM_BYTES))
        sums = tuple(int.from_bytes(piece, "little", signed=True) for piece in pieces)
    elif form == 2:
        sums = tuple(blob.array(units, "<f8").tolist())
    elif form:
        raise IndexFormatError("a zone map has sums of an unknown form")
    return ZoneStats(tag, sides[0], sides[1], exact, rows, nulls, nans, sums)
