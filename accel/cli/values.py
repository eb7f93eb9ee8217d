"""Arrow values as text and as JSON."""

from __future__ import annotations

import base64
import json
import math
import uuid
from typing import Any

import pyarrow as pa

from accel.arrays import is_zoned
from accel.planning.conform import is_bytes, is_text

__all__ = [
    "arrow_moments",
    "is_number",
    "moment_texts",
    "plain_values",
    "safe_text",
    "shown_values",
]


def arrow_moments(array: pa.Array) -> pa.StringArray:
    """Return each date, time or timestamp as Arrow spells it, in UTC and without a zone; what begins with "<"
    is one that it has no text for."""
    kind = array.type
    if pa.types.is_timestamp(kind) and is_zoned(kind):
        # In UTC: this machine may not know the zone.
        array = array.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    return array.cast(pa.string())


def moment_texts(array: pa.Array) -> list[str | None]:
    """Return each date, time or timestamp as Arrow spells it, with a Z if there is a zone.

    One that Arrow has no text for, as a time of 25 hours, becomes "<value out of range: 90000>".
    """
    zone = "Z" if pa.types.is_timestamp(array.type) and is_zoned(array.type) else ""
    texts = arrow_moments(array).to_pylist()
    return [text if text is None or text[0] == "<" else f"{text}{zone}" for text in texts]


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
        return [v if v is None or v[0] == "<" else v.replace(" ", "T", 1) for v in moment_texts(array)]
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


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


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
