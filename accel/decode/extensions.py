"""Composite extension types: those around several leaves, or around a dictionary.

pyarrow cannot make such an array of some of its leaves, which are read one by one where their pages do not
align. Reading no rows of an extension type over a dictionary, as at the end of a read in batches, ends the
process. So pyarrow receives an Arrow schema with their storage types, and `accel.decode.nested` adds the
extension types to what it decodes. Extension types around one leaf stay in the schema.
"""

from __future__ import annotations

import pyarrow as pa

from accel.arrays import change_fields

__all__ = ["holds_dictionary", "is_composite", "num_leaves", "stored_type"]


def is_composite(kind: pa.DataType) -> bool:
    """Return whether a type is a composite extension type, or holds one at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return num_leaves(kind.storage_type) > 1 or holds_dictionary(kind.storage_type)
    return any(is_composite(kind.field(i).type) for i in range(kind.num_fields))


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with storage types in place of composite extension types."""
    if not is_composite(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)

    def stored(field: pa.Field) -> pa.Field:
        return field.with_type(stored_type(field.type))

    if pa.types.is_list_view(kind):
        return pa.list_view(stored(kind.value_field))
    if pa.types.is_large_list_view(kind):
        return pa.large_list_view(stored(kind.value_field))
    return change_fields(kind, stored, keys=stored) or kind


def num_leaves(kind: pa.DataType) -> int:
    """Return how many columns of a file hold values of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return num_leaves(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(num_leaves(kind.field(i).type) for i in range(kind.num_fields))


def holds_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is a dictionary, or holds one at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(
        holds_dictionary(kind.field(i).type) for i in range(kind.num_fields)
    )
