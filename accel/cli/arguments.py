"""The arguments of the `accel` command: options that commands share, and what they mean to `accel.scan`."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from accel.options import Int96Unit, Options

__all__ = [
    "UsageError",
    "accel_options",
    "add_index_options",
    "add_message_options",
    "add_setting_options",
    "add_store_options",
    "add_table_options",
    "aggregate_argument",
    "column_list",
    "file_argument",
    "hour_count",
    "index_argument",
    "indexes_of",
    "kinds_of",
    "row_count",
    "scan_keywords",
    "storage_options",
]


_COUNT_ALL = "count_all"
_LEVELS = {"file": "file", "row-group": "row group", "page": "page", "row-range": "row range"}


class UsageError(Exception):
    """The command line is not valid."""


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about how a store is reached."""
    store = parser.add_argument_group("store")
    store.add_argument(
        "--storage-option",
        action="append",
        type=_pair,
        default=[],
        metavar="KEY=VALUE",
        help="region=..., profile=..., access_key_id=..., or any other of obstore's; may be repeated",
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
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="end with an error after so long",
    )


def add_message_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about messages."""
    talk = parser.add_argument_group("messages")
    talk.add_argument("--verbose", "-v", action="store_true", help="say what it cost, on standard error")
    talk.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_table_options(source: Any) -> None:
    """Add the options that say which table it is."""
    source.add_argument(
        "--table",
        metavar="FORMAT",
        default="auto",
        help="the format of the table that it is (delta, iceberg, ducklake, hive), auto, or none: its files "
        "as files",
    )
    source.add_argument(
        "--catalog",
        metavar="CATALOG",
        help="what names the table, whose name in it is given in place of the URL: thrift://host:9083 for "
        "hive, sqlite:///FILE, postgresql://host/database or duckdb:///FILE for ducklake, a catalog of "
        "pyiceberg's configuration for iceberg",
    )
    source.add_argument("--version", type=_version, metavar="N", help="the version of the table")
    source.add_argument(
        "--timestamp", metavar="TIME", help="the version of the table at a moment, in ISO 8601 (UTC)"
    )


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
        help="KIND is keys, ngram, distinct, bloom or zonemap; COLUMN, for keys, may be several with commas "
        "between them, and for a zonemap an expression: lower(s); may be repeated",
    )


def kinds_of(given: Sequence[tuple[str | tuple[str, ...], str]]) -> dict[Any, list[str]]:
    """Return the kinds of an index outside the files, by what they are of, as `add_index_options` has them
    parsed."""
    kinds: dict[Any, list[str]] = {}
    for of, kind in given:
        kinds.setdefault(of, []).append(kind)
    return kinds


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        # The text may hold a secret: it is not repeated.
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return key, value


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    # A function cannot be named there.
    settable = [field for field in dataclasses.fields(Options) if field.name != "on_event"]
    defaults = {field.name: field.default for field in settable}
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


def aggregate_argument(text: str) -> tuple[Any, str]:
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


def file_argument(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("names no file (- is standard output)")
    return text


def row_count(text: str) -> int:
    return _whole_number(text, "a number of rows")


def _version(text: str) -> int:
    return _whole_number(text, "a version of a table")


def _whole_number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"not {what}: {text!r}")
    return int(text)


def hour_count(text: str) -> float:
    found = _number(text)
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of hours: {text!r}")
    return found


def _seconds(text: str) -> float:
    seconds = _number(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0: {text!r}")
    return seconds


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def column_list(given: Sequence[str] | None) -> list[str] | None:
    """Return the columns that all `--columns` name, split at commas outside double quotes; None for all
    columns.

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
    named = given.table not in ("auto", "none")
    partitioning = "auto" if named and given.partitioning == "hive" else given.partitioning
    return {
        "where": given.where,
        "columns": column_list(given.columns),
        "schema": "union" if given.schema == "union" else None,
        "partitioning": None if partitioning == "none" else partitioning,
        "glob": not given.no_glob,
        "table": None if given.table == "none" else given.table,
        "index": None if given.index == "none" else given.index,
        "listing": given.listing,
        "file_path": given.file_path,
        "row_number": given.row_number,
        "case_sensitive": not given.ignore_case,
        "order_by": given.order_by,
        "on_error": given.on_error,
        "timeout": given.timeout,
        "storage_options": storage_options(given),
        "options": accel_options(given),
    }
