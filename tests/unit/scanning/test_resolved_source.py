"""What a scan's source, schema and partitions come to."""

from __future__ import annotations

import datetime
import io
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.predicate import bind as module
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


def ints(**columns: list[Any]) -> bytes:
    return write_file(table(**columns))


def read(store: object, source: Any, where: Any = None, **keywords: Any) -> list[dict[str, Any]]:
    return accel.scan(source, where, store=store, cache=None, **keywords).to_table().to_pylist()


INSTANTS = [datetime.datetime(2013, 1, 2, 3, 4, 5, 6), None, datetime.datetime(9999, 12, 31)]


def stamped(unit: str, zone: str | None = None, *, int96: bool) -> bytes:
    """A file of timestamps, in a struct too."""
    kind = pa.timestamp(unit, zone)
    at = pa.array(INSTANTS, kind)
    data = pa.table({"at": at, "s": pa.StructArray.from_arrays([at], fields=[pa.field("at", kind)])})
    sink = io.BytesIO()
    pq.write_table(data, sink, use_deprecated_int96_timestamps=int96)
    return sink.getvalue()


@pytest.mark.parametrize("first", ["int96", "micros"])
def test_int96_as_instants(first: str) -> None:
    """Beside files that have them as instants, whichever is first; timestamps that are none keep their
    type."""
    files = {"int96": stamped("us", int96=True), "micros": stamped("us", "UTC", int96=False)}
    order = [first, *(name for name in files if name != first)]
    store = DictStore({f"t/{number}.parquet": files[name] for number, name in enumerate(order)})
    options = accel.Options(int96_unit="us_utc")
    scan = accel.scan("t/", "s.at = '2013-01-02T03:04:05.000006'", store=store, cache=None, options=options)
    assert scan.schema == pa.schema([("at", UTC), ("s", pa.struct([("at", UTC)]))])
    assert scan.to_table()["at"].to_pylist() == [INSTANTS[0].replace(tzinfo=datetime.UTC)] * 2
    local = DictStore({"f.parquet": stamped("us", int96=False)})
    assert accel.scan("f.parquet", store=local, cache=None, options=options).schema.field("at").type == LOCAL


# -- partitions ----------------------------------------------------------------------------------


@pytest.fixture
def sales() -> RecordingStore:
    return RecordingStore(
        DictStore(
            {
                "sales/year=2023/code=007/a.parquet": ints(id=[1]),
                "sales/year=2024/code=010/a.parquet": ints(id=[2]),
                "sales/year=__HIVE_DEFAULT_PARTITION__/code=100/a.parquet": ints(id=[3]),
            }
        )
    )


def test_partition_columns_come_last_and_typed(sales: RecordingStore) -> None:
    assert read(sales, "sales/") == [
        {"id": 1, "year": 2023, "code": 7},
        {"id": 2, "year": 2024, "code": 10},
        {"id": 3, "year": None, "code": 100},
    ]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("year = 2024", [2]),
        ("year IS NULL", [3]),
        ("year <> 2024", [1]),
        ("code < 50 AND id > 1", [2]),
        ("year = 2024 OR id = 1", [1, 2]),
        ("NOT (year = 2024)", [1]),
        ("year = 1999", []),
    ],
)
def test_partitions_prune_exactly(sales: RecordingStore, where: str, ids: list[int]) -> None:
    assert [row["id"] for row in read(sales, "sales/", where)] == ids


def test_excluded_files_are_not_asked_for(sales: RecordingStore) -> None:
    assert len(read(sales, "sales/", "year = 2024")) == 1
    # The first file settles the schema; the last is never touched.
    assert {call.path for call in sales.calls} == {
        "sales",
        "sales/year=2023/code=007/a.parquet",
        "sales/year=2024/code=010/a.parquet",
    }


def test_a_schema_types_and_places_partition_columns(sales: RecordingStore) -> None:
    schema = pa.schema([("code", pa.int16()), ("id", pa.int64()), ("year", pa.float64())])
    found = accel.scan("sales/", "year < 2024", schema=schema, store=sales, cache=None).to_table()
    assert found.schema == schema
    assert found.to_pylist() == [{"code": 7, "id": 1, "year": 2023.0}]


