"""How a catalog is built and maintained: build and refresh, compact, vacuum.

Each commit is one replacement of the head by compare-and-swap. Whoever loses reads the new head, applies its change to that,
and tries again. New objects are written before the head that names them; nothing is removed before `vacuum`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.catalog.describer import Described, FileDescriber
from accel.catalog.describing import BOUNDS_ORDER
from accel.catalog.head import CatalogHead, Retired, Segment, Table
from accel.catalog.homes import CatalogHome
from accel.catalog.kind import CatalogIndex, TableRows, check_ordinals, file_column, with_file_column
from accel.catalog.kinds import indexes_of
from accel.catalog.segments import CatalogSnapshot, SegmentReader, SegmentTables
from accel.catalog.sorted_runs import SortedRuns
from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.file_entry import FileEntry
from accel.store.client import Client
from accel.store.local_store import is_unfinished
from accel.store.range_store import ObjectEntry, is_weak
from accel.store.threads import WORK
from accel.tables.hive import is_utf8
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["SEGMENT_FILES", "CatalogBuilder", "IndexReport", "PlannedFiles", "Progress"]

Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and the number of all."""

SEGMENT_FILES: Final = 20_000
"""Files of a segment, at most: the work of so many is lost where a builder is killed, and a merge has them in memory."""
_ATTEMPTS: Final = 50
"""Commits that may come between before a change is given up."""
_MERGED_BYTES: Final = 32 * MIB
"""Bytes of the tables `files`, as they are stored, that a merge makes one of: decoded they have to fit into memory."""
MOST_SEGMENTS: Final = 16
"""A refresh that leaves more that are not half full merges them."""
UNNAMED_SECONDS: Final = 3600.0
"""The least age at which an object that no head ever named is removed: a builder may be about to name it."""
_MERGED_ROWS: Final = 1 << 18
"""Rows of the table of an index that a merge reads at once."""
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
    """Files that are new in it, or new in another version, or described anew for an index that was asked for later."""
    removed: int = 0
    """Files that are gone, and older descriptions of those that were added."""
    unchanged: int = 0
    """Files that it covered before, in the same version and by the same indexes."""
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
class PlannedFiles:
    """The files that a catalog does not have in their current versions, or not by all of its indexes."""

    snapshot: CatalogSnapshot
    """The catalog, without the files that are gone."""
    new: Sequence[tuple[str, FileEntry]]
    """Files to describe, with their paths in the catalog, in the order of these."""
    replaced: Mapping[str, str]
    """Those of them that the catalog has otherwise: the etag that it has, by path."""
    removed: int
    """Files that were gone."""
    unchanged: int
    skipped: Mapping[str, str]
    """Files that cannot be covered, each with the reason."""


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """A file that a catalog covers."""

    etag: str
    size: int
    in_full: bool
    """Whether by all of its indexes."""

    def is_of(self, file: FileEntry) -> bool:
        """Whether this is the same version of the file."""
        return (self.etag, self.size) == (file.etag, file.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """What a commit does to whatever head is there."""

    added: Sequence[Described] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The etags of versions that are gone, by path."""
    indexes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Indexes that there are to be, besides those that there are."""
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
        self.describer = FileDescriber(client_for, options=options, metrics=self._metrics)

    # -- the verbs -------------------------------------------------------------------------------

    async def refresh(self, *, make: CatalogHead | None = None) -> IndexReport:
        """Bring the catalog to what its directory holds now; `make` is the head to begin with where there is none.

        Raises as `plan` does.
        """
        planned = await self.plan(make=make)
        snapshot, done = planned.snapshot, 0
        failed: dict[str, str] = {}

        def on_files(count: int) -> None:
            nonlocal done
            done += count
            if self._progress is not None:
                self._progress(done, len(planned.new))

        start = 0
        while start < len(planned.new):
            files = planned.new[start : start + SEGMENT_FILES]
            described = await self.describer.describe(files, snapshot.head, self._home, on_files=on_files)
            failed |= described.failed
            start += len(files) - described.left
            if described.segment is not None:
                completes = start >= len(planned.new)
                snapshot = await self._commit(_Change(added=[described], completes=completes), snapshot)
        snapshot = await self._drop_failed(failed, planned.replaced, snapshot)
        if not snapshot.head.complete:
            snapshot = await self._commit(_Change(completes=True), snapshot)
        await self._remove_unfinished()
        return self._report(
            await self.compact_many(snapshot),
            added=len(planned.new) - len(failed),
            removed=planned.removed + len(planned.replaced),
            unchanged=planned.unchanged,
            skipped={**planned.skipped, **failed},
        )

    async def plan(self, *, make: CatalogHead | None = None) -> PlannedFiles:
        """Find the files to describe; those that are gone are dropped from the catalog, which begins as `make` where there is none.

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
        if make is not None and _lacking(snapshot.head, make.indexes):
            snapshot = await self._commit(_Change(indexes=make.indexes), snapshot)
        known = await self._files_of(snapshot)
        removed = {path: one.etag for path, one in known.items() if path not in current}
        replaced = {
            path: one.etag
            for path, one in known.items()
            if path in current and not (one.in_full and one.is_of(current[path]))
        }
        new = sorted(path for path in current if path not in known or path in replaced)
        if removed:
            snapshot = await self._commit(_Change(dropped=removed), snapshot)
        return PlannedFiles(
            snapshot=snapshot,
            new=[(path, current[path]) for path in new],
            replaced=replaced,
            removed=len(removed),
            unchanged=len(known) - len(removed) - len(replaced),
            skipped=skipped,
        )

    async def commit(
        self, described: Sequence[Described], *, completes: bool, snapshot: CatalogSnapshot | None = None
    ) -> IndexReport:
        """Add the described files to the catalog in one commit; `completes` says whether it lists all files then.

        `snapshot` is the catalog as it was read last; by default it is read now.
        """
        if snapshot is None:
            snapshot, _ = await self._home.read_head(self._metrics)
        known = await self._files_of(snapshot)
        if any(one.segment is not None for one in described) or (completes and not snapshot.head.complete):
            snapshot = await self._commit(_Change(added=described, completes=completes), snapshot)
        failed = {path: reason for one in described for path, reason in one.failed.items()}
        older = {path: one.etag for path, one in known.items()}
        snapshot = await self._drop_failed(failed, older, snapshot)
        added = {path for one in described for path in one.listed}
        return self._report(
            await self.compact_many(snapshot),
            added=len(added),
            removed=len(known.keys() & (added | failed.keys())),
            unchanged=len(known.keys() - added - failed.keys()),
            skipped=failed,
        )

    async def _drop_failed(
        self, failed: Mapping[str, str], older: Mapping[str, str], snapshot: CatalogSnapshot
    ) -> CatalogSnapshot:
        """Drop the older versions of files that could not be described. Those of others were dropped by the commits of the new
        ones, so that each file is listed all the time."""
        lost = {path: etag for path, etag in older.items() if path in failed}
        return await self._commit(_Change(dropped=lost), snapshot) if lost else snapshot

    async def compact_many(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Merge the small segments where there are many."""
        small = [one for one in snapshot.head.segments if one.num_live <= SEGMENT_FILES // 2]
        return await self._merge(snapshot, small) if len(small) > MOST_SEGMENTS else snapshot

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
        described = await self.describer.describe_all(files, snapshot.head, self._home)
        snapshot = await self._commit(_Change(added=described, dropped=removed), snapshot)
        failed = {path: reason for one in described for path, reason in one.failed.items()}
        return self._report(
            await self.compact_many(snapshot),
            added=sum(len(one.listed) for one in described),
            removed=len(removed),
            skipped=skipped | failed,
        )

    async def check_covers(self, root: str, path: str) -> None:
        """Raise StoreError unless the catalog covers this directory."""
        snapshot, _ = await self._home.read_head(self._metrics)
        if self._home.base(snapshot.head) != (root, path):
            raise StoreError(f"the index covers {self._home.base_url(snapshot.head)}", path=str(self._home))

    async def compact(self) -> IndexReport:
        """Merge the segments into as few as may be, without the files that were dropped."""
        snapshot, _ = await self._home.read_head(self._metrics)
        some = [one for one in snapshot.head.segments if one.dropped or one.num_live < SEGMENT_FILES]
        return self._report(await self._merge(snapshot, some))

    async def vacuum(self, *, grace: float) -> IndexReport:
        """Remove the objects that no head has named for `grace` seconds, and those that none ever named and that are as old, but
        an hour at least: somebody may be about to name them."""
        snapshot, _ = await self._home.read_head(self._metrics)
        now = time.time()
        before = now - grace
        ripe = {one.name for one in snapshot.head.retired if one.since <= before}
        listed = await self._home.list_objects()
        named = snapshot.head.names | {one.name for one in snapshot.head.retired}
        orphans = {
            entry.path
            for entry in listed
            if entry.path not in named and _made(entry) <= min(before, now - UNNAMED_SECONDS)
        }
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

    async def _remove_unfinished(self) -> None:
        """Remove what builders that were killed were writing, unless it is so new that one may be writing it."""
        if not self._home.leaves_unfinished:
            return
        before = time.time() - UNNAMED_SECONDS
        for entry in await self._home.list_objects():
            if is_unfinished(entry.path) and _made(entry) <= before:
                await self._home.delete(entry.path)

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
            if head.generation:
                return {}, {}  # the directory has become empty
            root, base = self._home.base(head)
            await self._refuse_file(root, base.rstrip("/"))
            raise
        root, base = self._home.base(head)
        current: dict[str, FileEntry] = {}
        skipped: dict[str, str] = {}
        for file in block.files:
            path = file.path.removeprefix(base)
            if file.root != root or not file.path.startswith(base):
                skipped[file.path] = "it does not lie in the directory of the index"
            elif not is_utf8(path):
                skipped[path.encode(errors="backslashreplace").decode()] = "its name is no UTF-8"
            elif file.etag is None or is_weak(file.etag):
                skipped[path] = "the store gives it no strong etag"
            else:
                current[path] = file
        return current, skipped

    async def _refuse_file(self, root: str, path: str) -> None:
        """Raise StoreError if a file has this name."""
        try:
            await self._client_for(root).read_tail(path, 8, metrics=self._metrics)
        except StoreError:
            return
        raise StoreError("this is a file", path=path, hint="name the directory that it lies in")

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

    async def _files_of(self, snapshot: CatalogSnapshot) -> dict[str, _KnownFile]:
        """The files that a catalog covers, by path."""
        known: dict[str, _KnownFile] = {}
        indexes = _index_tables(snapshot.head)
        for tables in snapshot.tables:
            directory = await self._tables_reader().load_directory(tables)
            live = tables.live().tolist()
            in_full = indexes <= tables.segment.tables
            for path, size, etag, is_live in zip(
                directory.paths, directory.sizes, directory.etags, live, strict=True
            ):
                if is_live:
                    known[path] = _KnownFile(etag, size, in_full)
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
        indexes = _index_tables(head)
        # If a file was described twice, the first description counts.
        own_dropped: list[set[int]] = [set() for _ in change.added]
        listed: dict[str, tuple[int, int, str]] = {}
        for number, one in enumerate(change.added):
            for path, (ordinal, etag) in one.listed.items():
                if path in listed:
                    own_dropped[number].add(ordinal)
                else:
                    listed[path] = number, ordinal, etag
        for tables in snapshot.tables:
            segment = tables.segment
            directory = await self._tables_reader().load_directory(tables)
            dropped = set(segment.dropped)
            for ordinal, (path, etag) in enumerate(zip(directory.paths, directory.etags, strict=True)):
                if ordinal in dropped:
                    continue
                if change.dropped.get(path) == etag:
                    dropped.add(ordinal)
                elif path in listed:
                    number, mine, own_etag = listed[path]
                    own = change.added[number].segment
                    if own_etag == etag and (own is None or indexes & own.tables <= segment.tables):
                        own_dropped[number].add(mine)  # another builder was sooner
                    else:
                        dropped.add(ordinal)
            segments.append(
                segment
                if len(dropped) == len(segment.dropped)
                else replace(segment, dropped=frozenset(dropped))
            )
        added = [one.segment for one in change.added if one.segment is not None]
        for one, gone in zip(change.added, own_dropped, strict=True):
            if one.segment is not None:
                segments.append(replace(one.segment, dropped=frozenset(gone)))
        live = tuple(segment for segment in segments if segment.num_live)
        head = replace(
            head,
            segments=live,
            generation=head.generation + 1,
            indexes=_with_indexes(head, change.indexes),
            complete=head.complete or change.completes,
        )
        return _retire(head, snapshot.head, also=added)

    async def _merge(self, snapshot: CatalogSnapshot, some: Sequence[Segment]) -> CatalogSnapshot:
        """Write as few segments as may be in the place of some."""
        wanted = {one.id for one in some}
        for attempt in range(_ATTEMPTS):
            groups = _groups([one for one in snapshot.tables if one.segment.id in wanted])
            if not groups:
                return snapshot
            merged = [await self._merged(group, snapshot.head) for group in groups]
            gone = {one.segment.id for group in groups for one in group}
            rest = [one for one in snapshot.head.segments if one.id not in gone]
            segments = (*rest, *(one for one in merged if one is not None))
            head = replace(snapshot.head, segments=segments, generation=snapshot.head.generation + 1)
            try:
                return await self._swap(_retire(head, snapshot.head), snapshot)
            except ObjectChangedError:
                snapshot = await self._read_again(attempt)
        raise StoreError(
            f"{_ATTEMPTS} other commits came between", path=str(self._home), hint="compact again later"
        )

    async def _merged(self, parts: Sequence[SegmentTables], head: CatalogHead) -> Segment | None:
        """Write a segment about the files of segments that count, numbered by path."""
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
        merged = {Table.FILES: TableRows.of(everything.take(pa.array(by_path)))}
        uncovered: dict[str, frozenset[int]] = {}
        bounds = [
            _renumbered(await self._tables_reader().whole_table(tables, Table.BOUNDS), moved)
            for tables, moved in zip(parts, places, strict=True)
        ]
        together = await WORK.run(lambda: pa.concat_tables(bounds).sort_by(BOUNDS_ORDER))
        merged[Table.BOUNDS] = TableRows.of(together)
        with contextlib.ExitStack() as stack:
            for index in indexes_of(head.indexes):
                if index.table not in parts[0].segment.tables:
                    continue  # nor is it in the others: the files are to be described again
                runs = stack.enter_context(SortedRuns(index.order, run_bytes=self.describer.run_bytes))
                rows, uncovered[index.table] = await self._merged_index(index, parts, places, runs)
                if rows is not None:
                    merged[index.table] = rows
            segment = await self._home.put_segment(merged, num_files=len(order), uncovered=uncovered)
        return segment.with_paths(order)

    async def _merged_index(
        self,
        index: CatalogIndex,
        parts: Sequence[SegmentTables],
        places: Sequence[Int64s],
        runs: SortedRuns,
    ) -> tuple[TableRows | None, frozenset[int]]:
        """The table of an index over the files of several segments, and the files that it does not cover.

        `places` are the new ordinals of the files of each segment.
        """
        missing: set[int] = set()
        whole: list[pa.Table] = []
        schema = None
        for tables, moved in zip(parts, places, strict=True):
            one = tables.segment.objects.get(index.table)
            reader = self._tables_reader()
            # Segments may differ in the type of the column; the type of the first counts.
            own = None if one is None else reader.schema(tables, index.table)
            alike = own is not None and own.equals(schema or own)
            outside = moved if not alike else moved[~tables.segment.covered_by(index.table)]
            missing |= set(outside[outside >= 0].tolist())
            if one is None or not alike:
                continue
            schema = own
            step = _MERGED_ROWS if index.rows_apart else max(1, one.num_rows)
            for start in range(0, max(1, one.num_rows), step):
                part = await reader.rows_of_table(tables, index.table, start, min(start + step, one.num_rows))
                part = await WORK.run(index.renumbered, part, moved)
                if index.rows_apart:
                    await WORK.run(runs.add, part)
                else:
                    whole.append(part)
        if whole:
            return TableRows.of(await WORK.run(index.merged, whole)), frozenset(missing)
        rows = await WORK.run(runs.reader)
        return None if rows is None else TableRows(rows, runs.num_rows), frozenset(missing)


def _index_tables(head: CatalogHead) -> frozenset[str]:
    """The tables of the indexes that there are to be."""
    return frozenset(index.table for index in indexes_of(head.indexes))


def _lacking(head: CatalogHead, indexes: Mapping[str, Sequence[str]]) -> bool:
    """Whether any of some indexes is not among those of a head."""
    return any(kind not in head.indexes.get(of, ()) for of, kinds in indexes.items() for kind in kinds)


def _with_indexes(head: CatalogHead, indexes: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    """The indexes of a head and some more."""
    every = {of: tuple(kinds) for of, kinds in head.indexes.items()}
    for of, kinds in indexes.items():
        every[of] = tuple(dict.fromkeys((*every.get(of, ()), *kinds)))
    return every


def _groups(tables: Sequence[SegmentTables]) -> list[list[SegmentTables]]:
    """Segments of the same tables that are to be merged into one each, by their paths, as far as that changes something."""
    groups: list[list[SegmentTables]] = []
    for one in sorted(tables, key=lambda one: (sorted(one.segment.tables), one.segment.first_path)):
        together = [one, *(groups[-1] if groups else ())]
        files = sum(each.segment.num_live for each in together)
        nbytes = sum(each.segment.objects[Table.FILES].size for each in together)
        alike = all(each.segment.tables == one.segment.tables for each in together)
        if not groups or not alike or files > SEGMENT_FILES or nbytes > _MERGED_BYTES:
            groups.append([])
        groups[-1].append(one)
    return [group for group in groups if len(group) > 1 or group[0].segment.dropped]


def _keep_tables(after: CatalogSnapshot, before: CatalogSnapshot) -> None:
    """Take over what was read of segments that are in both."""
    read = {tables.segment.id: tables for tables in before.tables}
    for tables in after.tables:
        found = read.get(tables.segment.id)
        if found is not None:
            tables.directory, tables.columns = found.directory, found.columns


def _retire(head: CatalogHead, before: CatalogHead, *, also: Sequence[Segment] = ()) -> CatalogHead:
    """Note the objects that the head does without."""
    named = {*before.names, *(one.name for segment in also for one in segment.objects.values())}
    now = time.time()
    gone = tuple(Retired(name, now) for name in sorted(named - head.names))
    return replace(head, retired=(*head.retired, *gone))


def _renumbered(bounds: pa.Table, places: Int64s) -> pa.Table:
    """The rows about files that count, by the ordinals that these have now; others have -1."""
    moved = places[check_ordinals(file_column(bounds), len(places))]
    return with_file_column(bounds.filter(pa.array(moved >= 0)), moved[moved >= 0])


def _made(entry: ObjectEntry) -> float:
    """When an object of a segment was written, by its name, and a file that was never finished; never for other objects."""
    if entry.modified is not None and is_unfinished(entry.path):
        return entry.modified
    found = _STAMP.search(entry.path)
    if found is None:
        return float("inf")
    return datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
