"""The columns of a Hive table, as Arrow has them, and how they are found in files.

Spark stores the schema that it means in the parameters of a table, with names in the case in which they were
written. The metastore itself has all names in lower case. Files are matched without regard to case, as Hive
and Spark match them.

Source: Apache Hive, "Data Types".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.caseless_names import caseless_mapping
from accel.planning.column_mapping import ColumnMapping
from accel.tables.spark_schema import DEEPEST, SparkField, read_spark_schema

__all__ = ["TableColumns", "hive_type", "spark_fields"]

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "double precision": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    # Spark takes both for instants, and so do the files that Hive writes.
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp with local time zone": pa.timestamp("us", "UTC"),
}
_DECIMAL: Final = re.compile(r"decimal(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?", re.ASCII)
_VARCHAR: Final = re.compile(r"varchar\(\s*\d{1,10}\s*\)", re.ASCII)
_SPARK_SCHEMA: Final = "spark.sql.sources.schema"


def hive_type(text: str) -> pa.DataType:
    """Return the Arrow type of a type in Hive's words: `array<struct<a:int,b:decimal(5,2)>>`.

    Raises
    ------
    TableFormatError
        It is none, or one that is not read.
    """
    reader = _TypeReader(text)
    kind = reader.type(0)
    reader.end()
    return kind


class _TypeReader:
    """Reads one type after the other from a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self, depth: int) -> pa.DataType:
        if depth > DEEPEST:
            raise TableFormatError(f"a type is nested more than {DEEPEST} deep")
        word = self._match(r"\s*([A-Za-z][A-Za-z_ ]*[A-Za-z]|[A-Za-z])\s*").lower()
        if word == "array":
            self._take("<")
            element = self.type(depth + 1)
            self._take(">")
            return pa.list_(element)
        if word == "map":
            self._take("<")
            key = self.type(depth + 1)
            self._take(",")
            value = self.type(depth + 1)
            self._take(">")
            return pa.map_(key, value)
        if word == "struct":
            self._take("<")
            fields = [self._field(depth)]
            while self._next() == ",":
                self._take(",")
                fields.append(self._field(depth))
            self._take(">")
            _refuse_twice([field.name for field in fields])
            return pa.struct(fields)
        if self._next() == "(":
            word += self._match(r"(\([0-9, ]*\))")
        return _plain(word)

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong()

    def _field(self, depth: int) -> pa.Field:
        name = self._match(r"\s*(`(?:[^`]|``)*`|[^`:<>,]+?)\s*(?=:)")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._take(":")
        return pa.field(name, self.type(depth + 1))

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise self._wrong()
        self._at += 1

    def _match(self, pattern: str) -> str:
        found = re.compile(pattern).match(self._text, self._at)
        if found is None:
            raise self._wrong()
        self._at = found.end()
        return found[1]

    def _wrong(self) -> TableFormatError:
        return TableFormatError(f"{self._text!r:.200} is no type of Hive")


def _plain(word: str) -> pa.DataType:
    kind = _PLAIN.get(word)
    if kind is not None:
        return kind
    number = _DECIMAL.fullmatch(word)
    if number is not None:
        precision, scale = int(number[1] or 10), int(number[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if _VARCHAR.fullmatch(word):
        return pa.string()
    # Readers of char(n) pad its texts, and writers may or may not have done so.
    raise TableFormatError(f"accel does not read columns of Hive's type {word!r:.80}")


def spark_fields(parameters: Mapping[str, str]) -> list[pa.Field] | None:
    """Return the columns that Spark has stored in the parameters of a table; None where it has stored none.

    Raises
    ------
    TableFormatError
        They cannot be read.
    """
    text = parameters.get(_SPARK_SCHEMA)
    if text is None:
        count = parameters.get(f"{_SPARK_SCHEMA}.numParts")
        if count is None:
            return None
        if not re.fullmatch(r"[0-9]{1,5}", count):
            raise TableFormatError(f"{_SPARK_SCHEMA}.numParts of the table is no number")
        parts = [parameters.get(f"{_SPARK_SCHEMA}.part.{at}") for at in range(int(count))]
        if None in parts:
            raise TableFormatError(f"a part of {_SPARK_SCHEMA} of the table is missing")
        text = "".join(part or "" for part in parts)
    fields = read_spark_schema(text)
    _refuse_twice_below(fields)
    return [pa.field(one.name, one.type) for one in fields]


def _refuse_twice_below(fields: Sequence[SparkField]) -> None:
    _refuse_twice([one.name for one in fields])
    for one in fields:
        _refuse_twice_below(one.fields)
        for element in one.elements:
            _refuse_twice_below((element,))


def _refuse_twice(names: Sequence[str]) -> None:
    lowered = [name.lower() for name in names]
    if len(set(lowered)) < len(lowered):
        twice = next(name for name in lowered if lowered.count(name) > 1)
        raise TableFormatError(f"two columns have the name {twice!r}, case aside")


@dataclass(frozen=True, slots=True, eq=False)
class TableColumns:
    """The columns of a table."""

    schema: pa.Schema
    """All of them; partition columns are the last, in the order in which the metastore has their values."""
    keys: Mapping[str, str]
    """By the metastore's name of a partition column, the name in the schema; in the metastore's order."""

    @classmethod
    def of(
        cls,
        columns: Sequence[tuple[str, str]],
        keys: Sequence[tuple[str, str]],
        parameters: Mapping[str, str],
    ) -> TableColumns:
        """Settle the columns of a table.

        Parameters
        ----------
        columns, keys : sequence of (str, str)
            Name and type of the columns in the files, and of the partition columns, as the metastore has
            them.
        parameters : mapping
            Those of the table.

        Raises
        ------
        TableFormatError
            A column cannot be read, or Spark's schema lacks a partition column.
        """
        fields = spark_fields(parameters)
        if fields is None:
            fields = []
            for name, text in (*columns, *keys):
                try:
                    fields.append(pa.field(name, hive_type(text)))
                except TableFormatError as error:
                    raise error.at(place=f"column {name}") from None
        _refuse_twice([field.name for field in fields])
        by_lower = {field.name.lower(): field for field in fields}
        missing = [name for name, _ in keys if name.lower() not in by_lower]
        if missing:
            raise TableFormatError(f"the partition columns {missing} are not in the schema that Spark stored")
        names = {name: by_lower[name.lower()].name for name, _ in keys}
        last = [by_lower[name.lower()] for name in names]
        first = [field for field in fields if field.name not in names.values()]
        return cls(pa.schema([*first, *last]), names)

    @property
    def in_files(self) -> ColumnMapping:
        """Where files have the columns: partition columns that they may have, too, do not count."""
        partition = set(self.keys.values())
        own = pa.schema([field for field in self.schema if field.name not in partition])
        # Timestamps are instants in microseconds, whether a file has them as INT96 or not.
        return caseless_mapping(own, int96_unit="us")
