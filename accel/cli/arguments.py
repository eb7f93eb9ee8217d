"""The arguments of the `accel` command: their parser, what they mean to `accel.scan`, and errors in their words."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Final

from accel.errors import AccelError
from accel.options import Int96Unit, Options

__all__ = [
    "UsageError",
    "accel_options",
    "add_index_options",
    "add_message_options",
    "add_setting_options",
    "add_store_options",
    "build_parser",
    "column_list",
    "for_command_line",
    "index_argument",
    "indexes_of",
    "kinds_of",
    "reword",
    "scan_keywords",
    "storage_options",
]


def _switch_of(found: re.Match[str]) -> str:
    name = found[1]
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    if name not in defaults:
        return found[0]
    return f"--option {name}=true" if isinstance(defaults[name], bool) else f"--option {name}"


# Hints name the keywords of Python. Whole phrases come before the keywords in them; what follows a quote may be a name of
# the user's.
_SPELLED: Final = tuple(
    (re.compile(python), spelled)
    for python, spelled in (
        (r"\bstorage_options=\{'headers': \{'Authorization': \.\.\.\}\}", "--header 'Authorization: ...'"),
        (r"\bskip_signature=True", "--anonymous"),
        (r"\ballow_http=True", "--storage-option allow_http=true"),
        (r"\bstorage_options\b", "--storage-option"),
        (r'\bOptions\(int96_unit="(\w+)"\)', r"--int96-unit \1"),
        (r"(?<!['\"\w.])[Oo]ptions\.(\w+)", _switch_of),
        (r"\bgive partitioning=pyarrow\.schema\(\[.*\]\)", "leave out --partitioning none"),
        (r"\bpartitioning=pyarrow\.schema\(\[.*\]\)", "leaving out --partitioning none"),
        (r"\bpartitioning=None", "--partitioning none"),
        (r"\bglob=False", "--no-glob"),
        (r'\blisting="(\w+)"', r"--listing \1"),
        (r"\bcolumns=None takes all", "leave out --columns for all"),
        (r"(?<!['\"\w])(columns|where|limit)=(?![^\s,;)])", r"--\1"),
        (r"(?<!['\"\w])indexes=(?![^\s,;)])", "--index"),
        (r"\bpass None to keep every row", "leave out --where to keep every row"),
        (r"\baccel\.build_index\b", "accel index build"),
        (r"\bdst\b", "DST"),
        (r"\bcount_rows\b", "--count"),
        (r"; build the condition with accel\.col\b", "; write the value itself"),
        (r", and any obstore store by store=", ""),
    )
)
_ONLY_IN_PYTHON = re.compile(r"(?<!['\"\w])(?:schema|store)=(?![^\s,;)])|\baccel\.\w+\(|\blearn=")


def reword(hint: str) -> str:
    """Return a hint in the command line's own options; a hint that has no such option is marked as one for Python."""
    for pattern, spelled in _SPELLED:
        hint = pattern.sub(spelled, hint)
    return f"in Python, {hint}" if _ONLY_IN_PYTHON.search(hint) else hint


def for_command_line(error: Exception) -> str:
    """Return the text of an error as the command prints it; only accel's own hints are reworded."""
    if isinstance(error, AccelError) and error.hint:
        error.hint = reword(error.hint)
    return str(error) or type(error).__name__


_COUNT_ALL = "count_all"
_LEVELS = {"file": "file", "row-group": "row group", "page": "page", "row-range": "row range"}
_FORMATS = ("table", "csv", "json", "arrow", "parquet")

_EPILOG = """\
examples:
  accel scan s3://bucket/flights/ --where "carrier = 'UA' AND dep_delay > 60" --columns flight,dep_delay
  accel scan 'data/year=2013/*.parquet' --limit 1000 --format parquet -o sample.parquet
  accel explain s3://bucket/flights/ --where "flight = 1545" --analyze
  accel inspect https://host/flights.parquet
  accel embed flights.parquet --index carrier=distinct --index flight=bitmap

exit status: 0 done, 1 it failed, 2 the command line is wrong, or the predicate or a column that it names,
130 interrupted, 141 the reader of the output went away, 143 terminated.
"""


