"""Files of one scan whose types differ: what widens, and the widening itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, is_zoned, packed_validity, repeat_scalar
from accel.errors import SchemaMismatchError
from accel.planning.evolution import NO_DEFAULTS, FieldDefaults
from accel.planning.projection import find_type, match_fields
from accel.planning.promotion import Promotion, promote_array, promotes
from accel.predicate.atoms import Bound
from accel.predicate.kinds import Family, kind_of, reads_alike

__all__ = [
    "check_paths",
    "check_schema",
    "check_variants",
    "conform_array",
    "conformed_columns",
    "is_bytes",
    "is_text",
    "joined_type",
    "overlay",
    "widens",
]

# Integers up to this many bits are exact in a float of the width on the right.
_EXACT_IN_FLOAT = {8: 16, 16: 32, 32: 64}
_INT32_MAX = (1 << 31) - 1
_TIME_UNITS = ("s", "ms", "us", "ns")


def widens(have: pa.DataType, to: pa.DataType, promotion: Promotion = Promotion.EXACT) -> bool:
    """Return whether every value of type `have` is a value of type `to`, unchanged, or becomes one by a
    change that `promotion` allows."""
    if have.equals(to) or pa.types.is_null(have):
        return True
    if isinstance(have, pa.BaseExtensionType):
        return widens(have.storage_type, to, promotion)
    if pa.types.is_dictionary(have):
        return widens(have.value_type, to.value_type if pa.types.is_dictionary(to) else to, promotion)
    if pa.types.is_dictionary(to):
        return widens(have, to.value_type, promotion)
    if pa.types.is_struct(have) and pa.types.is_struct(to):
        return _struct_widens(have, to, promotion)
    if _is_list(have) and _is_list(to):
        return not pa.types.is_fixed_size_list(to) and widens(have.value_type, to.value_type, promotion)
    if pa.types.is_map(have) and pa.types.is_map(to):
        return widens(have.key_type, to.key_type, promotion) and widens(
            have.item_type, to.item_type, promotion
        )
    if promotion is Promotion.SQL and promotes(have, to):
        return True
    return _number_widens(have, to) or _other_widens(have, to)


def _struct_widens(have: pa.StructType, to: pa.StructType, promotion: Promotion) -> bool:
    for field, at in zip(have, match_fields(have, to), strict=True):
        of_name = len(have.get_all_field_indices(field.name)), len(to.get_all_field_indices(field.name))
        if of_name[1] and max(of_name) > 1 and of_name[0] != of_name[1]:
            # It is unclear which of the fields corresponds.
            return False
        if at >= 0 and not widens(field.type, to.field(at).type, promotion):
            return False
    return True


def joined_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of two types, with the fields that the structs of either have;
    None where none does."""
    if one.equals(other):
        return one
    if isinstance(one, pa.BaseExtensionType):
        return joined_type(one.storage_type, other)
    if isinstance(other, pa.BaseExtensionType):
        return joined_type(one, other.storage_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _joined_structs(one, other)
    if _is_list(one) and _is_list(other):
        field = _joined_field(one.value_field, other.value_field)
        wide = pa.types.is_large_list(one) or pa.types.is_large_list(other)
        return None if field is None else pa.large_list(field) if wide else pa.list_(field)
    if pa.types.is_map(one) and pa.types.is_map(other):
        key = _joined_field(one.key_field, other.key_field)
        item = _joined_field(one.item_field, other.item_field)
        return None if key is None or item is None else pa.map_(key, item)
    return one if widens(other, one) else other if widens(one, other) else None


def _joined_field(one: pa.Field, other: pa.Field) -> pa.Field | None:
    kind = joined_type(one.type, other.type)
    return None if kind is None else one.with_type(kind).with_nullable(one.nullable or other.nullable)


def _joined_structs(one: pa.StructType, other: pa.StructType) -> pa.StructType | None:
    theirs = {field.name: field for field in other}
    if len(theirs) < other.num_fields or len({field.name for field in one}) < one.num_fields:
        # It is unclear which of the fields corresponds.
        return None
    fields = []
    for field in one:
        found = theirs.pop(field.name, None)
        joined = field.with_nullable(True) if found is None else _joined_field(field, found)
        if joined is None:
            return None
        fields.append(joined)
    return pa.struct([*fields, *(field.with_nullable(True) for field in theirs.values())])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _number_widens(have: pa.DataType, to: pa.DataType) -> bool:
    if pa.types.is_integer(have):
        unsigned = pa.types.is_unsigned_integer(have)
        if pa.types.is_integer(to):
            if unsigned == pa.types.is_unsigned_integer(to):
                return bool(to.bit_width >= have.bit_width)
            return unsigned and bool(to.bit_width > have.bit_width)
        if pa.types.is_floating(to):
            return bool(to.bit_width >= _EXACT_IN_FLOAT.get(have.bit_width, 128))
        if pa.types.is_decimal(to):
            digits = len(str(2**have.bit_width if unsigned else 2 ** (have.bit_width - 1)))
            return bool(to.scale >= 0 and to.precision - to.scale >= digits)
        return False
    if pa.types.is_floating(have):
        return pa.types.is_floating(to) and bool(to.bit_width >= have.bit_width)
    if pa.types.is_decimal(have) and pa.types.is_decimal(to):
        return bool(to.scale >= have.scale and to.precision - to.scale >= have.precision - have.scale)
    return False


def _other_widens(have: pa.DataType, to: pa.DataType) -> bool:
    if is_text(have):
        return is_text(to)
    if is_bytes(have):
        return is_bytes(to) and not pa.types.is_fixed_size_binary(to)
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(to):
        return is_zoned(have) == is_zoned(to) and _finer(have.unit, to.unit)
    for family in (pa.types.is_time, pa.types.is_duration):
        if family(have) and family(to):
            return _finer(have.unit, to.unit)
    if pa.types.is_date(have):
        # Without a zone, a day is the instant at which it begins.
        return bool(pa.types.is_date(to) or (pa.types.is_timestamp(to) and not is_zoned(to)))
    return False


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _finer(have: str, to: str) -> bool:
    return _TIME_UNITS.index(to) >= _TIME_UNITS.index(have)


def check_schema(
    have: pa.Schema,
    to: pa.Schema,
    *,
    url: str,
    zoned: pa.Schema | None = None,
    promotion: Promotion = Promotion.EXACT,
) -> None:
    """Raise SchemaMismatchError where a column of the file does not widen to the scan's type: see
    `check_paths`."""
    check_paths(have, to, [(name,) for name in to.names], url=url, zoned=zoned, promotion=promotion)


def check_paths(
    have: pa.Schema,
    to: pa.Schema,
    paths: Iterable[tuple[str, ...]],
    *,
    url: str,
    zoned: pa.Schema | None = None,
    promotion: Promotion = Promotion.EXACT,
) -> None:
    """Check that the columns of some paths through structs widen to their types in the scan's schema.

    Parameters
    ----------
    have, to : pyarrow.Schema
        The schemas of the file, which may lack the column of a path, and of the scan, which has it.
    paths : iterable of tuple of str
    url : str
        The file, for errors.
    zoned : pyarrow.Schema, optional
        Other types of the file's columns, of which it is enough that they widen.
    promotion : Promotion

    Raises
    ------
    SchemaMismatchError
        A type does not widen without loss, or is no struct where the scan has one that the path leads
        through.
    """
    for path in paths:
        meant = to.field(to.get_all_field_indices(path[0])[0]).type
        for index in have.get_all_field_indices(path[0]):
            found = _first_narrower(have.field(index).type, meant, path[1:], promotion)
            if found is None or (
                zoned is not None and not _first_narrower(zoned.field(index).type, meant, path[1:], promotion)
            ):
                continue
            depth, kind, wanted = found
            raise SchemaMismatchError(
                f"column {'.'.join(path[: depth + 1])!r} is {kind} here and {wanted} in the scan's schema",
                path=url,
                hint="give `schema=` with a type that holds both",
            )


def _first_narrower(
    have: pa.DataType, to: pa.DataType, names: Sequence[str], promotion: Promotion
) -> tuple[int, pa.DataType, pa.DataType] | None:
    """Return the first field of a path whose type does not widen: its depth, and both types."""
    for depth, name in enumerate(names):
        if pa.types.is_null(have):
            return None
        if not pa.types.is_struct(have):
            return depth, have, to
        index = have.get_field_index(name)
        if index < 0:
            return None
        have, to = have.field(index).type, to.field(to.get_field_index(name)).type
    return None if widens(have, to, promotion) else (len(names), have, to)


def conform_array(
    array: pa.Array,
    to: pa.DataType,
    *,
    url: str = "",
    name: str = "",
    defaults: FieldDefaults = NO_DEFAULTS,
) -> pa.Array:
    """Convert an array to type `to`; struct children are matched by name, missing ones are null or have their
    default.

    Raises
    ------
    SchemaMismatchError
        A value does not fit (a timestamp that overflows in a finer unit).
    """
    if array.type.equals(to):
        return array
    try:
        if pa.types.is_struct(array.type) and pa.types.is_struct(to):
            return _conform_struct(array, to, url=url, name=name, defaults=defaults)
        if _is_list(array.type) and _is_list(to) and not pa.types.is_fixed_size_list(to):
            return _conform_list(array, to, url=url, name=name, defaults=defaults)
        if pa.types.is_map(array.type) and pa.types.is_map(to):
            return _conform_map(array, to, url=url, name=name, defaults=defaults)
        if isinstance(array.type, pa.BaseExtensionType):
            return conform_array(array.storage, to, url=url, name=name, defaults=defaults)
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), to)
        if pa.types.is_dictionary(array.type):
            return conform_array(array.dictionary_decode(), to, url=url, name=name, defaults=defaults)
        if pa.types.is_dictionary(to):
            values = conform_array(array, to.value_type, url=url, name=name, defaults=defaults)
            return values.dictionary_encode().cast(to)
        return promote_array(array, to) if promotes(array.type, to) else array.cast(to)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {name!r} cannot be read as {to}: {error}", path=url or None
        ) from error


