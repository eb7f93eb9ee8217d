"""The log of a Delta table, read: which version is the newest, and what one version holds.

A version takes one listing, beside the object that names the last checkpoint, and then that checkpoint and
all later commits at once. What comes of it is cached by its version, as columns; a later version is made of
it and of the commits between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import AccelError, ObjectNotFoundError, TableFormatError
from accel.options import MIB
from accel.runtime.tasks import Group
from accel.runtime.threads import WORK
from accel.scanning.file_source import SourceRequest
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import raising_foremost
from accel.tables.formats.delta.actions import (
    FileActions,
    TableActions,
    read_file_actions,
    read_table_actions,
)
from accel.tables.formats.delta.checkpoints import CheckpointReader, ParquetRows
from accel.tables.formats.delta.commit_times import CommitTimes
from accel.tables.formats.delta.log_files import (
    Checkpoint,
    CommitFile,
    LogListing,
    LogSegment,
    version_prefix,
)
from accel.tables.formats.delta.log_state import CheckpointPart, CheckpointRows, ContradictionError, LogState
from accel.tables.formats.delta.protocol import Metadata, Protocol
from accel.tables.formats.delta.replay import LoadedCheckpoint, Replay, physical_partition
from accel.tables.formats.delta.schema import StatisticsLeaf
from accel.tables.formats.delta.statistics import FileStatistics, read_texts
from accel.tables.metadata_objects import MetadataObjects

__all__ = ["WINDOW_BYTES", "DeltaLog"]

_MOST_HINT: Final = 1 << 20
"""Bytes of the object that names the last checkpoint."""
_LARGE: Final = 1 << 18
"""Bytes of commits beyond which they are parsed in a thread."""
WINDOW_BYTES: Final = 16 * MIB
"""Bytes of commits that are held at a time: what is made of them takes a fraction of that."""
_MARGIN: Final = 1 << 10
"""Bytes at the begin of a commit by which most show that they are not blank."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The newest version that was seen."""

    version: int
    tip: tuple[str, int, str | None]
    checked_at: float


