"""What a leaf's values stand for, beside the physical type that they are stored as: the newer and the older annotation.

Source: parquet-format `parquet.thrift` (LogicalType, TimeUnit, ConvertedType).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from accel.format.model import SchemaElement

__all__ = ["ConvertedType", "LogicalType", "time_unit"]


class LogicalType(enum.IntEnum):
    """The members of the LogicalType union that are known here, by their field ids."""

    STRING = 1
    ENUM = 4
    DECIMAL = 5
    DATE = 6
    TIME = 7
    TIMESTAMP = 8
    INTEGER = 10
    JSON = 12
    BSON = 13
    UUID = 14
    FLOAT16 = 15


class ConvertedType(enum.IntEnum):
    """The older annotation, which counts only where there is no LogicalType."""

    UTF8 = 0
    ENUM = 4
    DECIMAL = 5
    DATE = 6
    TIME_MILLIS = 7
    TIME_MICROS = 8
    TIMESTAMP_MILLIS = 9
    TIMESTAMP_MICROS = 10
    UINT_8 = 11
    UINT_16 = 12
    UINT_32 = 13
    UINT_64 = 14
    INT_8 = 15
    INT_16 = 16
    INT_32 = 17
    INT_64 = 18
    JSON = 19
    BSON = 20


_UNITS: Final = {1: "ms", 2: "us", 3: "ns"}
"""By the field ids of the TimeUnit union."""
_CONVERTED_UNITS: Final[dict[int | None, str]] = {
    ConvertedType.TIME_MILLIS: "ms",
    ConvertedType.TIME_MICROS: "us",
    ConvertedType.TIMESTAMP_MILLIS: "ms",
    ConvertedType.TIMESTAMP_MICROS: "us",
}


def time_unit(element: SchemaElement) -> str | None:
    """The unit of a leaf of times or timestamps, as Arrow calls it; None where the annotation names none that is known."""
    if element.logical_type is not None:
        return _UNITS.get(element.logical_params.get("unit", 0))
    return _CONVERTED_UNITS.get(element.converted_type)
