"""The shared tier of the cache: metadata of files on a server, for all processes of a fleet, by path and
version.

It is never in the way of a scan: lookups are bounded in time, a server that does not answer is passed over
for a while, and entries are written behind the scan's back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from cachetools import LRUCache

from accel.cache.disk import StoredMetadata
from accel.errors import StoreError
from accel.options import MIB
from accel.runtime import io_loop
from accel.runtime.forks import renew_in_child
from accel.runtime.tasks import begin, see

__all__ = ["LOOKED_UP", "SharedEntry", "SharedStore", "SharedTier", "Stamped"]

T = TypeVar("T")

LOOKED_UP: Final = 128
"""Entries that are looked up, or written, at a time."""
MOST_ENTRY: Final = MIB
"""Bytes of an entry; a larger one is read from the file as fast."""
MOST_WAITING: Final = 32 * MIB
"""Bytes of entries that wait to be written; what comes beyond that is dropped."""
_SLICES: Final = 10
"""A limit of time is spent in so many slices, so that an event loop that was busy does not use it up at
once."""
_WRITE_LIMITS: Final = 20
"""A write may take so many times what a lookup may: nobody waits for it."""
FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
"""Seconds for which a server is passed over that did not answer: doubled each time."""
_FLUSH_SECONDS: Final = 0.5
"""Seconds that the end of the process waits for what is not written yet."""
_MOST_DROPPED: Final = 4096


@dataclass(frozen=True, slots=True)
class Stamped:
    """What a server has of some keys, and its clock."""

    entries: Mapping[bytes, bytes]
    """The entries that are there, by key."""
    now: float
    """The time of the server (seconds of the epoch), read while it answered."""


class SharedStore(Protocol):
    """A server that stores small entries by key. Used on the I/O loop."""

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """Return the entries that are there, of at most `LOOKED_UP` keys, in one round trip.

        Raises
        ------
        StoreError
        """
        ...

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in place of what was there; others are evicted where there is no room.

        Raises
        ------
        StoreError
        """
        ...

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        ...


@dataclass(frozen=True, slots=True)
class SharedEntry:
    """One entry as it was found."""

    stored: StoredMetadata
    """`checked_at` is by the clock of the server."""
    checked_at: float
    """The same moment, or an earlier one, by the monotonic clock; infinitely early where it is not
    certain."""


