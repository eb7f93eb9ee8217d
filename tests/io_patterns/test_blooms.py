"""Bloom filters: asked only when the statistics leave a row group undecided, by blocks of 32 bytes, once.

The file: 40,000 rows in 4 row groups; `id` unsorted, so that every row group's bounds hold almost every
key; filters on `id`, `word` and `price`.
"""

from __future__ import annotations

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.bloom import expected_header, parse_bloom_header
from accel.format.footer import parse_footer
from accel.ranges import Kind, Suffix
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS, GROUP = 40_000, 10_000
HINT = 10 * 1024
OPTIONS = accel.Options(tail_hint=HINT, max_gap_bytes=0, probe_min_bytes=0)
NDV = {"ndv": GROUP, "fpp": 0.001}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    ids = rng.permutation(ROWS).astype(np.int64) * 2
    return table(
        id=ids,
        word=pa.array([f"w{i}" for i in ids]),
        price=ids * 0.5,
        pad=pa.array([rng.bytes(30) for _ in range(ROWS)]),
    )


@pytest.fixture(scope="module")
def data(rows: pa.Table) -> bytes:
    more = {"bloom_filter_options": {"id": NDV, "word": NDV, "price": NDV}}
    return write_file(rows, Layout(group_rows=GROUP, page_rows=1000, dictionary=False, more=more))


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({"f.parquet": data}))


def ask(
    store: RecordingStore, where: str, cache: accel.Cache, options: accel.Options = OPTIONS
) -> accel.Scan:
    return accel.scan("f.parquet", where, columns=["id"], store=store, cache=cache, options=options)


def test_the_fixture_is_what_the_rest_relies_on(data: bytes) -> None:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = parse_footer(data[start:-8], file_size=len(data), footer_start=start)
    for leaf in range(3):
        for group in range(4):
            at = int(metadata.chunks.bloom_offset[group, leaf])
            header = parse_bloom_header(data[at : at + 64])
            assert header.num_bytes > 4096
            assert header == expected_header(int(metadata.chunks.bloom_length[group, leaf]))
            assert at + header.num_bytes - 128 < len(data) - HINT


@pytest.mark.parametrize(
    "where",
    [
        *("id = 40001", "word = 'w40001'", "price = 10000.25"),
        # Ranges of one value are equalities.
        *("id BETWEEN 40001 AND 40001", "id >= 40001 AND id <= 40001", "id > 40000 AND id < 40002"),
        *("NOT (id < 40001 OR id > 40001)", "pad IS NOT NULL AND id <= 40001 AND id >= 40001 AND id < 50000"),
        *("word BETWEEN 'w40001' AND 'w40001'", "price BETWEEN 10000.25 AND 10000.25"),
    ],
)
def test_an_absent_key_reads_one_block_a_row_group_and_no_data(store: RecordingStore, where: str) -> None:
    cache = accel.Cache()
    scan = ask(store, where, cache)
    assert scan.to_table().num_rows == 0
    # The tail; then, all at once, a header and a block of each of the four filters.
    assert store.calls[0].want == Suffix(HINT)
    assert store.requests == 1 + 4 * 2
    assert (store.waves, scan.metrics.round_trips) == (2, 2)
    assert sum(call.received for call in store.calls[1:]) < 4 * (32 + 20)
    assert scan.metrics.requests_by_kind[Kind.BLOOM] == 8
    store.clear()
    assert ask(store, where, cache).to_table().num_rows == 0
    assert ask(store, where, cache).count_rows() == 0
    assert store.requests == 0
    # Another key: the headers are known.
    store.clear()
    assert ask(store, "id = 40003", cache).to_table().num_rows == 0
    assert store.bytes == 4 * 32 if where.startswith("id") else store.bytes < 4 * 52


def test_a_present_key_reads_its_row_group_only(store: RecordingStore, rows: pa.Table, data: bytes) -> None:
    key = rows.column("id")[2 * GROUP + 77].as_py()
    scan = ask(store, f"id = {key}", accel.Cache())
    assert scan.to_table().column("id").to_pylist() == [key]
    assert scan.metrics.row_groups.kept == 1
    # Tail, blocks, pages.
    assert store.waves == 3


def test_in_and_or_and_not(store: RecordingStore, rows: pa.Table) -> None:
    ids = set(rows.column("id").to_pylist())
    cache = accel.Cache()
    wanted = [rows.column("id")[5].as_py(), rows.column("id")[3 * GROUP + 5].as_py(), 40001, 40003]
    scan = ask(store, f"id IN ({', '.join(map(str, wanted))})", cache)
    assert sorted(scan.to_table().column("id").to_pylist()) == sorted(w for w in wanted if w in ids)
    assert scan.metrics.row_groups.kept == 2
    assert ask(store, "id = 40001 OR word = 'w40003'", cache).count_rows() == 0
    scan = ask(store, "id = 40001 AND pad IS NOT NULL", cache)
    assert scan.count_rows() == 0
    assert scan.metrics.row_groups.kept == 0
    assert ask(store, "NOT (id = 40001)", cache).count_rows() == ROWS
    assert ask(store, "id <> 40001", cache).count_rows() == ROWS
    assert ask(store, f"id = 40001 OR id = {wanted[0]}", cache).count_rows() == 1