def test_a_partition_that_the_schema_calls_text_is_the_text_of_the_path(sales: RecordingStore) -> None:
    """Not the number that it looks like, spelt anew."""
    schema = pa.schema([("id", pa.int64()), ("code", pa.string())])
    assert read(sales, "sales/", "code = '007'", schema=schema) == [{"id": 1, "code": "007", "year": 2023}]
    assert read(sales, "sales/", "code = '7'", schema=schema) == []


def test_a_partition_value_that_the_schema_cannot_take(sales: RecordingStore) -> None:
    schema = pa.schema([("id", pa.int64()), ("year", pa.date32())])
    with pytest.raises(SchemaMismatchError) as caught:
        read(sales, "sales/", schema=schema)
    assert caught.value.path == "sales/year=2023/code=007/a.parquet"


@pytest.mark.parametrize("given", [False, True], ids=["no schema", "schema"])
def test_a_column_of_the_file_wins_a_clash(given: bool) -> None:
    """Whether or not schema= names it: the day in the path is not the time in the file."""
    times = [datetime.datetime(2024, 5, 1, 12), datetime.datetime(2024, 5, 2)]
    data = ints(id=[1, 2], day=times)
    store = DictStore({"t/day=2024-05-01/a.parquet": data})
    schema = accel.scan("t/", store=store, cache=None).schema
    assert schema.names == ["id", "day"]
    keywords: dict[str, Any] = {"schema": schema} if given else {}
    found = read(store, "t/", "day > '2024-05-01 18:00:00'", **keywords)
    assert found == [{"id": 2, "day": times[1]}]
    assert len(read(store, "t/", **keywords)) == 2


def test_the_first_file_decides_a_clash() -> None:
    store = DictStore({"t/p=1/a.parquet": ints(id=[1]), "t/p=2/a.parquet": ints(id=[2], p=[9])})
    assert read(store, "t/") == [{"id": 1, "p": 1}, {"id": 2, "p": 2}]
    store = DictStore({"t/p=1/a.parquet": ints(id=[1], p=[9]), "t/p=2/a.parquet": ints(id=[2])})
    assert read(store, "t/") == [{"id": 1, "p": 9}, {"id": 2, "p": None}]
    # What looks excluded by its path is not, where the files' column is meant.
    assert read(store, "t/", "p = 9") == [{"id": 1, "p": 9}]


def test_partitioning_none_leaves_the_paths_alone(sales: RecordingStore) -> None:
    assert read(sales, "sales/", partitioning=None) == [{"id": 1}, {"id": 2}, {"id": 3}]
    with pytest.raises(ColumnNotFoundError):
        read(sales, "sales/", "year = 2024", partitioning=None)


FIRST = "sales/year=2023/code=007"
ABOVE = "is in the path, but of a folder only what is below it makes columns: name the folder above"


@pytest.mark.parametrize(
    ("source", "where", "keywords", "message"),
    [
        pytest.param(
            FIRST,
            "year = 2023",
            {},
            f"no column 'year' ('year' {ABOVE} year=, or a pattern, {FIRST}/*)",
            id="a predicate, above the folder",
        ),
        pytest.param(
            [FIRST],
            None,
            {"columns": ["code"]},
            f"there is no column 'code' ('code' {ABOVE} code=, or a pattern, {FIRST}/*)",
            id="a column, above the folder",
        ),
        pytest.param(
            "sales/",
            "year = 2023",
            {"partitioning": None},
            "no column 'year' ('year' is in the path: `partitioning=pyarrow.schema([('year', ...)])` makes it a column)",
            id="not asked for",
        ),
        pytest.param(
            "sales/", "yaer = 2023", {}, "no column 'yaer' (did you mean 'year'?)", id="another name"
        ),
    ],
)
def test_a_missing_column_that_the_path_spells(
    sales: RecordingStore, source: Any, where: str | None, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        read(sales, source, where, **keywords)
    assert str(caught.value) == f"{FIRST}/a.parquet: {message}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("sales/", ["id", "year", "code"]),
        ("sales/year=2023", ["id", "code"]),
        (["sales/year=2023"], ["id", "code"]),
        (FIRST, ["id"]),
        (f"{FIRST}/*", ["id", "year", "code"]),
        (f"{FIRST}/a.parquet", ["id", "year", "code"]),
        (["sales/year=2023", "sales/year=2024"], ["id", "year", "code"]),
    ],
)
def test_which_keys_are_columns(sales: RecordingStore, source: Any, names: list[str]) -> None:
    assert accel.scan(source, store=sales, cache=None).schema.names == names


