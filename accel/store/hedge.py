"""A second, identical request for a small one that takes much longer than most; the first answer wins."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from accel.errors import StoreError
from accel.metrics import Metrics
from accel.store.cancels import cancels
from accel.store.gate import Gate
from accel.store.network import Network

__all__ = ["Hedge", "Race"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A request for more takes its time for its bytes, and a second one would double them.
_MOST_BYTES = 512 * 1024
# So many second requests may follow each other at once after a long time without any.
_MOST_SAVED = 4.0
# A timer that is this much late was held up along with whatever it was to watch.
_LATE = 0.005


class _Send(Protocol[T_co]):
    """Sends one request; `sent` is called when it has a slot and is on its way."""

    def __call__(self, *, sent: Callable[[], None]) -> Coroutine[Any, Any, T_co]: ...


class Hedge:
    """Decides when a second request is worth it, and tells the `Race` of the first. Used on one event loop.

    Parameters
    ----------
    network : Network
        Knows how long most requests take.
    gate : Gate
        Without room for one more, none is sent.
    share : float
        Second requests as a share of all small ones, at most. 0: none.
    factor : float
        A request is late after this many times what 95 of 100 take.
    floor : float
        Seconds before which none is late.
    """

    def __init__(self, network: Network, gate: Gate, *, share: float, factor: float, floor: float) -> None:
        self._network = network
        self._gate = gate
        self._share = share
        self._factor = factor
        self._floor = floor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        # uvloop's handle of a timer that is as good as due does not tell when it is.
        self._wakes = math.inf
        self._watched: set[Race[Any]] = set()

    def delay(self, nbytes: int) -> float | None:
        """Seconds after which a request for so many bytes is late; None where it is let be. Called once a request."""
        if nbytes > _MOST_BYTES or not self._share:
            return None
        network = self._network
        network.spare = min(network.spare + self._share, _MOST_SAVED)
        p95 = network.p95
        if p95 is None or network.spare < 1.0:
            return None
        return max(self._factor * (p95 + nbytes / network.bandwidth), self._floor)

    def take(self) -> bool:
        """Spend one second request, if there is one to be spent."""
        if self._network.spare < 1.0 or not self._gate.has_room:
            return False
        self._network.spare -= 1.0
        return True

    # One timer for all that are watched: nearly every request ends long before it is late.

    def watch(self, race: Race[Any]) -> None:
        """Have a race told when its request is late, unless it is dropped before."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
            self._watched.clear()
        race.due = loop.time() + race.delay
        self._watched.add(race)
        if self._timer is None or race.due < self._wakes:
            self._wake_at(loop, race.due)

    def drop(self, race: Race[Any]) -> None:
        self._watched.discard(race)

    def _wake_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes = when
        self._timer = loop.call_at(when, self._look, loop, when)

    def _look(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if loop is not self._loop:
            return
        self._timer = None
        now = loop.time()
        # A loop that was busy: the answers may be here and just have not been looked at.
        busy = now - when > _LATE
        for race in [race for race in self._watched if race.due <= now]:
            if busy:
                race.due = now + race.delay
            else:
                self._watched.discard(race)
                race.late()
        if self._watched:
            self._wake_at(loop, min(race.due for race in self._watched))


class Race(Generic[T]):
    """One request, watched. Until it is late that costs no task.

    Who sends it calls `sent` when it is on its way, asks `rescue` where it fails, and in any case ends with `end`, and
    `wait` where that says so.

    Parameters
    ----------
    hedge : Hedge
    delay : float
        Seconds after which it is late: see `Hedge.delay`.
    send : callable
        Sends the second one.
    metrics : Metrics
        Counts it.
    """

    __slots__ = ("_cancels", "_hedge", "_metrics", "_second", "_send", "_task", "_won", "delay", "due")

    def __init__(self, hedge: Hedge, delay: float, *, send: _Send[T], metrics: Metrics) -> None:
        self.delay = delay
        self.due = math.inf
        self._hedge = hedge
        self._send = send
        self._metrics = metrics
        self._second: asyncio.Future[T] | None = None
        # The task whose first request the second's answer cuts short, as `asyncio.timeout` would.
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._cancels = cancels()
        self._won = False

    def sent(self) -> None:
        """It is late so long from now on."""
        self._hedge.watch(self)

    async def rescue(self, error: asyncio.CancelledError | StoreError) -> T | None:
        """The second's answer in place of what the first has failed with; None where that is to be raised."""
        task, second = self._task, self._second
        if isinstance(error, asyncio.CancelledError):
            if not self._won or task is None or second is None or task.uncancel() > self._cancels:
                return None  # by somebody else, too
            return second.result()
        self._task = None
        if second is None:
            return None
        if self._won and task is not None:
            # A store that tells of its being cancelled in its own words.
            task.uncancel()
            return second.result()
        if not error.transient:
            return None
        await asyncio.wait((second,))
        return None if second.exception() is not None else second.result()

    def end(self) -> bool:
        """Nothing is sent or cut short any more; whether a second request still is to `wait` for."""
        self._task = None
        self._hedge.drop(self)
        second = self._second
        return second is not None and not second.done() and second.cancel()

    async def wait(self) -> None:
        if self._second is not None:
            await asyncio.wait((self._second,))

    def late(self) -> None:
        """Send the second one, if there is one to be spent."""
        if self._hedge.take():
            self._metrics.add("hedged")
            self._second = asyncio.ensure_future(self._send(sent=_nothing))
            self._second.add_done_callback(self._came)

    def _came(self, second: asyncio.Future[T]) -> None:
        if not second.cancelled() and second.exception() is None and self._task is not None:
            self._won = True
            self._task.cancel()


def _nothing() -> None:
    pass
