"""IN lists: the collections of values that callers pass, as nodes of literals or of an Arrow array."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from accel.errors import PredicateError
from accel.predicate.expr import MAX_LIST, Column, InArray, InList, Value
from accel.predicate.literal import EPOCH_ORDINAL, literal_value, nanos_of_instant

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "list_member",
    "member_of",
]


_OWN = {int, float, str}


def member_of(column: Column, values: object) -> InList | InArray:
    """Return the node for `column IN values`; nulls among the values are preserved.

    Arrow arrays, objects that export one, numpy arrays of numbers or timestamps, and lists of more than
    `MAX_LIST` values of one type become an Arrow array.

    Raises PredicateError where `values` is no collection, or one of them cannot be a literal.
    """
    array = _as_array(values)
    if array is not None:
        return InArray(column, _checked(array))
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        hint = "give one of its columns" if hasattr(values, "column_names") else "write [value]"
        raise PredicateError(f"IN takes a collection of values, not a {type(values).__name__}", hint=hint)
    if isinstance(values, set | frozenset):
        values = sorted(values, key=repr)  # the same order in every process
    elements = list(_elements(values))
    # Values of these types are their own literals. What an array cannot hold is converted one by one below.
    if len(elements) > MAX_LIST and _types(elements) <= _OWN:
        with contextlib.suppress(UnicodeEncodeError):
            array = _array_of_literals(elements)
            if array is not None:
                return InArray(column, array)
    return list_member(column, [literal_value(value) for value in elements])


def list_member(column: Column, literals: Sequence[Value], *, position: int = -1) -> InList | InArray:
    """Return the node for `column IN literals`, with an array where they are many and of one type."""
    array = _array_of_literals(literals) if len(literals) > MAX_LIST else None
    if array is not None:
        return InArray(column, array, position)
    return InList(column, tuple(literals), position)


def _types(values: Iterable[object]) -> set[type]:
    return set(map(type, values)) - {type(None)}


def _elements(values: Iterable[Any]) -> Iterable[Any]:
    if type(values).__module__.partition(".")[0] == "numpy":
        if getattr(values, "ndim", 1) != 1:
            raise PredicateError("IN takes an array of one dimension")
        import numpy as np

        # As numpy scalars, because tolist() turns datetime64[ns] into ints.
        return [None if value is np.ma.masked else value for value in values]
    return values


def _as_array(values: object) -> pa.Array | pa.ChunkedArray | None:
    module = type(values).__module__.partition(".")[0]
    if module == "pyarrow":
        import pyarrow as pa

        return values if isinstance(values, pa.Array | pa.ChunkedArray) else None
    if module == "numpy":
        return _from_numpy(values)
    pandas = module == "pandas" and hasattr(values, "to_numpy")
    if pandas and getattr(values, "ndim", 1) != 1:
        raise PredicateError("IN takes an array of one dimension")
    if (
        module == "polars" and str(getattr(values, "dtype", "")) == "Object"
    ):  # its Arrow export holds addresses
        return None
    chunked = not pandas and hasattr(values, "__arrow_c_stream__")
    if not pandas and not chunked and not hasattr(values, "__arrow_c_array__"):
        return None
    import pyarrow as pa

    # Values that Arrow has no type for are converted, or refused, one by one.
    with contextlib.suppress(pa.ArrowException, OverflowError):
        return pa.chunked_array(values) if chunked else pa.array(values, from_pandas=pandas)
    return None


def _checked(array: Any) -> pa.Array:
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text
            raise PredicateError("the list of IN is too large for one array")
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_run_end_encoded(kind):
        raise PredicateError(f"an array of {array.type} cannot be the list of IN")
    if getattr(kind, "extension_name", "").startswith(
        "pandas."
    ):  # stored as numbers of a calendar that no column has
        raise PredicateError(f"values of {kind.extension_name} cannot be the list of IN")
    return _without_null_entries(array) if pa.types.is_dictionary(array.type) else array


def _without_null_entries(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the array without indices of null entries, which its null count does not include."""
    if not coded.dictionary.null_count:
        return coded
    import pyarrow as pa

    from accel.arrays import integers, validity

    valid, codes = validity(coded.indices), integers(coded.indices)
    valid = valid & validity(coded.dictionary)[codes.astype("int64") * valid]
    indices = _with_nulls(coded.indices.type, valid, [pa.py_buffer(codes.tobytes())])
    return pa.DictionaryArray.from_arrays(indices, coded.dictionary)


def _from_numpy(values: Any) -> pa.Array | None:
    """Convert numbers and timestamps by their buffers, because `pa.array` would import pandas."""
    import numpy as np
    import pyarrow as pa

    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return None
    valid = ~np.ma.getmaskarray(values)
    if values.dtype.kind in "iuf" and values.dtype.itemsize <= 8:
        kind = pa.from_numpy_dtype(values.dtype)
        plain = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        return _with_nulls(kind, valid, [pa.py_buffer(plain.tobytes())])
    if values.dtype.kind == "M" and np.datetime_data(values.dtype) in _TIMESTAMPS:
        kind = pa.timestamp(np.datetime_data(values.dtype)[0])
        plain = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        return _with_nulls(kind, ~np.isnat(plain) & valid, [pa.py_buffer(plain.tobytes())])
    return None


_TIMESTAMPS = {("s", 1), ("ms", 1), ("us", 1), ("ns", 1)}


def _with_nulls(kind: Any, valid: Any, buffers: list[Any]) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    nulls = len(valid) - int(valid.sum())
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if nulls else None
    return pa.Array.from_buffers(kind, len(valid), [bitmap, *buffers], nulls)


def _array_of_literals(values: Collection[Value]) -> pa.Array | None:
    """Return an array of literals that are all of one type; None for others."""
    import numpy as np
    import pyarrow as pa

    types = _types(values)
    if len(types) != 1:
        return None
    present: list[Any] = [value for value in values if value is not None]
    valid = np.ones(len(values), bool)
    if len(present) < len(values):
        valid[:] = [value is not None for value in values]
    kind = types.pop()
    if kind in (str, bytes):
        chunks = [value.encode() if kind is str else value for value in present]
        lengths = np.zeros(len(values), np.int64)
        lengths[valid] = [len(chunk) for chunk in chunks]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        data = pa.py_buffer(b"".join(chunks))
        to = pa.large_string() if kind is str else pa.large_binary()
        return _with_nulls(to, valid, [pa.py_buffer(offsets.tobytes()), data])
    found = _fixed_width(kind, present)
    if found is None:
        return None
    to, numbers = found
    spread = np.zeros(len(values), numbers.dtype)
    spread[valid] = numbers
    return _with_nulls(to, valid, [pa.py_buffer(spread.tobytes())])


def _fixed_width(kind: type, present: list[Any]) -> tuple[Any, Any] | None:
    import numpy as np
    import pyarrow as pa

    if kind is int:
        low, high = min(present), max(present)
        if -(1 << 63) <= low and high < 1 << 63:
            return pa.int64(), np.array(present, np.int64)
        if low >= 0 and high < 1 << 64:
            return pa.uint64(), np.array(present, np.uint64)
    elif kind is float:
        return pa.float64(), np.array(present, np.float64)
    elif kind is datetime.date:
        return pa.date32(), np.array([value.toordinal() - EPOCH_ORDINAL for value in present], np.int32)
    elif kind is datetime.datetime:
        zones = {value.utcoffset() is None for value in present}
        if len(zones) == 1:
            micros = np.array([nanos_of_instant(value) // 1000 for value in present], np.int64)
            return pa.timestamp("us", None if zones.pop() else "UTC"), micros
    return None
