"""Describes files: opens them, reads the columns that indexes are of, and writes a segment about them.

Nothing here reads or replaces a head: what is written is invisible until a commit names it. So several
processes may describe files of one catalog at the same time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import MOST_METADATA, BoundsTable, FilesTable
from accel.catalog.head import CatalogHead, Segment, Table
from accel.catalog.homes.object_tables import read_file
from accel.catalog.kinds.kind import CatalogIndex, IndexTableBuilder, TableRows
from accel.catalog.kinds.registry import indexes_of
from accel.catalog.sorted_runs import RUN_BYTES
from accel.catalog.stored_names import StoredNames
from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.projection import path_leaves
from accel.ranges import Kind, ReadKey, Want
from accel.reader.reader import Reader
from accel.runtime.tasks import Group
from accel.runtime.threads import WORK
from accel.store.client import Client
from accel.store.clients import Clients, RunClients
from accel.store.request_errors import raising_foremost

if TYPE_CHECKING:
    from accel.catalog.homes.home import CatalogHome

__all__ = ["Described", "FileDescriber"]

BLOCK: Final = 256
"""Files opened at the same time."""
_MOST_AHEAD: Final = 16
"""Files that stay open from before they are described."""
MOST_TABLE_BYTES: Final = 256 * MIB
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
    """The last of the files that were given, which are for another segment: this one has too much metadata
    already."""


class FileDescriber:
    """Describes files of one catalog. Used on the I/O loop.

    Parameters
    ----------
    clients : Clients
        Those of the stores of the files.
    options : Options
    metrics : Metrics
        Counts the requests.
    """

    def __init__(self, clients: Clients[Client], *, options: Options, metrics: Metrics) -> None:
        self._clients = RunClients(clients)
        self._options = options
        self._metrics = metrics
        self._names = StoredNames()
        self._ahead: dict[str, FileHandle] = {}
        """Files that `open_ahead` has opened, by their paths in the catalog."""
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
        """Write a segment about files, which are given with their paths in the catalog, in the order of
        these.

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

        def add(opened: Sequence[tuple[str, FileHandle]]) -> list[tuple[int, FileHandle]]:
            added = []
            for path, handle in opened:
                listed[path] = len(rows), handle.etag or ""
                rows.add(path, handle)
                added.append((len(rows) - 1, handle))
            return added

        entries = dict(files)
        seen = 0

        async def take(opened: _Opened) -> bool:
            nonlocal seen
            seen += len(opened)
            failed.update((path, str(found)) for path, found in opened if isinstance(found, AccelError))
            usable = self._under_stored_names(opened, entries, failed)
            if indexes:
                # A file gets its ordinal when its values are read: of one that was replaced meanwhile nothing
                # is written.
                readable = [(path, entries[path], handle) for path, handle in usable]
                added = await self._add_files(indexes, readable, add=add, failed=failed)
            else:
                added = await WORK.run(add, usable)
            await WORK.run(bounds.add, added)
            if on_files is not None:
                on_files(len(opened))
            return rows.metadata_bytes < MOST_TABLE_BYTES

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
        segment = segment.with_files(list(listed), rows.fingerprints)
        return Described(segment=segment, listed=listed, failed=failed, left=left)

    def _under_stored_names(
        self, opened: _Opened, entries: Mapping[str, FileEntry], failed: dict[str, str]
    ) -> list[tuple[str, FileHandle]]:
        """Return the files that were opened, under the names that a catalog has for their columns."""
        usable = []
        for path, found in opened:
            if isinstance(found, AccelError):
                continue
            try:
                usable.append((path, self._names.view(found, entries[path].stored_columns)))
            except AccelError as error:
                failed[path] = str(error)
        return usable

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
        files: Sequence[tuple[str, FileEntry, FileHandle]],
        *,
        add: Callable[[Sequence[tuple[str, FileHandle]]], list[tuple[int, FileHandle]]],
        failed: dict[str, str],
    ) -> list[tuple[int, FileHandle]]:
        """Add files to the tables of indexes in order, while the values of the next ones are read.

        Parameters
        ----------
        indexes : sequence of pairs of CatalogIndex and IndexTableBuilder
        files : sequence of (str, FileEntry, FileHandle)
            With their paths in the catalog.
        add : callable
            Adds files to the list of files, and returns them with their ordinals.
        failed : dict
            Takes the reasons why files are not added, by path: their values are not those of the version that
            was opened.

        Returns
        -------
        list of (int, FileHandle)
            What `add` returned.
        """
        todo = deque(files)
        added: list[tuple[int, FileHandle]] = []
        with raising_foremost():
            async with Group() as group:
                ahead: deque[tuple[int, asyncio.Task[_Values | StoreError]]] = deque()
                in_flight = 0
                for path, _, handle in files:
                    while todo and len(ahead) < _READ_AHEAD and (not ahead or in_flight < self.run_bytes):
                        _, next_file, next_handle = todo.popleft()
                        size = _value_bytes(indexes, next_handle)
                        task = group.create_task(self._read_columns(indexes, next_file, next_handle))
                        ahead.append((size, task))
                        in_flight += size
                    size, task = ahead.popleft()
                    read = await task
                    if isinstance(read, StoreError):
                        failed[path] = f"it was replaced while its values were read: {read}"
                    else:
                        added += await WORK.run(add, [(path, handle)])
                        await _add(indexes, added[-1][0], handle, read)
                    in_flight -= size
        return added

    async def add_values(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        ordinal: int,
        file: FileEntry,
        handle: FileHandle,
    ) -> None:
        """Add a file to the tables of indexes, for which the columns that they are of are read.

        Raises
        ------
        ObjectChangedError, ObjectNotFoundError
            It is not there any more in the version that was opened.
        """
        read = await self._read_columns(indexes, file, handle)
        if isinstance(read, StoreError):
            raise read
        await _add(indexes, ordinal, handle, read)

    async def _read_columns(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        file: FileEntry,
        handle: FileHandle,
    ) -> _Values | StoreError:
        """Return all values of the columns that the indexes need, by path; None for an unreadable column.

        The error is returned if the file is gone in the version that was opened.
        """
        paths = {
            path: None for index, builder in indexes if builder.accepts(handle) for path in index.columns
        }
        try:
            return {
                path: await _read_values(
                    file,
                    handle,
                    path,
                    clients=self._clients,
                    options=self._options,
                    metrics=self._metrics,
                )
                for path in paths
            }
        except (ObjectChangedError, ObjectNotFoundError) as error:
            return error  # the next refresh finds what is there by then

    # -- metadata --------------------------------------------------------------------------------

    async def _open_blocks(
        self, files: Sequence[tuple[str, FileEntry]], take: Callable[[_Opened], Awaitable[bool]]
    ) -> None:
        """Open files block by block, and have each block taken while the next one is opened; `take` tells
        whether more than that one are wanted."""
        blocks = [files[start : start + BLOCK] for start in range(0, len(files), BLOCK)]
        with raising_foremost():
            async with Group() as group:
                ahead = [group.create_task(self._open_some(block)) for block in blocks[:1]]
                following, wanted = iter(blocks[1:]), True
                while ahead:
                    opened = await ahead.pop()
                    if wanted and (block := next(following, None)) is not None:
                        ahead.append(group.create_task(self._open_some(block)))
                    wanted = await take(opened) and wanted

    async def _open_some(
        self, files: Sequence[tuple[str, FileEntry]]
    ) -> list[tuple[str, FileHandle | AccelError]]:
        """Open files together: their footers are parsed in blocks."""
        # What is opened is used once: a cache of its own lets it go.
        found: dict[str, FileHandle | AccelError] = {}
        for path, file in files:
            ahead = self._ahead.pop(path, None)
            if ahead is not None and file.version.is_same(ahead.version):
                found[path] = ahead
        left = [(path, file) for path, file in files if path not in found]
        opened = await self._reader().open_each([file for _, file in left])
        with raising_foremost():
            async with Group() as group:
                tasks = [
                    group.create_task(self._with_indexes(file, one))
                    for (_, file), one in zip(left, opened, strict=True)
                ]
        found |= {path: task.result() for (path, _), task in zip(left, tasks, strict=True)}
        return [(path, found[path]) for path, _ in files]

    async def open_ahead(
        self, files: Sequence[tuple[str, FileEntry]]
    ) -> Sequence[tuple[str, FileHandle | AccelError]]:
        """Open files that are described later: a few of them are not opened again then."""
        opened = await self._open_some(files)
        handles = ((path, one) for path, one in opened if not isinstance(one, AccelError))
        self._ahead |= dict(itertools.islice(handles, max(0, _MOST_AHEAD - len(self._ahead))))
        return opened

    async def open(self, file: FileEntry) -> FileHandle | AccelError:
        """Open a file, with its page indexes, under the names of the catalog; or the error by which it cannot
        be read."""
        (opened,) = await self._reader().open_each([file])
        handle = await self._with_indexes(file, opened)
        if isinstance(handle, AccelError):
            return handle
        try:
            return self._names.view(handle, file.stored_columns)
        except AccelError as error:
            return error

    def _reader(self) -> Reader:
        cache = Cache(memory=64 * MIB, data=0)
        return Reader(self._clients, cache=cache, options=self._options, metrics=self._metrics)

    async def _with_indexes(
        self, file: FileEntry, handle: FileHandle | AccelError
    ) -> FileHandle | AccelError:
        """Read the page indexes of a file that was opened."""
        try:
            if isinstance(handle, AccelError):
                raise handle
            region = handle.index_region(MOST_METADATA)
            if region is not None:
                want = Want(ReadKey(Kind.OFFSET_INDEX), region)
                client = self._clients.client(file.root)
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


