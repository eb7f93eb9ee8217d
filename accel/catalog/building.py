"""How a catalog comes about and is kept: build and refresh, compact, vacuum.

Each commit is one replacement of the head by compare-and-swap. Whoever loses reads the new head, applies its change to that,
and tries again. New objects are written before the head that names them; nothing is removed before `vacuum`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import BOUNDS_ORDER, BoundsTable, FilesTable
from accel.catalog.head import CatalogHead, Retired, Segment, Table
from accel.catalog.homes import CatalogHome
from accel.catalog.kind import CatalogIndex, IndexTableBuilder, check_ordinals
from accel.catalog.kinds import indexes_of
from accel.catalog.object_tables import read_file
from accel.catalog.segments import CatalogSnapshot, SegmentReader
from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.ranges import Kind, ReadKey, Want
from accel.reader.reader import Reader
from accel.store.client import Client
from accel.store.range_store import is_weak
from accel.store.tasks import Group
from accel.store.threads import WORK
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["CatalogBuilder", "IndexReport", "Progress"]

Progress = Callable[[int, int], None]
"""Is told the files that are done, and how many there are."""

_SEGMENT_FILES: Final = 20_000
"""Files of a segment, at most: the work of so many is lost where a builder is killed."""
_BLOCK: Final = 256
"""Files opened at the same time."""
_MOST_INDEX_BYTES: Final = MIB
_ATTEMPTS: Final = 50
"""Commits that may come between before a change is given up."""
MOST_SEGMENTS: Final = 16
"""A refresh that leaves more of them compacts them."""
_STAMP = re.compile(r"-(\d{8}T\d{6}Z)-")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What one call has done to an index."""

    index: str
    """Where it is."""
    generation: int
    """The number of commits so far."""
    files: int
    """Files that it covers now."""
    added: int = 0
    """Files that are new in it, or new in another version."""
    removed: int = 0
    """Files that are gone, or were replaced."""
    unchanged: int = 0
    """Files that it covered before, in the same version."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Files that it does not cover, each with the reason."""
    segments: int = 0
    """The parts that it consists of."""
    nbytes: int = 0
    """Bytes of all its objects, without the head."""
    deleted: tuple[str, ...] = ()
    """Objects that were removed."""
    requests: int = 0
    """Requests that the call sent to stores."""
    seconds: float = 0.0
    """The time that it took."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """What a commit does to whatever head is there."""

    added: Segment | None = None
    listed: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The files of `added`, by path: ordinal and etag."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The etags of versions that are gone, by path."""
    completes: bool = False
    """Whether the catalog lists all files afterwards."""


