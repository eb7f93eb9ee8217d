"""A path that is read as what it turns out to be: the directory of a table, or files.

The listing of the directory tells, which a scan of files needs anyway; its first page is enough for most
tables. A directory that was a table the last time is not listed again: its log is asked.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import pyarrow as pa

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import ObjectNotFoundError
from accel.runtime.threads import FILES
from accel.scanning.file_source import FileSource, SourceRequest, WrappingSource
from accel.store.location import parse_url
from accel.tables.foreign_tables import ForeignTableError, is_all_of
from accel.tables.named_source import SourceShape, read_remote
from accel.tables.path_source import PathSource
from accel.tables.table_formats import FORMATS, format_titled, table_at

__all__ = ["RecognisedSource"]

_NAME_BYTES: Final = 256


class WithIndex(Protocol):
    """Returns what the index beside a table leaves of it."""

    def __call__(self, table: FileSource, *, has_listed: bool) -> FileSource: ...


class RecognisedSource(WrappingSource):
    """The files of a path, or the table whose directory it is.

    Parameters
    ----------
    files : FileSource
        The files of the path, and what an index beside them leaves.
    paths : PathSource
        What lists it.
    name : str
        The path, as the caller wrote it.
    in_store : bool
        Whether it is a path of a store that the caller gave.
    cache : Cache, optional
        Remembers which directories are tables.
    with_index : callable, optional
        Returns what the index beside a table leaves of it; `has_listed` says whether `paths` has just listed
        the directory.
    """

    def __init__(
        self,
        files: FileSource,
        paths: PathSource,
        name: str,
        *,
        in_store: bool,
        cache: Cache | None,
        with_index: WithIndex | None = None,
    ) -> None:
        super().__init__(files)
        self._with_index = with_index
        self._paths = paths
        self._name = name
        self._in_store = in_store
        self._cache = cache
        self._is_settled = False
        self._may_be_file: bool | None = None
        """Whether the path is that of a file, or a pattern; None before that is asked."""

    async def asks_first(self) -> bool:
        """Return whether `schema` lists the directory, or asks the log of a table."""
        return not self._is_settled and not await self._may_be_a_file()

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the table, if the path is one."""
        if not self._is_settled:
            await self._settle(request)
        try:
            return await self.files.schema(request)
        except ObjectNotFoundError:
            if self._cache is None or self.files is self._paths:
                raise
            self._cache.drop(self._key(request))  # it is no table any more, perhaps
            raise

    async def _settle(self, request: SourceRequest) -> None:
        self._is_settled = True
        if await self._may_be_a_file():
            return
        key = self._key(request)
        known = None if self._cache is None else self._cache.peek(key)
        if known is not None:
            self._take(known, has_listed=False)
            return
        try:
            await self._paths.find(request)
        except ForeignTableError as error:
            if not is_all_of(error.table, self._name, in_store=self._in_store):
                raise
            found = format_titled(error.table.format)
            if found is None:
                raise
            if self._cache is not None:
                self._cache.put(key, found.name, _NAME_BYTES)
            self._take(found.name, has_listed=True)

    def _take(self, format_name: str, *, has_listed: bool) -> None:
        self.files = table_at(FORMATS[format_name].name, self._name).source()
        if self._with_index is not None:
            self.files = self._with_index(self.files, has_listed=has_listed)

    async def _may_be_a_file(self) -> bool:
        if self._may_be_file is None:
            self._may_be_file = await self._looks_like_a_file()
        return self._may_be_file

    async def _looks_like_a_file(self) -> bool:
        """Return whether the path is that of a file, or a pattern, as far as its text tells."""
        if not self._in_store and "://" not in self._name:
            # The file system may take its time, and the loop is not to wait for it.
            return not await FILES.run(os.path.isdir, self._name)
        named = read_remote(self._name, glob=True, in_store=self._in_store)
        return named is not None and named.shape in (SourceShape.FILE, SourceShape.GLOB)

    def _key(self, request: SourceRequest) -> CacheKey:
        location = parse_url(self._name, in_store=self._in_store)
        return CacheKey(
            request.reader.client(location.root).token, location.path, None, Entry.DIRECTORY, "table"
        )
