"""The options of `format("accel")`: texts, as Spark passes them, become the keywords of a scan."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import enum
import json
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from accel.options import Options
from accel.scanning.signatures import FIRST_ROWS
from accel.scanning.spec import OnError
from accel.spark.credentials import check_name
from accel.store.storage_options import is_storage_option, storage_option_meant
from accel.tables.table_formats import settle_source

__all__ = ["REFUSED_OPTIONS", "SourceOptions", "read_options"]

_OF_CATALOG = "provider"
"""Spark adds it where `CREATE TABLE` asks for the schema of a table."""
_INSTEAD_OF_TABLE = "CREATE TEMPORARY VIEW … USING accel OPTIONS (path '…') keeps them"
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SETTINGS = {setting.name: setting.default for setting in dataclasses.fields(Options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of `format("accel")`, as the user gave them."""

    source: str | list[str] = field(repr=False)
    """The URL or path, or several."""
    where: str | None = None
    columns: list[str] | None = None
    limit: int | None = None
    index: str | None = "auto"
    listing: str = "store"
    partitioning: str | None = "auto"
    glob: bool = True
    table: str | None = "auto"
    """The format of the table that the path is, "auto", or None: its files as files."""
    catalog: str | None = field(default=None, repr=False)
    """What names the table, whose name in it is the path then."""
    version: int | None = None
    timestamp: str | None = None
    file_path: str | None = None
    """The name of a column that has the URL of the file that a row is from."""
    row_number: str | None = None
    """The name of a column that has the number of each row in its file."""
    case_sensitive: bool = False
    """Whether names of columns are compared exactly."""
    file_names: str | None = None
    """A pattern that the last part of a path matches, of the files that are read."""
    modified_after: float | None = None
    """Seconds since 1970: only files that were changed later are read."""
    modified_before: float | None = None
    """Seconds since 1970: only files that were changed earlier are read."""
    merge_schema: bool = False
    """Whether the columns are those of all files, and not those of the first."""
    partitions: int | None = None
    pushdown: bool | None = None
    """Whether Spark's filters are taken; None: as the session says."""
    on_error: OnError = OnError.RAISE
    max_files: int | None = None
    """The most files of one batch of a stream."""
    max_bytes: int | None = None
    """The most bytes of the files of one batch of a stream; a batch has one file at least."""
    latest_first: bool = False
    """Whether a stream reads the files that were changed last before others."""
    credentials: str | None = None
    options: Options = field(default_factory=Options)
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def scanned(self) -> Any:
        """The source to scan: the table, where the path is named as one.

        Raises
        ------
        ValueError
            There is no such format, or the options contradict each other.
        """
        given = {"table": self.table}
        return settle_source(
            self.source, given, catalog=self.catalog, version=self.version, timestamp=self.timestamp
        )[0]

    @property
    def chooses_files(self) -> bool:
        """Whether only some of the files of the source are read, by their names or times."""
        return any(one is not None for one in (self.file_names, self.modified_after, self.modified_before))

    @property
    def names_table(self) -> bool:
        """Whether the path is named as a table of some format."""
        return self.table not in ("auto", None)

    def planning(self) -> dict[str, Any]:
        """Return the keywords of `accel.plan`, without source, predicate and columns."""
        return {
            "schema": "union" if self.merge_schema else None,
            "index": self.index,
            "listing": self.listing,
            "partitioning": self.partitioning,
            "glob": self.glob,
            "table": "auto" if self.names_table else self.table,
            "file_path": self.file_path,
            "row_number": self.row_number,
            "case_sensitive": self.case_sensitive,
            "options": self.options.for_spark(),
            "storage_options": self.storage_options,
        }

    def of_files(self, columns: pa.Schema) -> pa.Schema:
        """Return those columns that the files and their folders have."""
        return pa.schema([field for field in columns if field.name not in (self.file_path, self.row_number)])

    def of_predicates(self, columns: pa.Schema) -> pa.Schema:
        """Return those columns that a predicate of accel may name: not the number of the row."""
        return pa.schema([field for field in columns if field.name != self.row_number])


def read_options(given: Mapping[str, str], *, case_sensitive: bool = False) -> SourceOptions:
    """Read the options of a data source; their names are in lower case.

    What is none of accel's own options, nor a setting of `accel.Options`, is an option of the store.

    Parameters
    ----------
    given : mapping
    case_sensitive : bool
        What the session says, where the options do not.

    Raises
    ------
    ValueError
        An option is missing, has a value that is none, or is not known: those that Spark's own sources know
        are refused with what to use instead.
    """
    left = {name.lower(): value for name, value in given.items()}
    if _OF_CATALOG in left:
        raise ValueError(f"Spark's catalog passes no option of a table to accel: {_INSTEAD_OF_TABLE}")
    values: dict[str, Any] = {
        "source": _source(left.pop("path", None), left.pop("paths", None)),
        "case_sensitive": case_sensitive,
    }
    for name, (key, read) in _READERS.items():
        if name in left:
            values[key] = read(name, left.pop(name))
    values = _of_file_source(left) | _times(left) | values
    settings = {name: _setting(name, left.pop(name)) for name in _SETTINGS if name in left}
    for name in left:
        _check_known(name)
    return SourceOptions(**values, options=Options(**settings), storage_options=left or None)


