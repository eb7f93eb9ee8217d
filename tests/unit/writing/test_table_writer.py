from __future__ import annotations

import io
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
from accel.testing import DictStore
from accel.writing import write_table
from accel.writing.table_writer import bloom_options
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
        write_table(sample(), "a.parquet", store=DictStore({}))
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


@pytest.mark.parametrize("value", [1e3, True, "7", None])
@pytest.mark.parametrize("name", ["page_rows", "row_group_size"])
def test_rows_are_counted_by_whole_numbers(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a whole number of rows, not {value!r}$"):
        write_table(sample(3), tmp_path / "a.parquet", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^{name} is a number of rows above 0 and below 2\*\*63, not 0$"):
        write_table(sample(3), tmp_path / "a.parquet", **{name: 0})  # type: ignore[arg-type]
    write_table(sample(3), tmp_path / "a.parquet", **{name: np.int64(2)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, 2.5, 1.5], pa.float16()),
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