class SharedTier:
    """The metadata that one cache shares with others. Used on the I/O loop; its counts may be read on any
    thread.

    Parameters
    ----------
    store : SharedStore
    name : str
        Names the server in warnings, without credentials.
    timeout : float
        Seconds that a lookup may take.
    """

    def __init__(self, store: SharedStore, *, name: str, timeout: float) -> None:
        self.store = store
        self.name = name
        self.timeout = timeout
        self._begin_anew()
        renew_in_child(self._begin_anew)
        self._clock: float | None = None
        """The time of the server less that of the monotonic clock, at least."""
        self._sent_at = 0.0
        self._now = 0.0
        self._passed_over_until = 0.0
        self._pause = FIRST_PAUSE
        self._dropped: LRUCache[bytes, float] = LRUCache(_MOST_DROPPED)
        self._problem: str | None = None
        """Why the server is passed over at present."""
        self.hits = 0
        """Files whose metadata was found there and used."""
        self.misses = 0
        self.written = 0
        """Entries that were written."""

    def _begin_anew(self) -> None:
        """Set up what a fork does not take over: what is under way belongs to the parent."""
        self._lookups: dict[bytes, asyncio.Future[bytes | None]] = {}
        self._is_looking = False
        self.waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._is_writing = False
        self._is_registered = False

    def __str__(self) -> str:
        return self.name

    @property
    def _is_passed_over(self) -> bool:
        """Whether the server failed a short time ago, and is not queried."""
        return time.monotonic() < self._passed_over_until

    async def get(self, key: bytes) -> SharedEntry | None:
        """Look up the entry of a key; None if there is none that can be used.

        Lookups that are made together go to the server together.

        Raises
        ------
        StoreError
            The server did not answer in time, or failed a short time ago; or the entry is damaged.
        """
        self._register()
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.get_running_loop().create_future()
            if not self._is_looking:
                self._is_looking = True
                begin(self._look())
        entry = await asyncio.shield(lookup)
        if entry is None:
            if self._problem is not None:
                raise StoreError(self._problem)
            return None
        stored = StoredMetadata.decode(entry, key)
        if stored is None:
            raise StoreError("an entry is damaged")
        age = self._now - stored.checked_at
        found = SharedEntry(stored, self._sent_at - age if age >= 0 else -float("inf"))
        dropped_at = self._dropped.get(key)
        return found if dropped_at is None or found.checked_at > dropped_at else None

    def put(self, key: bytes, stored: StoredMetadata, *, checked_at: float) -> None:
        """Store an entry soon; `checked_at` is the moment of its check by the monotonic clock, in place of
        that in `stored`."""
        if self._clock is None or self._is_passed_over:
            return
        entry = replace(stored, checked_at=checked_at + self._clock).encode(key)
        if len(entry) > MOST_ENTRY or self._waiting_bytes + len(entry) > MOST_WAITING:
            return
        self._waiting_bytes += len(entry) - len(self.waiting.pop(key, b""))
        self.waiting[key] = entry
        if not self._is_writing:
            self._is_writing = True
            begin(self._write())

    def drop(self, key: bytes) -> None:
        """Do not use what was checked up to now."""
        self._dropped[key] = time.monotonic()
        self._waiting_bytes -= len(self.waiting.pop(key, b""))

    def count(self, *, hit: bool) -> None:
        """Count one lookup that did, or did not, save reading the metadata of a file."""
        self.hits += hit
        self.misses += not hit

    def _register(self) -> None:
        if not self._is_registered:
            self._is_registered = True
            io_loop.at_shutdown(self.flush)

    async def _look(self) -> None:
        """Look up the wanted keys, batch by batch, until none is left."""
        try:
            while self._lookups:
                await asyncio.sleep(0)  # others that ask in this turn of the loop come along
                keys = list(self._lookups)[:LOOKED_UP]
                found = await self._look_up(keys)
                for key in keys:
                    lookup = self._lookups.pop(key)
                    if not lookup.done():
                        lookup.set_result(found.get(key))
        finally:
            self._is_looking = False
            left, self._lookups = self._lookups, {}
            for lookup in left.values():
                lookup.cancel()

    async def _look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        if self._is_passed_over:
            return {}
        sent_at = time.monotonic()
        try:
            answer = await self._within(self.store.get_many(keys), self.timeout)
        except StoreError as error:
            self._fail(error.message)
            return {}
        self._problem, self._pause = None, FIRST_PAUSE
        self._sent_at, self._now = sent_at, answer.now
        self._clock = answer.now - time.monotonic()
        return answer.entries

    async def _write(self) -> None:
        """Write what waits, batch by batch, until nothing does."""
        try:
            while self.waiting and not self._is_passed_over:
                some = dict(list(self.waiting.items())[:LOOKED_UP])
                try:
                    await self._within(self.store.put_many(some), self.timeout * _WRITE_LIMITS)
                except StoreError as error:
                    self._fail(error.message)
                else:
                    self.written += len(some)
                for key, entry in some.items():
                    if self.waiting.get(key) is entry:
                        del self.waiting[key]
                        self._waiting_bytes -= len(entry)
        finally:
            self._is_writing = False

    async def flush(self) -> None:
        """Write what is not written yet, at the end of the process."""
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._write()
        finally:
            await self.store.close()

    async def _within(self, work: Coroutine[Any, Any, T], limit: float) -> T:
        """Return what comes of some work; raises StoreError where that takes too long."""
        task = begin(work)
        try:
            for _ in range(_SLICES):
                await asyncio.wait((task,), timeout=limit / _SLICES)
                if task.done():
                    return task.result()
        finally:
            if not task.done():
                # It may take its time to end, for which nobody waits.
                if not task.cancelling():
                    task.cancel()
                task.add_done_callback(see)
        raise StoreError(f"it did not answer within {limit:g} s")

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._passed_over_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LAST_PAUSE)
