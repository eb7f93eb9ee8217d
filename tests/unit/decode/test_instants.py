"""INT96 timestamps beyond the years of nanoseconds: refused with their place, or read as microseconds; never
another instant."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore

US = pa.timestamp("us")
MICROS = accel.Options(int96_unit=accel.Int96Unit.US)
LAST, FIRST, NOW = (
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1, 1, 1),
    dt.datetime(2020, 5, 1),
)
EDGES = [dt.datetime(1677, 9, 21, 0, 12, 44), dt.datetime(2262, 4, 11, 23, 47, 16)]
NESTED = pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(US), [NOW, LAST]),
        (pa.large_list(US), [LAST]),
        (pa.list_(US, 2), [LAST, None]),
        (pa.list_view(US), [LAST, None]),
        (pa.struct([("x", pa.int64()), ("at", US)]), {"x": 1, "at": LAST}),
        (pa.map_(pa.string(), US), [("a", LAST)]),
        (pa.list_(pa.struct([("at", pa.list_(US))])), [{"at": None}, {"at": [LAST]}]),
    ],
    ids=["list", "large list", "fixed list", "list view", "struct", "map", "nested twice"],
)


def store_of(values: list[Any], kind: pa.DataType = US, **options: Any) -> DictStore:
    sink = pa.BufferOutputStream()
    rows = pa.table({"i": range(len(values)), "ts": pa.array(values, kind)})
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True, **options)
    return DictStore({"f.parquet": sink.getvalue().to_pybytes()})


def ask(store: DictStore, where: str | None = None, **keywords: Any) -> dict[str, list[Any]]:
    return accel.scan("f.parquet", where, store=store, cache=None, **keywords).to_table().to_pydict()


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [(LAST, "9999-12-31T23:59:59.999"), (FIRST, "0001-01-01T00:00:00.000")],
    ids=["the last", "the first"],
)
def test_what_nanoseconds_cannot_tell_is_refused(value: dt.datetime, shown: str, dictionary: bool) -> None:
    store = store_of([NOW, None, value], use_dictionary=dictionary)
    for keywords in ({}, {"where": "ts < '1850-01-01'"}, {"where": "ts > '2100-01-01'"}):
        with pytest.raises(accel.SchemaMismatchError) as caught:
            ask(store, **keywords)
        assert str(caught.value) == (
            f"f.parquet, row group 0, column ts: {shown}, stored as INT96, does not fit in timestamp[ns] (read "
            'INT96 as microseconds with `Options(int96_unit="us")`, or leave the column out with `columns=`)'
        )
    # Neither other rows nor other columns mind.
    assert ask(store, selection={"f.parquet": {0: [(0, 2)]}})["ts"] == [NOW, None]
    assert ask(store, columns=["i"]) == {"i": [0, 1, 2]}


BEYOND = [
    ("ts = '9999-12-31 23:59:59.999999'", []),
    ("ts > '2300-01-01'", []),
    ("ts < '1600-01-01'", []),
    ("ts IN ('9999-12-31 23:59:59.999999', '2300-01-01')", []),
    ("ts BETWEEN '9999-01-01' AND '9999-12-31'", []),
    ("ts < '9999-01-01'", [0, 2]),
    ("NOT ts > '2300-01-01'", [0, 2]),
    ("ts NOT IN ('9999-01-01')", [0, 2]),
    ("ts > '9999-01-01' OR i = 1", [1]),
]


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize(("where", "rows"), BEYOND)
def test_a_moment_that_nanoseconds_do_not_reach_is_sought(
    where: str, rows: list[int], dictionary: bool
) -> None:
    """That none has it is known of values that nanoseconds tell, and of these only."""
    store = store_of([NOW, None, NOW], use_dictionary=dictionary)
    assert ask(store, where, columns=["i"]) == {"i": rows}
    assert accel.scan("f.parquet", where, store=store, cache=None).count_rows() == len(rows)
    store = store_of([NOW, None, LAST], use_dictionary=dictionary)
    scan = accel.scan("f.parquet", where, columns=["i"], store=store, cache=None)
    for run in (scan.to_table, scan.count_rows, lambda: accel.distinct("f.parquet", "i", where, store=store)):
        with pytest.raises(accel.SchemaMismatchError, match="stored as INT96, does not fit"):
            run()
    micros = ask(store, where, columns=["i"], options=MICROS)["i"]
    times = {0: NOW, 2: LAST}
    with duckdb.connect() as connection:
        values = "(VALUES " + ", ".join(f"({at}, {_sql(times.get(at))})" for at in range(3)) + ") t(i, ts)"
        found = connection.sql(f"SELECT i FROM {values} WHERE {where} ORDER BY i").fetchall()
    assert micros == [at for (at,) in found]


def _sql(moment: dt.datetime | None) -> str:
    return "NULL" if moment is None else f"TIMESTAMP '{moment}'"


def test_a_moment_that_nanoseconds_do_not_reach_is_ruled_out_by_bounds() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"ts": pa.array([0, 1], pa.timestamp("ns"))}), sink, version="2.6")
    store = DictStore({"f.parquet": sink.getvalue().to_pybytes()})
    for where in ("ts = '9999-12-31'", "ts > '2300-01-01'", "ts < '1600-01-01'", "ts IN ('9999-12-31')"):
        assert not accel.plan("f.parquet", where, store=store, cache=None).tasks
    assert all(
        task.is_certain
        for task in accel.plan("f.parquet", "ts < '9999-12-31'", store=store, cache=None).tasks
    )


@NESTED
def test_at_any_depth(kind: pa.DataType, value: Any) -> None:
    store = store_of([None, value], kind)
    with pytest.raises(accel.SchemaMismatchError, match=r"9999-12-31T23:59:59.999, stored as INT96"):
        ask(store)


class Moment(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(US, "accel.tests.moment")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Moment:
        return cls()


def test_within_a_type_of_the_callers() -> None:
    pa.register_extension_type(Moment())
    try:
        rows = pa.table({"ts": pa.ExtensionArray.from_storage(Moment(), pa.array([LAST], US))})
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, use_deprecated_int96_timestamps=True)
        store = DictStore({"f.parquet": sink.getvalue().to_pybytes()})
        with pytest.raises(accel.SchemaMismatchError, match="stored as INT96"):
            ask(store)
        assert ask(store, options=MICROS) == {"ts": [LAST]}
    finally:
        pa.unregister_extension_type("accel.tests.moment")


def test_all_that_nanoseconds_can_tell_comes_out() -> None:
    values = [*EDGES, NOW, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
    assert ask(store_of(values))["ts"] == values
    assert ask(store_of([[NOW], [], None, [None, *EDGES]], pa.list_(US)))["ts"] == [
        [NOW],
        [],
        None,
        [None, *EDGES],
    ]


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
def test_microseconds_tell_all_of_them(dictionary: bool) -> None:
    values = [NOW, None, LAST, FIRST, *EDGES]
    store = store_of(values, use_dictionary=dictionary, max_rows_per_page=2)
    table = accel.scan("f.parquet", store=store, cache=None, options=MICROS).to_table()
    assert table.schema.field("ts").type == US
    assert table["ts"].to_pylist() == values
    for where, rows in {
        "ts < '1850-01-01'": [3, 4],
        "ts = '9999-12-31 23:59:59.999999'": [2],
        "ts is null": [1],
        "ts between '2000-01-01' and '2262-04-11 23:47:16'": [0, 5],
    }.items():
        assert ask(store, where, columns=["i"], options=MICROS) == {"i": rows}


@NESTED
def test_microseconds_at_any_depth(kind: pa.DataType, value: Any) -> None:
    store = store_of([None, value], kind)
    assert ask(store, options=MICROS)["ts"] == [None, value]
    if pa.types.is_struct(kind):
        assert ask(store, "ts.at > '9000-01-01'", columns=["ts.at"], options=MICROS) == {"ts": [{"at": LAST}]}


def test_digits_after_the_sixth_are_rounded_down() -> None:
    store = store_of([-1, 0, 1_999, -1_000, -1_001], pa.timestamp("ns"))
    table = accel.scan("f.parquet", store=store, cache=None, options=MICROS).to_table()
    assert table["ts"].cast(pa.int64()).to_pylist() == [-1, 0, 1, -1, -2]


@pytest.mark.parametrize("days", [2**31 - 1, 120_000_000])
def test_what_microseconds_cannot_tell_is_refused_too(days: int) -> None:
    data = bytearray(store_of([NOW], use_dictionary=False, compression="none").objects["f.parquet"])
    julian = 2_440_588 + (NOW - dt.datetime(1970, 1, 1)).days
    stored = bytes(8) + julian.to_bytes(4, "little")
    assert data.count(stored) == 1
    at = data.index(stored)
    data[at : at + 12] = bytes(8) + days.to_bytes(4, "little")
    store = DictStore({"f.parquet": bytes(data)})
    for options, unit in ((accel.Options(), "ns"), (MICROS, "us")):
        with pytest.raises(
            accel.SchemaMismatchError, match=rf"stored as INT96, does not fit in timestamp\[{unit}\]"
        ):
            ask(store, options=options)


def stored_with(time: int) -> DictStore:
    """`NOW`, its time of day replaced."""
    data = bytearray(store_of([NOW], use_dictionary=False, compression="none").objects["f.parquet"])
    at = data.index(bytes(8) + (2_440_588 + (NOW - dt.datetime(1970, 1, 1)).days).to_bytes(4, "little"))
    data[at : at + 8] = time.to_bytes(8, "little", signed=True)
    return DictStore({"f.parquet": bytes(data)})


def test_a_time_of_day_before_midnight() -> None:
    """Malformed, but plain enough: pyarrow takes it for a number without a sign, and only nanoseconds wrap
    back."""
    store = stored_with(-3600 * 10**9)
    assert ask(store)["ts"] == [NOW - dt.timedelta(hours=1)]
    with pytest.raises(accel.SchemaMismatchError) as caught:
        ask(store, options=MICROS)
    assert str(caught.value) == (
        "f.parquet, row group 0, column ts: 2020-04-30T23:00:00.000, stored as INT96 with -3600000000000 nanoseconds of "
        'the day, would be read as another timestamp[us] (read INT96 as nanoseconds with `Options(int96_unit="ns")`)'
    )


@pytest.mark.parametrize("options", [accel.Options(), MICROS], ids=["ns", "us"])
def test_a_time_of_day_beyond_it_is_the_next_day(options: accel.Options) -> None:
    assert ask(stored_with(25 * 3600 * 10**9), options=options)["ts"] == [NOW + dt.timedelta(hours=25)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (US, [None, None]),
        (pa.list_(US), [[], None]),
        (pa.list_(US), [[None], []]),
        (pa.struct([("at", US)]), [None]),
    ],
    ids=["nulls", "no elements", "null elements", "null structs"],
)
def test_where_there_is_no_instant(kind: pa.DataType, values: list[Any]) -> None:
    for options in (accel.Options(), MICROS):
        assert ask(store_of(values, kind), options=options)["ts"] == values


def test_beside_uuids_in_lists_of_which_those_wanted_are_null(tmp_path: Path) -> None:
    moments = pa.array([0, 1], pa.timestamp("ns"))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16], pa.binary(16)))
    items = pa.StructArray.from_arrays([moments, uuids], names=["at", "id"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 2], pa.int32()), items)
    places, sizes = pa.array([0, 2, 2], pa.int32()), pa.array([2, 0, 0], pa.int32())
    views = pa.ListViewArray.from_arrays(places, sizes, items, mask=pa.array([False, True, False]))
    data = pa.Table.from_arrays([pa.array([0, 1, 2]), lists, views], names=["k", "lists", "views"])
    path = str(tmp_path / "f.parquet")
    pq.write_table(
        data, path, use_deprecated_int96_timestamps=True, write_page_index=True, max_rows_per_page=1
    )
    for where, rows in (("k = 0", [0]), ("k = 1", [1]), ("k > 0", [1, 2]), ("k >= 0", [0, 1, 2])):
        for phases in accel.Phases:
            scan = accel.scan(path, where, cache=None, options=accel.Options(phases=phases))
            assert scan.to_table().to_pylist() == [data.to_pylist()[row] for row in rows]
            # Nor was it read over again as a whole, which would hide that a part of it was not decoded.
            assert not scan.metrics.indexes_ignored


def test_the_last_and_the_first_that_nanoseconds_tell() -> None:
    ticks = [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 0, -1]
    table = accel.scan("f.parquet", store=store_of(ticks, pa.timestamp("ns")), cache=None).to_table()
    assert table["ts"].cast(pa.int64()).to_pylist() == ticks


def test_both_units_by_one_cache() -> None:
    store, cache = store_of([{"at": NOW}, None], pa.struct([("at", US)])), accel.Cache()
    for given in ("auto", "us", "ns", "auto", "us"):
        unit = "us" if given == "us" else "ns"
        options = accel.Options(int96_unit=accel.Int96Unit(given))
        table = accel.scan(
            "f.parquet", "ts is not null", store=store, cache=cache, options=options
        ).to_table()
        assert table.schema.field("ts").type == pa.struct([("at", pa.timestamp(unit))])
        assert table["ts"].to_pylist() == [{"at": NOW}]


def test_indexes_which_tell_nanoseconds_are_left_aside(tmp_path: Path) -> None:
    values = [NOW + dt.timedelta(days=day) for day in range(40)]
    path = tmp_path / "f.parquet"
    path.write_bytes(store_of(values, row_group_size=10, max_rows_per_page=5).objects["f.parquet"])
    accel.embed(path, indexes={"ts": ["bitmap", "zonemap", ("distinct", "file"), "bloom"]})
    pages = []
    for options in (accel.Options(), MICROS):
        for day in (0, 17, 39):
            scan = accel.scan(path, f"ts = '{values[day]}'", cache=None, options=options)
            assert scan.to_table().to_pydict() == {"i": [day], "ts": [values[day]]}
            pages.append(scan.metrics.row_groups.kept)
        few = accel.scan(path, f"ts < '{values[3]}'", columns=["i"], cache=None, options=options)
        assert few.to_table()["i"].to_pylist() == [0, 1, 2]
        scan = accel.scan(path, cache=None, options=options)
        found = scan.aggregate([("ts", "min"), ("ts", "max"), ("ts", "count")]).to_pylist()
        assert found == [{"ts_min": values[0], "ts_max": values[-1], "ts_count": 40}]
    assert pages == [1, 1, 1, 4, 4, 4]


def test_an_index_of_what_nanoseconds_cannot_tell(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(store_of([NOW, LAST]).objects["f.parquet"])
    with pytest.raises(
        accel.SchemaMismatchError, match=r"9999-12-31.*\(indexes tell nanoseconds of INT96: give"
    ):
        accel.embed(path, indexes={"ts": "zonemap"}, options=MICROS)


def test_tasks_carry_the_unit() -> None:
    store = store_of([NOW, LAST, None], row_group_size=1)
    plan = accel.plan("f.parquet", "ts > '2000-01-01'", store=store, cache=None, options=MICROS)
    sent = accel.Plan.from_arrow(plan.to_arrow())
    found = accel.scan(sent, store=store, cache=None).to_table()
    assert found.schema.field("ts").type == US
    assert found["ts"].to_pylist() == [NOW, LAST]


def test_files_with_64_bits_go_with_those_of_microseconds() -> None:
    store = store_of([NOW, LAST])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"i": [7], "ts": pa.array([LAST], US)}), sink)
    store.put("g.parquet", sink.getvalue().to_pybytes())
    found = accel.scan(
        ["f.parquet", "g.parquet"], "ts > '9000-01-01'", store=store, cache=None, options=MICROS
    ).to_table()
    assert found.to_pydict() == {"i": [1, 7], "ts": [LAST, LAST]}


def test_scans_for_spark_read_microseconds_in_utc_unless_an_option_says_otherwise() -> None:
    store = store_of([NOW, LAST])

    def seen(**keywords: Any) -> dict[str, list[Any]]:
        paths = iter([pa.RecordBatch.from_pydict({"path": ["f.parquet"]})])
        return accel.scan(paths, store=store, cache=None, **keywords).to_table().to_pydict()

    in_utc = [moment.replace(tzinfo=dt.UTC) for moment in (NOW, LAST)]
    assert seen() == {"i": [0, 1], "ts": in_utc}
    assert seen(options=accel.Options(int96_unit=accel.Int96Unit.US_UTC)) == seen()
    assert seen(options=MICROS) == {"i": [0, 1], "ts": [NOW, LAST]}
    with pytest.raises(accel.SchemaMismatchError, match="stored as INT96"):
        seen(options=accel.Options(int96_unit=accel.Int96Unit.NS))


def test_a_unit_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="option int96_unit is one of auto, ns, us, us_utc, not 'ms'"):
        accel.Options(int96_unit="ms")  # type: ignore[arg-type]
