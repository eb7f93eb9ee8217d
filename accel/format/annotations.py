"""What a leaf's values stand for, beside the physical type that they are stored as: the newer and the older annotation.

Source: parquet-format `parquet.thrift` (LogicalType, TimeUnit, ConvertedType).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from accel.format.model import SchemaElement

__all__ = ["ConvertedType", "LogicalType", "time_unit"]


# Plain numbers in both: to make an enum takes a quarter of a millisecond of every process.


class LogicalType:
    """The members of the LogicalType union that are known here: their field ids."""

    STRING: Final = 1
    ENUM: Final = 4
    DECIMAL: Final = 5
    DATE: Final = 6
    TIME: Final = 7
    TIMESTAMP: Final = 8
    INTEGER: Final = 10
    JSON: Final = 12
    BSON: Final = 13
    UUID: Final = 14
    FLOAT16: Final = 15


class ConvertedType:
    """The older annotation, which counts only where there is no LogicalType."""

    UTF8: Final = 0
    ENUM: Final = 4
    DECIMAL: Final = 5
    DATE: Final = 6
    TIME_MILLIS: Final = 7
    TIME_MICROS: Final = 8
    TIMESTAMP_MILLIS: Final = 9
    TIMESTAMP_MICROS: Final = 10
    UINT_8: Final = 11
    UINT_16: Final = 12
    UINT_32: Final = 13
    UINT_64: Final = 14
    INT_8: Final = 15
    INT_16: Final = 16
    INT_32: Final = 17
    INT_64: Final = 18
    JSON: Final = 19
    BSON: Final = 20


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
