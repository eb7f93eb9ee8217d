"""Random columns of every type that pyarrow writes to Parquet, flat and nested."""

from __future__ import annotations

import datetime
import decimal
import random
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa

Make = Callable[[random.Random], object]
Column = tuple[pa.DataType, Make]
Wrap = Callable[[pa.DataType], pa.DataType]

_EPOCH = datetime.datetime(1970, 1, 1)


def _int(low: int, high: int) -> Make:
    return lambda rng: rng.randint(low, high) if rng.random() < 0.5 else rng.randint(0, 5)


def _text(rng: random.Random) -> str:
    return rng.choice(["", "a", "bc", "naïve", "\U0001f600"]) + str(rng.randrange(40)) * rng.randrange(4)


def _bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(12)) if rng.random() < 0.5 else b"same"


def _fixed(size: int) -> Make:
    return lambda rng: rng.randbytes(size) if rng.random() < 0.5 else b"\x07" * size


def _float(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, float("nan"), float("inf"), 1.5, rng.gauss(0, 1e3)])


def _half(rng: random.Random) -> np.float16:
    return np.float16(rng.choice([0.0, -0.0, float("nan"), 1.5, rng.gauss(0, 10)]))


def _decimal(precision: int, scale: int) -> Make:
    top = 10**precision - 1
    return lambda rng: decimal.Decimal(rng.randint(-top, top)).scaleb(-scale, decimal.Context(prec=100))


def _moment(rng: random.Random) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=rng.randint(-(10**9), 2 * 10**9))


FLAT: dict[str, Column] = {
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    **{
        f"int{bits}": (getattr(pa, f"int{bits}")(), _int(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (8, 16, 32, 64)
    },
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), _int(0, 2**bits - 1)) for bits in (8, 16, 32, 64)},
    "float16": (pa.float16(), _half),
    "float32": (pa.float32(), _float),
    "float64": (pa.float64(), _float),
    "string": (pa.string(), _text),
    "large_string": (pa.large_string(), _text),
    "string_view": (pa.string_view(), _text),
    "binary": (pa.binary(), _bytes),
    "large_binary": (pa.large_binary(), _bytes),
    "binary_view": (pa.binary_view(), _bytes),
    "fixed": (pa.binary(5), _fixed(5)),
    "decimal32": (pa.decimal32(7, 2), _decimal(7, 2)),
    "decimal64": (pa.decimal64(15, 3), _decimal(15, 3)),
    "decimal_int32": (pa.decimal128(8, 2), _decimal(8, 2)),
    "decimal_int64": (pa.decimal128(16, 2), _decimal(16, 2)),
    "decimal_fixed": (pa.decimal128(38, 10), _decimal(38, 10)),
    "decimal256": (pa.decimal256(60, 10), _decimal(60, 10)),
    "date32": (pa.date32(), lambda rng: _moment(rng).date()),
    "date64": (pa.date64(), lambda rng: _moment(rng).date()),
    "time_s": (pa.time32("s"), lambda rng: _moment(rng).time()),
    "time_ms": (pa.time32("ms"), lambda rng: _moment(rng).time()),
    "time_us": (pa.time64("us"), lambda rng: _moment(rng).time()),
    "time_ns": (pa.time64("ns"), lambda rng: _moment(rng).time()),
    **{f"timestamp_{unit}": (pa.timestamp(unit), _moment) for unit in ("s", "ms", "us", "ns")},
    "timestamp_utc": (pa.timestamp("us", "UTC"), _moment),
    "timestamp_zone": (pa.timestamp("ms", "Europe/Paris"), _moment),
    "timestamp_offset": (pa.timestamp("ns", "+05:30"), _moment),
    **{f"duration_{unit}": (pa.duration(unit), _int(-(2**40), 2**40)) for unit in ("s", "ms", "us", "ns")},
    "null": (pa.null(), lambda rng: None),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), _text),
    "dictionary_int8": (pa.dictionary(pa.int8(), pa.string()), lambda rng: rng.choice("abc")),
    "dictionary_large": (pa.dictionary(pa.int32(), pa.large_string()), _text),
    "dictionary_binary": (pa.dictionary(pa.int16(), pa.binary()), lambda rng: rng.choice([b"a", b"b"])),
    "uuid": (pa.uuid(), lambda rng: uuid.UUID(int=rng.getrandbits(128)).bytes),
    "json": (pa.json_(), lambda rng: f'{{"a": {rng.randrange(9)}}}'),
    "bool8": (pa.bool8(), _int(0, 1)),
}


def _leaf(name: str) -> Column:
    return FLAT[name]


def _struct(**fields: Column) -> Column:
    kind = pa.struct([(name, field[0]) for name, field in fields.items()])
    return kind, lambda rng: {name: _or_null(rng, field[1], 0.2) for name, field in fields.items()}


