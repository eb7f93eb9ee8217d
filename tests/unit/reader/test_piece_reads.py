"""Small row groups read together: errors are those of a row group read by itself."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import ParquetFormatError
from accel.testing import DictStore

GROUPS, ROWS = 20, 30
TABLE = pa.table(
    {
        "key": pa.array(range(GROUPS * ROWS), pa.int64()),
        "text": pa.array([f"text {row % 6}" for row in range(GROUPS * ROWS)]),
    }
)


def written() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=ROWS, compression="zstd", use_dictionary=["text"])
    return sink.getvalue()


def damaged(part: str, *groups: int) -> bytes:
    """With the text's chunks of these row groups broken: the header of its dictionary, or what is compressed
    of it."""
    data = bytearray(written())
    metadata = pq.read_metadata(io.BytesIO(bytes(data)))
    for group in groups:
        start = metadata.row_group(group).column(1).dictionary_page_offset
        data[start if part == "header" else data.index(b"\x28\xb5\x2f\xfd", start)] ^= 0xFF
    return bytes(data)


def ask(data: bytes, where: Any = None, **more: Any) -> accel.Scan:
    return accel.scan("f", where, store=DictStore({"f": data}), cache=None, **more)


def test_they_are_decoded_together(counted: list[tuple[int, bool]]) -> None:
    found = ask(written())
    assert found.to_table().equals(TABLE)
    assert counted == [(GROUPS, True)]
    assert [batch.num_rows for batch in found] == [GROUPS * ROWS]


def test_those_in_doubt_and_those_that_match_are_two_stacks(counted: list[tuple[int, bool]]) -> None:
    keys = ask(written(), "key >= 100 AND key < 500").to_table()["key"].to_pylist()
    assert keys == list(range(100, 500))
    # The row groups 3 and 16 are each alone undecided.
    assert counted == [(12, True)]
    counted.clear()
    found = ask(written(), "text = 'text 5' AND key >= 0").to_table()
    assert found["key"].to_pylist() == list(range(5, GROUPS * ROWS, 6))
    assert counted == [(GROUPS, True)]


@pytest.mark.parametrize("part", ["header", "body"])
@pytest.mark.parametrize("where", [None, "text <> 'text 9'"])
def test_what_is_wrong_names_its_row_group(
    part: str, where: str | None, counted: list[tuple[int, bool]]
) -> None:
    with pytest.raises(ParquetFormatError, match="row group 7, column text"):
        ask(damaged(part, 15, 7), where).to_table()
    assert not any(together for _, together in counted)


def test_what_they_select_is_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of any other piece, for what is expected of the next."""
    from accel.planning.two_phase import ObservedSelectivity

    told: list[tuple[int, int]] = []
    monkeypatch.setattr(
        ObservedSelectivity, "add", lambda _, *, tested, matched: told.append((tested, matched))
    )
    ask(written(), "text = 'text 5'").to_table()
    assert told == [(GROUPS * ROWS, GROUPS * ROWS // 6)]
    told.clear()
    ask(written(), "key >= 0").to_table()
    assert told == []


def test_two_tasks_of_a_row_group_may_begin_at_the_same_page() -> None:
    """An aggregate leaves some: of the undecided rows both columns are read, of the others the one without
    figures."""
    rows = 4000
    values = pa.array([((row * 2_654_435_761) % 1_000_003) / 8 for row in range(rows)], pa.float32())
    table = pa.table({"key": range(rows), "known": range(rows), "open": values})
    sink = io.BytesIO()
    pages = {"data_page_size": 1600, "write_batch_size": 20, "write_page_index": True}
    pq.write_table(table, sink, use_dictionary=False, compression="none", **pages)
    options = accel.Options(probe_min_bytes=0, tail_hint=4096)
    found = ask(sink.getvalue(), "key >= 1321", options=options).aggregate(
        [("known", "min"), ("open", "max")]
    )
    assert found.to_pylist() == [{"known_min": 1321, "open_max": max(values[1321:].to_pylist())}]


def test_the_rows_of_each_are_cached_where_they_are_few(counted: list[tuple[int, bool]]) -> None:
    cache, store = accel.Cache(), DictStore({"f": written()})
    found = []
    for _ in range(3):
        scan = accel.scan("f", "text = 'text 5' AND key < 500", store=store, cache=cache)
        assert scan.to_table()["key"].to_pylist() == list(range(5, 500, 6))
        found.append((scan.metrics.rows_recalled, len(counted)))
    assert found == [(0, 1), (0, 2), (83, 2)]