def _of_file_source(left: dict[str, str]) -> dict[str, Any]:
    """Take options of Spark's own file source that mean what options of accel mean, and return those."""
    flags = {name: _flag(name, left.pop(name.lower())) for name in _FLAGS if name.lower() in left}
    values: dict[str, Any] = {}
    if flags.get("mergeSchema"):
        values["merge_schema"] = True
    if flags.get("recursiveFileLookup"):
        values["partitioning"] = None  # as in Spark, which makes no columns of the names of folders then
    ignored = [name for name in _IGNORED if flags.get(name)]
    if len(ignored) == len(_IGNORED):
        values["on_error"] = OnError.SKIP
    elif ignored:
        (other,) = set(_IGNORED) - set(ignored)
        raise ValueError(
            f'format("accel") takes option {ignored[0]} only together with {other}: both are onError = skip, '
            "which leaves out files that are missing or broken"
        )
    return values


def _times(left: dict[str, str]) -> dict[str, float]:
    """Take the options that choose files by the time of their last change."""
    zone = left.pop("timezone", None)
    times = {}
    for name, key in _TIMES.items():
        if name.lower() in left:
            times[key] = _moment(name, left.pop(name.lower()), zone)
    if zone is not None and not times:
        raise ValueError("option timeZone is that of modifiedAfter and modifiedBefore: there is neither")
    return times


def _moment(name: str, text: str, zone: str | None) -> float:
    """Read a time with the digits of Spark's option, which a zone makes a moment.

    Spark takes the zone of the session, of which a source in Python is not told.
    """
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"option {name} is a time as 2024-06-01T13:00:00, not {text!r:.80}") from None
    if found.tzinfo is None:
        if zone is None:
            raise ValueError(
                f"option {name} needs a zone: {found.isoformat()}Z for UTC, or the option timeZone beside it"
            )
        try:
            found = found.replace(tzinfo=zoneinfo.ZoneInfo(zone))
        except (ValueError, OSError, KeyError):
            raise ValueError(f"option timeZone is the name of a zone, as UTC, not {zone!r:.80}") from None
    return found.timestamp()


def _check_known(name: str) -> None:
    """Refuse an option that neither accel nor a store has: it would be ignored without a word."""
    instead = REFUSED_OPTIONS.get(name)
    if instead is not None:
        raise ValueError(f'format("accel") has no option {instead.name}: {instead.hint}')
    if is_storage_option(name):
        return
    close = difflib.get_close_matches(name, (*_READERS, *_SETTINGS), 1, 0.85)
    meant = _SPELLINGS.get(close[0], close[0]) if close else storage_option_meant(name)
    hint = f"did you mean {meant}?" if meant else "docs/spark.md lists the options"
    raise ValueError(f'format("accel") has no option {name!r}, and neither has a store: {hint}')


def _source(path: str | None, paths: str | None) -> str | list[str]:
    if paths is not None and paths.startswith("["):
        several = _strings("paths", paths)
        return [path, *several] if path is not None else several
    if not path:
        raise ValueError(
            'format("accel") needs a path: load(url), or the option path of a view in SQL. If this is a '
            f"table, Spark's catalog passes none of its options: {_INSTEAD_OF_TABLE}"
        )
    return path


def _strings(name: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"option {name} is no JSON list: {error}") from None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"option {name} is a list of names in JSON, not {text!r:.80}")
    return found


def _names(name: str, text: str) -> list[str]:
    if text.lstrip().startswith("["):
        return _strings(name, text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _text(name: str, text: str) -> str:
    return text


def _or_none(name: str, text: str) -> str | None:
    return None if text.lower() == "none" else text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"option {name} is true or false, not {text!r:.80}")
    return text.lower() in _TRUE


