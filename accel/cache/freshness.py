"""Freshness of cached metadata: it may be used if it is young enough, or if the store confirms that it is
current.

`Cache.max_age` applies to memory and disk alike. Overwrites by other processes are noticed only by a request
to the store. Cached metadata of objects that this process has written is not used without asking.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Collection, Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from accel.cache.cache import Cache
from accel.cache.cache_key import file_key, version_key
from accel.errors import StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import ObjectId, Stash
from accel.runtime.threads import DISK
from accel.store.client import Client
from accel.store.writes import written_since
from accel.versions import FileVersion, same_etag

if TYPE_CHECKING:
    from accel.cache.disk import Disk, StoredMetadata
    from accel.cache.shared import SharedEntry, SharedTier

__all__ = [
    "MetadataFreshness",
    "recorded",
]

T = TypeVar("T")


class MetadataFreshness:
    """Decides for one scan which cached metadata it may use. Used on the I/O loop."""

    def __init__(self, cache: Cache, metrics: Metrics) -> None:
        self._cache = cache
        self._metrics = metrics
        self._is_warned = False
        """Whether this scan has warned of the shared tier."""
        # Handles that are used before a listing confirms them; None if nothing is assumed.
        self._assumed: dict[int, FileHandle] | None = None
        # Handles of files that their source says never change.
        self._immutable: dict[int, FileHandle] = {}
        self._listed_at = -math.inf

    def note_listing(self, moment: float) -> None:
        """Note when (monotonic clock) the etags of the files that follow were requested."""
        self._listed_at = moment

    @property
    def listed_at(self) -> float:
        """The moment that `note_listing` was given last."""
        return self._listed_at

    def assume_current(self) -> None:
        """Use cached metadata without asking, until `confirm_assumed` is called."""
        self._assumed = {}

    @property
    def assumed(self) -> Collection[FileHandle]:
        """The handles that are used without being confirmed yet."""
        return (self._assumed or {}).values()

    def confirm_assumed(self, moment: float) -> None:
        """Note that the assumed handles, and the listing of the files that follow, were checked at `moment`
        (monotonic clock)."""
        assumed, self._assumed, self._listed_at = self._assumed or {}, None, moment
        for handle in assumed.values():
            handle.checked_at = max(handle.checked_at, moment)

    def was_current(self, client: Client, handle: FileHandle, moment: float) -> bool:
        """Return whether a handle was current at `moment`, as far as this scan can tell."""
        if id(handle) in self._immutable or (self._assumed is not None and id(handle) in self._assumed):
            return True
        return self.is_fresh(client, handle, moment)

    def was_confirmed(self, client: Client, version: ObjectId, moment: float) -> bool:
        """Return whether a pinned read of a version succeeded within `max_age` before `moment`, and this
        process has not written the object since."""
        confirmed = self._cache.peek(version_key(client.token, version))
        return (
            isinstance(confirmed, float)
            and moment - confirmed < self._cache.max_age
            and not written_since(client.root, version.path, moment=confirmed)
        )

    def is_fresh(self, client: Client, handle: FileHandle, now: float) -> bool:
        """Return whether a handle is young enough at `now` (monotonic clock) to be used without asking, and
        the file was not written by this process since."""
        return self._is_young(handle, now) and not written_since(
            client.root, handle.id.path, moment=handle.checked_at
        )

    def _is_young(self, handle: FileHandle, now: float) -> bool:
        return handle.checked_at > now or now - handle.checked_at < self._cache.max_age

    def is_stale(self, client: Client, file: FileEntry) -> bool:
        """Return whether the only reason not to use a cached file without asking is its age."""
        handle = self._cache.peek(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle) or handle.etag is None:
            return False
        written = written_since(client.root, file.path, moment=handle.checked_at)
        return not written and not self._is_young(handle, time.monotonic())

    async def revalidate(self, client: Client, file: FileEntry) -> tuple[FileHandle, int] | None:
        """Return the cached handle of a file and the round trips that confirmed it; None if it is not
        current."""
        handle = self._cache.peek(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle):
            return None
        trips = await self.confirm(client, handle, file, time.monotonic())
        if trips is None:
            self.forget(client, file.path)
            return None
        return handle, trips

    def is_usable(self, client: Client, handle: FileHandle, *, file: FileEntry, now: float) -> bool:
        """Return whether a cached handle may be used without asking: it is young, its file never changes, or
        a listing has shown, or is assumed to show, the same version."""
        etag = handle.etag
        if etag is None or (file.size is not None and file.size != handle.size):
            return False
        if file.immutable and file.version.is_same(handle.version):
            self._immutable[id(handle)] = handle
            return True
        if file.etag is None:
            fresh = self.is_fresh(client, handle, now)
            if fresh or self._assumed is None:
                return fresh
        # If a listing has shown another etag, even a young handle may be outdated.
        same = file.etag is None or same_etag(file.etag, etag)
        if same and self._assumed is not None:
            self._assumed[id(handle)] = handle
        elif same:
            # The listing may be old, if the caller takes batches slowly.
            handle.checked_at = max(handle.checked_at, self._listed_at)
        return same

    async def confirm(self, client: Client, handle: FileHandle, file: FileEntry, now: float) -> int | None:
        """Return the round trips that confirmed a cached handle; None if it may not be used."""
        version = handle.id
        if version.etag is None or (file.size is not None and file.size != version.size):
            return None
        if self.is_usable(client, handle, file=file, now=now):
            return 0
        key = version_key(client.token, version)
        while True:
            led: list[bool] = []
            sent_at = await self._cache.single_flight.share(key, partial(self._ask, client, version, led))
            if sent_at is None:
                return None
            handle.checked_at = max(handle.checked_at, sent_at)
            if led:
                await self._note_check(client, handle)
                return 1
            # A check that another scan had sent before `now` may be too old.
            if sent_at >= now or self.is_fresh(client, handle, now):
                return 1

    async def _ask(self, client: Client, version: ObjectId, led: list[bool]) -> float | None:
        """Return when the request was sent that confirmed a version; None if it is not current."""
        led.append(True)
        sent_at = time.monotonic()
        return sent_at if await client.revalidate(version, metrics=self._metrics) else None

    async def load(
        self, client: Client, file: FileEntry, steps: Callable[[], Steps[FileHandle]]
    ) -> tuple[FileHandle, int] | None:
        """Return the handle of a file from the disk or the shared tier, and the round trips that confirmed
        it; None if there is none to use.

        `steps` makes the steps that open the file; they are run on the stored bytes.
        """

        async def use(stored: StoredMetadata, checked_at: float) -> tuple[FileHandle, int] | None:
            return await self._use(client, file, stored, steps(), checked_at)

        return await self._find(client, file, use)

    async def find_tail(self, client: Client, file: FileEntry) -> tuple[Tail, float] | None:
        """Return the end of a listed file as the disk or the shared tier has it, and when its version was
        checked (monotonic clock); None if neither has it of the version that was listed."""

        async def use(stored: StoredMetadata, checked_at: float) -> tuple[Tail, float] | None:
            same = file.version.is_same(FileVersion(stored.size, stored.etag))
            return (stored.tail, checked_at) if same else None

        return await self._find(client, file, use)

    async def confirm_recalled(
        self, client: Client, handle: FileHandle, file: FileEntry, *, checked_at: float
    ) -> int | None:
        """Return the round trips that confirmed a handle whose metadata was stored; None if it may not be
        used."""
        now = time.monotonic()
        handle.checked_at = checked_at
        stale = not self.is_fresh(client, handle, now)
        trips = await self.confirm(client, handle, file, now)
        if trips is not None and stale and not trips and self._assumed is None:
            await self._note_check(client, handle)  # the listing was the check
        return trips

    async def _find(
        self,
        client: Client,
        file: FileEntry,
        use: Callable[[StoredMetadata, float], Awaitable[T | None]],
    ) -> T | None:
        """Return what `use` makes of the metadata that the disk, or else the shared tier, has of a file."""
        key = _entry_key(client, file.path) if self.stores(client) else b""
        disk, shared = self._cache.disk_for(client.token), self._cache.shared_for(client.token)
        if disk is not None:
            now, wall = time.monotonic(), time.time()
            stored = await DISK.run(_read, disk, key)
            self._warn_of(disk)
            found = None
            if stored is not None:
                age = wall - stored.checked_at
                # If the clock was set back, the age is unknown, and the store is queried.
                found = await use(stored, now - age if age >= 0 else -math.inf)
                if found is None:
                    disk.drop(key)
            disk.count(hit=found is not None)
            if found is not None:
                return found
        if shared is None:
            return None
        entry = await self._look_up(shared, key)
        found = None if entry is None else await use(entry.stored, entry.checked_at)
        shared.count(hit=found is not None)
        if found is not None and entry is not None:
            self._metrics.add("shared_hits")
            await self._store_on_disk(client, key, entry.stored, entry.checked_at)
        return found

    async def _look_up(self, shared: SharedTier, key: bytes) -> SharedEntry | None:
        try:
            return await shared.get(key)
        except StoreError as error:
            self._metrics.add("shared_failures")
            if not self._is_warned:
                self._is_warned = True
                self._metrics.warn(f"the shared cache {shared} is not used: {error.message}")
            return None

    async def store(self, client: Client, handle: FileHandle, answers: list[Stash | Tail]) -> None:
        """Store the bytes with which a file was just opened on the disk and in the shared tier, as far as
        there are any."""
        if not self.stores(client):
            return
        from accel.cache.disk import StoredMetadata

        stored = StoredMetadata.of(handle, answers, checked_at=_wall_time(handle.checked_at))
        if stored is not None:
            key = _entry_key(client, handle.id.path)
            shared = self._cache.shared_for(client.token)
            if shared is not None:
                shared.put(key, stored, checked_at=handle.checked_at)
            await self._store_on_disk(client, key, stored, handle.checked_at)

    def stores(self, client: Client) -> bool:
        """Return whether metadata of a store's files is stored beyond memory."""
        token = client.token
        return self._cache.disk_for(token) is not None or self._cache.shared_for(token) is not None

    def forget(self, client: Client, path: str) -> None:
        """Remove a file from the cache, in memory and on disk; of the shared tier it is not used."""
        self._cache.drop(file_key(client.token, path))
        self._cache.byte_tier.drop(client.token, path)
        disk, shared = self._cache.disk_for(client.token), self._cache.shared_for(client.token)
        if disk is not None:
            disk.drop(_entry_key(client, path))
        if shared is not None:
            shared.drop(_entry_key(client, path))

    async def _store_on_disk(
        self, client: Client, key: bytes, stored: StoredMetadata, checked_at: float
    ) -> None:
        disk = self._cache.disk_for(client.token)
        if disk is not None and math.isfinite(checked_at):
            stored = replace(stored, checked_at=_wall_time(checked_at))
            await DISK.run(lambda: disk.put(key, stored.encode(key)))
            self._warn_of(disk)

    async def _use(
        self,
        client: Client,
        file: FileEntry,
        stored: StoredMetadata,
        steps: Steps[FileHandle],
        checked_at: float,
    ) -> tuple[FileHandle, int] | None:
        if file.etag is not None and not same_etag(file.etag, stored.etag):
            return None
        handle = stored.reopen(steps)
        if handle is None:
            return None
        trips = await self.confirm_recalled(client, handle, file, checked_at=checked_at)
        shared = self._cache.shared_for(client.token)
        if trips and shared is not None:
            shared.put(_entry_key(client, file.path), stored, checked_at=handle.checked_at)
        return None if trips is None else (handle, trips)

    async def _note_check(self, client: Client, handle: FileHandle) -> None:
        disk, etag = self._cache.disk_for(client.token), handle.id.etag
        if disk is not None and etag is not None:
            key = _entry_key(client, handle.id.path)
            await DISK.run(_confirm, disk, key, etag, _wall_time(handle.checked_at))
            self._warn_of(disk)

    def _warn_of(self, disk: Disk) -> None:
        problem = disk.problem()
        if problem is not None:
            self._metrics.warn(problem)


