"""The least and the greatest value of a column, by its statistics, as text."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from accel.arrays import integers_array, relabel
from accel.cli.values import safe_text, shown_values
from accel.format.domain import Bounds, Domain
from accel.planning.handle import FileHandle

__all__ = ["extremes", "leaf_type"]

_SHOWN = 32


def leaf_type(handle: FileHandle, leaf: int) -> pa.DataType:
    """The Arrow type of a leaf's own values, out of the structs, lists and maps that it is in; null where it is not found."""
    schema = handle.metadata.schema
    path = schema.leaves[leaf].path
    if schema.leaves[leaf].max_repetition:
        return _plain_type(handle, leaf)
    position = next(i for i, (a, b) in enumerate(schema.field_leaves) if a <= leaf < b)
    kind = handle.arrow_schema.field(position).type
    for name in path[1:]:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return pa.null()
        kind = kind.field(index).type
    return kind


def _plain_type(handle: FileHandle, leaf: int) -> pa.DataType:
    """A repeated leaf's own type, found by walking down the lists and maps above it."""
    schema = handle.metadata.schema
    position, (first, _) = next(
        (i, span) for i, span in enumerate(schema.field_leaves) if span[0] <= leaf < span[1]
    )
    flat: list[pa.DataType] = []
    stack = [handle.arrow_schema.field(position).type]
    while stack:
        kind = stack.pop()
        if pa.types.is_nested(kind):
            stack += [kind.field(i).type for i in reversed(range(kind.num_fields))]
        else:
            flat.append(kind)
    return flat[leaf - first] if leaf - first < len(flat) else pa.null()


def extremes(bounds: Bounds, kind: pa.DataType) -> tuple[str | None, str | None]:
    """The least and greatest bound as text; None where some row group with values has none."""
    empty = (bounds.null_count == bounds.num_values) & (bounds.num_values >= 0)
    out: list[str | None] = []
    for values, has, pick in ((bounds.lower, bounds.has_lower, min), (bounds.upper, bounds.has_upper, max)):
        known = values[has].tolist()
        whole = bool((has | empty).all()) and known
        out.append(_show(pick(known), bounds.domain, kind) if whole else None)
    return out[0], out[1]


def _show(value: object, domain: Domain, kind: pa.DataType) -> str:
    text = safe_text(_text(value, domain, kind))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _text(value: object, domain: Domain, kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if domain is Domain.BYTES and isinstance(value, bytes):
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return value.decode("utf-8", "backslashreplace")
        return f"x'{value.hex()}'"
    if domain is Domain.BOOLEAN:
        return str(bool(value)).lower()
    if domain is Domain.INTEGER and isinstance(value, int):
        if types.is_decimal(kind):
            digits = tuple(map(int, str(abs(value))))
            return format(Decimal((int(value < 0), digits, -kind.scale)), "f")
        if types.is_temporal(kind):
            ticks = integers_array([value], pa.int32() if kind.bit_width == 32 else pa.int64())
            try:
                return shown_values(relabel(ticks, kind))[0] or ""
            except (pa.ArrowException, ValueError):
                pass  # a date that no calendar has
    return str(value)