def test_the_keys_of_an_iterators_paths_are_columns_where_their_types_are_given(
    sales: RecordingStore,
) -> None:
    files = [f"{FIRST}/a.parquet", "sales/year=2024/code=010/a.parquet"]

    def paths() -> Any:
        return iter([pa.RecordBatch.from_arrays([pa.array([path])], names=["path"]) for path in files])

    types = pa.schema([("year", pa.int16()), ("code", pa.string())])
    assert read(sales, paths()) == [{"id": 1}, {"id": 2}]
    assert read(sales, paths(), partitioning=types) == [
        {"id": 1, "year": 2023, "code": "007"},
        {"id": 2, "year": 2024, "code": "010"},
    ]
    assert read(sales, paths(), "year = 2024", partitioning=types, columns=["code"]) == [{"code": "010"}]
    with pytest.raises(ColumnNotFoundError) as caught:
        read(sales, paths(), "year = 2024")
    assert caught.value.hint == (
        "'year' is in the path: `partitioning=pyarrow.schema([('year', ...)])` makes it a column"
    )


# -- schemas -------------------------------------------------------------------------------------


def test_files_widen_and_lack_columns() -> None:
    store = DictStore(
        {
            "a": write_file(table(id=pa.array([1], pa.int64()), x=pa.array([1.5]))),
            "b": write_file(table(id=pa.array([2], pa.int32()))),
            "c": write_file(
                table(x=pa.array([2.5], pa.float32()), extra=["no"], id=pa.array([3], pa.uint8()))
            ),
        }
    )
    assert read(store, ["a", "b", "c"]) == [
        {"id": 1, "x": 1.5},
        {"id": 2, "x": None},
        {"id": 3, "x": 2.5},
    ]
    assert read(store, ["a", "b", "c"], "x IS NULL OR id = 3") == [{"id": 2, "x": None}, {"id": 3, "x": 2.5}]
    with pytest.raises(SchemaMismatchError) as caught:
        read(store, ["b", "a"])
    assert str(caught.value) == (
        "a: column 'id' is int64 here and int32 in the scan's schema (give `schema=` with a type that holds both)"
    )


TWICE = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4]), pa.array([5, 6])], names=["a", "b", "b"])


def test_names_that_stand_for_two_columns() -> None:
    store = DictStore({"twice": write_file(TWICE), "once": ints(a=[1], b=[9])})
    assert read(store, "twice", columns=["a"]) == [{"a": 1}, {"a": 2}]
    assert read(store, ["once", "twice"], columns=["a"]) == [{"a": 1}, {"a": 1}, {"a": 2}]
    for source, where, columns in [
        ("twice", None, None),
        ("twice", None, ["b"]),
        (["once", "twice"], None, None),
        (["once", "twice"], "b IS NULL", ["a"]),
    ]:
        with pytest.raises(SchemaMismatchError) as caught:
            read(store, source, where, columns=columns)
        assert caught.value.path == "twice"
        assert "'b'" in caught.value.message
    with pytest.raises(accel.PredicateError, match="ambiguous"):
        read(store, "twice", "b = 3", columns=["a"])


