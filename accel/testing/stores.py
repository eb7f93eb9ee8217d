"""Stores for tests: one in memory, and wrappers that record and delay requests.

A wrapper goes around the lowest store, below merging and retries, so that it sees the requests that are sent.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from accel.ranges import ByteRange, Suffix
from accel.store.memory_store import DictStore, content_etag
from accel.store.range_store import Lister, ObjectEntry, Payload, RangeStore

__all__ = ["Call", "DictStore", "LatencyStore", "RecordingStore", "StoreWrapper", "content_etag"]

_ROUNDS = 40
"""How often a request waits anew for a loop in which no other begins."""


class StoreWrapper:
    """The base of the wrappers. It lists if the inner store does."""

    def __init__(self, inner: RangeStore) -> None:
        self.inner = inner
        if isinstance(inner, Lister):
            # A store is a `Lister` if it has an attribute `list`, so the wrapper has one only around a store
            # that lists.
            self.list = self._list_inner

    def _list_inner(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        return cast("Lister", self.inner).list(prefix)


@dataclass(slots=True, eq=False)
class Call:
    """One request, as the store sees it."""

    path: str
    """The object, or the prefix of a listing."""
    want: ByteRange | Suffix | None
    """None for a listing."""
    if_match: str | None
    """The etag that it is pinned to."""
    begin: int
    """Its place in the order of all beginnings and ends."""
    end: int | None = None
    """The place of its end; None while it is in flight."""
    received: int = 0
    """Body bytes."""
    range: ByteRange | None = None
    """The range of the answer; None for a listing or a failure."""
    error: str | None = None
    """The class name of the exception; "CancelledError" if the caller gave up."""
    wave: int = 0
    """The number, from 1, of the period with at least one request in flight."""

    def __str__(self) -> str:
        what = "list" if self.want is None else str(self.want)
        pinned = " if-match" if self.if_match else ""
        outcome = "in flight" if self.end is None else self.error or f"{self.received} bytes"
        return f"wave {self.wave}: {self.path} {what}{pinned} -> {outcome}"


class RecordingStore(StoreWrapper):
    """Records the requests that it passes on to `inner`.

    Parameters
    ----------
    inner : RangeStore
        The store that answers.
    settle : int, default 25
        The number of turns of the event loop in which no other request begins before one is answered.
        Requests that are issued together then overlap even over a store in memory that answers at once, and
        even where the loop takes turns between them, so that waves depend on no clock.

    Notes
    -----
    A wave is a maximal period with at least one request in flight. `depth` is finer: the longest chain of
    requests each of which began after the one before it had ended. That is what a caller waits for when files
    advance at different speeds.
    """

    def __init__(self, inner: RangeStore, *, settle: int = 25) -> None:
        super().__init__(inner)
        self.settle = settle
        self.calls: list[Call] = []
        self._lock = threading.Lock()
        self._events = 0
        self._in_flight = 0
        self._peak = 0
        self._waves = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Pass one read on and record it; see `RangeStore.read`."""
        call = self._begin(path, want, if_match)
        try:
            await self._settled()
            payload = await self.inner.read(path, want, if_match=if_match)
            call.received, call.range = len(payload.data), payload.range
            return payload
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            self._end(call)

    async def _list_inner(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        call = self._begin(prefix, None, None)
        try:
            await self._settled()
            async for entry in super()._list_inner(prefix):
                yield entry
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            self._end(call)

    async def _settled(self) -> None:
        """Wait for some turns of the loop in which no request begins; not for ever where they never end.

        Those that begin together are answered in the order in which they began.
        """
        begun, quiet = len(self.calls), 0
        for _ in range(_ROUNDS * self.settle):
            if quiet >= self.settle:
                return
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self.calls) == begun else 1
            begun = len(self.calls)

    def _begin(self, path: str, want: ByteRange | Suffix | None, if_match: str | None) -> Call:
        with self._lock:
            self._events += 1
            if self._in_flight == 0:
                self._waves += 1
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
            call = Call(path, want, if_match, self._events, wave=self._waves)
            self.calls.append(call)
            return call

    def _end(self, call: Call) -> None:
        with self._lock:
            self._events += 1
            self._in_flight -= 1
            call.end = self._events

    @property
    def requests(self) -> int:
        """The number of requests begun, listings included."""
        return len(self.calls)

    @property
    def bytes(self) -> int:
        """The number of body bytes received."""
        return sum(call.received for call in self.calls)

    @property
    def waves(self) -> int:
        """The number of periods with at least one request in flight."""
        return self._waves

    @property
    def in_flight(self) -> int:
        """The number of requests in flight; 0 after a scan that was closed or cancelled."""
        return self._in_flight

    @property
    def peak(self) -> int:
        """The largest number of requests that were in flight at once."""
        return self._peak

    @property
    def depth(self) -> int:
        """The longest chain of requests each begun after the one before it had ended."""
        marks = [(c.begin, 1, c) for c in self.calls]
        marks += [(c.end, 0, c) for c in self.calls if c.end is not None]
        deepest, depths = 0, dict[int, int]()
        for _, begins, call in sorted(marks, key=lambda mark: mark[0]):
            if begins:
                depths[id(call)] = deepest + 1
            else:
                deepest = max(deepest, depths[id(call)])
        return max(depths.values(), default=0)

    def fetched(self, path: str) -> builtins.list[ByteRange]:
        """Return the byte ranges of one object that arrived.

        Parameters
        ----------
        path : str
            The name of the object.

        Returns
        -------
        list of ByteRange
            The ranges, by start.
        """
        return sorted(c.range for c in self.calls if c.path == path and c.range is not None)

    def touches(self, path: str, span: ByteRange) -> bool:
        """Return whether any byte of a range was fetched.

        Parameters
        ----------
        path : str
            The name of the object.
        span : ByteRange
            The range.

        Returns
        -------
        bool
            False if no answer held a byte of it.
        """
        return any(r.start < span.end and span.start < r.end for r in self.fetched(path))

    def log(self) -> str:
        """Describe the recorded requests.

        Returns
        -------
        str
            One line per request, by wave, then path and place: the same for every order within a wave.
        """

        def place(call: Call) -> tuple[int, str, int, int]:
            want = call.want
            start = want.start if isinstance(want, ByteRange) else -1
            length = 0 if want is None else want.length
            return (call.wave, call.path, start, length)

        return "\n".join(str(call) for call in sorted(self.calls, key=place))

    def clear(self) -> None:
        """Forget the recorded requests.

        Raises
        ------
        RuntimeError
            A request is in flight.
        """
        with self._lock:
            if self._in_flight:
                raise RuntimeError(f"{self._in_flight} requests are in flight")
            self.calls = []
            self._waves = self._peak = 0


class LatencyStore(StoreWrapper):
    """Delays every answer by the time that a network needs.

    Parameters
    ----------
    inner : RangeStore
        The store that answers.
    first_byte : float, default 0.03
        Seconds until the first byte of any answer, failures and listings included.
    bandwidth : float or None, default 90e6
        Bytes per second of each response; None for no limit.
    sleep : callable, optional
        The function that waits; a test may pass its own to assert the delays without waiting.

    Notes
    -----
    It has no sockets, so it shows trends only: timings worth quoting need a server behind a network.
    """

    def __init__(
        self,
        inner: RangeStore,
        *,
        first_byte: float = 0.03,
        bandwidth: float | None = 90e6,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self.first_byte = first_byte
        self.bandwidth = bandwidth
        self._sleep = sleep

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Pass one read on and answer it late; see `RangeStore.read`."""
        await self._sleep(self.first_byte)
        payload = await self.inner.read(path, want, if_match=if_match)
        if self.bandwidth is not None:
            await self._sleep(len(payload.data) / self.bandwidth)
        return payload

    async def _list_inner(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        await self._sleep(self.first_byte)
        async for entry in super()._list_inner(prefix):
            yield entry
