"""Other libraries read a Scan: DuckDB, Polars, pandas and pyarrow, through the Arrow stream interface."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, write_file
from tests.support.arrow import same
from tests.support.sample_table import everything

PATH = "t.parquet"
COLUMNS = ["i32", "i64", "f64", "s", "d", "ts", "dec", "st", "li"]


@pytest.fixture(scope="module")
def data() -> bytes:
    return write_file(everything().select(COLUMNS), Layout(group_rows=2000, page_rows=250))


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


@pytest.fixture(scope="module")
def full(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def scan_of(store: RecordingStore, where: str | None = None, **keywords: object) -> accel.Scan:
    return accel.scan(PATH, where, store=store, cache=accel.Cache(), **keywords)  # type: ignore[arg-type]


def test_duckdb_takes_a_scan_by_its_variable_name(store: RecordingStore, full: pa.Table) -> None:
    scan = scan_of(store, "i32 < 3000")
    with duckdb.connect() as database:
        total = database.sql("select count(*), min(i32), max(i32) from scan").fetchall()[0]
        assert total == (3000, 0, 2999)
        # A scan is asked anew by each query.
        rows = database.sql("select i32, s from scan where i32 in (77, 2500) order by i32").fetchall()
    values = full.column("s").to_pylist()
    assert rows == [(77, values[77]), (2500, values[2500])]
    assert store.in_flight == 0
    del scan


def test_duckdb_joins_two_scans(store: RecordingStore) -> None:
    left = scan_of(store, "i32 < 50", columns=["i32"])
    right = scan_of(store, "i32 >= 40 AND i32 < 100", columns=["i32"])
    with duckdb.connect() as database:
        database.register("a", left)
        database.register("b", right)
        assert database.sql("select count(*) from a join b using (i32)").fetchall() == [(10,)]


def test_polars_takes_a_scan(store: RecordingStore, full: pa.Table) -> None:
    scan = scan_of(store, "i32 >= 4000")
    # Of a stream that is not pyarrow's own, polars.from_arrow makes one Series of structs.
    series = polars.from_arrow(scan)
    assert isinstance(series, polars.Series)
    for frame in (polars.DataFrame(scan), polars.from_arrow(scan.to_reader()), series.struct.unnest()):
        assert isinstance(frame, polars.DataFrame)
        assert frame.shape == (1000, len(COLUMNS))
        assert frame["i32"].to_list() == list(range(4000, 5000))
        assert frame["s"].to_list() == full.column("s").to_pylist()[4000:]


def test_pandas_is_told_to_ask_the_scan(store: RecordingStore) -> None:
    """It would make a frame of batches."""
    scan = scan_of(store, "i32 < 10", columns=["i32"])
    with pytest.raises(TypeError, match="to_pandas"):
        pandas.DataFrame(scan)
    assert scan.to_pandas().shape == (10, 1)


def test_pyarrow_takes_a_scan(store: RecordingStore, full: pa.Table) -> None:
    table = pa.table(scan_of(store))
    assert table.schema == full.schema
    for name in COLUMNS:
        assert same(table.column(name), full.column(name)), name
    reader = pa.RecordBatchReader.from_stream(scan_of(store, "i32 < 10"))
    assert reader.read_all().column("i32").to_pylist() == list(range(10))
    assert pa.schema(scan_of(store)) == full.schema


def test_an_empty_result_keeps_its_schema_everywhere(store: RecordingStore, full: pa.Table) -> None:
    scan = scan_of(store, "i32 < 0")
    assert pa.table(scan).schema == full.schema
    assert polars.DataFrame(scan).shape == (0, len(COLUMNS))
    with duckdb.connect() as database:
        assert database.sql("select count(*) from scan").fetchall() == [(0,)]


def test_a_reader_that_is_dropped_midway_leaves_nothing(store: RecordingStore) -> None:
    options = accel.Options(batch_rows=100, max_gap_bytes=0, tail_hint=1000, piece_bytes=1000)
    scan = scan_of(store, options=options)
    reader = scan.to_reader()
    first = reader.read_next_batch()
    assert first.column(0).to_pylist() == list(range(100))
    reader.close()
    scan.close()
    assert store.in_flight == 0


def test_an_error_midway_reaches_the_consumer(data: bytes) -> None:
    """Neither DuckDB nor pyarrow may take a failed scan for a short one."""
    inner = DictStore({PATH: data})
    store = RecordingStore(inner)
    options = accel.Options(
        batch_rows=100, max_gap_bytes=0, tail_hint=1000, piece_bytes=1000, max_tasks_in_flight=1
    )
    scan = scan_of(store, options=options)
    reader = scan.to_reader()
    reader.read_next_batch()
    inner.delete(PATH)
    with pytest.raises((accel.AccelError, OSError), match="t.parquet"):
        reader.read_all()
    with duckdb.connect() as database, pytest.raises((duckdb.Error, accel.AccelError), match="t.parquet"):
        broken = scan_of(store)
        database.sql("select count(*) from broken").fetchall()[0]
        del broken


@pytest.mark.parametrize("columns", [None, ["n"], ["c", "key"]])
def test_pandas_gets_back_what_it_wrote(tmp_path: Path, columns: list[str] | None) -> None:
    """By what it noted in the schema's metadata: an index, and types that Arrow has not."""
    days = pandas.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("Europe/Oslo")
    frame = pandas.DataFrame(
        {"n": pandas.array([2**53 + 1, None], "Int64"), "c": pandas.Categorical(["a", "b"]), "t": days},
        index=pandas.Index([5, 6], name="key"),
    )
    path = tmp_path / "f.parquet"
    frame.to_parquet(path)
    found = accel.scan(path, columns=columns).to_table().to_pandas()
    pandas.testing.assert_frame_equal(found, pq.read_table(path, columns=columns).to_pandas())
    some = accel.scan(path, "n IS NULL").to_table().to_pandas()
    pandas.testing.assert_frame_equal(some, frame.iloc[1:])


