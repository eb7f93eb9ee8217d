"""Describes files: opens them, reads the columns that indexes are of, and writes a segment about them.

Nothing here reads or replaces a head: what is written is invisible until a commit names it. So several processes may describe
files of one catalog at the same time.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import MOST_METADATA, BoundsTable, FilesTable
from accel.catalog.head import CatalogHead, Segment, Table
from accel.catalog.kind import CatalogIndex, IndexTableBuilder, TableRows
from accel.catalog.kinds import indexes_of
from accel.catalog.object_tables import read_file
from accel.catalog.sorted_runs import RUN_BYTES
from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.projection import path_leaves
from accel.ranges import Kind, ReadKey, Want
from accel.reader.reader import Reader
from accel.scanning.footer_prefetch import FooterPrefetcher
from accel.store.client import Client
from accel.store.request_errors import foremost
from accel.store.tasks import Group
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.catalog.homes import CatalogHome

__all__ = ["Described", "FileDescriber"]

_BLOCK: Final = 256
"""Files opened at the same time."""
_MOST_TABLE_BYTES: Final = 256 * MIB
"""Bytes of metadata after which a segment ends: they are in memory, and one array holds 2 GiB."""
_READ_AHEAD: Final = 8
"""Files of which values are read at the same time, at most."""
_RUN_SHARE: Final = 16
"""Indexes sort at most one part in so many of `memory_limit` at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described:
    """Files that were described."""

    segment: Segment | None = None
    """What was written; None where no file could be described."""
    listed: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The files of the segment by path: ordinal and etag."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why files are not in it, by path."""
    left: int = 0
    """The last of the files that were given, which are for another segment: this one has too much metadata already."""


