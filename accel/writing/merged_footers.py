"""The key-value metadata of a rewritten table, out of the footers of its files.

Spark takes the types of a table from the JSON that it writes into the footer, which alone tells an interval
from a number, and the calendar of dates and timestamps from its version and some marks. pandas finds there
which columns are its index. What files agree on stays; where they differ, the values of both must still be
read as they were.

Sources: Spark's `ParquetFileFormat.readSchemaFromFooter` and `DataSourceUtils.getRebaseSpec`; pandas'
developer guide, "Storing pandas DataFrame objects in Apache Parquet format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from accel.errors import SchemaMismatchError
from accel.format.footer import ARROW_SCHEMA_KEY, IDX1_KEY, TOC_KEY

__all__ = ["MergedFooters"]

_OWN: Final = frozenset(key.encode() for key in (TOC_KEY, IDX1_KEY, ARROW_SCHEMA_KEY))
"""Metadata about one file only."""
_MARKS: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Marks of Spark by which dates and timestamps, and INT96, are of the old calendar."""
_FIRST_NEW: Final = ((3, 0), (3, 1))
"""The versions of Spark from which on files without these marks are of the new one."""
_VERSION: Final = b"org.apache.spark.version"
_ZONE: Final = b"org.apache.spark.timeZone"
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_PANDAS: Final = b"pandas"
_SEPARATE: Final = "rewrite these files by themselves"


class _Calendar(NamedTuple):
    """How Spark reads days and timestamps of a file."""

    old: tuple[bool, bool]
    """Whether dates and timestamps, and INT96, are of the old calendar."""
    zone: bytes | None
    """The zone of the writer, by which old timestamps are converted."""


@dataclass(slots=True)
class MergedFooters:
    """The key-value metadata of several files, which are added one by one."""

    _shared: dict[bytes, bytes] | None = None
    _calendar: _Calendar | None = None
    _version: tuple[tuple[int, ...], bytes] | None = None
    """The greatest version of Spark that wrote a file."""
    _spark: dict[bytes | None, str] = field(default_factory=dict)
    """The schemas of Spark, or None for files without, each with the first file."""
    _pandas: dict[bytes | None, str] = field(default_factory=dict)

    def add(self, metadata: Mapping[bytes, bytes], *, url: str) -> None:
        """Take in the footer of one more file.

        Raises
        ------
        SchemaMismatchError
            Its dates are of another calendar than those before.
        """
        calendar = _calendar_of(metadata)
        if self._calendar is None:
            self._calendar = calendar
        elif calendar != self._calendar:
            marks = [mark.decode() for mark in _MARKS if (mark in metadata) != (mark in (self._shared or {}))]
            by = marks[0] if marks else f"{_VERSION.decode()} or {_ZONE.decode()}"
            raise SchemaMismatchError(
                f"the file differs from those before by {by}: its dates are of another calendar",
                path=url,
                hint=_SEPARATE,
            )
        if (text := metadata.get(_VERSION)) is not None:
            version = (_version_of(text), text)
            self._version = version if self._version is None else max(self._version, version)
        self._spark.setdefault(metadata.get(_SPARK_SCHEMA), url)
        self._pandas.setdefault(metadata.get(_PANDAS), url)
        own = {key: value for key, value in metadata.items() if key not in _OWN}
        before = own if self._shared is None else self._shared
        # The marks are alike in all files, whatever their values, which Spark does not look at.
        self._shared = {
            key: value
            for key, value in before.items()
            if own.get(key) == value or (key in _MARKS and key in own)
        }

    def settle(self, columns: Sequence[str]) -> dict[bytes, bytes]:
        """Return the metadata of the table.

        Parameters
        ----------
        columns : sequence of str
            The columns of the table.

        Raises
        ------
        SchemaMismatchError
            Spark reads a column otherwise in one file than in another.
        """
        merged = dict(self._shared or {})
        if self._version is not None:
            merged[_VERSION] = self._version[1]
        for key, value in ((_SPARK_SCHEMA, self._spark_schema(columns)), (_PANDAS, self._pandas_metadata())):
            merged.pop(key, None)
            if value is not None:
                merged[key] = value
        return merged

    def _spark_schema(self, columns: Sequence[str]) -> bytes | None:
        """Return the schema by which Spark reads the columns; None where it takes them from the file."""
        if len(self._spark) <= 1:
            text = next(iter(self._spark), None)
            return None if text is None else _of_columns(text, columns)
        found = [(None if text is None else _fields_of(text), url) for text, url in self._spark.items()]
        merged: dict[str, Any] = {}
        special = None
        for fields, url in found:
            for name, one in (fields or {}).items():
                other = merged.setdefault(name, one)
                special = special or (name if _is_special(one) else None)
                if other is None or _plain(one.get("type")) == _plain(other.get("type")):
                    continue
                if _is_special(one) or _is_special(other):
                    raise SchemaMismatchError(
                        f"column {name!r} is another type for Spark here than in files before",
                        path=url,
                        hint=_SEPARATE,
                    )
                merged[name] = None  # Spark takes it from the file
        chosen = [merged.get(name) for name in columns]
        lacking = [url for fields, url in found if fields is None]
        if not lacking and all(each is not None for each in chosen):
            return _encoded(chosen)
        if special is not None:
            raise SchemaMismatchError(
                f"column {special!r} has a type that only Spark's own schema tells, which does not name all "
                "columns here",
                path=(lacking or [found[-1][1]])[0],
                hint=_SEPARATE,
            )
        return None

    def _pandas_metadata(self) -> bytes | None:
        """Return what pandas has noted, without the numbers of rows; None where files differ in the rest."""
        rests = [None if text is None else _without_ranges(text) for text in self._pandas]
        first = rests[0] if rests else None
        if first is None or any(rest is None or _essence(rest) != _essence(first) for rest in rests):
            return None
        return json.dumps(first).encode()