def test_what_bounds_decide_asks_no_filter(store: RecordingStore) -> None:
    assert ask(store, "id = -7", accel.Cache()).to_table().num_rows == 0
    assert ask(store, "id = 2.5", accel.Cache()).to_table().num_rows == 0
    assert [call.want for call in store.calls] == [Suffix(HINT)] * 2


def test_little_in_doubt_is_read_rather_than_asked_for(store: RecordingStore) -> None:
    options = accel.Options(tail_hint=HINT, max_gap_bytes=0, probe_min_bytes=1 << 30)
    scan = ask(store, "id = 40001", accel.Cache(), options)
    assert scan.to_table().num_rows == 0
    assert Kind.BLOOM not in scan.metrics.requests_by_kind


DAY = datetime.date(2020, 1, 1)
TYPES = [
    (pa.int8(), [1, -2, 3, 100], [7, -100]),
    (pa.int16(), [1, -2, 3, 1000], [7, -100]),
    (pa.int32(), [1, -2, 3, 2**31 - 1], [7, -100]),
    (pa.uint32(), [1, 3, 2**32 - 1], [7, 2**31]),
    (pa.uint64(), [1, 3, 2**64 - 1], [7, 2**63]),
    (pa.float32(), [1.5, -0.0, 3.25], [2.5, 0.1]),
    (pa.float64(), [1.5, 0.0, 3.25], [2.5, 0.1]),
    (pa.decimal128(5, 2), [decimal.Decimal("1.25"), decimal.Decimal("-3.10")], [decimal.Decimal("0.5")]),
    (pa.decimal128(30, 4), [decimal.Decimal("1.25"), decimal.Decimal("-3.10")], [decimal.Decimal("0.5")]),
    (pa.string(), ["a", "", "é" * 40], ["b", "zz"]),
    (pa.binary(3), [b"abc", b"\xff\x00\x01"], [b"abd"]),
    (pa.date32(), [DAY, DAY + datetime.timedelta(9)], [DAY + datetime.timedelta(3)]),
    (
        pa.timestamp("ms"),
        [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)],
        [datetime.datetime(2020, 5, 1)],
    ),
    (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)],
        [datetime.datetime(2020, 5, 1)],
    ),
    (pa.time64("us"), [datetime.time(1, 2, 3)], [datetime.time(1, 2, 4)]),
]


@pytest.mark.parametrize(
    ("kind", "present", "absent"), TYPES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_every_type(kind: pa.DataType, present: list[object], absent: list[object]) -> None:
    values = pa.array([present[i % len(present)] for i in range(1000)] + [None], kind)
    more = {"bloom_filter_options": {"v": {"ndv": 100, "fpp": 0.0001}}}
    plain = write_file(
        table(v=values), Layout(page_rows=100, statistics=True, dictionary=False, page_index=False, more=more)
    )
    store = DictStore({"f.parquet": plain})
    col = accel.col("v")
    for value in [*present, 0.0 if pa.types.is_floating(kind) else present[0]]:
        expected = sum(v == value for v in values.to_pylist() if v is not None)
        found = accel.scan("f.parquet", col == value, store=store, cache=accel.Cache(), options=OPTIONS)
        assert found.count_rows() == expected, value
    for value in absent:
        scan = accel.scan("f.parquet", col == value, store=store, cache=accel.Cache(), options=OPTIONS)
        assert scan.to_table().num_rows == 0
        assert scan.metrics.row_groups.kept == 0, value


def test_uuid_columns() -> None:
    values = [uuid.UUID(int=i * 7919) for i in range(500)]
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([v.bytes for v in values], pa.binary(16)))
    more = {"bloom_filter_options": {"v": {"ndv": 500, "fpp": 0.0001}}}
    plain = write_file(table(v=array), Layout(dictionary=False, more=more))
    store = DictStore({"f.parquet": plain})
    where = f"v = '{values[77]}'"
    assert accel.scan("f.parquet", where, store=store, cache=accel.Cache(), options=OPTIONS).count_rows() == 1
    scan = accel.scan(
        "f.parquet", f"v = '{uuid.UUID(int=5)}'", store=store, cache=accel.Cache(), options=OPTIONS
    )
    assert scan.count_rows() == 0
    assert scan.metrics.row_groups.kept == 0


def test_a_damaged_filter_is_passed_over(store: RecordingStore, data: bytes, rows: pa.Table) -> None:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = parse_footer(data[start:-8], file_size=len(data), footer_start=start)
    broken = bytearray(data)
    for group in range(4):
        at = int(metadata.chunks.bloom_offset[group, 0])
        broken[at : at + 8] = b"\xff" * 8
    damaged = RecordingStore(DictStore({"f.parquet": bytes(broken)}))
    key = rows.column("id")[77].as_py()
    scan = ask(damaged, f"id = {key}", accel.Cache())
    assert scan.to_table().column("id").to_pylist() == [key]
    assert scan.metrics.indexes_ignored == 4
    assert scan.metrics.warnings
