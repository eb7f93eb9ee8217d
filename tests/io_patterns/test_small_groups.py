"""Row groups that are small: neighbours come in one request, whatever is asked of them."""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.ranges import ByteRange
from accel.testing import DictStore, FaultStore, Layout, RecordingStore, Status, bench_table, write_file

ROWS, GROUP = 6_000, 100
PATH = "groups.parquet"
HINT = 64 << 10
"""The footer and what else is behind the last row groups."""


@pytest.fixture(scope="module", params=[True, False], ids=["page index", "no page index"])
def data(request: pytest.FixtureRequest) -> bytes:
    return write_file(bench_table(ROWS), Layout(group_rows=GROUP, page_rows=50, page_index=request.param))


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def scan(
    store: Any, where: str | None = None, *, cache: accel.Cache | None = None, **more: Any
) -> accel.Scan:
    options = accel.Options(**{"tail_hint": HINT, **more.pop("options", {})})
    return accel.scan(PATH, where, store=store, cache=cache or accel.Cache(), options=options, **more)


def test_side_by_side_they_come_as_one(store: RecordingStore, data: bytes) -> None:
    footer = pq.read_metadata(io.BytesIO(data))
    body = footer.row_group(footer.num_row_groups - 1).column(5)
    end = body.data_page_offset + body.total_compressed_size
    found = scan(store)
    table = pq.read_table(io.BytesIO(data))
    assert found.to_table().equals(table.replace_schema_metadata(None))
    asked = sorted(call.range for call in store.calls if call.range is not None)
    # The last bytes came with the footer; of the others each once, in as few requests as their length takes.
    assert asked[0].start == 4
    assert all(one.end <= other.start for one, other in itertools.pairwise(asked))
    assert len(asked) - 1 <= math.ceil(end / (512 << 10)) + 1
    assert found.metrics.round_trips == 2


@pytest.mark.parametrize(
    "where",
    [
        None,
        "key >= 3000 AND key < 12000",
        "category = 'category 0007'",
        "category IN ('category 0001', 'category 0003') AND value > 0",
        "amount IS NULL AND key < 9000",
        "name LIKE '%7-%'",
        "key IN (3, 300, 3000, 3003, 17997)",
        "value > 99",
    ],
)
@pytest.mark.parametrize(
    "columns", [None, ["name"], ["key", "amount"], []], ids=["all", "one", "two", "none"]
)
def test_the_rows_are_those_of_each_group_read_by_itself(
    store: RecordingStore, where: str | None, columns: list[str] | None
) -> None:
    """With a limit each row group is read by itself."""
    cache = accel.Cache()
    found = scan(store, where, columns=columns, cache=cache)
    told = found.explain()
    store.clear()
    table = found.to_table()
    assert len(store.calls) == told.requests["data"]
    assert len(store.calls) < 8
    assert sum(call.range.length for call in store.calls if call.range is not None) == told.bytes["data"]
    alone = scan(store, where, columns=columns, limit=ROWS)
    assert table.equals(alone.to_table())
    again = scan(store, where, columns=columns, cache=cache)
    store.clear()
    assert again.to_table().equals(table)
    assert store.calls == []


def test_what_is_kept_of_them_is_not_asked_for(store: RecordingStore, data: bytes) -> None:
    cache, where = accel.Cache(), "key >= 3000 AND key < 3900 AND value > 0"
    for _ in range(2):
        found = scan(store, where, cache=cache)
        expected = found.to_table()
        assert found.metrics.rows_recalled == 0
    assert (cache.stats().result_entries, expected.num_rows > 100) == (3, True)
    cache.byte_tier.clear()
    store.clear()
    found = scan(store, where, cache=cache)
    assert found.to_table().equals(expected)
    assert (found.metrics.rows_recalled, store.calls) == (expected.num_rows, [])
    # Beside some that are not kept.
    other = "key >= 2700 AND key < 3900 AND value > 0"
    assert scan(store, other, cache=cache).to_table().equals(scan(store, other).to_table())


@pytest.mark.parametrize(
    "options",
    [{"phases": "two"}, {"piece_bytes": 1}, {"memory_limit": 40_000}, {"phases": "one"}],
    ids=["two phases", "small pieces", "little memory", "one phase"],
)
def test_options_hold_for_neighbours_too(store: RecordingStore, data: bytes, options: dict[str, Any]) -> None:
    found = scan(store, "value > 2", columns=["key", "name"], options=options).to_table()
    table = pq.read_table(io.BytesIO(data))
    assert found.equals(table.filter(pa.compute.greater(table["value"], 2)).select(["key", "name"]))


def test_what_of_them_cannot_be_read_is_told(data: bytes) -> None:
    def script(attempt: Any) -> Any:
        return Status(403) if isinstance(attempt.want, ByteRange) and attempt.want.start < 9_000 else None

    with pytest.raises(accel.StoreError, match="403") as caught:
        scan(FaultStore(DictStore({PATH: data}), script)).to_table()
    assert caught.value.path is not None
    assert PATH in caught.value.path


@pytest.mark.parametrize("where", ["key >= 3000 AND key < 12050", "value > 2 OR key = 300"])
def test_of_chunks_of_one_page_no_page_index_is_asked_for(where: str) -> None:
    data = write_file(bench_table(ROWS), Layout(group_rows=GROUP, page_rows=GROUP))
    store = RecordingStore(DictStore({PATH: data}))
    options = {"tail_hint": int.from_bytes(data[-8:-4], "little") + 8}
    found = scan(store, where, options=options)
    table = found.to_table()
    footer = pq.read_metadata(io.BytesIO(data))
    last = footer.row_group(footer.num_row_groups - 1).column(footer.num_columns - 1)
    pages_end = last.data_page_offset + last.total_compressed_size
    assert found.metrics.round_trips == 2
    asked = [call.range for call in store.calls if call.range is not None]
    # The footer, and then nothing that is not data.
    assert len(asked) > 1
    assert all(one.end <= pages_end for one in asked[1:])
    alone = pq.read_table(io.BytesIO(data)).replace_schema_metadata(None)
    keys, values = alone["key"], alone["value"]
    if "OR" in where:
        keep = pa.compute.or_(pa.compute.greater(values, 2), pa.compute.equal(keys, 300))
    else:
        keep = pa.compute.and_(pa.compute.greater_equal(keys, 3000), pa.compute.less(keys, 12050))
    assert table.equals(alone.filter(keep))
    assert 0 < table.num_rows < ROWS
    assert found.metrics.warnings == []
