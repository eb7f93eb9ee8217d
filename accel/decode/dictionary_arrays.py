"""Arrow arrays of indices into a dictionary: their checks, and looking up the values of the rows that are
wanted.

pyarrow looks indices up faster than it decodes values. `accel.decode.dictionary_decode` chooses the columns.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import WIDE_TEXTS, numpy_dtype, packed_validity, validity
from accel.decode.arrow import translate_errors
from accel.decode.extensions import holds_dictionary
from accel.decode.trim import is_view, take_views
from accel.errors import MemoryLimitError, ParquetFormatError

__all__ = [
    "MOST_JOINED",
    "Values",
    "check_indices",
    "is_indexed",
    "join_arrays",
    "look_up",
    "named_bytes",
    "take_texts",
]

Ints = npt.NDArray[np.integer]

_TEXTS = frozenset(
    {pa.lib.Type_STRING, pa.lib.Type_BINARY, pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY}
)
MOST_JOINED = 1 << 30
"""The most bytes of text in one array; 32-bit offsets end at twice that."""


class Values(enum.Enum):
    """How values that are read as indices are returned."""

    DECODED = "decoded"
    """As their column's type."""
    INDEXED = "indexed"
    """Possibly as a DictionaryArray of it, for `look_up`."""


def is_indexed(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether an array holds indices of a column that has this type."""
    return bool(pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(kind))


def check_indices(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare the indices of dictionary arrays, at any depth, with the sizes of their dictionaries; pyarrow
    does not.

    Returns
    -------
    pyarrow.ChunkedArray
        The same values. Where all structs around a required field are null, pyarrow leaves indices into an
        empty dictionary; that dictionary gets an entry, so that looking them up succeeds.

    Raises
    ------
    ParquetFormatError
        An index is out of bounds. Looking it up would read arbitrary memory.
    """
    if not holds_dictionary(array.type):
        return array
    unnamed = [_check(chunk, None) for chunk in array.chunks]
    if not any(unnamed):
        return array
    return pa.chunked_array([_with_entry(chunk) for chunk in array.chunks], type=array.type)


def _check(array: pa.Array, lives: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether indices have no entry because a struct around them is null, where `lives` is False."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _check(array.storage, lives)
    if pa.types.is_dictionary(kind):
        return _check_places(array, lives)
    if pa.types.is_struct(kind):
        if array.null_count:
            lives = validity(array) if lives is None else lives & validity(array)
        unnamed = [_check(array.field(number), lives) for number in range(kind.num_fields)]
        return any(unnamed)
    # A null list has no values, or only null ones if its size is fixed.
    return bool(kind.num_fields) and _check(array.values, None)


def _check_places(array: pa.DictionaryArray, lives: npt.NDArray[np.bool_] | None) -> bool:
    entries = len(array.dictionary)
    places = _unsigned(_places(array.indices))
    if places.max(initial=0) >= entries and array.indices.null_count:
        places = _unsigned(_valid_places(array.indices))
    if not len(places) or places.max() < entries:
        return False
    if entries or lives is None or bool((lives & validity(array.indices)).any()):
        raise ParquetFormatError(f"an index into a dictionary of {entries} entries is out of bounds")
    return True


def _with_entry(array: pa.Array) -> pa.Array:
    """Return the array with one entry in each dictionary that has none."""
    kind = array.type
    if not holds_dictionary(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _with_entry(array.storage))
    if pa.types.is_dictionary(kind):
        return array if len(array.dictionary) else _first_of_one(array)
    if pa.types.is_struct(kind):
        children = [_with_entry(array.field(number)) for number in range(kind.num_fields)]
        valid = [packed_validity(array)]
        return pa.Array.from_buffers(kind, len(array), valid, array.null_count, children=children)
    values = _with_entry(array.values)
    own = array.buffers()[: len(array.buffers()) - len(array.values.buffers())]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, [values])


def _first_of_one(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the array with every index pointing to one entry, a zero or an empty text."""
    kind, indices = array.type, array.indices
    zeros = pa.nulls(len(array), kind.index_type).buffers()[1]
    places = pa.Array.from_buffers(kind.index_type, len(array), [packed_validity(indices), zeros])
    entry = [None, *pa.nulls(1, kind.value_type).buffers()[1:]]
    one = pa.Array.from_buffers(kind.value_type, 1, entry)
    return pa.DictionaryArray.from_arrays(places, one, ordered=kind.ordered)


def look_up(
    array: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, memory_limit: int | None, place: str
) -> pa.Array | pa.ChunkedArray:
    """Return the values of an array of indices, in several chunks where one cannot hold them.

    Raises
    ------
    MemoryLimitError
        They take more than `memory_limit` bytes.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    if memory_limit is not None and _exceed(chunks, memory_limit):
        raise MemoryLimitError(
            f"the column decodes to more than {memory_limit} bytes",
            place=place,
            hint="raise `options.memory_limit`",
        )
    with translate_errors(place=place):
        take = take_views if is_view(kind) else take_texts if kind.id in _TEXTS else kernels.take
        parts = [take(part.dictionary, part.indices) for chunk in chunks for part in _cut(chunk)]
    return parts[0] if len(parts) == 1 else pa.chunked_array(parts, type=kind)


def join_arrays(arrays: Sequence[pa.Array], most: int = MOST_JOINED) -> pa.ChunkedArray:
    """Concatenate arrays of one type; they stay chunks if they have `most` bytes or more."""
    if len(arrays) < 2 or sum(int(array.nbytes) for array in arrays) >= most:
        return pa.chunked_array(arrays)
    return pa.chunked_array([pa.concat_arrays(arrays)])


def _exceed(chunks: Sequence[pa.DictionaryArray], limit: int) -> bool:
    return sum(map(_most_bytes, chunks)) > limit and sum(map(named_bytes, chunks)) > limit


def _cut(array: pa.DictionaryArray) -> list[pa.DictionaryArray]:
    """Cut the array into parts that fit 32-bit offsets."""
    if _most_bytes(array) <= MOST_JOINED or len(array) < 2 or named_bytes(array) <= MOST_JOINED:
        return [array]
    half = len(array) // 2
    return [*_cut(array.slice(0, half)), *_cut(array.slice(half))]


def _lengths(dictionary: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each text."""
    dtype = np.dtype(np.int64 if dictionary.type.id in WIDE_TEXTS else np.int32)
    if not len(dictionary):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(
        dictionary.buffers()[1], dtype, len(dictionary) + 1, dictionary.offset * dtype.itemsize
    )
    return np.diff(offsets).astype(np.int64)


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value if they are fixed; for views, without the text that they share."""
    if is_view(kind):
        return _VIEW_BYTES
    try:
        return int(kind.byte_width)
    except ValueError:
        return None


_VIEW_BYTES = 16


def _most_bytes(array: pa.DictionaryArray) -> int:
    width = _width(array.dictionary.type)
    longest = int(_lengths(array.dictionary).max(initial=0)) if width is None else width
    return longest * len(array)


def named_bytes(array: pa.DictionaryArray) -> int:
    """Return the bytes of the values of an array whose indices have been checked."""
    width = _width(array.dictionary.type)
    if width is not None or not len(array.dictionary):
        return (width or 0) * len(array)
    return int(_lengths(array.dictionary)[_valid_places(array.indices)].sum())


def _places(indices: pa.Array) -> Ints:
    """Return the indices; those that are null are arbitrary."""
    dtype = numpy_dtype(indices.type)
    buffer = indices.buffers()[1]
    if buffer is None or not len(indices):
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, len(indices), dtype.itemsize * indices.offset)


def _valid_places(indices: pa.Array) -> Ints:
    places = _places(indices)
    return places[validity(indices)] if indices.null_count else places


def _unsigned(places: Ints) -> Ints:
    """Return the numbers as unsigned ones, which makes negative ones large."""
    return places.view(f"u{places.dtype.itemsize}")


LEAST_VALUES = 1 << 12
"""Arrow's own function is faster for fewer texts."""


def take_texts(dictionary: pa.Array, indices: pa.Array) -> pa.Array:
    """Take texts or binaries as Arrow's `take` does, four times as fast if all of them have one length.

    Parameters
    ----------
    indices : pyarrow.Array
        Of int32; null where the text is to be null.

    Raises
    ------
    pyarrow.ArrowIndexError
        An index is out of bounds.
    """
    entries, count = len(dictionary), len(indices)
    if count < LEAST_VALUES or not entries or dictionary.null_count or indices.type.id != pa.lib.Type_INT32:
        return kernels.take(dictionary, indices)
    _, places, data = dictionary.buffers()
    dtype = np.dtype(np.int64 if dictionary.type.id in WIDE_TEXTS else np.int32)
    first = int(np.frombuffer(places, dtype, 1, dictionary.offset * dtype.itemsize)[0])
    lengths = _lengths(dictionary)
    length = int(lengths[0])
    if data is None or not length or length * count > MOST_JOINED or (lengths != length).any():
        return kernels.take(dictionary, indices)
    fixed = pa.Array.from_buffers(pa.binary(length), entries, [None, data.slice(first)])
    taken = kernels.take(fixed, indices)
    valid, values = taken.buffers()
    ends = pa.py_buffer(np.arange(0, (taken.offset + count + 1) * length, length, dtype=dtype))
    return pa.Array.from_buffers(
        dictionary.type, count, [valid, ends, values], taken.null_count, taken.offset
    )
