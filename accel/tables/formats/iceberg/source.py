"""One snapshot of an Iceberg table as a source: its files, with what manifests say of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy, make_scalar
from accel.errors import AccelError, TableFormatError
from accel.planning.column_bounds import ColumnBounds
from accel.planning.column_mapping import ColumnMapping
from accel.planning.deleted_rows import DeletedRows
from accel.planning.file_entry import FileBlock
from accel.runtime.tasks import Group
from accel.scanning.file_source import SourceRequest
from accel.store.request_errors import raising_foremost
from accel.tables.formats.iceberg.deletes import DeleteFiles, sequence_number
from accel.tables.formats.iceberg.manifests import (
    DATA,
    DELETES,
    Manifest,
    ManifestEntry,
    parse_manifest,
    parse_manifest_list,
)
from accel.tables.formats.iceberg.metadata import SnapshotEntry, TableMetadata
from accel.tables.formats.iceberg.paths import TablePaths
from accel.tables.formats.iceberg.pruning import Filter, excluded_manifests, typed_values
from accel.tables.formats.iceberg.schema import (
    LINEAGE,
    ROW_ID,
    ROW_ID_FIELD,
    SEQUENCE_NUMBER,
    Field,
    TableSchema,
    field_mapping,
)
from accel.tables.formats.iceberg.transforms import PartitionField
from accel.tables.metadata_objects import MetadataObjects
from accel.tables.table import Snapshot, Table, TableSource

__all__ = ["IcebergSource"]

Load: TypeAlias = Callable[[SourceRequest, MetadataObjects], Awaitable[tuple[TableMetadata, TablePaths, int]]]
"""Returns the metadata of a table, the paths that they may name, and the dependent requests that it took."""
Choose: TypeAlias = Callable[[TableMetadata], tuple[SnapshotEntry | None, TableSchema]]
"""Returns the snapshot that is read, and its schema."""

_LINEAGE_VERSION: Final = 3
"""The format version from which on rows have ids."""
_PER_BLOCK: Final = 100_000
"""Files of a block."""
_AT_ONCE: Final = 64
"""Manifests that are under way at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Opened:
    """The version that a run reads."""

    metadata: TableMetadata
    entry: SnapshotEntry | None
    """None of a table without a snapshot."""
    schema: TableSchema
    columns: tuple[Field, ...]
    """Those of the schema, and the ids of rows where they are asked for."""
    paths: TablePaths
    round_trips: int


