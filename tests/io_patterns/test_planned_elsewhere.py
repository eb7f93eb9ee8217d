"""Tasks that were planned elsewhere, in a process that has no metadata of their files: their pages are cached
all the same.

An answer to a pinned request tells that the version is current. Its pages are used within `max_age` of that,
as those of a file whose metadata is cached are.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.store.writes import note_written
from accel.testing import DictStore, RecordingStore

ROWS = 400


def _file(first: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": pa.array(range(first, first + ROWS), pa.int64())})
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=20, write_batch_size=20)
    return sink.getvalue()


@pytest.fixture
def inner() -> DictStore:
    return DictStore({"a.parquet": _file(0)})


@pytest.fixture
def tasks(inner: DictStore) -> pa.Table:
    options = accel.Options(tail_hint=64)
    return accel.plan("a.parquet", "id = 7", store=inner, cache=accel.Cache(), options=options).to_arrow()


def _ids(tasks: pa.Table, store: RecordingStore, cache: accel.Cache) -> list[int]:
    found: list[int] = (
        accel.scan(accel.Plan.from_arrow(tasks), store=store, cache=cache).to_table()["id"].to_pylist()
    )
    return found


def test_the_second_read_sends_nothing(inner: DictStore, tasks: pa.Table) -> None:
    store, cache = RecordingStore(inner), accel.Cache()
    assert _ids(tasks, store, cache) == [7]
    assert store.requests == 1
    assert _ids(tasks, store, cache) == [7]
    assert store.requests == 1


@pytest.mark.parametrize(
    "cache", [accel.Cache(max_age=0), accel.Cache(data=0), None], ids=["age", "data", "none"]
)
def test_a_cache_that_does_not_keep_pages(
    inner: DictStore, tasks: pa.Table, cache: accel.Cache | None
) -> None:
    store = RecordingStore(inner)
    for number in (1, 2):
        assert accel.scan(accel.Plan.from_arrow(tasks), store=store, cache=cache).count_rows() == 1
        assert store.requests == number


def test_a_version_that_was_replaced(inner: DictStore, tasks: pa.Table) -> None:
    """It is served within `max_age`, unless this process has written the object; then its pages are dropped
    for good."""
    store, cache = RecordingStore(inner), accel.Cache()
    assert _ids(tasks, store, cache) == [7]
    inner.objects["a.parquet"] = _file(1000)
    assert _ids(tasks, store, cache) == [7]
    assert store.requests == 1
    note_written(tasks["root"][0].as_py(), "a.parquet")
    with pytest.raises(accel.ObjectChangedError):
        _ids(tasks, store, cache)
    with pytest.raises(accel.ObjectChangedError):
        _ids(tasks, store, cache)


def test_a_changed_file_is_found_out_by_the_first_read(inner: DictStore, tasks: pa.Table) -> None:
    store = RecordingStore(inner)
    inner.objects["a.parquet"] = _file(1000)
    with pytest.raises(accel.ObjectChangedError):
        _ids(tasks, store, accel.Cache())
