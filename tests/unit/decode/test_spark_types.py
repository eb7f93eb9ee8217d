"""The conversions themselves, without Spark: types, values, slices, nulls, refusals."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from accel.decode.spark_types import (
    Decimals,
    spark_arrow_schema,
    spark_conversion,
    taken_schema,
    to_spark_batch,
)
from accel.errors import AccelError, SchemaMismatchError
from accel.spark.schema import spark_ddl
from tests.spark.cases import CONVERTED, PARIS, REFUSED, TAKEN, UTC, TypeCase

ALL = [*TAKEN, *CONVERTED, UTC, PARIS]


def _batch(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], names=["c"])


def _shown(array: pa.Array) -> list[object]:
    """Python values; a map as a dictionary, a nested array as a list."""
    if pa.types.is_map(array.type):
        return [None if v is None else dict(v) for v in array.to_pylist()]
    return array.to_pylist()


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_type_and_ddl(case: TypeCase) -> None:
    schema = _batch(case.array).schema
    assert spark_arrow_schema(schema) == pa.schema([("c", case.arrow)])
    assert spark_ddl(schema) == f"`c` {case.ddl}"


@pytest.mark.parametrize("case", TAKEN, ids=lambda c: c.id)
def test_what_spark_takes_is_left_alone(case: TypeCase) -> None:
    assert spark_conversion(_batch(case.array).schema) is None


@pytest.mark.parametrize("case", [*CONVERTED, PARIS], ids=lambda c: c.id)
def test_values(case: TypeCase) -> None:
    batch = _batch(case.array)
    convert = spark_conversion(batch.schema)
    assert convert is not None
    out = convert(batch)
    out.validate(full=True)
    assert out.schema == pa.schema([("c", case.arrow)])
    if case.id == "time64_ns":  # Python's time has no nanoseconds
        assert out.column(0).cast(pa.int64()).to_pylist() == [1000, 86399999999000, None]
        return
    assert _shown(out.column(0)) == case.values


@pytest.mark.parametrize("case", CONVERTED, ids=lambda c: c.id)
@pytest.mark.parametrize("cut", [(1, None), (0, 1), (1, 1), (2, 0)], ids=str)
def test_slices_convert_like_the_whole(case: TypeCase, cut: tuple[int, int | None]) -> None:
    whole = to_spark_batch(_batch(case.array), pa.schema([("c", case.arrow)]))
    piece = to_spark_batch(_batch(case.array.slice(*cut)), pa.schema([("c", case.arrow)]))
    piece.validate(full=True)
    assert piece.column(0).equals(whole.column(0).slice(*cut))


@pytest.mark.parametrize(("name", "kind", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(name: str, kind: pa.DataType, message: str) -> None:
    nested = pa.schema([pa.field("a", pa.list_(pa.struct([pa.field(name, kind)])))])
    with pytest.raises(SchemaMismatchError, match=message) as caught:
        spark_arrow_schema(nested)
    assert caught.value.place == f"column a.element.{name}"


def test_a_value_that_does_not_fit_names_its_column() -> None:
    batch = _batch(pa.array([2**60], pa.timestamp("s")))
    with pytest.raises(SchemaMismatchError, match="does not fit Spark's timestamp") as caught:
        to_spark_batch(batch, spark_arrow_schema(batch.schema))
    assert caught.value.place == "column c"


_UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([bytes(15) + bytes([i]) for i in range(4)]).cast(pa.binary(16))
)
_PAIRS = pa.StructArray.from_arrays([_UUIDS], names=["id"])
_PLACES = pa.array([0, None, None, 4, 4], pa.int32())


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param(pa.ListArray.from_arrays(_PLACES, _UUIDS), id="list"),
        pytest.param(pa.ListArray.from_arrays(_PLACES, _PAIRS), id="list of structs"),
        pytest.param(pa.MapArray.from_arrays(_PLACES, pa.array(list("abcd")), _UUIDS), id="map"),
    ],
)
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (1, 4), (3, 4), (1, 1)])
def test_lists_without_an_item_that_may_hold_uuids(lists: pa.Array, start: int, stop: int) -> None:
    batch = pa.RecordBatch.from_arrays([lists.slice(start, stop - start)], names=["x"])
    converted = to_spark_batch(batch, spark_arrow_schema(batch.schema))
    converted.validate(full=True)
    sizes = [None if items is None else len(items) for items in lists.to_pylist()]
    found = [None if items is None else len(items) for items in converted.column(0).to_pylist()]
    assert found == sizes[start:stop]


def test_metadata_goes_and_nullability_stays() -> None:
    field = pa.field("c", pa.uint8(), nullable=False, metadata={"k": "v"})
    out = spark_arrow_schema(pa.schema([field], metadata={"pandas": "{}"}))
    assert out.equals(pa.schema([pa.field("c", pa.int16(), nullable=False)]), check_metadata=True)


def test_columns_that_need_nothing_are_not_copied() -> None:
    kept, widened = pa.array([1, 2], pa.int64()), pa.array([1, 2], pa.uint8())
    batch = pa.RecordBatch.from_arrays([kept, widened], names=["a", "b"])
    out = to_spark_batch(batch, spark_arrow_schema(batch.schema))
    assert out.column(0).buffers()[1].address == kept.buffers()[1].address
    assert out.column(1).to_pylist() == [1, 2]


def test_a_batch_of_rows_without_columns_keeps_its_count() -> None:
    rows = pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), 7, [None]))
    assert rows.num_rows == 7
    assert to_spark_batch(rows, pa.schema([])).num_rows == 7


def test_names_are_quoted_in_ddl() -> None:
    schema = pa.schema([("a.b", pa.int8()), ("c`d", pa.struct([("e f", pa.int8())]))])
    assert spark_ddl(schema) == "`a.b` TINYINT, `c``d` STRUCT<`e f`: TINYINT>"


def test_conversion_loads_no_heavy_module() -> None:
    code = """
