"""Rows that do not fit into memory come out sorted, each once."""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.catalog.sorted_runs import SortedRuns

COLUMNS = ("value", "place")
ORDER = [(name, "ascending") for name in COLUMNS]
RNG = np.random.default_rng(3)


def texts(count: int) -> pa.Array:
    return pa.array([f"name-{number}" * (number % 3) for number in list(RNG.integers(0, 900, count))])


def floats(count: int) -> pa.Array:
    values = RNG.integers(-50, 50, count) / 4
    values[::7], values[1::11], values[2::13] = np.nan, np.inf, -0.0
    return pa.array(values)


MAKERS: dict[str, Any] = {
    "integers": lambda n: pa.array(RNG.integers(-(2**62), 2**62, n)),
    "few integers": lambda n: pa.array(RNG.integers(0, 5, n).astype(np.int16)),
    "unsigned": lambda n: pa.array(RNG.integers(0, 2**64, n, dtype=np.uint64)),
    "floats": floats,
    "texts": texts,
    "large texts": lambda n: texts(n).cast(pa.large_string()),
    "bytes": lambda n: texts(n).cast(pa.binary()),
    "uuids": lambda n: pa.array([RNG.bytes(16) for _ in range(n)], pa.binary(16)),
    "dates": lambda n: pa.array(RNG.integers(0, 20_000, n).astype(np.int32)).cast(pa.date32()),
    "decimals": lambda n: pa.array([decimal.Decimal(int(x)) / 100 for x in RNG.integers(-999, 999, n).tolist()], pa.decimal128(9, 2)),
    "integers and nulls": lambda n: pa.array([None if x % 3 else int(x) for x in RNG.integers(0, 40, n).tolist()], pa.int64()),
    "instants": lambda n: pa.array(RNG.integers(0, 2**50, n)).cast(pa.timestamp("us", "UTC")),
}  # fmt: skip


def comparable(row: dict[str, Any]) -> Any:
    """Null comes after all values, and NaN after all numbers."""
    value = row["value"]
    if value is None:
        return 2, 0, row["place"]
    if isinstance(value, float) and math.isnan(value):
        return 1, 0, row["place"]
    return 0, value, row["place"]


@pytest.mark.parametrize("run_bytes", [1, 1_000, 1 << 30])
@pytest.mark.parametrize("kind", MAKERS)
def test_rows_come_out_sorted_and_once(kind: str, run_bytes: int) -> None:
    parts = []
    with SortedRuns(ORDER, run_bytes=run_bytes) as runs:
        for file in range(12):
            count = int(RNG.integers(0, 600))
            places = pa.array(RNG.integers(0, 4, count) + (file << 32))
            parts.append(pa.table([MAKERS[kind](count), places], names=list(COLUMNS)))
            runs.add(parts[-1])
        found = pa.concat_tables(runs.sorted())
        assert bool(runs.spilled) or run_bytes > 1_000
        assert runs.num_rows == len(found)
    expected = {comparable(row): row for part in parts for row in part.to_pylist()}
    assert [comparable(row) for row in found.to_pylist()] == sorted(expected)
    assert found.schema == parts[0].schema


def test_what_is_in_memory_is_bounded_and_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    limit, rows, files = 200_000, 5_000, 60
    before = pa.total_allocated_bytes()
    peak = 0
    with SortedRuns(ORDER, run_bytes=limit) as runs:
        for file in range(files):
            values = pa.array(RNG.integers(0, 2**60, rows))
            runs.add(pa.table([values, pa.array(np.arange(rows) + (file << 32))], names=list(COLUMNS)))
            del values
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert list(tmp_path.rglob("*.arrow"))
        seen, last = 0, -1
        for part in runs.sorted():
            values = part.column("value").to_numpy()
            assert values[0] >= last
            seen, last = seen + len(part), values[-1]
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert seen == files * rows
    assert runs.spilled >= files * rows * 16
    # 4.8 MB of rows.
    assert peak < 4 * limit
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("run_bytes", [1, 5_000, 1 << 30])
def test_other_columns_come_along(run_bytes: int) -> None:
    """No row is dropped then."""
    parts = []
    with SortedRuns([("value", "ascending")], run_bytes=run_bytes) as runs:
        for file in range(8):
            values = pa.array(RNG.integers(0, 20, 100))
            parts.append(pa.table({"value": values, "more": [[file, at] for at in range(100)]}))
            runs.add(parts[-1])
        found = pa.concat_tables(runs.sorted())
    assert found.column("value").to_pylist() == sorted(v for part in parts for v in part["value"].to_pylist())
    rows = [(row["value"], *row["more"]) for part in parts for row in part.to_pylist()]
    assert sorted((row["value"], *row["more"]) for row in found.to_pylist()) == sorted(rows)


@pytest.mark.parametrize("run_bytes", [1, 3_000])
@pytest.mark.parametrize("directions", [("descending", "ascending"), ("ascending", "descending")])
@pytest.mark.parametrize("kind", MAKERS)
def test_runs_are_merged_in_the_order_of_a_sort_in_memory(
    kind: str, directions: tuple[str, str], run_bytes: int
) -> None:
    """Whatever the directions: nulls come last, and NaN after all numbers."""
    order = list(zip(COLUMNS, directions, strict=True))
    parts = []
    with SortedRuns(order, run_bytes=run_bytes) as runs:
        for file in range(6):
            places = pa.array(np.arange(300) + file * 300)
            columns = [MAKERS[kind](300), places, pa.array([file] * 300)]
            parts.append(pa.table(columns, names=[*COLUMNS, "file"]))
            runs.add(parts[-1])
        found = pa.concat_tables(runs.sorted())
        assert runs.spilled
    assert found.column("place").to_pylist() == pa.concat_tables(parts).sort_by(order)["place"].to_pylist()


@pytest.mark.parametrize("run_bytes", [1, 2_000, 9_000, 1 << 30])
@pytest.mark.parametrize("direction", ["ascending", "descending"])
def test_rows_that_are_alike_stay_in_their_order(direction: str, run_bytes: int) -> None:
    """Whatever the size of runs and of their blocks: values are few, and reach over many blocks."""
    order = [("value", direction)]
    makers = [MAKERS["few integers"], MAKERS["texts"], MAKERS["floats"], MAKERS["integers and nulls"]]
    for make in makers:
        parts, rows = [], 0
        with SortedRuns(order, run_bytes=run_bytes) as runs:
            for count in RNG.integers(0, 900, 9).tolist():
                parts.append(
                    pa.table(
                        [make(count), pa.array(range(rows, rows + count), pa.int64())], names=list(COLUMNS)
                    )
                )
                runs.add(parts[-1])
                rows += count
            found = pa.concat_tables(runs.sorted())
        assert found["place"].to_pylist() == pa.concat_tables(parts).sort_by(order)["place"].to_pylist()


def test_nothing_comes_of_nothing() -> None:
    with SortedRuns(ORDER) as runs:
        assert list(runs.sorted()) == []


def test_the_type_survives_when_dates_are_the_values() -> None:
    with SortedRuns(ORDER, run_bytes=1) as runs:
        for day in (3, 1, 2):
            runs.add(pa.table({"value": [datetime.date(2024, 1, day)], "place": [day]}))
        assert [row["place"] for part in runs.sorted() for row in part.to_pylist()] == [1, 2, 3]
