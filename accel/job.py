"""`python -m accel.job`: the jobs of a table from a command line, for `spark-submit` and for
schedulers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from accel.cli.arguments import (
    UsageError,
    accel_options,
    add_index_options,
    add_message_options,
    add_setting_options,
    add_store_options,
    column_list,
    indexes_of,
    kinds_of,
    storage_options,
)
from accel.cli.command_parser import CommandParser
from accel.cli.jobs import add_files_options, add_optimize_options, optimize_keywords, print_job_report
from accel.cli.main import run_command

if TYPE_CHECKING:
    from accel.maintenance.progress import JobProgress

__all__ = ["main"]

_EPILOG: Final = """\
examples:
  python -m accel.job optimize s3://bucket/flights/ --sort-by carrier --sort-by dep_delay:descending
  python -m accel.job optimize s3a://bucket/flights/ --to s3a://bucket/sorted/ --z-order origin,dest
  python -m accel.job embed s3://bucket/flights/ --embed carrier=distinct --embed flight=bitmap
  python -m accel.job build-index s3://bucket/flights/ --index tailnum=keys
  python -m accel.job refresh-index s3://bucket/flights/_accel/
  spark-submit --master spark://host:7077 job.py optimize s3://bucket/flights/ --sort-by carrier

job.py holds two lines: `from accel.job import main` and `raise SystemExit(main())`.

A job that was killed is run again: it finishes what was committed, or starts anew.

exit status: 0 done, 1 it failed or files were left out, 2 the command line is wrong, 130 interrupted,
143 terminated.
"""
_LOG_SECONDS: Final = 5.0
"""Between two lines about the progress."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        The exit status, as `--help` lists it.
    """
    return run_command(_parser().parse_args(argv), _dispatch)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m accel.job",
        description="Jobs over all Parquet files of a directory, on Spark or in this process.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    _add_optimize(jobs)
    _add_embed(jobs)
    _add_index_jobs(jobs)
    return parser


def _add_job(jobs: Any, name: str, text: str, *, target: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = jobs.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    parser.add_argument("source", metavar=target, help="a URL or path")
    spark = parser.add_argument_group("spark")
    spark.add_argument(
        "--master", metavar="URL", help="by default what spark-submit, or the environment, says"
    )
    spark.add_argument(
        "--conf", action="append", type=_pair, default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    spark.add_argument("--here", action="store_true", help="do it in this process, without Spark")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="print no progress")
    add_setting_options(parser)
    add_store_options(parser)
    add_message_options(parser)
    return parser


def _add_optimize(jobs: Any) -> None:
    parser = _add_job(
        jobs, "optimize", "rewrite the files in an order, laid out for selective reading", target="DIRECTORY"
    )
    add_files_options(parser)
    add_optimize_options(parser)
    parser.add_argument(
        "--parts", type=int, metavar="N", help="parts of the table that one task of Spark sorts each"
    )


def _add_embed(jobs: Any) -> None:
    add_files_options(_add_job(jobs, "embed", "put indexes into all files", target="DIRECTORY"))


def _add_index_jobs(jobs: Any) -> None:
    build = _add_job(
        jobs, "build-index", "build an index outside the files, or bring it up to date", target="DIRECTORY"
    )
    build.add_argument("--to", metavar="INDEX", help="its directory; by default _accel/ in DIRECTORY")
    add_index_options(build)
    refresh = _add_job(
        jobs, "refresh-index", "read the files that are new, drop those that are gone", target="INDEX"
    )
    for parser in (build, refresh):
        parser.add_argument(
            "--shares", type=int, metavar="N", help="shares of the files that one task of Spark reads each"
        )
    _add_job(jobs, "compact-index", "merge the parts of an index into one", target="INDEX")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return key, value


# -- running -----------------------------------------------------------------------------------


def _dispatch(given: argparse.Namespace) -> int:
    keywords: dict[str, Any] = {
        "storage_options": storage_options(given),
        "options": accel_options(given),
        "progress": None if given.quiet else _printer(),
    }
    if given.job in ("optimize", "embed"):
        keywords |= {
            "to": given.to,
            "indexes": indexes_of(given.embed),
            "index": None if given.index == "none" else given.index,
        }
    if given.job == "optimize":
        keywords |= optimize_keywords(given)
        if given.parts is not None and not given.here:
            keywords["parts"] = given.parts
    if given.job == "build-index":
        keywords |= {"to": given.to, "columns": column_list(given.columns), "indexes": kinds_of(given.index)}
    if given.job in ("build-index", "refresh-index") and given.shares is not None and not given.here:
        keywords["shares"] = given.shares
    if given.job == "compact-index":
        del keywords["progress"]
    try:
        report = _run_here(given, keywords) if given.here else _run_on_spark(given, keywords)
    except TypeError as error:
        raise UsageError(str(error)) from error
    return _print_report(given, report)


def _run_here(given: argparse.Namespace, keywords: dict[str, Any]) -> Any:
    import accel

    verbs: dict[str, Callable[..., Any]] = {
        "optimize": accel.optimize,
        "embed": accel.embed_files,
        "build-index": accel.build_index,
        "refresh-index": accel.refresh_index,
        "compact-index": accel.compact_index,
    }
    if given.job in ("build-index", "refresh-index") and keywords["progress"] is not None:
        keywords["progress"] = partial(_show_files, keywords["progress"])
    return verbs[given.job](given.source, **keywords)


def _show_files(show: Callable[[JobProgress], None], done: int, total: int) -> None:
    from accel.maintenance.progress import JobProgress

    show(JobProgress("describe", done, total))


def _run_on_spark(given: argparse.Namespace, keywords: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    import accel.spark

    builder = SparkSession.builder.appName(
        f"accel {given.job} {given.source.rpartition('?')[0] or given.source}"
    )
    if given.master is not None:
        builder = builder.master(given.master)
    for key, value in given.conf:
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        verb: Callable[..., Any] = getattr(accel.spark, given.job.replace("-", "_"))
        return verb(spark, given.source, **keywords)
    finally:
        spark.stop()


def _printer() -> Callable[[JobProgress], None]:
    """Return what prints a line for each stage now and then, as a log needs it."""
    last: dict[str, float] = {}

    def show(now: JobProgress) -> None:
        moment = time.monotonic()
        done = now.done >= now.total
        if not done and moment - last.get(now.stage, -_LOG_SECONDS) < _LOG_SECONDS:
            return
        last[now.stage] = moment
        print(f"accel: {now.stage}: {now.done:,} of {now.total:,}", file=sys.stderr, flush=True)

    return show


def _print_report(given: argparse.Namespace, report: Any) -> int:
    if not given.job.endswith("-index"):
        return print_job_report(report, as_json=given.json)
    from accel.cli.index import show_report

    show_report(given, report)
    return 1 if report.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
