"""`accel scan` and `accel explain`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Collection
from contextlib import nullcontext
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from accel.api import scan
from accel.cli.arguments import UsageError, scan_keywords
from accel.cli.output import (
    ArrowSink,
    CsvSink,
    JsonSink,
    MarkdownSink,
    ParquetSink,
    Sink,
    TsvSink,
    open_output,
    print_json,
    say,
    say_warnings,
    warnings_as_lines,
    write_page,
)
from accel.cli.terminal import TableSink, Waiting, show_progress, summarize
from accel.errors import redact
from accel.scanning.scan import Scan
from accel.tables.table_formats import settle_source
from accel.writing.scanned_rows import find_stored_types
from accel.writing.stored_types import StoredTypes

__all__ = ["run_distinct", "run_explain", "run_scan"]

# Rows of a table without --limit.
_TABLE_ROWS = 100
# The exit status where files were left out.
_SOME_LEFT_OUT = 3
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".md": "markdown",
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
_SINKS: dict[str, type[Any]] = {
    "csv": CsvSink,
    "tsv": TsvSink,
    "json": JsonSink,
    "markdown": MarkdownSink,
    "arrow": ArrowSink,
    "parquet": ParquetSink,
}


def run_scan(given: argparse.Namespace) -> int:
    """Scan and write the rows; return the exit status."""
    with warnings_as_lines() as shown:
        return _run_scan(given, shown)


def _run_scan(given: argparse.Namespace, shown: Collection[str]) -> int:
    started = time.perf_counter()
    if given.count:
        _refuse_with_count(given)
        question = _scan(given)
        with _waiting(given, question):
            counted = question.count_rows()
        print(counted)
        return _finish(given, question, started, shown, rows=False)
    kind = _choose_format(given)
    to_screen = given.output in (None, "-") and sys.stdout.isatty()
    if to_screen and kind in ("arrow", "parquet"):
        raise UsageError(f"{kind} is binary: not written to a terminal (save it with -o FILE, or pipe it)")
    limit = given.limit
    if given.aggregate:
        question = _scan(given, limit=limit)
        with _waiting(given, question):
            found = question.aggregate(given.aggregate)
        _write_row(found, kind, given.output)
        return _finish(given, question, started, shown, rows=False)
    cut = kind == "table" and limit is None
    question = _scan(given, limit=_TABLE_ROWS + 1 if cut else limit)
    with (
        question,
        show_progress(question, whom=_server_of(given), shown=not to_screen),
        _waiting(given, question) if to_screen else nullcontext() as waiting,
    ):
        more = _write(question, kind, given.output, _TABLE_ROWS if cut else None, waiting)
    if more:
        say(f"the first {_TABLE_ROWS} rows; --limit shows more, --format csv or json all")
    return _finish(given, question, started, shown)


def _scan(given: argparse.Namespace, *, limit: int | None = None) -> Scan:
    named: Any = given.source[0] if len(given.source) == 1 else given.source
    source, keywords = settle_source(
        named,
        scan_keywords(given),
        catalog=given.catalog,
        version=given.version,
        timestamp=given.timestamp,
    )
    return scan(source, limit=limit, **keywords)


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


def _waiting(given: argparse.Namespace, question: Scan) -> Waiting:
    return Waiting(_server_of(given), lambda: question.metrics.bytes)


def _server_of(given: argparse.Namespace) -> str:
    """Return the server that the first source is on, as people call it; the path of a local one."""
    parts = urlsplit(redact(str(given.source[0])))
    if given.endpoint is not None and parts.scheme not in ("http", "https", "file", ""):
        return urlsplit(redact(given.endpoint)).netloc or redact(given.endpoint)
    if parts.scheme in ("http", "https"):
        return parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else parts.path


def _write(
    question: Scan, kind: str, output: str | None, most: int | None, waiting: Waiting | None = None
) -> bool:
    """Write all batches, or the first `most` rows; return whether there are more."""
    batches = question.to_batches()
    with open_output(output) as out:
        # The schema comes from the first batch: reading it beforehand would open a file twice.
        first = next(batches, None)
        if waiting is not None:
            waiting.end()
        schema = question.schema if first is None else first.schema
        # By then the files are opened, and their metadata is cached.
        stored = find_stored_types(question, schema) if kind == "parquet" else None
        sink = _make_sink(kind, out, schema, stored)
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


def _make_sink(kind: str, out: Any, schema: pa.Schema, stored: StoredTypes | None = None) -> Sink:
    if stored is not None:
        return ParquetSink(out, schema, stored=stored)
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


def _finish(
    given: argparse.Namespace, question: Scan, started: float, shown: Collection[str], *, rows: bool = True
) -> int:
    """Print the warnings and the costs of a run, and return the exit status."""
    say_warnings(question.metrics, shown)
    left_out = len(question.metrics.skipped)
    if left_out > 1:
        say(f"{left_out:,} files are left out")
    if given.verbose:
        say(summarize(question.metrics, started=started, rows=rows))
    return _SOME_LEFT_OUT if question.metrics.skipped else 0


def run_distinct(given: argparse.Namespace) -> int:
    """Print the distinct values of a column; return the exit status."""
    started = time.perf_counter()
    kind = _choose_format(given)
    with warnings_as_lines() as shown, _scan(given) as question:
        with _waiting(given, question):
            values = question.distinct(given.column)
        _write_row(pa.Table.from_arrays([values], names=[given.column]), kind, None)
    return _finish(given, question, started, shown, rows=False)


def run_explain(given: argparse.Namespace) -> int:
    """Print the plan, and with `--analyze` what a run did; return the exit status."""
    started = time.perf_counter()
    question = _scan(given, limit=given.limit)
    with warnings_as_lines() as shown, question, _waiting(given, question):
        explained = question.explain(analyze=given.analyze, aggregates=given.aggregate)
    if given.html is not None:
        write_page(given.html, explained.to_html())
    elif given.json:
        # What is drawn is drawn: it would be a hundred times as much text as the rest.
        print_json(dataclasses.asdict(dataclasses.replace(explained, maps=())))
    else:
        print(explained)
    status = _finish(given, question, started, shown)
    return _SOME_LEFT_OUT if explained.skipped else status
