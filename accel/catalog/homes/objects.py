"""A catalog in an object store, or in a local directory: the head and the objects of its segments.

Only the head is ever replaced, by compare-and-swap. Objects of segments have names that are used once, so
whoever reads by an older head finds what it names until `vacuum` removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
from accel.catalog.head import HEAD_NAME, CatalogHead, Segment, SegmentObject
from accel.catalog.homes.home import CatalogHome
from accel.catalog.homes.object_tables import ObjectTables
from accel.catalog.homes.table_files import tail_of_file, without_page_index, write_table_file
from accel.catalog.kinds.kind import TableRows
from accel.catalog.segments import CatalogSnapshot, SegmentReader
from accel.errors import (
    IndexFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    StoreError,
)
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want
from accel.runtime.threads import WORK
from accel.store.client import Client
from accel.store.clients import Connector
from accel.store.location import Location, parse_url, url_in
from accel.store.range_store import ObjectEntry, Payload, Writer
from accel.store.writes import PART_BYTES, put_object, swap_bytes, written_since
from accel.tables.named_source import has_hidden_name
from accel.versions import same_etag

__all__ = ["INLINE_BYTES", "ObjectHome", "directory_at"]

INLINE_BYTES: Final = MIB
"""Bytes that a head holds of segments beside their footers, so that they cost no request: small objects as a
whole, and page indexes."""
_FIRST_READ: Final = 4 * MIB
"""Bytes of a head that are requested first; a longer one takes another request."""
_HEAD_READS: Final = 10
"""Reads of a head that commits may interrupt, one after the other."""
_MOST_HEAD: Final = 256 * MIB


def directory_at(path: str | os.PathLike[str], *, in_store: bool) -> Location:
    """Return the location of a directory, whether or not its name ends in a slash."""
    text = os.fspath(path)
    return parse_url(text if text.endswith("/") else f"{text}/", in_store=in_store)


class ObjectHome(CatalogHome):
    """One catalog in a store. Used on the I/O loop.

    Parameters
    ----------
    client : Client
    location : Location
        The directory of the catalog.
    in_store : bool
        The files are those of a store that the caller gave.
    head_bytes : int
        Bytes that a head holds of segments beside their footers.
    """

    def __init__(
        self, client: Client, location: Location, *, in_store: bool, head_bytes: int = INLINE_BYTES
    ) -> None:
        self._client = client
        self._head_bytes = head_bytes
        self.location = location
        self.in_store = in_store
        self.leaves_unfinished = location.root == "file://"
        path = location.path.strip("/")
        self._directory = f"{path}/" if path else ""
        self._head = self._directory + HEAD_NAME
        self.key = CacheKey(client.token, self._head, None, Entry.CATALOG)

    @classmethod
    def at(cls, index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> ObjectHome:
        """Return the home in the directory with that URL or path."""
        location = directory_at(index, in_store=in_store)
        return cls(connector.client(location), location, in_store=in_store)

    def __str__(self) -> str:
        return str(self.location)

    def is_in(self, directory: Location) -> bool:
        """Return whether a scan of that directory would take the home for files; see `CatalogHome.is_in`."""
        own = self.location
        if (own.scheme, own.root) != (directory.scheme, directory.root):
            return False
        inside = own.path.startswith(directory.path)
        return inside and not has_hidden_name(own.path[len(directory.path) :])

    def base(self, head: CatalogHead) -> tuple[str, str]:
        """Return the root of the store, and the path in it, that the paths of the catalog are relative to."""
        if head.base != ".":
            location = parse_url(head.base, in_store=self.in_store)
            return location.root, location.path
        parent = self._directory.rstrip("/").rpartition("/")[0]
        return self.location.root, f"{parent}/" if parent else ""

    def base_url(self, head: CatalogHead) -> str:
        """Return the directory that the catalog covers, as a source."""
        if head.base != ".":
            return head.base
        return replace(self.location, path=self.base(head)[1]).url

    def reader(self, *, cache: Cache | None, options: Options, metrics: Metrics) -> SegmentReader:
        """Return what reads the tables of a snapshot."""
        return SegmentReader(
            ObjectTables(self._client, self._directory, cache=cache, options=options, metrics=metrics)
        )

    # -- the head --------------------------------------------------------------------------------

    async def load(
        self, cache: Cache | None, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head has it, and the round trips it took; see `CatalogHome.load`."""
        cached = self.cached(cache)
        now = time.monotonic()
        trips = 0
        if cache is not None and cached is not None:
            if listed is not None and listed.etag is not None:
                current = cached.etag is not None and same_etag(listed.etag, cached.etag)
                if current:
                    cached.checked_at = now
                    return cached, 0
            elif now - cached.checked_at < cache.max_age and not written_since(
                self._client.root, self._head, moment=cached.checked_at
            ):
                return cached, 0
        if cache is not None and cached is not None and listed is None:
            pin = ObjectId(self._head, cached.head_bytes, cached.etag)
            trips = 1
            counts = Metrics()
            current = await self._client.revalidate(pin, metrics=counts)
            metrics.absorb(counts)
            if current:
                cached.checked_at = now
                return cached, trips
        snapshot, more = await self.read_head(metrics)
        if cache is not None:
            cache.put(self.key, snapshot, snapshot.nbytes)
        return snapshot, trips + more

    async def load_from(
        self, read: Payload, cache: Cache | None, metrics: Metrics
    ) -> tuple[CatalogSnapshot, int]:
        """Return the catalog whose head has just been read, and the round trips; raises as `load` does.

        Parameters
        ----------
        read : Payload
            The last bytes of the head.
        """
        try:
            snapshot, trips = await self._head_of(read, time.monotonic(), metrics)
        except ObjectChangedError:
            snapshot, trips = await self.read_head(metrics)
        if cache is not None:
            cache.put(self.key, snapshot, snapshot.nbytes)
        return snapshot, trips

    async def read_head(self, metrics: Metrics) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head is now, and the round trips; raises as `load` does."""
        for _ in range(_HEAD_READS - 1):
            # A commit came while it was read: that is no failure, and the next read has what was committed.
            with contextlib.suppress(ObjectChangedError):
                return await self._read_head(metrics)
        return await self._read_head(metrics)

    async def _read_head_tail(self, metrics: Metrics) -> Payload:
        try:
            with self._naming():
                return await self._client.read_tail(self._head, _FIRST_READ, metrics=metrics)
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(
                "there is no index", path=str(self), hint="`accel.build_index` builds one"
            ) from error

    async def _read_head(self, metrics: Metrics) -> tuple[CatalogSnapshot, int]:
        now = time.monotonic()
        counts = Metrics()
        try:
            payload = await self._read_head_tail(counts)
        except ParquetFormatError as error:
            raise IndexFormatError("the head of the catalog is empty", path=str(self)) from error
        finally:
            metrics.absorb(counts)
        return await self._head_of(payload, now, metrics)

    async def _head_of(self, payload: Payload, now: float, metrics: Metrics) -> tuple[CatalogSnapshot, int]:
        """Return the catalog of whose head the last bytes were read, and the round trips."""
        size = payload.size if payload.size is not None else payload.range.end
        data, trips = bytes(payload.data), 1
        if size > _MOST_HEAD:
            raise IndexFormatError(f"the head of the catalog has {size} bytes", path=str(self))
        if len(data) < size:
            rest = Want(ReadKey(Kind.CATALOG), ByteRange(0, size - len(data)))
            pin = ObjectId(self._head, size, payload.etag)
            counts = Metrics()
            try:
                stash = await self._client.read(self._head, [rest], pin=pin, metrics=counts)
            finally:
                metrics.absorb(counts)
            data, trips = bytes(stash[rest.key]) + data, 2
        try:
            head = CatalogHead.decode(data)
        except IndexFormatError as error:
            raise error.of(f"{self}{HEAD_NAME}") from None
        return CatalogSnapshot.of(head, etag=payload.etag, head_bytes=size, checked_at=now), trips

    # -- writing ---------------------------------------------------------------------------------

    async def put_head(self, head: CatalogHead, *, instead_of: CatalogSnapshot | None) -> None:
        """Commit: put a head in the place of the one that it was made from; None where there was none.

        Raises
        ------
        ObjectChangedError
            Another commit came between.
        StoreError
            The store cannot be written to, or failed.
        """
        data = _within_limit(head, self._head_bytes).encode()
        if instead_of is not None and instead_of.etag is None:
            raise StoreError("the store gives no etag, so a commit could undo another", path=str(self))
        etag = None if instead_of is None else instead_of.etag
        with self._naming():
            await swap_bytes(self._client, self._head, data, if_match=etag)

    async def put_segment(
        self,
        tables: Mapping[str, TableRows],
        *,
        num_files: int,
        uncovered: Mapping[str, frozenset[int]] | None = None,
    ) -> Segment:
        """Write the tables of a segment as objects that nothing names yet."""
        if not isinstance(self._client.store, Writer):
            raise StoreError("this store cannot be written to", path=str(self))
        with self._naming():
            objects = {name: await self._put_table(name, table) for name, table in tables.items()}
        return Segment(
            id=secrets.token_hex(8),
            num_files=num_files,
            objects=objects,
            num_rows={name: table.num_rows for name, table in tables.items()},
            uncovered=uncovered or {},
        )

    async def _put_table(self, name: str, rows: TableRows) -> SegmentObject:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        object_name = f"{name.partition(' ')[0]}-{stamp}-{secrets.token_hex(8)}.parquet"
        path = self._directory + object_name
        with tempfile.TemporaryDirectory(prefix="accel-catalog-") as directory:
            file = Path(directory) / "table.parquet"
            num_rows = await WORK.run(write_table_file, name, rows.rows, file)
            rows.check_written(num_rows, name)
            size = file.stat().st_size
            with file.open("rb") as source:
                await put_object(self._client, path, parts=_parts_of(source), size=size)
            tail = await WORK.run(tail_of_file, file)
            content = file.read_bytes() if size <= INLINE_BYTES else None
        # The version that is there now; a name is used once.
        end = await self._client.read_tail(path, 8, metrics=Metrics())
        if end.size != size:
            raise StoreError(f"the store has {end.size} of {size} bytes of an object", path=path)
        return SegmentObject(
            name=object_name, size=size, etag=end.etag, num_rows=num_rows, tail=tail, content=content
        )

    # -- what lies there -------------------------------------------------------------------------

    async def list_objects(self) -> Sequence[ObjectEntry]:
        """List the objects in the directory of the catalog; the paths are relative to it."""
        with self._naming():
            found = await self._client.list_below(self._directory.rstrip("/"))
        start = len(self._directory)
        return [replace(entry, path=entry.path[start:]) for entry in found]

    async def delete(self, name: str) -> None:
        """Remove an object of a segment."""
        with self._naming():
            await self._client.remove(self._directory + name)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Have errors name the store beside the path in it."""
        try:
            yield
        except StoreError as error:
            if error.path is not None and error.path.startswith(self._directory):
                error.of(url_in(self.location.root, error.path))
            raise


def _within_limit(head: CatalogHead, most: int) -> CatalogHead:
    """Return the head with as much of what saves requests as `most` bytes allow, the smallest first.

    Objects as a whole, or their page indexes, save requests.
    """
    costs: list[tuple[int, str, bool]] = []
    for segment in head.segments:
        for one in segment.objects.values():
            costs.append((len(one.tail) - len(without_page_index(one.tail)), one.name, False))
            if one.content is not None:
                costs.append((one.size, one.name, True))
    inside: set[tuple[str, bool]] = set()
    total = 0
    for size, name, whole in sorted(costs):
        total += size
        if total > most:
            break
        inside.add((name, whole))
    segments = []
    for segment in head.segments:
        objects = {
            table: replace(
                one,
                content=one.content if (one.name, True) in inside else None,
                tail=one.tail if (one.name, False) in inside else without_page_index(one.tail),
            )
            for table, one in segment.objects.items()
        }
        segments.append(replace(segment, objects=objects))
    return replace(head, segments=tuple(segments))


async def _parts_of(file: BinaryIO) -> AsyncIterator[bytes]:
    while part := await WORK.run(file.read, PART_BYTES):
        yield part
