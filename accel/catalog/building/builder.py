"""How a catalog is built and maintained: build and refresh, compact, vacuum.

Each commit is one replacement of the head by compare-and-swap. Whoever loses reads the new head, applies its
change to that, and tries again. New objects are written before the head that names them; nothing is removed
before `vacuum`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from accel.catalog.building.describer import Described, FileDescriber
from accel.catalog.building.merging import SEGMENT_FILES, SegmentMerger, mergeable
from accel.catalog.building.named_files import NamedFiles
from accel.catalog.building.wanted import coverage_notes, is_lacking, settled_head, with_indexes
from accel.catalog.head import CatalogHead, Retired, Segment
from accel.catalog.homes.home import CatalogHome
from accel.catalog.kinds.registry import indexes_of
from accel.catalog.segments import CatalogSnapshot, SegmentReader
from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry
from accel.store.client import Client
from accel.store.clients import Clients
from accel.store.local_store import is_unfinished
from accel.store.location import url_in
from accel.store.range_store import ObjectEntry
from accel.tables.partition_paths import is_utf8
from accel.tables.path_source import PathRules, discover
from accel.versions import is_weak

__all__ = ["CatalogBuilder", "IndexReport", "PlannedFiles", "Progress"]

Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and the number of all."""

_ATTEMPTS: Final = 50
"""Commits that may come between before a change is given up."""
MOST_SEGMENTS: Final = 16
"""A refresh that leaves more that are not half full merges them."""
UNNAMED_SECONDS: Final = 3600.0
"""The least age at which an object that no head ever named is removed: a builder may be about to name it."""
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
    """Files that are new in it, or new in another version, or described anew for an index that was added
    later."""
    removed: int = 0
    """Files that are gone, and older descriptions of those that were added."""
    unchanged: int = 0
    """Files that it covered before, in the same version and by the same indexes."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Files that it does not cover, each with the reason."""
    segments: int = 0
    """The parts that it consists of."""
    notes: tuple[str, ...] = ()
    """What to know of indexes that leave out some of the files that were added."""
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


