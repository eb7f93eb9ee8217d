"""`accel index`: build, refresh, inspect and verify an index outside the files."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel.catalog.building.builder import IndexReport
    from accel.catalog.inspecting import IndexDescription, IndexDifferences

__all__ = ["run_index", "show_report"]


def run_index(given: argparse.Namespace) -> int:
    """Run the command; the exit status is 1 where `verify` finds a difference.

    Raises what the verbs do.
    """
    from accel.cli.arguments import accel_options, column_list, kinds_of, storage_options

    keywords: dict[str, Any] = {"storage_options": storage_options(given), "options": accel_options(given)}
    if given.verb in ("inspect", "verify"):
        from accel.catalog import inspecting

        if given.verb == "inspect":
            _show(given, inspecting.inspect_index(given.target, **keywords), _print_description)
            return 0
        differences = inspecting.verify_index(given.target, **keywords)
        _show(given, differences, _print_differences)
        return 0 if differences.is_empty else 1
    from accel.catalog import verbs

    if given.verb == "compact":
        report = verbs.compact_index(given.target, **keywords)
    elif given.verb == "vacuum":
        report = verbs.vacuum_index(given.target, grace=3600 * given.grace, **keywords)
    else:
        from accel.cli.terminal import work_progress
        from accel.maintenance.progress import JobProgress

        text = "reading files"
        with work_progress(text) as show, warnings.catch_warnings():
            # The report has them.
            warnings.simplefilter("ignore", UserWarning)
            progress = None if show is None else lambda done, total: show(JobProgress(text, done, total))
            if given.verb == "build":
                report = verbs.build_index(
                    _table_or_path(given),
                    to=given.to,
                    columns=column_list(given.columns),
                    indexes=kinds_of(given.index),
                    progress=progress,
                    **keywords,
                )
            else:
                report = verbs.refresh_index(
                    _table_or_path(given), to=given.to, progress=progress, **keywords
                )
    show_report(given, report)
    return 0


def _table_or_path(given: argparse.Namespace) -> Any:
    """Return the table that is named, or the path as it is."""
    from accel.tables.table_formats import settle_source

    return settle_source(
        given.target,
        {"table": given.table},
        catalog=given.catalog,
        version=given.version,
        timestamp=given.timestamp,
    )[0]


def show_report(given: argparse.Namespace, report: IndexReport) -> None:
    """Print what was done to an index."""
    _show(given, report, _print_report)


def _show(given: argparse.Namespace, found: Any, print_it: Callable[[Any], None]) -> None:
    if given.json:
        from accel.cli.output import print_json

        print_json(dataclasses.asdict(found))
    else:
        print_it(found)


def _print_report(report: IndexReport) -> None:
    from accel.cli.output import say
    from accel.cli.terminal import count_of
    from accel.cli.values import safe_text
    from accel.pictures.document import byte_count

    changes = f"{report.added:,} added, {report.removed:,} removed, {report.unchanged:,} as before"
    print(
        f"{safe_text(report.index)}: {count_of(report.files, 'file')} ({changes}) in "
        f"{count_of(report.segments, 'segment')}, {byte_count(report.nbytes)}, "
        f"{count_of(report.requests, 'request')}, {report.seconds:.2f} s"
    )
    if report.deleted:
        print(f"{count_of(len(report.deleted), 'object')} removed")
    for path, reason in report.skipped.items():
        say(f"warning: {safe_text(path)} is not in the index: {safe_text(reason)}")
    for note in report.notes:
        say(f"warning: {safe_text(note)}")


def _print_description(found: IndexDescription) -> None:
    from accel.cli.terminal import console_for, count_of, print_table
    from accel.cli.values import safe_text
    from accel.pictures.document import byte_count

    share = f", {found.nbytes / found.data_nbytes:.2%} of their size" if found.data_nbytes else ""
    print(
        f"{safe_text(found.index)}: {count_of(found.files, 'file')} of {byte_count(found.data_nbytes)} and "
        f"{count_of(found.rows, 'row')} below "
        f"{safe_text(found.base)}; {byte_count(found.nbytes)}{share}, {count_of(found.generation, 'commit')}"
    )
    if found.table is not None:
        of = found.table
        at = f", up to version {of['version']}" if "version" in of else ""
        print(safe_text(f"of the {of.get('format', 'table')} table {of.get('location')}{at}"))
    covered = "all columns" if found.columns is None else safe_text(", ".join(found.columns))
    print(f"bounds of {covered}; {count_of(found.retired, 'object')} to be removed by vacuum")
    tables = [
        (safe_text(one.table), f"{one.rows:,}", f"{one.nbytes:,}", f"{one.uncovered:,}")
        for one in found.tables
    ]
    header = ("table", "rows", "bytes", "files left out")
    print_table(console_for(sys.stdout), header, tables, numeric=(False, True, True, True))
    rows = [
        (one.id, f"{one.files:,}", f"{one.dropped:,}", f"{one.nbytes:,}", "yes" if one.inline else "no")
        for one in found.segments
    ]
    of_segments = ("segment", "files", "dropped", "bytes", "in the head")
    print_table(console_for(sys.stdout), of_segments, rows, numeric=(False, True, True, True, False))


def _print_differences(found: IndexDifferences) -> None:
    from accel.cli.values import safe_text

    if found.is_empty:
        print(f"{safe_text(found.index)}: as the files are, {found.checked:,} compared")
        return
    for what, paths in (
        ("is not in the index", found.missing),
        ("is gone", found.gone),
        ("was replaced", found.replaced),
    ):
        for path in paths:
            print(f"{safe_text(path)} {what}")
    for path, reason in found.wrong.items():
        print(f"{safe_text(path)}: {safe_text(reason)}")