def _entry_key(client: Client, path: str) -> bytes:
    from accel.cache.disk import entry_key

    return entry_key(client.token, path)


def _read(disk: Disk, key: bytes) -> StoredMetadata | None:
    from accel.cache.disk import StoredMetadata

    entry = disk.get(key)
    if entry is None:
        return None
    stored = StoredMetadata.decode(entry, key)
    if stored is None:
        disk.note(f"an entry of the cache {disk} is damaged, and not used")
    return stored


def _confirm(disk: Disk, key: bytes, etag: str, checked_at: float) -> None:
    """Set the time at which the store confirmed a stored version."""
    stored = _read(disk, key)
    if stored is not None and stored.etag == etag and stored.checked_at < checked_at:
        disk.put(key, replace(stored, checked_at=checked_at).encode(key))


def _wall_time(monotonic: float) -> float:
    """Return the wall-clock time of a moment of the monotonic clock."""
    return time.time() - (time.monotonic() - monotonic)


def recorded(steps: Steps[FileHandle], answers: list[Stash | Tail]) -> Steps[FileHandle]:
    """Return the same steps, which also append each answer that they receive to `answers`."""
    answers.clear()

    def recording() -> Generator[ReadRequest | TailRequest, Stash | Tail, FileHandle]:
        try:
            request = next(steps)
            while True:
                answer = yield request
                answers.append(answer)
                request = steps.send(answer)
        except StopIteration as done:
            handle: FileHandle = done.value
            return handle

    return recording()
