"""CatalogSource: the files of a source, without those that a catalog proves to hold nothing that is asked for."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accel.catalog.pruning import CatalogPruner
from accel.catalog.segments import CatalogSnapshot
from accel.errors import ObjectNotFoundError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.range_store import ObjectEntry, PageSeen
from accel.store.request_errors import foremost
from accel.store.tasks import Group
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.scanning.spec import ScanSpec

__all__ = ["CatalogSource", "Listing"]


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
    """

    def __init__(
        self, files: FileSource, pruner: CatalogPruner, spec: ScanSpec, *, listing: Listing, in_store: bool
    ) -> None:
        self._files = files
        self._pruner = pruner
        self._spec = spec
        self._listing = listing
        self._in_store = in_store

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """See `FileSource.blocks`: one block."""
        pruner, reader = self._pruner, self._pruner.reader(request)
        if self._listing is Listing.INDEX:
            snapshot, trips = await pruner.home.load(pruner.cache, request.reader.metrics)
            for tables in snapshot.tables:
                await reader.load_directory(tables)
            block = replace(
                await self._listed_by(snapshot, request), round_trips=trips, catalog_trips=trips, listed=False
            )
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
        yield block

    def hint_for(self, column: str, url: str) -> str | None:
        """See `FileSource.hint_for`."""
        return self._files.hint_for(column, url)

    async def _listed_by(self, snapshot: CatalogSnapshot, request: SourceRequest) -> FileBlock:
        """The files that the source names among those that the catalog lists."""
        _, base = self._pruner.home.base(snapshot.head)
        entries = []
        for tables in snapshot.tables:
            directory = tables.directory
            if directory is None:
                raise TypeError("the directory of a segment is read first")
            listed = zip(
                directory.paths, directory.sizes, directory.etags, tables.live().tolist(), strict=True
            )
            entries += [ObjectEntry(base + path, size, etag) for path, size, etag, live in listed if live]
        entries.sort(key=lambda entry: entry.path)
        listing = _CatalogListing(entries)
        return await discover(
            self._spec.source,
            client_for=lambda _: listing,
            partitioning=self._spec.partitioning,
            glob=self._spec.glob,
            in_store=self._in_store,
            as_text=self._spec.texts,
            metrics=request.reader.metrics,
        )


class _CatalogListing:
    """A `ListingClient` that lists what a catalog lists."""

    def __init__(self, entries: Sequence[ObjectEntry]) -> None:
        self._entries = entries

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