class UsageError(Exception):
    """The command line is not valid."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from accel import __version__

    parser = argparse.ArgumentParser(
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
    _add_inspect(commands, shared)
    _add_embed(commands)
    _add_index(commands)
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
        help="the directory of an index outside the files, or none; by default _accel/ in the directory that is scanned",
    )
    source.add_argument(
        "--listing", choices=("store", "index"), default="store", help="what lists the files (%(default)s)"
    )
    source.add_argument("--no-glob", action="store_true", help="*, ? and [ are part of a name")
    add_setting_options(shared)
    add_message_options(shared)
    return shared


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about how a store is reached."""
    store = parser.add_argument_group("store")
    store.add_argument(
        "--storage-option",
        action="append",
        type=_pair,
        default=[],
        metavar="KEY=VALUE",
        help="region=..., access_key_id=..., or any other of obstore's; may be repeated",
    )
    store.add_argument(
        "--endpoint", metavar="URL", help="of a service that is not the provider's: a MinIO, an emulator"
    )
    store.add_argument("--anonymous", action="store_true", help="sign no request")
    store.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        metavar="'NAME: VALUE'",
        help="sent with every request; may be repeated",
    )


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about accel.Options."""
    parser.add_argument(
        "--option",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="any of accel.Options, as memory_limit=1073741824; may be repeated",
    )


def add_message_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about messages."""
    talk = parser.add_argument_group("messages")
    talk.add_argument("--verbose", "-v", action="store_true", help="say what it cost, on standard error")
    talk.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", "-w", metavar="SQL", help="rows to keep: a boolean expression")
    parser.add_argument(
        "--columns",
        "-c",
        action="append",
        metavar="A,B",
        help="columns in the order wanted; a name that holds a comma goes in double quotes",
    )
    parser.add_argument(
        "--int96-unit",
        choices=[unit.value for unit in Int96Unit],
        help="what timestamps stored as INT96 are read to; ns, and auto, the default, reaches from 1677 to 2262",
    )


def _add_scan(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "scan",
        parents=[shared],
        help="print or save the rows that match",
        description="Print or save the rows that match. A table on a terminal, CSV into a pipe.",
    )
    _add_question(parser)
    parser.add_argument("--limit", "-n", type=_count, metavar="N", help="stop after so many rows")
    parser.add_argument("--count", action="store_true", help="print only how many rows match")
    parser.add_argument(
        "--aggregate",
        "-a",
        action="append",
        type=_aggregate,
        metavar="COLUMN=FUNCTION",
        help="sum, min, max or count of a column, or count_all; one row comes out; may be repeated",
    )
    parser.add_argument(
        "--format",
        "-f",
        choices=_FORMATS,
        help="json: one object a line; arrow: an IPC stream; by default after the name of FILE",
    )
    parser.add_argument(
        "--output",
        "-o",
        type=_file,
        metavar="FILE",
        help="replaced only once all is written; - is standard output",
    )


def _add_explain(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "explain",
        parents=[shared],
        help="tell what a scan would read, and why",
        description="Tell what pruning leaves of a scan and which requests it will send; reads metadata only.",
    )
    _add_question(parser)
    parser.add_argument("--analyze", action="store_true", help="run it too, and tell what happened")
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def _add_inspect(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "inspect",
        parents=[shared],
        help="show how a file is laid out, and what would make it faster",
        description="Show a file's footer, row groups, columns and indexes, and what to change to make it faster.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, one object a file")
    parser.add_argument("--row-groups", action="store_true", help="list the row groups too")


