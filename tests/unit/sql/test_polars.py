"""accel.polars.scan: the rows that Polars keeps, of few columns, files and rows."""

from __future__ import annotations

import datetime as dt
import decimal
import io

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.polars
from accel.errors import AccelError
from accel.predicate.polars_expression import from_polars
from accel.testing import write_file
from accel.testing.faults import FaultStore, Status
from accel.testing.stores import DictStore, RecordingStore

ROWS = 4_000
NAN = float("nan")


def _frame() -> pl.DataFrame:
    rng = np.random.default_rng(3)

    def holes(values):
        return [None if hole else value for value, hole in zip(values, rng.random(ROWS) < 0.1, strict=True)]

    return pl.DataFrame(
        {
            "id": range(ROWS),
            "small": pl.Series(holes([i % 100 for i in range(ROWS)]), dtype=pl.Int16),
            "x": holes([[NAN, -0.0, 0.0, 1.5, float("inf"), -2.0][i % 6] for i in range(ROWS)]),
            "f": pl.Series(holes([[0.1, NAN, 2.5][i % 3] for i in range(ROWS)]), dtype=pl.Float32),
            "text": holes([f"word {i % 50}" for i in range(ROWS)]),
            "flag": holes([i % 3 == 0 for i in range(ROWS)]),
            "day": holes([dt.date(2020, 1, 1) + dt.timedelta(days=i // 100) for i in range(ROWS)]),
            "at": pl.Series(
                holes([dt.datetime(2020, 1, 1, i % 24) for i in range(ROWS)]), dtype=pl.Datetime("us", "UTC")
            ),
            "price": pl.Series(
                holes([decimal.Decimal(i % 700) / 100 for i in range(ROWS)]), dtype=pl.Decimal(9, 2)
            ),
            "kind": pl.Series(holes(["b", "a", "c"] * (ROWS // 3) + ["a"]), dtype=pl.Enum(["c", "b", "a"])),
            "cat": pl.Series(holes(["b", "a"] * (ROWS // 2)), dtype=pl.Categorical),
            "pair": [{"n": i, "t": str(i)} for i in range(ROWS)],
            "list": [[i] for i in range(ROWS)],
        }
    )


FRAME = _frame()


def _bytes(frame: pl.DataFrame) -> bytes:
    sink = io.BytesIO()
    pq.write_table(frame.to_arrow(), sink, row_group_size=250, write_page_index=True)
    return sink.getvalue()


OBJECTS = {f"t/part={n}/f.parquet": _bytes(FRAME[n * 1000 : (n + 1) * 1000]) for n in range(4)}


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore(OBJECTS))


@pytest.fixture
def lazy(store: RecordingStore) -> pl.LazyFrame:
    return accel.polars.scan("t/", store=store, cache=None)


c = pl.col
CONDITIONS = [
    c("id") == 7,
    (c("id") > 100) & (c("id") <= 120),
    c("small").is_in([1, 2, None]),
    ~c("small").is_in([1, 2]),
    c("x") > 1.0,
    c("x") >= NAN,
    c("x") == 0.0,
    ~(c("x") < 1.0),
    c("x").is_nan(),
    c("x").is_not_nan() & c("x").is_not_null(),
    c("f") == 0.1,
    c("f") < 1,
    c("text") == "word 7",
    c("text").str.starts_with("word 4"),
    c("text").str.ends_with("9") | c("text").is_null(),
    c("text").str.contains("d 1", literal=True),
    c("text").str.contains("[13]$") & (c("id") < 900),
    c("text").is_in(["word 1", "word 2"]),
    c("flag"),
    ~c("flag"),
    c("flag").is_null() | (c("id") == 3),
    c("day") == dt.date(2020, 1, 3),
    c("day").is_between(dt.date(2020, 1, 3), dt.date(2020, 1, 5), closed="left"),
    c("at") >= dt.datetime(2020, 1, 1, 20, tzinfo=dt.UTC),
    c("price") > decimal.Decimal("6.9"),
    c("price") == 1,
    c("kind") == "a",
    c("kind") > "b",
    c("cat") == "a",
    c("cat") < "b",
    c("pair").struct.field("n") == 5,
    c("list").list.len() > 3,
    c("small").eq_missing(None),
    c("small").ne_missing(5),
    c("id") < c("small"),
    c("id") * 2 == 8,
    c("id").cast(pl.Float64) > 3990.5,
    c("id") > 3990.5,
    pl.lit(True),
    c("small") == 40_000,
    (c("id") == 7) | (c("text").str.len_chars() > 100),
    ~((c("id") < 3000) & (c("text").str.len_chars() > 0)),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_the_rows_that_polars_keeps(lazy, condition, engine):
    names = ["id", "x", "kind", "pair"]
    found = lazy.filter(condition).select(names).collect(engine=engine).sort("id")
    assert found.equals(FRAME.filter(condition).select(names), null_equal=True)


def test_all_rows_types_and_partitions(lazy):
    found = lazy.collect()
    assert found.drop("part").equals(FRAME)
    assert found.drop("part").schema == FRAME.schema
    assert found["part"].unique().sort().to_list() == [0, 1, 2, 3]
    assert lazy.filter(c("part") == 2).select(pl.len()).collect().item() == 1000
    assert lazy.select(pl.len()).collect().item() == ROWS


def test_the_schema_reads_one_footer(lazy, store):
    assert lazy.collect_schema()["kind"] == FRAME.schema["kind"]
    assert len([call for call in store.calls if call.want is not None]) == 1


def test_columns_filters_and_limits_are_pushed(lazy, store):
    assert lazy.filter(c("id") == 3_333).select("text").collect().height == 1
    assert len({call.path for call in store.calls if call.received}) == 4
    store.calls.clear()
    assert lazy.head(5).select("id").collect()["id"].to_list() == [0, 1, 2, 3, 4]
    files = {call.path for call in store.calls if call.want is not None}
    assert len(files) < 4


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_the_first_rows_are_taken_before_they_are_filtered(lazy, store, engine):
    """Polars hands on both, and means the limit to come first."""
    ids = lambda frame: frame.select("id").collect(engine=engine)["id"].to_list()
    assert ids(lazy.head(50).filter(c("id") > 45)) == [46, 47, 48, 49]
    assert ids(lazy.head(0).filter(c("id") > 45)) == []
    assert ids(lazy.filter(c("id") > 45).head(3)) == [46, 47, 48]
    assert ids(lazy.head(1_010).filter(c("id") > 997).head(5)) == [998, 999, 1000, 1001, 1002]
    assert ids(lazy.filter(c("id") > 45).head(9).filter(c("id") % 2 == 0)) == [46, 48, 50, 52, 54]
    assert lazy.head(50).filter(c("text") == "no such").select(pl.len()).collect(engine=engine).item() == 0
    store.calls.clear()
    lazy.head(50).filter(c("id") == 3_333).collect(engine=engine)
    assert len({call.path for call in store.calls if call.received}) < 4


def test_the_first_rows_of_a_frame_with_a_predicate_of_its_own():
    store = DictStore({"t.parquet": write_file(pa.table({"id": range(100)}))})
    own = accel.polars.scan("t.parquet", "id >= 20", store=store)
    assert own.head(5).filter(c("id") > 22).collect()["id"].to_list() == [23, 24]


def test_sql(lazy):
    sql = "SELECT text, count(*) AS n FROM self WHERE id < 50 AND text IN ('word 1', 'word 2') GROUP BY text ORDER BY text"
    assert lazy.sql(sql).collect().equals(FRAME.lazy().sql(sql).collect())


def test_what_is_not_understood_is_left_out():
    schema = FRAME.to_arrow().schema
    both = from_polars((c("id") == 7) & (c("text").str.len_chars() > 3), schema)
    assert both == from_polars(c("id") == 7, schema)
    for unknown in (
        (c("id") == 7) | (c("text").str.len_chars() > 3),
        ~((c("id") == 7) & (c("text").str.len_chars() > 3)),
        c("nothing") == 1,
        c("text").map_elements(lambda text: True, return_dtype=pl.Boolean),
    ):
        assert from_polars(unknown, schema) is None


def test_limits_and_iterators_are_refused():
    with pytest.raises(ValueError, match="limit"):
        accel.polars.scan("t/", limit=3)
    with pytest.raises(ValueError, match="iterator"):
        accel.polars.scan(iter([pa.record_batch({"path": ["x"]})]))


def test_errors_have_the_message():
    faulty = FaultStore(DictStore(OBJECTS), lambda attempt: Status(403) if "part=2" in attempt.path else None)
    with pytest.raises((pl.exceptions.PolarsError, AccelError), match="part=2"):
        accel.polars.scan("t/", store=faulty, cache=None).select("id").collect()
