"""Dictionary pages as indexes: a chunk that is dictionary-encoded throughout lists all its values there.

The file: 4 row groups of 20,000 rows; `city` holds 50 texts a row group, unsorted, so that the bounds of
every row group hold almost any text; the payload is what a wrong guess would cost.
"""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.footer import parse_footer
from accel.ranges import ByteRange, Kind
from accel.store.network import Network
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

GROUP, GROUPS = 20_000, 4
OPTIONS = accel.Options(tail_hint=16 * 1024, max_gap_bytes=0, probe_min_bytes=0)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(9)
    parts = []
    for group in range(GROUPS):
        names = np.array([f"city-{group + GROUPS * i:03d}" for i in range(50)])
        parts += names[rng.integers(0, 50, GROUP)].tolist()
    return table(city=pa.array(parts), pad=pa.array(rng.random(GROUP * GROUPS)))


@pytest.fixture(scope="module")
def data(rows: pa.Table) -> bytes:
    return write_file(rows, Layout(group_rows=GROUP, page_rows=1000, dictionary=["city"]))


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({"f.parquet": data}))


def ask(
    store: RecordingStore, where: str, cache: accel.Cache, options: accel.Options = OPTIONS
) -> accel.Scan:
    return accel.scan("f.parquet", where, store=store, cache=cache, options=options)


def dictionaries(data: bytes) -> list[ByteRange]:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chunks = parse_footer(data[start:-8], file_size=len(data), footer_start=start).chunks
    assert chunks.plain_pages[:, 0].tolist() == [0] * GROUPS
    return [ByteRange(int(chunks.start[g, 0]), int(chunks.data_page_offset[g, 0])) for g in range(GROUPS)]


def test_an_absent_value_reads_the_dictionaries_and_no_data(store: RecordingStore, data: bytes) -> None:
    cache = accel.Cache()
    scan = ask(store, "city = 'city-100x'", cache)
    assert scan.to_table().num_rows == 0
    assert store.fetched("f.parquet")[:-1] == dictionaries(data)
    assert store.waves == 2
    assert scan.metrics.requests_by_kind[Kind.DICTIONARY] == GROUPS
    store.clear()
    assert ask(store, "city = 'city-101x'", cache).to_table().num_rows == 0
    assert store.requests == 0


def test_a_value_of_one_row_group_reads_that_one(store: RecordingStore, rows: pa.Table, data: bytes) -> None:
    scan = ask(store, "city = 'city-102'", accel.Cache())
    expected = [r for r in rows.to_pylist() if r["city"] == "city-102"]
    assert scan.to_table().to_pylist() == expected
    assert expected
    assert scan.metrics.row_groups.kept == 1
    # The dictionary met for pruning is not asked for again.
    assert scan.metrics.requests_by_kind[Kind.DICTIONARY] == GROUPS


@pytest.mark.parametrize(
    "where",
    [
        "city LIKE '%-10x%'",
        "city IN ('city-1', 'city-2')",
        "city = 'city-1' OR city = 'city-2'",
        "city = 'city-100' AND city LIKE '%z'",
        "city > 'city-100' AND city < 'city-101'",
        "NOT (city LIKE 'city-___')",
    ],
)
def test_predicates_over_dictionaries(store: RecordingStore, where: str) -> None:
    scan = ask(store, where, accel.Cache())
    assert scan.to_table().num_rows == 0
    assert scan.metrics.row_groups.kept == 0


def test_a_dictionary_can_prove_that_all_rows_match(store: RecordingStore) -> None:
    scan = ask(store, "city LIKE '%city%'", accel.Cache())
    assert scan.count_rows() == GROUP * GROUPS
    assert Kind.PAGE not in scan.metrics.requests_by_kind


def test_little_in_doubt_is_read(store: RecordingStore) -> None:
    options = accel.Options(tail_hint=16 * 1024, max_gap_bytes=0)
    scan = ask(store, "city = 'city-100x'", accel.Cache(), options)
    assert scan.to_table().num_rows == 0
    assert scan.metrics.rows.kept == GROUP * GROUPS


@pytest.mark.parametrize(("worth", "trips"), [(0, 2), (1 << 20, 2), (2 << 20, 1)])
def test_a_trip_is_taken_where_what_it_may_save_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, rows: pa.Table, worth: int, trips: int
) -> None:
    """1.3 MB undecided: more than nothing and than a MiB, less than two."""
    monkeypatch.setattr(Network, "trip_bytes", property(lambda network: worth))
    pads = {f"pad{i}": rows["pad"] for i in range(2)}
    wide = table(city=rows["city"], **pads)
    data = write_file(wide, Layout(group_rows=GROUP, page_rows=1000, dictionary=["city"]))
    cache, store = accel.Cache(), DictStore({"f.parquet": data})
    met = accel.scan("f.parquet", "pad0 < -1", store=store, cache=cache)
    assert met.count_rows() == 0
    scan = accel.scan("f.parquet", "city = 'city-102'", store=store, cache=cache)
    assert scan.to_table().num_rows == rows["city"].to_pylist().count("city-102")
    assert scan.metrics.round_trips == trips
    assert scan.metrics.row_groups.kept == (1 if trips == 2 else GROUPS)


