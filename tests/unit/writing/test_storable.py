from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.writing import write_table
from accel.writing.table_writer import storable
from tests.unit.writing.test_embedding import page_indexes

_TEXT, _BYTES = pa.string_view(), pa.binary_view()
_CODED = pa.dictionary(pa.uint32(), _TEXT)
_FIELD = pa.field("y", _TEXT, nullable=False, metadata={"k": "v"})
_TYPES: list[tuple[pa.DataType, pa.DataType]] = [
    (pa.string(), pa.string()),
    (pa.list_view(pa.int64()), pa.list_view(pa.int64())),
    (_TEXT, pa.large_string()),
    (_BYTES, pa.large_binary()),
    (pa.struct([("x", _BYTES), _FIELD]), pa.struct([("x", pa.large_binary()), _FIELD.with_type(pa.large_string())])),
    (pa.list_(_FIELD), pa.list_(_FIELD.with_type(pa.large_string()))),
    (pa.large_list(pa.list_(_TEXT, 2)), pa.large_list(pa.list_(pa.large_string(), 2))),
    (pa.map_(_TEXT, _BYTES, keys_sorted=True), pa.map_(pa.large_string(), pa.large_binary(), keys_sorted=True)),
    (_CODED, pa.dictionary(pa.uint32(), pa.large_string())),
    (pa.dictionary(pa.int8(), _TEXT, ordered=True), pa.dictionary(pa.int8(), pa.large_string(), ordered=True)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), _TYPES, ids=[str(kind) for kind, _ in _TYPES])
def test_views_at_any_depth(kind: pa.DataType, expected: pa.DataType) -> None:
    field = pa.field("c", kind, metadata={"f": "g"})
    table = pa.schema([field, pa.field("n", pa.int64())], metadata={"a": "b"}).empty_table()
    found = storable(table).schema
    assert found.equals(
        pa.schema([field.with_type(expected), table.field(1)], metadata={"a": "b"}), check_metadata=True
    )


def _coded(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    plain = pa.array(texts).dictionary_encode()
    indices, values = plain.indices.cast(kind.index_type), plain.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)


_TEXTS = ["b", None, "a", "ccccccccccccccccc"]
_COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(_TEXTS, _TEXT),
    "binary": pa.array([b"\xff", None, b"", b"c" * 20], _BYTES),
    "list": pa.array([["b", None], None, [], ["c" * 20]], pa.list_(_TEXT)),
    "map": pa.array([[("b", "c")], None, [], [("c" * 20, None)]], pa.map_(_TEXT, _TEXT)),
}


@pytest.mark.parametrize("name", _COLUMNS)
def test_what_is_read_back_is_what_pyarrow_alone_would_give(tmp_path: Path, name: str) -> None:
    column = pa.chunked_array([_COLUMNS[name][1:], _COLUMNS[name]])
    table = pa.table({"x": column, "n": range(7)}).replace_schema_metadata({"owner": "somebody"})
    alone = io.BytesIO()
    pq.write_table(table, alone)
    path = tmp_path / "a.parquet"
    write_table(table, path)
    assert pq.read_schema(path).equals(pq.read_schema(alone), check_metadata=True)
    assert pq.read_table(path).equals(pq.read_table(alone))
    assert pq.ParquetFile(path).schema == pq.ParquetFile(alone).schema
    write_table(table, path, sort_by=[("n", "descending")])
    assert pq.read_table(path).column("x").to_pylist() == column.to_pylist()[::-1]
    assert pq.read_schema(path) == pq.read_schema(alone)


@pytest.mark.parametrize(
    "keywords", [{}, {"sort_by": "x"}, {"blooms": "x"}], ids=["plain", "sorted", "blooms"]
)
@pytest.mark.parametrize("kind", [_CODED, pa.dictionary(pa.uint8(), _TEXT, ordered=True)], ids=str)
def test_dictionaries_of_views(tmp_path: Path, kind: pa.DataType, keywords: dict[str, Any]) -> None:
    write_table(pa.table({"x": _coded(_TEXTS, kind)}), tmp_path / "a.parquet", **keywords)
    found = pq.read_table(tmp_path / "a.parquet").column("x")
    assert found.type == pa.dictionary(kind.index_type, pa.string(), kind.ordered)
    expected = ["a", "b", "ccccccccccccccccc", None] if "sort_by" in keywords else _TEXTS
    assert found.to_pylist() == expected


