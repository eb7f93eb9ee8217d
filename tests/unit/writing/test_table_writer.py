from __future__ import annotations

import datetime
import io
import itertools
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from accel.errors import StoreError
from accel.testing import DictStore, RecordingStore
from accel.writing import write_table
from accel.writing.table_writer import bloom_options, storable
from tests.unit.writing.files import ROWS, metadata_of, read_all, sample
from tests.unit.writing.test_embedding import page_indexes


def test_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": pa.array(range(25_000)), "s": ["x" * 100] * 25_000})
    report = write_table(table, path)
    assert read_all(path).equals(table)
    assert list(tmp_path.iterdir()) == [path]
    assert (report.rows, report.written, report.size_after) == (25_000, True, path.stat().st_size)
    assert (report.path, report.indexes, report.page_indexes_added) == (str(path), (), 0)
    found = page_indexes(path)
    assert found[0, 0][2] == [0, 10_000, 20_000]
    assert all(len(bounds) == 4 for *_, bounds in found.values())
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_pages_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": pa.array(range(5000)), "s": [f"{i:0400d}" for i in range(5000)]})
    write_table(table, path, page_rows=500, row_group_size=2000, use_dictionary=False)
    found = page_indexes(path)
    assert {at[0] for at in found} == {0, 1, 2}
    assert found[0, 0][2] == [0, 500, 1000, 1500]
    wide = tmp_path / "b.parquet"
    write_table(table, wide, use_dictionary=False)
    firsts = page_indexes(wide)[0, 1][2]
    assert len(firsts) >= 5000 * 400 // (300 * 1024)


def test_sorted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": [3, None, 1, 2, 1], "b": ["p", "q", "r", "s", "t"]})
    write_table(table, path, sort_by=["a", ("b", "descending")])
    assert read_all(path).to_pydict() == {"a": [1, 1, 2, 3, None], "b": ["t", "r", "s", "p", "q"]}
    keys = pq.read_metadata(path).row_group(0).sorting_columns
    assert [(k.column_index, k.descending, k.nulls_first) for k in keys] == [
        (0, False, False),
        (1, True, False),
    ]