def _count(name: str, text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        raise ValueError(f"option {name} is a whole number of at least {least}, not {text!r:.80}")
    return int(text)


def _number(name: str, text: str) -> int:
    return _count(name, text, 1)


def _bytes(name: str, text: str) -> int:
    """Read a number of bytes as Spark writes it: `10m` are 10 MiB."""
    number = text.strip().lower()
    unit = _UNITS_OF_BYTES.get(number.rstrip("b")[-1:], 1)
    digits = number.rstrip("b").rstrip("kmgtp") if unit > 1 else number.rstrip("b")
    if (
        not (digits.isascii() and digits.isdigit())
        or len(digits) > 18
        or not 0 < int(digits) * unit < 1 << 63
    ):
        raise ValueError(f"option {name} is a number of bytes, as 512m, not {text!r:.80}")
    return int(digits) * unit


def _on_error(name: str, text: str) -> OnError:
    try:
        return OnError(text.lower())
    except ValueError:
        raise ValueError(f"option {name} is raise or skip, not {text!r:.80}") from None


def _credentials(name: str, text: str) -> str:
    return check_name(text)


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "where": ("where", _text),
    "columns": ("columns", _names),
    "limit": ("limit", _count),
    "index": ("index", _or_none),
    "listing": ("listing", _text),
    "partitioning": ("partitioning", _or_none),
    "glob": ("glob", _flag),
    "table": ("table", _or_none),
    "catalog": ("catalog", _text),
    "timestamp": ("timestamp", _text),
    "version": ("version", _count),
    "partitions": ("partitions", _number),
    "filepath": ("file_path", _text),
    "rownumber": ("row_number", _text),
    "casesensitive": ("case_sensitive", _flag),
    "pathglobfilter": ("file_names", _text),
    "pushdown": ("pushdown", _flag),
    "onerror": ("on_error", _on_error),
    "maxfilespertrigger": ("max_files", _number),
    "maxbytespertrigger": ("max_bytes", _bytes),
    "latestfirst": ("latest_first", _flag),
    "credentials": ("credentials", _credentials),
}


_IGNORED = ("ignoreMissingFiles", "ignoreCorruptFiles")
_FLAGS = ("mergeSchema", "recursiveFileLookup", *_IGNORED)
_TIMES = {"modifiedAfter": "modified_after", "modifiedBefore": "modified_before"}
_UNITS_OF_BYTES = {unit: 1 << 10 * power for power, unit in enumerate("kmgtp", 1)}
_SPELLINGS = {
    "filepath": "filePath",
    "rownumber": "rowNumber",
    "casesensitive": "caseSensitive",
    "pathglobfilter": "pathGlobFilter",
    "onerror": "onError",
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "latestfirst": "latestFirst",
}


@dataclass(frozen=True, slots=True)
class _Instead:
    """An option of Spark's own sources, as it is spelt there, and what to do without it."""

    name: str
    hint: str


_LATER = "each file is read once, whatever its time or place in the order"
_FILES_ONLY = "it reads files and no log of changes: each file of the directory is read once"
_VERSIONS = "table = delta reads a table: with version = n, or timestamp = …, another version of it"
_REBASE = "dates are read as they are stored"
_CSV = "a Parquet file says by itself what it holds"
REFUSED_OPTIONS: Mapping[str, _Instead] = {
    option.name.lower(): option
    for option in (
        _Instead("orderBy", FIRST_ROWS),
        _Instead("basePath", "load the base directory, and choose by where"),
        _Instead("datetimeRebaseMode", _REBASE),
        _Instead("int96RebaseMode", _REBASE),
        _Instead("inferSchema", _CSV),
        _Instead("header", _CSV),
        _Instead("compression", _CSV),
        _Instead("maxPartitionBytes", "partitions = n gives the number of partitions"),
        _Instead(
            "cleanSource",
            "remove or move files by a job of your own: those that are gone leave the checkpoint",
        ),
        _Instead(
            "sourceArchiveDir",
            "remove or move files by a job of your own: those that are gone leave the checkpoint",
        ),
        _Instead("maxFileAge", _LATER),
        _Instead("fileNameOnly", "a file is known by its whole URL"),
        _Instead("maxCachedFiles", _LATER),
        _Instead("discardCachedInputRatio", _LATER),
        _Instead("maxRowsPerTrigger", "maxFilesPerTrigger bounds a batch by its number of files"),
        _Instead("minRowsPerTrigger", "the trigger of the query says how often a batch is made"),
        _Instead("maxTriggerDelay", "the trigger of the query says how often a batch is made"),
        _Instead("startingOffsets", _FILES_ONLY),
        _Instead("endingOffsets", _FILES_ONLY),
        _Instead("startingOffsetsByTimestamp", _FILES_ONLY),
        _Instead("startingTimestamp", _FILES_ONLY),
        _Instead("startingVersion", _FILES_ONLY),
        _Instead("endingTimestamp", _FILES_ONLY),
        _Instead("endingVersion", _FILES_ONLY),
        _Instead("failOnDataLoss", "onError = skip goes on without files that are gone"),
        _Instead("ignoreChanges", _FILES_ONLY),
        _Instead("ignoreDeletes", _FILES_ONLY),
        _Instead("skipChangeCommits", _FILES_ONLY),
        _Instead("readChangeFeed", _FILES_ONLY),
        _Instead("versionAsOf", _VERSIONS),
        _Instead("timestampAsOf", _VERSIONS),
        _Instead("schema", "give it by .schema(…)"),
    )
}
"""The options of Spark's file sources and of the streams that people come from."""


def _setting(name: str, text: str) -> Any:
    default = _SETTINGS[name]
    if isinstance(default, bool):
        return _flag(name, text)
    if isinstance(default, enum.Enum):
        return text
    kind = float if isinstance(default, float) else int
    try:
        return kind(text)
    except ValueError:
        what = "number" if kind is float else "whole number"
        raise ValueError(f"option {name} is a {what}, not {text!r:.80}") from None