def _conform_struct(
    array: pa.StructArray, to: pa.StructType, *, url: str, name: str, defaults: FieldDefaults
) -> pa.Array:
    children = []
    for field, index in zip(to, match_fields(to, array.type), strict=True):
        if index < 0:
            value = defaults.of(field.name)
            children.append(
                pa.nulls(len(array), field.type)
                if value is None
                else repeat_scalar(value, len(array)).cast(field.type)
            )
        else:
            below = defaults.below(field.name)
            path = f"{name}.{field.name}"
            children.append(conform_array(array.field(index), field.type, url=url, name=path, defaults=below))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(to), mask=mask)


def _conform_list(
    array: pa.Array, to: pa.DataType, *, url: str, name: str, defaults: FieldDefaults
) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, values = _offsets(array, array.values)
    if not pa.types.is_large_list(to) and int(offsets[-1]) > _INT32_MAX:
        raise pa.ArrowInvalid(f"{int(offsets[-1])} values are more than a list holds")
    values = conform_array(values, to.value_type, url=url, name=name, defaults=defaults.below("element"))
    width = np.int64 if pa.types.is_large_list(to) else np.int32
    return _with_offsets(array, to, offsets.astype(width), values)


def _conform_map(
    array: pa.MapArray, to: pa.MapType, *, url: str, name: str, defaults: FieldDefaults
) -> pa.Array:
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    offsets, entries = _offsets(array, entries)
    pair = pa.struct([to.key_field, to.item_field])
    children = [
        conform_array(entries.field(at), pair.field(at).type, url=url, name=name, defaults=defaults.below(of))
        for at, of in enumerate(("key", "value"))
    ]
    return _with_offsets(array, to, offsets, pa.StructArray.from_arrays(children, fields=list(pair)))