@pytest.mark.parametrize("given", [False, True], ids=["of the first file", "given"])
def test_columns_that_some_files_lack_or_do_not_require_may_be_null(tmp_path: Path, given: bool) -> None:
    def required(kind: pa.DataType, name: str) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    first = pa.schema(
        [
            required(pa.int64(), "id"),
            required(pa.struct([required(pa.string(), "name")]), "who"),
            required(pa.list_(required(pa.int8(), "element")), "marks"),
        ]
    )
    rows: list[dict[str, object]] = [
        {"id": 1, "who": {"name": "a"}, "marks": [1]},
        {"id": 2, "who": {"name": None}, "marks": [None, 2]},
        {"id": 3, "who": None, "marks": None},
        {"id": 4, "who": None, "marks": None},
    ]
    loose = pa.schema(
        [("id", pa.int64()), ("who", pa.struct([("name", pa.string())])), ("marks", pa.list_(pa.int8()))]
    )
    for at, table in enumerate(
        [
            pa.Table.from_pylist(rows[:1], first),
            pa.Table.from_pylist(rows[1:3], loose),
            pa.table({"id": [4]}),
        ]
    ):
        pq.write_table(table, tmp_path / f"{at}.parquet")
    scan = accel.scan(tmp_path, schema=first if given else None)
    found = scan.to_table()
    found.validate(full=True)
    assert found.to_pylist() == rows
    assert all(field.nullable for field in found.schema)
    assert (
        found.schema.field("who").type[0].nullable,
        found.schema.field("marks").type.value_field.nullable,
    ) == (
        True,
        True,
    )
    pq.write_table(found, io.BytesIO())
    assert polars.DataFrame(scan).to_dicts() == rows
    # One file alone is as it is.
    alone = accel.scan(tmp_path / "0.parquet").to_table()
    assert (alone.schema, alone.to_pylist()) == (first, rows[:1])
