"""Delta logs that are read in parts: commits some at a time, and their lines in blocks. However they are cut,
the version is the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import RecordingStore
from tests.support.delta_table import DeltaTableInMemory

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
PARTS = "accel.tables.formats.delta"
CUTS = [(1, 1), (1, 1 << 30), (700, 1), (700, 300), (5_000, 900), (1 << 30, 1), (1 << 30, 250)]
"""Bytes of commits that are held at a time, and bytes of lines that are parsed at a time."""


def rows(number: int) -> pa.Table:
    return pa.table({"id": [10 * number, 10 * number + 9]}, pa.schema([SCHEMA.field("id")]))


def add(table: DeltaTableInMemory, number: int, **more: Any) -> dict[str, Any]:
    day = f"2024-01-{number % 3 + 1:02d}"
    return table.add(f"p={day}/{number} ü.parquet", rows(number), partitionValues={"day": day}, **more)


def random_table(seed: int) -> DeltaTableInMemory:
    """Return a table of thirty commits, which add files and take them away; some have blank lines."""
    dice = random.Random(seed)
    table = DeltaTableInMemory(SCHEMA, partition_columns=["day"])
    there: list[int] = []
    number = 0
    for version in range(1, 31):
        actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}]
        for _ in range(dice.randrange(3)):
            if there:
                gone = there.pop(dice.randrange(len(there)))
                path = add(table, gone)["add"]["path"]
                actions.append({"remove": {"path": path, "dataChange": True}})
        for _ in range(dice.randrange(5)):
            actions.append(add(table, number, **({"stats": None} if number % 7 == 3 else {})))
            there.append(number)
            number += 1
        lines = "\n".join(json.dumps(action) for action in actions)
        if version % 4 == 1:
            lines = lines.replace("\n", "\r\n \n\n") + "\n\n"
        table.version += 1
        table.write_log(f"{table.version:020d}.json", lines.encode())
    return table


def outcome(table: DeltaTableInMemory, where: str | None, version: int | None = None) -> Any:
    """Return the rows and what is said of the table, or the error."""
    source = accel.tables.delta("t", version=version)
    scan = accel.scan(source, where, store=table.store, cache=accel.Cache())
    try:
        found = scan.to_table()
    except accel.AccelError as error:
        return type(error), str(error)
    facts = scan.metrics.table
    assert facts is not None
    return (
        found.to_pydict(),
        facts.version,
        facts.files,
        facts.excluded_by_partition,
        facts.excluded_by_bounds,
    )


def cut(patch: pytest.MonkeyPatch, window: int, block: int) -> None:
    patch.setattr(f"{PARTS}.log.WINDOW_BYTES", window)
    patch.setattr(f"{PARTS}.actions.BLOCK_BYTES", block)
    patch.setattr(f"{PARTS}.statistics.BLOCK_BYTES", block)


@pytest.mark.parametrize("seed", range(3))
def test_however_a_log_is_cut_the_version_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(seed)
    questions = [(None, None), ("day = '2024-01-02'", None), ("id > 300 AND id < 400", None), ("id = 9", 11)]
    expected = [outcome(table, *question) for question in questions]
    assert all(isinstance(found[0], dict) for found in expected) and len(expected[0][0]["id"]) > 20
    for window, block in CUTS:
        with monkeypatch.context() as patch:
            cut(patch, window, block)
            assert [outcome(table, *question) for question in questions] == expected


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"add": {"path": "x"}}',
        b'{"add": 5}',
        b'{"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}',
        b"\xff\xfe{}",
        b"{",
    ],
)
def test_however_a_log_is_cut_the_error_is_the_same(damaged: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(3)
    table.write_log(f"{17:020d}.json", damaged)
    expected = outcome(table, None)
    assert issubclass(expected[0], accel.TableFormatError)
    for window, block in CUTS:
        with monkeypatch.context() as patch:
            cut(patch, window, block)
            assert outcome(table, None) == expected


def test_partition_columns_may_change_within_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTableInMemory(SCHEMA, partition_columns=["day"])
    table.commit(add(table, 0), add(table, 1))
    removed = [{"remove": {"path": add(table, number)["add"]["path"]}} for number in (0, 1)]
    other = {**table.metadata, "partitionColumns": []}
    whole = pa.table({"id": [7], "day": ["never"]}, SCHEMA)
    table.commit(*removed, {"metaData": other}, table.add("whole.parquet", whole))
    table.commit(table.add("more.parquet", pa.table({"id": [8], "day": ["ever"]}, SCHEMA)))
    expected = {"id": [7, 8], "day": ["never", "ever"]}, 3, 2, 0, 0
    assert outcome(table, None) == expected
    cut(monkeypatch, 1, 1)
    assert outcome(table, None) == expected


def test_commits_of_one_part_are_requested_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTableInMemory(SCHEMA, partition_columns=["day"])
    for number in range(6):
        table.commit(add(table, number))
    sizes = [len(data) for path, data in table.store.objects.items() if path.endswith(".json")]
    store = RecordingStore(table.store)
    for window, waves in ((1 << 30, 3), (sum(sizes[:4]), 4)):
        with monkeypatch.context() as patch:
            cut(patch, window, 1 << 30)
            store.clear()
            found = accel.scan(
                accel.tables.delta("t"), "id = 29", store=store, cache=accel.Cache(), index=None
            )
            assert found.to_table().to_pydict() == {"id": [29], "day": ["2024-01-03"]}
            assert (store.waves, found.metrics.round_trips) == (waves, waves)
            assert found.metrics.table is not None
            assert found.metrics.table.log_requests == 2 + 7