def _add_index(commands: Any) -> None:
    parser = commands.add_parser(
        "index",
        help="build and keep an index outside the files",
        description="Build and keep an index of a directory of Parquet files: it rules files out before they are opened, "
        "and has the metadata of the others.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    build = _add_index_verb(verbs, "build", "build an index, or bring it up to date", "DIRECTORY")
    build.add_argument("--to", metavar="INDEX", help="its directory; by default _accel/ in DIRECTORY")
    add_index_options(build)
    _add_index_verb(verbs, "refresh", "read the files that are new, drop those that are gone", "INDEX")
    _add_index_verb(verbs, "compact", "merge the parts of an index into one", "INDEX")
    vacuum = _add_index_verb(verbs, "vacuum", "remove objects that are of no use any more", "INDEX")
    vacuum.add_argument(
        "--grace",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="how long an object stays that a scan may still read (%(default)s)",
    )
    _add_index_verb(verbs, "inspect", "print what an index covers, and how large it is", "INDEX")
    _add_index_verb(verbs, "verify", "compare an index with the files; 1 where they differ", "INDEX")


def add_index_options(parser: argparse.ArgumentParser) -> None:
    """Add what an index outside the files is to hold."""
    parser.add_argument(
        "--columns", "-c", action="append", metavar="A,B", help="the columns that have bounds; by default all"
    )
    parser.add_argument(
        "--index",
        "-i",
        action="append",
        type=_index_outside,
        default=[],
        metavar="COLUMN=KIND",
        help="KIND is keys, ngram, distinct, bloom or zonemap; COLUMN, for keys, may be several with commas between them, and "
        "for a zonemap an expression: lower(s); may be repeated",
    )


def kinds_of(given: Sequence[tuple[str | tuple[str, ...], str]]) -> dict[Any, list[str]]:
    """Return the kinds of an index outside the files, by what they are of, as `add_index_options` has them parsed."""
    kinds: dict[Any, list[str]] = {}
    for of, kind in given:
        kinds.setdefault(of, []).append(kind)
    return kinds


def _add_index_verb(verbs: Any, name: str, text: str, target: str) -> argparse.ArgumentParser:

    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    parser.add_argument("target", metavar=target, help="a URL or path")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    add_setting_options(parser)
    add_store_options(parser)
    add_message_options(parser)
    return parser


def _add_embed(commands: Any) -> None:
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
        type=index_argument,
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


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        # The text may hold a secret: it is not repeated.
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return key, value


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    if not equals or not name:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    if name not in defaults:
        raise argparse.ArgumentTypeError(
            f"there is no option {name!r}: see accel.Options in the documentation"
        )
    default = defaults[name]
    if isinstance(default, bool):
        if value not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{name} is true or false, not {value!r}")
        return name, value == "true"
    if isinstance(default, str):
        return name, value
    kind = float if isinstance(default, float) else int
    try:
        return name, kind(value)
    except ValueError:
        what = "number" if kind is float else "whole number"
        raise argparse.ArgumentTypeError(f"{name} is a {what}, not {value!r}") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n\0"):
        raise argparse.ArgumentTypeError("expected 'NAME: VALUE'")
    return name.strip(), value.strip()


def _aggregate(text: str) -> tuple[Any, str]:
    column, equals, function = text.rpartition("=")
    if text != _COUNT_ALL and not (column and equals and function):
        raise argparse.ArgumentTypeError(f"expected COLUMN=FUNCTION, or {_COUNT_ALL}: {text!r}")
    return (column if column else ()), function


def indexes_of(given: Sequence[tuple[str, str, str | None]]) -> dict[str, list[Any]]:
    """Return the argument `indexes=` that all `--index` together mean."""
    indexes: dict[str, list[Any]] = {}
    for column, kind, level in given:
        indexes.setdefault(column, []).append(kind if level is None else (kind, level))
    return indexes


def index_argument(text: str) -> tuple[str, str, str | None]:
    """Read COLUMN=KIND or COLUMN=KIND:LEVEL."""
    column, equals, kind = text.rpartition("=")
    kind, colon, level = kind.partition(":")
    if not (column and equals and kind) or (colon and level not in _LEVELS):
        raise argparse.ArgumentTypeError(
            f"expected COLUMN=KIND or COLUMN=KIND:LEVEL, where LEVEL is one of {', '.join(_LEVELS)}: {text!r}"
        )
    return column, kind, _LEVELS[level] if colon else None


def _index_outside(text: str) -> tuple[str | tuple[str, ...], str]:
    columns, equals, kind = text.rpartition("=")
    if not (columns and equals and kind):
        raise argparse.ArgumentTypeError(f"expected COLUMN=KIND: {text!r}")
    # A zone map may be of an expression, which has quotation marks of its own.
    names = [columns] if kind == "zonemap" else column_list([columns]) or []
    return tuple(names) if len(names) > 1 else names[0], kind


def _file(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("names no file (- is standard output)")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"not a number of rows: {text!r}")
    return int(text)


def column_list(given: Sequence[str] | None) -> list[str] | None:
    """Return the columns that all `--columns` name, split at commas outside double quotes; None for all columns.

    Raises
    ------
    UsageError
        Quotes do not pair, a line break stands outside them, or no column is named.
    """
    if given is None:
        return None
    names = [name for text in given for name in _names(text) if name]
    if not names:
        # An empty variable of a script, most likely: nobody wants rows without columns.
        raise UsageError("--columns names no column (leave it out for all)")
    return names


def _names(text: str) -> list[str]:
    # csv gets one text at a time: it would take the next one for the rest of a quoted name.
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise UsageError(f"--columns {text!r}: {error}") from error
    return rows[0] if rows else []


def storage_options(given: argparse.Namespace) -> dict[str, Any] | None:
    """Return the options for the store; None if none is given, so that the environment decides."""
    options: dict[str, Any] = dict(given.storage_option)
    if given.endpoint is not None:
        options["endpoint"] = given.endpoint
    if given.anonymous:
        options["skip_signature"] = "true"
    if given.header:
        options["headers"] = dict(given.header)
    return options or None


def accel_options(given: argparse.Namespace) -> Options:
    """Return the settings that `--option` and `--int96-unit` name, with the defaults for the others.

    Raises
    ------
    ValueError
        A setting is out of range.
    """
    settings: dict[str, Any] = dict(given.option)
    unit = getattr(given, "int96_unit", None)
    if unit is not None:
        settings["int96_unit"] = Int96Unit(unit)
    return Options(**settings)


def scan_keywords(given: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of `accel.scan`, except for the limit."""
    return {
        "where": given.where,
        "columns": column_list(given.columns),
        "partitioning": None if given.partitioning == "none" else given.partitioning,
        "glob": not given.no_glob,
        "index": None if given.index == "none" else given.index,
        "listing": given.listing,
        "storage_options": storage_options(given),
        "options": accel_options(given),
    }
