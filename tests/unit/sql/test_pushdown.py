"""What each engine pushes into accel: the table of docs/engines.md, by the bytes that are read and the rows that
the engine gets."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
import accel.polars
from accel.testing.stores import DictStore, RecordingStore

FILES, ROWS = 6, 20_000
DOCS = Path(__file__).parents[3] / "docs" / "engines.md"


def _objects() -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    out = {}
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        pads = [rng.bytes(60).hex() for _ in range(ROWS)]
        sink = io.BytesIO()
        table = pa.table({"id": ids, "small": ids % 7, "pad": pads})
        pq.write_table(
            table, sink, row_group_size=5_000, write_page_index=True, compression="none", use_dictionary=False
        )
        out[f"t/{number}.parquet"] = sink.getvalue()
    return out


OBJECTS = _objects()
TOTAL = sum(map(len, OBJECTS.values()))

Ask = Callable[[Any, str], int]


def _duckdb(data: Any, sql: str) -> int:
    with duckdb.connect() as connection:
        return len(connection.register("data", data).sql(sql).fetchall())


def _datafusion(data: Any, sql: str) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("data", data)
    return context.sql(sql).to_arrow_table().num_rows


def _polars_dataset(data: Any, sql: str) -> int:
    return _polars(pl.scan_pyarrow_dataset(data), sql)


def _polars(frame: Any, sql: str) -> int:
    return pl.SQLContext({"data": frame}, eager=True).execute(sql).height


ENGINES: dict[str, Ask] = {
    "DuckDB": _duckdb,
    "DataFusion": _datafusion,
    "Polars, `scan_pyarrow_dataset`": _polars_dataset,
    "Polars, `accel.polars.scan`": _polars,
}
QUESTIONS = {
    "columns": "SELECT small FROM data",
    "comparisons": "SELECT pad FROM data WHERE id >= 61000 AND id < 61010",
    "`IN`": "SELECT pad FROM data WHERE id IN (61000, 61001)",
    "`LIMIT`": "SELECT pad FROM data LIMIT 3",
}
COUNTS = {"columns": FILES * ROWS, "comparisons": 10, "`IN`": 2, "`LIMIT`": 3}


def _pushed(engine: str, question: str) -> tuple[float, int]:
    """The part of all bytes that is read, and the rows that accel hands to the engine."""
    store, events = RecordingStore(DictStore(OBJECTS)), []
    given = {"store": store, "cache": None, "options": accel.Options(on_event=events.append)}
    opened = accel.polars.scan if engine.endswith("`accel.polars.scan`") else accel.dataset
    assert ENGINES[engine](opened("t/", **given), QUESTIONS[question]) == COUNTS[question]
    rows = sum(event.counts["rows_out"] for event in events if event.name == "scan ended")
    return sum(call.received for call in store.calls) / TOTAL, rows


def _documented() -> dict[tuple[str, str], bool]:
    lines = DOCS.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| engine |"))
    names = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        engine, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name, cell in zip(names, cells, strict=True):
            found[engine, name] = cell.startswith("yes")
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_table_says_what_is_pushed(engine, question):
    share, rows = _pushed(engine, question)
    print(f"{engine} {question}: {share:.2f} of the bytes, {rows} rows")
    pushed = _documented()[engine, question]
    assert (rows == COUNTS[question]) == pushed, rows
    # A cold first read takes 128 KiB of each file, about a twentieth.
    assert not pushed or share < 0.12, share


def test_a_plain_scan_below_duckdb_reads_everything():
    store = RecordingStore(DictStore(OBJECTS))
    scan = accel.scan("t/", store=store, cache=None)
    with duckdb.connect() as connection:
        assert connection.register("data", scan).sql("SELECT pad FROM data WHERE id = 61000").fetchall() != []
    assert sum(call.received for call in store.calls) > TOTAL * 0.9


def test_an_engines_question_is_the_scans():
    rows = []
    for ask in (
        lambda store: accel.dataset("t/", store=store, cache=None).to_table(
            ["pad"], pc.field("id") == 61_000
        ),
        lambda store: accel.scan("t/", "id = 61000", columns=["pad"], store=store, cache=None).to_table(),
    ):
        store = RecordingStore(DictStore(OBJECTS))
        rows.append(
            (ask(store).to_pydict(), sum(call.received for call in store.calls if "3.parquet" in call.path))
        )
    assert rows[0] == rows[1]


def test_the_page_names_tested_engines_only():
    assert {engine for engine, _ in _documented()} == set(ENGINES)
    assert not re.search(r"\bTODO\b", DOCS.read_text())
