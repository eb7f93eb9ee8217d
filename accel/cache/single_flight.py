"""Loads under way, each shared by all who ask for the same meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from accel.store.request_errors import one_of
from accel.store.tasks import see

__all__ = ["Flights"]


@dataclass(slots=True)
class _Flight:
    """One load under way, and how many wait for it."""

    task: asyncio.Future[Any]
    waiters: int = 0


class Flights:
    """Runs a load once for all who ask for its key before it ends. Loops do not share; threads may.

    Notes
    -----
    A failure goes to all who wait, an AccelError to each as its own copy. One waiter cancelled leaves the load to the
    others; with the last one the load is cancelled too, and has ended when that waiter goes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[tuple[int, Hashable], _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def share(self, key: Hashable, load: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What `load` returns, called here or by whoever asked for the key first."""
        loop = asyncio.get_running_loop()
        flight_key = (id(loop), key)
        with self._lock:
            flight = self._flights.get(flight_key)
            if flight is None:
                flight = _Flight(loop.create_task(load()))
                self._flights[flight_key] = flight
                flight.task.add_done_callback(lambda task: self._landed(flight_key, task))
            flight.waiters += 1
        landed: asyncio.Future[None] = loop.create_future()
        flight.task.add_done_callback(partial(_tell, landed))
        try:
            await landed
        except asyncio.CancelledError:
            if flight.waiters == 1 and not flight.task.done():
                with self._lock:
                    self._flights.pop(flight_key, None)  # whoever asks now starts anew
                flight.task.cancel()
                await asyncio.wait((flight.task,))
            raise
        finally:
            flight.waiters -= 1
        error = None if flight.task.cancelled() else flight.task.exception()
        if error is not None:
            raise one_of(error)
        return flight.task.result()

    def lead(self, key: Hashable) -> asyncio.Future[Any] | None:
        """Announce a load that the caller carries out; None where one is under way.

        Whoever shares the key gets what the caller lands it with: it must.
        """
        loop = asyncio.get_running_loop()
        flight_key = (id(loop), key)
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if flight_key in self._flights:
                return None
            # The caller is one who waits: others that are cancelled do not end it.
            self._flights[flight_key] = _Flight(future, waiters=1)
        return future

    def join(self, key: Hashable) -> asyncio.Future[Any] | None:
        """What a load that is led will land with: to be waited for, and left alone. None where none is under way."""
        flight = self._flights.get((id(asyncio.get_running_loop()), key))
        return None if flight is None else flight.task

    def land(self, key: Hashable, future: asyncio.Future[Any], *, value: Any) -> None:
        """End what `lead` announced, with what whoever shares it gets."""
        if not future.done():
            future.set_result(value)
        self._landed((id(future.get_loop()), key), future)

    def _landed(self, flight_key: tuple[int, Hashable], task: asyncio.Future[Any]) -> None:
        with self._lock:
            flight = self._flights.get(flight_key)
            if flight is not None and flight.task is task:
                del self._flights[flight_key]
        see(task)


def _tell(landed: asyncio.Future[None], task: asyncio.Future[Any]) -> None:
    if not landed.done():
        landed.set_result(None)