def test_blooms_are_sized_by_the_data(tmp_path: Path) -> None:
    table = pa.table({"few": [f"v{i % 10}" for i in range(20_000)], "many": pa.array(range(20_000))})
    path = tmp_path / "a.parquet"
    write_table(table, path, blooms=["few", "many"], row_group_size=10_000)
    lengths = metadata_of(path).chunks.bloom_length
    assert (lengths[:, 0] < 200).all()
    assert ((lengths[:, 1] > 10_000) & (lengths[:, 1] < 40_000)).all()
    write_table(table, path, blooms={"many": 0.2}, row_group_size=10_000)
    fewer = metadata_of(path).chunks.bloom_length
    assert (fewer[:, 1] < lengths[:, 1]).all()
    assert (metadata_of(path).chunks.bloom_offset[:, 0] == -1).all()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        pytest.param({"blooms": ["flag"]}, "'flag' is of type bool", id="bloom of a boolean"),
        pytest.param({"blooms": ["tags"]}, "which can have no bloom filter", id="bloom of a list"),
        pytest.param({"blooms": ["nope"]}, "blooms: no column 'nope'", id="bloom of nothing"),
        pytest.param({"blooms": {"id": 1.0}}, "not a chance", id="bloom chance"),
        pytest.param({"blooms": {"id": "x"}}, "'x' is not a chance", id="bloom chance of text"),
        pytest.param({"sort_by": "nope"}, "sort_by: no column 'nope'", id="sort by nothing"),
        pytest.param(
            {"sort_by": "idd"}, r"sort_by: no column 'idd' \(did you mean 'id'", id="sort by a misspelt one"
        ),
        pytest.param({"sort_by": [("id", "up")]}, "neither ascending nor descending", id="sort direction"),
        pytest.param({"page_rows": 0}, "page_rows", id="no rows a page"),
        pytest.param(
            {"row_group_size": 0}, "row_group_size is a number of rows above 0", id="no rows a group"
        ),
        pytest.param({"indexes": {"id": "nope"}}, "no index kind 'nope'", id="index kind"),
        *(
            pytest.param(
                {name: count},
                rf"{name} is a number of rows above 0 and below 2\*\*63, not {count}",
                id=f"{name} {count}",
            )
            for name in ("max_rows_per_page", "write_batch_size", "page_rows")
            for count in (0, -1, 1 << 63)
        ),
        pytest.param({"compression": "nope"}, "cannot write this table: .* nope", id="compression"),
        pytest.param(
            {"column_encoding": {"id": "RLE"}, "use_dictionary": False},
            "cannot write this table: RLE only supports BOOLEAN",
            id="encoding",
        ),
    ],
)
def test_mistakes_leave_what_was_there(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=message):
        write_table(sample(), path, **keywords)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        *(
            ({"sort_by": given}, "sort_by is a column, or a list")
            for given in (5, [5], b"id", {"id": "descending"})
        ),
        *(
            ({"sort_by": [given]}, "sort_by is a column, or a list")
            for given in (("id",), ("id", "ascending", 1))
        ),
        *(({"blooms": given}, "blooms is a list of columns") for given in (5, [5], b"id")),
    ],
    ids=str,
)
def test_columns_are_named_by_text(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        write_table(sample(3), tmp_path / "a.parquet", **keywords)
    assert list(tmp_path.iterdir()) == []


def test_pyarrows_own_keywords_win(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_table(sample(), path, compression="snappy", data_page_version="2.0", write_statistics=["id"])
    column = pq.read_metadata(path).row_group(0).column(0)
    assert column.compression == "SNAPPY"
    with pytest.raises(TypeError, match=r"^pyarrow\.parquet\.ParquetWriter got .* 'no_such_keyword'"):
        write_table(sample(), path, no_such_keyword=1)
    assert read_all(path).equals(sample())


def test_into_a_store() -> None:
    store = MemoryStore()
    report = write_table(sample(), "x/a.parquet", store=store)
    data = bytes(obstore.get(store, "x/a.parquet").bytes())
    assert (len(data), report.rows) == (report.size_after, ROWS)
    assert pq.read_table(io.BytesIO(data)).equals(sample())


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written to"):
        write_table(sample(), "a.parquet", store=RecordingStore(DictStore({})))
    with pytest.raises(StoreError, match="directory"):
        write_table(sample(), str(tmp_path) + "/")
    with pytest.raises(StoreError, match="cannot be written to"):
        write_table(sample(), "http://127.0.0.1:9/a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = sample(3).slice(0, 0)
    write_table(table, path, sort_by="id", blooms=["id"])
    assert read_all(path).equals(table)


def test_a_data_frame_is_written_too(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "a.parquet"
    frame = polars.DataFrame({"a": [2, 1, 3], "s": ["x", None, "w"], "l": [["y"], [], [None]]})
    frame = frame.with_columns(
        c=polars.col("s").cast(polars.Categorical), e=polars.col("s").cast(polars.Enum(["x", "w"]))
    )
    for key, order in (
        (None, [0, 1, 2]),
        ("a", [1, 0, 2]),
        ("s", [2, 0, 1]),
        ("c", [2, 0, 1]),
        ("e", [2, 0, 1]),
    ):
        write_table(frame, path, sort_by=key, blooms=["a", "s", "c", "e"])
        assert polars.read_parquet(path).equals(frame[order])
        assert polars.read_parquet(path).dtypes == frame.dtypes
        assert [read_all(path).column(name).to_pylist() for name in "asce"] == [
            frame[order][name].to_list() for name in "asce"
        ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # The pages by default are what None asks for.
        *itertools.product(["page_rows", "row_group_size"], [1e3, True, "7"]),
        ("row_group_size", None),
    ],
)
def test_rows_are_counted_by_whole_numbers(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a whole number of rows, not {value!r}$"):
        write_table(sample(3), tmp_path / "a.parquet", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^{name} is a number of rows above 0 and below 2\*\*63, not 0$"):
        write_table(sample(3), tmp_path / "a.parquet", **{name: 0})  # type: ignore[arg-type]
    write_table(sample(3), tmp_path / "a.parquet", **{name: np.int64(2)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, 2.5, 1.5], pa.float32()).cast(pa.float16()),
        pa.array([Decimal(1), Decimal(2), Decimal(1)], pa.decimal64(15, 2)),
        pa.array([uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=1)], pa.uuid()),
        pa.array([Decimal(1), Decimal(2), Decimal(1)], pa.decimal128(15, 2)).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_blooms_of_what_pyarrow_does_not_count(column: pa.Array) -> None:
    found = bloom_options(pa.table({"x": column}), {"x": 0.5}, row_group_size=3)
    assert found == {"x": {"ndv": 2, "fpp": 0.5}}


def test_blooms_count_the_rows_as_they_are_sorted(tmp_path: Path) -> None:
    """Unsorted, every row group has every value."""
    table = pa.table({"x": [i % 4000 for i in range(8000)]})
    write_table(table, tmp_path / "a.parquet", sort_by="x", blooms="x", row_group_size=4000)
    sorted_blooms = metadata_of(tmp_path / "a.parquet").chunks.bloom_length
    write_table(table, tmp_path / "a.parquet", blooms="x", row_group_size=4000)
    assert (sorted_blooms < metadata_of(tmp_path / "a.parquet").chunks.bloom_length).all()


def test_a_type_that_pyarrow_does_not_write(tmp_path: Path) -> None:
    column = pa.RunEndEncodedArray.from_arrays([2], [1])
    with pytest.raises(ValueError, match=r"^pyarrow cannot write this table: .*run_end_encoded"):
        write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [{"a": [1]}, "a.parquet"], ids=["dict", "arguments swapped"])
def test_what_is_no_table_is_refused(data: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"the pyarrow.Table to write, not a {type(data).__name__}"):
        write_table(data, tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


def test_a_stream_of_one_array_is_no_table(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="a Series is no Arrow stream of a table"):
        write_table(polars.Series([1]), tmp_path / "a.parquet")


_DAYS = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
_DECIMALS = [Decimal("-1.50"), Decimal("0.25"), Decimal("7.00")]
_WORDS = ["B", "a", "é"]
_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "decimal32": (pa.decimal32(5, 2), _DECIMALS),
    "decimal64": (pa.decimal64(15, 2), _DECIMALS),
    "decimal128": (pa.decimal128(30, 2), _DECIMALS),
    "decimal256": (pa.decimal256(50, 2), _DECIMALS),
    "float16": (pa.float16(), [-1.5, 0.25, 7.0]),
    "float32": (pa.float32(), [float("-inf"), 0.25, float("inf")]),
    "uint64": (pa.uint64(), [0, 5, 2**64 - 1]),
    "date32": (pa.date32(), _DAYS),
    "date64": (pa.date64(), _DAYS),
    "string": (pa.string(), _WORDS),
    "fixed": (pa.binary(2), [b"\x00\x00", b"\x7fa", b"\xffa"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=2**127)]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), _WORDS),
    "dictionary of numbers": (pa.dictionary(pa.int8(), pa.int64()), [-3, 4, 20]),
}


def _told(path: Path) -> list[tuple[int, bool, bool]]:
    keys = pq.read_metadata(path).row_group(0).sorting_columns
    return [(key.column_index, key.descending, key.nulls_first) for key in keys]


@pytest.mark.parametrize("keys", [["x"], ["x", ("n", "descending")]], ids=["one key", "several keys"])
@pytest.mark.parametrize("kind", _KINDS)
def test_every_type_with_an_order(tmp_path: Path, kind: str, keys: list[Any]) -> None:
    to, (low, middle, high) = _KINDS[kind]
    column = pa.chunked_array([pa.array([high, None], to), pa.array([low, high, middle], to)])
    table = pa.table({"point": [{"x": 1, "y": 2}] * 5, "n": range(5), "x": column})
    for name, direction in ("up", "ascending"), ("down", "descending"):
        path = tmp_path / name
        write_table(table, path, sort_by=[("x", direction), *keys[1:]])
        equal = [3, 0] if keys[1:] else [0, 3]
        order = [2, 4, *equal, 1] if direction == "ascending" else [*equal, 4, 2, 1]
        assert read_all(path).column("n").to_pylist() == order
        assert _told(path) == [(3, direction == "descending", False), (2, True, False)][: len(keys)]


_NAN, _INF = float("nan"), float("inf")


@pytest.mark.parametrize("to", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_nan_is_greatest_and_minus_zero_less_than_zero(
    tmp_path: Path, to: pa.DataType, *, encoded: bool
) -> None:
    column = pa.array([0.0, _NAN, -_INF, -0.0, None, 0.0, _INF, -1.0, _NAN, -0.0], to)
    table = pa.table({"n": range(10), "x": column.dictionary_encode() if encoded else column})
    for direction, order in (
        ("ascending", [2, 7, 3, 9, 0, 5, 6, 1, 8, 4]),
        ("descending", [1, 8, 6, 0, 5, 3, 9, 7, 2, 4]),
    ):
        write_table(table, tmp_path / direction, sort_by=[("x", direction), "n"])
        assert read_all(tmp_path / direction).column("n").to_pylist() == order
        assert _told(tmp_path / direction) == [(1, direction == "descending", False), (0, False, False)]


def test_a_nan_that_readers_place_differently_is_not_told(tmp_path: Path) -> None:
    """With a sign, as x86 makes of 0/0: below all numbers in total order, the greatest in SQL."""
    other = struct.unpack("<d", bytes.fromhex("000000000000f8ff"))[0]
    table = pa.table({"a": [2, 1, 1], "x": [1.0, other, 3.0], "b": [1, 2, 3]})
    write_table(table, tmp_path / "a.parquet", sort_by=["a", "x", "b"])
    assert read_all(tmp_path / "a.parquet").column("b").to_pylist() == [3, 2, 1]
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]
    write_table(table, tmp_path / "a.parquet", sort_by=["x", "a"])
    assert _told(tmp_path / "a.parquet") == []


def test_nothing_is_told_behind_moments_that_are_truncated(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1001, 1002], pa.timestamp("us")), "n": [2, 1]})
    cut: dict[str, Any] = {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
    write_table(table, tmp_path / "a.parquet", sort_by=["t", "n"], **cut)
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]
    write_table(table, tmp_path / "a.parquet", sort_by=["t", "n"])
    assert _told(tmp_path / "a.parquet") == [(0, False, False), (1, False, False)]


