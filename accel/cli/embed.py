"""`accel embed`: indexes put into a file that exists."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel.writing.report import EmbedProgress, EmbedReport

__all__ = ["add_embed", "run_embed"]

_LEVELS = {"file": "file", "row-group": "row group", "page": "page", "row-range": "row range"}
_STAGES = {"index": "indexing", "copy": "copying"}


def add_embed(commands: Any) -> None:
    """Tell the parser about it."""
    from accel.cli.arguments import add_message_options, add_setting_options, add_store_options

    parser = commands.add_parser(
        "embed",
        help="put indexes into a file",
        description="Put indexes, and the page index where it is missing, into a Parquet file that exists. Its data is "
        "copied as it is, and other readers read the same rows from it.",
    )
    parser.add_argument("source", metavar="SRC", help="file: s3:, gs:, az:, http:, path")
    parser.add_argument("target", metavar="DST", nargs="?", help="where to; by default SRC is replaced")
    parser.add_argument(
        "--index",
        "-i",
        action="append",
        type=_index,
        default=[],
        metavar="COLUMN=KIND[:LEVEL]",
        help="KIND is distinct, bitmap, bloom, ngram, zonemap, sketch, idx1, or one of yours; COLUMN, for a zonemap, may be "
        "a list of columns, expressions and tuples: a, lower(s), (a, b); the level is file, row-group, "
        "page or row-range; may be repeated. Without any, the page index alone is added",
    )
    parser.add_argument("--dry-run", action="store_true", help="build everything, write nothing")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    add_setting_options(parser)
    add_store_options(parser)
    add_message_options(parser)


def run_embed(given: argparse.Namespace) -> None:
    """Run the command.

    Raises what `accel.embed` does; UsageError for an index that cannot be.
    """
    from accel.cli.arguments import UsageError, accel_options, storage_options
    from accel.writing.embedding import embed

    indexes: dict[str, list[Any]] = {}
    for column, kind, level in given.index:
        indexes.setdefault(column, []).append(kind if level is None else (kind, level))
    try:
        with _progress() as progress, warnings.catch_warnings():
            # They are in the report, too.
            warnings.simplefilter("ignore", UserWarning)
            report = embed(
                given.source,
                given.target,
                indexes=indexes,
                storage_options=storage_options(given),
                options=accel_options(given),
                progress=progress,
                dry_run=given.dry_run,
            )
    except TypeError as error:
        raise UsageError(str(error)) from error
    from accel.cli.output import print_json, say
    from accel.cli.values import safe_text

    if given.json:
        print_json(dataclasses.asdict(report))
    else:
        _print(report)
    for warning in report.warnings:
        say(f"warning: {safe_text(warning)}")


def _index(text: str) -> tuple[str, str, str | None]:
    column, equals, kind = text.rpartition("=")
    kind, colon, level = kind.partition(":")
    if not (column and equals and kind) or (colon and level not in _LEVELS):
        raise argparse.ArgumentTypeError(
            f"expected COLUMN=KIND or COLUMN=KIND:LEVEL, where LEVEL is one of {', '.join(_LEVELS)}: {text!r}"
        )
    return column, kind, _LEVELS[level] if colon else None


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[EmbedProgress], None] | None]:
    """A bar on standard error, for as long as that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8) as bar:
        task = bar.add_task("reading", total=None)

        def show(now: EmbedProgress) -> None:
            bar.update(
                task,
                description=_STAGES.get(now.stage, now.stage),
                completed=now.done,
                total=max(1, now.total),
            )

        yield show


def _print(report: EmbedReport) -> None:
    from accel.cli.terminal import byte_count, console_for, print_table
    from accel.cli.values import safe_text

    verb = "wrote" if report.written else "would write"
    grown = report.size_after - report.size_before
    print(
        f"{verb} {safe_text(report.path)}: {byte_count(report.size_after)}, {'+' if grown >= 0 else '-'}"
        f"{byte_count(abs(grown))}, {report.rows:,} rows, {report.seconds:.2f} s"
    )
    if report.page_indexes_added:
        print(
            f"page index added to {report.page_indexes_added:,} column chunks, bounds of pages to "
            f"{report.column_indexes_added:,}"
        )
    if report.pages_unknown:
        print(f"no page index: the pages of {safe_text(', '.join(report.pages_unknown))} cannot be located")
    if not report.indexes:
        return
    header = ("column", "kind", "level", "units", "bytes", "seconds")
    rows = [
        (safe_text(i.column), safe_text(i.kind), i.level, f"{i.units:,}", f"{i.nbytes:,}", f"{i.seconds:.3f}")
        for i in report.indexes
    ]
    print_table(console_for(sys.stdout), header, rows, numeric=(False, False, False, True, True, True))
