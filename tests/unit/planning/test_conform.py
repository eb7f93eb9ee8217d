"""What widens without loss, and the widening."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.errors import SchemaMismatchError
from accel.planning.conform import (
    check_schema,
    check_variants,
    conform_array,
    conformed_columns,
    overlay,
    widens,
)
from accel.predicate.bind import bind
from accel.predicate.where import to_expr
from accel.testing import write_file

WIDENS = [
    (pa.int8(), pa.int64(), True),
    (pa.int64(), pa.int32(), False),
    (pa.uint8(), pa.int16(), True),
    (pa.uint8(), pa.int8(), False),
    (pa.uint32(), pa.uint64(), True),
    (pa.int8(), pa.uint64(), False),
    (pa.int32(), pa.float64(), True),
    (pa.int32(), pa.float32(), False),
    (pa.int16(), pa.float32(), True),
    (pa.int64(), pa.float64(), False),
    (pa.int32(), pa.decimal128(12, 2), True),
    (pa.int32(), pa.decimal128(11, 2), False),
    (pa.float16(), pa.float32(), True),
    (pa.float64(), pa.float32(), False),
    (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
    (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
    (pa.string(), pa.large_string(), True),
    (pa.string(), pa.binary(), False),
    (pa.binary(4), pa.binary(), True),
    (pa.date32(), pa.date64(), True),
    (pa.date64(), pa.date32(), True),
    *(
        (day, pa.timestamp(unit), True)
        for day in (pa.date32(), pa.date64())
        for unit in ("s", "ms", "us", "ns")
    ),
    (pa.date32(), pa.timestamp("us", "UTC"), False),
    (pa.date64(), pa.timestamp("ms", "Europe/Paris"), False),
    (pa.timestamp("s"), pa.date32(), False),
    (pa.timestamp("ms"), pa.date64(), False),
    (pa.date32(), pa.time64("us"), False),
    (pa.date32(), pa.int32(), False),
    (pa.list_(pa.date32()), pa.list_(pa.timestamp("us")), True),
    (pa.struct([("a", pa.date32())]), pa.struct([("a", pa.timestamp("ms"))]), True),
    (pa.timestamp("ms"), pa.timestamp("us"), True),
    (pa.timestamp("us"), pa.timestamp("ms"), False),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris"), True),
    (pa.time32("ms"), pa.time64("us"), True),
    (pa.null(), pa.list_(pa.int8()), True),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
    (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
    (pa.list_(pa.int8()), pa.large_list(pa.int16()), True),
    (pa.list_(pa.int16()), pa.list_(pa.int8()), False),
    (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.string())]), True),
    (pa.struct([("a", pa.int16())]), pa.struct([("a", pa.int8())]), False),
    (pa.bool_(), pa.int8(), False),
    (pa.list_(pa.int32()), pa.list_(pa.dictionary(pa.int8(), pa.int32())), True),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.large_list(pa.string_view()), True),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int16()), True),
    (pa.list_(pa.int8()), pa.list_(pa.int8(), 2), False),
    (pa.list_(pa.uuid()), pa.list_(pa.binary()), True),
    (pa.large_list(pa.null()), pa.list_(pa.list_(pa.int8())), True),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.dictionary(pa.int8(), pa.int16())), True),
    (pa.map_(pa.string(), pa.int16()), pa.map_(pa.string(), pa.int8()), False),
]


@pytest.mark.parametrize(("have", "to", "expected"), WIDENS, ids=lambda v: str(v))
def test_widens(have: pa.DataType, to: pa.DataType, expected: bool) -> None:
    assert widens(have, to) is expected


@pytest.mark.parametrize(("have", "to", "_"), [case for case in WIDENS if case[2]], ids=lambda v: str(v))
def test_what_widens_converts_nulls_and_all(have: pa.DataType, to: pa.DataType, _: bool) -> None:
    out = conform_array(pa.nulls(3, have), to)
    assert out.type == to
    assert out.null_count == 3
    assert len(out) == 3


def test_values_survive() -> None:
    assert conform_array(pa.array([1, None], pa.int8()), pa.decimal128(5, 1)).to_pylist() == [
        Decimal("1.0"),
        None,
    ]
    stamps = conform_array(pa.array([1, -1], pa.timestamp("ms")), pa.timestamp("us"))
    assert stamps.to_pylist() == [
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1000),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ]
    encoded = conform_array(pa.array(["x", None, "x"]), pa.dictionary(pa.int32(), pa.string()))
    assert encoded.type == pa.dictionary(pa.int32(), pa.string())
    assert encoded.to_pylist() == ["x", None, "x"]


def test_struct_children_by_name_missing_ones_null() -> None:
    array = pa.array(
        [{"b": 1, "a": 2}, None, {"b": None, "a": 3}], pa.struct([("b", pa.int8()), ("a", pa.int8())])
    )
    to = pa.struct([("a", pa.int16()), ("c", pa.string()), ("b", pa.int8())])
    out = conform_array(array.slice(1), to)
    assert out.type == to
    assert out.to_pylist() == [None, {"a": 3, "c": None, "b": None}]


STRUCT = pa.struct([("b", pa.int8()), ("a", pa.int8())])
WIDER = pa.struct([("a", pa.int16()), ("c", pa.string())])
NESTED = {
    "values": (
        pa.list_(pa.int32()),
        pa.list_(pa.dictionary(pa.int8(), pa.int32())),
        [[1, None], None, [], [1, 2], [3]],
    ),
    "into large": (pa.list_(pa.int8()), pa.large_list(pa.int64()), [[1, None], None, [], [1, 2], [3]]),
    "from large": (pa.large_list(pa.int8()), pa.list_(pa.int64()), [[1, None], None, [], [1, 2], [3]]),
    "of one size": (pa.list_(pa.int8(), 2), pa.list_(pa.int64()), [[1, None], None, [2, 3], None, [4, 5]]),
    "in lists": (
        pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.list_(pa.large_list(pa.string_view())),
        [[["a", None], None], None, [], [[]], [["b", "a"]]],
    ),
    "uuids": (pa.list_(pa.uuid()), pa.list_(pa.binary()), [[b"a" * 16, None], None, [], [b"b" * 16], []]),
    "structs": (
        pa.list_(STRUCT),
        pa.list_(WIDER),
        [[{"b": 1, "a": 2}, None], None, [], [{"b": 3, "a": None}], []],
    ),
    "maps": (
        pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())),
        pa.map_(pa.string(), pa.string_view()),
        [[("k", "v"), ("l", None)], None, [], [("m", "v")], [("n", "w")]],
    ),
    "maps of structs": (
        pa.map_(pa.string(), STRUCT),
        pa.map_(pa.large_string(), WIDER),
        [[("k", {"b": 1, "a": 2}), ("l", None)], None, [], [("m", {"b": 3, "a": 4})], []],
    ),
    "no rows": (pa.list_(pa.int8()), pa.list_(pa.dictionary(pa.int8(), pa.int8())), []),
    "nulls": (pa.list_(pa.int8()), pa.large_list(pa.int16()), [None, None]),
}


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_list(kind) and isinstance(kind.value_type, pa.BaseExtensionType):
        plain = pa.array(values, pa.list_(kind.value_type.storage_type))
        items = pa.ExtensionArray.from_storage(kind.value_type, plain.values)
        return pa.ListArray.from_arrays(plain.offsets, items, mask=plain.is_null())
    return pa.array(values, kind)


def _shown(value: Any, kind: pa.DataType) -> Any:
    """A value as Python has it in the wider type: of structs the fields that it has."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value.get(field.name) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _shown(item, kind.item_type)) for key, item in value]
    return [_shown(item, kind.value_type) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", NESTED.values(), ids=NESTED)
def test_what_lists_and_maps_hold_is_widened(case: tuple[pa.DataType, pa.DataType, list[Any]]) -> None:
    have, to, values = case
    array = _array(have, values)
    assert widens(have, to)
    for start in range(len(values) + 1):
        for stop in range(start, len(values) + 1):
            found = conform_array(array.slice(start, stop - start), to)
            found.validate(full=True)
            assert found.type == to
            assert found.to_pylist() == [_shown(value, to) for value in values[start:stop]]


def test_values_that_a_slice_leaves_out_are_left_alone() -> None:
    far = pa.array([[2**62], [1]], pa.list_(pa.timestamp("ms")))
    to = pa.list_(pa.timestamp("ns"))
    assert conform_array(far[1:], to).cast(pa.list_(pa.int64())).to_pylist() == [[1_000_000]]
    with pytest.raises(SchemaMismatchError, match="'t'"):
        conform_array(far, to, name="t")


DAYS = [None, -106_751, -1, 0, 19_000, 106_751]


@pytest.mark.parametrize("have", [pa.date32(), pa.date64()], ids=str)
@pytest.mark.parametrize("to", [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")], ids=str)
def test_days_become_the_moments_that_they_begin_at(have: pa.DataType, to: pa.DataType) -> None:
    day = pa.scalar(86_400, pa.duration("s")).cast(pa.duration(to.unit)).value
    days = pa.array(DAYS, pa.int32()).cast(pa.date32()).cast(have)
    expected = [None if number is None else number * day for number in DAYS]
    assert conform_array(days, to).cast(pa.int64()).to_pylist() == expected


BEYOND: dict[str, tuple[pa.Array, pa.DataType]] = {
    "a day beyond nanoseconds": (pa.array([106_752], pa.int32()).cast(pa.date32()), pa.timestamp("ns")),
    "a day beyond microseconds": (
        pa.array([(1 << 31) - 1], pa.int32()).cast(pa.date32()),
        pa.timestamp("us"),
    ),
    "a date that is no day, as one": (pa.array([1], pa.int64()).view(pa.date64()), pa.date32()),
    "a date that is no day, in seconds": (pa.array([1], pa.int64()).view(pa.date64()), pa.timestamp("s")),
}


@pytest.mark.parametrize("case", BEYOND)
def test_a_day_that_does_not_fit_is_a_mismatch(case: str) -> None:
    days, to = BEYOND[case]
    with pytest.raises(SchemaMismatchError, match="f: column 'd' cannot be read as"):
        conform_array(days, to, url="f", name="d")


def test_overflow_is_a_mismatch() -> None:
    far = pa.array([2**62], pa.timestamp("ms"))
    with pytest.raises(SchemaMismatchError, match="'t'"):
        conform_array(far, pa.timestamp("ns"), url="f.parquet", name="t")


def test_what_a_file_may_be_taken_as_too_widens() -> None:
    have = pa.schema([("at", pa.timestamp("us")), ("local", pa.timestamp("us")), ("x", pa.int8())])
    zoned = have.set(0, pa.field("at", pa.timestamp("us", "UTC")))
    for kind in (pa.timestamp("us"), pa.timestamp("ns", "Europe/Paris")):
        check_schema(have, pa.schema([("x", pa.int16()), ("at", kind)]), url="a", zoned=zoned)
    for name, kind in (("at", pa.timestamp("ms", "UTC")), ("local", pa.timestamp("us", "UTC"))):
        with pytest.raises(SchemaMismatchError, match=rf"a: column '{name}' is timestamp\[us\] here"):
            check_schema(have, pa.schema([(name, kind)]), url="a", zoned=zoned)


def test_check_schema_names_file_column_and_types() -> None:
    with pytest.raises(
        SchemaMismatchError, match=r"part-2\.parquet: column 'x' is double here and int32"
    ) as info:
        check_schema(pa.schema([("x", pa.float64())]), pa.schema([("x", pa.int32())]), url="part-2.parquet")
    assert info.value.hint is not None


# -- overlay ----------------------------------------------------------------------------------------


MS, S = pa.duration("ms"), pa.duration("s")


@pytest.mark.parametrize(
    ("meant", "file", "bound", "conformed"),
    [
        # The same literal says the same: the file's own type, which its metadata is of.
        (pa.int64(), pa.int8(), pa.int8(), False),
        (pa.decimal128(9, 2), pa.int16(), pa.int16(), False),
        (pa.float64(), pa.float32(), pa.float32(), False),
        (pa.float64(), pa.int32(), pa.int32(), False),
        (pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("s"), False),
        (pa.date64(), pa.date32(), pa.date32(), False),
        (pa.large_string(), pa.string(), pa.string(), False),
        (pa.int8(), pa.null(), pa.null(), False),
        (pa.list_(pa.int64()), pa.list_(pa.int8()), pa.list_(pa.int8()), False),
        # Another thing: the data set's type.
        (MS, S, MS, True),
        (pa.int8(), pa.bool8(), pa.int8(), True),
        (pa.float64(), pa.bool8(), pa.float64(), True),
        (pa.binary(), pa.uuid(), pa.binary(), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [False, True], ids=["column", "field"])
def test_types(
    meant: pa.DataType, file: pa.DataType, bound: pa.DataType, conformed: bool, *, nested: bool
) -> None:
    def schema(kind: pa.DataType) -> pa.Schema:
        one = pa.schema([("x", kind)])
        return pa.schema([("s", pa.struct(list(one)))]) if nested else one

    found = overlay(schema(meant), schema(file))
    assert found == schema(bound)
    where = bind(to_expr("s.x IS NULL" if nested else "x IS NULL"), found)
    path = ("s", "x") if nested else ("x",)
    assert conformed_columns(where, schema(meant), file=schema(file)) == ({path: meant} if conformed else {})


def test_columns_of_one_of_them() -> None:
    meant = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", MS), ("y", pa.int8())]))])
    file = pa.schema([("s", pa.struct([("own", pa.int8()), ("x", S)])), ("b", pa.int8())])
    assert overlay(meant, file) == pa.schema(
        [("a", pa.int64()), ("s", pa.struct([("own", pa.int8()), ("x", MS), ("y", pa.int8())]))]
    )


# -- variants ---------------------------------------------------------------------------------------


def variant(typed: pa.DataType | None = None, **more: pa.DataType) -> pa.DataType:
    fields = {"metadata": pa.binary(), "value": pa.binary(), **more}
    return pa.struct({**fields, "typed_value": typed} if typed is not None else fields)


def shredded(**fields: pa.DataType) -> pa.DataType:
    """An object of which these fields are taken out."""
    return variant(
        pa.struct({n: pa.struct({"value": pa.binary(), "typed_value": k}) for n, k in fields.items()})
    )


PLAIN = variant()
ONE = shredded(a=pa.int64())
TWO = shredded(a=pa.int64(), b=pa.string())


@pytest.mark.parametrize(
    ("have", "to", "lost"),
    [
        pytest.param(ONE, PLAIN, "v.typed_value", id="shredded after unshredded"),
        pytest.param(PLAIN, ONE, None, id="unshredded after shredded"),
        pytest.param(TWO, ONE, "v.typed_value.b", id="a field more"),
        pytest.param(ONE, TWO, None, id="a field less"),
        pytest.param(ONE, shredded(a=pa.string()), "v.typed_value.a.typed_value", id="another type"),
        pytest.param(ONE, shredded(a=pa.int32()), "v.typed_value.a.typed_value", id="a wider type"),
        pytest.param(shredded(a=pa.int32()), ONE, None, id="a narrower type"),
        pytest.param(ONE, variant(pa.int64()), "v.typed_value", id="an object, and a number"),
        pytest.param(
            variant(pa.list_(ONE)), variant(pa.list_(PLAIN)), "v.typed_value.element.typed_value", id="array"
        ),
        pytest.param(pa.struct({"x": ONE}), pa.struct({"x": PLAIN}), "v.x.typed_value", id="in a struct"),
        pytest.param(pa.list_(ONE), pa.large_list(PLAIN), "v.element.typed_value", id="in a list"),
        pytest.param(
            pa.map_(pa.string(), ONE), pa.map_(pa.string(), PLAIN), "v.value.typed_value", id="in a map"
        ),
        pytest.param(
            variant(),
            pa.struct({"metadata": pa.binary(), "typed_value": pa.int64()}),
            "v.value",
            id="no value",
        ),
        pytest.param(ONE, pa.struct({"value": pa.large_binary()}), None, id="a field that the caller chose"),
        pytest.param(variant(ONE, kind=pa.string()), PLAIN, None, id="another struct"),
        pytest.param(
            pa.struct({"metadata": pa.string(), "value": pa.binary(), "typed_value": pa.int64()}),
            pa.struct({"metadata": pa.string(), "value": pa.binary()}),
            None,
            id="a struct with text",
        ),
        pytest.param(ONE, pa.int64(), None, id="for others to refuse"),
    ],
)
def test_what_a_variant_would_lose(have: pa.DataType, to: pa.DataType, lost: str | None) -> None:
    def check() -> None:
        check_variants(pa.schema([("v", have)]), pa.schema([("v", to)]), names=["v"], url="u")

    if lost is None:
        check()
        return
    with pytest.raises(SchemaMismatchError) as caught:
        check()
    assert str(caught.value) == (
        f"u: column 'v' holds a VARIANT that is shredded differently here: the scan's schema has no {lost!r} that its "
        "values would fit into (leave the column out by `columns=`, or read the files of one shredding at a time)"
    )


def test_a_scan_loses_no_variants(tmp_path: Path) -> None:
    row = {"metadata": b"m", "value": b"v"}
    typed = {"metadata": b"m", "value": None, "typed_value": 7}
    plain = pa.table({"k": [1], "v": pa.array([row], PLAIN)})
    number = pa.table({"k": [2], "v": pa.array([typed], variant(pa.int64()))})
    for name, table in (("plain", plain), ("typed", number)):
        (tmp_path / f"{name}.parquet").write_bytes(write_file(table))
    first, second = (str(tmp_path / f"{name}.parquet") for name in ("plain", "typed"))

    with pytest.raises(SchemaMismatchError) as caught:
        accel.scan([first, second]).to_table()
    assert caught.value.path == second
    assert accel.scan([first, second], columns=["k"]).to_table().to_pylist() == [{"k": 1}, {"k": 2}]
    assert accel.scan([second, first]).to_table().to_pylist() == [
        {"k": 2, "v": typed},
        {"k": 1, "v": {**row, "typed_value": None}},
    ]
