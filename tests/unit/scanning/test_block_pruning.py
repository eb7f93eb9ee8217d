"""Cold files that are judged together are counted, explained and read as when each is planned by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.scanning import block_pruning
from accel.testing import DictStore, Layout, table, write_file

FILES = {
    f"d/p={number % 3}/{number:03d}.parquet": write_file(
        table(n=pa.array(range(10 * number, 10 * number + 10)), s=pa.array([f"s{number}"] * 10)),
        Layout(group_rows=5),
    )
    for number in range(40)
}
FILES["d/p=1/lacking.parquet"] = write_file(table(s=pa.array(["s7"])))
FILES["d/p=1/empty.parquet"] = write_file(table(n=pa.array([], pa.int64()), s=pa.array([], pa.string())))

PREDICATES = ["n = 123", "n > 380", "n < 0", "s = 's7'", "n IS NULL", "p = 1 AND n = 73", "p = 2 OR n = 3"]


def run(where: str, **keywords: Any) -> tuple[list[dict[str, Any]], dict[str, object], str]:
    scan = accel.scan("d/", where, store=DictStore(FILES), cache=accel.Cache(), **keywords)
    rows = scan.to_table().to_pylist()
    counts = dataclasses.replace(scan.metrics).as_dict()
    plan = accel.plan("d/", where, store=DictStore(FILES), cache=accel.Cache(), **keywords)
    return rows, counts, str(plan.explain())


@pytest.mark.parametrize("where", PREDICATES)
def test_together_as_alone(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    judged: list[int] = []
    found = block_pruning.excluded_files

    def recorded(handles: Any, query: Any) -> list[bool]:
        judged.append(len(handles))
        return found(handles, query)

    monkeypatch.setattr(block_pruning, "excluded_files", recorded)
    together = run(where)
    assert max(judged) >= 3

    monkeypatch.setattr(block_pruning, "excluded_files", lambda handles, query: [False] * len(handles))
    assert run(where) == together


@pytest.mark.parametrize(
    "keywords",
    [{"selection": {"d/p=0/000.parquet": {0: [(0, 2)]}}}, {"embedded": {"n": "idx1"}}],
    ids=["a selection", "an index named"],
)
def test_what_has_more_to_say_is_planned_one_by_one(
    monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any]
) -> None:
    monkeypatch.setattr(block_pruning, "excluded_files", None)  # it cannot be called
    scan = accel.scan("d/", "n < 2", store=DictStore(FILES), cache=accel.Cache(), **keywords)
    assert scan.to_table()["n"].to_pylist() == [0, 1]
