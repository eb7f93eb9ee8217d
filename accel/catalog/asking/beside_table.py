"""An index that is published beside a table, in `_accel/` of its directory: a scan of the table finds it.

Whoever lists the directory sees it. Otherwise its head is asked for beside the first requests for the table,
so that it costs no time; that there is none is believed for a while, and costs nothing then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from accel.cache.cache_key import CacheKey, Entry
from accel.catalog.asking.published import INDEX_HEAD, index_beside
from accel.errors import AccessDeniedError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.options import MIB
from accel.planning.file_entry import FileBlock
from accel.runtime.tasks import Group, ending
from accel.scanning.file_source import FileSource, SourceRequest, WrappingSource
from accel.store.location import parse_url
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import raising_foremost
from accel.store.writes import written_since

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.catalog.segments import CatalogSnapshot
    from accel.scanning.spec import ScanSpec
    from accel.store.client import Client
    from accel.store.clients import Connector

__all__ = ["IndexBesideTable", "Listed"]

_NONE_SECONDS: Final = 300.0
"""Seconds for which it is believed that a table has no index."""
_FIRST_READ: Final = 4 * MIB
"""Bytes of the head that are requested."""
_NONE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing of the directory has shown of the index."""

    head: ObjectEntry | None
    """Its head; None where there is no index."""


class IndexBesideTable(WrappingSource):
    """A table, without the files that the index beside it rules out.

    The index need not be there; what reads it is imported when there is one.

    Parameters
    ----------
    files : FileSource
        The table.
    directory : str
        That of the table.
    spec : ScanSpec
    connector : Connector
    cache : Cache or None
        Remembers that there is none.
    listed : Listed, optional
        What a listing has just shown; None where nothing was listed.
    """

    def __init__(
        self,
        files: FileSource,
        directory: str,
        spec: ScanSpec,
        connector: Connector,
        *,
        cache: Cache | None,
        listed: Listed | None = None,
    ) -> None:
        super().__init__(files)
        self._index = index_beside(directory)
        self._spec = spec
        self._connector = connector
        self._cache = cache
        self._listed = listed
        self._is_settled = False

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the table, and find the index meanwhile."""
        if self._is_settled:
            return await self.files.schema(request)
        self._is_settled = True
        with raising_foremost():
            async with Group() as group:
                finding = group.create_task(self._find(request))
                schema = await self.files.schema(request)
        loaded = finding.result()
        if loaded is not None:
            self.files = loaded
        return schema

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files of the table that the index leaves."""
        await self.schema(request)
        async with ending(self.files.blocks(request)) as blocks:
            async for block in blocks:
                yield block

    async def _find(self, request: SourceRequest) -> FileSource | None:
        """Return the files as the index leaves them; None where there is none that can be used."""
        location = parse_url(self._index, in_store=self._spec.in_store)
        client = self._connector.client(location)
        path = f"{location.path.rstrip('/')}/{INDEX_HEAD.rpartition('/')[2]}"
        none = CacheKey(client.token, path, None, Entry.CATALOG, "none")
        if self._listed is not None and self._listed.head is None:
            self._note_none(none)
            return None
        if self._listed is None and not self._is_known() and self._is_none(none, client, path):
            return None
        from_store = None
        if self._listed is None and not self._is_known():
            try:
                from_store = await client.read_tail(path, _FIRST_READ, metrics=request.reader.metrics)
            except (ObjectNotFoundError, AccessDeniedError):
                self._note_none(none)
                return None
            except StoreError:
                pass  # the pruner says what is wrong, if it still is
        from accel.catalog.asking.pruning import CatalogPruner
        from accel.catalog.asking.source import CatalogSource, Listing
        from accel.catalog.homes.objects import ObjectHome

        home = ObjectHome.at(self._index, self._connector, in_store=self._spec.in_store)
        pruner = CatalogPruner(home, self._spec, cache=self._cache, may_lack=True)
        metrics = request.reader.metrics
        loaded: tuple[CatalogSnapshot, int] | None
        if from_store is None:
            head = None if self._listed is None else self._listed.head
            loaded = await pruner.load(metrics, listed=head)
        else:
            try:
                loaded = await home.load_from(from_store, self._cache, metrics)
            except (IndexFormatError, StoreError) as error:
                pruner.pass_over(error, metrics)
                loaded = None
        if loaded is None:
            return None
        return CatalogSource(
            self.files,
            pruner,
            self._spec,
            listing=Listing.STORE,
            loaded=loaded,
        )

    def _is_known(self) -> bool:
        """Return whether the index was met before."""
        if self._cache is None or "accel.catalog.homes.objects" not in sys.modules:
            return False
        from accel.catalog.homes.objects import ObjectHome

        home = ObjectHome.at(self._index, self._connector, in_store=self._spec.in_store)
        return home.cached(self._cache) is not None

    def _is_none(self, key: CacheKey, client: Client, path: str) -> bool:
        """Return whether there was no index a while ago, and this process has built none since."""
        at = None if self._cache is None else self._cache.peek(key)
        if at is None or time.monotonic() - at >= _NONE_SECONDS:
            return False
        return not written_since(client.root, path, moment=at)

    def _note_none(self, key: CacheKey) -> None:
        if self._cache is not None:
            self._cache.put(key, time.monotonic(), _NONE_BYTES)