def test_a_schema_reads_no_footer_to_be_known() -> None:
    store = RecordingStore(DictStore({"a": ints(a=[1])}))
    schema = pa.schema([("a", pa.int64()), ("z", pa.string())])
    assert accel.scan("a", schema=schema, columns=["z"], store=store).schema == pa.schema(
        [("z", pa.string())]
    )
    assert store.requests <= 1
    assert read(store, "a", schema=schema) == [{"a": 1, "z": None}]


# -- selections ----------------------------------------------------------------------------------


@pytest.fixture
def grouped() -> DictStore:
    keys = {name: pa.array(np.arange(first, first + 40)) for name, first in (("a", 0), ("b", 100))}
    return DictStore(
        {n: write_file(table(k=column), Layout(group_rows=20, page_rows=5)) for n, column in keys.items()}
    )


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        pytest.param({}, [], id="nothing is named"),
        pytest.param({"b": {}}, [], id="no group is named"),
        pytest.param({"b": {0: []}}, [], id="no row is named"),
        pytest.param({"b": {1: [(3, 5)]}}, [123, 124], id="one range"),
        pytest.param({"b": {0: [(4, 6), (0, 1), (5, 7)]}}, [100, 104, 105, 106], id="united, in order"),
        pytest.param(
            {"b": {0: [(0, 1)]}, "a": {1: [(19, 20)], 0: [(0, 1)]}}, [0, 39, 100], id="listing order"
        ),
    ],
)
def test_selected_rows(grouped: DictStore, selection: Any, keys: list[int]) -> None:
    assert [row["k"] for row in read(grouped, ["a", "b"], selection=selection)] == keys


def test_a_selection_meets_the_predicate(grouped: DictStore) -> None:
    chosen = {"a": {0: [(2, 9)]}}
    assert [row["k"] for row in read(grouped, ["a", "b"], "k >= 7", selection=chosen)] == [7, 8]
    assert accel.scan(["a", "b"], "k >= 7", selection=chosen, store=grouped, cache=None).count_rows() == 2


def test_what_the_schema_takes_counts_though_its_file_is_not_selected(grouped: DictStore) -> None:
    cache = accel.Cache()
    accel.plan("b", store=grouped, cache=cache)
    plan = accel.plan(["a", "b"], selection={"b": {0: [(0, 1)]}}, store=grouped, cache=cache)
    assert plan.explain().round_trips == {"listing": 1, "metadata": 1, "indexes": 0, "data": 0}


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        ({"a": {2: [(0, 1)]}}, "selection names row group 2; a has 2"),
        ({"a": {0: [(0, 21)]}}, "selection goes to row 21 of row group 0 of a, which has 20 rows"),
    ],
)
def test_a_selection_past_the_file(grouped: DictStore, selection: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read(grouped, "a", selection=selection)


# -- counting ------------------------------------------------------------------------------------


def test_the_same_file_twice_is_read_twice(grouped: DictStore) -> None:
    assert [row["k"] for row in read(grouped, ["a", "a"], "k = 3")] == [3, 3]


def test_a_question_that_fails_leaves_nothing() -> None:
    store = DictStore({str(i): ints(a=[i]) for i in range(5)})
    with pytest.raises(ColumnNotFoundError):
        read(store, [str(i) for i in range(5)], "nope = 1")


@pytest.mark.parametrize(("keys", "threads"), [(3, {"accel-io"}), (100_000, {"accel-work"})], ids=str)
def test_a_long_predicate_is_not_bound_on_the_loop(
    sales: RecordingStore, monkeypatch: pytest.MonkeyPatch, keys: int, threads: set[str]
) -> None:
    """Nor are its keys found again for a file that has not the partition columns of the data set."""
    found, real = [], module.array_keys

    def array_keys(*args: Any, **keywords: Any) -> Any:
        found.append(threading.current_thread().name.partition("_")[0])
        return real(*args, **keywords)

    monkeypatch.setattr(module, "array_keys", array_keys)
    where = accel.col("id").isin(np.arange(2, keys))
    assert [row["id"] for row in read(sales, "sales/", where)] == [2, 3][: keys - 2]
    assert (len(found), set(found)) == (1, threads)
