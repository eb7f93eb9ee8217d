"""Arrow values as text and as JSON, dates and times beyond Arrow's own range included."""

from __future__ import annotations

import base64
import json
import math
import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, integers_array, is_zoned, validity
from accel.planning.conform import is_bytes, is_text

__all__ = [
    "moment_texts",
    "plain_values",
    "safe_text",
    "shown_values",
    "tellable",
]

_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_FIRST = int(np.datetime64("-32767-01-01").astype(np.int64))
_END = int(np.datetime64("32768-01-01").astype(np.int64))
"""The first and the last day, counted from 1970, that Arrow writes as text."""
_LEAST = -(1 << 63)
"""The int64 that numpy takes for no moment at all."""


def tellable(array: pa.Array) -> bool:
    """Return whether Arrow can write all dates, times or timestamps of an array as text."""
    ticks, unit = _ticks(array)
    ticks = ticks[validity(array)]
    if not len(ticks):
        return True
    if pa.types.is_time(array.type):
        return 0 <= int(ticks.min()) and int(ticks.max()) < _DAY * _PER_SECOND[unit]
    day = 1 if unit == "D" else _DAY * _PER_SECOND[unit]
    return _FIRST * day <= int(ticks.min()) and int(ticks.max()) < _END * day


def moment_texts(array: pa.Array) -> list[str | None]:
    """Return each date, time or timestamp as Arrow spells it, with a Z if there is a zone.

    Years beyond 32767 are spelt in full. A value that is no moment, such as a time of 25 hours, becomes number and unit.
    """
    kind = array.type
    zone = "Z" if pa.types.is_timestamp(kind) and is_zoned(kind) else ""
    if tellable(array):
        if zone:
            # In UTC: this machine may not know the zone.
            array = array.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
        texts = array.cast(pa.string()).to_pylist()
    else:
        ticks, unit = _ticks(array)
        texts = [
            _moment_text(int(tick), unit, kind) if valid else None
            for tick, valid in zip(ticks, validity(array), strict=True)
        ]
    return [None if text is None else f"{text}{zone}" for text in texts]


def _moment_text(tick: int, unit: str, kind: pa.DataType) -> str:
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


def plain_values(array: pa.Array) -> list[Any]:
    """Return the values of an array as JSON has them, nested ones too.

    Decimals, dates, times and timestamps are ISO text, durations text with their unit, binary is
    base64, NaN and the infinities are text, a map with text keys is an object and any other a list
    of pairs. Nothing is rounded, and pandas is not needed for nanoseconds.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(array)
    types = pa.types
    if types.is_dictionary(kind):
        return plain_values(array.dictionary_decode())
    if types.is_floating(kind):
        return [v if v is None or math.isfinite(v) else _not_finite(v) for v in array.to_pylist()]
    if types.is_date(kind) or types.is_time(kind):
        return moment_texts(array)
    if types.is_timestamp(kind):
        return [None if v is None else v.replace(" ", "T", 1) for v in moment_texts(array)]
    if types.is_duration(kind):
        return [None if v is None else f"{v}{kind.unit}" for v in array.cast(pa.int64()).to_pylist()]
    if types.is_decimal(kind):
        return [None if v is None else format(v, "f") for v in array.to_pylist()]
    if is_bytes(kind):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    if is_text(kind):
        return _strings(array)
    if types.is_struct(kind):
        return _structs(array)
    if types.is_map(kind):
        return _maps(array)
    if _is_list(kind):
        return _lists(array)
    return [v if isinstance(v, int | None) else str(v) for v in array.to_pylist()]


def shown_values(array: pa.Array) -> list[str | None]:
    """Return each value as one line of text that is safe to print; None for null."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return [None if v is None else str(v).lower() for v in array.to_pylist()]
    if pa.types.is_timestamp(kind):
        return moment_texts(array)
    if is_bytes(kind):
        return [None if v is None else f"x'{v.hex()}'" for v in array.to_pylist()]
    values = plain_values(array)
    nested = pa.types.is_nested(kind)
    return [
        None if v is None else safe_text(json.dumps(v, ensure_ascii=False) if nested else str(v))
        for v in values
    ]


def safe_text(text: str) -> str:
    """Escape characters that could move a cursor, recolour a terminal, or turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _strings(array: pa.Array) -> list[str | None]:
    try:
        values: list[str | None] = array.to_pylist()
    except UnicodeDecodeError:
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if v is None else v.decode("utf-8", "replace") for v in raw]
    return values


def _extension(array: pa.Array) -> list[Any]:
    if array.type.extension_name == "arrow.uuid":
        return [None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()]
    return plain_values(array.storage)


def _structs(array: pa.Array) -> list[Any]:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    columns = [plain_values(array.field(i)) for i in range(array.type.num_fields)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
    valid = array.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]


def _spans(array: pa.Array) -> list[tuple[int, int] | None]:
    valid = array.is_valid().to_pylist()
    if pa.types.is_fixed_size_list(array.type):
        size, first = array.type.list_size, array.offset
        return [((first + i) * size, (first + i + 1) * size) if ok else None for i, ok in enumerate(valid)]
    offsets = array.offsets.to_pylist()
    return [(offsets[i], offsets[i + 1]) if ok else None for i, ok in enumerate(valid)]


def _inside(spans: list[tuple[int, int] | None], child: pa.Array) -> tuple[pa.Array, int]:
    """Return the part of a child that the spans cover, and its start: the array may be a small slice."""
    used = [span for span in spans if span is not None]
    if not used:
        return child.slice(0, 0), 0
    return child.slice(used[0][0], used[-1][1] - used[0][0]), used[0][0]


def _lists(array: pa.Array) -> list[Any]:
    spans = _spans(array)
    child, first = _inside(spans, array.values)
    values = plain_values(child)
    return [None if span is None else values[span[0] - first : span[1] - first] for span in spans]


def _maps(array: pa.Array) -> list[Any]:
    spans = _spans(array)
    keys, first = _inside(spans, array.keys)
    pairs = list(zip(plain_values(keys), plain_values(_inside(spans, array.items)[0]), strict=True))
    out: list[Any] = []
    for span in spans:
        if span is None:
            out.append(None)
            continue
        entries = pairs[span[0] - first : span[1] - first]
        objects = is_text(array.type.key_type) and len({key for key, _ in entries}) == len(entries)
        out.append(dict(entries) if objects else [list(pair) for pair in entries])
    return out
