"""A sweep of damaged files through a worker process, and what must come of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from accel.testing import Layout, write_file

__all__ = ["Outcomes", "damaged_table", "plain_file", "run_sweep", "small_file"]

ROOT = Path(__file__).resolve().parents[2]
Case = tuple[str, bytes, str, bool]
"""Name; the damaged bytes; "full", "selection" or a predicate; and whether to read in many small requests."""


@dataclass
class Outcomes:
    """What came of a sweep."""

    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """What was told, by case."""
    slowest: float = 0.0
    peak_bytes: int = 0


def run_sweep(folder: Path, intact: bytes, cases: list[Case]) -> Outcomes:
    """Run the cases in one worker. An abort or a hang is told as a bad case, and ends the sweep."""
    given = folder / "cases.pickle"
    given.write_bytes(pickle.dumps((intact, cases)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.corrupt.scan_worker", str(given)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    outcomes = Outcomes()
    last: dict[str, Any] = {}
    for line in ran.stdout.splitlines():
        last = json.loads(line)
        if "outcome" in last:
            outcomes.counts[last["outcome"]] += 1
            outcomes.slowest = max(outcomes.slowest, last["seconds"])
            outcomes.errors[last["name"]] = last["told"]
            if last["outcome"] in ("WRONG", "escaped", "unnamed"):
                outcomes.bad.append(f"{last['name']}: {last['outcome']}: {last['told']}")
    if "done" not in last or ran.returncode:
        outcomes.bad.append(
            f"the worker ended with {ran.returncode} at {last.get('name')}: {ran.stderr[-3000:]}"
        )
    outcomes.peak_bytes = int(last.get("peak_kib", 0)) * 1024
    return outcomes


def damaged_table() -> pa.Table:
    rows = 60
    numbers = pa.array([None if i % 9 == 0 else i for i in range(rows)], pa.int64())
    words = pa.array([None if i % 11 == 0 else f"w{i % 5}" for i in range(rows)])
    floats = pa.array([i / 4 for i in range(rows)], pa.float32())
    lists = pa.array([None if i % 7 == 0 else list(range(i % 4)) for i in range(rows)], pa.list_(pa.int32()))
    structs = pa.array(
        [{"a": i, "b": f"s{i}"} for i in range(rows)], pa.struct([("a", pa.int16()), ("b", pa.string())])
    )
    return pa.Table.from_arrays([numbers, words, floats, lists, structs], names=["n", "w", "f", "l", "st"])


def small_file(**layout: Any) -> bytes:
    """Two row groups, pages of ten rows, a page index, checksums; dictionaries for the words."""
    settings: dict[str, Any] = {
        "group_rows": 30,
        "page_rows": 10,
        "codec": "snappy",
        "dictionary": ["w"],
        "checksums": True,
        "arrow_schema": False,
    }
    return write_file(damaged_table(), Layout(**(settings | layout)))


def plain_file() -> bytes:
    """Without page index, statistics and checksums: chunks are read whole."""
    return small_file(page_index=False, statistics=False, checksums=False, data_page="2.0", codec="none")
