"""Writers with known faults, and which statistics of which of their versions are not trusted.

Each rule names its source. Some faults that other readers list need no rule here:

- PARQUET-686 (parquet-mr before 1.10, parquet-cpp before 1.3): the deprecated bounds are in signed order.
  They are used only for types whose order is signed (`format.domain`).
- PARQUET-297 (parquet-mr that left out `created_by`): those versions wrote the deprecated bounds for bytes
  only.
- PARQUET-1065 (INT96): such bounds are never used.
- apache/arrow-rs issue 6256 (parquet-rs before 53.1): an absent null count is never zero.
- pola-rs/polars issue 15323, apache/parquet-java issue 3457: bounds that cross and pages that are all null
  and have no null contradict themselves (`format.bounds`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa

from accel.format.model import ARROW_SCHEMA_KEY, FileMetadata, Leaf, Physical, Repetition, SchemaElement
from accel.format.packed import SharedMetadata
from accel.format.schema import ConvertedType, LogicalType

__all__ = [
    "NO_DOUBTS",
    "Doubts",
    "Writer",
    "doubts_about",
    "leaves_out_dictionary_header",
    "lists_used_values",
    "miscounts_nulls",
    "parse_writer",
]

Version: TypeAlias = "tuple[int, int, int]"

_LONGEST: Final = 300
"""Characters of a `created_by` that are parsed."""
# "parquet-mr version 1.8.0rc2-SNAPSHOT (build abc)", "Polars", "ClickHouse v25.7.1".
# Compiled when the first file is opened, not when the module is imported.
_WRITER: Final = r"(.*?)(?:\s+(?:version|(?=v[0-9]))\s*([^(]*).*)?"
_VERSION: Final = r"v?([0-9]{1,9})(?![0-9])(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?"


@dataclass(frozen=True, slots=True)
class Writer:
    """The application that wrote a file."""

    application: str
    """In lower case, as in parquet-cpp's ApplicationVersion."""
    version: Version | None
    """Major, minor and patch, missing ones as 0; None where there is no version."""

    def within(self, since: Version, fixed: Version | None) -> bool:
        """Return whether the version may lie in [since, fixed)."""
        version = self.version
        return version is None or (since <= version and (fixed is None or version < fixed))


@lru_cache(maxsize=256)
def parse_writer(created_by: str) -> Writer:
    """Read `created_by` as parquet-java's VersionParser and parquet-cpp's ApplicationVersion do.

    A pre-release counts as the version that it precedes. A text that does not parse counts as the name alone.
    """
    parts = re.fullmatch(_WRITER, " ".join(created_by[:_LONGEST].lower().split()))
    if parts is None:
        return Writer("", None)
    name, text = parts.groups()
    found = re.match(_VERSION, text or "")
    if found is None:
        return Writer(name, None)
    major, minor, patch = (int(number or 0) for number in found.groups())
    return Writer(name, (major, minor, patch))


@dataclass(frozen=True, slots=True)
class Doubts:
    """The statistics of a column that are not trusted."""

    bounds: bool = False
    """The bounds of its chunks and pages."""
    page_uppers: bool = False
    """The upper bounds of its pages, which may be truncated without being raised."""
    extremes: bool = False
    """That bounds occur as values, where the chunk or page may hold nulls."""
    null_counts: bool = False
    """All null counts."""
    repeated_null_counts: bool = False
    """Null counts above zero of dictionary-encoded pages, which may be sums over several pages."""
    bloom_filters: bool = False

    def __or__(self, other: Doubts) -> Doubts:
        return Doubts(*map(operator.or_, astuple(self), astuple(other)))


NO_DOUBTS: Final = Doubts()
"""The doubts about nearly all columns of nearly all files."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A fault of some versions of some writers."""

    source: str
    applications: tuple[str, ...]
    columns: Callable[[SchemaElement, bool], bool]
    """Returns whether a column is affected, from its schema element and whether it may have been a dictionary
    array."""
    doubts: Doubts
    since: Version = (0, 0, 0)
    fixed: Version | None = None
    """The first version without the fault; None where none is known."""


def _any(element: SchemaElement, dictionary: bool) -> bool:
    return True


def _is_bytes(element: SchemaElement, dictionary: bool) -> bool:
    return element.physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY)


def _is_free_bytes(element: SchemaElement, dictionary: bool) -> bool:
    return element.physical is Physical.BYTE_ARRAY


