"""Compare Arrow data in tests, and count the memory that it takes."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["as_text", "counting_pool", "same"]


def same(left: Any, right: Any) -> bool:
    """Whether two columns hold the same values to the bit: NaN is NaN, -0.0 is not 0.0."""
    if isinstance(left, pa.ChunkedArray):
        left, right = left.combine_chunks(), right.combine_chunks()
    kind = left.type
    if kind != right.type or len(left) != len(right):
        return False
    if not left.is_null().equals(right.is_null()):
        return False
    if pa.types.is_floating(kind):
        bits = pa.int64() if kind.bit_width == 64 else pa.int32() if kind.bit_width == 32 else pa.int16()
        return bool(left.view(bits).equals(right.view(bits)))
    if pa.types.is_struct(kind):
        return all(same(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = [pc.list_value_length(a) for a in (left, right)]
        return bool(lengths[0].equals(lengths[1])) and same(left.flatten(), right.flatten())
    return bool(left.equals(right))


def as_text(table: pa.Table) -> str:
    """Write the rows as text, so that tables with NaN or with text that is not UTF-8 compare by equality."""
    return repr((table.schema.remove_metadata().to_string(), *(_plain(c) for c in table.columns)))


def _plain(column: Any) -> list[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (UnicodeDecodeError, OverflowError, ValueError):
        # Python has no objects for some dates and times, either.
        return column.cast(_as_bytes(column.type)).to_pylist()  # type: ignore[no-any-return]


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes for text, which may not be UTF-8, and numbers for dates and moments."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.binary()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    return pa.list_(_as_bytes(kind.value_type)) if pa.types.is_list(kind) else kind


def counting_pool() -> pa.MemoryPool:
    """Make a pool that counts from zero, over the default one.

    It is never freed: a buffer refers to its pool by address alone, and may live until the interpreter ends.
    """
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool
