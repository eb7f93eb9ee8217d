"""Variants of files that are shredded differently: what the data set's type would leave out of them.

A VARIANT comes as the struct that it is stored as, and none of its fields says the value by itself. It is told by its fields,
as writers before the annotation have none, and Arrow's types lose it.

Sources: parquet-format `VariantEncoding.md`, `VariantShredding.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from accel.errors import SchemaMismatchError
from accel.planning.conform import is_bytes, widens

__all__ = ["check_variants"]

_FIELDS = frozenset({"metadata", "value", "typed_value"})


def check_variants(have: pa.Schema, to: pa.Schema, *, names: Iterable[str], url: str) -> None:
    """Raise SchemaMismatchError where a variant of the file holds what that of the data set has no room for.

    Parameters
    ----------
    have, to : pyarrow.Schema
        Of the file, and of the data set.
    names : iterable of str
        The columns that come out; those of several fields of one name are passed over.
    """
    for name in names:
        index, at = have.get_field_index(name), to.get_field_index(name)
        if index < 0 or at < 0:
            continue
        found = _first_lost(have.field(index).type, to.field(at).type, name)
        if found is not None:
            raise SchemaMismatchError(
                f"column {name!r} holds a VARIANT that is shredded differently here: the scan's schema has no "
                f"{found!r} that its values would fit into",
                path=url,
                hint="leave the column out by columns=, or read the files of one shredding at a time",
            )


def _first_lost(have: pa.DataType, to: pa.DataType, path: str) -> str | None:
    """What a variant at any depth would lose, as a dotted path."""
    have, to = _stored(have), _stored(to)
    if not pa.types.is_nested(have) or have.equals(to):
        return None
    if _is_variant(have) and _is_variant(to):
        return _first_left_out(have, to, path)
    return _first([_first_lost(a, b, where) for a, b, where in _below(have, to, path)])


def _first_left_out(have: pa.DataType, to: pa.DataType, path: str) -> str | None:
    """The first field below that `to` lacks, or that does not widen to what it has."""
    have, to = _stored(have), _stored(to)
    if pa.types.is_struct(have) and pa.types.is_struct(to):
        for field in have:
            if to.get_field_index(field.name) < 0:
                return f"{path}.{field.name}"
    elif not widens(have, to):
        return path
    return _first([_first_left_out(a, b, where) for a, b, where in _below(have, to, path)])


def _first(found: list[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)


def _below(have: pa.DataType, to: pa.DataType, path: str) -> list[tuple[pa.DataType, pa.DataType, str]]:
    """The types that are nested in both, one level down."""
    if pa.types.is_struct(have) and pa.types.is_struct(to):
        places = [(field, to.get_field_index(field.name)) for field in have]
        return [(field.type, to.field(at).type, f"{path}.{field.name}") for field, at in places if at >= 0]
    if pa.types.is_map(have) and pa.types.is_map(to):
        return [(have.key_type, to.key_type, f"{path}.key"), (have.item_type, to.item_type, f"{path}.value")]
    if _has_elements(have) and _has_elements(to):
        return [(have.value_type, to.value_type, f"{path}.element")]
    return []


def _has_elements(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_variant(kind: pa.DataType) -> bool:
    """Whether a type has the fields of a variant, in any order, and no others."""
    if not pa.types.is_struct(kind):
        return False
    types = {field.name: field.type for field in kind}
    if len(types) != kind.num_fields or not {"metadata"} < types.keys() <= _FIELDS:
        return False
    return all(is_bytes(types[name]) for name in ("metadata", "value") if name in types)
