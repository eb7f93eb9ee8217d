"""Arrow types and batches are converted to those that Spark's mapInArrow accepts.

Spark reads the Arrow stream of a Python worker by position and refuses many types of Parquet files
(docs/spark.md has the table). Each of them has a nearest type that Spark accepts. The conversion preserves
every value, except that times and timestamps lose digits beyond microseconds. It runs in every worker, and
does not import pyspark.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import decimal_words, list_items, map_lists, masked_numbers, validity, zone_of
from accel.errors import AccelError, SchemaMismatchError

__all__ = [
    "Decimals",
    "spark_arrow_schema",
    "spark_conversion",
    "taken_schema",
    "to_spark_batch",
    "uuid_text",
]

_MAX_PRECISION = 38
_LONG_DIGITS = 18
"""Digits of a decimal that Spark keeps in 64 bits."""

# pa.scalar and pa.array of Python values import pandas where it is installed; buffers do not.
_NUMBERS = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(np.array([0, 1000]))])
_ZERO, _THOUSAND = _NUMBERS[0], _NUMBERS[1]

_WIDENED: dict[Any, Any] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}

_TAKEN = frozenset(
    {
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(),
    }
)  # fmt: skip


class Decimals(enum.Enum):
    """How columns of decimals of at most 18 digits reach Spark."""

    SCALED = "scaled"
    """As Arrow's decimals. Spark makes a `BigDecimal` of each value of these."""
    UNSCALED = "unscaled"
    """As whole numbers, for a plan that makes decimals of them: Spark keeps them in 64 bits itself."""


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema in which Spark can take the data of another.

    Names, order and nullability stay, except that void is nullable; metadata of the schema and its fields is
    dropped. Types that need no conversion stay.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the data.

    Returns
    -------
    pyarrow.Schema
        The schema after conversion.

    Raises
    ------
    SchemaMismatchError
        A column has a type without a counterpart in Spark: a decimal of more than 38 digits, a union, or a
        month-day-nano interval.
    TypeError
        `schema` is not a schema.
    """
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"this takes a pyarrow.Schema, such as scan.schema, not a {type(schema).__name__}")
    return taken_schema(schema)


def taken_schema(schema: pa.Schema, decimals: Decimals = Decimals.SCALED) -> pa.Schema:
    """Return what `spark_arrow_schema` does, with decimals in the form that a plan wants them in."""
    fields = [_field(field, field.name) for field in schema]
    if decimals is Decimals.UNSCALED:
        fields = [field.with_type(pa.int64()) if _fits_long(field.type) else field for field in fields]
    return pa.schema(fields)


def spark_conversion(
    schema: pa.Schema, decimals: Decimals = Decimals.SCALED
) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
    """Return the conversion of batches into types that Spark takes.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the batches.
    decimals : Decimals
        The form in which the plan wants columns of decimals.

    Returns
    -------
    callable or None
        A function from a batch to a batch; None if Spark takes the batches as they are.

    Raises
    ------
    SchemaMismatchError
        As `spark_arrow_schema` raises it.
    AccelError
        There is no column, in a task of a Spark that would lose the rows.
    """
    if not len(schema):
        _refuse_rows_alone()
    target = taken_schema(schema, decimals)
    if target.equals(schema, check_metadata=False) and not any(_holds_time(kind) for kind in schema.types):
        return None

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        return to_spark_batch(batch, target)

    return convert


def _refuse_rows_alone() -> None:
    """Raise AccelError in a task of Spark before 4.1, which counts no row where there is no column."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.TaskContext.get() is None:
        return
    version = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if version is not None and (int(version[1]), int(version[2])) < (4, 1):
        raise AccelError(
            f"Spark {pyspark.__version__} loses rows without columns", hint="name a column, or use Spark 4.1"
        )