import sys
import numpy as np
import pyarrow as pa
from accel.decode.spark_types import spark_conversion

def column(kind, numbers):
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, dtype=np.int64))])
bytes16 = pa.Array.from_buffers(pa.binary(16), 1, [None, pa.py_buffer(b"a" * 16)])
lists = pa.Array.from_buffers(pa.large_list(pa.uint64()), 1, [None, pa.py_buffer(np.array([0, 2]))],
                              children=[column(pa.uint64(), [1, 2])])
arrays = [lists, pa.ExtensionArray.from_storage(pa.uuid(), bytes16), column(pa.timestamp("ns"), [-1])]
batch = pa.RecordBatch.from_arrays(arrays, names=["a", "b", "c"])
out = spark_conversion(batch.schema)(batch)
assert out.column(2).cast(pa.int64()).to_pylist() == [-1]
heavy = ("pandas", "pyspark", "pyarrow._acero", "pyarrow._dataset", "aiohttp", "obstore", "rich")
print([name for name in heavy if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("version", "context", "refused"),
    [
        ("4.0.1", True, True),
        ("3.5.6", True, True),
        ("4.1.0", True, False),
        ("10.0.0.dev1", True, False),
        ("4.0.1", None, False),
    ],
)
def test_rows_without_columns_in_a_task(
    monkeypatch: pytest.MonkeyPatch, version: str, context: object, refused: bool
) -> None:
    """Spark before 4.1 would count none of them."""
    task = SimpleNamespace(get=lambda: context)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__=version, TaskContext=task))  # type: ignore[arg-type]
    with pytest.raises(AccelError, match="loses rows without columns") if refused else nullcontext():
        assert spark_conversion(pa.schema([])) is None
    spark_conversion(pa.schema([("a", pa.int64())]))


KINDS_OF_LONG = [
    pa.decimal128(18, 2), pa.decimal128(9, 0), pa.decimal128(5, -2), pa.decimal32(5, 1), pa.decimal64(15, 2),
    pa.decimal256(18, 2),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS_OF_LONG, ids=str)
@pytest.mark.parametrize("cut", [(0, None), (1, None), (2, 2), (1, 1), (6, 0)], ids=str)
def test_short_decimals_become_whole_numbers(kind: pa.DataType, cut: tuple[int, int | None]) -> None:
    values = [Decimal(100), None, Decimal(-700), Decimal(0), None, Decimal(300)]
    array = pa.array(values, kind).slice(*cut)
    convert = spark_conversion(_batch(array).schema, Decimals.UNSCALED)
    assert convert is not None
    found = convert(_batch(array))
    found.validate(full=True)
    assert found.schema == pa.schema([("c", pa.int64())])
    scale = max(kind.scale, 0)
    assert found.column(0).to_pylist() == [
        None if value is None else int(value.scaleb(scale)) for value in array.to_pylist()
    ]


def test_the_largest_whole_numbers_stay_and_larger_ones_are_refused() -> None:
    values = [Decimal(-999999999999999999), Decimal(999999999999999999), None]
    schema = pa.schema([("c", pa.decimal128(18, 0))])
    convert = spark_conversion(schema, Decimals.UNSCALED)
    assert convert is not None
    found = convert(pa.RecordBatch.from_arrays([pa.array(values, pa.decimal128(18, 0))], schema=schema))
    assert found.column(0).to_pylist() == [-(10**18) + 1, 10**18 - 1, None]
    # What a damaged file may hold: more than its type has digits for.
    wide = pa.array([1, 10**30, None], pa.decimal128(38, 0))
    damaged = pa.Array.from_buffers(pa.decimal128(18, 0), 3, wide.buffers())
    with pytest.raises(SchemaMismatchError, match="more than 18 digits"):
        convert(pa.RecordBatch.from_arrays([damaged], schema=schema))


def test_other_columns_are_taken_as_before() -> None:
    schema = pa.schema(
        [
            ("wide", pa.decimal128(19, 2)),
            ("in_list", pa.list_(pa.decimal128(5, 1))),
            ("small", pa.uint8()),
            ("short", pa.decimal128(5, 1)),
        ]
    )
    assert taken_schema(schema, Decimals.UNSCALED).types == [
        pa.decimal128(19, 2),
        pa.list_(pa.decimal128(5, 1)),
        pa.int16(),
        pa.int64(),
    ]
    assert taken_schema(schema) == spark_arrow_schema(schema)
