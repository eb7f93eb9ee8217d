"""The heads of large indexes stand once more beside the footer, where the first read brings them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.format.embedded import TOC_KEY, Entry, parse_toc, unpack_head
from accel.testing import DictStore, Layout, RecordingStore, write_file
from accel.writing import embed
from tests.unit.writing.files import metadata_of

ROWS = 24_000
NAME = "f.parquet"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    keys = [(n * 7919 + 13) % ROWS * 3 for n in range(ROWS)]
    columns = [pa.array(keys, pa.int64()), pa.array([f"text {n % 900}" for n in range(ROWS)])]
    return pa.Table.from_arrays([*columns, pa.array(range(ROWS))], names=["key", "text", "place"])


@pytest.fixture
def path(tmp_path: Path, rows: pa.Table) -> str:
    file = tmp_path / NAME
    file.write_bytes(write_file(rows, Layout(group_rows=ROWS // 2, page_rows=500)))
    embed(file, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    return str(file)


def entries(path: str) -> tuple[Entry, ...]:
    toc = parse_toc(metadata_of(path))
    assert toc is not None
    return toc.entries


def test_each_is_what_the_index_begins_with(path: str) -> None:
    data, again = Path(path).read_bytes(), []
    for entry in entries(path):
        assert (entry.head_again is not None) is (entry.length > 64 << 10), entry
        if entry.head_again is not None:
            offset, length = entry.head_again
            first = data[entry.offset : entry.offset + entry.head]
            assert unpack_head(data[offset : offset + length], entry.head) == first
            again.append(offset + length)
    assert again
    assert again[-1] == metadata_of(path).footer_start


def test_embedding_again_leaves_none_behind(path: str) -> None:
    size = Path(path).stat().st_size
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert abs(Path(path).stat().st_size - size) < 40  # the seconds that it took, in digits


def scanned(data: bytes, key: int, **options: int) -> tuple[pa.Table, accel.Scan, RecordingStore]:
    store = RecordingStore(DictStore({NAME: data}))
    scan = accel.scan(
        NAME,
        f"key = {key}",
        store=store,
        cache=accel.Cache(),
        options=accel.Options(probe_min_bytes=0, **options),
    )
    return scan.to_table(), scan, store


@pytest.mark.parametrize("place", [0, 1, 11_999, 12_000, 23_999])
def test_lookups_save_a_round_trip_and_find_the_same(path: str, rows: pa.Table, place: int) -> None:
    wanted = rows.slice(place, 1).to_pylist()
    data, key = Path(path).read_bytes(), wanted[0]["key"]
    tail = len(data) - min(e.head_again[0] for e in entries(path) if e.head_again)
    found, scan, store = scanned(data, key, tail_hint=tail, max_tail_hint=tail)
    assert found.to_pylist() == wanted
    assert (scan.metrics.indexes_ignored, scan.metrics.rows.kept) == (0, 500)
    spans = [(e.offset, e.offset + e.head) for e in entries(path) if e.head_again]
    asked = [(call.range.start, call.range.end) for call in store.calls if call.range is not None]
    assert not set(spans) & set(asked)


@pytest.mark.parametrize(
    "told",
    [None, [], 9, "x", [3], [3, 9], [1 << 62, 9], [9, 1 << 62], [True, 9], [90, 0], [90, -1], {"a": 1}],
    ids=repr,
)
def test_a_place_that_is_none_is_passed_over(path: str, told: object) -> None:
    metadata = metadata_of(path)
    toc = json.loads(metadata.key_value[TOC_KEY])
    del toc["checksum"]
    for run in toc["indexes"]:
        run["heads_again"] = [told] * len(run["at"])
    metadata.key_value[TOC_KEY] = json.dumps(toc).encode()  # type: ignore[index]
    parsed = parse_toc(metadata)
    assert parsed is not None
    assert {entry.head_again for entry in parsed.entries} == {None}


def test_one_that_does_not_verify_costs_no_row(path: str, rows: pa.Table) -> None:
    wanted = rows.slice(77, 1).to_pylist()
    data = bytearray(Path(path).read_bytes())
    for entry in entries(path):
        if entry.head_again:
            data[entry.head_again[0] + 20] ^= 1
    found, scan, _ = scanned(bytes(data), wanted[0]["key"])
    assert found.to_pylist() == wanted
    assert scan.metrics.indexes_ignored == 2  # of each row group


def test_page_indexes_that_come_with_the_footer_still_do(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = [e.head_again[1] for e in entries(path) if e.head_again]
    metadata = metadata_of(path)
    first = int(metadata.chunks.column_index_offset.min())
    near = metadata.file_size - first - sum(packed)
    monkeypatch.setattr("accel.writing.tail.MOST_TAIL", near + packed[0] + 2048)
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert sum(e.head_again is not None for e in entries(path)) == 1
    monkeypatch.setattr("accel.writing.tail.MOST_TAIL", near - 4096)
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert sum(e.head_again is not None for e in entries(path)) == len(packed)