def _is_dictionary(element: SchemaElement, dictionary: bool) -> bool:
    return dictionary


def _is_bytes_dictionary(element: SchemaElement, dictionary: bool) -> bool:
    return dictionary and element.physical is Physical.BYTE_ARRAY


def _is_boolean(element: SchemaElement, dictionary: bool) -> bool:
    return element.physical is Physical.BOOLEAN


def _is_bytes_decimal(element: SchemaElement, dictionary: bool) -> bool:
    logical = element.logical_type
    decimal = (
        element.converted_type == ConvertedType.DECIMAL if logical is None else logical == LogicalType.DECIMAL
    )
    return decimal and _is_bytes(element, dictionary)


def _is_free_decimal(element: SchemaElement, dictionary: bool) -> bool:
    return element.physical is Physical.BYTE_ARRAY and _is_bytes_decimal(element, dictionary)


def _is_timestamp(element: SchemaElement, dictionary: bool) -> bool:
    if element.logical_type is not None:
        return element.logical_type == LogicalType.TIMESTAMP
    return element.converted_type in (ConvertedType.TIMESTAMP_MILLIS, ConvertedType.TIMESTAMP_MICROS)


_PARQUET_GO: Final = ("github.com/segmentio/parquet-go", "github.com/parquet-go/parquet-go")

_RULES: Final = (
    _Rule(
        "PARQUET-251: one array of bytes, reused, was the bound of every row group",
        ("parquet-mr",),
        _is_bytes,
        Doubts(bounds=True),
        fixed=(1, 8, 0),
    ),
    _Rule(
        "ARROW-12513: nulls of dictionary arrays were not counted; parquet-cpp became parquet-cpp-arrow with "
        "3.0",
        ("parquet-cpp",),
        _is_bytes_dictionary,
        Doubts(null_counts=True),
    ),
    _Rule(
        "ARROW-12513",
        ("parquet-cpp-arrow",),
        _is_bytes_dictionary,
        Doubts(null_counts=True),
        fixed=(6, 0, 0),
    ),
    _Rule(
        "apache/arrow issue 15042: of the chunks of an array that share a dictionary only the first one was "
        "counted",
        ("parquet-cpp-arrow",),
        _is_bytes_dictionary,
        Doubts(bounds=True, null_counts=True),
        since=(6, 0, 0),
        fixed=(11, 0, 0),
    ),
    _Rule(
        "seen of 26.0.1: the bounds of a dictionary array with nulls include entries that no row has",
        ("parquet-cpp-arrow",),
        _is_bytes_dictionary,
        Doubts(extremes=True),
    ),
    _Rule(
        "apache/arrow issue 42906 (ARROW-6149): decimals were not compared as numbers",
        ("parquet-cpp",),
        _is_bytes_decimal,
        Doubts(bounds=True),
    ),
    _Rule(
        "apache/arrow issue 42906",
        ("parquet-cpp-arrow",),
        _is_bytes_decimal,
        Doubts(bounds=True),
        fixed=(4, 0, 0),
    ),
    _Rule(
        "apache/arrow-rs issue 641: a shorter text was the lesser one",
        ("parquet-rs",),
        _is_free_bytes,
        Doubts(bounds=True),
        fixed=(5, 2, 0),
    ),
    _Rule(
        "apache/arrow-rs pull request 1621: decimals were compared as unsigned bytes",
        ("parquet-rs",),
        _is_bytes_decimal,
        Doubts(bounds=True),
        fixed=(13, 0, 0),
    ),
    _Rule(
        "apache/arrow-rs issues 10860 and 11073: so were those of free length, still",
        ("parquet-rs",),
        _is_free_decimal,
        Doubts(bounds=True),
    ),
    _Rule(
        "jorgecarleitao/arrow2 pull request 1414: the null count was that of the dictionary",
        ("arrow2 - native rust implementation of arrow",),
        _is_dictionary,
        Doubts(null_counts=True),
    ),
    _Rule(
        "pola-rs/polars issue 29321: the null count of the chunk was added once a page, and was that of each "
        "page",
        ("polars",),
        _any,
        Doubts(repeated_null_counts=True),
    ),
    _Rule(
        "pola-rs/polars issue 26667: what a boolean array holds below its nulls was counted",
        ("polars",),
        _is_boolean,
        Doubts(extremes=True),
    ),
    _Rule(
        "pola-rs/polars issue 29347: bounds of pages were merged as unsigned bytes",
        ("polars",),
        _is_bytes_decimal,
        Doubts(bounds=True),
    ),
    _Rule(
        "segmentio/parquet-go issue 495: upper bounds of pages were cut, and not raised",
        ("github.com/segmentio/parquet-go",),
        _is_bytes,
        Doubts(page_uppers=True),
    ),
    _Rule(
        "parquet-go/parquet-go issue 592: decimals were compared as unsigned bytes",
        _PARQUET_GO,
        _is_bytes_decimal,
        Doubts(bounds=True),
    ),
    _Rule(
        "fraugster/parquet-go issue 69, hangxie/parquet-tools pull request 205: wrong null counts; arrow-go "
        "took the name on",
        ("parquet-go",),
        _any,
        Doubts(null_counts=True),
        fixed=(7, 0, 0),
    ),
    _Rule(
        "arrow-go: values of dictionary arrays were left out of the bloom filter",
        ("parquet-go",),
        _any,
        Doubts(bloom_filters=True),
        since=(18, 4, 0),
        fixed=(18, 7, 0),
    ),
    _Rule(
        "duckdb/duckdb issue 14430, aloneguid/parquet-dotnet issue 769: shifted by the writer's time zone, "
        "or in another unit",
        ("parquet.net", "parquet-dotnet"),
        _is_timestamp,
        Doubts(bounds=True),
    ),
    _Rule(
        "ClickHouse/ClickHouse pull request 83754: decimals were compared as unsigned bytes",
        ("clickhouse",),
        _is_bytes_decimal,
        Doubts(bounds=True),
        fixed=(25, 9, 0),
    ),
)