class IcebergSource(TableSource):
    """The files of one snapshot."""

    def __init__(
        self, table: Table, *, load: Load, chosen: Choose, lineage: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(table)
        self._lineage = lineage
        self._load = load
        self._chosen = chosen
        self._opened: _Opened | None = None

    async def open(self, request: SourceRequest) -> Snapshot:
        """Read the metadata file, and choose the snapshot."""
        objects = MetadataObjects(request)
        metadata, paths, trips = await self._load(request, objects)
        entry, schema = self._chosen(metadata)
        if self._lineage and metadata.format_version < _LINEAGE_VERSION:
            raise TableFormatError(
                f"the table is of the format version {metadata.format_version}, and rows have ids and "
                f"sequence numbers from {_LINEAGE_VERSION} on"
            )
        if SEQUENCE_NUMBER in self._lineage:
            schema = schema.with_sequence_numbers()
        self._opened = _Opened(
            metadata=metadata,
            entry=entry,
            schema=schema,
            columns=schema.columns if ROW_ID not in self._lineage else (*schema.columns, ROW_ID_FIELD),
            paths=paths,
            round_trips=trips,
        )
        return Snapshot(
            version=-1 if entry is None else entry.id,
            schema=schema.arrow,
            evolution=schema.evolution,
            properties={
                "format_version": metadata.format_version,
                "partition_by": [
                    f"{field.name}: {field.transform.name}"
                    for spec in metadata.specs.values()
                    for field in spec.fields
                ],
                "branches": sorted(name for name, ref in metadata.refs.items() if ref.kind == "branch"),
                "tags": sorted(name for name, ref in metadata.refs.items() if ref.kind == "tag"),
                "properties": dict(metadata.properties),
            },
        )

    async def files(self, request: SourceRequest, snapshot: Snapshot) -> AsyncIterator[FileBlock]:
        """Yield the files, in the order of the manifests."""
        opened = self._opened
        if opened is None:
            raise TableFormatError("the table was not opened", path=str(self))
        objects = MetadataObjects(request)
        if opened.entry is None:
            yield request.block([], immutable=True)
            return
        entries = [entry for entry in await _manifests(objects, opened) if entry.files != 0]
        specs = opened.metadata.specs
        if opened.entry.manifest_list is None:
            named = await _read_all(objects, opened, entries)
            entries = [
                replace(entry, spec_id=manifest.spec_id)
                for entry, manifest in zip(entries, named, strict=True)
            ]
        for entry in entries:
            if entry.spec_id not in specs:
                raise TableFormatError(
                    f"a manifest is of the partition spec {entry.spec_id}, which the table does not have",
                    path=entry.path,
                )
        given = Filter.of(request.where, opened.schema, specs.values())
        left = entries
        if given is not None:
            excluded = excluded_manifests(given, entries, specs)
            left = [entry for entry, out in zip(entries, excluded.tolist(), strict=True) if not out]
            _count_excluded(
                request,
                sum(
                    entry.files or 0
                    for entry, out in zip(entries, excluded.tolist(), strict=True)
                    if out and entry.content == DATA
                ),
            )
        deletes, loaded = await _read_manifests(objects, opened, left, given)
        data_entries = [entry for entry in left if entry.content == DATA]
        data = [
            _Part(entry, manifest)
            for entry, manifest in zip(data_entries, loaded, strict=True)
            if len(manifest)
        ]
        blocks = _grouped(data)
        if not blocks:
            yield request.block([], immutable=True, round_trips=opened.round_trips + 2)
        for at, parts in enumerate(blocks):
            more = at + 1 < len(blocks)
            yield _block(request, opened, parts, given, deletes, lineage=self._lineage, more=more)


def _count_excluded(request: SourceRequest, files: int) -> None:
    """Count files that are ruled out before they are in a block."""
    facts = request.reader.metrics.table
    if facts is not None:
        facts.files += files
        facts.excluded_by_partition += files


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    entry: ManifestEntry
    manifest: Manifest


async def _manifests(objects: MetadataObjects, opened: _Opened) -> Sequence[ManifestEntry]:
    entry = opened.entry
    if entry is None:
        return ()
    if entry.encrypted:
        raise TableFormatError("the table is encrypted, which is not supported")
    if entry.manifest_list is None:
        return [
            ManifestEntry(
                path=path, length=None, spec_id=0, content=DATA, sequence_number=0, files=None, summaries=None
            )
            for path in entry.manifests
        ]
    url = opened.paths.resolve(entry.manifest_list)
    return await objects.parsed(
        url,
        lambda data: _named(url, parse_manifest_list, data),
        nbytes=lambda found: 1024 + 600 * len(found),
        what="manifest list",
    )


def _named(url: str, parse: Any, data: memoryview) -> Any:
    try:
        return parse(data)
    except AccelError as error:
        raise error.at(path=url) from None


async def _read_manifests(
    objects: MetadataObjects, opened: _Opened, entries: Sequence[ManifestEntry], given: Filter | None
) -> tuple[DeleteFiles, list[Manifest]]:
    """Return the delete files, and the manifests of data files, which are all fetched at once.

    Of the bounds of data files those are kept that the filter and the keys of equality deletes take: all of
    them would take most of the memory.
    """
    deleting = [entry for entry in entries if entry.content == DELETES]
    of_data = [entry for entry in entries if entry.content == DATA]

    async def read_deletes() -> DeleteFiles:
        manifests = await _read_all(objects, opened, deleting)
        return DeleteFiles(
            list(zip(deleting, manifests, strict=True)),
            objects=objects,
            metadata=opened.metadata,
            paths=opened.paths,
        )

    own = frozenset(() if given is None else given.ids.values())
    with raising_foremost():
        async with Group() as group:
            deletes = group.create_task(read_deletes())

            async def keys() -> frozenset[int]:
                return own | (await deletes).key_ids

            wanted = group.create_task(keys())
            reading = group.create_task(_read_all(objects, opened, of_data, wanted))
    return deletes.result(), reading.result()


async def _read_all(
    objects: MetadataObjects,
    opened: _Opened,
    entries: Sequence[ManifestEntry],
    wanted: asyncio.Task[frozenset[int]] | None = None,
) -> list[Manifest]:
    """Return manifests with the bounds of the columns that are wanted, or of all."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(entry: ManifestEntry) -> Manifest:
        url = opened.paths.resolve(entry.path)
        async with gate:
            data = keys = None
            if wanted is not None:
                # The bytes come while it is found out which columns count.
                data = None if wanted.done() else await objects.raw(url, size=entry.length)
                keys = await wanted
            return await objects.derived(
                url,
                lambda found: _named(url, partial(parse_manifest, keys=keys), found),
                data=data,
                nbytes=lambda found: found.nbytes,
                size=entry.length,
                what=("manifest", keys),
            )

    with raising_foremost():
        async with Group() as group:
            tasks = [group.create_task(one(entry)) for entry in entries]
    return [task.result() for task in tasks]


def _grouped(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the manifests in blocks of files."""
    blocks: list[list[_Part]] = []
    files = _PER_BLOCK
    for part in parts:
        if files >= _PER_BLOCK:
            blocks.append([])
            files = 0
        blocks[-1].append(part)
        files += len(part.manifest)
    return blocks


def _block(
    request: SourceRequest,
    opened: _Opened,
    parts: Sequence[_Part],
    given: Filter | None,
    deletes: DeleteFiles,
    *,
    lineage: frozenset[str],
    more: bool,
) -> FileBlock:
    starts = np.cumsum([0, *(len(part.manifest) for part in parts)])
    specs = opened.metadata.specs
    keep: Any = None
    bounds: dict[tuple[str, ...], ColumnBounds] = {}
    if given is not None:
        found = [given.bounds_of(part.manifest, specs[part.entry.spec_id]) for part in parts]
        bounds = _joined(found, [len(part.manifest) for part in parts])
        if given.has_buckets:
            rows = np.concatenate([part.manifest.num_rows for part in parts])
            keep = np.flatnonzero(~given.excluded(bounds, rows, int(starts[-1])))
            _count_excluded(request, int(starts[-1]) - len(keep))
        bounds = {path: one for path, one in bounds.items() if path in given.ids}
    for part in parts:
        _check_files(part)
    urls = pa.chunked_array(
        [opened.paths.resolve_all(part.manifest.paths) for part in parts]
    ).combine_chunks()
    sizes = np.concatenate([part.manifest.sizes for part in parts])
    rows = np.concatenate([part.manifest.num_rows for part in parts])
    places = np.arange(int(starts[-1])) if keep is None else keep

    def part_of(place: int) -> tuple[_Part, int]:
        whole = int(places[place])
        at = int(np.searchsorted(starts, whole, side="right")) - 1
        return parts[at], whole - int(starts[at])

    mappings = _Mappings(opened)
    first_rows = None
    if ROW_ID in lineage:
        ids = [part.manifest.row_ids(part.entry.first_row_id) for part in parts]
        first_rows = pa.concat_arrays(ids).take(from_numpy(places))

    def deleted(place: int) -> DeletedRows | None:
        part, at = part_of(place)
        return deletes.of(part.entry, part.manifest, at, partial(mappings.mapped, part, at))

    taken: dict[str | tuple[str, ...], ColumnBounds] = {
        path: one if keep is None else one.take(from_numpy(places)) for path, one in bounds.items()
    }
    return request.block(
        urls if keep is None else urls.take(from_numpy(places)),
        sizes=from_numpy(sizes[places]),
        immutable=True,
        num_rows=from_numpy(rows[places]),
        bounds=taken,
        deleted=deleted if deletes else None,
        first_rows=first_rows,
        columns=_ByFile(len(places), lambda place: mappings.of(*part_of(place))),
        round_trips=opened.round_trips + 2,
        more=more,
    )


def _check_files(part: _Part) -> None:
    manifest = part.manifest
    if manifest.encrypted:
        raise TableFormatError(
            "the files of the table are encrypted, which is not supported", path=part.entry.path
        )
    if manifest.formats:
        raise TableFormatError(
            f"the table has files of the format {', '.join(manifest.formats)}, and accel reads Parquet",
            path=part.entry.path,
            hint="read it by pyiceberg or Spark",
        )


def _joined(
    found: Sequence[Mapping[tuple[str, ...], ColumnBounds]], lengths: Sequence[int]
) -> dict[tuple[str, ...], ColumnBounds]:
    """Return the bounds of several manifests in one."""
    if len(found) == 1:
        return dict(found[0])
    paths = dict.fromkeys(path for each in found for path in each)
    return {path: ColumnBounds.concat([each.get(path) for each in found], lengths) for path in paths}


class _ByFile(Sequence[ColumnMapping]):
    """The column mappings of the files of a block, made for those that are looked at."""

    def __init__(self, count: int, make: Callable[[int], ColumnMapping]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return self._make(at)


class _Mappings:
    """The columns of the files: one mapping for all that have the same identity partition values, which stand
    for columns that a file lacks."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self._made: dict[tuple[Any, ...], ColumnMapping] = {}
        self._fields: dict[int, list[PartitionField]] = {}
        self._sequence_numbers = LINEAGE[SEQUENCE_NUMBER] in opened.schema.fields
        self._plain = self._made_of(opened.columns)

    def of(self, part: _Part, at: int) -> ColumnMapping:
        """Return where a file has the columns of the table."""
        fields = self._identities(part.entry.spec_id)
        values = [part.manifest.partition[field.field_id][at] for field in fields if self._has(part, field)]
        key = (self._sequence_number(part, at), part.entry.spec_id, *(value.as_py() for value in values))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self.mapped(part, at, self._opened.columns)
        return found

    def mapped(self, part: _Part, at: int, columns: Sequence[Field]) -> ColumnMapping:
        """Return where a file has some columns."""
        constants: dict[str, pa.Scalar] = {}
        number = self._sequence_number(part, at)
        if number is not None and columns is self._opened.columns:
            constants[SEQUENCE_NUMBER] = make_scalar(number, pa.int64())
        for field in self._identities(part.entry.spec_id):
            source = next((column for column in columns if column.id == field.source_id), None)
            if source is None or not self._has(part, field):
                continue
            values = typed_values(part.manifest.partition[field.field_id].slice(at, 1), source.type, field)
            if values is not None and (values[0].is_valid or source.default is not None):
                constants[source.name] = values[0]
        mapping = self._plain if columns is self._opened.columns else self._made_of(columns)
        return mapping.with_defaults(constants) if constants else mapping

    def _sequence_number(self, part: _Part, at: int) -> int | None:
        """Return the sequence number by which the rows of a file were changed last; None where it is not
        asked for, or the rows have none, as they are older than the format version that has them."""
        if not self._sequence_numbers or part.entry.first_row_id is None:
            return None
        return sequence_number(part.entry, part.manifest, at)

    def _made_of(self, columns: Sequence[Field]) -> ColumnMapping:
        return field_mapping(columns, self._opened.metadata.names)

    def _has(self, part: _Part, field: PartitionField) -> bool:
        return field.field_id in part.manifest.partition

    def _identities(self, spec_id: int) -> list[PartitionField]:
        found = self._fields.get(spec_id)
        if found is None:
            found = self._fields[spec_id] = [
                field
                for field in self._opened.metadata.specs[spec_id].fields
                if field.transform.name == "identity"
            ]
        return found
