"""Texts looked up in a dictionary of few, without going to each of them.

Arrow's own `take` moves texts one by one. Those of one length are values of a fixed width to it, which it moves several
times faster, and the places where they begin are the same for every array: they are made once. Of few texts of several
lengths all tuples of two, four or eight are written down, so that many values need one step, for the bytes
and for the lengths.
"""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache

from accel import kernels
from accel.arrays import WIDE_TEXTS, pack_bits, validity
from accel.memory import allocate

__all__ = ["take_texts", "text_starts"]

Int32s = npt.NDArray[np.int32]
Ints = npt.NDArray[np.integer]
OffsetType: TypeAlias = np.dtype[np.int32] | np.dtype[np.int64]

_LEAST_VALUES = 1 << 12
"""Fewer are taken one by one sooner."""
_TUPLES: Final = ((2, 8), (8, 4), (64, 2))
"""(most entries, texts in a tuple): in a dictionary of at most so many entries, so many texts are looked up in one step.
So there are 4,096 tuples at the most (8 ** 4, 64 ** 2), and the lengths of one's texts are a record of 8 to 32 bytes."""
_LEAST_TUPLED = 1 << 16
"""Fewer are taken one by one sooner than by tuples."""
_LEAST_USES = 32
"""Of a tuple, on average, for writing all of them down to pay."""
_MOST_TUPLE_BYTES: Final = 512 << 10
"""Of all tuples: they are to stay in the processor's cache."""
_MOST_TEXT: Final = 1 << 30
_STARTS_BYTES: Final = 16 << 20
_STARTS_STEP = 1 << 16


def take_texts(dictionary: pa.Array, indices: pa.Array) -> pa.Array:
    """As Arrow's `take` of strings or binaries, large or not.

    Parameters
    ----------
    indices : pyarrow.Array
        Of int32; null where the text is to be.

    Raises
    ------
    pyarrow.ArrowIndexError
        One names no entry.
    """
    entries, count = len(dictionary), len(indices)
    if count < _LEAST_VALUES or not entries or dictionary.null_count or indices.type.id != pa.lib.Type_INT32:
        return kernels.take(dictionary, indices)
    _, places, data = dictionary.buffers()
    wide = dictionary.type.id in WIDE_TEXTS
    offset_type: OffsetType = np.dtype(np.int64) if wide else np.dtype(np.int32)
    offsets = np.frombuffer(places, offset_type, entries + 1, dictionary.offset * offset_type.itemsize)
    lengths = np.diff(offsets)
    longest = int(lengths.max())
    if data is None or not longest or longest * count > _MOST_TEXT:
        return kernels.take(dictionary, indices)
    if longest == int(lengths.min()):
        kind = pa.binary(longest)
        fixed = pa.Array.from_buffers(kind, entries, [None, data.slice(int(offsets[0]))])
        taken = kernels.take(fixed, indices)
        valid, values = taken.buffers()
        starts = text_starts(longest, taken.offset + count, offset_type=offset_type)
        return pa.Array.from_buffers(
            dictionary.type, count, [valid, starts, values], taken.null_count, taken.offset
        )
    return _take_tuples(dictionary, lengths, indices, offset_type)


