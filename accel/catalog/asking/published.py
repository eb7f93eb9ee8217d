"""An index that is published beside the files it is about, in `_accel/` of their directory: a scan of the
directory finds it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from accel.planning.file_entry import FileBlock
from accel.runtime.tasks import ending
from accel.scanning.file_source import SourceRequest, WrappingSource
from accel.store.range_store import ObjectEntry

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.catalog.homes.objects import ObjectHome
    from accel.scanning.spec import ScanSpec
    from accel.store.clients import Connector
    from accel.tables.path_source import PathSource

__all__ = ["INDEX_HEAD", "INDEX_NAME", "IndexBesideFiles", "index_beside"]

INDEX_NAME: Final = "_accel/"
"""The directory of the index, below that of the files."""
INDEX_HEAD: Final = f"{INDEX_NAME}head"
"""The head of the index, which a listing of the directory shows."""


def index_beside(source: str | os.PathLike[str]) -> str:
    """Return the directory of the index that is published beside the files of a directory."""
    return f"{os.fspath(source).rstrip('/')}/{INDEX_NAME}"


class IndexBesideFiles(WrappingSource):
    """The files of one directory, without those that the index beside them rules out.

    The index need not be there; what reads it is imported when there is one.

    Parameters
    ----------
    files : PathSource
        Lists the directory, and notices `INDEX_HEAD` in it.
    spec : ScanSpec
        Its source is one path.
    connector : Connector
    cache : Cache or None
    """

    def __init__(
        self, files: PathSource, spec: ScanSpec, connector: Connector, *, cache: Cache | None
    ) -> None:
        super().__init__(files)
        self._paths = files
        self._spec = spec
        self._connector = connector
        self._cache = cache

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return the files of the last listing, unless an index was met before, which that listing does not
        know."""
        # Without the module no index was met.
        if "accel.catalog.homes.objects" in sys.modules and self._home().cached(self._cache) is not None:
            return None
        return self._paths.expected(request)

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files that the listing has, or that the index leaves of them."""
        async with ending(self._paths.blocks(request)) as blocks:
            async for block in blocks:
                head = self._paths.noticed
                yield block if head is None else await self._prune(block, head, request)

    async def _prune(self, block: FileBlock, head: ObjectEntry, request: SourceRequest) -> FileBlock:
        from accel.catalog.asking.pruning import CatalogPruner

        pruner = CatalogPruner(self._home(), self._spec, cache=self._cache)
        loaded = await pruner.load(request.reader.metrics, listed=head)
        if loaded is None:
            return block
        snapshot, trips = loaded
        block = replace(block, round_trips=block.round_trips + trips, catalog_trips=trips)
        return await pruner.prune(block, snapshot, pruner.reader(request), request)

    def _home(self) -> ObjectHome:
        from accel.catalog.homes.objects import ObjectHome

        return ObjectHome.at(index_beside(self._spec.source), self._connector, in_store=self._spec.in_store)
