"""`accel optimize`, and `accel embed` of a directory: jobs over all files, in this process or on Spark."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any, Final

from accel.cli.arguments import (
    UsageError,
    accel_options,
    column_list,
    index_argument,
    indexes_of,
    storage_options,
)

__all__ = [
    "add_files_options",
    "add_optimize_options",
    "optimize_keywords",
    "print_job_report",
    "run_embed_files",
    "run_optimize",
]

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_STAGES: Final = {"sample": "sampling rows", "read": "reading rows", "write": "writing rows"}


def add_files_options(parser: argparse.ArgumentParser) -> None:
    """Add where the files of a job go, and which indexes they and their directory have."""
    parser.add_argument(
        "--to",
        metavar="URL",
        help="another directory for the new files; by default they replace the old ones",
    )
    parser.add_argument(
        "--embed",
        "-i",
        action="append",
        type=index_argument,
        default=[],
        metavar="COLUMN=KIND[:LEVEL]",
        help="an index inside the files, as for accel embed; may be repeated",
    )
    parser.add_argument(
        "--index",
        default="auto",
        metavar="INDEX",
        help=(
            "the index outside the files that is brought up to date, or none; by default the one in "
            "_accel/, if there is one"
        ),
    )


def add_optimize_options(parser: argparse.ArgumentParser) -> None:
    """Add the order and the layout of the new files."""
    order = parser.add_argument_group("order")
    order.add_argument(
        "--sort-by",
        action="append",
        type=_sort_key,
        metavar="COLUMN[:descending]",
        help="a column to sort by; repeated, the next one",
    )
    order.add_argument(
        "--z-order", action="append", metavar="A,B", help="columns whose values are to lie close together"
    )
    layout = parser.add_argument_group("layout")
    layout.add_argument(
        "--preset", choices=("scan", "random-access"), default="scan", help="what for (%(default)s)"
    )
    layout.add_argument(
        "--target-file-size", type=_size, metavar="BYTES", help="about the size of a file: 128M by default"
    )
    layout.add_argument("--row-group-size", type=int, metavar="ROWS", help="the most rows of a row group")
    layout.add_argument("--page-rows", type=int, metavar="ROWS", help="the most rows of a page")
    layout.add_argument(
        "--blooms", action="append", metavar="A,B", help="columns that get bloom filters of Parquet"
    )
    layout.add_argument("--compression", metavar="CODEC", help="zstd by default")


def _sort_key(text: str) -> tuple[str, str]:
    name, colon, direction = text.rpartition(":")
    if colon and direction in ("ascending", "descending"):
        return name, direction
    return text, "ascending"


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].lower() in _UNITS else (text, "")
    if not (number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(f"expected bytes, as 134217728 or 128M: {text!r}")
    return int(number) * _UNITS[unit]


def optimize_keywords(given: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of `accel.optimize` that `add_optimize_options` has parsed."""
    keywords = {
        "sort_by": given.sort_by,
        "z_order": column_list(given.z_order),
        "preset": given.preset,
        "target_file_size": given.target_file_size,
        "row_group_size": given.row_group_size,
        "page_rows": given.page_rows,
        "blooms": column_list(given.blooms),
    }
    if given.compression is not None:
        keywords["compression"] = given.compression
    return keywords


def run_optimize(given: argparse.Namespace) -> int:
    """Rewrite the files of a directory; return the exit status."""
    from accel.maintenance.optimizing import optimize

    index = None if given.index == "none" else given.index
    keywords = {"to": given.to, "indexes": indexes_of(given.embed), "index": index}
    return _run(given, optimize, keywords | optimize_keywords(given))


def run_embed_files(given: argparse.Namespace) -> int:
    """Put indexes into all files of a directory; return the exit status."""
    from accel.maintenance.embedding_files import embed_files

    if given.dry_run:
        raise UsageError("--dry-run is for one file")
    return _run(given, embed_files, {"to": given.target, "indexes": indexes_of(given.index)})


def _run(given: argparse.Namespace, verb: Callable[..., Any], keywords: dict[str, Any]) -> int:
    from accel.cli.terminal import work_progress

    try:
        with work_progress("looking at the files", stages=_STAGES) as progress:
            report = verb(
                given.source,
                storage_options=storage_options(given),
                options=accel_options(given),
                progress=progress,
                **keywords,
            )
    except TypeError as error:
        raise UsageError(str(error)) from error
    return print_job_report(report, as_json=given.json)


def print_job_report(report: Any, *, as_json: bool) -> int:
    """Print what a job over files has done; return the exit status, 1 where files were left out."""
    from accel.cli.output import print_json, say
    from accel.cli.values import safe_text

    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        print(f"{safe_text(report.directory)}: {_summary(report)}, {report.seconds:.1f} s")
        if report.index is not None:
            print(f"{safe_text(report.index)} is up to date")
    for warning in report.warnings:
        say(f"warning: {safe_text(warning)}")
    for path in getattr(report, "left", ()):
        say(
            f"warning: {safe_text(path)} was replaced by somebody else, and stays: its rows may be there "
            "twice"
        )
    failed = dict(getattr(report, "failed", {}))
    for path, reason in failed.items():
        say(f"error: {safe_text(path)} has no indexes: {safe_text(reason)}")
    return 1 if failed else 0


def _summary(report: Any) -> str:
    from accel.pictures.document import byte_count

    if hasattr(report, "embedded"):
        return (
            f"{report.embedded:,} of {report.files:,} files got indexes, {report.skipped:,} had them, "
            f"{byte_count(report.bytes_after - report.bytes_before)} more"
        )
    verb = "finished what was begun" if report.finished else "rewritten"
    reused = f" ({report.reused:,} from a call that was killed)" if report.reused else ""
    before, after = byte_count(report.bytes_before), byte_count(report.bytes_after)
    return (
        f"{verb}, {report.rows:,} rows, {report.files_before:,} files of {before} -> "
        f"{report.files_after:,} files of {after}{reused}"
    )