class IndexOfTableError(StoreError):
    """A table says what files there are for an index, and it was not given."""

    table: Mapping[str, object]
    """What the head says of it."""
    beside: str | None
    """Its directory, if the index lies in that."""

    @classmethod
    def of_table(cls, table: Mapping[str, object], *, beside: str | None, index: object) -> IndexOfTableError:
        """Return the error of an index over a table."""
        error = cls(
            f"the index is of a table, {table.get('location')}, which says what files there are",
            path=str(index),
            hint="give the table to refresh_index: it describes what is new in it",
        )
        error.table, error.beside = table, beside
        return error


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """A file that a catalog covers."""

    etag: str
    size: int
    in_full: bool
    """Whether by all of its indexes."""

    def is_of(self, file: FileEntry) -> bool:
        """Return whether this is the same version of the file."""
        if file.immutable:
            return file.size in (None, self.size)
        return (self.etag, self.size) == (file.etag, file.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """What a commit does to whatever head is there."""

    added: Sequence[Described] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The etags of versions that are gone, by path."""
    table: Mapping[str, object] | None = None
    """The version of a table that is covered afterwards."""
    indexes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Indexes that there are to be, besides those that there are."""
    completes: bool = False
    """Whether the catalog lists all files afterwards."""


class CatalogBuilder:
    """Builds and keeps one catalog. Used on the I/O loop.

    Parameters
    ----------
    home : CatalogHome
    clients : Clients
        Those of the stores of the files.
    options : Options
    progress : callable, optional
    named : NamedFiles, optional
        The files of a source; by default those of the directory that the catalog covers.
    """

    def __init__(
        self,
        home: CatalogHome,
        clients: Clients[Client],
        *,
        options: Options,
        progress: Progress | None = None,
        named: NamedFiles | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._home = home
        self._named = named
        self._clients = clients
        self._options = options
        self._progress = progress
        self._metrics = Metrics() if metrics is None else metrics
        self._started = time.monotonic()
        self.describer = FileDescriber(clients, options=options, metrics=self._metrics)

    def over_table(self, head: CatalogHead, *, beside: bool) -> CatalogHead:
        """Return the head that an index of the named files begins with; `beside`: it lies in their
        directory."""
        if self._named is None:
            return head
        return replace(head, base="." if beside else self._named.base, table=self._named.table)

    # -- the verbs -------------------------------------------------------------------------------

    async def refresh(
        self, *, make: CatalogHead | None = None, dotted: Collection[tuple[str, ...]] = ()
    ) -> IndexReport:
        """Bring the catalog to what its directory holds now; `make` is the head to begin with where there is
        none, as for `plan`.

        Raises as `plan` does.
        """
        planned = await self.plan(make=make, dotted=dotted)
        snapshot, done = planned.snapshot, 0
        added: list[Segment] = []
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
                added.append(described.segment)
                completes = start >= len(planned.new) and self._named is None
                snapshot = await self._commit(_Change(added=[described], completes=completes), snapshot)
        snapshot = await self._drop_failed(failed, planned.replaced, snapshot)
        if self._named is not None and snapshot.head.table != self._named.table:
            snapshot = await self._commit(_Change(table=self._named.table), snapshot)
        if not snapshot.head.complete and self._named is None:
            snapshot = await self._commit(_Change(completes=True), snapshot)
        await self._remove_unfinished()
        return self._report(
            await self.compact_many(snapshot),
            added=len(planned.new) - len(failed),
            removed=planned.removed + len(planned.replaced),
            unchanged=planned.unchanged,
            skipped={**planned.skipped, **failed},
            described=added,
        )

    async def plan(
        self, *, make: CatalogHead | None = None, dotted: Collection[tuple[str, ...]] = ()
    ) -> PlannedFiles:
        """Find the files to describe; those that are gone are dropped from the catalog, which begins as
        `make` where there is none.

        `dotted` are paths in `make` that may be the name of one column.

        Raises
        ------
        ObjectNotFoundError
            There is no catalog, and `make` is not given; or the directory holds no file.
        StoreError
            A store did not answer, or cannot be written to.
        """
        found = await self._find(make)
        known_head = None if isinstance(found, CatalogHead) else found.head
        current, skipped = await self.list_files(found if isinstance(found, CatalogHead) else found.head)
        if make is not None:
            source, opened = self._home.base_url(make), self.describer.open_ahead
            make = await settled_head(make, known_head, current, source=source, dotted=dotted, opened=opened)
            found = make if known_head is None else found
        snapshot = await self._create(found) if isinstance(found, CatalogHead) else found
        if make is not None and is_lacking(snapshot.head, make.indexes):
            snapshot = await self._commit(_Change(indexes=make.indexes), snapshot)
        known = await self._files_of(snapshot)
        # Earlier versions of a table have files that this one has dropped.
        keeps = self._named is not None
        removed = {} if keeps else {path: one.etag for path, one in known.items() if path not in current}
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
        """Add the described files to the catalog in one commit; `completes` says whether it lists all files
        then.

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
            described=[one.segment for one in described if one.segment is not None],
        )

    async def _drop_failed(
        self, failed: Mapping[str, str], older: Mapping[str, str], snapshot: CatalogSnapshot
    ) -> CatalogSnapshot:
        """Drop the older versions of files that could not be described. Those of others were dropped by the
        commits of the new ones, so that each file is listed all the time."""
        lost = {path: etag for path, etag in older.items() if path in failed}
        return await self._commit(_Change(dropped=lost), snapshot) if lost else snapshot

    async def compact_many(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Merge the small segments where there are many."""
        small = [one for one in snapshot.head.segments if one.num_live <= SEGMENT_FILES // 2]
        return await self._merge(snapshot, small) if len(small) > MOST_SEGMENTS else snapshot

    async def replace_files(self, added: Sequence[str], removed: Mapping[str, str]) -> IndexReport:
        """Take up new files and drop old ones in one commit, so that no reader of the index finds both, or
        neither.

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
        """Remove the objects that no head has named for `grace` seconds, and those that none ever named and
        that are as old, but an hour at least: somebody may be about to name them."""
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
        """Remove what builders that were killed were writing, unless it is so new that one may be writing
        it."""
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
        described: Sequence[Segment] = (),
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
            notes=coverage_notes(head, described),
            segments=len(head.segments),
            nbytes=sum(segment.object_bytes for segment in head.segments),
            requests=self._metrics.requests,
            seconds=time.monotonic() - self._started,
        )

    async def list_files(self, head: CatalogHead) -> tuple[dict[str, FileEntry], dict[str, str]]:
        """List the files of the directory that a catalog covers: by path, and why some cannot be covered.

        Raises as `refresh` does.
        """
        if self._named is not None:
            return self._coverable(self._named.files, head)
        if head.table is not None:
            beside = self._home.base_url(head) if head.base == "." else None
            raise IndexOfTableError.of_table(head.table, beside=beside, index=self._home)
        try:
            block = await discover(
                self._home.base_url(head),
                clients=self._clients,
                rules=PathRules(partitioning=None, glob=False, in_store=self._home.in_store),
                metrics=self._metrics,
            )
        except ObjectNotFoundError:
            if head.generation:
                return {}, {}  # the directory has become empty
            root, base = self._home.base(head)
            await self._refuse_file(root, base.rstrip("/"))
            raise
        return self._coverable(block.files, head)

    def _coverable(
        self, files: Sequence[FileEntry], head: CatalogHead
    ) -> tuple[dict[str, FileEntry], dict[str, str]]:
        """Return files by their paths in the catalog, and why some cannot be covered."""
        root, base = self._home.base(head)
        current: dict[str, FileEntry] = {}
        skipped: dict[str, str] = {}
        for file in files:
            path = file.path.removeprefix(base)
            if file.root != root or not file.path.startswith(base):
                skipped[file.url] = "it does not lie in the directory of the index"
            elif not is_utf8(path):
                skipped[path.encode(errors="backslashreplace").decode()] = "its name is no UTF-8"
            elif not file.immutable and (file.etag is None or is_weak(file.etag)):
                skipped[path] = "the store gives it no strong etag"
            else:
                current[path] = file
        return current, skipped

    async def _refuse_file(self, root: str, path: str) -> None:
        """Raise StoreError if a file has this name."""
        try:
            await self._clients.client(root).read_tail(path, 8, metrics=self._metrics)
        except StoreError:
            return
        raise StoreError("this is a file", path=url_in(root, path), hint="name the directory that it lies in")

    # -- commits ---------------------------------------------------------------------------------

    async def _find(self, make: CatalogHead | None) -> CatalogSnapshot | CatalogHead:
        """Return the catalog that is there; else `make`, which is to be the first head."""
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
            covered, requested = self._home.base_url(snapshot.head), self._home.base_url(wanted)
            raise StoreError(
                f"the index covers {covered}, not {requested}",
                path=str(self._home),
                hint="put the index of another directory elsewhere",
            )

    async def _files_of(self, snapshot: CatalogSnapshot) -> dict[str, _KnownFile]:
        """Return the files that a catalog covers, by path."""
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
        await asyncio.sleep(random.SystemRandom().uniform(0, min(1.0, 0.01 * 2**attempt)))
        snapshot, _ = await self._home.read_head(self._metrics)
        return snapshot

    async def _apply(self, change: _Change, snapshot: CatalogSnapshot) -> CatalogHead:
        """Return the head after a change."""
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
            indexes=with_indexes(head, change.indexes),
            table=change.table or head.table,
            complete=head.complete or change.completes,
        )
        return _retire(head, snapshot.head, also=added)

    async def _merge(self, snapshot: CatalogSnapshot, some: Sequence[Segment]) -> CatalogSnapshot:
        """Write as few segments as may be in the place of some."""
        wanted = {one.id for one in some}
        for attempt in range(_ATTEMPTS):
            groups = mergeable([one for one in snapshot.tables if one.segment.id in wanted])
            if not groups:
                return snapshot
            merger = SegmentMerger(self._home, self._tables_reader, run_bytes=self.describer.run_bytes)
            merged = [await merger.merge(group, snapshot.head) for group in groups]
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


def _index_tables(head: CatalogHead) -> frozenset[str]:
    """Return the names of the tables that the indexes of a head need."""
    return frozenset(index.table for index in indexes_of(head.indexes))


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


def _made(entry: ObjectEntry) -> float:
    """Return when an object of a segment, or a file that was never finished, was written.

    Objects of another name are never old enough: infinity.
    """
    if entry.modified is not None and is_unfinished(entry.path):
        return entry.modified
    found = _STAMP.search(entry.path)
    if found is None:
        return float("inf")
    return datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
