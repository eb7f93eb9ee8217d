"""The first request of a file: how much of its end, for one alone, for its neighbours, and for listed
ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.footer import parse_footer
from accel.ranges import Kind, Suffix
from accel.store.network import Network
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

KIB = 1024
ROWS = 100_000
WHERE = "key = 1"


@pytest.fixture(autouse=True)
def _far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far away as is assumed of a store that is not known, whatever is learned of one in memory."""
    monkeypatch.setattr(Network, "early_bytes", property(lambda network: 512 * KIB))


def rows(page_rows: int) -> bytes:
    noise = np.random.default_rng(3).random(ROWS)
    return write_file(
        table(key=pa.array(np.arange(ROWS)), noise=noise),
        Layout(group_rows=50_000, page_rows=page_rows, dictionary=False),
    )


@pytest.fixture(scope="module")
def coarse() -> bytes:
    """A MiB with next to no page index."""
    return rows(10_000)


@pytest.fixture(scope="module")
def fine() -> bytes:
    """Page indexes begin further from the end than 128 KiB, and nearer than 448."""
    data = rows(25)
    assert 160 * KIB < metadata_bytes(data) < 448 * KIB
    return data


def metadata_bytes(data: bytes) -> int:
    """Of the footer and the page indexes."""
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    chunks = parse_footer(data[start:-8], file_size=len(data), footer_start=start).chunks
    return len(data) - int(min(chunks.column_index_offset.min(), chunks.offset_index_offset.min()))


def lookup(store: RecordingStore, path: str, cache: accel.Cache) -> accel.Scan:
    store.clear()
    scan = accel.scan(path, WHERE, store=store, cache=cache)
    assert scan.to_table()["key"].to_pylist() == [1]
    return scan


def first(store: RecordingStore) -> object:
    return store.calls[0].want


def test_a_page_index_that_is_long_comes_with_the_footer(fine: bytes) -> None:
    store = RecordingStore(DictStore({"x.parquet": fine}))
    scan = lookup(store, "x.parquet", accel.Cache())
    assert first(store) == Suffix(448 * KIB)
    assert scan.metrics.round_trips == store.waves == 2
    assert set(scan.metrics.requests_by_kind) == {Kind.TAIL, Kind.PAGE}


def test_neighbours_of_a_file_that_takes_less_are_asked_for_less(coarse: bytes, fine: bytes) -> None:
    files = {"d/1.parquet": coarse, "d/2.parquet": coarse, "d/3.parquet": fine, "d/4.parquet": fine}
    store, cache = RecordingStore(DictStore(files)), accel.Cache()
    found = []
    for path in files:
        scan = lookup(store, path, cache)
        found.append((first(store), scan.metrics.round_trips))
    assert found == [
        (Suffix(448 * KIB), 2),
        (Suffix(128 * KIB), 2),
        (Suffix(128 * KIB), 3),
        (Suffix(metadata_bytes(fine) * 5 // 4), 2),
    ]


def test_of_listed_files_as_much_as_their_size_asks_for(coarse: bytes) -> None:
    store = RecordingStore(DictStore({f"d/{i}.parquet": coarse for i in range(3)}))
    scan = accel.scan("d/", WHERE, store=store, cache=accel.Cache())
    assert scan.count_rows() == 3
    tails = [call.want for call in store.calls if isinstance(call.want, Suffix)]
    assert tails == 3 * [Suffix(128 * KIB)]


def test_local_files_are_near(coarse: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(coarse)
    scan = accel.scan(str(tmp_path / "x.parquet"), WHERE, cache=accel.Cache())
    assert scan.count_rows() == 1
    assert scan.metrics.bytes_by_kind[Kind.TAIL] == 128 * KIB
