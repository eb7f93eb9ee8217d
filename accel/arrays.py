"""Arrow arrays are made and read by their buffers.

`pa.array`, `pa.scalar` and `to_numpy(zero_copy_only=False)` import pandas where it is installed, which takes
a first scan longer than its requests.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import MemoryLimitError
from accel.memory import allocate

__all__ = [
    "WIDE_TEXTS",
    "Bools",
    "Filled",
    "Int64s",
    "Uint64s",
    "bools",
    "bytes_array",
    "bytes_of",
    "change_fields",
    "count_ones",
    "decimal_words",
    "from_ipc",
    "from_numpy",
    "integers",
    "integers_array",
    "is_zoned",
    "join_buffers",
    "list_items",
    "make_scalar",
    "map_lists",
    "mask",
    "masked_numbers",
    "numpy_dtype",
    "one",
    "own_copy",
    "pack_bits",
    "packed_validity",
    "relabel",
    "repeat_scalar",
    "sort_distinct",
    "to_ipc",
    "validity",
    "values_array",
    "whole",
    "zone_of",
]

# Bytes from which Python's allocator uses memory pages of their own.
_LONG = 64 << 10
_BYTES = (memoryview, bytes, bytearray)
WIDE_TEXTS = frozenset({pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY})
"""Type ids of texts and bytes with 64-bit offsets."""
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)


class Filled(Protocol):
    """Bytes that are made in the place where they are put."""

    def __len__(self) -> int: ...

    def put(self, out: npt.NDArray[np.uint8]) -> None:
        """Make the bytes in an array of their number."""


def join_buffers(parts: Sequence[bytes | bytearray | memoryview | Filled]) -> pa.Buffer:
    """Concatenate the parts in memory of Arrow's allocator.

    Joining bytes would take fresh memory pages, which cost twice as much as the copy, and hold the GIL.
    """
    joined = allocate(sum(map(len, parts)))
    view = np.frombuffer(joined, np.uint8)
    position = 0
    for part in parts:
        end = position + len(part)
        if isinstance(part, _BYTES):
            view[position:end] = np.frombuffer(part, np.uint8)
        else:
            part.put(view[position:end])
        position = end
    return joined


def own_copy(view: memoryview) -> bytes | memoryview:
    """Copy the bytes, so that the buffer which they are a part of can be freed."""
    return bytes(view) if view.nbytes < _LONG else memoryview(join_buffers((view,))).cast("B").toreadonly()


def relabel(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the array with another type of the same layout, sharing its buffers."""
    return pa.Array.from_buffers(to, len(array), array.buffers(), array.null_count, array.offset)


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array in place of chunks, with run-end encoding decoded."""
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # pyarrow < 27 gives back several where 2 GiB overflow
            array = pa.concat_arrays(array.chunks)
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc

        array = pc.run_end_decode(array)
    return array


def validity(array: pa.Array) -> Bools:
    """Return which values are not null."""
    buffer = array.buffers()[0] if array.null_count else None
    if buffer is None:
        if array.null_count:  # types without a validity bitmap
            return mask(array.is_valid())
        return np.ones(len(array), bool)
    return _bits(buffer, array.offset, len(array))


def mask(array: pa.BooleanArray) -> Bools:
    """Return a boolean array as numpy; null is False."""
    if not len(array):
        return np.zeros(0, bool)
    out = _bits(array.buffers()[1], array.offset, len(array))
    return out & validity(array) if array.null_count else out


def bools(values: Bools, valid: Bools | None = None) -> pa.BooleanArray:
    """Make a boolean array from numpy, null where `valid` is False."""
    if valid is not None and bool(valid.all()):
        valid = None
    return pa.Array.from_buffers(
        pa.bool_(),
        len(values),
        [None if valid is None else pack_bits(valid), pack_bits(values)],
        0 if valid is None else len(values) - int(valid.sum()),
    )


def numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of integers and floats.

    `kind.to_pandas_dtype()` imports pandas before pyarrow 26.
    """
    return _DTYPES[kind.id]


_NUMBERS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
_DTYPES = {pa.type_for_alias(name).id: np.dtype(name) for name in _NUMBERS}


def integers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the raw integers of a native array (fixed width, or decimal); those that are null are arbitrary.

    Decimals of 128 and 256 bits become int64 if all fit, else Python ints.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return _bits(array.buffers()[1], array.offset, len(array)).view(np.uint8)
    if not pa.types.is_decimal(kind):
        return _fixed(array, numpy_dtype(kind))
    words = kind.bit_width // 64
    raw = _fixed(array, np.dtype((np.int64, (words,)))).reshape(len(array), words)
    low = raw[:, 0]
    if bool((raw[:, 1:] == (low >> 63)[:, None]).all()):
        return low
    width = words * 8
    data = raw.tobytes()
    out = np.empty(len(array), object)
    out[:] = [int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width)]
    return out


