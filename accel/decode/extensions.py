"""Extension types around several leaves or a dictionary: what they are put around is decoded without them.

pyarrow makes no such array of some of its leaves, which are read by themselves where their pages do not align; and where
it reads no rows of an extension type over a dictionary, as it does at the end of a read batch by batch, it ends the
process: of no chunks it cannot tell the type. So the Arrow schema that a writer stored reaches it with the storage in
their place, and `accel.decode.nested` puts the type around what comes of it. Those around one leaf stay as they are.
"""

from __future__ import annotations

import pyarrow as pa

from accel.arrays import change_fields

__all__ = ["holds_dictionary", "is_composite", "num_leaves", "stored_type"]


def is_composite(kind: pa.DataType) -> bool:
    """Whether a type is such an extension type, or holds one at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_around(kind.storage_type)
    return any(is_composite(kind.field(i).type) for i in range(kind.num_fields))


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type with the storage of such extension types in their place."""
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
    """How many columns of a file hold values of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return num_leaves(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(num_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _is_around(storage: pa.DataType) -> bool:
    return num_leaves(storage) > 1 or holds_dictionary(storage)


def holds_dictionary(kind: pa.DataType) -> bool:
    """Whether a type is a dictionary of some type, or holds one at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(
        holds_dictionary(kind.field(i).type) for i in range(kind.num_fields)
    )
