"""Arrow arrays made and read by their buffers.

`pa.array`, `pa.scalar` and `to_numpy(zero_copy_only=False)` import pandas where it is installed, which
costs a first scan more than its network; buffers cost nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.memory import allocate

__all__ = [
    "WIDE_TEXTS",
    "Bools",
    "Filled",
    "Int64s",
    "Uint64s",
    "bools",
    "bytes_array",
    "change_fields",
    "from_numpy",
    "integers",
    "integers_array",
    "is_zoned",
    "join_buffers",
    "list_items",
    "make_scalar",
    "map_lists",
    "mask",
    "one",
    "own_copy",
    "pack_bits",
    "packed_validity",
    "relabel",
    "repeat_scalar",
    "sort_distinct",
    "validity",
    "whole",
    "zone_of",
]

# So many bytes of Python's would lie in pages of their own.
_LONG = 64 << 10
_BYTES = (memoryview, bytes, bytearray)
WIDE_TEXTS = frozenset({pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY})
"""Type ids of texts and bytes with 64-bit offsets."""
# Annotations are all they are for: whoever uses them imports them for type checkers only.
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)


class Filled(Protocol):
    """Bytes that are made where they are put."""

    def __len__(self) -> int: ...

    def put(self, out: npt.NDArray[np.uint8]) -> None:
        """Make them, in an array of that many."""


def join_buffers(parts: Sequence[bytes | bytearray | memoryview | Filled]) -> pa.Buffer:
    """The parts behind each other, in memory that Arrow's allocator has at hand.

    Joining bytes would take fresh pages of the system, which cost twice what the copy does, and hold the GIL.
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
    """The same bytes, apart from what they are a part of; many of them as `join_buffers` has it."""
    return bytes(view) if view.nbytes < _LONG else memoryview(join_buffers((view,))).cast("B").toreadonly()


def relabel(array: pa.Array, to: pa.DataType) -> pa.Array:
    """The same buffers under another type of the same layout."""
    return pa.Array.from_buffers(to, len(array), array.buffers(), array.null_count, array.offset)


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of what may be several chunks, run-end encoding undone."""
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # pyarrow < 27 gives back several where 2 GiB overflow
            array = pa.concat_arrays(array.chunks)
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc

        array = pc.run_end_decode(array)
    return array


def validity(array: pa.Array) -> Bools:
    """Which values are not null."""
    buffer = array.buffers()[0] if array.null_count else None
    if buffer is None:
        if array.null_count:  # types without a validity bitmap
            return mask(array.is_valid())
        return np.ones(len(array), bool)
    return _bits(buffer, array.offset, len(array))


def mask(array: pa.BooleanArray) -> Bools:
    """A boolean array as numpy; null is False."""
    if not len(array):
        return np.zeros(0, bool)
    out = _bits(array.buffers()[1], array.offset, len(array))
    return out & validity(array) if array.null_count else out


def bools(values: Bools, valid: Bools | None = None) -> pa.BooleanArray:
    """A boolean array from numpy, null where `valid` is False."""
    if valid is not None and bool(valid.all()):
        valid = None
    return pa.Array.from_buffers(
        pa.bool_(),
        len(values),
        [None if valid is None else pack_bits(valid), pack_bits(values)],
        0 if valid is None else len(values) - int(valid.sum()),
    )


def integers(array: pa.Array) -> npt.NDArray[Any]:
    """The raw integers of a native array (fixed width, or decimal); what stands under a null is arbitrary.

    Decimals of 128 and 256 bits come as int64 where all fit, else as Python ints.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return _bits(array.buffers()[1], array.offset, len(array)).view(np.uint8)
    if not pa.types.is_decimal(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        return _fixed(array, dtype)
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
    """The inverse of `integers` for a native integer, float or decimal type; every value must fit it."""
    if pa.types.is_decimal(to):
        width = to.bit_width // 8
        data = b"".join(int(value).to_bytes(width, "little", signed=True) for value in values)
    else:
        data = np.asarray(values, np.dtype(to.to_pandas_dtype())).tobytes()
    return pa.Array.from_buffers(to, len(values), [None, pa.py_buffer(data)], 0)


def bytes_array(values: Sequence[bytes], to: pa.DataType) -> pa.Array:
    """An array of binary or large_binary, or of text of either size, which is not looked at."""
    ends = np.zeros(len(values) + 1, np.int64)
    np.add.accumulate(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])
    offsets = ends if to.id in WIDE_TEXTS else ends.astype(np.int32)
    return pa.Array.from_buffers(
        to,
        len(values),
        [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(values))],
        0,
    )


def one(value: bool | float | bytes, to: pa.DataType) -> pa.Scalar:
    """A scalar of a native type."""
    if isinstance(value, bytes):
        return bytes_array([value], to)[0]
    if isinstance(value, bool):
        return bools(np.array([value]))[0]
    if isinstance(value, float):
        return integers_array(np.array([value]), to)[0]
    return integers_array([value], to)[0]


def from_numpy(values: npt.NDArray[np.generic]) -> pa.Array:
    """An array without nulls of the same integers, floats or booleans; the numbers are not copied."""
    if values.dtype == np.bool_:
        return bools(values.view(np.bool_))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def list_items(lists: pa.Array) -> pa.Array:
    """The values of lists of any kind behind each other, without what lies under nulls: `flatten`, which pyarrow cannot do
    of lists that are all null or empty where UUIDs lie deeper in them."""
    try:
        return lists.flatten()
    except pa.ArrowNotImplementedError:
        import pyarrow.compute as pc

        if pc.sum(pc.list_value_length(lists)).as_py():
            raise
        return lists.values.slice(0, 0)


def map_lists(maps: pa.Array) -> pa.Array:
    """Maps as the lists that they are, of structs with the fields `key` and `value`."""
    kind = maps.type
    entry = pa.struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")])
    return maps.cast(pa.list_(entry))


def change_fields(
    kind: pa.DataType,
    change: Callable[[pa.Field], pa.Field],
    *,
    keys: Callable[[pa.Field], pa.Field] | None = None,
) -> pa.DataType | None:
    """A type with the fields inside it changed; None for one that is no struct, map or list (views of lists aside).

    Parameters
    ----------
    change : callable
        Of a struct's fields, a list's items and a map's values.
    keys : callable, optional
        Of a map's keys; by default they stay.
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
    """One Python value of a plain type, as `pa.scalar` would make it; None is null.

    Raises
    ------
    pyarrow.ArrowInvalid
        The value is none of that type.
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
    """The same value `length` times."""
    if not value.is_valid:
        return pa.nulls(length, value.type)
    return pa.repeat(value, length)


def is_zoned(kind: pa.TimestampType) -> bool:
    """Whether a timestamp is an instant."""
    return zone_of(kind) is not None


def zone_of(kind: pa.TimestampType) -> str | None:
    """The time zone of a timestamp; UTC where it is not UTF-8, as a damaged ARROW:schema may have it: the instants are
    the same."""
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
    """Truth values as Arrow has them: a bit each, the first the lowest of its byte."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def packed_validity(array: pa.Array) -> pa.Buffer | None:
    """Which values are not null as Arrow has it, from the array's first value on; None where all are not."""
    return pack_bits(validity(array)) if array.null_count else None


def _fixed(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def sort_distinct(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each number once, ascending, without NaN among them.

    Since numpy 2.3 `np.unique` hashes integers: twice the time for a hundred of them, a hundred times for a million
    that differ.
    """
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
