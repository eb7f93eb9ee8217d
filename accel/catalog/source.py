"""CatalogSource: the files of a source, without those that a catalog proves to hold nothing that is asked for."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.catalog.objects import directory_at
from accel.catalog.pruning import CatalogPruner, FilePlace
from accel.catalog.segments import CatalogSnapshot, SegmentReader
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.range_store import ObjectEntry, PageSeen, Payload
from accel.store.request_errors import foremost
from accel.store.tasks import Group
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.catalog.learning import IndexLearner
    from accel.scanning.spec import ScanSpec

__all__ = ["CatalogSource", "Listing"]


_NO_COLUMNS = pa.schema([])


class Listing(enum.StrEnum):
    """Where the list of files comes from."""

    STORE = "store"
    """The store lists them: whatever is there is read."""
    INDEX = "index"
    """The catalog lists them, as they were when it was refreshed last."""


class CatalogSource(FileSource):
    """The files of a source, pruned by a catalog.

    Parameters
    ----------
    files : FileSource
        Names the files where the store lists them.
    pruner : CatalogPruner
    spec : ScanSpec
        What the scan is asked for.
    listing : Listing
    in_store : bool
        The caller gave a store.
    learner : IndexLearner, optional
        Is shown the files that the scan has opened and that the catalog lacks.
    """

    def __init__(
        self,
        files: FileSource,
        pruner: CatalogPruner,
        spec: ScanSpec,
        *,
        listing: Listing,
        in_store: bool,
        learner: IndexLearner | None = None,
    ) -> None:
        self._files = files
        self._pruner = pruner
        self._spec = spec
        self._listing = listing
        self._in_store = in_store
        self._learner = learner

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """See `FileSource.blocks`: one block."""
        pruner, reader = self._pruner, self._pruner.reader(request)
        if self._listing is Listing.INDEX:
            snapshot, trips = await pruner.home.load(pruner.cache, request.reader.metrics)
            if not snapshot.head.complete:
                raise AccelError(
                    "the index does not list all files yet",
                    path=str(pruner.home),
                    hint="refresh it, or let the store list the files",
                )
            await reader.load_first(snapshot, pruner.likely_columns())
            if self._covers_all(snapshot):
                yield await self._matching(snapshot, trips, reader, request)
                return
            everything = [
                FilePlace(tables, at)
                for tables in snapshot.tables
                for at in np.flatnonzero(tables.live()).tolist()
            ]
            block = await self._listed_by(self._entries(everything, snapshot), snapshot, request)
            block = replace(block, round_trips=trips, catalog_trips=trips, listed=False)
            yield await pruner.prune(block, snapshot, reader, request)
            return
        try:
            async with Group() as group:
                loading = group.create_task(pruner.load(request.reader.metrics))
                # What is opened early would be opened whether the catalog rules it out or not.
                block = await anext(self._files.blocks(replace(request, on_entries=None)))
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
            raise failure from None
        loaded = loading.result()
        if loaded is not None:
            snapshot, trips = loaded
            more = max(0, trips - block.round_trips)
            block = replace(block, round_trips=block.round_trips + more, catalog_trips=more)
            block = await pruner.prune(block, snapshot, reader, request)
        elif not pruner.has_failed:
            pruner.unknown = block.files
        yield block

    def finish(self, request: SourceRequest) -> None:
        """See `FileSource.finish`: the catalog learns what the scan has opened."""
        unknown, self._pruner.unknown = self._pruner.unknown, ()
        if self._learner is None or not unknown:
            return
        now, reader = time.monotonic(), request.reader
        met = ((file, reader.at_hand(file, now)) for file in unknown)
        self._learner.meet(
            [(file, handle) for file, handle in met if handle is not None], request.reader.metrics
        )

    def hint_for(self, column: str, url: str) -> str | None:
        """See `FileSource.hint_for`."""
        return self._files.hint_for(column, url)

    def _covers_all(self, snapshot: CatalogSnapshot) -> bool:
        """Whether the source is the directory that the catalog covers, and its paths spell no columns: then files that are
        ruled out need not be listed."""
        source, spec = self._spec.source, self._spec
        if not isinstance(source, str | os.PathLike) or isinstance(spec.partitioning, pa.Schema):
            return False
        if spec.selection is not None or not snapshot.head.num_files:
            return False
        location = directory_at(source, in_store=self._in_store)
        if (location.root, location.path) != self._pruner.home.base(snapshot.head):
            return False
        directories = [tables.directory for tables in snapshot.tables]
        return spec.partitioning is None or not any(
            each is None or each.spells_columns for each in directories
        )

    async def _matching(
        self, snapshot: CatalogSnapshot, trips: int, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        """The files that may match, behind the first of all."""
        pruner, metrics = self._pruner, request.reader.metrics
        first = min(
            (FilePlace(tables, tables.first) for tables in snapshot.tables),
            key=lambda place: place.path,
        )
        (first_file,) = (await self._listed_by(self._entries([first], snapshot), snapshot, request)).files
        (opened,) = await pruner.enrich([(first_file, first)], None, reader, request)
        verdicts = await pruner.verdicts(opened, _NO_COLUMNS, snapshot, reader, request)
        places, dropped = [first], []
        for tables in snapshot.tables:
            live = tables.live()
            if tables is first.tables:
                live[first.ordinal] = False
            left = live if verdicts is None else live & verdicts[tables.segment.id].may_match
            places += [FilePlace(tables, at) for at in np.flatnonzero(left).tolist()]
            dropped += [FilePlace(tables, at) for at in np.flatnonzero(live & ~left).tolist()]
        entries = self._entries(places, snapshot)
        by_path = {entry.path: place for entry, place in zip(entries, places, strict=True)}
        block = await self._listed_by(entries, snapshot, request)
        pruner.count(snapshot.head.num_files, dropped, verdicts, metrics)
        found = [(file, by_path.get(file.path)) for file in block.files]
        found = [(opened if place == first else file, place) for file, place in found]
        block = replace(block, round_trips=trips, catalog_trips=trips, listed=False)
        return pruner.finish(block, await pruner.enrich(found, verdicts, reader, request), snapshot, reader)

    def _entries(self, places: Sequence[FilePlace], snapshot: CatalogSnapshot) -> list[ObjectEntry]:
        """Files as a listing of the store has them."""
        _, base = self._pruner.home.base(snapshot.head)
        entries = []
        for place in places:
            directory, at = place.directory, place.ordinal
            entries.append(ObjectEntry(base + directory.paths[at], directory.sizes[at], directory.etags[at]))
        return entries

    async def _listed_by(
        self, entries: Sequence[ObjectEntry], snapshot: CatalogSnapshot, request: SourceRequest
    ) -> FileBlock:
        """The files that the source names among some that the catalog lists."""
        listing = _CatalogListing(entries)
        home = self._pruner.home
        base_root, _ = home.base(snapshot.head)

        def client_for(root: str) -> _CatalogListing:
            if root != base_root:
                raise StoreError("the index lists no files of that store", path=root, hint=f"it is {home}")
            return listing

        return await discover(
            self._spec.source,
            client_for=client_for,
            partitioning=self._spec.partitioning,
            glob=self._spec.glob,
            in_store=self._in_store,
            as_text=self._spec.texts,
            metrics=request.reader.metrics,
        )


class _CatalogListing:
    """A `ListingClient` that lists what a catalog lists."""

    def __init__(self, entries: Sequence[ObjectEntry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.path)

    async def list_below(
        self, prefix: str, *, metrics: Metrics | None = None, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        return [entry for entry in self._entries if entry.path.startswith(below) or entry.path == prefix]

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        for entry in self._entries:
            if entry.path == path:
                return entry
        raise ObjectNotFoundError("the catalog lists no such file", path=path)

    async def read_tail(self, path: str, length: int, *, metrics: Metrics) -> Payload:
        # The commit of a catalog is its own: there is no journal beside its files.
        raise ObjectNotFoundError("the catalog lists no such file", path=path)