def text_starts(length: int, count: int, *, offset_type: OffsetType) -> pa.Buffer:
    """Where each of `count` texts of one length begins, and where the last one ends; shared, so it may have more."""
    key = length, offset_type.itemsize
    needed = (count + 1) * offset_type.itemsize
    with _lock:
        known = _starts.get(key)
    if known is not None and known.size >= needed:
        return known
    # A multiple, so that arrays of about as many rows find enough.
    rounded = -(-(count + 1) // _STARTS_STEP) * _STARTS_STEP
    most = np.iinfo(offset_type).max // length
    made = pa.py_buffer(np.arange(0, min(rounded, most + 1) * length, length, dtype=offset_type))
    if made.size <= _STARTS_BYTES:
        with _lock:
            _starts[key] = made
    return made


_lock = threading.Lock()
_starts: LRUCache[tuple[int, int], pa.Buffer] = LRUCache(_STARTS_BYTES, getsizeof=lambda buffer: buffer.size)


def _take_tuples(dictionary: pa.Array, lengths: Ints, indices: pa.Array, offset_type: OffsetType) -> pa.Array:
    entries, count = len(dictionary), len(indices)
    if indices.null_count:
        # The text of a null is empty: one entry more.
        entries += 1
    size = next((size for most, size in _TUPLES if entries <= most), 0)
    while size > 1 and not _pays(entries, size, int(lengths.sum()), count):
        size //= 2
    if size < 2 or (indices.null_count and indices.offset):
        return kernels.take(dictionary, indices)
    numbers: Int32s = np.frombuffer(indices.buffers()[1], np.int32, count, 4 * indices.offset)
    valid = None
    if indices.null_count:
        valid = indices.buffers()[0]
        numbers = np.where(validity(indices), numbers, np.int32(entries - 1))
    if int(numbers.view(np.uint32).max()) >= entries:
        # Arrow says so.
        return kernels.take(dictionary, indices)
    tuples, parts = _tuples(dictionary, entries, size)
    codes = _codes(numbers, entries, size)
    taken = kernels.take(tuples, pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(codes)]))
    out = allocate((len(codes) * size + 1) * offset_type.itemsize)
    starts = np.frombuffer(out, offset_type)
    starts[0] = 0
    np.cumsum(parts.take(codes).view(np.int32), dtype=offset_type, out=starts[1:])
    # The last tuple may have more than was asked for: nothing begins there.
    return pa.Array.from_buffers(
        dictionary.type, count, [valid, out, taken.buffers()[2]], indices.null_count if valid else 0
    )


def _pays(entries: int, size: int, total: int, count: int) -> bool:
    if count < _LEAST_TUPLED:
        return False
    tuples: int = entries**size
    # Each text stands at each place of a tuple as often as there are tuples of one less.
    return tuples * _LEAST_USES <= count and tuples // entries * size * total <= _MOST_TUPLE_BYTES


def _tuples(dictionary: pa.Array, entries: int, size: int) -> tuple[pa.Array, npt.NDArray[np.void]]:
    """All tuples of entries joined, in the order of their codes, and the lengths of each one's texts as a record."""
    numbers = np.arange(entries**size, dtype=np.int32)
    digits = np.empty((len(numbers), size), np.int32)
    for place in range(size - 1, -1, -1):
        numbers, digits[:, place] = np.divmod(numbers, np.int32(entries))
    flat = digits.ravel()
    valid = None
    if entries > len(dictionary):
        valid = pack_bits(flat < len(dictionary))
    texts = kernels.take(
        dictionary, pa.Array.from_buffers(pa.int32(), len(flat), [valid, pa.py_buffer(flat)])
    )
    _, places, data = texts.buffers()
    offset_type = np.dtype(np.int64 if dictionary.type.id in WIDE_TEXTS else np.int32)
    ends = np.frombuffer(places, offset_type, len(flat) + 1)
    joined = pa.Array.from_buffers(
        dictionary.type, entries**size, [None, pa.py_buffer(ends[::size].copy()), data]
    )
    return joined, np.diff(ends).astype(np.int32).view(f"V{4 * size}")


def _codes(numbers: Int32s, entries: int, size: int) -> Int32s:
    """The numbers, `size` at a time, as digits of one; the last are filled up with zeros."""
    full, rest = divmod(len(numbers), size)
    digits = numbers[: full * size].reshape(full, size)
    codes = np.zeros(full + (rest > 0), np.int32)
    head = codes[:full]
    for place in range(size):
        head *= entries
        head += digits[:, place]
    if rest:
        last = 0
        for number in [*numbers[full * size :].tolist(), *[0] * (size - rest)]:
            last = last * entries + number
        codes[-1] = last
    return codes
