"""`accel scan` and `accel explain`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Collection
from itertools import chain
from typing import Any

import pyarrow as pa

from accel.api import scan
from accel.cli.arguments import UsageError, scan_keywords
from accel.cli.output import (
    ArrowSink,
    CsvSink,
    JsonSink,
    ParquetSink,
    Sink,
    open_output,
    print_json,
    say,
    say_warnings,
    warnings_as_lines,
)
from accel.cli.terminal import TableSink, show_progress, summarize
from accel.scanning.scan import Scan

__all__ = ["run_explain", "run_scan"]

# Rows of a table without --limit.
_TABLE_ROWS = 100
_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "table",
}
_SINKS: dict[str, type[Any]] = {"csv": CsvSink, "json": JsonSink, "arrow": ArrowSink, "parquet": ParquetSink}


def run_scan(given: argparse.Namespace) -> None:
    """Scan and write the rows."""
    with warnings_as_lines() as shown:
        _run_scan(given, shown)


def _run_scan(given: argparse.Namespace, shown: Collection[str]) -> None:
    started = time.perf_counter()
    if given.count:
        _refuse_with_count(given)
        question = _scan(given)
        print(question.count_rows())
        _finish(given, question, started, shown)
        return
    kind = _choose_format(given)
    to_screen = given.output in (None, "-") and sys.stdout.isatty()
    if to_screen and kind in ("arrow", "parquet"):
        raise UsageError(f"{kind} is binary: not written to a terminal (save it with -o FILE, or pipe it)")
    limit = given.limit
    if given.aggregate:
        question = _scan(given, limit=limit)
        _write_row(question.aggregate(given.aggregate), kind, given.output)
        _finish(given, question, started, shown)
        return
    cut = kind == "table" and limit is None
    question = _scan(given, limit=_TABLE_ROWS + 1 if cut else limit)
    with question, show_progress(question, shown=not to_screen):
        more = _write(question, kind, given.output, _TABLE_ROWS if cut else None)
    if more:
        say(f"the first {_TABLE_ROWS} rows; --limit shows more, --format csv or json all")
    _finish(given, question, started, shown)


def _scan(given: argparse.Namespace, *, limit: int | None = None) -> Scan:
    source: Any = given.source[0] if len(given.source) == 1 else given.source
    return scan(source, limit=limit, **scan_keywords(given))


def _refuse_with_count(given: argparse.Namespace) -> None:
    for name in ("limit", "columns", "format", "output", "aggregate"):
        if getattr(given, name) is not None:
            raise UsageError(f"--count goes with no --{name}")


def _choose_format(given: argparse.Namespace) -> str:
    if given.format is not None:
        return str(given.format)
    if given.output in (None, "-"):
        return "table" if sys.stdout.isatty() else "csv"
    suffix = os.path.splitext(given.output)[1].lower()
    if suffix not in _SUFFIXES:
        raise UsageError(f"which format is {given.output!r} to have? (name it with --format)")
    return _SUFFIXES[suffix]


def _write(question: Scan, kind: str, output: str | None, most: int | None) -> bool:
    """Write all batches, or the first `most` rows; return whether there are more."""
    batches = question.to_batches()
    with open_output(output) as out:
        # The schema comes from the first batch: reading it beforehand would open a file twice.
        first = next(batches, None)
        schema = question.schema if first is None else first.schema
        sink = _make_sink(kind, out, schema)
        left = most
        for batch in chain([] if first is None else [first], batches):
            if left is not None and batch.num_rows > left:
                sink.write(batch.slice(0, left))
                sink.close()
                return True
            sink.write(batch)
            left = None if left is None else left - batch.num_rows
        sink.close()
    return False


def _write_row(found: pa.Table, kind: str, output: str | None) -> None:
    with open_output(output) as out:
        sink = _make_sink(kind, out, found.schema)
        for batch in found.to_batches():
            sink.write(batch)
        sink.close()


def _make_sink(kind: str, out: Any, schema: pa.Schema) -> Sink:
    if kind != "table":
        sink: Sink = _SINKS[kind](out, schema)
        return sink
    if out is sys.stdout.buffer:
        return TableSink(sys.stdout, schema)
    import codecs

    return TableSink(_Text(codecs.getwriter("utf-8")(out)), schema)


class _Text:
    """A text writer that is no terminal."""

    def __init__(self, writer: Any) -> None:
        self.write = writer.write
        self.flush = writer.flush

    def isatty(self) -> bool:
        return False


def _finish(given: argparse.Namespace, question: Scan, started: float, shown: Collection[str]) -> None:
    say_warnings(question.metrics, shown)
    if given.verbose:
        say(summarize(question.metrics, started=started))


def run_explain(given: argparse.Namespace) -> None:
    """Print the plan, and with `--analyze` what a run did."""
    started = time.perf_counter()
    with warnings_as_lines() as shown, _scan(given) as question:
        explained = question.explain(analyze=given.analyze)
    if given.json:
        print_json(dataclasses.asdict(explained))
    else:
        print(explained)
    _finish(given, question, started, shown)
