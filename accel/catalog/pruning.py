"""Files of a source pruned by a catalog.

What a catalog says of a file is used for the version that it was said of, and for no other. A file that the catalog does
not know, or knows in another version, is passed on as if there were no catalog: an index that is out of date costs time,
and never a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import column_text
from accel.catalog.keys import KeyConditions, KeyHits
from accel.catalog.objects import ObjectHome
from accel.catalog.segments import CatalogSnapshot, SegmentReader, SegmentTables
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.projection import settle_schemas
from accel.planning.selection import RowSelection
from accel.scanning.file_source import SourceRequest
from accel.store.fetch import same_etag
from accel.store.range_store import ObjectEntry

if TYPE_CHECKING:
    from accel.arrays import Bools
    from accel.scanning.spec import ScanSpec

__all__ = ["CatalogPruner"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the catalog has a file."""

    tables: SegmentTables
    ordinal: int


@dataclass(frozen=True, slots=True, eq=False)
class _Verdict:
    """What may match in one segment."""

    may_match: Bools
    """Whether each file may."""
    rows: Mapping[int, Mapping[int, RowSelection]]
    """Of some files, the only rows that may, by row group."""


class CatalogPruner:
    """Prunes the files of one scan by a catalog.

    Parameters
    ----------
    home : ObjectHome
        Where the catalog is.
    spec : ScanSpec
        What the scan is asked for.
    cache : Cache or None
    """

    def __init__(self, home: ObjectHome, spec: ScanSpec, *, cache: Cache | None) -> None:
        self.home = home
        self._spec = spec
        self.cache = cache

    def reader(self, request: SourceRequest) -> SegmentReader:
        """Return what reads the tables of the catalog for a run."""
        return self.home.reader(cache=self.cache, options=self._spec.options, metrics=request.reader.metrics)

    async def load(
        self, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int] | None:
        """Return the catalog and the round trips it took; None where it cannot be used, which is told in the metrics.

        Raises as `pass_over` does.
        """
        try:
            return await self.home.load(self.cache, metrics, listed=listed)
        except (IndexFormatError, StoreError) as error:
            self.pass_over(error, metrics)
            return None

    def pass_over(self, error: AccelError, metrics: Metrics) -> None:
        """Note that the scan goes on without the catalog.

        Raises
        ------
        AccelError
            Scans are strict.
        """
        self.home.forget(self.cache)
        if self._spec.options.strict:
            raise error
        missing = isinstance(error, ObjectNotFoundError)
        text = (
            f"there is no index at {self.home}"
            if missing
            else f"the index at {self.home} is not used: {error}"
        )
        metrics.add("indexes_ignored")
        metrics.warn(text)
        warnings.warn(text, stacklevel=2)

    async def prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        """Return the block without the files that the catalog rules out, with what it knows of the others.

        The first file stays, as it settles the schema. Where the catalog turns out to be damaged, the block is returned as
        it is.
        """
        try:
            return await self._prune(block, snapshot, reader, request)
        except (IndexFormatError, StoreError) as error:
            self.pass_over(error, request.reader.metrics)
            return block

    async def _prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        metrics = request.reader.metrics
        places = await self._match(block, snapshot, reader)
        metrics.add("catalog_stale", len(block.files) - len(places))
        first = block.files[0]
        if 0 in places:
            (first,) = await self._with_facts([first], {0: places[0]}, reader, None)
        verdicts = await self._verdicts(first, block, snapshot, reader, request)
        left: list[FileEntry] = [first]
        left_places: dict[int, _Place] = {}
        for at, file in enumerate(block.files):
            place = places.get(at)
            if at == 0:
                continue
            if (
                place is not None
                and verdicts is not None
                and not verdicts[place.tables.segment.id].may_match[place.ordinal]
            ):
                continue
            if place is not None:
                left_places[len(left)] = place
            left.append(file)
        dropped = len(block.files) - len(left)
        metrics.catalog.add(total=len(places), kept=len(places) - dropped)
        metrics.files.add(total=dropped, kept=0)
        left = [
            first,
            *(
                await self._with_facts(
                    left[1:], {at - 1: p for at, p in left_places.items()}, reader, verdicts
                )
            ),
        ]
        self.home.reweigh(self.cache, snapshot)
        trips = reader.round_trips
        return replace(
            block,
            files=tuple(left),
            round_trips=block.round_trips + trips,
            catalog_trips=block.catalog_trips + trips,
        )

    async def _match(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader
    ) -> Mapping[int, _Place]:
        """Where the catalog has the current version of each file, by its place in the block."""
        root, base = self.home.base(snapshot.head)
        at_path: dict[str, int] = {file.path: at for at, file in enumerate(block.files) if file.root == root}
        places: dict[int, _Place] = {}
        for tables in snapshot.tables:
            directory = await reader.load_directory(tables)
            live = tables.live().tolist()
            for ordinal, path in enumerate(directory.paths):
                at = at_path.get(base + path)
                if at is None or not live[ordinal]:
                    continue
                file = block.files[at]
                same = file.etag is not None and same_etag(file.etag, directory.etags[ordinal])
                if same and file.size == directory.sizes[ordinal]:
                    places[at] = _Place(tables, ordinal)
        return places

    async def _verdicts(
        self,
        first: FileEntry,
        block: FileBlock,
        snapshot: CatalogSnapshot,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Mapping[str, _Verdict] | None:
        """What may match in each segment; None where that cannot be said."""
        where = self._spec.where
        if where is None or self._spec.selection is not None or self._spec.embedded:
            return None
        from accel.predicate.bind import bind

        if self._spec.schema is not None and not len(block.partition_schema):
            schema = self._spec.schema
            own = frozenset(schema.names)
        else:
            handle, _ = await request.reader.open(first)
            own = frozenset(handle.arrow_schema.names)
            schema = self._spec.schema or request.reader.opener.schema_of(handle)
        constant = frozenset(name for name in block.partition_schema.names if name not in own)
        extra = [f for f in block.partition_schema if f.name in constant and f.name not in schema.names]
        try:
            data_set, _ = settle_schemas(pa.schema([*schema, *extra]), None, alone=False, folded=True)
            bound = bind(where, data_set)
        except AccelError:
            return None  # the scan itself says what is wrong
        conditions = KeyConditions(where, data_set, constant=constant)
        names = {column_text(column.path) for column in bound.columns if column.path[0] not in constant}
        looked_up: list[Callable[[SegmentReader], Coroutine[Any, Any, KeyHits | None]]] = [
            partial(SegmentReader.look_up, tables=one, conditions=conditions) for one in snapshot.tables
        ]
        bounded: list[Callable[[SegmentReader], Coroutine[Any, Any, None]]] = [
            partial(SegmentReader.load_bounds, tables=one, names=names) for one in snapshot.tables
        ]
        found = await reader.side_by_side([*looked_up, *bounded])
        verdicts = {}
        for tables, hits in zip(snapshot.tables, found, strict=False):
            may_match = tables.may_match(bound, constant=constant)
            if hits is not None:
                may_match &= hits.may_match()
            verdicts[tables.segment.id] = _Verdict(may_match, {} if hits is None else hits.rows)
        return verdicts

    async def _with_facts(
        self,
        files: Sequence[FileEntry],
        places: Mapping[int, _Place],
        reader: SegmentReader,
        verdicts: Mapping[str, _Verdict] | None,
    ) -> list[FileEntry]:
        """The files with the metadata that the catalog has of them."""
        out = list(files)
        by_segment: dict[str, list[tuple[int, _Place]]] = {}
        for at, place in places.items():
            by_segment.setdefault(place.tables.segment.id, []).append((at, place))
        for found in by_segment.values():
            tables = found[0][1].tables
            ordinals = sorted(place.ordinal for _, place in found)
            metadata = await reader.metadata(tables, ordinals)
            for at, place in found:
                file = out[at]
                if file.size is not None:
                    rows = None if verdicts is None else verdicts[tables.segment.id].rows.get(place.ordinal)
                    facts = FileFacts(size=file.size, etag=file.etag, tail=metadata[place.ordinal], rows=rows)
                    out[at] = replace(file, facts=facts)
        return out