def _list_of(item: Column, wrap: Wrap = pa.list_) -> Column:
    return wrap(item[0]), lambda rng: [
        _or_null(rng, item[1], 0.15) for _ in range(rng.choice([0, 0, 1, 2, 5]))
    ]


def _fixed_list(item: Column, size: int) -> Column:
    return pa.list_(item[0], size), lambda rng: [_or_null(rng, item[1], 0.2) for _ in range(size)]


def _map(key: Column, item: Column) -> Column:
    return pa.map_(key[0], item[0]), lambda rng: [
        (key[1](rng), _or_null(rng, item[1], 0.2)) for _ in range(rng.choice([0, 1, 3]))
    ]


_INNER = _struct(a=_leaf("int64"), b=_leaf("string"), c=_list_of(_leaf("int32")))

NESTED: dict[str, Column] = {
    "list_int": _list_of(_leaf("int64")),
    "list_string": _list_of(_leaf("string")),
    "large_list": _list_of(_leaf("string"), pa.large_list),
    "list_view": _list_of(_leaf("int32"), pa.list_view),
    "large_list_view": _list_of(_leaf("string"), pa.large_list_view),
    "list_string_view": _list_of(_leaf("string_view")),
    "list_null": _list_of(_leaf("null")),
    "list_dictionary": _list_of(_leaf("dictionary")),
    "list_uuid": _list_of(_leaf("uuid")),
    "list_list": _list_of(_list_of(_leaf("int16"))),
    "list_list_list": _list_of(_list_of(_list_of(_leaf("string")))),
    "list_view_struct": _list_of(_struct(a=_leaf("int64"), b=_leaf("string")), pa.list_view),
    "fixed_list": _fixed_list(_leaf("float32"), 3),
    "fixed_list_struct": _fixed_list(_struct(a=_leaf("int8"), b=_list_of(_leaf("string"))), 2),
    "list_fixed_list": _list_of(_fixed_list(_leaf("int32"), 2)),
    "fixed_fixed": _fixed_list(_fixed_list(_leaf("int32"), 2), 2),
    "struct": _struct(a=_leaf("int64"), b=_leaf("string")),
    "struct_types": _struct(
        d=_leaf("dictionary"),
        z=_leaf("timestamp_zone"),
        u=_leaf("uuid"),
        v=_leaf("large_string"),
        n=_leaf("null"),
    ),
    "struct_struct": _struct(s=_struct(x=_leaf("int32"), y=_leaf("decimal_fixed")), t=_leaf("duration_ms")),
    "struct_list": _struct(l=_list_of(_leaf("int64")), s=_leaf("string")),
    "struct_deep": _struct(s=_struct(l=_list_of(_INNER), f=_leaf("float64")), m=_map(_leaf("int32"), _INNER)),
    "list_struct": _list_of(_struct(a=_leaf("int64"), b=_leaf("string"))),
    "list_struct_list": _list_of(_INNER),
    "large_list_struct": _list_of(_INNER, pa.large_list),
    "map": _map(_leaf("string"), _leaf("int64")),
    "map_struct": _map(_leaf("int32"), _INNER),
    "map_map": _map(_leaf("string"), _map(_leaf("int32"), _leaf("string"))),
    "list_map": _list_of(_map(_leaf("string"), _leaf("float64"))),
    "map_list": _map(_leaf("string"), _list_of(_leaf("string"))),
}


def _or_null(rng: random.Random, make: Make, share: float) -> object:
    return None if rng.random() < share else make(rng)


def column(kind: pa.DataType, make: Make, num_rows: int, rng: random.Random, *, nulls: float) -> pa.Array:
    """Random values; where `nulls` is 0 there are none at the top level."""
    values = [_or_null(rng, make, nulls) for _ in range(num_rows)]
    # Extension and dictionary types inside others have no converter from Python: go by a plain type.
    plain = _plain(kind)
    if plain == pa.dictionary(pa.int32(), pa.large_string()):
        # This one has no converter before pyarrow 26.
        return pa.array(values, plain.value_type).dictionary_encode()
    array = pa.array(values, plain)
    return array if plain == kind else _dress(array, kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_plain(f.type)) for f in kind])
    for is_kind, make in _LISTS:
        if is_kind(kind):
            return make(_plain(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type), kind.list_size)
    return kind


_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


def _dress(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give the plain array back its extension types."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _dress(array, kind.storage_type))
    if not pa.types.is_nested(kind):
        return array
    buffers = array.buffers()
    if pa.types.is_struct(kind):
        children = [_dress(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), buffers[:1], children=children)
    width = 1 if pa.types.is_fixed_size_list(kind) else 2
    width += pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    item = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
    return pa.Array.from_buffers(kind, len(array), buffers[:width], children=[_dress(array.values, item)])
