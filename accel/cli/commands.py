"""The commands of `accel`: what each takes."""

from __future__ import annotations

import argparse
from typing import Any

from accel.cli.arguments import (
    add_index_options,
    add_message_options,
    add_setting_options,
    add_store_options,
    add_table_options,
    aggregate_argument,
    file_argument,
    hour_count,
    index_argument,
    row_count,
)
from accel.cli.command_parser import CommandParser, examples_of
from accel.cli.completions import SHELLS
from accel.cli.jobs import add_files_options, add_optimize_options
from accel.options import Int96Unit

__all__ = ["build_parser"]

_FORMATS = ("table", "csv", "tsv", "json", "markdown", "arrow", "parquet")
_TEXTS = _FORMATS[:5]

_EPILOG = """\
examples:
  accel scan s3://bucket/flights/ --where "carrier = 'UA' AND dep_delay > 60" --columns flight,dep_delay
  accel scan 'data/year=2013/*.parquet' --limit 1000 --format parquet -o sample.parquet
  accel explain s3://bucket/flights/ --where "flight = 1545" --analyze
  accel scan db.events --table hive --catalog thrift://host:9083 --where "day = '2024-02-01'"
  accel inspect https://host/flights.parquet
  accel embed flights.parquet --index carrier=distinct --index flight=bitmap

accel COMMAND --help shows more of each.

exit status: 0 done, 1 it failed, 2 the command line is wrong, or the predicate or a column that it names,
3 done, but without the files that --on-error skip left out, 130 interrupted, 141 the reader of the output
went away, 129 and 143 ended by SIGHUP and SIGTERM.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from accel._version import __version__

    parser = CommandParser(
        prog="accel",
        description="Selective queries over Parquet files in object stores, over HTTP, and on disk.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"accel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _shared()
    _add_scan(commands, shared)
    _add_explain(commands, shared)
    _add_distinct(commands, shared)
    _add_inspect(commands, shared)
    _add_embed(commands)
    _add_index(commands)
    _add_optimize(commands)
    completed = commands.add_parser(
        "completions",
        help="print what a shell completes",
        description="Print the script by which a shell completes commands and options.",
        **examples_of("completions"),
    )
    completed.add_argument("shell", choices=SHELLS)
    completed.set_defaults(debug=False, timeout=None)
    return parser


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "source", nargs="+", metavar="URL", help="file, directory or glob: s3:, gs:, az:, http:, path"
    )
    add_store_options(shared)
    source = shared.add_argument_group("source")
    source.add_argument(
        "--partitioning",
        choices=("hive", "none"),
        default="hive",
        help="whether key=value directories are columns",
    )
    source.add_argument(
        "--index",
        metavar="INDEX",
        default="auto",
        help=(
            "the directory of an index outside the files, or none; by default _accel/ in the directory "
            "that is scanned"
        ),
    )
    source.add_argument(
        "--listing", choices=("store", "index"), default="store", help="what lists the files (%(default)s)"
    )
    add_table_options(source)
    source.add_argument("--no-glob", action="store_true", help="*, ? and [ are part of a name")
    add_setting_options(shared)
    add_message_options(shared)
    return shared


def _add_files_read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ignore-case", action="store_true", help="find columns, fields and partition keys in any case"
    )
    parser.add_argument(
        "--schema",
        choices=("first", "union"),
        default="first",
        help="whose columns there are: those of the first file, or of all, whose footers are read first",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="skip goes on without files that cannot be read; the exit status is 3 then",
    )


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", "-w", metavar="SQL", help="rows to keep: a boolean expression")
    _add_files_read(parser)
    parser.add_argument(
        "--columns",
        "-c",
        action="append",
        metavar="A,B",
        help="columns in the order wanted; a name that holds a comma goes in double quotes",
    )
    parser.add_argument(
        "--file-path", metavar="NAME", help="add a column of that name: the file that a row is from"
    )
    parser.add_argument("--limit", "-n", type=row_count, metavar="N", help="stop after so many rows")
    parser.add_argument(
        "--order-by", metavar="A DESC", help="the first rows in that order, as many as --limit says"
    )
    parser.add_argument(
        "--row-number", metavar="NAME", help="add a column of that name: the number of each row in its file"
    )
    parser.add_argument(
        "--int96-unit",
        choices=[unit.value for unit in Int96Unit],
        help=(
            "what timestamps stored as INT96 are read to; ns, and auto, the default, reaches from 1677 to "
            "2262"
        ),
    )


def _add_aggregates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--aggregate",
        "-a",
        action="append",
        type=aggregate_argument,
        metavar="COLUMN=FUNCTION",
        help="sum, min, max or count of a column, or count_all; one row comes out; may be repeated",
    )


def _add_scan(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "scan",
        parents=[shared],
        help="print or save the rows that match",
        description="Print or save the rows that match. A table on a terminal, CSV into a pipe.",
        **examples_of("scan"),
    )
    _add_question(parser)
    parser.add_argument("--count", action="store_true", help="print only how many rows match")
    _add_aggregates(parser)
    parser.add_argument(
        "--format",
        "-f",
        choices=_FORMATS,
        help="json: one object a line; arrow: an IPC stream; by default after the name of FILE",
    )
    parser.add_argument(
        "--output",
        "-o",
        type=file_argument,
        metavar="FILE",
        help="replaced only once all is written; - is standard output",
    )


def _add_shown_as(parser: argparse.ArgumentParser, json: str, html: str) -> None:
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help=json)
    shown.add_argument(
        "--html", type=file_argument, metavar="FILE", help=f"write {html}; - is standard output"
    )


def _add_explain(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "explain",
        parents=[shared],
        help="tell what a scan would read, and why",
        description=(
            "Tell what pruning leaves of a scan and which requests it will send; reads metadata only."
        ),
        **examples_of("explain"),
    )
    _add_question(parser)
    _add_aggregates(parser)
    parser.add_argument("--analyze", action="store_true", help="run it too, and tell what happened")
    _add_shown_as(parser, "as one JSON object", "a page with a picture of each file: which pages are read")


def _add_distinct(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "distinct",
        parents=[shared],
        help="print the distinct values of a column",
        description="Print the distinct values of a column in ascending order: from indexes, statistics and "
        "dictionaries where these prove them.",
        **examples_of("distinct"),
    )
    parser.add_argument("column", metavar="COLUMN", help="a column, or a dotted path into structs")
    parser.add_argument("--where", "-w", metavar="SQL", help="rows that count: a boolean expression")
    _add_files_read(parser)
    parser.add_argument(
        "--format", "-f", choices=_TEXTS, help="a table on a terminal, by default CSV into a pipe"
    )
    nothing = dict.fromkeys(("columns", "file_path", "row_number", "order_by", "limit", "aggregate"))
    parser.set_defaults(output=None, count=False, **nothing)


def _add_inspect(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "inspect",
        parents=[shared],
        help="show how a file is laid out, and what would make it faster",
        description=(
            "Show a file's footer, row groups, columns and indexes, and what to change to make it faster."
        ),
        **examples_of("inspect"),
    )
    _add_shown_as(parser, "as JSON, one object a file", "a page with a picture of each file: where pages lie")
    parser.add_argument("--row-groups", action="store_true", help="list the row groups too")


def _add_options_of_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    add_setting_options(parser)
    add_store_options(parser)
    add_message_options(parser)


def _add_embed(commands: Any) -> None:
    parser = commands.add_parser(
        "embed",
        help="put indexes into a file, or into all files of a directory",
        description="Put indexes, and the page index where it is missing, into a Parquet file that exists. "
        "Its data is copied as it is, and other readers read the same rows from it. A directory (a URL that "
        "ends in /) stands for all of its files.",
        **examples_of("embed"),
    )
    parser.add_argument("source", metavar="SRC", help="file or directory/: s3:, gs:, az:, http:, path")
    parser.add_argument("target", metavar="DST", nargs="?", help="where to; by default SRC is replaced")
    parser.add_argument(
        "--index",
        "-i",
        action="append",
        type=index_argument,
        default=[],
        metavar="COLUMN=KIND[:LEVEL]",
        help="KIND is distinct, bitmap, bloom, ngram, zonemap, sketch, idx1, or one of yours; COLUMN, for a "
        "zonemap, may be a list of columns, expressions and tuples: a, lower(s), (a, b); the level is file, "
        "row-group, page or row-range; may be repeated. Without any, the page index alone is added",
    )
    parser.add_argument("--dry-run", action="store_true", help="build everything, write nothing")
    _add_options_of_jobs(parser)


def _add_index(commands: Any) -> None:
    parser = commands.add_parser(
        "index",
        help="build and keep an index outside the files",
        description="Build and keep an index of a directory of Parquet files: it rules files out before they "
        "are opened, and has the metadata of the others.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    build = _add_index_verb(verbs, "build", "build an index, or bring it up to date", "DIRECTORY")
    add_index_options(build)
    refresh = _add_index_verb(
        verbs, "refresh", "read the files that are new, drop those that are gone", "INDEX"
    )
    for verb in (build, refresh):
        verb.add_argument("--to", metavar="INDEX", help="its directory; by default _accel/ in the directory")
        add_table_options(verb.add_argument_group("table"))
    _add_index_verb(verbs, "compact", "merge the parts of an index into one", "INDEX")
    vacuum = _add_index_verb(verbs, "vacuum", "remove objects that are of no use any more", "INDEX")
    vacuum.add_argument(
        "--grace",
        type=hour_count,
        default=24.0,
        metavar="HOURS",
        help="how long an object stays that a scan may still read (%(default)s)",
    )
    _add_index_verb(verbs, "inspect", "print what an index covers, and how large it is", "INDEX")
    _add_index_verb(verbs, "verify", "compare an index with the files; 1 where they differ", "INDEX")


def _add_index_verb(verbs: Any, name: str, text: str, target: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", **examples_of(f"index {name}")
    )
    parser.add_argument("target", metavar=target, help="a URL or path")
    _add_options_of_jobs(parser)
    return parser


def _add_optimize(commands: Any) -> None:
    parser = commands.add_parser(
        "optimize",
        help="rewrite the files of a directory in an order, laid out for selective reading",
        description="Rewrite the Parquet files of a directory in an order across all of them, laid out for "
        "selective reading. The table has the same rows afterwards, and readers see the old files or the new "
        "ones. A call that was killed is run again.",
        **examples_of("optimize"),
    )
    parser.add_argument("source", metavar="DIRECTORY", help="a URL or path")
    add_files_options(parser)
    add_optimize_options(parser)
    _add_options_of_jobs(parser)