class FileDescriber:
    """Describes files of one catalog. Used on the I/O loop.

    Parameters
    ----------
    client_for : callable
        The client of a store, by its root.
    options : Options
    metrics : Metrics
        Counts the requests.
    """

    def __init__(self, client_for: Callable[[str], Client], *, options: Options, metrics: Metrics) -> None:
        self._client_for = functools.cache(client_for)
        self._options = options
        self._metrics = metrics
        self.run_bytes = min(RUN_BYTES, max(1, options.memory_limit // _RUN_SHARE))
        """Bytes of rows that an index sorts in memory at once."""

    async def describe(
        self,
        files: Sequence[tuple[str, FileEntry]],
        head: CatalogHead,
        home: CatalogHome,
        *,
        on_files: Callable[[int], None] | None = None,
    ) -> Described:
        """Write a segment about files, which are given with their paths in the catalog, in the order of these.

        Parameters
        ----------
        files : sequence of pairs of str and FileEntry
        head : CatalogHead
            Tells which columns have bounds, and which indexes there are.
        home : CatalogHome
            Where the segment is written.
        on_files : callable, optional
            Called with the number of files that have been read since the last call.
        """
        rows, bounds = FilesTable(), BoundsTable(head.columns)
        indexes = [(index, index.builder()) for index in indexes_of(head.indexes)]
        for _, builder in indexes:
            builder.limit_memory(self.run_bytes)
        listed: dict[str, tuple[int, str]] = {}
        failed: dict[str, str] = {}

        def add(opened: _Opened) -> list[tuple[int, str, FileHandle]]:
            added = []
            for path, found in opened:
                if isinstance(found, AccelError):
                    failed[path] = str(found)
                    continue
                listed[path] = len(rows), found.etag or ""
                rows.add(path, found)
                added.append((len(rows) - 1, path, found))
            bounds.add([(ordinal, handle) for ordinal, _, handle in added])
            return added

        entries = dict(files)
        seen = 0

        async def take(opened: _Opened) -> bool:
            nonlocal seen
            seen += len(opened)
            added = await WORK.run(add, opened)
            if indexes:
                await self._add_files(indexes, [(at, entries[path], handle) for at, path, handle in added])
            if on_files is not None:
                on_files(len(opened))
            return rows.metadata_bytes < _MOST_TABLE_BYTES

        try:
            await self._open_blocks(files, take)
            left = len(files) - seen
            if not len(rows):
                return Described(failed=failed, left=left)
            tables = {
                Table.FILES: TableRows.of(await WORK.run(rows.finish)),
                Table.BOUNDS: TableRows.of(await WORK.run(bounds.finish)),
            }
            uncovered = {}
            for index, builder in indexes:
                finished = await WORK.run(builder.finish)
                if finished is None:
                    uncovered[index.table] = frozenset(range(len(rows)))
                else:
                    tables[index.table], uncovered[index.table] = finished, frozenset(builder.uncovered)
            segment = await home.put_segment(tables, num_files=len(rows), uncovered=uncovered)
        finally:
            for _, builder in indexes:
                builder.close()
        return Described(segment=segment.with_paths(list(listed)), listed=listed, failed=failed, left=left)

    async def describe_all(
        self, files: Sequence[tuple[str, FileEntry]], head: CatalogHead, home: CatalogHome
    ) -> list[Described]:
        """Write as many segments about files as their metadata takes: see `describe`."""
        found = [await self.describe(files, head, home)]
        while found[-1].left:
            found.append(await self.describe(files[-found[-1].left :], head, home))
        return found

    # -- values ----------------------------------------------------------------------------------

    async def _add_files(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        files: Sequence[tuple[int, FileEntry, FileHandle]],
    ) -> None:
        """Add files to the tables of indexes in order, while the values of the next ones are read."""
        todo = deque(files)
        async with Group() as group:
            ahead: deque[tuple[int, asyncio.Task[_Values]]] = deque()
            in_flight = 0
            for ordinal, _, handle in files:
                while todo and len(ahead) < _READ_AHEAD and (not ahead or in_flight < self.run_bytes):
                    _, next_file, next_handle = todo.popleft()
                    size = _value_bytes(indexes, next_handle)
                    task = group.create_task(self._read_columns(indexes, next_file, next_handle))
                    ahead.append((size, task))
                    in_flight += size
                size, task = ahead.popleft()
                await _add(indexes, ordinal, handle, await task)
                in_flight -= size

    async def add_values(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        ordinal: int,
        file: FileEntry,
        handle: FileHandle,
    ) -> None:
        """Add a file to the tables of indexes, for which the columns that they are of are read."""
        await _add(indexes, ordinal, handle, await self._read_columns(indexes, file, handle))

    async def _read_columns(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        file: FileEntry,
        handle: FileHandle,
    ) -> _Values:
        """All values of the columns that indexes are of, by path; None for one that cannot be read."""
        paths = {
            path: None for index, builder in indexes if builder.accepts(handle) for path in index.columns
        }
        return {path: await self._values(file, handle, path) for path in paths}

    async def _values(
        self, file: FileEntry, handle: FileHandle, path: tuple[str, ...]
    ) -> pa.ChunkedArray | None:
        """All values of a column of a file, in order; None where the file cannot be read."""
        facts = FileFacts(size=handle.size, etag=handle.etag, handle=handle, round_trips=0)
        entry = replace(file, facts=facts)
        try:
            table = await read_file(
                entry,
                self._client_for,
                columns=[path[0]],
                cache=None,
                options=self._options,
                metrics=self._metrics,
            )
        except StoreError as error:
            if isinstance(error, ObjectChangedError | ObjectNotFoundError):
                return None
            raise
        except AccelError:
            return None
        column = table.column(0)
        for name in path[1:]:
            kind = column.type.field(name).type
            column = pa.chunked_array([_field_of(chunk, name) for chunk in column.chunks], kind)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column

    # -- metadata --------------------------------------------------------------------------------

    async def _open_blocks(
        self, files: Sequence[tuple[str, FileEntry]], take: Callable[[_Opened], Awaitable[bool]]
    ) -> None:
        """Open files block by block, and have each block taken while the next one is opened; `take` tells whether more than
        that one are wanted."""
        blocks = [files[start : start + _BLOCK] for start in range(0, len(files), _BLOCK)]
        try:
            async with Group() as group:
                ahead = [group.create_task(self._open_some(block)) for block in blocks[:1]]
                following, wanted = iter(blocks[1:]), True
                while ahead:
                    opened = await ahead.pop()
                    if wanted and (block := next(following, None)) is not None:
                        ahead.append(group.create_task(self._open_some(block)))
                    wanted = await take(opened) and wanted
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        else:
            return
        raise failure

    async def _open_some(
        self, files: Sequence[tuple[str, FileEntry]]
    ) -> list[tuple[str, FileHandle | AccelError]]:
        """Open files together: their footers are parsed in blocks."""
        # What is opened is used once: a cache of its own lets it go.
        reader = self._reader()
        prefetcher = FooterPrefetcher(reader.opener, _keep_all, most=self._options.max_files_in_flight)

        async def open_one(file: FileEntry) -> FileHandle | AccelError:
            asked = prefetcher.ask(file)
            handle = None if asked is None else await asyncio.shield(asked.flight)
            return await self._opened(reader, file, handle)

        try:
            async with Group() as group:
                tasks = [group.create_task(open_one(file)) for _, file in files]
        finally:
            await prefetcher.aclose()
        return [(path, task.result()) for (path, _), task in zip(files, tasks, strict=True)]

    async def open(self, file: FileEntry) -> FileHandle | AccelError:
        """Open a file, with its page indexes; or the error by which it cannot be read."""
        return await self._opened(self._reader(), file, None)

    def _reader(self) -> Reader:
        cache = Cache(memory=64 * MIB, data=0)
        return Reader(self._client_for, cache=cache, options=self._options, metrics=self._metrics)

    async def _opened(
        self, reader: Reader, file: FileEntry, handle: FileHandle | None
    ) -> FileHandle | AccelError:
        """A file whose footer may be read already, with its page indexes."""
        try:
            if handle is None:
                handle, _ = await reader.open(file)
            region = handle.index_region(MOST_METADATA)
            if region is not None:
                want = Want(ReadKey(Kind.OFFSET_INDEX), region)
                client = self._client_for(file.root)
                stash = await client.read(file.path, [want], pin=handle.id, metrics=self._metrics)
                handle.grow_tail(memoryview(stash[want.key]))
        except StoreError as error:
            if isinstance(error, ObjectChangedError | ObjectNotFoundError):
                return error  # the next refresh finds what is there by then
            raise
        except AccelError as error:
            return error
        return handle


_Opened = Sequence[tuple[str, FileHandle | AccelError]]
"""Files that were opened, by their paths, or why one could not be."""
_Values = Mapping[tuple[str, ...], pa.ChunkedArray | None]


async def _add(
    indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
    ordinal: int,
    handle: FileHandle,
    read: _Values,
) -> None:
    """Add the values of a file to the tables of indexes."""
    for index, builder in indexes:
        covered = builder.accepts(handle)
        if covered:
            values = [column for path in index.columns if (column := read[path]) is not None]
            covered = len(values) == len(index.columns)
            try:
                covered = covered and await WORK.run(builder.add, ordinal, handle, values)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                covered = False  # more text than one array holds, say
        if not covered:
            builder.uncovered.add(ordinal)


def _value_bytes(indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]], handle: FileHandle) -> int:
    """About the bytes that the values of a file take in memory."""
    total = 0
    for path in {path for index, _ in indexes for path in index.columns}:
        leaves = path_leaves(handle.shared.schema, handle.arrow_schema, path=path[:1]) or ()
        encoded = sum(int(handle.metadata.chunks.uncompressed[:, leaf].sum()) for leaf in leaves)
        total += max(encoded, 8 * handle.num_rows)
    return total


async def _keep_all(opened: Sequence[tuple[FileEntry, FileHandle]]) -> Sequence[bool]:
    """No file is ruled out."""
    return [False] * len(opened)


def _field_of(array: pa.Array, name: str) -> pa.Array:
    """A field of structs, null where the struct is."""
    import pyarrow.compute as pc

    return pc.struct_field(array, name)