async def _read_values(
    file: FileEntry,
    handle: FileHandle,
    path: tuple[str, ...],
    *,
    clients: Clients[Client],
    options: Options,
    metrics: Metrics,
) -> pa.ChunkedArray | None:
    """Read all values of a column, in order, in the version of the file that was opened, which is under the
    names of the catalog.

    None where they cannot be read.
    """
    columns = file.stored_columns
    facts = FileFacts(version=handle.version, handle=handle, round_trips=0)
    # Rows that one version of a table has deleted are there in others.
    entry = replace(
        file,
        size=handle.size,
        etag=handle.etag,
        facts=facts,
        columns=None if columns is None else columns.of_relabelled,
        partition=(),
        deleted=None,
        pinned=True,
    )
    try:
        table = await read_file(
            entry,
            clients,
            columns=[path[0]],
            cache=None,
            options=options,
            metrics=metrics,
        )
    except StoreError:
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
    """Return about how many bytes the values of a file take in memory."""
    total = 0
    for path in {path for index, _ in indexes for path in index.columns}:
        leaves = path_leaves(handle.shared.schema, handle.arrow_schema, path=path[:1]) or ()
        encoded = sum(int(handle.metadata.chunks.uncompressed[:, leaf].sum()) for leaf in leaves)
        total += max(encoded, 8 * handle.num_rows)
    return total


def _field_of(array: pa.Array, name: str) -> pa.Array:
    """Return a field of structs, null where the struct is."""
    import pyarrow.compute as pc

    return pc.struct_field(array, name)