def integers_array(values: npt.NDArray[Any] | Sequence[int], to: pa.DataType) -> pa.Array:
    """Make an array of a native integer, float or decimal type, the inverse of `integers`; every value must
    fit."""
    if pa.types.is_decimal(to):
        width = to.bit_width // 8
        data = b"".join(int(value).to_bytes(width, "little", signed=True) for value in values)
    else:
        data = np.asarray(values, numpy_dtype(to)).tobytes()
    return pa.Array.from_buffers(to, len(values), [None, pa.py_buffer(data)], 0)


def bytes_array(values: Sequence[bytes | None], to: pa.DataType) -> pa.Array:
    """Make an array of binary or text of either size; texts are not validated.

    Raises MemoryLimitError for more than 2 GiB in an array whose offsets have 32 bits.
    """
    valid = None
    if None in values:
        valid = np.array([value is not None for value in values], bool)
        values = [value or b"" for value in values]
    ends = np.zeros(len(values) + 1, np.int64)
    np.add.accumulate(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])  # type: ignore[arg-type]
    if to.id not in WIDE_TEXTS and int(ends[-1]) > np.iinfo(np.int32).max:
        raise MemoryLimitError(f"{int(ends[-1])} bytes are too many for one array of {to}")
    offsets = ends if to.id in WIDE_TEXTS else ends.astype(np.int32)
    nulls = None if valid is None else pack_bits(valid)
    data = pa.py_buffer(b"".join(values))  # type: ignore[arg-type]
    missing = 0 if valid is None else len(values) - int(valid.sum())
    return pa.Array.from_buffers(to, len(values), [nulls, pa.py_buffer(offsets.tobytes()), data], missing)


def masked_numbers(values: npt.NDArray[Any], valid: Bools, to: pa.DataType) -> pa.Array:
    """Make an array of integers or floats, null where `valid` is False."""
    data = np.ascontiguousarray(values, numpy_dtype(to))
    nulls = None if bool(valid.all()) else pack_bits(valid)
    return pa.Array.from_buffers(to, len(values), [nulls, pa.py_buffer(data)])


def values_array(values: Sequence[object], to: pa.DataType) -> pa.Array:
    """Make an array of Python values, as `pa.array` does, which imports pandas wherever it is installed.

    Texts, bytes, integers, floats and truth values are converted here, each to its own type; None is null.
    """
    kinds = set(map(type, values)) - {type(None)}
    given: Any = values
    if pa.types.is_string(to) and kinds <= {str}:
        return bytes_array([None if value is None else value.encode() for value in given], to)
    if pa.types.is_binary(to) and kinds <= {bytes}:
        return bytes_array(given, to)
    valid = np.array([value is not None for value in values], bool)
    if pa.types.is_boolean(to) and kinds <= {bool}:
        return bools(np.array([bool(value) for value in values], bool), valid)
    if (pa.types.is_integer(to) and kinds <= {int}) or (pa.types.is_floating(to) and kinds <= {float}):
        with suppress(OverflowError):
            numbers = np.array([0 if value is None else value for value in given], numpy_dtype(to))
            return masked_numbers(numbers, valid, to)
    return pa.array(values, to)


def one(value: bool | float | bytes, to: pa.DataType) -> pa.Scalar:
    """Make a scalar of a native type."""
    if isinstance(value, bytes):
        return bytes_array([value], to)[0]
    if isinstance(value, bool):
        return bools(np.array([value]))[0]
    if isinstance(value, float):
        return integers_array(np.array([value]), to)[0]
    return integers_array([value], to)[0]


def from_numpy(values: npt.NDArray[np.generic]) -> pa.Array:
    """Make an array without nulls of integers, floats or booleans; numbers are not copied."""
    if values.dtype == np.bool_:
        return bools(values.view(np.bool_))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def bytes_of(rows: pa.Array | pa.RecordBatch | pa.Table) -> int:
    """Return the bytes of the values, without those that a slice leaves out where pyarrow can tell: an early
    one cannot for views, and whole buffers are counted then."""
    try:
        return int(rows.nbytes)
    except pa.ArrowTypeError:
        return int(rows.get_total_buffer_size())


