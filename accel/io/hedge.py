"""A second, identical request for a small one that takes much longer than most; the first answer wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from accel.errors import StoreError
from accel.io.gate import Gate
from accel.io.network import Network

__all__ = ["Hedge"]

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

    def __call__(self, sent: Callable[[], None]) -> Coroutine[Any, Any, T_co]: ...


class Hedge:
    """Decides when a second request is worth it, and lets both race. Used on one event loop.

    Parameters
    ----------
    network : Network
        Knows how long most requests take.
    gate : Gate
        Without room for one more, none is sent.
    share : float
        Second requests as a share of all small ones, at most. 0: none.
    factor : float
        A request is late after so many times what 95 of 100 take,
    floor : float
        and after so many seconds.
    """

    def __init__(self, network: Network, gate: Gate, *, share: float, factor: float, floor: float) -> None:
        self._network = network
        self._gate = gate
        self._share = share
        self._factor = factor
        self._floor = floor

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

    async def race(self, send: _Send[T], delay: float, *, on_second: Callable[[], None]) -> T:
        """What `send` returns, the first time or, started when that is late, the second.

        Neither is under way any more when this returns or raises. A failure that may pass is raised only
        when there is no other answer.
        """
        runner = _Race(self, send, delay, on_second)
        try:
            return await runner.run()
        finally:
            if runner.end():
                await runner.wait()

    def take(self) -> bool:
        """Spend one second request, if there is one to be spent."""
        if self._network.spare < 1.0 or not self._gate.has_room:
            return False
        self._network.spare -= 1.0
        return True


class _Race(Generic[T]):
    """One request, watched. Until it is late that costs a timer and no task."""

    def __init__(self, hedge: Hedge, send: _Send[T], delay: float, on_second: Callable[[], None]) -> None:
        self._hedge = hedge
        self._send = send
        self._delay = delay
        self._on_second = on_second
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._second: asyncio.Future[T] | None = None
        # The task whose first request the second's answer cuts short, as `asyncio.timeout` would.
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._won = False

    async def run(self) -> T:
        task = self._task
        cancels = 0 if task is None else task.cancelling()
        try:
            return await self._send(self._watch)
        except asyncio.CancelledError:
            if not self._won or task is None or self._second is None or task.uncancel() > cancels:
                raise  # by somebody else, too
            return self._second.result()
        except StoreError as error:
            self._task = None
            if self._second is None:
                raise
            if self._won and task is not None:
                # A store that tells of its being cancelled in its own words.
                task.uncancel()
                return self._second.result()
            if not error.transient:
                raise
            await asyncio.wait((self._second,))
            if self._second.exception() is not None:
                raise
            return self._second.result()

    def end(self) -> bool:
        """Nothing is sent or cut short any more; whether a second request still is to `wait` for."""
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
        second = self._second
        return second is not None and not second.done() and second.cancel()

    async def wait(self) -> None:
        if self._second is not None:
            await asyncio.wait((self._second,))

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._delay, self._late)

    def _late(self) -> None:
        if self._timer is not None and self._loop.time() - self._timer.when() > _LATE:
            # The loop was busy: the answer may be here and just has not been looked at.
            self._watch()
        elif self._hedge.take():
            self._on_second()
            self._second = asyncio.ensure_future(self._send(_nothing))
            self._second.add_done_callback(self._came)

    def _came(self, second: asyncio.Future[T]) -> None:
        if not second.cancelled() and second.exception() is None and self._task is not None:
            self._won = True
            self._task.cancel()


def _nothing() -> None:
    pass