def test_many_files_wait_for_their_dictionaries_together(
    monkeypatch: pytest.MonkeyPatch, rows: pa.Table
) -> None:
    """Each has 1.3 MB undecided: by itself not worth a trip that takes as long as three."""
    monkeypatch.setattr(Network, "trip_bytes", property(lambda network: 3 << 20))
    wide = table(city=rows["city"], **{f"pad{i}": rows["pad"] for i in range(2)})
    data = write_file(wide, Layout(group_rows=GROUP, page_rows=1000, dictionary=["city"]))
    store = DictStore({f"d/{i}.parquet": data for i in range(3)})
    held = rows["city"].to_pylist().count("city-102")
    for source, files, groups in (("d/", 3, 3), ("d/1.parquet", 1, GROUPS)):
        scan = accel.scan(source, "city = 'city-102'", store=store, cache=accel.Cache())
        assert scan.to_table().num_rows == files * held
        assert scan.metrics.row_groups.kept == groups


@pytest.mark.parametrize(("step", "asked"), [(1, 0), (1000, GROUPS)])
def test_whole_numbers_without_gaps_are_not_asked(step: int, asked: int) -> None:
    """A dictionary of 60 of 61 neighbours says nothing that their bounds do not; one of distant numbers
    does."""
    values = np.random.default_rng(4).permutation(GROUP * GROUPS) % 61
    values[values == 30] = 31
    pad = np.random.default_rng(5).random(GROUP * GROUPS)
    data = write_file(
        table(n=pa.array(values * step), pad=pad),
        Layout(group_rows=GROUP, page_rows=1000, dictionary=["n"]),
    )
    scan = accel.scan(
        "f.parquet", f"n = {30 * step}", store=DictStore({"f.parquet": data}), cache=None, options=OPTIONS
    )
    assert scan.to_table().num_rows == 0
    assert scan.metrics.row_groups.kept == (0 if asked else GROUPS)
    if asked:
        assert scan.metrics.requests_by_kind[Kind.DICTIONARY] == asked


DAY = datetime.date(2020, 1, 1)
TYPES = [
    (pa.int8(), [1, 5], 3),
    (pa.uint64(), [1, 2**64 - 1], 3),
    (pa.float32(), [0.5, 2.5], 1.5),
    (pa.decimal128(9, 2), [decimal.Decimal("1.00"), decimal.Decimal("3.00")], decimal.Decimal("2.00")),
    (pa.decimal128(30, 2), [decimal.Decimal("1.00"), decimal.Decimal("3.00")], decimal.Decimal("2.00")),
    (pa.binary(2), [b"aa", b"cc"], b"bb"),
    (pa.large_string(), ["a", "c"], "b"),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "c"], "b"),
    (pa.date32(), [DAY, DAY + datetime.timedelta(9)], DAY + datetime.timedelta(3)),
    (
        pa.timestamp("ns"),
        [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)],
        datetime.datetime(2020, 5, 1),
    ),
    (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2020, 1, d, tzinfo=datetime.UTC) for d in (1, 9)],
        datetime.datetime(2020, 1, 5, tzinfo=datetime.UTC),
    ),
    (pa.duration("us"), [datetime.timedelta(1), datetime.timedelta(3)], None),
]


@pytest.mark.parametrize(
    ("kind", "values", "absent"), TYPES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
@pytest.mark.parametrize("nulls", [False, True])
def test_every_type(kind: pa.DataType, values: list[object], absent: object, nulls: bool) -> None:
    cycle = [*values, None] if nulls else values
    array = pa.array([cycle[i % len(cycle)] for i in range(3000)], kind)
    rng = np.random.default_rng(1)
    plain = write_file(table(v=array, pad=rng.random(3000)), Layout(page_rows=500, dictionary=["v"]))
    store = DictStore({"f.parquet": plain})
    col = accel.col("v")
    wheres = [col.is_null(), ~col.is_null()]
    if absent is not None:
        wheres += [col == values[0], col == absent, col != absent, ~(col == absent), col > values[0]]
    for where in wheres:
        plain_answer = accel.scan("f.parquet", where, store=store, cache=accel.Cache())
        probed = accel.scan("f.parquet", where, store=store, cache=accel.Cache(), options=OPTIONS)
        assert probed.to_table().equals(plain_answer.to_table())
        assert probed.count_rows() == plain_answer.to_table().num_rows
    if absent is not None:
        scan = accel.scan("f.parquet", col == absent, store=store, cache=accel.Cache(), options=OPTIONS)
        assert scan.to_table().num_rows == 0
        assert scan.metrics.row_groups.kept == 0