def _count_ones(words: Uint64s) -> npt.NDArray[np.uint8]:
    """Count the bits that are set, by halves of halves; numpy 2 has a function for that."""
    pairs = words - ((words >> np.uint64(1)) & _EVERY_SECOND)
    fours = (pairs & _EVERY_TWO) + ((pairs >> np.uint64(2)) & _EVERY_TWO)
    eights = (fours + (fours >> np.uint64(4))) & _EVERY_FOUR
    ones: npt.NDArray[np.uint8] = ((eights * _EVERY_EIGHTH) >> np.uint64(56)).astype(np.uint8)
    return ones


_EVERY_SECOND, _EVERY_TWO, _EVERY_FOUR, _EVERY_EIGHTH = (
    np.uint64(int(byte * 8, 16)) for byte in ("55", "33", "0f", "01")
)
count_ones: Callable[[Uint64s], npt.NDArray[np.uint8]] = getattr(np, "bitwise_count", _count_ones)
"""Counts the bits that are set in each word."""


def decimal_words(array: pa.Array) -> Int64s:
    """Return decimals of 128 bits as whole numbers of their last digit, in two columns: the lower halves and
    the higher ones. What there is of nulls means nothing."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros((len(array), 2), np.int64)
    return np.frombuffer(data, np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)


def list_items(lists: pa.Array) -> pa.Array:
    """Flatten lists of any kind, without values under nulls.

    pyarrow's `flatten` fails for lists that are all null or empty and have UUIDs deeper in them.
    """
    try:
        return lists.flatten()
    except pa.ArrowNotImplementedError:
        import pyarrow.compute as pc

        if pc.sum(pc.list_value_length(lists)).as_py():
            raise
        return lists.values.slice(0, 0)


def map_lists(maps: pa.Array) -> pa.Array:
    """Return maps as lists of structs with the fields `key` and `value`."""
    kind = maps.type
    entry = pa.struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")])
    return maps.cast(pa.list_(entry))


def change_fields(
    kind: pa.DataType,
    change: Callable[[pa.Field], pa.Field],
    *,
    keys: Callable[[pa.Field], pa.Field] | None = None,
) -> pa.DataType | None:
    """Return a type with the fields inside it changed; None unless it is a struct, map or list other than a
    view.

    Parameters
    ----------
    change : callable
        Applied to a struct's fields, a list's items and a map's values.
    keys : callable, optional
        Applied to a map's keys; by default they stay.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([change(field) for field in kind])
    if types.is_map(kind):
        key = kind.key_field if keys is None else keys(kind.key_field)
        return pa.map_(key, change(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(change(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(change(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    return None


def make_scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """Make a scalar of one Python value, as `pa.scalar` does; None is null.

    Raises
    ------
    pyarrow.ArrowInvalid
        The value is not of that type.
    """
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, bytes):
        return bytes_array([value], pa.binary()).cast(kind)[0]
    if isinstance(value, datetime.datetime):
        value = value.isoformat(sep=" ")
    elif isinstance(value, bool):
        value = "true" if value else "false"
    return bytes_array([str(value).encode()], pa.string()).cast(kind)[0]


def repeat_scalar(value: pa.Scalar, length: int) -> pa.Array:
    """Make an array of the value repeated `length` times."""
    if not value.is_valid:
        return pa.nulls(length, value.type)
    return pa.repeat(value, length)


def is_zoned(kind: pa.TimestampType) -> bool:
    """Return whether a timestamp type has a time zone."""
    return zone_of(kind) is not None


def zone_of(kind: pa.TimestampType) -> str | None:
    """Return the time zone of a timestamp type, or None.

    It is UTC where a damaged ARROW:schema has one that is not UTF-8; the instants are the same.
    """
    try:
        zone: str | None = kind.tz
    except UnicodeDecodeError:
        return "UTC"
    return zone


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    first = offset >> 3
    raw = np.frombuffer(buffer, np.uint8)[first : (offset + length + 7) >> 3]
    bits = np.unpackbits(raw, bitorder="little")
    return bits[offset & 7 : (offset & 7) + length].view(np.bool_)


def pack_bits(values: Bools) -> pa.Buffer:
    """Pack truth values as Arrow has them: a bit each, the first one the lowest of its byte."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def packed_validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap from the array's first value on; None if none is null."""
    return pack_bits(validity(array)) if array.null_count else None


def _fixed(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def sort_distinct(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return each number once, ascending; NaN is not supported.

    Since numpy 2.3 `np.unique` hashes integers, which takes up to a hundred times as long.
    """
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def to_ipc(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as a stream of Arrow's IPC; those of a table as one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows.combine_chunks() if isinstance(rows, pa.Table) else rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def from_ipc(stream: bytes) -> pa.Table:
    """Return the rows of a stream of Arrow's IPC. Raises errors of Arrow."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_all()
