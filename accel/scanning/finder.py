"""The files that a scan's source names: listed, or opened where its name may be a file's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.cache.cache import Cache, CacheKey, Entry
from accel.errors import AccelError, ObjectNotFoundError
from accel.planning.file import DataFile, Listing
from accel.planning.handle import FileHandle
from accel.reader.reader import Reader
from accel.scanning.preloading import load_ahead
from accel.scanning.scan_spec import ScanSpec
from accel.store.request_errors import foremost
from accel.store.tasks import Group

if TYPE_CHECKING:
    from accel.tables.discover import Begun
    from accel.tables.last_listing import LastListing

__all__ = ["Finder"]

_NO_COLUMNS = pa.schema([])
# Over HTTP nothing is listed, and a local directory shows that it is one.
_NO_DIRECTORIES = ("http:", "https:", "file:")
# Bytes that the cache counts for a source that is known to be a directory.
_DIRECTORY_BYTES = 256


class Finder:
    """Finds the files of one scan. Used on the I/O loop.

    Parameters
    ----------
    spec : ScanSpec
    reader : Reader
    in_store : bool
        The caller gave a store: bare paths are relative to its root.
    cache : Cache, optional
        Of the caller's: it knows what sources held when they were last listed, and which are directories although
        they are named like a file.
    """

    def __init__(
        self,
        spec: ScanSpec,
        reader: Reader,
        *,
        in_store: bool = False,
        cache: Cache | None = None,
    ) -> None:
        self._spec = spec
        self._reader = reader
        self._in_store = in_store
        self._cache = cache
        source = spec.source
        if isinstance(source, str) and self._is_known_directory(source):
            source = _below(source)
        self._last: LastListing | None = None
        self._sole: DataFile | None = None
        self._look_back(source)
        self.first: tuple[FileHandle, int] | None = None
        """The only file, where it was opened to find it, and the round trips that took."""

    @property
    def assumes(self) -> bool:
        """Whether `recall` may know something."""
        return self._last is not None or self._sole is not None

    def recall(self) -> Listing | None:
        """What the source is likely to be found to be, where the store has to be asked whether it is: a file as it was
        known to be, or the files that were listed the last time."""
        if self._last is not None:
            return self._last.recall()
        file, reader = self._sole, self._reader
        if file is None or not reader.opener.freshness.is_stale(reader.client(file.root), file):
            return None
        return Listing((file,), _NO_COLUMNS, 0)

    def _look_back(self, source: object) -> None:
        """Note where what is known of a source is kept: of one that is listed, or of a store's file that is all it names."""
        self._last = self._sole = None
        cache, spec, reader = self._cache, self._spec, self._reader
        if cache is None or not isinstance(source, str):
            return
        from accel.tables.source import SourceShape, read_remote

        named = read_remote(source, glob=spec.glob, in_store=self._in_store)
        if named is None:
            return
        if named.shape is not SourceShape.FILE:
            from accel.tables.last_listing import LastListing

            # All that decides what a listing of it is.
            place = (spec.glob, self._in_store, spec.partitioning, frozenset(spec.texts))
            root = named.location.root
            self._last = LastListing(
                cache, lambda: CacheKey(reader.client(root).token, source, None, Entry.LISTING, place)
            )
        elif named.is_plain_file and not isinstance(spec.partitioning, pa.Schema):
            self._sole = named.as_file()

    def _is_known_directory(self, name: str) -> bool:
        """Whether a name that looks like a file's was found to be a directory's the last time."""
        return self._cache is not None and self._cache.peek(_directory_key(name)) is True

    async def find(self, *, begun: Begun | None = None, reads: bool = False) -> Listing:
        """The files, once.

        Parameters
        ----------
        begun : callable, optional
            Is shown the first files of a listing while the others are waited for: see `discover`.
        reads : bool
            They are going to be read: what that takes may be loaded meanwhile.
        """
        listing = await self._discover(self._spec.source, begun)
        if not listing.files:
            raise ObjectNotFoundError("the source names no files")
        only = listing.files[0]
        if reads:
            load_ahead(self._reader.client(only.root), self._spec.where)
        if len(listing.files) == 1 and only.size is None and not only.root.startswith(_NO_DIRECTORIES):
            listing = await self._tell_apart(only, listing, begun)
        return listing if self._last is None else await self._last.note(listing)

    async def _tell_apart(self, only: DataFile, listing: Listing, begun: Begun | None) -> Listing:
        """The file of that name, else what lies below it: Spark writes directories called x.parquet."""
        if self._is_known_directory(only.url):
            return await self._open_and_list(only, listing, begun)
        try:
            self.first = await self._reader.open(only)
        except ObjectNotFoundError as missing:
            try:
                below = await self._discover(_below(only.url), begun)
            except ObjectNotFoundError:
                raise missing from None
            if self._cache is not None:
                self._cache.put(_directory_key(only.url), True, _DIRECTORY_BYTES)
            self._look_back(_below(only.url))
            return replace(below, round_trips=below.round_trips + 1)
        return listing

    async def _open_and_list(self, only: DataFile, listing: Listing, begun: Begun | None) -> Listing:
        """The same, both asked for at once: the last time it was a directory."""
        below: Listing | AccelError | None = None
        missing: ObjectNotFoundError | None = None

        async def look_below() -> None:
            nonlocal below
            try:
                below = await self._discover(_below(only.url), begun)
            except AccelError as error:  # which a file of that name would make nobody's concern
                below = error

        try:
            async with Group() as group:
                group.create_task(look_below())
                try:
                    self.first = await self._reader.open(only)
                except ObjectNotFoundError as error:
                    missing = error
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        else:
            if self._cache is not None and (missing is None or isinstance(below, ObjectNotFoundError)):
                self._cache.drop(_directory_key(only.url))
            if missing is None:
                return listing
            if isinstance(below, Listing):
                return below
            failure = missing if isinstance(below, ObjectNotFoundError) or below is None else below
        raise failure

    async def _discover(self, source: Any, begun: Begun | None) -> Listing:
        from accel.tables.discover import discover

        return await discover(
            source,
            client_for=self._reader.client,
            partitioning=self._spec.partitioning,
            glob=self._spec.glob,
            in_store=self._in_store,
            as_text=self._spec.texts,
            metrics=self._reader.metrics,
            begun=begun,
        )


def _below(name: str) -> str:
    """The directory of a name."""
    return f"{name}/"


def _directory_key(name: str) -> CacheKey:
    return CacheKey("", name, None, Entry.DIRECTORY)
