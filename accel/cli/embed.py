"""`accel embed`: put indexes into an existing file."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import warnings

from accel.cli.arguments import UsageError, accel_options, indexes_of, storage_options
from accel.cli.output import print_json, say
from accel.cli.terminal import console_for, print_table, work_progress
from accel.cli.values import safe_text
from accel.pictures.document import byte_count
from accel.writing import EmbedReport, embed

__all__ = ["run_embed"]

_STAGES = {"index": "indexing", "copy": "copying"}


def run_embed(given: argparse.Namespace) -> int:
    """Run the command, and return the exit status; raise what `accel.embed` does, and UsageError for an index
    that cannot be built."""
    if given.source.endswith("/") or os.path.isdir(given.source):
        from accel.cli.jobs import run_embed_files

        return run_embed_files(given)
    try:
        with work_progress("reading", stages=_STAGES, in_bytes=True) as progress, warnings.catch_warnings():
            # The report repeats them.
            warnings.simplefilter("ignore", UserWarning)
            report = embed(
                given.source,
                given.target,
                indexes=indexes_of(given.index),
                storage_options=storage_options(given),
                options=accel_options(given),
                progress=progress,
                dry_run=given.dry_run,
            )
    except TypeError as error:
        raise UsageError(str(error)) from error
    if given.json:
        print_json(dataclasses.asdict(report))
    else:
        _print(report)
    for warning in report.warnings:
        say(f"warning: {safe_text(warning)}")
    return 0


def _print(report: EmbedReport) -> None:
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
