"""Whether what is cached of a file may be used: it is young enough, or the store says that it is current.

Memory comes first, then the disk; `Cache.max_age` holds for both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from accel.cache.cache import Cache, file_key
from accel.cache.disk_entry import Kept, entry_key, kept_of, reopen
from accel.cache.written import written_since
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.read_request import Steps, Tail
from accel.ranges import ObjectId, Stash
from accel.store.client import Client
from accel.store.fetch import same_etag
from accel.store.threads import DISK

if TYPE_CHECKING:
    from accel.cache.disk import Disk

__all__ = ["HeldFiles"]


class HeldFiles:
    """The cached metadata of files, as one scan asks for it. Used on the I/O loop."""

    def __init__(self, cache: Cache, metrics: Metrics) -> None:
        self._cache = cache
        self._metrics = metrics
        self._doubted: dict[int, FileHandle] | None = None
        """Those that were used as a listing has it which is still to be confirmed."""
        self._listed_at = -math.inf

    def note_listing(self, moment: float) -> None:
        """The etags that files come with from here on were asked of the store at that moment of the monotonic clock, or
        later."""
        self._listed_at = moment

    def doubt(self) -> None:
        """From here on files are assumed to be what they were: what is cached of them is used unasked, and not taken for
        checked."""
        self._doubted = {}

    @property
    def doubted(self) -> Collection[FileHandle]:
        """What was used so far without being known to hold."""
        return (self._doubted or {}).values()

    def bear_out(self, moment: float) -> None:
        """What was assumed is known to have held at a moment of the monotonic clock, and the rest to be as listed."""
        doubted, self._doubted, self._listed_at = self._doubted or {}, None, moment
        for handle in doubted.values():
            handle.checked_at = max(handle.checked_at, moment)

    def stands(self, client: Client, handle: FileHandle, moment: float) -> bool:
        """Whether a handle in use was of the current version at a moment, as far as this scan can tell."""
        if self._doubted is not None and id(handle) in self._doubted:
            return True
        return self.fresh(client, handle, moment)

    def fresh(self, client: Client, handle: FileHandle, now: float) -> bool:
        """Whether a handle is young enough at `now` (monotonic clock) to be used unasked, and the file was not
        written by this process since."""
        return self._young(handle, now) and not written_since(
            client.root, handle.id.path, moment=handle.checked_at
        )

    def _young(self, handle: FileHandle, now: float) -> bool:
        return handle.checked_at > now or now - handle.checked_at < self._cache.max_age

    def is_in_doubt(self, client: Client, file: FileEntry) -> bool:
        """Whether a file is cached, too old to be used unasked, and nothing else is known against it."""
        handle = self._cache.peek(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle) or handle.etag is None:
            return False
        written = written_since(client.root, file.path, moment=handle.checked_at)
        return not written and not self._young(handle, time.monotonic())

    async def ask_after(self, client: Client, file: FileEntry) -> tuple[FileHandle, int] | None:
        """What is cached of a file, and the round trips it took to know that it is current; None where it is not."""
        handle = self._cache.peek(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle):
            return None
        trips = await self.confirm(client, handle, file, time.monotonic())
        if trips is None:
            self.forget(client, file.path)
            return None
        return handle, trips

    def vouched(self, client: Client, handle: FileHandle, *, file: FileEntry, now: float) -> bool:
        """Whether a cached handle may be used unasked: it is young, or a listing has just shown the same version, or that
        is assumed."""
        etag = handle.etag
        if etag is None or (file.size is not None and file.size != handle.size):
            return False
        if file.etag is None:
            fresh = self.fresh(client, handle, now)
            if fresh or self._doubted is None:
                return fresh
        # A listing that has just shown another etag leaves it in doubt, however young it is.
        same = file.etag is None or same_etag(file.etag, etag)
        if same and self._doubted is not None:
            self._doubted[id(handle)] = handle
        elif same:
            # Of long ago where the scan has been taken from slowly.
            handle.checked_at = max(handle.checked_at, self._listed_at)
        return same

    async def confirm(self, client: Client, handle: FileHandle, file: FileEntry, now: float) -> int | None:
        """The round trips it took to know that a cached handle may be used; None where it may not."""
        known = handle.id
        if known.etag is None or (file.size is not None and file.size != known.size):
            return None
        if self.vouched(client, handle, file=file, now=now):
            return 0
        key = ("current", client.token, known)
        while True:
            led: list[bool] = []
            asked_at = await self._cache.flights.share(key, partial(self._ask, client, known, led))
            if asked_at is None:
                return None
            handle.checked_at = max(handle.checked_at, asked_at)
            if led:
                await self._note_check(client, handle)
                return 1
            # Who joined another's question, asked before, may have to ask whether the answer still holds.
            if asked_at >= now or self.fresh(client, handle, now):
                return 1

    async def _ask(self, client: Client, known: ObjectId, led: list[bool]) -> float | None:
        """When the store was asked about a version that is current; None where it is not."""
        led.append(True)
        asked_at = time.monotonic()
        return asked_at if await client.revalidate(known, metrics=self._metrics) else None

    async def recall(
        self, client: Client, file: FileEntry, steps: Steps[FileHandle]
    ) -> tuple[FileHandle, int] | None:
        """The handle of a file whose metadata is on disk and may be used, and the round trips to know that.

        `steps` are those that open the file; they are run on the bytes of the disk.
        """
        disk = self._cache.disk_for(client.token)
        if disk is None:
            return None
        key = entry_key(client.token, file.path)
        now, wall = time.monotonic(), time.time()
        kept = await DISK.run(disk.read, key)
        self._warn_of(disk)
        found = None
        if kept is not None:
            age = wall - kept.checked_at
            # A clock that was set back says nothing about the age: then the store is asked.
            checked_at = now - age if age >= 0 else -math.inf
            found = await self._use(client, file, kept, steps, checked_at)
            if found is None:
                disk.drop(key)
        disk.count(hit=found is not None)
        return found

    async def keep(self, client: Client, handle: FileHandle, seen: list[Stash | Tail]) -> None:
        """Put on disk what a file was just opened by."""
        disk = self._cache.disk_for(client.token)
        kept = None if disk is None else kept_of(handle, seen, checked_at=_wall(handle.checked_at))
        if disk is not None and kept is not None:
            await DISK.run(disk.write, entry_key(client.token, handle.id.path), kept)
            self._warn_of(disk)

    def forget(self, client: Client, path: str) -> None:
        """Drop what is cached of a file, in memory and on disk."""
        self._cache.drop(file_key(client.token, path))
        self._cache.data_tier.drop(client.token, path)
        disk = self._cache.disk_for(client.token)
        if disk is not None:
            disk.drop(entry_key(client.token, path))

    async def _use(
        self, client: Client, file: FileEntry, kept: Kept, steps: Steps[FileHandle], checked_at: float
    ) -> tuple[FileHandle, int] | None:
        if file.etag is not None and not same_etag(file.etag, kept.etag):
            return None
        handle = reopen(kept, steps)
        if handle is None:
            return None
        now = time.monotonic()
        handle.checked_at = checked_at
        stale = not self.fresh(client, handle, now)
        trips = await self.confirm(client, handle, file, now)
        if trips is None:
            return None
        if stale and not trips and self._doubted is None:
            await self._note_check(client, handle)  # the listing was the check
        return handle, trips

    async def _note_check(self, client: Client, handle: FileHandle) -> None:
        disk, etag = self._cache.disk_for(client.token), handle.id.etag
        if disk is not None and etag is not None:
            key = entry_key(client.token, handle.id.path)
            await DISK.run(disk.confirm, key, etag, _wall(handle.checked_at))
            self._warn_of(disk)

    def _warn_of(self, disk: Disk) -> None:
        problem = disk.problem()
        if problem is not None:
            self._metrics.warn(problem)


def _wall(monotonic: float) -> float:
    """The wall-clock time of a moment of the monotonic clock."""
    return time.time() - (time.monotonic() - monotonic)