def test_a_column_named_as_a_field_of_another(tmp_path: Path) -> None:
    table = pa.table({"a.b": [2, 1], "a": [{"b": 3}, {"b": 4}]})
    write_table(table, tmp_path / "a.parquet", sort_by="a.b")
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([[1]]), id="list"),
        pytest.param(pa.array([{"y": 1}]), id="struct"),
        pytest.param(pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), id="map"),
    ],
)
def test_what_has_no_order(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(ValueError, match=r"^sort_by: column 'x' is of type .*, which has no order$"):
        write_table(pa.table({"x": column}), tmp_path / "a.parquet", sort_by="x")


def test_no_keys(tmp_path: Path) -> None:
    write_table(pa.table({"x": [2, 1]}), tmp_path / "a.parquet", sort_by=[])
    assert read_all(tmp_path / "a.parquet").to_pydict() == {"x": [2, 1]}
    assert _told(tmp_path / "a.parquet") == []


def test_datafusion_trusts_what_is_told(tmp_path: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    table = pa.table(
        {"x": [1.0, _NAN, 2.0, None], "d": pa.array(_DECIMALS[::-1] + [None], pa.decimal64(15, 2))}
    )
    for name, keys in ("x", [("x", "descending")]), ("d", ["d", "x"]):
        write_table(table, tmp_path / f"{name}.parquet", sort_by=keys)
        context = datafusion.SessionContext()
        context.register_parquet("t", tmp_path / f"{name}.parquet")
        order = "x DESC NULLS LAST" if name == "x" else "d NULLS LAST, x NULLS LAST"
        found = context.sql(f"SELECT {name} FROM t ORDER BY {order} LIMIT 1").to_pydict()[name]
        assert str(found) == {"x": "[nan]", "d": "[Decimal('-1.50')]"}[name]


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
