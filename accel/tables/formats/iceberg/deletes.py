"""Rows that are gone: which delete files belong to a data file, and the row numbers in them.

A vector or a position delete file counts for a data file that is not younger than it, an equality delete file
for one that is older. Files are looked up when the scan looks at a data file, and read when that is planned.

Source: the Iceberg specification, "Scan Planning", "Position Delete Files", "Equality Delete Files",
"Deletion Vectors".
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.errors import AccelError, TableFormatError
from accel.planning.column_mapping import ColumnMapping, MappedColumn
from accel.planning.deleted_rows import DeletedRows
from accel.planning.evolution import Evolution, FieldDefaults
from accel.planning.selection import RowSelection
from accel.predicate.column import col
from accel.ranges import ByteRange
from accel.runtime.tasks import ending
from accel.store.request_errors import raising_foremost
from accel.tables.deletion_vectors import rows_of_vector
from accel.tables.formats.iceberg.equality_keys import field_alone, leaf_values, no_keys, rows_with_keys
from accel.tables.formats.iceberg.manifests import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    Manifest,
    ManifestEntry,
)
from accel.tables.formats.iceberg.metadata import TableMetadata
from accel.tables.formats.iceberg.paths import TablePaths
from accel.tables.formats.iceberg.schema import Field, defaults_below, field_mapping
from accel.tables.formats.iceberg.single_values import decode_values
from accel.tables.formats.iceberg.transforms import PartitionSpec
from accel.tables.metadata_objects import MetadataObjects

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["DeleteFiles"]

_FILE_PATH: Final = 2147483546
"""The field id of the column of a position delete file that names the data file."""
_POS: Final = 2147483545
_POSITIONS: Final = pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
_POSITION_COLUMNS: Final = ColumnMapping(
    [MappedColumn("file_path", _FILE_PATH), MappedColumn("pos", _POS)],
    without_ids=ColumnMapping([MappedColumn("file_path", "file_path"), MappedColumn("pos", "pos")]),
)
_ROW: Final = "row"
"""The column of the numbers of rows; those of keys have longer names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Delete:
    """One delete file, or one vector of a file of vectors."""

    content: int
    path: str
    format: str
    size: int
    num_rows: int
    sequence_number: int
    offset: int | None
    length: int | None
    equality_ids: tuple[int, ...]
    names_file: str | None
    """The only data file that it is of, if it says so."""
    lower: bytes | None
    upper: bytes | None
    """The least and the greatest path of a data file."""
    keys: Mapping[int, _KeyBounds]
    """By field id, what is known of the keys of an equality delete file."""

    @property
    def is_vector(self) -> bool:
        return self.format == "PUFFIN"

    def may_name(self, path: str) -> bool:
        """Return whether it may have rows of a data file."""
        data = path.encode()
        return (self.lower is None or self.lower <= data) and (self.upper is None or data <= self.upper)


@dataclass(frozen=True, slots=True)
class _KeyBounds:
    """What is known of the values of one column in one file."""

    lower: Any
    upper: Any
    null_count: int | None

    def may_equal(self, other: _KeyBounds) -> bool:
        """Return whether the column may have one value in both files, or null in both."""
        if self.null_count != 0 and other.null_count != 0:
            return True
        apart = (self.lower is not None and other.upper is not None and other.upper < self.lower) or (
            self.upper is not None and other.lower is not None and self.upper < other.lower
        )
        return not apart


