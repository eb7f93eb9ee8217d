"""Rows as text, so that tables with anything in them, NaN and bytes that are no UTF-8 too, can be compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def as_text(table: pa.Table) -> str:
    """The rows, so that sameness is equality of text."""
    return repr((table.schema.remove_metadata().to_string(), *(_plain(c) for c in table.columns)))


def _plain(column: Any) -> list[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return column.cast(_as_bytes(column.type)).to_pylist()  # type: ignore[no-any-return]


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes for text, which may not be UTF-8."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    return pa.list_(_as_bytes(kind.value_type)) if pa.types.is_list(kind) else kind