def _calendar_of(metadata: Mapping[bytes, bytes]) -> _Calendar:
    text = metadata.get(_VERSION)
    version = None if text is None else _version_of(text)
    old = [
        mark in metadata or (version is not None and version < first)
        for mark, first in zip(_MARKS, _FIRST_NEW, strict=True)
    ]
    return _Calendar((old[0], old[1]), metadata.get(_ZONE) if any(old) else None)


def _version_of(text: bytes) -> tuple[int, ...]:
    parts = text.split(b".")
    return tuple(int(part) for part in parts[:2] if part.isdigit())


def _fields_of(text: bytes) -> dict[str, Any] | None:
    try:
        return {str(each["name"]): dict(each) for each in json.loads(text)["fields"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # Spark cannot read it either, and takes the types from the file


def _of_columns(text: bytes, columns: Sequence[str]) -> bytes:
    """Return a schema without the columns that the table has not."""
    fields = _fields_of(text)
    if fields is None or set(fields) <= set(columns):
        return text
    chosen = [each for name, each in fields.items() if name in set(columns)]
    return _encoded(chosen)


def _encoded(fields: Sequence[Any]) -> bytes:
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")).encode()


_INFERRED: Final = frozenset(
    {
        "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date",
        "timestamp", "timestamp_ntz",
    }
)  # fmt: skip
"""The types of Spark that it finds in the file by itself."""


def _is_special(one: Any) -> bool:
    """Return whether Spark reads a column otherwise without its schema."""
    return one is not None and not _is_inferred(one.get("type"))


def _is_inferred(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in _INFERRED or kind.startswith("decimal(")
    if not isinstance(kind, Mapping):
        return False
    match kind.get("type"):
        case "struct":
            return not any(map(_is_special, kind.get("fields", ())))
        case "array":
            return _is_inferred(kind.get("elementType"))
        case "map":
            return _is_inferred(kind.get("keyType")) and _is_inferred(kind.get("valueType"))
    return False


def _plain(one: Any) -> Any:
    """Return a type without what says only whether it may be null: a file's columns always may, for Spark."""
    if isinstance(one, Mapping):
        nulls = ("nullable", "containsNull", "valueContainsNull")
        return {key: _plain(value) for key, value in one.items() if key not in nulls}
    return [_plain(each) for each in one] if isinstance(one, list) else one


def _without_ranges(text: bytes) -> dict[str, Any] | None:
    """Return the metadata of pandas without an index of row numbers, which are others now."""
    try:
        found = dict(json.loads(text))
        indexes = found["index_columns"]
        found["index_columns"] = [each for each in indexes if not isinstance(each, Mapping)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found


def _essence(found: Mapping[str, Any]) -> Any:
    columns = found.get("columns")
    names = (
        sorted(json.dumps(each, sort_keys=True) for each in columns) if isinstance(columns, list) else None
    )
    return found.get("index_columns"), found.get("column_indexes"), names