class DeleteFiles:
    """The delete files of a snapshot.

    Parameters
    ----------
    manifests : sequence of (ManifestEntry, Manifest)
        Those of deletes.
    objects : MetadataObjects
    metadata : TableMetadata
    paths : TablePaths
    """

    def __init__(
        self,
        manifests: Sequence[tuple[ManifestEntry, Manifest]],
        *,
        objects: MetadataObjects,
        metadata: TableMetadata,
        paths: TablePaths,
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._paths = paths
        self._of_file: dict[str, list[_Delete]] = {}
        self._of_partition: dict[tuple[Any, ...], list[_Delete]] = {}
        self._everywhere: list[_Delete] = []
        self._keys: dict[tuple[str, tuple[int, ...]], pa.Table] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._count = 0
        self._key_ids: set[int] = set()
        for entry, manifest in manifests:
            self._add(entry, manifest)

    def __bool__(self) -> bool:
        return self._count > 0

    @property
    def key_ids(self) -> frozenset[int]:
        """The field ids of the columns whose values equality deletes have."""
        return frozenset(self._key_ids)

    def _add(self, entry: ManifestEntry, manifest: Manifest) -> None:
        if manifest.encrypted:
            raise TableFormatError(
                "the delete files of the table are encrypted, which is not supported", path=entry.path
            )
        spec = self._metadata.specs[entry.spec_id]
        lower, upper = manifest.lower.of(_FILE_PATH), manifest.upper.of(_FILE_PATH)
        lowest: list[bytes | None] = [None] * len(manifest) if lower is None else lower.to_pylist()
        highest: list[bytes | None] = [None] * len(manifest) if upper is None else upper.to_pylist()
        for at, path in enumerate(manifest.paths.to_pylist()):
            content = int(manifest.content[at])
            named = manifest.referenced[at]
            least = lowest[at]
            if named is None and content == POSITION_DELETES and least is not None and least == highest[at]:
                named = least.decode("utf-8", "replace")
            delete = _Delete(
                content=content,
                path=path,
                format=manifest.format_of[at].as_py(),
                size=int(manifest.sizes[at]),
                num_rows=int(manifest.num_rows[at]),
                sequence_number=sequence_number(entry, manifest, at),
                offset=manifest.content_offsets[at],
                length=manifest.content_sizes[at],
                equality_ids=manifest.equality_ids[at] or (),
                names_file=named,
                lower=lowest[at] if content == POSITION_DELETES else None,
                upper=highest[at] if content == POSITION_DELETES else None,
                keys=self._key_bounds(manifest, at, manifest.equality_ids[at] or ()),
            )
            self._count += 1
            self._key_ids.update(delete.equality_ids)
            if content not in (POSITION_DELETES, EQUALITY_DELETES):
                raise TableFormatError(f"a delete file has the content {content}", path=path)
            if content == EQUALITY_DELETES and spec.is_unpartitioned:
                self._everywhere.append(delete)
            elif content == POSITION_DELETES and named is not None:
                self._of_file.setdefault(named, []).append(delete)
            else:
                self._of_partition.setdefault(_partition_key(spec, manifest, at), []).append(delete)

    def of(
        self,
        entry: ManifestEntry,
        manifest: Manifest,
        at: int,
        mapped: Callable[[Sequence[Field]], ColumnMapping],
    ) -> DeletedRows | None:
        """Return the rows of a data file that are gone; None where there are none.

        Parameters
        ----------
        entry, manifest
            The manifest that names the file.
        at : int
            The place of the file in it.
        mapped : callable
            Returns where the file has some columns.
        """
        path = manifest.paths[at].as_py()
        number = sequence_number(entry, manifest, at)
        spec = self._metadata.specs[entry.spec_id]
        here = self._of_partition.get(_partition_key(spec, manifest, at), ()) if self._of_partition else ()
        positions = [
            delete
            for delete in (*self._of_file.get(path, ()), *here)
            if delete.content == POSITION_DELETES
            and delete.sequence_number >= number
            and delete.may_name(path)
        ]
        equalities = [
            delete
            for delete in (*self._everywhere, *here)
            if delete.content == EQUALITY_DELETES
            and delete.sequence_number > number
            and self._may_share_keys(delete, manifest, at)
        ]
        vectors = [delete for delete in positions if delete.is_vector]
        if len(vectors) > 1:
            raise TableFormatError("the file has more than one deletion vector", path=path)
        # A vector has the rows of the position delete files that were there before it.
        positions = vectors or positions
        if not positions and not equalities:
            return None
        for delete in (*positions, *equalities):
            if not delete.is_vector and delete.format != "PARQUET":
                raise TableFormatError(
                    f"the delete file is of the format {delete.format}, and accel reads Parquet",
                    path=delete.path,
                )
        file = _DataFile(path, int(manifest.sizes[at]), int(manifest.num_rows[at]), mapped)

        by_ids: dict[tuple[int, ...], list[_Delete]] = {}
        for delete in equalities:
            by_ids.setdefault(delete.equality_ids, []).append(delete)

        async def load() -> Int64s:
            return await self._load(file, positions, by_ids)

        async def find(rows: Mapping[int, RowSelection]) -> Int64s:
            return await _all(self._of_equality(file, ids, by_ids[ids], rows) for ids in by_ids)

        return DeletedRows.later(
            load,
            count=vectors[0].num_rows if vectors and not equalities else None,
            finder=find if equalities else None,
        )

    def _key_bounds(self, manifest: Manifest, at: int, ids: Sequence[int]) -> dict[int, _KeyBounds]:
        """Return what a manifest says of the columns of some field ids in one file."""
        out = {}
        for number in ids:
            field = self._field(number)
            if field is not None:
                out[number] = _KeyBounds(
                    _bound(manifest.lower.of(number), at, field.type),
                    _bound(manifest.upper.of(number), at, field.type),
                    _number(manifest.null_counts.of(number), at),
                )
        return out

    def _may_share_keys(self, delete: _Delete, manifest: Manifest, at: int) -> bool:
        """Return whether a data file may have a row with a key of an equality delete file, by the bounds of
        both."""
        if not delete.keys:
            return True
        here = self._key_bounds(manifest, at, tuple(delete.keys))
        return all(found.may_equal(here[number]) for number, found in delete.keys.items())

    def _field(self, number: int) -> Field | None:
        for schema in reversed((*self._metadata.schemas.values(), self._metadata.schema)):
            found = schema.fields.get(number)
            # Writers differ on whether a null struct counts for its fields.
            if found is not None:
                return found if len(schema.paths.get(number, ())) == 1 else None
        return None

    async def _load(
        self,
        file: _DataFile,
        positions: Sequence[_Delete],
        by_ids: Mapping[tuple[int, ...], Sequence[_Delete]],
    ) -> Int64s:
        """Return the row numbers that vectors and position delete files have; the keys of equality delete
        files are read beside them."""
        vectors = [delete for delete in positions if delete.is_vector]
        reads = [self._of_vector(file, delete) for delete in vectors]
        if len(vectors) < len(positions):
            reads.append(self._of_positions(file, positions))
        for ids, deletes in by_ids.items():
            fields = self._key_fields(ids, deletes[0].path)
            reads += [self._learn_keys(delete, fields) for delete in deletes]
        return await _all(reads)

    async def _of_vector(self, file: _DataFile, delete: _Delete) -> Int64s:
        offset, length = delete.offset, delete.length
        if offset is None or length is None or not (_is_count(offset) and _is_count(length)):
            raise TableFormatError("a deletion vector has no place in its file", path=delete.path)
        if offset + length > delete.size:
            raise TableFormatError("a deletion vector lies beyond the end of its file", path=delete.path)
        if delete.num_rows > file.num_rows:
            raise TableFormatError(
                f"a deletion vector has {delete.num_rows} rows of a file of {file.num_rows}", path=delete.path
            )
        url = self._paths.resolve(delete.path)
        data = await self._objects.read(url, part=ByteRange(offset, offset + length), lasts=True)
        try:
            return rows_of_vector(data, cardinality=delete.num_rows)
        except AccelError as error:
            raise error.at(path=delete.path, place=f"bytes {offset}..{offset + length}") from None

    async def _of_positions(self, file: _DataFile, deletes: Sequence[_Delete]) -> Int64s:
        found = [np.zeros(0, np.int64)]
        batches = self._objects.rows(
            [self._paths.resolve(delete.path) for delete in deletes],
            col("file_path") == file.path,
            columns=["pos"],
            sizes=[delete.size for delete in deletes],
            schema=_POSITIONS,
            mapping=_POSITION_COLUMNS,
        )
        async with ending(batches):
            async for batch in batches:
                column = batch.column(0)
                if column.null_count:
                    raise TableFormatError(
                        "a position delete file has rows without a position", path=deletes[0].path
                    )
                found.append(column.to_numpy())
        return np.concatenate(found)

    async def _learn_keys(self, delete: _Delete, fields: Sequence[Field]) -> Int64s:
        """Read the keys of an equality delete file, which are known from then on."""
        await self._keys_of(delete, fields)
        return np.zeros(0, np.int64)

    async def _of_equality(
        self,
        file: _DataFile,
        ids: tuple[int, ...],
        deletes: Sequence[_Delete],
        rows: Mapping[int, RowSelection],
    ) -> Int64s:
        """Return which of some rows of a data file have one of the keys."""
        fields = self._key_fields(ids, deletes[0].path)
        keys = pa.concat_tables([await self._keys_of(delete, fields) for delete in deletes])
        found = [np.zeros(0, np.int64)]
        if not keys.num_rows:
            return found[0]
        url = self._paths.resolve(file.path)
        batches = self._objects.rows(
            [url],
            columns=[*(field.name for field in fields), _ROW],
            sizes=[file.size],
            schema=pa.schema([field.arrow for field in fields]),
            mapping=file.mapped(fields),
            evolution=Evolution(defaults=FieldDefaults(dict(defaults_below(fields)))),
            selection={url: rows},
            row_number=_ROW,
        )
        async with ending(batches):
            async for batch in batches:
                columns = [leaf_values(batch.column(field.name), field) for field in fields]
                hits = await asyncio.to_thread(
                    rows_with_keys, columns, [keys.column(at) for at in range(len(fields))]
                )
                found.append(batch.column(_ROW).to_numpy()[hits])
        return np.concatenate(found)

    async def _keys_of(self, delete: _Delete, fields: Sequence[Field]) -> pa.Table:
        """Return the keys of an equality delete file, which are read once."""
        known = delete.path, tuple(field.id for field in fields)
        async with self._locks.setdefault(delete.path, asyncio.Lock()):
            found = self._keys.get(known)
            if found is None:
                schema = pa.schema([field.arrow for field in fields])
                batches = self._objects.rows(
                    [self._paths.resolve(delete.path)],
                    sizes=[delete.size],
                    schema=schema,
                    mapping=field_mapping(replace(field, default=None) for field in fields),
                )
                parts = []
                async with ending(batches):
                    async for batch in batches:
                        columns = [leaf_values(batch.column(field.name), field) for field in fields]
                        parts.append(pa.table(columns, names=[str(field.id) for field in fields]))
                found = self._keys[known] = pa.concat_tables(parts) if parts else no_keys(fields)
        return found

    def _key_fields(self, ids: tuple[int, ...], path: str) -> list[Field]:
        """Return the columns of some field ids, of whatever schema of the table has them: each under a name
        that no other has, and of a struct only the field that is meant."""
        if not ids:
            raise TableFormatError("an equality delete file names no column", path=path)
        out = []
        for number in ids:
            found = None
            for schema in reversed((*self._metadata.schemas.values(), self._metadata.schema)):
                found = field_alone(schema.columns, number)
                if found is not None:
                    break
            if found is None:
                raise TableFormatError(
                    f"an equality delete file names the field {number!r}, which the table does not have",
                    path=path,
                )
            out.append(replace(found, name=f"key {number}"))
        return out


async def _all(reads: Iterable[Coroutine[Any, Any, Int64s]]) -> Int64s:
    """Return the row numbers that some reads give, each once."""
    with raising_foremost():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read) for read in reads]
    found: Int64s = np.unique(np.concatenate([task.result() for task in tasks]))
    return found


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: str
    size: int
    num_rows: int
    mapped: Callable[[Sequence[Field]], ColumnMapping]


def sequence_number(entry: ManifestEntry, manifest: Manifest, at: int) -> int:
    """Return the data sequence number of a file."""
    own = manifest.sequence_numbers[at].as_py()
    return entry.sequence_number if own is None else int(own)


def _bound(values: pa.Array | None, at: int, kind: pa.DataType) -> Any:
    """Return a bound of one file; None where it is unknown, and of floats, whose NaN lies within none."""
    if values is None or pa.types.is_floating(kind):
        return None
    found = decode_values(values.slice(at, 1), kind)
    if found is None:
        return None
    value = found[0]
    return value.value if pa.types.is_temporal(kind) else value.as_py()


def _number(values: pa.Array | None, at: int) -> int | None:
    return None if values is None else values[at].as_py()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _partition_key(spec: PartitionSpec, manifest: Manifest, at: int) -> tuple[Any, ...]:
    values = []
    for field in spec.fields:
        column = manifest.partition.get(field.field_id)
        value = None if column is None else column[at].as_py()
        if isinstance(value, float):
            value = "NaN" if math.isnan(value) else struct.pack("<d", value)
        values.append(value)
    return spec.id, *values
