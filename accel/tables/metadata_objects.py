"""The objects that describe a table, read by accel's stores: logs, checkpoints, manifests, deletion vectors.

They are counted, retried and pinned as data are. An object whose path never holds other bytes is parsed once
and cached for ever, and its bytes go to the disk tier of the cache, so that another process asks for none of
them; only what names the newest version is asked for again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.cache.cache_key import CacheKey, Entry
from accel.cache.disk import decode_bytes, encode_bytes, entry_key
from accel.coalesce import Merging
from accel.errors import TableFormatError
from accel.options import MIB
from accel.planning.column_mapping import ColumnMapping
from accel.planning.evolution import NO_EVOLUTION, Evolution
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.selection import RowSelection
from accel.predicate.where import Where
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.reader.reader import Reader
from accel.runtime.threads import DISK
from accel.scanning.engine import Engine
from accel.scanning.file_source import FileSource, SourceRequest
from accel.scanning.scan import Scan
from accel.scanning.spec import check_arguments
from accel.store.client import Client
from accel.store.location import Location, parse_url
from accel.store.range_store import ObjectEntry

__all__ = ["MetadataObjects"]

T = TypeVar("T")

_MOST_BYTES: Final = 512 * MIB
"""Bytes of one object, beyond which it is refused."""
_MOST_STORED: Final = 64 * MIB
"""Bytes of one object that go to the disk tier."""
_UNIQUE: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
"""A UUID: a name that has one is used once. Other names come again where a table is made anew."""


class MetadataObjects:
    """Reads the objects that describe a table, for one run. Used on the I/O loop.

    Parameters
    ----------
    request : SourceRequest
        Its reader reaches the stores and counts the requests.
    """

    def __init__(self, request: SourceRequest) -> None:
        self._request = request
        self._reader: Reader = request.reader

    def locate(self, url: str) -> tuple[Client, Location]:
        """Return the client of the store that a URL is in, and where it is there.

        Raises
        ------
        StoreError
            accel does not support such URLs.
        """
        location = parse_url(url, in_store=self._request.in_store)
        return self._reader.client(location.root), location

    async def read(
        self,
        url: str,
        *,
        size: int | None = None,
        part: ByteRange | None = None,
        most: int = _MOST_BYTES,
        etag: str | None = None,
        lasts: bool = False,
    ) -> memoryview:
        """Return the bytes of an object, in one request, or from the disk tier of the cache.

        Parameters
        ----------
        url : str
        size : int, optional
            Its size, if known: the request is exact then, and an object of another size is refused.
        part : ByteRange, optional
            The bytes that are wanted, of an object whose size is not needed.
        most : int
            Bytes beyond which an object of unknown size is refused.
        etag : str, optional
            Its etag, if a listing has just shown it.
        lasts : bool
            Whether its path never holds other bytes, in the life of one table.

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        TableFormatError
            It is larger than any such object may be, or has another size than it should.
        """
        client, location = self.locate(url)
        if size == 0 and part is None:
            return memoryview(b"")
        if size is not None and part is None:
            part = ByteRange(0, size)
        if part is not None and part.length > _MOST_BYTES:
            raise TableFormatError(f"{part.length} bytes are more than metadata may be", path=url)

        async def ask() -> memoryview:
            self._count()
            if part is not None:
                key = ReadKey(Kind.TABLE)
                wants, shape = [Want(key, part)], client.shape()
                # One stream gains nothing by being cut, and what was cut has to be joined.
                whole = Merging(0, part.length) if shape.streams == 1 else None
                stash = await client.read(
                    location.path, wants, pin=None, metrics=self._reader.metrics, merging=whole
                )
                return stash[key]
            payload = await client.read_tail(location.path, most, metrics=self._reader.metrics)
            if payload.size is not None and payload.size > len(payload.data):
                raise TableFormatError(f"{payload.size} bytes are more than metadata may be", path=url)
            return memoryview(payload.data)

        if not lasts:
            return await ask()
        return await self.stored(url, ask, etag=etag, what="bytes" if part is None else str(part))

    async def read_parts(self, url: str, parts: Sequence[ByteRange]) -> list[memoryview]:
        """Return some parts of an object whose path never holds other bytes, in one request where they lie
        near each other.

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        TableFormatError
            They are larger than any such parts may be.
        """
        client, location = self.locate(url)
        if sum(part.length for part in parts) > _MOST_BYTES:
            raise TableFormatError("more bytes are asked for than metadata may be", path=url)

        async def ask() -> memoryview:
            before = self._reader.metrics.requests
            wants = [Want(ReadKey(Kind.TABLE, ordinal=at), part) for at, part in enumerate(parts)]
            stash = await client.read(location.path, wants, pin=None, metrics=self._reader.metrics)
            self._count(max(1, self._reader.metrics.requests - before))
            return memoryview(b"".join([stash[want.key] for want in wants]))

        data = await self.stored(url, ask, what=" ".join(map(str, parts)))
        ends = np.cumsum([part.length for part in parts]).tolist()
        return [data[end - part.length : end] for part, end in zip(parts, ends, strict=True)]

    def stores(self, url: str, *, etag: str | None = None) -> bool:
        """Return whether `stored` has a tier to store bytes in; local ones are read faster where they are."""
        client, location = self.locate(url)
        if self._reader.cache.disk_for(client.token) is None or client.root == "file://":
            return False
        return etag is not None or _UNIQUE.search(location.path.rpartition("/")[2]) is not None

    async def stored(
        self, url: str, make: Callable[[], Awaitable[memoryview]], *, what: str, etag: str | None = None
    ) -> memoryview:
        """Return bytes that the disk tier of the cache has of an object that never changes; else those that
        `make` returns, which it has from then on.

        Without an etag only objects whose names are used once are stored, as a table may be made anew.

        Parameters
        ----------
        url : str
        make : callable
        what : str
            What the bytes are of the object.
        etag : str, optional
        """
        client, location = self.locate(url)
        disk = self._reader.cache.disk_for(client.token)
        if disk is None or not self.stores(url, etag=etag):
            return await make()
        key = entry_key(client.token, "\0".join((location.path, what, etag or "", "table")))
        entry = await DISK.run(disk.get, key)
        found = None if entry is None else decode_bytes(entry, key)
        disk.count(hit=found is not None)
        if found is not None:
            return found
        if entry is not None:
            disk.note(f"an entry of the cache {disk} is damaged, and not used")
        data = await make()
        if len(data) <= _MOST_STORED:
            await DISK.run(lambda: disk.put(key, encode_bytes(data, key)))
        problem = disk.problem()
        if problem is not None:
            self._reader.metrics.warn(problem)
        return data

    async def parsed(
        self,
        url: str,
        parse: Callable[[memoryview], T],
        *,
        nbytes: Callable[[T], int],
        size: int | None = None,
        most: int = _MOST_BYTES,
        what: Any = None,
    ) -> T:
        """Return what an object says that never changes; it is read once, and cached by its path.

        Parameters
        ----------
        url : str
        parse : callable
            Makes the value of the bytes.
        nbytes : callable
            Returns the memory that the value takes.
        size, most : int, optional
            As for `read`.
        what : hashable, optional
            Which of the values that are made of the object this is.
        """
        client, location = self.locate(url)
        key = CacheKey(client.token, location.path, None, Entry.TABLE, what)
        cached = self._reader.cache.get(key)
        if cached is not None:
            return cached  # type: ignore[no-any-return]

        async def load() -> tuple[T, int]:
            value = parse(await self.read(url, size=size, most=most, lasts=True))
            return value, nbytes(value)

        return await self._reader.cache.load(key, load)  # type: ignore[no-any-return]

    async def raw(self, url: str, *, size: int | None = None) -> bytes:
        """Return the bytes of an object that never changes; they are cached by its path. The arguments are
        those of `read`."""
        return await self.parsed(url, bytes, nbytes=len, size=size, what="bytes")

    async def derived(
        self,
        url: str,
        make: Callable[[memoryview], T],
        *,
        data: bytes | None,
        nbytes: Callable[[T], int],
        size: int | None = None,
        what: Any,
    ) -> T:
        """Return one of several values that are made of an object which never changes. Its bytes are cached
        besides, so that none of them costs another request.

        Parameters
        ----------
        url, make, nbytes, size, what
            As for `parsed`.
        data : bytes, optional
            What `raw` has returned, if it was asked.
        """
        client, location = self.locate(url)
        key = CacheKey(client.token, location.path, None, Entry.TABLE, what)
        cached = self._reader.cache.get(key)
        if cached is not None:
            return cached  # type: ignore[no-any-return]

        async def load() -> tuple[T, int]:
            value = make(memoryview(await self.raw(url, size=size) if data is None else data))
            return value, nbytes(value)

        return await self._reader.cache.load(key, load)  # type: ignore[no-any-return]

    async def list_below(self, url: str, *, after: str | None = None) -> list[ObjectEntry]:
        """Return the objects below a directory, sorted by path.

        Parameters
        ----------
        url : str
        after : str, optional
            A name in the directory: only objects whose names are greater, which the store need not list
            otherwise.
        """
        client, location = self.locate(url)
        self._count()
        prefix = location.path.rstrip("/")
        start = None if after is None else f"{prefix}/{after}" if prefix else after
        return await client.list_below(location.path, metrics=self._reader.metrics, after=start)

    async def rows(
        self,
        urls: Sequence[str],
        where: Where = None,
        *,
        columns: Sequence[str] | None = None,
        sizes: Sequence[int | None] | None = None,
        schema: pa.Schema | Callable[[pa.Schema], pa.Schema] | None = None,
        mapping: ColumnMapping | None = None,
        evolution: Evolution = NO_EVOLUTION,
        selection: Mapping[str, Mapping[int, RowSelection]] | None = None,
        row_number: str | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows of Parquet files that describe the table, or of files of the table, by accel's own
        scan.

        Parameters
        ----------
        urls : sequence of str
            Files that never change.
        where, columns
            As for `accel.scan`.
        sizes : sequence of int, optional
            The sizes of the files.
        schema : pyarrow.Schema or callable, optional
            The columns; of structs only the fields that it has are read. A function makes it of the schema of
            the first file, whose columns it is otherwise.
        mapping : ColumnMapping, optional
            Which columns of the files are meant.
        evolution : Evolution
            How they may differ from `schema`.
        selection : mapping, optional
            By URL and row group, the rows that are read.
        row_number : str, optional
            The name of a column that has the number of each row in its file.
        """
        source = _Files(urls, sizes, schema, mapping, evolution)
        spec = check_arguments(
            source,
            where,
            in_store=self._request.in_store,
            columns=columns,
            selection=selection,
            row_number=row_number,
            options=self._reader.options,
            table=None,
        )
        scan = Scan(
            Engine(spec, self._reader.clients, cache=self._reader.cache, make_source=lambda _: source)
        )
        try:
            async with aclosing(aiter(scan)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._count(scan.metrics.requests)
            self._reader.metrics.absorb(scan.metrics, Kind.TABLE)

    def _count(self, requests: int = 1) -> None:
        facts = self._reader.metrics.table
        if facts is not None:
            facts.log_requests += requests


class _Files(FileSource):
    """Files that never change."""

    def __init__(
        self,
        urls: Sequence[str],
        sizes: Sequence[int | None] | None,
        schema: pa.Schema | Callable[[pa.Schema], pa.Schema] | None,
        mapping: ColumnMapping | None,
        evolution: Evolution,
    ) -> None:
        self._urls, self._sizes, self._schema, self._mapping = urls, sizes, schema, mapping
        self._evolution = evolution

    @property
    def evolution(self) -> Evolution:
        return self._evolution

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        if not callable(self._schema):
            return self._schema
        location = parse_url(self._urls[0], in_store=request.in_store)
        size = None if self._sizes is None else self._sizes[0]
        entry = FileEntry(location.root, location.path, self._urls[0], size, immutable=True)
        handle, _ = await request.reader.open(entry)
        return self._schema(handle.arrow_schema)

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        yield request.block(self._urls, sizes=self._sizes, immutable=True, columns=self._mapping)