@lru_cache(maxsize=256)
def _rules_for(created_by: str) -> tuple[_Rule, ...]:
    writer = parse_writer(created_by)
    return tuple(
        [
            rule
            for rule in _RULES
            if writer.application in rule.applications and writer.within(rule.since, rule.fixed)
        ]
    )


def doubts_about(
    metadata: FileMetadata | SharedMetadata, leaf_ordinal: int, *, arrow_type: pa.DataType
) -> Doubts:
    """Return the statistics of a column that are not trusted, given the writer of the file.

    Parameters
    ----------
    metadata : FileMetadata or SharedMetadata
    leaf_ordinal : int
    arrow_type : pyarrow.DataType
        What the column decodes to in this file.
    """
    found = NO_DOUBTS
    rules = _rules_for(metadata.created_by)
    if rules:
        schema = metadata.schema
        element = schema.elements[schema.leaves[leaf_ordinal].element]
        dictionary = _was_dictionary(arrow_type, metadata.key_value)
        for rule in rules:
            if rule.columns(element, dictionary):
                found |= rule.doubts
    return found


def _was_dictionary(kind: pa.DataType, key_value: Mapping[str, bytes]) -> bool:
    """Return whether a column may have been written from a dictionary array; without Arrow's schema it may
    always."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return ARROW_SCHEMA_KEY not in key_value or pa.types.is_dictionary(kind)


_LISTS_USED_VALUES: Final = frozenset({"datafusion", "parquet-mr", "parquet-rs"})


def lists_used_values(metadata: FileMetadata | SharedMetadata, *, arrow_type: pa.DataType) -> bool:
    """Return whether each entry of a dictionary page is a value of its chunk, given the writer of the file.

    The format does not ask for that. Writers that collect the dictionary from the values have no other
    entries; those that are given one, as Arrow's of a dictionary array, write it whole.
    """
    application = parse_writer(metadata.created_by).application
    if application == "parquet-cpp-arrow":
        return not _was_dictionary(arrow_type, metadata.key_value)
    return application in _LISTS_USED_VALUES


def leaves_out_dictionary_header(created_by: str) -> bool:
    """Return whether this writer's chunks are longer than their sizes state (PARQUET-816)."""
    writer = parse_writer(created_by)
    return writer.application == "parquet-mr" and writer.within((0, 0, 0), (1, 2, 9))


def miscounts_nulls(element: SchemaElement, leaf: Leaf) -> bool:
    """Return whether the null counts of a column may be too low.

    For dictionary-encoded text within structs, Arrow's writer (still in 26.0.1) counts the text's own nulls
    but not those of the structs. Other writers do the same, so this does not depend on the writer.
    """
    own = element.repetition == Repetition.OPTIONAL
    return element.physical == Physical.BYTE_ARRAY and leaf.max_definition > own
