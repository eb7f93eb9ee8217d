"""INT96 timestamps, a time of day and a Julian day, are compared with what pyarrow makes of them.

They reach beyond the years that 64 bits can represent, where pyarrow wraps around: in nanoseconds, Spark's
9999-12-31 would become a day of 1816. So a column is also decoded to the 12 bytes that are stored, and the
timestamps are compared with these.

Source: parquet-format `parquet.thrift` (Type.INT96).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, list_items, map_lists, whole
from accel.decode.splice import SchemaMemo
from accel.errors import SchemaMismatchError
from accel.format.model import ParquetSchema, Physical, SchemaElement
from accel.format.thrift import I32, read_struct, write_struct

__all__ = ["check_instants", "with_stored_instants"]

_BYTES: Final = 12
_STORED: Final = np.dtype([("time", "<i8"), ("day", "<u4")])
"""Nanoseconds of the day, and the Julian day."""
_EPOCH: Final = 2_440_588
"""The Julian day of 1970-01-01."""
_PER_DAY: Final = {"ns": 86_400_000_000_000, "us": 86_400_000_000}
_NANOS: Final = {"ns": 1, "us": 1_000}
_BEYOND: Final = 2.0**63 + 2.0**32
"""Larger numbers do not fit in 64 bits, however a float was rounded; smaller ones change their sign where
they wrap."""
_WAYS_OUT: Final = {
    "ns": (
        'read INT96 as microseconds with `Options(int96_unit="us")`, or leave the column out with `columns=`'
    ),
    "us": "leave the column out with `columns=`",
}
_NOTHING: Final[Mapping[str, bytes]] = {}
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _FIELD_ID = 1, 2, 3, 4, 9

_schemas: SchemaMemo[ParquetSchema] = SchemaMemo(16)


def with_stored_instants(schema: ParquetSchema) -> ParquetSchema:
    """Return the schema with INT96 columns as fixed bytes, whose pages have the same encoding."""
    cached = _schemas.get(schema, _NOTHING, None)
    if cached is None:
        elements = tuple(
            _as_bytes(element) if element.physical is Physical.INT96 else element
            for element in schema.elements
        )
        cached = _schemas.put(schema, _NOTHING, None, replace(schema, elements=elements))
    return cached


def _as_bytes(element: SchemaElement) -> SchemaElement:
    fields, _ = read_struct(element.raw)
    others = {number: fields[number] for number in (_REPETITION, _NAME, _FIELD_ID) if number in fields}
    fixed = Physical.FIXED_LEN_BYTE_ARRAY
    raw = write_struct({_TYPE: (I32, int(fixed)), _TYPE_LENGTH: (I32, _BYTES), **others})
    return replace(element, physical=fixed, type_length=_BYTES, raw=raw)


def check_instants(values: pa.ChunkedArray, stored: pa.ChunkedArray) -> None:
    """Verify that every INT96 timestamp is the one that is stored.

    Parameters
    ----------
    values, stored : pyarrow.ChunkedArray
        The same rows of a column: as timestamps, and in the type of `with_stored_instants`.

    Raises
    ------
    SchemaMismatchError
        A timestamp does not fit in 64 bits of its unit, or differs.
    """
    for moments, raw in _instants(whole(values), whole(stored)):
        unit = moments.type.unit
        found = np.frombuffer(raw.buffers()[1], _STORED, len(raw), raw.offset * _BYTES)
        if _is_usual(found, unit):
            continue
        day, time = found["day"].astype(np.int64) - _EPOCH, found["time"]
        ticks = time // _NANOS[unit]
        due = day * _PER_DAY[unit] + ticks
        about = day.astype(np.float64) * _PER_DAY[unit] + ticks
        wrapped = (np.abs(about) > _BEYOND) | ((due < 0) != (about < 0))
        _refuse(wrapped | (due != integers(moments.view(pa.int64()))), wrapped, found, unit)


def _is_usual(found: Any, unit: str) -> bool:
    """Return whether all are times within a day, and days that 64 bits represent, which cannot go wrong."""
    days = 2**63 // _PER_DAY[unit] - 1
    day, time = found["day"], found["time"]
    return bool(
        _EPOCH - days <= int(day.min())
        and int(day.max()) <= _EPOCH + days
        and int(time.min()) >= 0
        and int(time.max()) <= _PER_DAY["ns"]
    )


def _refuse(wrong: npt.NDArray[np.bool_], wrapped: npt.NDArray[np.bool_], found: Any, unit: str) -> None:
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    time, day = int(found["time"][at]), int(found["day"][at])
    moment = _shown((day - _EPOCH) * 86_400_000 + time // 1_000_000)
    if wrapped[at]:
        raise SchemaMismatchError(
            f"{moment}, stored as INT96, does not fit in timestamp[{unit}]", hint=_WAYS_OUT[unit]
        )
    raise SchemaMismatchError(
        f"{moment}, stored as INT96 with {time} nanoseconds of the day, would be read as another "
        f"timestamp[{unit}]",
        hint='read INT96 as nanoseconds with `Options(int96_unit="ns")`',
    )


def _instants(moments: pa.Array, stored: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the timestamps of a column at any depth, with the stored bytes, leaving out nulls."""
    pending = [(moments, stored)]
    while pending:
        one, other = map(_storage, pending.pop())
        if pa.types.is_timestamp(one.type):
            if pa.types.is_fixed_size_binary(other.type) and len(one) > one.null_count:
                yield one.drop_null(), other.drop_null()
        else:
            pending += zip(_children(one), _children(other), strict=True)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_map(kind):
        return [list_items(map_lists(array))]
    if pa.types.is_struct(kind):
        return array.flatten()  # type: ignore[no-any-return]
    return [list_items(array)] if kind.num_fields else []


def _shown(millis: int) -> str:
    try:
        return str(np.datetime64(millis, "ms"))
    except (ValueError, OverflowError):
        return f"{millis} ms after 1970"
