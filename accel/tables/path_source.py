"""PathSource: the files that paths name. Lists, globs and directories are listed; a name that may be a file's is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from accel.cache.cache import Cache, CacheKey, Entry
from accel.errors import AccelError, ObjectNotFoundError
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.request_errors import foremost
from accel.store.tasks import Group
from accel.tables.discover import discover
from accel.tables.source import SourceShape, read_remote

if TYPE_CHECKING:
    from accel.tables.last_listing import LastListing

__all__ = ["PathSource"]

# Bytes that the cache counts for a name that is known to be a directory's.
_DIRECTORY_BYTES = 256
_NO_COLUMNS = pa.schema([])
# HTTP servers list nothing, and a local directory shows that it is one.
_NO_DIRECTORIES = ("http:", "https:", "file:")


class PathSource(FileSource):
    """The files that one or several paths, URLs, globs and directories name, as one block.

    Parameters
    ----------
    source : str, os.PathLike, or list of these
    partitioning : "hive", pyarrow.Schema or None
        How directory names become columns.
    glob : bool
        Whether wildcards form a pattern.
    in_store : bool
        Paths are relative to a store that the caller gave.
    text_columns : collection of str
        Partition columns whose values are texts, whatever they look like.
    cache : Cache, optional
        Remembers what sources held when they were last listed, and which directories are named like a file.
    """

    def __init__(
        self,
        source: object,
        *,
        partitioning: Literal["hive"] | pa.Schema | None = "hive",
        glob: bool = True,
        in_store: bool = False,
        text_columns: Collection[str] = (),
        cache: Cache | None = None,
    ) -> None:
        self._source = source
        self._partitioning = partitioning
        self._glob = glob
        self._in_store = in_store
        self._texts = text_columns
        self._cache = cache
        self._last: LastListing | None = None
        """Where the cache keeps what the source held, if it is one that is listed."""
        self._sole: FileEntry | None = None
        """The only file that the source can name, if that is clear without a request."""
        self._found: FileBlock | None = None

    # -- what is expected ------------------------------------------------------------------------

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """The files that were listed the last time, or the file as it is cached where the cache is too old to be
        trusted unasked."""
        if not isinstance(self._source, str):
            return None
        self._look_up(self._listed_name(self._source), request)
        if self._last is not None:
            return self._last.recall()
        file, reader = self._sole, request.reader
        if file is None or not reader.opener.freshness.is_stale(reader.client(file.root), file):
            return None
        return FileBlock((file,), _NO_COLUMNS, 0)

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """List the source again, or revalidate the file."""
        if expected.round_trips:
            block = await self._find(request)
            return block if block.files is expected.files else None
        (file,), reader = expected.files, request.reader
        current = await reader.opener.freshness.revalidate(reader.client(file.root), file)
        if current is None:
            return None
        handle, trips = current
        return replace(_with_handle(expected, handle, trips), round_trips=trips)

    def _look_up(self, name: str, request: SourceRequest) -> None:
        """Find where the cache keeps what a name stood for, unless the name may be local."""
        self._last = self._sole = None
        cache, reader = self._cache, request.reader
        named = None if cache is None else read_remote(name, glob=self._glob, in_store=self._in_store)
        if cache is None or named is None:
            return
        if named.shape is not SourceShape.FILE:
            from accel.tables.last_listing import LastListing

            # All that decides what a listing of the source yields.
            place = (self._glob, self._in_store, self._partitioning, frozenset(self._texts))
            token = reader.client(named.location.root).token
            self._last = LastListing(cache, CacheKey(token, name, None, Entry.LISTING, place))
        elif named.is_plain_file and not isinstance(self._partitioning, pa.Schema):
            self._sole = named.as_file()

    # -- what is there ---------------------------------------------------------------------------

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """See `FileSource.blocks`: one block."""
        yield await self._find(request)

    def hint_for(self, column: str, url: str) -> str | None:
        """See `FileSource.hint_for`: directory names may spell the column."""
        from accel.tables.hive import hint_of_key

        return hint_of_key(column, url, source=self._source, partitioning=self._partitioning)

    async def _find(self, request: SourceRequest) -> FileBlock:
        if self._found is None:
            if isinstance(self._source, str) and self._last is None:
                self._look_up(self._listed_name(self._source), request)
            block = await self._list(self._source, request)
            if not block.files:
                raise ObjectNotFoundError("the source names no files")
            only = block.files[0]
            if len(block.files) == 1 and only.size is None and not only.root.startswith(_NO_DIRECTORIES):
                block = await self._tell_apart(only, block, request)
            self._found = block if self._last is None else await self._last.note(block)
        return self._found

    def _is_known_directory(self, name: str) -> bool:
        """Whether a name that looks like a file's was found to be a directory's the last time."""
        return self._cache is not None and self._cache.peek(_directory_key(name)) is True

    def _listed_name(self, name: str) -> str:
        return _below(name) if self._is_known_directory(name) else name

    async def _tell_apart(self, only: FileEntry, block: FileBlock, request: SourceRequest) -> FileBlock:
        """The file of that name, else what lies below it: Spark writes directories called x.parquet."""
        if self._is_known_directory(only.url):
            return await self._open_and_list(only, block, request)
        try:
            return _with_handle(block, *await request.reader.open(only))
        except ObjectNotFoundError as missing:
            try:
                below = await self._list(_below(only.url), request)
            except ObjectNotFoundError:
                raise missing from None
            if self._cache is not None:
                self._cache.put(_directory_key(only.url), True, _DIRECTORY_BYTES)
            self._look_up(_below(only.url), request)
            return replace(below, round_trips=below.round_trips + 1)

    async def _open_and_list(self, only: FileEntry, block: FileBlock, request: SourceRequest) -> FileBlock:
        """The same, with both requests sent at once: the last time the name was a directory's."""
        below: FileBlock | AccelError | None = None
        itself: tuple[FileHandle, int] | ObjectNotFoundError | None = None

        async def look_below() -> None:
            nonlocal below
            try:
                below = await self._list(_below(only.url), request)
            except AccelError as error:  # a file of that name makes it irrelevant
                below = error

        try:
            async with Group() as group:
                group.create_task(look_below())
                try:
                    itself = await request.reader.open(only)
                except ObjectNotFoundError as error:
                    itself = error
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
            raise failure from None
        if self._cache is not None and (isinstance(itself, tuple) or isinstance(below, ObjectNotFoundError)):
            self._cache.drop(_directory_key(only.url))
        if isinstance(itself, tuple):
            return _with_handle(block, *itself)
        if isinstance(below, FileBlock):
            return below
        missing = itself or ObjectNotFoundError("the source names no files")
        raise missing if below is None or isinstance(below, ObjectNotFoundError) else below

    async def _list(self, source: object, request: SourceRequest) -> FileBlock:
        return await discover(
            source,
            client_for=request.reader.client,
            partitioning=self._partitioning,
            glob=self._glob,
            in_store=self._in_store,
            as_text=self._texts,
            metrics=request.reader.metrics,
            begun=request.on_entries,
        )


def _with_handle(block: FileBlock, handle: FileHandle, round_trips: int) -> FileBlock:
    """The block of a single file, which was opened to find it."""
    facts = FileFacts(size=handle.size, etag=handle.etag, handle=handle, round_trips=round_trips)
    return replace(block, files=(replace(block.files[0], facts=facts),))


def _below(name: str) -> str:
    """The directory of a name."""
    return f"{name}/"


def _directory_key(name: str) -> CacheKey:
    return CacheKey("", name, None, Entry.DIRECTORY)
