"""Small reads that find no room to be sent, sent together once there is some.

Many lookups of one file at once want many pages, of which some are the same and some are neighbours. Those that wait
for their turn anyway are merged meanwhile: fewer requests, each of which costs CPU at both ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from accel.metrics import Metrics
from accel.options import MIB
from accel.planning.coalesce import Fetch, Merging
from accel.ranges import Buffer, ByteRange, Want
from accel.store.calls import see
from accel.store.faults import one_of
from accel.store.fetch import Pin
from accel.store.gate import Gate
from accel.store.range_store import Payload

__all__ = ["Pool"]

# Who reads more than so many bytes at once is no lookup, and has merged them well by itself.
_SMALL = MIB

Part = tuple[ByteRange, Buffer]
Send = Callable[[Fetch, Pin, Metrics], Coroutine[Any, Any, Payload]]
_Key = tuple[str, Pin]


@dataclass(slots=True, eq=False)
class _Asker:
    """One read that waits, for its turn or for its answers."""

    wants: Sequence[Want]
    came: asyncio.Future[None]
    sent: bool = False
    left: int = 0
    """Requests that are still under way for it."""
    parts: list[Part] = field(default_factory=list)
    requests: list[_Request] = field(default_factory=list)

    def take(self, part: Part) -> None:
        self.parts.append(part)
        self.left -= 1
        if not self.left and not self.came.done():
            self.came.set_result(None)

    def fail(self, error: BaseException) -> None:
        if not self.came.done():
            self.came.set_exception(one_of(error))


@dataclass(slots=True, eq=False)
class _Request:
    """One request, and who waits for it."""

    askers: list[_Asker]
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """Reads of one version of an object that have not been sent yet."""

    pin: Pin
    metrics: Metrics
    merging: Merging
    send: Send
    askers: list[_Asker] = field(default_factory=list)
    sender: asyncio.Task[None] | None = None


class Pool:
    """Reads of pinned objects through one gate. Used on one event loop.

    Parameters
    ----------
    gate : Gate
        Tells whether there is room; a pool waits in it like any request.

    Notes
    -----
    When a request fails, every read that waits for it raises its own copy of the AccelError. A read that is cancelled
    leaves the request to the others; the last one to leave cancels the request and waits until it has ended. A request
    is counted in the metrics of the read that began the batch.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._waiting: dict[_Key, _Batch] = {}
        self._passed = 0
        """Requests that were let through: those that begin in the same round of the loop are not in the gate yet."""

    @contextmanager
    def passing(self, requests: int) -> Iterator[None]:
        """So many requests are sent by themselves."""
        self._passed += requests
        try:
            yield
        finally:
            self._passed -= requests

    def takes(self, fetches: Sequence[Fetch]) -> bool:
        """Whether these requests of one read are small, and would have to wait."""
        if max(self._gate.requests, self._passed) + len(fetches) <= self._gate.max_requests:
            return False
        return sum(fetch.range.length for fetch in fetches) <= _SMALL

    async def read(
        self,
        path: str,
        wants: Sequence[Want],
        *,
        pin: Pin,
        metrics: Metrics,
        merging: Merging,
        send: Send,
    ) -> list[Part]:
        """What brings the wanted ranges of one object, once there is room for it. They must lie inside the object.

        `send` brings the bytes of one request, and counts it in the metrics that it is given.
        """
        loop = asyncio.get_running_loop()
        key = path, pin
        batch = self._waiting.get(key)
        if batch is None:
            batch = self._waiting[key] = _Batch(pin, metrics, merging, send)
            batch.sender = loop.create_task(self._send_together(key, batch))
        asker = _Asker(wants, loop.create_future())
        batch.askers.append(asker)
        try:
            await asker.came
        finally:
            if not asker.sent:
                await self._withdraw(asker, key, batch)
            elif asker.left:
                await _leave(asker)
            asker.requests.clear()
        return asker.parts

    async def _withdraw(self, asker: _Asker, key: _Key, batch: _Batch) -> None:
        """Be no longer among those that wait to be sent."""
        batch.askers.remove(asker)
        if not batch.askers and batch.sender is not None and not batch.sender.done():
            del self._waiting[key]
            batch.sender.cancel()
            await asyncio.wait((batch.sender,))

    async def _send_together(self, key: _Key, batch: _Batch) -> None:
        try:
            await self._gate.take(0)
        except BaseException:  # all have left, or all ends
            for asker in batch.askers:
                asker.came.cancel()
            raise
        finally:
            # Whoever asks from now on is sent with the next.
            if self._waiting.get(key) is batch:
                del self._waiting[key]
        try:
            for asker in batch.askers:
                asker.sent = True
            owners: dict[Want, list[_Asker]] = {}
            for asker in batch.askers:
                for want in asker.wants:
                    owners.setdefault(want, []).append(asker)
            for fetch in batch.merging.requests(list(owners)):
                _start(batch, fetch, owners)
        except Exception as error:  # noqa: BLE001 - nobody may wait for ever
            for asker in batch.askers:
                asker.fail(error)
        finally:
            batch.askers.clear()
            self._gate.release(0)


def _start(batch: _Batch, fetch: Fetch, owners: dict[Want, list[_Asker]]) -> None:
    askers = {id(asker): asker for want in fetch.wants for asker in owners[want]}
    request = _Request(list(askers.values()))
    for asker in request.askers:
        asker.left += 1
        asker.requests.append(request)
    send = partial(batch.send, fetch, batch.pin, batch.metrics)
    request.task = asyncio.get_running_loop().create_task(_bring(request, send))


async def _bring(request: _Request, send: Callable[[], Coroutine[Any, Any, Payload]]) -> None:
    try:
        payload = await send()
    except asyncio.CancelledError:
        for asker in request.askers:
            asker.came.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - raised by those who wait for it
        for asker in request.askers:
            asker.fail(error)
    else:
        for asker in request.askers:
            asker.take((payload.range, payload.data))


async def _leave(asker: _Asker) -> None:
    """Want no more of what is under way; what nobody else wants is cancelled."""
    if asker.came.done():
        see(asker.came)
    ending = []
    for request in asker.requests:
        request.askers.remove(asker)
        task = request.task
        if not request.askers and task is not None and not task.done():
            task.cancel()
            ending.append(task)
    if ending:
        await asyncio.wait(ending)
