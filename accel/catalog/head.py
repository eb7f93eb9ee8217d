"""The head of a catalog: the small object that names its segments, and holds what saves a round trip.

A commit replaces the head by compare-and-swap, and nothing else makes anything visible: a reader has the
segments that its head names, whatever is committed meanwhile, and a writer that is killed leaves at worst
objects that no head names.

The bytes of a head are the magic `ACCELCAT`, the format version (4 bytes, little endian), the xxh3-128
checksum of what follows (16 bytes), and an Arrow IPC stream of `HEAD_SCHEMA`, one row for each object of a
segment. Whatever else there is to say is JSON in the stream's schema metadata under `accel.catalog`.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from accel.arrays import bytes_array, integers_array, to_ipc
from accel.catalog.ipc_messages import read_batches
from accel.decode.arrow import arrow_schema
from accel.errors import IndexFormatError
from accel.format.footer import parse_footer, parse_tail
from accel.tables.partition_paths import SpelledColumn, spelled_columns

if TYPE_CHECKING:
    from accel.arrays import Bools
    from accel.format.model import FileMetadata

__all__ = [
    "FORMAT_VERSION",
    "HEAD_NAME",
    "HEAD_SCHEMA",
    "REBUILD",
    "CatalogHead",
    "Retired",
    "Segment",
    "SegmentObject",
    "Table",
    "ordinals_of",
    "ordinals_text",
]

HEAD_NAME: Final = "head"
"""The name of the head in the directory of the catalog."""
FORMAT_VERSION: Final = 3
REBUILD: Final = "build the index again elsewhere"
"""What to do where an object of a catalog is damaged."""
_MAGIC = b"ACCELCAT"
_PREFIX = struct.Struct("<8sI16s")
_METADATA_KEY = b"accel.catalog"
_MOST_FILES: Final = (1 << 31) - 1
"""Files of a segment: tables number them in 32 bits."""
_MOST_FINGERPRINTS: Final = 16
"""Schemas of a segment that the head tells."""
_OBJECT_NAME = re.compile(r"[a-z]+-[0-9a-zA-Z.]+-[0-9a-f]{16}\.(parquet|pages)")


_SPELLED_TYPES: Final = {str(kind): kind for kind in (pa.int64(), pa.date32(), pa.string(), pa.null())}


class Table:
    """The tables of a segment, by the names that heads and objects have for them."""

    FILES: Final = "files"
    BOUNDS: Final = "bounds"


HEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("segment", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("num_rows", pa.int64(), nullable=False),
        pa.field("tail", pa.binary(), nullable=False),
        pa.field("content", pa.binary()),
    ]
)
"""`tail` is the end of the Parquet object: its footer and page indexes. `content` is the whole object, where
it is small."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SegmentObject:
    """One Parquet object of a segment, which holds one of its tables."""

    name: str
    """In the directory of the catalog."""
    size: int
    etag: str | None
    """None where the home gives none: then `content` is there."""
    num_rows: int
    tail: bytes
    """How its table is stored: the end of a Parquet object; in a database, the parts of the table."""
    content: bytes | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that the head holds of it."""
        return len(self.tail if self.content is None else self.content)

    @functools.cached_property
    def footer(self) -> FileMetadata:
        """The footer of the object.

        Raises
        ------
        ParquetFormatError
            It is damaged.
        IndexFormatError
            It tells of other rows than the table has.
        """
        length = parse_tail(memoryview(self.tail)[-8:]).length
        start = self.size - 8 - length
        footer = parse_footer(self.tail[-8 - length : -8], file_size=self.size, footer_start=start)
        if not self.num_rows == footer.num_rows == int(footer.group_rows.sum()):
            raise IndexFormatError(f"the object {self.name} of the catalog lacks rows", hint=REBUILD)
        return footer

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table; raises as `footer`."""
        return arrow_schema(self.footer.schema, self.footer.key_value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """Immutable tables about some files. A file is identified by its ordinal: its place in the table `files`,
    by path."""

    id: str
    num_files: int
    """As the head has it. Nothing is made of this size before the table `files` is read, which has as many
    rows."""
    objects: Mapping[str, SegmentObject]
    """By table."""
    dropped: AbstractSet[int] = frozenset()
    """The ordinals of files that were removed or replaced since. A few bytes of a head may name very many:
    they are not listed before the table `files` is read."""
    num_rows: Mapping[str, int]
    """By table, the rows that its builder made. An object that has others was damaged: a row that is gone
    could be a file that is ruled out."""
    uncovered: Mapping[str, AbstractSet[int]] = field(default_factory=dict)
    """By table, the ordinals of files of which it says nothing; of all, where no table was made."""
    first_path: str = ""
    """The least path of its files."""
    last_path: str = ""
    """The greatest."""
    spells_columns: bool = True
    """Whether a path may spell a partition column."""
    spelled: Mapping[str, SpelledColumn] | None = None
    """What the paths of all of its files spell, by key; None where that is not known, or their keys
    differ."""
    fingerprints: tuple[str, ...] | None = None
    """Those of the schemas of its files, where they are few; None where they are many, or that is not
    known."""

    @property
    def num_live(self) -> int:
        """Files that count."""
        return self.num_files - len(self.dropped)

    def with_files(self, paths: Sequence[str], fingerprints: Iterable[str]) -> Segment:
        """Return the segment with the facts about its files that are needed before these are read: what their
        paths tell, and the fingerprints of their schemas."""
        schemas = tuple(sorted(set(fingerprints)))
        spells = any("=" in path for path in paths)
        spelled = spelled_columns(path.rpartition("/")[0] for path in paths) if spells else {}
        return replace(
            self,
            first_path=min(paths),
            last_path=max(paths),
            spells_columns=spells,
            spelled=spelled,
            fingerprints=schemas if 0 < len(schemas) <= _MOST_FINGERPRINTS else None,
        )

    @property
    def first_live(self) -> int:
        """The ordinal of the first file that counts."""
        if not self.dropped:
            return 0
        from pyroaring import BitMap

        dropped = self.dropped if isinstance(self.dropped, BitMap) else BitMap(self.dropped)
        low, high = 0, self.num_files - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if dropped.rank(middle) <= middle else (middle + 1, high)
        return low

    def covered_by(self, table: str) -> Bools:
        """Return whether a table says something of each file."""
        covered = np.full(self.num_files, table in self.objects)
        covered[list(self.uncovered.get(table, ()))] = False
        return covered

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it was built with, whether they say anything or not."""
        return frozenset(self.objects) | frozenset(self.uncovered)

    @property
    def object_bytes(self) -> int:
        """The bytes of its objects."""
        return sum(one.size for one in self.objects.values())


@dataclass(frozen=True, slots=True)
class Retired:
    """An object that heads named once and that none names any more."""

    name: str
    since: float
    """When a head first did without it (`time.time`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogHead:
    """What one head says."""

    base: str
    """The URL of the directory whose files the catalog covers; "." is the directory that its own lies in."""
    generation: int = 0
    """How many commits came before."""
    columns: tuple[str, ...] | None = None
    """The columns that have bounds; None for all."""
    indexes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The kinds of index by what they are of, as `CatalogIndex.of` has it."""
    complete: bool = True
    """Whether a refresh has listed all files of the directory. Scans may rely on the list of files only then:
    an index that scans have learned, or whose first build was not finished, lists some."""
    table: Mapping[str, Any] | None = None
    """Of an index of a table its `format`, `location` and the last `version` that it covers. It keeps the
    files of earlier versions, and never lists files for a scan."""
    segments: tuple[Segment, ...] = ()
    retired: tuple[Retired, ...] = ()

    @property
    def num_files(self) -> int:
        """Files that the catalog covers."""
        return sum(segment.num_live for segment in self.segments)

    @property
    def names(self) -> frozenset[str]:
        """The objects that its segments consist of."""
        return frozenset(one.name for segment in self.segments for one in segment.objects.values())

    def encode(self) -> bytes:
        """Return the bytes of the head."""
        rows: dict[str, list[Any]] = {name: [] for name in HEAD_SCHEMA.names}
        for segment in self.segments:
            for table, one in sorted(segment.objects.items()):
                values = (
                    segment.id,
                    table,
                    one.name,
                    one.size,
                    one.etag,
                    one.num_rows,
                    one.tail,
                    one.content,
                )
                for name, value in zip(HEAD_SCHEMA.names, values, strict=True):
                    rows[name].append(value)
        described = {
            "base": self.base,
            "generation": self.generation,
            "columns": self.columns,
            "indexes": {of: list(kinds) for of, kinds in self.indexes.items()},
            "complete": self.complete,
            "table": None if self.table is None else dict(self.table),
            "segments": [
                {
                    "id": segment.id,
                    "files": segment.num_files,
                    "paths": [segment.first_path, segment.last_path],
                    "spells_columns": segment.spells_columns,
                    "spelled": _spelled_text(segment.spelled),
                    "schemas": segment.fingerprints,
                    "rows": dict(segment.num_rows),
                    "dropped": ordinals_text(segment.dropped),
                    "uncovered": {
                        table: ordinals_text(files) for table, files in segment.uncovered.items() if files
                    },
                }
                for segment in self.segments
            ],
            "retired": [[one.name, one.since] for one in self.retired],
        }
        schema = HEAD_SCHEMA.with_metadata({_METADATA_KEY: json.dumps(described).encode()})
        arrays = [_array(rows[column.name], column.type) for column in HEAD_SCHEMA]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        payload = to_ipc(batch)
        return _PREFIX.pack(_MAGIC, FORMAT_VERSION, _checksum(payload)) + payload

    @classmethod
    def decode(cls, data: bytes) -> CatalogHead:
        """Read the bytes of a head back.

        Raises
        ------
        IndexFormatError
            They are damaged, or of another format version.
        """
        if len(data) < _PREFIX.size or data[:8] != _MAGIC:
            raise IndexFormatError("this is no head of a catalog")
        _, version, checksum = _PREFIX.unpack_from(data)
        if version != FORMAT_VERSION:
            raise IndexFormatError(
                f"the catalog has format version {version}, and this version of accel reads {FORMAT_VERSION}",
                hint="build the index again, or update accel",
            )
        payload = data[_PREFIX.size :]
        if _checksum(payload) != checksum:
            raise IndexFormatError("the head of the catalog is damaged: its checksum does not match")
        try:
            return cls._read(payload)
        except IndexFormatError:
            raise
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            EOFError,
            RecursionError,
        ) as error:
            raise IndexFormatError(f"the head of the catalog cannot be read: {error}") from error

    @classmethod
    def _read(cls, payload: bytes) -> CatalogHead:
        schema, batches = read_batches(payload, HEAD_SCHEMA)
        described = json.loads(schema.metadata[_METADATA_KEY])
        objects: dict[str, dict[str, SegmentObject]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                one = SegmentObject(
                    name=_checked_name(row["name"]),
                    size=row["size"],
                    etag=row["etag"],
                    num_rows=row["num_rows"],
                    tail=row["tail"],
                    content=row["content"],
                )
                objects.setdefault(row["segment"], {})[row["table"]] = one
        return cls(
            base=str(described["base"]),
            generation=int(described["generation"]),
            columns=None if described["columns"] is None else tuple(described["columns"]),
            indexes={str(of): tuple(map(str, kinds)) for of, kinds in dict(described["indexes"]).items()},
            complete=bool(described["complete"]),
            table=None if described.get("table") is None else dict(described["table"]),
            segments=tuple(_segment(one, objects) for one in described["segments"]),
            retired=tuple(Retired(_checked_name(name), float(since)) for name, since in described["retired"]),
        )


def _segment(described: Mapping[str, Any], objects: Mapping[str, Mapping[str, SegmentObject]]) -> Segment:
    num_files, tables = described["files"], objects[described["id"]]
    if type(num_files) is not int or not 1 <= num_files <= _MOST_FILES:
        raise IndexFormatError(f"the head of the catalog has a segment of {num_files!r:.80} files")
    dropped = ordinals_of(described["dropped"], limit=num_files)
    uncovered = {
        str(table): ordinals_of(files, limit=num_files) for table, files in described["uncovered"].items()
    }
    if tables[Table.FILES].num_rows != num_files or len(dropped) >= num_files:
        raise IndexFormatError("the head of the catalog contradicts itself about the files of a segment")
    num_rows = {str(table): int(rows) for table, rows in described["rows"].items()}
    if num_rows != {table: one.num_rows for table, one in tables.items()}:
        raise IndexFormatError(
            "a table of the catalog has not the rows that were made for it", hint="build the index again"
        )
    first_path, last_path = described["paths"]
    return Segment(
        id=str(described["id"]),
        num_files=num_files,
        objects=tables,
        num_rows=num_rows,
        dropped=dropped,
        uncovered=uncovered,
        first_path=str(first_path),
        last_path=str(last_path),
        spells_columns=bool(described["spells_columns"]),
        spelled=_spelled_of(described["spelled"]),
        fingerprints=None if not described.get("schemas") else tuple(map(str, described["schemas"])),
    )


def _spelled_text(spelled: Mapping[str, SpelledColumn] | None) -> Any:
    if spelled is None:
        return None
    return [[key, str(one.kind), one.lower, one.upper, one.has_null] for key, one in spelled.items()]


def _spelled_of(described: Any) -> Mapping[str, SpelledColumn] | None:
    if described is None:
        return None
    return {
        str(key): SpelledColumn(_SPELLED_TYPES[kind], lower, upper, bool(has_null))
        for key, kind, lower, upper, has_null in described
    }


def _array(values: Sequence[Any], to: pa.DataType) -> pa.Array:
    if pa.types.is_integer(to):
        return integers_array(values, to)
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return bytes_array(encoded, to)


def ordinals_text(files: AbstractSet[int]) -> str | None:
    """Return ordinals of files as heads write them; None for none."""
    from pyroaring import BitMap

    return BitMap(files).serialize().hex() if files else None


def ordinals_of(text: str | None, *, limit: int) -> AbstractSet[int]:
    """Return the ordinals that a head writes so: a set that takes as little memory as the text.

    Raises
    ------
    IndexFormatError
        The text is damaged, or names an ordinal of `limit` or above.
    """
    if text is None:
        return frozenset()
    from accel.indexes.matrix import decode_bitmap

    try:
        return cast("AbstractSet[int]", decode_bitmap(memoryview(bytes.fromhex(text)), limit=limit))
    except (ValueError, TypeError) as error:
        raise IndexFormatError(f"the catalog has a broken list of files: {error}", hint=REBUILD) from error


def _checked_name(name: str) -> str:
    if not _OBJECT_NAME.fullmatch(name):
        raise IndexFormatError(f"the head of the catalog names an object {name!r:.80}, which is no segment's")
    return name


def _checksum(payload: bytes) -> bytes:
    import xxhash

    return bytes(xxhash.xxh3_128_digest(payload))