def _offsets(array: pa.Array, values: pa.Array) -> tuple[npt.NDArray[Any], pa.Array]:
    """Return where each list begins and ends among the values, which are cut to those of the array."""
    if not len(array):
        return np.zeros(1, np.int64 if pa.types.is_large_list(array.type) else np.int32), values.slice(0, 0)
    offsets = integers(array.offsets)
    return offsets - offsets[0], values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _with_offsets(array: pa.Array, to: pa.DataType, offsets: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    """Return lists of other values, null where those of the array are."""
    buffers = [packed_validity(array), pa.py_buffer(np.ascontiguousarray(offsets))]
    return pa.Array.from_buffers(to, len(array), buffers, array.null_count, children=[values])


_FIELDS = frozenset({"metadata", "value", "typed_value"})


def check_variants(have: pa.Schema, to: pa.Schema, *, names: Iterable[str], url: str) -> None:
    """Raise SchemaMismatchError where a variant of the file holds what that of the data set has no room for.

    Parameters
    ----------
    have, to : pyarrow.Schema
        The schemas of the file and of the data set.
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
                f"column {name!r} holds a VARIANT that is shredded differently here: the scan's schema has "
                f"no {found!r} that its values would fit into",
                path=url,
                hint="leave the column out by `columns=`, or read the files of one shredding at a time",
            )


def _first_lost(have: pa.DataType, to: pa.DataType, path: str) -> str | None:
    """Return the dotted path of a field that a variant at any depth would lose."""
    have, to = _stored(have), _stored(to)
    if not pa.types.is_nested(have) or have.equals(to):
        return None
    if _is_variant(have) and _is_variant(to):
        return _first_left_out(have, to, path)
    return _first([_first_lost(a, b, where) for a, b, where in _below(have, to, path)])


def _first_left_out(have: pa.DataType, to: pa.DataType, path: str) -> str | None:
    """Return the first field below that `to` lacks, or that does not widen to what it has."""
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
    """Return the types that are nested in both, one level down."""
    if pa.types.is_struct(have) and pa.types.is_struct(to):
        places = [(field, to.get_field_index(field.name)) for field in have]
        return [(field.type, to.field(at).type, f"{path}.{field.name}") for field, at in places if at >= 0]
    if pa.types.is_map(have) and pa.types.is_map(to):
        return [(have.key_type, to.key_type, f"{path}.key"), (have.item_type, to.item_type, f"{path}.value")]
    if _is_list(have) and _is_list(to):
        return [(have.value_type, to.value_type, f"{path}.element")]
    return []


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_variant(kind: pa.DataType) -> bool:
    """Return whether a type has the fields of a variant, in any order, and no others."""
    if not pa.types.is_struct(kind):
        return False
    types = {field.name: field.type for field in kind}
    if len(types) != kind.num_fields or not {"metadata"} < types.keys() <= _FIELDS:
        return False
    return all(is_bytes(types[name]) for name in ("metadata", "value") if name in types)


def overlay(schema: pa.Schema, file: pa.Schema) -> pa.Schema:
    """Return the data set's columns, with the file's own types where the file has them and they can be
    compared as they are.

    The file's types widen to the data set's: `check_paths` refuses others before.
    """
    fields = []
    for field in schema:
        index = file.get_field_index(field.name)
        if index >= 0:
            field = field.with_type(_type(field.type, file.field(index).type))
        fields.append(field)
    return pa.schema(fields)


def _type(kind: pa.DataType, file: pa.DataType) -> pa.DataType:
    if not (pa.types.is_struct(kind) and pa.types.is_struct(file)):
        # All fields of a column without a type are null.
        return file if _compares(file, kind) and not pa.types.is_struct(kind) else kind
    fields = []
    for field in file:
        index = kind.get_field_index(field.name)
        fields.append(field if index < 0 else field.with_type(_type(kind.field(index).type, field.type)))
    present = {field.name for field in fields}
    return pa.struct(fields + [field for field in kind if field.name not in present])


def _compares(file: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the file's values can be compared as they are with literals of the data set's type."""
    if promotes(file.value_type if pa.types.is_dictionary(file) else file, kind):
        return False
    own, meant = kind_of(file), kind_of(kind)
    if meant.family is Family.FLOAT and own.family is Family.INTEGER:
        # `bind` has literals rounded as they would be beside floats.
        return True
    return reads_alike(own, meant)


def conformed_columns(
    bound: Bound, schema: pa.Schema, *, file: pa.Schema
) -> Mapping[tuple[str, ...], pa.DataType]:
    """Return the columns of a predicate bound to an overlay that are to be brought to the data set's type,
    which is given."""
    out = {}
    own, meant = pa.struct(list(file)), pa.struct(list(schema))
    for column in bound.columns:
        have, to = find_type(own, column.path), find_type(meant, column.path)
        if have is not None and to is not None and not _compares(have, to):
            out[column.path] = to
    return out