def test_views_in_structs_of_many_rows(tmp_path: Path) -> None:
    rows = [None if i % 3 == 0 else {"x": f"{i:030}"} for i in range(5000)]
    table = pa.table({"s": pa.array(rows, pa.struct([("x", _TEXT)]))})
    write_table(table, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(table)
    write_table(
        table.append_column("n", pa.array(range(5000))), tmp_path / "a.parquet", sort_by=[("n", "descending")]
    )
    assert pq.read_table(tmp_path / "a.parquet").column("s").to_pylist() == rows[::-1]


_WORD = pa.dictionary(pa.int8(), pa.string())
_STRUCT = pa.struct([("x", _WORD)])
_REQUIRED = pa.struct([pa.field("y", _STRUCT, nullable=False)])
_OF_REQUIRED = pa.struct([pa.field("x", _WORD, nullable=False)])
_IN_NULLS: dict[str, tuple[pa.DataType, list[Any], int]] = {
    "struct": (_STRUCT, [{"x": "b"}, None, {"x": None}, None], 3),
    "binary": (
        pa.struct([("x", pa.dictionary(pa.uint32(), pa.binary()))]),
        [{"x": b"b"}, None, {"x": None}, None],
        3,
    ),
    "struct of structs": (_REQUIRED, [{"y": {"x": "b"}}, None], 1),
    "struct that is never there": (_OF_REQUIRED, [None, None], 2),
    "list of structs that are never there": (pa.list_(_OF_REQUIRED), [[None, None], [], None], 4),
    "list of structs": (pa.list_(_STRUCT), [[{"x": "b"}, None], [], None, [{"x": None}]], 4),
    "struct of lists": (
        pa.struct([("x", pa.list_(_WORD))]),
        [{"x": ["b", None]}, None, {"x": []}, {"x": None}],
        4,
    ),
}


@pytest.mark.parametrize("name", _IN_NULLS)
def test_dictionaries_in_structs_count_the_nulls_of_these(tmp_path: Path, name: str) -> None:
    to, rows, nulls = _IN_NULLS[name]
    table, path, alone = pa.table({"c": pa.array(rows, to)}), tmp_path / "a.parquet", io.BytesIO()
    write_table(table, path)
    assert pq.read_metadata(path).row_group(0).column(0).statistics.null_count == nulls
    assert page_indexes(path)[0, 0][3][2] == [nulls]
    pq.write_table(table, alone)
    assert pq.read_schema(path).equals(pq.read_schema(alone), check_metadata=True)
    assert pq.read_table(path).column("c").to_pylist() == rows


def test_dictionaries_of_views_in_structs(tmp_path: Path) -> None:
    """As Polars has categories."""
    nulls = pa.array([False, False, True, False])
    column = pa.StructArray.from_arrays([_coded(_TEXTS, _CODED)], ["x"], mask=nulls)
    write_table(pa.table({"c": column, "n": range(4)}), tmp_path / "a.parquet", sort_by=[("n", "descending")])
    found = pq.read_table(tmp_path / "a.parquet").column("c")
    assert found.type == pa.struct([("x", pa.dictionary(pa.uint32(), pa.string()))])
    assert found.to_pylist() == [{"x": "ccccccccccccccccc"}, None, {"x": None}, {"x": "b"}]
    assert page_indexes(tmp_path / "a.parquet")[0, 0][3][2] == [2]


def test_other_readers_find_the_nulls_of_dictionaries_in_structs(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = [None, {"x": "b"}] * 3
    write_table(pa.table({"c": pa.array(rows, _STRUCT)}), tmp_path / "a.parquet")
    asked = f"SELECT count(*) FROM '{tmp_path / 'a.parquet'}' WHERE c.x IS NULL"
    assert duckdb.sql(asked).fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (pa.field("c", _STRUCT, nullable=False), _STRUCT),
        (pa.field("c", pa.list_(_WORD)), pa.list_(_WORD)),
        (pa.field("c", _STRUCT), pa.struct([("x", pa.large_string())])),
        (pa.field("c", pa.struct([("x", _CODED)])), pa.struct([("x", pa.large_string())])),
        (
            pa.field("c", pa.struct([("x", pa.dictionary(pa.int8(), pa.int64()))])),
            pa.struct([("x", pa.dictionary(pa.int8(), pa.int64()))]),
        ),
    ],
    ids=["required struct", "list", "struct", "views", "numbers"],
)
def test_which_dictionaries_are_decoded(field: pa.Field, expected: pa.DataType) -> None:
    table = pa.Table.from_arrays([pa.nulls(0, field.type)], schema=pa.schema([field]))
    assert storable(table).schema == pa.schema([field.with_type(expected)])


def test_a_dictionary_with_an_entry_for_null(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), ["b", None, "a"])
    write_table(pa.table({"x": column}), tmp_path / "a.parquet", sort_by="x")
    found = pq.read_table(tmp_path / "a.parquet").column("x")
    assert (found.type, found.to_pylist()) == (_WORD, ["a", "b", None, None])


def test_options_that_the_schema_depends_on(tmp_path: Path) -> None:
    table = pa.table({"a b": pa.array(["x"], _TEXT)}).replace_schema_metadata({"owner": "somebody"})
    write_table(table, tmp_path / "a.parquet", store_schema=False)
    assert pq.read_metadata(tmp_path / "a.parquet").metadata == {}
    assert pq.read_schema(tmp_path / "a.parquet") == pa.schema([("a b", pa.string())])
    write_table(table, tmp_path / "a.parquet", flavor="spark")
    assert pq.read_table(tmp_path / "a.parquet").schema == pa.schema([("a_b", _TEXT)])
