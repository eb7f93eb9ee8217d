"""INT96 timestamps, which reach far beyond the years that nanoseconds in 64 bits can tell.

pyarrow decodes them to nanoseconds and wraps around: Spark's 9999-12-31 would be a day of 1816. Milliseconds hold every
day that INT96 has, so a column is decoded to these as well and both are compared. So it is with microseconds, which are
asked for by `Options.int96_unit`: days of 4 bytes reach further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from accel.arrays import integers, whole
from accel.errors import SchemaMismatchError

__all__ = ["CONTROL_UNIT", "check_instants"]

CONTROL_UNIT: Final = "ms"
"""What `check_instants` wants the same values in."""

_PER_MILLI: Final = {"ns": 1_000_000, "us": 1_000}
_WAYS_OUT: Final = {
    "ns": 'read INT96 as microseconds with Options(int96_unit="us"), or leave the column out with columns=',
    "us": "leave the column out with columns=",
}


def check_instants(values: pa.ChunkedArray, control: pa.ChunkedArray) -> None:
    """See that no INT96 timestamp wrapped around.

    Parameters
    ----------
    values, control : pyarrow.ChunkedArray
        The same rows of a column, as pyarrow decodes them to nanoseconds or microseconds, and to `CONTROL_UNIT`.

    Raises
    ------
    SchemaMismatchError
        One does not fit in 64 bits of its unit; the message says which.
    """
    for fine, coarse in zip(_moments(values), _moments(control), strict=True):
        if fine.type.equals(coarse.type):
            continue
        millis = integers(coarse.view(pa.int64()))
        wrong = np.flatnonzero(integers(fine.view(pa.int64())) // _PER_MILLI[fine.type.unit] != millis)
        if len(wrong):
            unit = fine.type.unit
            raise SchemaMismatchError(
                f"{_shown(int(millis[wrong[0]]))}, stored as INT96, does not fit in timestamp[{unit}]",
                hint=_WAYS_OUT[unit],
            )


def _moments(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The timestamps that a column holds, at any depth of nesting; those that are null left out."""
    pending = [whole(column)]
    while pending:
        array = pending.pop()
        kind = array.type
        if pa.types.is_timestamp(kind):
            yield array.drop_null() if array.null_count else array
        elif pa.types.is_struct(kind):
            pending += array.flatten()
        elif pa.types.is_map(kind):
            entry = pa.struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")])
            pending.append(array.cast(pa.list_(entry)))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            pending.append(array.flatten())


def _shown(millis: int) -> str:
    try:
        return str(np.datetime64(millis, "ms"))
    except ValueError:
        return f"{millis} ms after 1970"