class DeltaLog:
    """Reads the log of a table, for one run. Used on the I/O loop.

    Parameters
    ----------
    request : SourceRequest
    objects : MetadataObjects
    url : str
        The table, without a trailing slash.
    wanted : sequence of tuple of str, optional
        The paths of columns whose statistics the scan is going to need, as far as its filter tells; None for
        no statistics.
    """

    def __init__(
        self,
        request: SourceRequest,
        objects: MetadataObjects,
        url: str,
        *,
        wanted: Sequence[tuple[str, ...]] | None,
    ) -> None:
        self._cache = request.reader.cache
        self._metrics = request.reader.metrics
        self._objects = objects
        self._checkpoints = CheckpointReader(objects)
        self._log = f"{url}/_delta_log" if url else "_delta_log"
        client, location = objects.locate(self._log)
        self._token, self._prefix = client.token, location.path
        self._local = client.root == "file://"
        self._wanted = wanted
        self._statistics: dict[int, tuple[ParquetRows, ...]] = {}
        self.round_trips = 0
        """Dependent requests so far."""

    async def newest(self) -> LogState:
        """Return the newest version; within the `max_age` of the cache the one that was seen last.

        Raises
        ------
        TableFormatError
            The log is broken, or there is none.
        """
        place = self._key("newest")
        known: _Known | None = self._cache.get(place)
        state: LogState | None = None
        if known is not None:
            state = self._cache.get(self._key("state", known.version, known.tip))
            if state is not None and time.monotonic() - known.checked_at < self._cache.max_age:
                return cast("LogState", state)
        sent_at = time.monotonic()
        if state is not None and known is not None:
            listing = await self._list(after=version_prefix(known.version))
            if _shows(listing, known):
                segment = self._settle(listing, lambda: listing.segment(known=known.version))
                if segment.commits:
                    state = await self._state(segment, state)
                self._cache.put(
                    place,
                    replace(known, version=state.version, tip=_tip(segment, known), checked_at=sent_at),
                    256,
                )
                return state
        segment, state = await self._whole(None)
        self._cache.put(place, _Known(segment.version, segment.tip, sent_at), 256)
        return state

    async def at_version(self, version: int) -> LogState:
        """Return one version.

        Raises
        ------
        TableFormatError
            There is no such version any more, or yet, or the log is broken.
        """
        return (await self._whole(version))[1]

    async def at_time(self, milliseconds: int) -> LogState:
        """Return the last version of a moment.

        Parameters
        ----------
        milliseconds : int
            Since 1970.

        Raises
        ------
        TableFormatError
            The moment is before the first version that is left, or the store tells no times.
        """
        listing = await self._list()
        segment = self._settle(listing, listing.segment)
        state = await self._state(segment, None)
        times = CommitTimes(listing, state.metadata.configuration, self._read_time)
        try:
            version = await times.version_at(milliseconds)
        except AccelError as error:
            raise self._named(error) from error.__cause__
        if version == state.version:
            return state
        segment = self._settle(listing, lambda: listing.segment(version))
        return await self._state(segment, None)

    async def statistics(self, state: LogState, leaves: Sequence[StatisticsLeaf]) -> FileStatistics:
        """Return what the log says of some columns in the files of a version."""
        leaves = sorted(leaves, key=lambda leaf: leaf.path)
        key = self._key("statistics", state.version, id(state), tuple(leaf.path for leaf in leaves))
        cached = self._cache.get(key)
        if cached is not None and cached[0] is state:
            return cached[1]  # type: ignore[no-any-return]
        groups: Sequence[ParquetRows] = self._statistics.get(id(state), ())
        parts: list[FileStatistics] = []
        bad = 0
        checkpoint = state.checkpoint
        in_checkpoint = 0
        if checkpoint is not None and bool((state.files.checkpoint_row >= 0).any()):
            if state.json_stats is not None:
                found, wrong = await WORK.run(lambda: read_texts(state.json_stats, leaves))
                parts.append(found)
                bad += wrong
            texts_key = self._key("texts", id(state))
            if not groups:
                kept = self._cache.get(texts_key)
                groups = kept[1] if kept is not None and kept[0] is state else ()
            read = [await WORK.run(rows.statistics, leaves) for rows in groups]
            if not groups or any(one is None for one in read):
                # The filter asks for other columns than the first one did.
                self.round_trips += 1
                groups = await self._checkpoints.read_all(
                    checkpoint.parquet, tuple(leaf.physical for leaf in leaves), only_statistics=True
                )
                read = [await WORK.run(rows.statistics, leaves) for rows in groups]
            texts = [rows.only_texts() for rows in groups]
            if all(text is not None for text in texts):
                # They have all columns: another filter asks for nothing more.
                nbytes = sum(text.adds.nbytes for text in texts if text is not None and text.adds is not None)
                self._cache.put(texts_key, (state, tuple(texts)), nbytes + 256)
            for rows, one in zip(groups, read, strict=True):
                found, wrong = one or read_texts(pa.nulls(len(rows), pa.string()), leaves)
                parts.append(found)
                bad += wrong
            in_checkpoint = sum(len(part.num_rows) for part in parts)
        rows_at = state.files.checkpoint_row
        if in_checkpoint <= int(rows_at.max(initial=-1)):
            raise TableFormatError("the checkpoint has changed", path=self._log)
        found, wrong = await WORK.run(lambda: read_texts(state.files.stats, leaves))
        parts.append(found)
        bad += wrong
        at_rows = np.where(rows_at >= 0, rows_at, in_checkpoint + np.arange(len(rows_at)))
        result = FileStatistics.concat(parts).take(from_numpy(at_rows.astype(np.int64)))
        if bad:
            self._metrics.warn(
                f"the statistics of {bad:,} files of {self._log} are of other types than the columns, and "
                "count for nothing"
            )
        self._cache.put(key, (state, result), result.nbytes)
        return result

    # -- the listing -----------------------------------------------------------------------------

    async def _list(self, *, after: str | None = None, preferred: str | None = None) -> LogListing:
        self.round_trips += 1
        entries = await self._objects.list_below(self._log, after=after)
        return self._listing_of(entries, preferred)

    def _listing_of(self, entries: Iterable[ObjectEntry], preferred: str | None) -> LogListing:
        try:
            return LogListing.of(entries, self._prefix, preferred=preferred)
        except AccelError as error:
            raise self._named(error) from None

    async def _whole(self, version: int | None) -> tuple[LogSegment, LogState]:
        """List the log, beside the object that names its last checkpoint, and read a version."""
        self.round_trips += 1
        with raising_foremost():
            async with Group() as group:
                naming = group.create_task(self._last_checkpoint())
                entries = await self._objects.list_below(self._log)
        listing = self._listing_of(entries, naming.result())
        if listing.latest < 0:
            raise ObjectNotFoundError(
                "there is no Delta table: its log has neither commits nor checkpoints", path=self._log
            )
        segment = self._settle(listing, lambda: listing.segment(version))
        return segment, await self._state(segment, None)

    def _settle(self, listing: LogListing, find: Callable[[], LogSegment]) -> LogSegment:
        try:
            return find()
        except AccelError as error:
            raise self._named(error) from None

    async def _last_checkpoint(self) -> str | None:
        """Return the name of the checkpoint that `_last_checkpoint` names; None where it names none.

        It chooses between checkpoints of one version. What is wrong with it does not matter: the listing
        shows what there is.
        """
        try:
            data = await self._objects.read(f"{self._log}/_last_checkpoint", most=_MOST_HINT)
            found = json.loads(bytes(data))
            path = found["v2Checkpoint"]["path"]
            return path if isinstance(path, str) else None
        except (ObjectNotFoundError, AccelError, ValueError, KeyError, TypeError, RecursionError):
            return None

    # -- one version -----------------------------------------------------------------------------

    async def _state(self, segment: LogSegment, base: LogState | None) -> LogState:
        key = self._key("state", segment.version, segment.tip)
        cached: LogState | None = self._cache.get(key)
        if cached is not None:
            return cached

        async def load() -> tuple[LogState, int]:
            try:
                try:
                    state = await self._load(segment, base)
                except ContradictionError:
                    if segment.single is None:
                        raise
                    # Compacted commits of some writers have actions that cancel each other.
                    state = await self._load(replace(segment, commits=segment.single, single=None), base)
            except ContradictionError as error:
                commit = segment.commits[error.commit] if error.commit >= 0 else None
                raise self._named(error, segment.version if commit is None else commit.last) from None
            except AccelError as error:
                raise self._named(error, segment.version) from error.__cause__
            return state, state.nbytes

        return await self._cache.load(key, load)  # type: ignore[no-any-return]

    async def _load(self, segment: LogSegment, base: LogState | None) -> LogState:
        windows = _windows(segment.commits)
        try:
            replay = await self._replay(segment, base, windows)
        except TableFormatError:
            if len(windows) == 1:
                raise
            # Together they may be right, or their error is said as it is of a short log.
            replay = await self._replay(segment, base, [segment.commits])
        groups = () if replay.checkpoint is None else replay.checkpoint.groups
        is_small = not groups and sum(commit.entry.size for commit in segment.commits) < _LARGE
        state = replay.finish() if is_small else await WORK.run(replay.finish)
        if replay.checkpoint is not None:
            self._statistics[id(state)] = groups
        return state

    async def _replay(
        self, segment: LogSegment, base: LogState | None, windows: Sequence[Sequence[CommitFile]]
    ) -> Replay:
        """Read commits, those of a window at once, and the checkpoint beside the first of them."""
        replay = Replay(segment.version, base, named=self._named, local=self._local)
        for number, window in enumerate(windows):
            await self._take(
                replay, window, None if number else segment.checkpoint, last=number + 1 == len(windows)
            )
        return replay

    async def _take(
        self, replay: Replay, window: Sequence[CommitFile], checkpoint: Checkpoint | None, *, last: bool
    ) -> None:
        self.round_trips += 1
        with raising_foremost():
            async with Group() as group:
                reading = [group.create_task(self._commit(found.entry)) for found in window]
                if checkpoint is not None:
                    replay.begin(await self._checkpoint(checkpoint))
        commits = [task.result() for task in reading]
        add = partial(replay.add, [commit.last for commit in window], commits, last=last)
        if sum(map(len, commits)) < _LARGE:
            add()
        else:
            await WORK.run(add)

    async def _commit(self, entry: ObjectEntry) -> memoryview:
        url = f"{self._log}/{entry.path.rpartition('/')[2]}"
        data = await self._objects.read(url, size=entry.size, etag=entry.etag, lasts=True)
        if not bytes(data[:_MARGIN]).strip() and not bytes(data).strip():
            raise TableFormatError("the commit is empty", path=url)
        return data

    async def _checkpoint(self, named: Checkpoint) -> LoadedCheckpoint:
        parts = tuple(
            CheckpointPart(f"{self._log}/{entry.path.rpartition('/')[2]}", entry.size, entry.etag)
            for entry in named.parts
        )
        json_files = None
        groups: list[ParquetRows] = []
        placed: list[CheckpointPart] = []
        first = parts[0]
        if first.url.endswith(".json"):
            data = await self._objects.read(first.url, size=first.size, etag=first.etag, lasts=True)
            table = read_table_actions(data)
            metadata = None if table.metadata is None else Metadata.of(table.metadata)
            protocol = None if table.protocol is None else Protocol.of(table.protocol)
            partition = physical_partition(protocol, metadata)
            json_files = FileActions.concat(
                [FileActions.none(partition), *read_file_actions([data], partition)]
            )
        else:
            groups += await self._checkpoints.read_all(parts, self._wanted)
            table = _merged([rows.table for rows in groups])
            placed += parts
        if table.sidecars:
            self.round_trips += 1
            files = tuple(
                CheckpointPart(f"{self._log}/_sidecars/{one.path}", one.size) for one in table.sidecars
            )
            if len({file.url for file in files}) < len(files):
                raise TableFormatError("a checkpoint names a sidecar twice", path=first.url)
            groups += await self._checkpoints.read_all(files, self._wanted)
            placed += files
        return LoadedCheckpoint(
            table, json_files, tuple(groups), CheckpointRows(named.version, tuple(placed))
        )

    async def _read_time(self, entry: ObjectEntry) -> int | None:
        """Return the time within a commit."""
        self.round_trips += 1
        url = f"{self._log}/{entry.path.rpartition('/')[2]}"
        found = await self._objects.parsed(
            url, lambda data: read_table_actions(data).timestamp, nbytes=lambda _: 64, size=entry.size
        )
        return found

    def _named(self, error: AccelError, version: int | None = None) -> AccelError:
        place = self._log if version is None else f"{self._log}, version {version}"
        return error.at(path=place)

    def _key(self, *what: Any) -> CacheKey:
        return CacheKey(self._token, self._prefix, None, Entry.TABLE, what)


