"""Single-flight: concurrent requests for the same key share one load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from accel.runtime.forks import lock_over_forks
from accel.runtime.tasks import see
from accel.store.request_errors import own_copy_of

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Flight:
    """A load under way, of one key or of several."""

    future: asyncio.Future[Any]
    keys: Sequence[Hashable]
    is_batch: bool
    """Whether the result of the future is a mapping by key."""
    waiters: int = 0

    def value(self, key: Hashable) -> Any:
        result = self.future.result()
        return result[key] if self.is_batch else result


class SingleFlight:
    """Runs a load once for all who ask for its key before it ends. Loads are shared within one event loop.

    Notes
    -----
    A failure is raised for all who wait; an AccelError is copied for each. When a waiter is cancelled, the
    load goes on for the others; with the last waiter the load is cancelled too, and ends before that waiter
    continues.
    """

    def __init__(self) -> None:
        self._lock = lock_over_forks()
        self._flights: dict[tuple[int, Hashable], _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def share(self, key: Hashable, load: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the value of a key; `load` is called unless a load of the key is under way."""
        loop = asyncio.get_running_loop()
        with self._lock:
            flight = self._under_way(loop, key)
            if flight is None:
                flight = self._start(loop, _Flight(loop.create_task(load()), (key,), is_batch=False))
            flight.waiters += 1
        await self._wait((flight,))
        return flight.value(key)

    async def share_all(
        self,
        keys: Iterable[K],
        load: Callable[[Sequence[K]], Coroutine[Any, Any, Mapping[K, Any]]],
    ) -> dict[K, Any]:
        """Return the value of each key; `load` is called once, with all keys of which no load is under
        way."""
        loop = asyncio.get_running_loop()
        with self._lock:
            flights = {key: self._under_way(loop, key) for key in keys}
            led = [key for key, flight in flights.items() if flight is None]
            if led:
                own = self._start(loop, _Flight(loop.create_task(load(led)), led, is_batch=True))
            joined = {key: own if flight is None else flight for key, flight in flights.items()}
            waiting = set(joined.values())
            for flight in waiting:
                flight.waiters += 1
        await self._wait(waiting)
        return {key: flight.value(key) for key, flight in joined.items()}

    def lead(self, key: Hashable) -> asyncio.Future[Any] | None:
        """Begin a load that the caller carries out, and return its future; None if one is under way.

        The caller must end it with `land`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._under_way(loop, key) is not None:
                return None
            # The caller counts as a waiter: others that are cancelled do not end the load.
            self._start(loop, _Flight(future, (key,), is_batch=False, waiters=1))
        return future

    def join(self, key: Hashable) -> asyncio.Future[Any] | None:
        """Return the future of a load under way, which must not be cancelled; None if there is none."""
        flight = self._under_way(asyncio.get_running_loop(), key)
        return None if flight is None else flight.future

    def land(self, future: asyncio.Future[Any], *, value: Any) -> None:
        """End a load that `lead` began, with the value for all who share it."""
        if not future.done():
            future.set_result(value)

    def _under_way(self, loop: asyncio.AbstractEventLoop, key: Hashable) -> _Flight | None:
        # A load that has ended may not be removed yet; whoever asks now starts a new one.
        flight = self._flights.get((id(loop), key))
        return None if flight is None or flight.future.done() else flight

    def _start(self, loop: asyncio.AbstractEventLoop, flight: _Flight) -> _Flight:
        for key in flight.keys:
            self._flights[id(loop), key] = flight

        def ended(future: asyncio.Future[Any]) -> None:
            self._remove(loop, flight)
            see(future)

        flight.future.add_done_callback(ended)
        return flight

    def _remove(self, loop: asyncio.AbstractEventLoop, flight: _Flight) -> None:
        with self._lock:
            for key in flight.keys:
                if self._flights.get((id(loop), key)) is flight:
                    del self._flights[id(loop), key]

    @staticmethod
    def _raise(future: asyncio.Future[Any]) -> None:
        error = future.exception()
        try:
            if error is not None:
                raise own_copy_of(error)
        finally:
            del error, future  # else the frames of the error would refer to it

    async def _wait(self, flights: Collection[_Flight]) -> None:
        """Wait for loads, raising the first failure at once; loads that only this caller waits for are
        cancelled then."""
        try:
            for flight in flights:
                if not flight.future.done():
                    await asyncio.wait((flight.future,))
                if not flight.future.cancelled() and flight.future.exception() is not None:
                    self._raise(flight.future)
        except BaseException:
            # Of all its loads this caller leaves now: another one may leave while it waits for an end.
            deserted = self._leave(flights)
            loop = asyncio.get_running_loop()
            for flight in deserted:
                self._remove(loop, flight)  # whoever asks now starts a new load
                flight.future.cancel()
            if deserted:
                await asyncio.wait([flight.future for flight in deserted])
            raise
        self._leave(flights)

    @staticmethod
    def _leave(flights: Collection[_Flight]) -> list[_Flight]:
        """Count one waiter less, and return the loads under way that nobody waits for any more."""
        for flight in flights:
            flight.waiters -= 1
        return [flight for flight in flights if not (flight.waiters or flight.future.done())]
