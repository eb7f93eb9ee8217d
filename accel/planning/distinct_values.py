"""The distinct values of a column: collected in the form in which indexes store values, and sorted in the
end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from accel import kernels as pc
from accel.arrays import packed_validity, relabel, whole
from accel.format.domain import Domain, storage_type
from accel.indexes.native import ARROW, code_values, from_natives, tag_of
from accel.predicate.kinds import kind_of

__all__ = ["DistinctSet", "as_column"]

_MOST_PENDING: Final = 1 << 16
"""Values that may wait to be merged."""


class DistinctSet:
    """Values of one type, each once: -0.0 is 0.0, and all NaN are one value.

    Parameters
    ----------
    kind : pyarrow.DataType
        The type of the column, without dictionary and run-end encoding.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.tag = tag_of(kind)
        self.null = False
        """Whether null is among them."""
        self._parts: list[pa.Array] = []
        self._pending = 0

    def add_column(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add the values of a column, nulls among them."""
        array = whole(values)
        if self.tag is None:
            self.null |= len(array) > 0
            return
        coded = code_values(array)
        self.null |= bool((coded.codes < 0).any())
        self.add(coded.values)

    def add(self, values: pa.Array, *, null: bool = False) -> None:
        """Add values in the form of `indexes.native.uniform`, and null where it occurs."""
        self.null |= null
        if self.tag is None or not len(values):
            return
        to = ARROW[self.tag]
        self._parts.append(values if values.type == to else values.cast(to))
        self._pending += len(values)
        if self._pending > _MOST_PENDING:
            merged = self.values()
            self._parts, self._pending = [merged], 0

    def add_natives(self, values: Sequence[Any], *, null: bool = False) -> None:
        """Add native values, NaN among them, and null where it occurs."""
        self.null |= null
        if values and self.tag is not None:
            self.add(from_natives(list(values), self.tag))

    def update(self, other: DistinctSet) -> None:
        """Add all values of another set of the same type."""
        self.null |= other.null
        for part in other._parts:
            self.add(part)

    def values(self) -> pa.Array:
        """Return the values without null, in no order."""
        if self.tag is None or not self._parts:
            return pa.nulls(0, pa.null() if self.tag is None else ARROW[self.tag])
        if len(self._parts) == 1:
            return self._parts[0]
        return pa.concat_arrays(self._parts).unique()

    def result(self) -> pa.Array:
        """Return the values in ascending order, NaN after the numbers and null at the end."""
        values = self.values()
        if self.tag is not None:
            values = as_column(values.take(pc.sort_indices(values)), self.kind)
        else:
            values = pa.nulls(0, self.kind)
        return pa.concat_arrays([values, pa.nulls(1, self.kind)]) if self.null else values


def as_column(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return uniform values, null among them or not, as a column of a type has them."""
    if isinstance(kind, pa.BaseExtensionType):
        storage = as_column(values, storage_type(kind))
        return pa.ExtensionArray.from_storage(kind, storage)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return as_column(values, kind.value_type)
    found = kind_of(kind)
    if found.domain is Domain.BOOLEAN:
        return values
    if found.domain is Domain.FLOAT:
        return values if kind == pa.float64() else values.cast(kind, safe=False)
    if found.domain is Domain.BYTES:
        return _as_bytes(values, kind)
    native = values if values.type == found.native else values.cast(found.native)
    return relabel(native, kind)


def _as_bytes(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast binary values to a kind of text or binary, unchanged.

    A cast to text would refuse bytes that are not UTF-8, which a scan returns as they are.
    """
    types = pa.types
    if types.is_fixed_size_binary(kind):
        # A cast refuses no values, and bytes beyond those of a slice.
        filler = bytes(kind.byte_width)
        data = b"".join([filler if value is None else value for value in values.to_pylist()])
        valid = packed_validity(values)
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)], values.null_count)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return relabel(values.cast(pa.binary_view()), kind)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return relabel(values.cast(pa.large_binary()), kind)
    return relabel(values.cast(pa.binary()), kind)