def _merged(parts: Sequence[TableActions]) -> TableActions:
    """Return what the parts of a checkpoint say together."""
    return TableActions(
        protocol=next((part.protocol for part in parts if part.protocol is not None), None),
        metadata=next((part.metadata for part in parts if part.metadata is not None), None),
        sidecars=tuple(sidecar for part in parts for sidecar in part.sidecars),
    )


def _windows(commits: Sequence[CommitFile]) -> list[Sequence[CommitFile]]:
    """Return the commits in runs of about so many bytes as are held at a time; one at least."""
    windows: list[list[CommitFile]] = [[]]
    nbytes = 0
    for commit in commits:
        if windows[-1] and nbytes + commit.entry.size > WINDOW_BYTES:
            windows.append([])
            nbytes = 0
        windows[-1].append(commit)
        nbytes += commit.entry.size
    return list(windows)


def _shows(listing: LogListing, known: _Known) -> bool:
    """Return whether a listing has the object by which the version is known, unchanged."""
    name, size, etag = known.tip
    entries = [
        listing.commits.get(known.version),
        *(part for found in listing.checkpoints for part in found.parts),
    ]
    return any(
        entry is not None
        and entry.path.rpartition("/")[2] == name
        and (entry.size, entry.etag) == (size, etag)
        for entry in entries
    )


def _tip(segment: LogSegment, known: _Known) -> tuple[str, int, str | None]:
    return segment.tip if segment.commits else known.tip
