"""An index that is published beside the files it is about, in `_accel/` of their directory: a scan of the directory finds it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from accel.planning.file_entry import FileBlock
from accel.scanning.file_source import SourceRequest
from accel.store.range_store import ObjectEntry

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.catalog.objects import ObjectHome
    from accel.scanning.spec import ScanSpec
    from accel.store.client import Connector

__all__ = ["INDEX_NAME", "IndexBesideFiles", "index_beside"]

INDEX_NAME: Final = "_accel/"
"""The directory of the index, below that of the files."""


def index_beside(source: str | os.PathLike[str]) -> str:
    """Return the directory of the index that is published beside the files of a directory."""
    return f"{os.fspath(source).rstrip('/')}/{INDEX_NAME}"


class IndexBesideFiles:
    """The index of one directory, which need not be there. What reads it is imported when there is one.

    Parameters
    ----------
    spec : ScanSpec
        Its source is one path.
    connector : Connector
    cache : Cache or None
    in_store : bool
        The caller gave a store.
    """

    name = f"{INDEX_NAME}head"

    def __init__(self, spec: ScanSpec, connector: Connector, *, cache: Cache | None, in_store: bool) -> None:
        self._spec = spec
        self._connector = connector
        self._cache = cache
        self._in_store = in_store

    def is_cached(self) -> bool:
        """See `PublishedIndex.is_cached`."""
        # Without the module no index was met.
        if "accel.catalog.objects" not in sys.modules:
            return False
        return self._home().cached(self._cache) is not None

    async def prune(self, block: FileBlock, head: ObjectEntry, request: SourceRequest) -> FileBlock:
        """See `PublishedIndex.prune`."""
        from accel.catalog.pruning import CatalogPruner

        pruner = CatalogPruner(self._home(), self._spec, cache=self._cache)
        loaded = await pruner.load(request.reader.metrics, listed=head)
        if loaded is None:
            return block
        snapshot, trips = loaded
        block = replace(block, round_trips=block.round_trips + trips, catalog_trips=trips)
        return await pruner.prune(block, snapshot, pruner.reader(request), request)

    def _home(self) -> ObjectHome:
        from accel.catalog.objects import ObjectHome

        return ObjectHome.at(index_beside(self._spec.source), self._connector, in_store=self._in_store)
