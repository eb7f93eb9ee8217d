"""Dates and times as text, those too that Arrow calls out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, integers_array, is_zoned, validity

__all__ = ["moment_texts", "tellable"]

_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_FIRST = int(np.datetime64("-32767-01-01").astype(np.int64))
_END = int(np.datetime64("32768-01-01").astype(np.int64))
"""Days from 1970 to the years between which Arrow tells moments."""
_LEAST = -(1 << 63)
"""The int64 that numpy takes for no moment at all."""


def tellable(array: pa.Array) -> bool:
    """Whether Arrow makes text of all dates, times or timestamps of an array."""
    ticks, unit = _ticks(array)
    ticks = ticks[validity(array)]
    if not len(ticks):
        return True
    if pa.types.is_time(array.type):
        return 0 <= int(ticks.min()) and int(ticks.max()) < _DAY * _PER_SECOND[unit]
    day = 1 if unit == "D" else _DAY * _PER_SECOND[unit]
    return _FIRST * day <= int(ticks.min()) and int(ticks.max()) < _END * day


def moment_texts(array: pa.Array) -> list[str | None]:
    """Each as Arrow spells it, with a Z where there is a zone.

    Years beyond 32767 are spelt in full. What is no moment, such as a time of 25 hours, is its number and unit.
    """
    kind = array.type
    zone = "Z" if pa.types.is_timestamp(kind) and is_zoned(kind) else ""
    if tellable(array):
        if zone:
            # In the instant's own terms: the zone's name need not be known here.
            array = array.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
        told = array.cast(pa.string()).to_pylist()
    else:
        ticks, unit = _ticks(array)
        told = [
            _told(int(tick), unit, kind) if valid else None
            for tick, valid in zip(ticks, validity(array), strict=True)
        ]
    return [None if text is None else f"{text}{zone}" for text in told]


def _told(tick: int, unit: str, kind: pa.DataType) -> str:
    ticks = integers_array([tick], pa.int32() if kind.bit_width == 32 else pa.int64())
    one = ticks.view(pa.timestamp(unit) if pa.types.is_timestamp(kind) else kind)
    if tellable(one):
        return str(one.cast(pa.string())[0].as_py())
    if pa.types.is_time(kind) or tick == _LEAST:
        return f"{tick}{unit}"
    text = str(np.datetime64(tick, unit))  # type: ignore[call-overload]  # a unit is a name to numpy's stubs
    return text.partition("T")[0] if pa.types.is_date(kind) else text.replace("T", " ")


def _ticks(array: pa.Array) -> tuple[npt.NDArray[Any], str]:
    kind = array.type
    unit = {pa.date32(): "D", pa.date64(): "ms"}.get(kind) or kind.unit
    return integers(array.view(pa.int32() if kind.bit_width == 32 else pa.int64())), unit
