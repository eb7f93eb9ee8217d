"""Types of Hive and of Spark, partition values, locations, and columns found without regard to case."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.errors import TableFormatError
from accel.predicate.parser import parse
from accel.scanning.file_source import FileSource
from accel.tables.formats.hive.columns import TableColumns, hive_type, spark_fields
from accel.tables.formats.hive.described import file_location
from accel.tables.formats.hive.partition_values import (
    about_keys,
    partition_arrays,
    ruled_in,
    texts_of,
    texts_of_names,
)
from accel.testing import DictStore, write_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", pa.int32()),
        ("BIGINT", pa.int64()),
        ("double precision", pa.float64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(38, 5)", pa.decimal128(38, 5)),
        ("varchar(20)", pa.string()),
        ("array<int>", pa.list_(pa.int32())),
        ("map<string,array<date>>", pa.map_(pa.string(), pa.list_(pa.date32()))),
        (
            "struct<a:int,`b:c``d`:struct<x y:string>>",
            pa.struct([("a", pa.int32()), ("b:c`d", pa.struct([("x y", pa.string())]))]),
        ),
    ],
)
def test_types_of_hive(text: str, expected: pa.DataType) -> None:
    assert hive_type(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no type"),
        ("array<int", "is no type"),
        ("array<>", "is no type"),
        ("struct<a>", "is no type"),
        ("int>", "is no type"),
        ("map<int>", "is no type"),
        ("struct<a:int,A:int>", "the name 'a', case aside"),
        ("char(3)", r"'char\(3\)'"),
        ("uniontype<int>", "'uniontype'"),
        ("decimal(0)", "decimal"),
        ("array<" * 70 + "int" + ">" * 70, "nested more than"),
        ("struct<" * 100_000, "is no type|nested"),
    ],
)
def test_types_that_are_none(text: str, message: str) -> None:
    with pytest.raises(TableFormatError, match=message):
        hive_type(text)


def spark_json(*fields: tuple[str, Any]) -> str:
    made = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return json.dumps({"type": "struct", "fields": made})


def test_the_schema_of_spark_wins() -> None:
    nested = {
        "type": "array",
        "elementType": json.loads(spark_json(("InnerA", "decimal(5,2)"), ("n", "timestamp_ntz"))),
        "containsNull": True,
    }
    text = spark_json(("Day", "date"), ("UserId", "long"), ("S", nested))
    cut = {f"spark.sql.sources.schema.part.{at}": text[at * 50 : at * 50 + 50] for at in range(20)}
    for parameters in (
        {"spark.sql.sources.schema": text},
        {"spark.sql.sources.schema.numParts": "20", **cut},
    ):
        found = TableColumns.of([("userid", "bigint"), ("s", "x")], [("day", "date")], parameters)
        inner = pa.list_(pa.struct([("InnerA", pa.decimal128(5, 2)), ("n", pa.timestamp("us"))]))
        assert found.schema == pa.schema([("UserId", pa.int64()), ("S", inner), ("Day", pa.date32())])
        assert found.keys == {"day": "Day"}
    assert spark_fields({}) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '"x"', '{"type":"struct"}', '{"type":"struct","fields":[{"name":1,"type":"int"}]}',
     spark_json(("a", "interval")), spark_json(("a", {"type": "udt"})), spark_json(("a", "int"), ("A", "int")),
     "[" * 100_000],
)  # fmt: skip
def test_a_schema_of_spark_that_is_none(text: str) -> None:
    with pytest.raises(TableFormatError):
        spark_fields({"spark.sql.sources.schema": text})


def test_a_partition_column_that_spark_has_not() -> None:
    with pytest.raises(TableFormatError, match=r"\['k'\] are not in the schema"):
        TableColumns.of([], [("k", "int")], {"spark.sql.sources.schema": spark_json(("a", "long"))})


# -- partition values --------------------------------------------------------------------------------


def test_partition_values_have_the_types_of_their_columns() -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    schema = pa.schema([
        ("I", pa.int8()), ("s", pa.string()), ("d", pa.date32()), ("b", pa.bool_()), ("f", pa.float64()),
        ("m", pa.decimal128(5, 2)),
    ])  # fmt: skip
    keys = {name.lower(): name for name in schema.names}
    values = [["-7", "eu/x", "2024-02-29", "TRUE", "-Infinity", "1.5"], [null] * 6]
    found = partition_arrays(texts_of(values, len(keys)), keys, schema)
    assert {name: array.to_pylist() for name, array in found.items()} == {
        "I": [-7, None],
        "s": ["eu/x", None],
        "d": [datetime.date(2024, 2, 29), None],
        "b": [True, None],
        "f": [float("-inf"), None],
        "m": [decimal.Decimal("1.50"), None],
    }


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["300"], pa.int8()), (["x"], pa.int32()), (["2024-02-30"], pa.date32()), ([], pa.int32()),
        (["1", "2"], pa.int32()), (["2024-01-01 00:00:00"], pa.timestamp("us", "UTC")), ([None], pa.string()),
    ],
)  # fmt: skip
def test_partition_values_that_are_none(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(TableFormatError, match="partition"):
        partition_arrays(texts_of([values], 1), {"k": "k"}, pa.schema([("k", kind)]))


def test_names_of_partitions_spell_their_values() -> None:
    names = ["day=2024-01-01/r=eu%2Fx", "day=2024-01-02/r=a%3Db", "day=2024-01-01/r="]
    found = texts_of_names(names, ["day", "r"])
    assert found is not None
    assert [one.to_pylist() for one in found] == [
        ["2024-01-01", "2024-01-02", "2024-01-01"],
        ["eu/x", "a=b", ""],
    ]
    assert texts_of_names(names, ["r", "day"]) is None
    assert texts_of_names(["day=1"], ["day", "r"]) is None
    assert texts_of_names(["r=%FF"], ["r"]) is None


def test_partitions_are_ruled_out_by_what_names_them_alone() -> None:
    values = {"k": pa.array([1, 2, None]), "p": pa.array(["a", None, "b"])}
    keys = {"k": "k", "p": "p"}
    for text, expected in (
        ("k = 1", [True, False, False]),
        ("k = 1 AND x = 5", [True, False, False]),
        ("k = 1 OR x = 5", [True, True, True]),
        ("p LIKE 'b%' OR k = 2", [False, True, True]),
        ("k IS NULL", [False, False, True]),
        ("x = 5", [True, True, True]),
        ("k = 'text'", [True, True, True]),
    ):
        assert ruled_in(about_keys(parse(text), keys), values, 3).tolist() == expected, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:/a/b%2Fc", "/a/b%2Fc"), ("file:///a", "/a"), ("file://localhost/a b", "/a b"), ("/a", "/a"),
        ("s3a://bucket/k=eu%2Fx", "s3a://bucket/k=eu%2Fx"), ("hdfs://n:8020/x", "hdfs://n:8020/x"),
    ],
)  # fmt: skip
def test_locations_are_paths_of_hadoop(text: str, expected: str) -> None:
    assert file_location(text) == expected


@pytest.mark.parametrize("text", [None, "", "relative/x", "../x"])
def test_locations_that_are_none(text: str | None) -> None:
    with pytest.raises(TableFormatError):
        file_location(text)


# -- case --------------------------------------------------------------------------------------------


class Caseless(FileSource):
    def __init__(self, columns: TableColumns) -> None:
        self._columns = columns

    async def schema(self, request: Any) -> pa.Schema:
        return self._columns.schema

    async def blocks(self, request: Any) -> Any:
        yield request.block(["a.parquet", "b.parquet"], columns=self._columns.in_files)


def test_columns_are_found_whatever_their_case() -> None:
    columns = TableColumns.of(
        [("id", "bigint"), ("m", "map<string,struct<x:int>>"), ("l", "array<struct<yy:int>>")], [], {}
    )
    deep = pa.struct([("X", pa.int32())])
    one = pa.table({
        "ID": pa.array([1], pa.int64()),
        "M": pa.array([[("k", {"X": 5})]], pa.map_(pa.string(), deep)),
        "L": pa.array([[{"YY": 6}]], pa.list_(pa.struct([("YY", pa.int32())]))),
        "Unknown": ["x"],
    })  # fmt: skip
    other = pa.table(
        {"l": pa.array([None], pa.list_(pa.struct([("yY", pa.int32())]))), "Id": pa.array([2], pa.int32())}
    )
    store = DictStore({"a.parquet": write_file(one), "b.parquet": write_file(other)})
    found = accel.scan(Caseless(columns), store=store, cache=None).to_table().to_pylist()
    assert found == [{"id": 1, "m": [("k", {"x": 5})], "l": [{"yy": 6}]}, {"id": 2, "m": None, "l": None}]
    plan = pickle.loads(pickle.dumps(accel.plan(Caseless(columns), "id = 1", store=store, cache=None)))
    assert accel.scan(plan, store=store, cache=None).to_table()["l"].to_pylist() == [[{"yy": 6}]]
    assert not pickle.loads(pickle.dumps(columns.in_files)).case_sensitive