class CatalogBuilder:
    """Builds and keeps one catalog. Used on the I/O loop.

    Parameters
    ----------
    home : CatalogHome
    client_for : callable
        The client of a store, by its root.
    options : Options
    progress : callable, optional
    """

    def __init__(
        self,
        home: CatalogHome,
        client_for: Callable[[str], Client],
        *,
        options: Options,
        progress: Progress | None = None,
    ) -> None:
        self._home = home
        self._client_for = client_for
        self._options = options
        self._progress = progress
        self._metrics = Metrics()
        self._started = time.monotonic()
        self._reader = Reader(
            client_for, cache=Cache(memory=64 * MIB, data=0), options=options, metrics=self._metrics
        )

    # -- the verbs -------------------------------------------------------------------------------

    async def refresh(self, *, make: CatalogHead | None = None) -> IndexReport:
        """Bring the catalog to what its directory holds now; `make` is the head to begin with where there is none.

        Raises
        ------
        ObjectNotFoundError
            There is no catalog, and `make` is not given; or the directory holds no file.
        StoreError
            A store did not answer, or cannot be written to.
        """
        found = await self._find(make)
        current, skipped = await self.list_files(found if isinstance(found, CatalogHead) else found.head)
        snapshot = await self._create(found) if isinstance(found, CatalogHead) else found
        known = await self._files_of(snapshot)
        removed = {path: etag for path, (etag, _) in known.items() if path not in current}
        replaced = {
            path: etag
            for path, (etag, size) in known.items()
            if path in current and (current[path].etag, current[path].size) != (etag, size)
        }
        new = sorted(path for path in current if path not in known or path in replaced)
        if removed:
            snapshot = await self._commit(_Change(dropped=removed), snapshot)
        done = 0
        for start in range(0, len(new), _SEGMENT_FILES):
            paths = new[start : start + _SEGMENT_FILES]
            change, failed = await self._describe(
                [(path, current[path]) for path in paths], snapshot.head, done=done, total=len(new)
            )
            done += len(paths)
            skipped |= failed
            if change is not None:
                completes = start + _SEGMENT_FILES >= len(new)
                snapshot = await self._commit(replace(change, completes=completes), snapshot)
        # The commit of a new version drops the old one, so that the file is listed all the time.
        lost = {path: etag for path, etag in replaced.items() if path in skipped}
        if lost:
            snapshot = await self._commit(_Change(dropped=lost), snapshot)
        if not snapshot.head.complete:
            snapshot = await self._commit(_Change(completes=True), snapshot)
        if len(snapshot.head.segments) > MOST_SEGMENTS:
            snapshot = await self._merge(snapshot)
        return self._report(
            snapshot,
            added=len(new) - len(skipped.keys() & set(new)),
            removed=len(removed) + len(replaced),
            unchanged=len(known) - len(removed) - len(replaced),
            skipped=skipped,
        )

    async def replace_files(self, added: Sequence[str], removed: Mapping[str, str]) -> IndexReport:
        """Take up new files and drop old ones in one commit, so that no reader of the index finds both, or neither.

        Parameters
        ----------
        added : sequence of str
            Paths below the directory.
        removed : mapping
            The etags of the files to drop, by path.
        """
        snapshot, _ = await self._home.read_head(self._metrics)
        current, skipped = await self.list_files(snapshot.head)
        files = [(path, current[path]) for path in sorted(added) if path in current]
        change, failed = await self._describe(files, snapshot.head, done=0, total=len(files))
        change = replace(change or _Change(), dropped=removed)
        snapshot = await self._commit(change, snapshot)
        if len(snapshot.head.segments) > MOST_SEGMENTS:
            snapshot = await self._merge(snapshot)
        return self._report(
            snapshot, added=len(files) - len(failed), removed=len(removed), skipped=skipped | failed
        )

    async def check_covers(self, root: str, path: str) -> None:
        """Raise StoreError unless the catalog covers this directory."""
        snapshot, _ = await self._home.read_head(self._metrics)
        if self._home.base(snapshot.head) != (root, path):
            raise StoreError(f"the index covers {self._home.base_url(snapshot.head)}", path=str(self._home))

    async def compact(self) -> IndexReport:
        """Merge the segments into one, without the files that were dropped."""
        snapshot, _ = await self._home.read_head(self._metrics)
        if len(snapshot.head.segments) > 1 or any(segment.dropped for segment in snapshot.head.segments):
            snapshot = await self._merge(snapshot)
        return self._report(snapshot)

    async def vacuum(self, *, grace: float) -> IndexReport:
        """Remove the objects that no head has named for `grace` seconds, and those that none ever named and that are as old."""
        snapshot, _ = await self._home.read_head(self._metrics)
        before = time.time() - grace
        ripe = {one.name for one in snapshot.head.retired if one.since <= before}
        listed = await self._home.list_objects()
        named = snapshot.head.names | {one.name for one in snapshot.head.retired}
        orphans = {entry.path for entry in listed if entry.path not in named and _made(entry.path) <= before}
        for attempt in range(_ATTEMPTS):
            if not ripe:
                break
            retired = tuple(one for one in snapshot.head.retired if one.name not in ripe)
            head = replace(snapshot.head, retired=retired, generation=snapshot.head.generation + 1)
            try:
                snapshot = await self._swap(head, snapshot)
                break
            except ObjectChangedError:
                snapshot = await self._read_again(attempt)
        there = {entry.path for entry in listed}
        # A commit may have come between that names an object which was an orphan before.
        removed = sorted((ripe | orphans) & there - snapshot.head.names)
        for name in removed:
            await self._home.delete(name)
        return replace(self._report(snapshot), deleted=tuple(removed))

    def _report(
        self,
        snapshot: CatalogSnapshot,
        *,
        added: int = 0,
        removed: int = 0,
        unchanged: int | None = None,
        skipped: Mapping[str, str] | None = None,
    ) -> IndexReport:
        head = snapshot.head
        return IndexReport(
            index=str(self._home),
            generation=head.generation,
            files=head.num_files,
            added=added,
            removed=removed,
            unchanged=head.num_files if unchanged is None else unchanged,
            skipped=skipped or {},
            segments=len(head.segments),
            nbytes=sum(segment.object_bytes for segment in head.segments),
            requests=self._metrics.requests,
            seconds=time.monotonic() - self._started,
        )

    async def list_files(self, head: CatalogHead) -> tuple[dict[str, FileEntry], dict[str, str]]:
        """List the files of the directory that a catalog covers: by path, and why some cannot be covered.

        Raises as `refresh` does.
        """
        try:
            block = await discover(
                self._home.base_url(head),
                client_for=self._client_for,
                partitioning=None,
                glob=False,
                in_store=self._home.in_store,
                metrics=self._metrics,
            )
        except ObjectNotFoundError:
            if not head.generation:
                raise
            return {}, {}  # the directory has become empty
        root, base = self._home.base(head)
        current: dict[str, FileEntry] = {}
        skipped: dict[str, str] = {}
        for file in block.files:
            path = file.path.removeprefix(base)
            if file.root != root or not file.path.startswith(base):
                skipped[file.path] = "it does not lie in the directory of the index"
            elif file.etag is None or is_weak(file.etag):
                skipped[path] = "the store gives it no strong etag"
            else:
                current[path] = file
        return current, skipped

    # -- describing files ------------------------------------------------------------------------

    async def _describe(
        self,
        files: Sequence[tuple[str, FileEntry]],
        head: CatalogHead,
        *,
        done: int,
        total: int,
    ) -> tuple[_Change | None, dict[str, str]]:
        """Write a segment about some files; returns the change that adds it, and why files are not in it."""
        rows, bounds = FilesTable(), BoundsTable(head.columns)
        indexes = [(index, index.builder()) for index in indexes_of(head.indexes)]
        listed: dict[str, tuple[int, str]] = {}
        failed: dict[str, str] = {}

        def add(opened: Sequence[tuple[str, FileHandle | AccelError]]) -> list[tuple[int, FileHandle]]:
            added = []
            for path, found in opened:
                if isinstance(found, AccelError):
                    failed[path] = str(found)
                    continue
                listed[path] = len(rows), found.etag or ""
                rows.add(path, found)
                added.append((len(rows) - 1, found))
            bounds.add(added)
            return added

        entries = dict(files)
        async with contextlib.aclosing(self._open_blocks(files)) as blocks:
            async for opened in blocks:
                added = await WORK.run(add, opened)
                if indexes:
                    paths = list(listed)
                    for at, handle in added:
                        await self.add_values(indexes, at, entries[paths[at]], handle)
                done += len(opened)
                if self._progress is not None:
                    self._progress(done, total)
        if not len(rows):
            return None, failed
        tables = {Table.FILES: await WORK.run(rows.finish), Table.BOUNDS: await WORK.run(bounds.finish)}
        uncovered = {}
        for index, builder in indexes:
            finished = await WORK.run(builder.finish)
            if finished is not None:
                tables[index.table] = finished
                uncovered[index.table] = frozenset(builder.uncovered)
        segment = await self._home.put_segment(tables, num_files=len(rows), uncovered=uncovered)
        return _Change(added=segment, listed=listed), failed

    async def add_values(
        self,
        indexes: Sequence[tuple[CatalogIndex, IndexTableBuilder]],
        ordinal: int,
        file: FileEntry,
        handle: FileHandle,
    ) -> None:
        """Add a file to the tables of indexes, for which the columns that they are of are read."""
        read: dict[tuple[str, ...], pa.ChunkedArray | None] = {}
        for index, builder in indexes:
            covered = builder.accepts(handle)
            if covered:
                for path in index.columns:
                    if path not in read:
                        read[path] = await self._values(file, handle, path)
                values = [column for path in index.columns if (column := read[path]) is not None]
                covered = len(values) == len(index.columns)
                covered = covered and await WORK.run(builder.add, ordinal, handle, values)
            if not covered:
                builder.uncovered.add(ordinal)

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

    async def _open_blocks(
        self, files: Sequence[tuple[str, FileEntry]]
    ) -> AsyncGenerator[Sequence[tuple[str, FileHandle | AccelError]], None]:
        """Open files block by block; the next block is opened while the caller is busy with one."""
        blocks = [files[start : start + _BLOCK] for start in range(0, len(files), _BLOCK)]
        async with asyncio.TaskGroup() as group:
            ahead = group.create_task(self._open_some(blocks[0])) if blocks else None
            for number in range(len(blocks)):
                if ahead is None:
                    return
                opened = await ahead
                more = number + 1 < len(blocks)
                ahead = group.create_task(self._open_some(blocks[number + 1])) if more else None
                yield opened

    async def _open_some(
        self, files: Sequence[tuple[str, FileEntry]]
    ) -> list[tuple[str, FileHandle | AccelError]]:
        async with Group() as group:
            tasks = [group.create_task(self.open(file)) for _, file in files]
        return [(path, task.result()) for (path, _), task in zip(files, tasks, strict=True)]

    async def open(self, file: FileEntry) -> FileHandle | AccelError:
        """Open a file, with its page indexes; or the error by which it cannot be read."""
        try:
            handle, _ = await self._reader.open(file)
            region = handle.index_region(_MOST_INDEX_BYTES)
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

    # -- commits ---------------------------------------------------------------------------------

    async def _find(self, make: CatalogHead | None) -> CatalogSnapshot | CatalogHead:
        """The catalog that is there; else `make`, which is to be the first head."""
        try:
            snapshot, _ = await self._home.read_head(self._metrics)
        except ObjectNotFoundError:
            if make is None:
                raise
            return make
        if make is not None:
            self._check_base(snapshot, make)
        return snapshot

    async def _create(self, head: CatalogHead) -> CatalogSnapshot:
        """Put the first head."""
        with contextlib.suppress(ObjectChangedError):  # another builder was sooner
            await self._home.put_head(head, instead_of=None)
        snapshot, _ = await self._home.read_head(self._metrics)
        self._check_base(snapshot, head)
        return snapshot

    def _check_base(self, snapshot: CatalogSnapshot, wanted: CatalogHead) -> None:
        if self._home.base(snapshot.head) != self._home.base(wanted):
            covered, asked = self._home.base_url(snapshot.head), self._home.base_url(wanted)
            raise StoreError(
                f"the index covers {covered}, not {asked}",
                path=str(self._home),
                hint="put the index of another directory elsewhere",
            )

    async def _files_of(self, snapshot: CatalogSnapshot) -> dict[str, tuple[str, int]]:
        """Etag and size of each file that a catalog covers, by path."""
        known: dict[str, tuple[str, int]] = {}
        for tables in snapshot.tables:
            directory = await self._tables_reader().load_directory(tables)
            live = tables.live().tolist()
            for path, size, etag, is_live in zip(
                directory.paths, directory.sizes, directory.etags, live, strict=True
            ):
                if is_live:
                    known[path] = etag, size
        return known

    def _tables_reader(self) -> SegmentReader:
        return self._home.reader(cache=None, options=self._options, metrics=self._metrics)

    async def _commit(self, change: _Change, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Apply a change to the catalog as it is, and to what others make of it meanwhile."""
        for attempt in range(_ATTEMPTS):
            head = await self._apply(change, snapshot)
            try:
                return await self._swap(head, snapshot)
            except ObjectChangedError:
                snapshot = await self._read_again(attempt)
        raise StoreError(
            f"{_ATTEMPTS} other commits came between", path=str(self._home), hint="refresh again later"
        )

    async def _swap(self, head: CatalogHead, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        await self._home.put_head(head, instead_of=snapshot)
        after, _ = await self._home.read_head(self._metrics)
        _keep_tables(after, snapshot)
        return after

    async def _read_again(self, attempt: int) -> CatalogSnapshot:
        await asyncio.sleep(random.uniform(0, min(1.0, 0.01 * 2**attempt)))
        snapshot, _ = await self._home.read_head(self._metrics)
        return snapshot

    async def _apply(self, change: _Change, snapshot: CatalogSnapshot) -> CatalogHead:
        """The head after a change."""
        head = snapshot.head
        segments: list[Segment] = []
        own_dropped: set[int] = set()
        for tables in snapshot.tables:
            segment = tables.segment
            directory = await self._tables_reader().load_directory(tables)
            dropped = set(segment.dropped)
            for ordinal, (path, etag) in enumerate(zip(directory.paths, directory.etags, strict=True)):
                if ordinal in dropped:
                    continue
                if change.dropped.get(path) == etag:
                    dropped.add(ordinal)
                elif path in change.listed:
                    mine, own_etag = change.listed[path]
                    if own_etag == etag:
                        own_dropped.add(mine)  # another builder was sooner
                    else:
                        dropped.add(ordinal)
            segments.append(
                segment
                if len(dropped) == len(segment.dropped)
                else replace(segment, dropped=frozenset(dropped))
            )
        if change.added is not None:
            segments.append(replace(change.added, dropped=frozenset(own_dropped)))
        live = tuple(segment for segment in segments if segment.num_live)
        head = replace(
            head,
            segments=live,
            generation=head.generation + 1,
            complete=head.complete or change.completes,
        )
        return _retire(head, snapshot.head, also=change.added)

    async def _merge(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Write one segment in the place of all."""
        for attempt in range(_ATTEMPTS):
            merged = await self._merged(snapshot)
            head = replace(
                snapshot.head,
                segments=() if merged is None else (merged,),
                generation=snapshot.head.generation + 1,
            )
            try:
                return await self._swap(_retire(head, snapshot.head), snapshot)
            except ObjectChangedError:
                snapshot = await self._read_again(attempt)
        raise StoreError(
            f"{_ATTEMPTS} other commits came between", path=str(self._home), hint="compact again later"
        )

    async def _merged(self, snapshot: CatalogSnapshot) -> Segment | None:
        """Write a segment about the files of all segments that count, numbered by path."""
        parts = snapshot.tables
        live = [tables.live() for tables in parts]
        files = [await self._tables_reader().whole_table(tables, Table.FILES) for tables in parts]
        everything = pa.concat_tables(
            [table.filter(pa.array(own)) for table, own in zip(files, live, strict=True)]
        )
        if not everything.num_rows:
            return None
        order = everything.combine_chunks().column("path").to_pylist()
        by_path = np.array(sorted(range(len(order)), key=order.__getitem__), np.int64)
        ordinals = np.empty(len(order), np.int64)
        ordinals[by_path] = np.arange(len(order))
        # The new ordinal of each file of each segment; -1 for one that does not count.
        places = [np.full(len(own), -1, np.int64) for own in live]
        done = 0
        for own, moved in zip(live, places, strict=True):
            moved[own] = ordinals[done : done + int(own.sum())]
            done += int(own.sum())
        merged = {Table.FILES: everything.take(pa.array(by_path))}
        uncovered: dict[str, frozenset[int]] = {}
        bounds = [
            _renumbered(await self._tables_reader().whole_table(tables, Table.BOUNDS), moved)
            for tables, moved in zip(parts, places, strict=True)
        ]
        merged[Table.BOUNDS] = await WORK.run(lambda: pa.concat_tables(bounds).sort_by(BOUNDS_ORDER))
        for index in indexes_of(snapshot.head.indexes):
            found = []
            missing: set[int] = set()
            for tables, moved in zip(parts, places, strict=True):
                outside = moved[~tables.segment.covered_by(index.table)]
                missing |= set(outside[outside >= 0].tolist())
                if index.table in tables.segment.objects:
                    whole = await self._tables_reader().whole_table(tables, index.table)
                    found.append(await WORK.run(index.renumbered, whole, moved))
            if found:
                merged[index.table], lost = await WORK.run(index.merged, found)
                uncovered[index.table] = lost | missing
        return await self._home.put_segment(merged, num_files=len(order), uncovered=uncovered)


def _field_of(array: pa.Array, name: str) -> pa.Array:
    """A field of structs, null where the struct is."""
    import pyarrow.compute as pc

    return pc.struct_field(array, name)


def _keep_tables(after: CatalogSnapshot, before: CatalogSnapshot) -> None:
    """Take over what was read of segments that are in both."""
    read = {tables.segment.id: tables for tables in before.tables}
    for tables in after.tables:
        found = read.get(tables.segment.id)
        if found is not None:
            tables.directory, tables.columns = found.directory, found.columns


def _retire(head: CatalogHead, before: CatalogHead, *, also: Segment | None = None) -> CatalogHead:
    """Note the objects that the head does without."""
    named = set(before.names)
    if also is not None:
        named |= {one.name for one in also.objects.values()}
    now = time.time()
    gone = tuple(Retired(name, now) for name in sorted(named - head.names))
    return replace(head, retired=(*head.retired, *gone))


def _renumbered(bounds: pa.Table, places: Int64s) -> pa.Table:
    """The rows about files that count, by the ordinals that these have now; others have -1."""
    moved = places[check_ordinals(np.asarray(bounds.column("file").to_numpy(), np.int64), len(places))]
    table = bounds.filter(pa.array(moved >= 0))
    at = table.schema.get_field_index("file")
    return table.set_column(at, table.schema.field(at), pa.array(moved[moved >= 0].astype(np.int32)))


def _made(name: str) -> float:
    """When an object of a segment was written, by its name; never for other objects."""
    found = _STAMP.search(name)
    if found is None:
        return float("inf")
    return datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
