"""Manifests and lists of manifests, as columns.

Source: the Iceberg specification, "Manifests" and "Snapshots: Manifest Lists". Fields go by their ids, as
writers have called some of them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy, integers, masked_numbers, validity, values_array
from accel.errors import TableFormatError
from accel.tables.formats.iceberg.avro import AvroFile, BytesPairs, IntPairs, decode_numbers, open_avro

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "DATA",
    "DELETES",
    "ByField",
    "Manifest",
    "ManifestEntry",
    "Summary",
    "parse_manifest",
    "parse_manifest_list",
]

Pairs = TypeVar("Pairs", IntPairs, BytesPairs)

DATA: Final = 0
"""The content of manifests of data files."""
DELETES: Final = 1
"""The content of manifests of delete files."""
POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2
_DELETED: Final = 2
"""The status of an entry whose file is gone."""
_ADDED: Final = 1
_MOST_NUMBER: Final = 1 << 62
_FIELDS: Final = frozenset(
    (0, 2, 3, 100, 101, 102, 103, 104, 110, 125, 128, 131, 134, 135, 137, 142, 143, 144, 145)
)
"""The ids of the fields of entries and their files that are read."""
_AT_ONCE: Final = 2048
"""Files that are made into columns together: as objects they take ten times the memory."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list of manifests says of one partition field of all files of a manifest."""

    contains_null: bool
    contains_nan: bool | None
    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One manifest, as a list of manifests names it."""

    path: str
    length: int | None
    spec_id: int
    content: int
    sequence_number: int
    first_row_id: int | None = None
    """The id of the first row of its files that have none of their own."""
    files: int | None
    """Its files that are not gone; None where unknown."""
    summaries: tuple[Summary, ...] | None
    """By field of the partition spec; None where unknown."""


class ByField:
    """A map from field ids to values for each file of a manifest, in columns.

    Parameters
    ----------
    counts : array of int64
        The pairs of each file.
    ids : array of int64
        The field ids of all pairs.
    values : pyarrow.Array
    """

    __slots__ = ("_counts", "_ids", "_stops", "_values")

    def __init__(self, counts: Int64s, ids: Int64s, values: pa.Array) -> None:
        self._counts, self._ids, self._values = counts, ids, values
        self._stops = np.cumsum(counts)

    @classmethod
    def of_numbers(cls, given: Sequence[IntPairs | None], keys: frozenset[int] | None = None) -> ByField:
        """Make it of numbers, of some field ids or of all."""
        counts = np.array([0 if each is None else each.count for each in given], np.int64)
        numbers = decode_numbers(b"".join([each.data for each in given if each is not None]))
        ids, values = numbers[0::2], numbers[1::2]
        if keys is not None:
            kept = np.isin(ids, np.array(sorted(keys), np.int64))
            ends = np.append(0, np.cumsum(kept))[np.append(0, np.cumsum(counts))]
            counts, ids, values = np.diff(ends), ids[kept], values[kept]
        return cls(counts, ids.copy(), from_numpy(values.copy()))

    @classmethod
    def joined(cls, parts: Sequence[ByField]) -> ByField:
        """Make it of those of several runs of files."""
        return cls(
            np.concatenate([part._counts for part in parts]),
            np.concatenate([part._ids for part in parts]),
            pa.concat_arrays([part._values for part in parts]),
        )

    @classmethod
    def of_bytes(cls, given: Sequence[BytesPairs | None]) -> ByField:
        """Make it of bytes."""
        counts = np.array([0 if each is None else len(each.ids) for each in given], np.int64)
        ids = list(chain.from_iterable(each.ids for each in given if each is not None))
        values = list(chain.from_iterable(each.values for each in given if each is not None))
        return cls(counts, np.array(ids, np.int64), values_array(values, pa.binary()))

    def of(self, field_id: int) -> pa.Array | None:
        """Return the values of one field, null for files that have none; None where no file has one."""
        at = np.flatnonzero(self._ids == field_id)
        if not len(at):
            return None
        places = np.full(len(self._counts), -1, np.int64)
        places[np.searchsorted(self._stops, at, "right")] = at
        return self._values.take(masked_numbers(places, places >= 0, pa.int64()))

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return int(self._ids.nbytes + self._counts.nbytes + self._values.nbytes)


@dataclass(frozen=True, eq=False)
class Manifest:
    """The files of a manifest that are not gone, in columns."""

    spec_id: int
    """The partition spec that its header names, for snapshots without a list of manifests."""
    content: Int64s
    """0 for data, 1 for position deletes, 2 for equality deletes."""
    paths: pa.Array
    formats: tuple[str, ...]
    """The formats of the files that are not Parquet, each once."""
    format_of: pa.Array
    num_rows: Int64s
    sizes: Int64s
    sequence_numbers: pa.Array
    """Null where they are those of the manifest."""
    partition: Mapping[int, pa.Array]
    """By the id of the partition field, the values as they are stored."""
    lower: ByField
    upper: ByField
    null_counts: ByField
    nan_counts: ByField
    encrypted: bool
    """Whether a file has a key."""
    equality_ids: Sequence[tuple[int, ...] | None]
    content_offsets: Sequence[int | None]
    content_sizes: Sequence[int | None]
    referenced: Sequence[str | None]
    first_row_ids: pa.Array
    """The id of the first row of each file; null where it is inherited, or there is none."""

    def __len__(self) -> int:
        return len(self.paths)

    def row_ids(self, first_row_id: int | None) -> pa.Array:
        """Return the id of the first row of each file, by that of the manifest; null where rows have none.

        Source: the Iceberg specification, "First Row ID Inheritance".
        """
        if first_row_id is None:
            return pa.nulls(len(self), pa.int64())
        own = validity(self.first_row_ids)
        counts = np.where(own, 0, self.num_rows)
        inherited = first_row_id + np.cumsum(counts) - counts
        return from_numpy(np.where(own, integers(self.first_row_ids), inherited))

    @cached_property
    def nbytes(self) -> int:
        """The memory that it takes."""
        arrays = (self.paths, self.format_of, self.sequence_numbers, *self.partition.values())
        maps = (self.lower, self.upper, self.null_counts, self.nan_counts)
        return int(
            2048
            + sum(array.nbytes for array in arrays)
            + sum(each.nbytes for each in maps)
            + 24 * len(self)
            + sum(160 for each in self.equality_ids if each is not None)
            + sum(200 for each in self.referenced if each is not None)
        )


def parse_manifest_list(data: memoryview) -> list[ManifestEntry]:
    """Parse a list of manifests.

    Raises
    ------
    TableFormatError
        It is damaged, or a manifest is encrypted.
    """
    avro = open_avro(data)
    names = _names(avro.schema)
    get = _getter(names)
    found = []
    for records in avro.blocks():
        for record in records:
            path = get(record, 500)
            if not isinstance(path, str):
                raise TableFormatError("an entry of the list of manifests has no path")
            if get(record, 519) is not None:
                raise TableFormatError("the table is encrypted, which is not supported", path=path)
            content = get(record, 517)
            found.append(
                ManifestEntry(
                    path=path,
                    length=_count(get(record, 501), "the length of a manifest", path),
                    spec_id=_count(get(record, 502) or 0, "the partition spec of a manifest", path) or 0,
                    content=DATA if content is None else content,
                    sequence_number=_count(get(record, 515) or 0, "a sequence number", path) or 0,
                    first_row_id=_count(get(record, 520), "the id of a row", path),
                    files=_files(get(record, 504), get(record, 505)),
                    summaries=_summaries(get(record, 507)),
                )
            )
            if found[-1].content not in (DATA, DELETES):
                raise TableFormatError(f"the manifest has the content {content!r}", path=path)
    return found


def _files(added: Any, existing: Any) -> int | None:
    if not isinstance(added, int) or not isinstance(existing, int) or min(added, existing) < 0:
        return None
    return added + existing


def _summaries(given: Any) -> tuple[Summary, ...] | None:
    if not isinstance(given, list):
        return None
    return tuple(
        Summary(
            each.get("contains_null") is not False,
            each.get("contains_nan"),
            each.get("lower_bound"),
            each.get("upper_bound"),
        )
        for each in given
    )


def parse_manifest(data: memoryview, *, keys: frozenset[int] | None = None) -> Manifest:
    """Parse a manifest.

    Parameters
    ----------
    data : memoryview
    keys : frozenset of int, optional
        The ids of the columns whose bounds and counts are kept; by default those of all.

    Raises
    ------
    TableFormatError
        It is damaged.
    """
    avro = open_avro(data, fields=_FIELDS, keys=keys)
    entry = _names(avro.schema)
    file_schema = _schema_of(avro, 2)
    entry_get = _getter(entry)
    parts: list[Manifest] = []
    files: list[dict[str, Any]] = []
    sequence: list[int | None] = []
    for records in avro.blocks():
        for record in records:
            status = entry_get(record, 0)
            if status == _DELETED:
                continue
            file = entry_get(record, 2)
            if not isinstance(file, dict):
                raise TableFormatError("an entry of the manifest has no file")
            files.append(file)
            number = entry_get(record, 3)
            if number is None and status != _ADDED and 3 in entry:
                raise TableFormatError(
                    "a file of the manifest has no sequence number, and was not added by it"
                )
            sequence.append(_count(number, "a sequence number", "") if number is not None else None)
        if len(files) >= _AT_ONCE:
            parts.append(_columns(avro, file_schema, files, sequence, keys))
            files, sequence = [], []
    parts.append(_columns(avro, file_schema, files, sequence, keys))
    return _joined(parts)


def _columns(
    avro: AvroFile,
    file_schema: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    sequence: Sequence[int | None],
    keys: frozenset[int] | None,
) -> Manifest:
    """Return some files in columns."""
    file_get = _getter(_names(file_schema))

    def column(number: int) -> list[Any]:
        return [file_get(file, number) for file in files]

    def pairs(number: int, kind: type[Pairs]) -> list[Pairs | None]:
        found = column(number)
        if any(each is not None and not isinstance(each, kind) for each in found):
            raise TableFormatError(
                f"the field {number} of the files of the manifest is no map from field ids"
            )
        return found

    paths = column(100)
    if not all(isinstance(path, str) for path in paths):
        raise TableFormatError("a file of the manifest has no path")
    formats = [str(each).upper() for each in column(101)]
    return Manifest(
        spec_id=_spec_id(avro),
        content=np.array([each or 0 for each in column(134)], np.int64),
        paths=values_array(paths, pa.string()),
        formats=tuple(dict.fromkeys(each for each in formats if each != "PARQUET")),
        format_of=values_array(formats, pa.string()),
        num_rows=_numbers(column(103), "rows"),
        sizes=_numbers(column(104), "bytes"),
        sequence_numbers=values_array(sequence, pa.int64()),
        partition=_partition(file_schema, column(102)),
        lower=ByField.of_bytes(pairs(125, BytesPairs)),
        upper=ByField.of_bytes(pairs(128, BytesPairs)),
        null_counts=ByField.of_numbers(pairs(110, IntPairs), keys),
        nan_counts=ByField.of_numbers(pairs(137, IntPairs), keys),
        encrypted=any(each is not None for each in column(131)),
        equality_ids=[None if each is None else tuple(each) for each in column(135)],
        content_offsets=column(144),
        content_sizes=column(145),
        referenced=column(143),
        first_row_ids=values_array([_count(each, "the id of a row", "") for each in column(142)], pa.int64()),
    )


def _joined(parts: Sequence[Manifest]) -> Manifest:
    """Return the files of several parts of a manifest."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def arrays(get: Callable[[Manifest], pa.Array]) -> pa.Array:
        return pa.concat_arrays([get(part) for part in parts])

    def numbers(get: Callable[[Manifest], Int64s]) -> Int64s:
        return np.concatenate([get(part) for part in parts])

    def listed(get: Callable[[Manifest], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(get(part) for part in parts))

    return Manifest(
        spec_id=first.spec_id,
        content=numbers(lambda part: part.content),
        paths=arrays(lambda part: part.paths),
        formats=tuple(dict.fromkeys(listed(lambda part: part.formats))),
        format_of=arrays(lambda part: part.format_of),
        num_rows=numbers(lambda part: part.num_rows),
        sizes=numbers(lambda part: part.sizes),
        sequence_numbers=arrays(lambda part: part.sequence_numbers),
        partition={
            number: pa.concat_arrays([part.partition[number] for part in parts]) for number in first.partition
        },
        lower=ByField.joined([part.lower for part in parts]),
        upper=ByField.joined([part.upper for part in parts]),
        null_counts=ByField.joined([part.null_counts for part in parts]),
        nan_counts=ByField.joined([part.nan_counts for part in parts]),
        encrypted=any(part.encrypted for part in parts),
        equality_ids=listed(lambda part: part.equality_ids),
        content_offsets=listed(lambda part: part.content_offsets),
        content_sizes=listed(lambda part: part.content_sizes),
        referenced=listed(lambda part: part.referenced),
        first_row_ids=arrays(lambda part: part.first_row_ids),
    )


def _spec_id(avro: AvroFile) -> int:
    text = avro.metadata.get("partition-spec-id", b"0")
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _numbers(given: list[Any], what: str) -> Int64s:
    if any(not isinstance(each, int) or not 0 <= each < _MOST_NUMBER for each in given):
        raise TableFormatError(f"a file of the manifest has no number of {what}")
    return np.array(given, np.int64)


def _count(given: Any, what: str, path: str) -> int | None:
    if given is not None and (not isinstance(given, int) or not 0 <= given < _MOST_NUMBER):
        raise TableFormatError(f"{what} is {given!r}", path=path or None)
    return given


def _names(schema: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the fields of a record, by their ids."""
    return {each["field-id"]: each["name"] for each in schema["fields"] if "field-id" in each}


def _getter(names: Mapping[int, str]) -> Callable[[Mapping[str, Any], int], Any]:
    def get(record: Mapping[str, Any], number: int) -> Any:
        name = names.get(number)
        return None if name is None else record.get(name)

    return get


def _schema_of(avro: AvroFile, number: int) -> Mapping[str, Any]:
    """Return the record that a field of the entries is."""
    for each in avro.schema["fields"]:
        if each.get("field-id") == number:
            kind = each["type"]
            found = kind if isinstance(kind, dict) else next((x for x in kind if isinstance(x, dict)), None)
            if isinstance(found, dict) and found.get("type") == "record":
                return found
    raise TableFormatError("the entries of the manifest have no files")


_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}


def _partition(file_schema: Mapping[str, Any], values: list[Any]) -> dict[int, pa.Array]:
    """Return the columns of the partition values, by the id of the partition field."""
    record = next((each["type"] for each in file_schema["fields"] if each.get("field-id") == 102), None)
    if isinstance(record, list):
        record = next((each for each in record if isinstance(each, dict)), None)
    columns: dict[int, pa.Array] = {}
    if not isinstance(record, dict) or record.get("type") != "record":
        return columns
    for each in record["fields"]:
        kind, number = each["type"], each.get("field-id")
        if isinstance(kind, list):
            kind = next((x for x in kind if x != "null"), "null")
        if isinstance(kind, dict):
            kind = "bytes" if kind["type"] == "fixed" else None
        arrow = _ARROW.get(kind) if isinstance(kind, str) else None
        if number is None:
            raise TableFormatError(f"the partition field {each['name']!r} of the manifest has no id")
        if arrow is not None:
            name = each["name"]
            columns[number] = values_array([value.get(name) for value in values], arrow)
    return columns