def to_spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch into the types of another schema.

    Columns are matched by position, as Spark does. A column that needs no conversion is not copied.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The batch.
    schema : pyarrow.Schema
        The schema that `spark_arrow_schema` made of its own.

    Returns
    -------
    pyarrow.RecordBatch
        The converted batch.

    Raises
    ------
    SchemaMismatchError
        A value has no counterpart: a timestamp that does not fit in 64 bits of microseconds, a list column
        of more than 2**31 - 1 elements in one batch.
    """
    columns = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(_convert(array, field.type))
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"a value of type {array.type} does not fit Spark's {field.type}: {error}",
                place=f"column {field.name}",
                hint="leave the column out with `columns=`",
            ) from error
    if not columns:
        # A batch without columns still has rows, whose number only a struct array can give.
        nothing = pa.StructArray.from_buffers(pa.struct([]), batch.num_rows, [None])
        return pa.RecordBatch.from_struct_array(nothing)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _field(field: pa.Field, path: str) -> pa.Field:
    kind = _target(field.type, path)
    # pyarrow refuses a list of void without nulls, which Spark writes for `array()`.
    return pa.field(field.name, kind, nullable=field.nullable or pa.types.is_null(kind))


def _target(kind: Any, path: str) -> Any:
    """Return the type that Spark accepts for `kind`; `path` names the column in errors."""
    if isinstance(kind, pa.BaseExtensionType):
        # Extension types come first, because those written in Python have no hash.
        return _extension(kind, path)
    if kind in _TAKEN:
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    types = pa.types
    if types.is_decimal(kind):
        return _decimal(kind, path)
    if types.is_timestamp(kind):
        return pa.timestamp("us", zone_of(kind))
    if types.is_time(kind):
        return pa.time64("ns")
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _target(kind.value_type, path)
    # Spark writes `map()`, whose keys are void, but its mapInArrow does not accept it.
    if types.is_map(kind) and not types.is_null(kind.key_type):
        key = _target(kind.key_type, f"{path}.key")
        return pa.map_(key, _field(kind.item_field, f"{path}.value"), keys_sorted=kind.keys_sorted)
    if _is_listlike(kind):
        return pa.list_(_field(kind.value_field, f"{path}.element"))
    if types.is_struct(kind):
        return pa.struct([_field(child, f"{path}.{child.name}") for child in kind])
    raise SchemaMismatchError(
        f"Spark has no type for Arrow's {kind}",
        place=f"column {path}",
        hint="leave the column out with `columns=`",
    )


def _holds_time(kind: Any) -> bool:
    """Return whether a type is a time or holds one. Spark compares its TIMEs correctly in whole microseconds
    only."""
    if pa.types.is_time(kind):
        return True
    return any(_holds_time(kind.field(i).type) for i in range(kind.num_fields))


def _decimal(kind: Any, path: str) -> Any:
    # Spark has no negative scale: 12E+2 is 1200.
    precision, scale = (kind.precision, kind.scale) if kind.scale >= 0 else (kind.precision - kind.scale, 0)
    if precision > _MAX_PRECISION:
        raise SchemaMismatchError(
            f"Spark's decimals have at most {_MAX_PRECISION} digits, {kind} needs {precision}",
            place=f"column {path}",
            hint="leave the column out with `columns=`",
        )
    return pa.decimal128(precision, scale)


def _fits_long(kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.precision <= _LONG_DIGITS)


def _unscaled(array: pa.Array) -> pa.Array:
    """Return decimals as whole numbers of their last digit: 1.25 as 125."""
    wide = array.cast(_decimal(array.type, ""))
    words, valid = decimal_words(wide), validity(wide)
    numbers = words[:, 0]
    if bool(((words[:, 1] != numbers >> 63) & valid).any()):
        raise pa.ArrowInvalid(f"it has more than {_LONG_DIGITS} digits")
    return masked_numbers(numbers, valid, pa.int64())


def _extension(kind: Any, path: str) -> Any:
    if kind.extension_name == "arrow.uuid":
        return pa.string()
    if kind.extension_name == "arrow.bool8":
        return pa.bool_()
    return _target(kind.storage_type, path)


def _is_listlike(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _convert(array: pa.Array, target: Any) -> pa.Array:
    kind, types = array.type, pa.types
    if kind == target and not _holds_time(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return uuid_text(array.storage)
        return _convert(array.storage, target)
    if types.is_dictionary(kind):
        return _convert(array.dictionary_decode(), target)
    if types.is_decimal(kind) and types.is_int64(target):
        return _unscaled(array)
    if types.is_map(target):
        return _convert_map(array, target)
    if types.is_list(target):
        offsets = _offsets(array)
        values = _convert(list_items(array), target.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(array))
    if types.is_struct(target):
        children = [_convert(array.field(i), target.field(i).type) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))
    if types.is_time(target):
        return array.cast(pa.time64("us"), safe=False).cast(target)
    if types.is_timestamp(target) and kind.unit == "ns":
        return _floor_to_micros(array.cast(pa.int64())).cast(target)
    if types.is_duration(target) and kind.unit == "ns":
        return _floor_to_micros(array.cast(pa.int64())).cast(target)
    return array.cast(target)


def _convert_map(array: pa.Array, target: Any) -> pa.Array:
    """Convert a map as a list of structs."""
    lists = map_lists(array)
    entries = list_items(lists)
    keys = _convert(entries.field(0), target.key_type)
    items = _convert(entries.field(1), target.item_type)
    return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=target, mask=_mask(lists))


def _offsets(lists: pa.Array) -> pa.Array:
    """Return int32 offsets of `list_items(lists)`, because a slice begins elsewhere, and views have sizes.

    Casting a sliced list_view to list returns wrong values in pyarrow 26.
    """
    lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), _ZERO)
    return pa.concat_arrays([_NUMBERS[:1], pc.cumulative_sum(lengths)]).cast(pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _floor_to_micros(nanos: pa.Array) -> pa.Array:
    """Round down to whole microseconds, before 1970 too."""
    quotient = pc.divide(nanos, _THOUSAND)  # towards zero
    above = pc.greater(pc.multiply(quotient, _THOUSAND), nanos)
    return pc.subtract(quotient, above.cast(pa.int64()))


_LENGTH = 36
_DASHES = (8, 13, 18, 23)
_DIGIT_PLACES = np.array([place for place in range(_LENGTH) if place not in _DASHES])
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def uuid_text(storage: pa.Array) -> pa.StringArray:
    """Return the canonical lower-case text (8-4-4-4-12 digits) of 16-byte values; null stays null.

    Parameters
    ----------
    storage : pa.FixedSizeBinaryArray
        16-byte values in network order, as RFC 9562 writes them; may be a slice.
    """
    rows = len(storage)
    data = storage.buffers()[1]
    if data is None:
        return storage.cast(pa.binary()).cast(pa.string())
    raw = np.frombuffer(data, dtype=np.uint8, count=16 * rows, offset=16 * storage.offset).reshape(rows, 16)
    text = np.full((rows, _LENGTH), ord("-"), dtype=np.uint8)
    nibbles = np.stack([raw >> 4, raw & 15], axis=2).reshape(rows, 32)
    text[:, _DIGIT_PLACES] = _HEX[nibbles]
    offsets = np.arange(0, _LENGTH * (rows + 1), _LENGTH, dtype=np.int32)
    whole = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    if not storage.null_count:
        return whole
    return pc.if_else(storage.is_valid(), whole, pa.nulls(1, pa.string())[0])
