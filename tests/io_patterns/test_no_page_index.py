"""Files whose page index is absent, or not to be believed: read by whole chunk, once."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata, OffsetIndex
from accel.format.page_index import parse_offset_index
from accel.format.thrift import read_struct, write_struct
from accel.ranges import ByteRange
from accel.testing import DictStore, Layout, RecordingStore, bench_table, write_file
from tests.support.file_steps import split_rows

ROWS, GROUP, PAGE = 20_000, 10_000, 1_000
OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)


def parse(data: bytes) -> FileMetadata:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return parse_footer(data[start:-8], file_size=len(data), footer_start=start)


@pytest.mark.parametrize("data_page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_second_scan_reads_pages(data_page: str, codec: str) -> None:
    layout = Layout(group_rows=GROUP, page_rows=PAGE, page_index=False, data_page=data_page, codec=codec)
    plain = write_file(bench_table(ROWS), layout)
    metadata = parse(plain)
    store = RecordingStore(DictStore({"f.parquet": plain}))
    cache = accel.Cache(data=0)
    key, value = metadata.schema.names.index("key"), metadata.schema.names.index("value")

    def lookup(row: int) -> accel.Scan:
        scan = accel.scan(
            "f.parquet", f"key = {3 * row}", columns=["value"], store=store, cache=cache, options=OPTIONS
        )
        expected = bench_table(ROWS).column("value").slice(row, 1).to_pylist()
        assert scan.to_table().column("value").to_pylist() == expected
        return scan

    first = lookup(3_500)
    chunks = [
        ByteRange(int(metadata.chunks.start[0, leaf]), int(metadata.chunks.end[0, leaf]))
        for leaf in (key, value)
    ]
    assert store.fetched("f.parquet")[:-1] == chunks
    # Two chunks of which only a part was needed.
    assert first.metrics.fallbacks == 2
    store.clear()
    second = lookup(7_600)
    assert second.metrics.fallbacks == 0
    # The predicate's column has no page bounds, so all its pages are read; but by pages, with the value's,
    # of which those that the filter leaves open: all too. What is not read again are the dictionaries.
    assert store.bytes <= sum(r.length for r in chunks)
    store.clear()
    cut = accel.scan(
        "f.parquet",
        columns=["value"],
        selection={"f.parquet": {0: [(7_600, 7_601)]}},
        store=store,
        cache=cache,
        options=OPTIONS,
    )
    assert cut.to_table().num_rows == 1
    (page,) = store.fetched("f.parquet")
    assert page.length < chunks[1].length // 5


def test_rows_that_go_on_on_the_next_page_are_whole_however_often_they_are_asked_for() -> None:
    lists = pa.array([list(range(8 * i, 8 * i + 8)) for i in range(2_000)])
    layout = Layout(page_rows=100, page_index=False, data_page="2.0", codec="none", dictionary=False)
    data = write_file(pa.Table.from_arrays([pa.array(np.arange(2_000)), lists], names=["key", "x"]), layout)
    metadata = parse(data)
    start, end = int(metadata.chunks.start[0, 1]), int(metadata.chunks.end[0, 1])
    data = data[:start] + split_rows(memoryview(data)[start:end]) + data[end:]
    expected = pq.read_table(io.BytesIO(data)).column("x").to_pylist()
    assert {len(row) for row in expected} == {4, 8, 12}
    store, cache = DictStore({"f": data}), accel.Cache()
    assert accel.scan("f", store=store, cache=cache).to_table().column("x").to_pylist() == expected
    for row in (99, 98, 100, 150, 199, 99, 1_999):
        cut = {"f": {0: [(row, row + 1)]}}
        scan = accel.scan("f", columns=["x"], selection=cut, store=store, cache=cache)
        assert scan.to_table().column("x").to_pylist() == [expected[row]]
        scan = accel.scan("f", f"key = {row}", columns=["x"], store=store, cache=cache)
        assert scan.to_table().column("x").to_pylist() == [expected[row]]
        assert not scan.metrics.indexes_ignored


def test_large_chunks_without_index_are_cut_after_the_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.planning.task.DECODE_AT_ONCE", 100_000)
    table = bench_table(ROWS)
    plain = write_file(table, Layout(group_rows=ROWS, page_rows=PAGE, page_index=False))
    store = RecordingStore(DictStore({"f.parquet": plain}))
    options = accel.Options(tail_hint=4096, piece_bytes=30_000, max_gap_bytes=0, max_coalesced_bytes=8 << 20)
    scan = accel.scan("f.parquet", "amount > 500000", store=store, cache=accel.Cache(), options=options)
    batches = list(scan)
    assert len(batches) > 3
    expected = pq.read_table(io.BytesIO(plain), filters=[("amount", ">", 500_000)])
    assert pa.Table.from_batches(batches).equals(expected.replace_schema_metadata(None))
    # All chunks lie side by side: one request, and the tail.
    assert store.requests == 2
    assert store.depth == 2


def lying_offset_index(plain: bytes, change: str) -> bytes:
    """The file with the offset index of `value` in row group 0 changed, its length kept."""
    metadata = parse(plain)
    leaf = metadata.schema.names.index("value")
    start = int(metadata.chunks.offset_index_offset[0, leaf])
    length = int(metadata.chunks.offset_index_length[0, leaf])
    blob = plain[start : start + length]
    index: OffsetIndex = parse_offset_index(blob, num_rows=GROUP, lower=4, upper=metadata.footer_start)
    struct, end = read_struct(blob)
    assert end == length
    pages = struct[1][1].items
    if change == "first rows":
        pages[3][3] = (pages[3][3][0], int(index.first_row[3]) + 1)
    elif change == "sizes":
        pages[3][2] = (pages[3][2][0], int(index.size[3]) - 1)
    else:
        pages[3][1] = (pages[3][1][0], int(index.offset[3]) + 1)
        pages[3][2] = (pages[3][2][0], int(index.size[3]) - 1)
    changed = write_struct(struct)
    assert len(changed) == length
    assert changed != blob
    return plain[:start] + changed + plain[start + length :]


@pytest.mark.parametrize("change", ["first rows", "sizes", "offsets"])
def test_an_offset_index_that_the_pages_contradict_is_given_up(change: str) -> None:
    table = bench_table(ROWS)
    plain = write_file(table, Layout(group_rows=GROUP, page_rows=PAGE))
    lying = lying_offset_index(plain, change)
    store = RecordingStore(DictStore({"f.parquet": lying}))
    options = accel.Options(tail_hint=64 * 1024, max_gap_bytes=0)
    rows = np.arange(2_900, 4_100)
    where = f"key BETWEEN {3 * 2_900} AND {3 * 4_099}"
    scan = accel.scan(
        "f.parquet", where, columns=["value"], store=store, cache=accel.Cache(), options=options
    )
    expected = table.column("value").take(pa.array(rows))
    assert scan.to_table().column("value").to_pylist() == expected.to_pylist()
    assert scan.metrics.indexes_ignored == 1
    assert any("contradicts" in warning for warning in scan.metrics.warnings)
    strict = accel.Options(tail_hint=64 * 1024, max_gap_bytes=0, strict=True)
    with pytest.raises(accel.IndexFormatError, match=r"f\.parquet.*the page index contradicts the pages"):
        accel.scan(
            "f.parquet", where, columns=["value"], store=store, cache=accel.Cache(), options=strict
        ).to_table()
