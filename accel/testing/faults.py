"""A store that fails request by request, by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload, RangeStore
from accel.store.request_errors import IncompleteBodyError
from accel.testing.stores import StoreWrapper

__all__ = [
    "Attempt",
    "CutBody",
    "Fault",
    "FaultStore",
    "OtherVersion",
    "Script",
    "ShortBody",
    "Stall",
    "Status",
    "WrongRange",
]


@dataclass(frozen=True, slots=True)
class Status:
    """The request fails with an HTTP status."""

    status: int
    """412 means changed, 404 not found; 408, 429 and 5xx are transient."""
    retry_after: float | None = None
    """Seconds of the header Retry-After."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """The connection breaks in the middle of the body."""

    after: int = 0
    """Bytes of the body that arrive."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing arrives for some time; then the answer continues."""

    seconds: float = 3600.0
    """How long nothing arrives."""
    after: int = 0
    """Bytes of the body that arrive before, from a server; a `FaultStore` stalls at the start."""


@dataclass(frozen=True, slots=True)
class ShortBody:
    """The answer claims the whole range but lacks its last bytes."""

    missing: int = 1
    """The number of bytes that it lacks."""


@dataclass(frozen=True, slots=True)
class WrongRange:
    """The answer holds, and declares, another range of the same length."""

    shift: int = 1
    """Bytes by which it lies further on, modulo the object."""


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """Another store answers, like a server that ignores If-Match while the object is replaced."""

    store: RangeStore
    """The store that answers."""
    honour_if_match: bool = False
    """Whether that store gets the etag that the request is pinned to."""


Fault: TypeAlias = "Status | CutBody | Stall | ShortBody | WrongRange | OtherVersion"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request, as a script sees it."""

    number: int
    """Its number among all requests of the store, from 0."""
    path: str
    """The name of the object."""
    want: ByteRange | Suffix
    """The range that is wanted."""
    if_match: str | None
    """The etag that the request is pinned to."""


# The faults by position (None, and the end of the sequence, mean no fault), or a function of each request.
Script: TypeAlias = "Sequence[Fault | None] | Callable[[Attempt], Fault | None]"


class FaultStore(StoreWrapper):
    """Passes reads on to `inner` unless the script has a fault for them.

    Parameters
    ----------
    inner : RangeStore
        The store that answers the other requests.
    script : sequence of Fault or None, or callable
        The fault of the first request, the second, and so on; or a function of the `Attempt`.

    Notes
    -----
    `attempts` lists all requests.
    """

    def __init__(self, inner: RangeStore, script: Script) -> None:
        super().__init__(inner)
        self.script = script
        self.attempts: list[Attempt] = []

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Answer one read, or fail it by the script; see `RangeStore.read`."""
        attempt = Attempt(len(self.attempts), path, want, if_match)
        self.attempts.append(attempt)
        fault = self._fault(attempt)
        match fault:
            case Status():
                raise _status_error(fault.status, path=path, retry_after=fault.retry_after)
            case Stall():
                await asyncio.sleep(fault.seconds)
            case OtherVersion():
                pin = if_match if fault.honour_if_match else None
                return await fault.store.read(path, want, if_match=pin)
        payload = await self.inner.read(path, want, if_match=if_match)
        match fault:
            case CutBody():
                raise IncompleteBodyError(
                    "the body was cut",
                    path=path,
                    range=payload.range,
                    partial=memoryview(payload.data)[: fault.after],
                    size=payload.size,
                    etag=payload.etag,
                )
            case ShortBody():
                data = memoryview(payload.data)[: max(0, len(payload.data) - fault.missing)]
                return Payload(data, payload.range, payload.size, payload.etag)
            case WrongRange():
                return await self._shifted(path, payload, fault.shift)
        return payload

    def _fault(self, attempt: Attempt) -> Fault | None:
        if callable(self.script):
            return self.script(attempt)
        return self.script[attempt.number] if attempt.number < len(self.script) else None

    async def _shifted(self, path: str, payload: Payload, shift: int) -> Payload:
        whole = await self.inner.read(path, Suffix(1 << 62))
        room = len(whole.data) - payload.range.length
        start = (payload.range.start + shift) % (room + 1) if room else 0
        span = ByteRange(start, start + payload.range.length)
        return Payload(memoryview(whole.data)[span.start : span.end], span, payload.size, payload.etag)


def _status_error(status: int, *, path: str, retry_after: float | None = None) -> StoreError:
    """Return the error that a transport raises for a response of a status."""
    if status == 404:
        return ObjectNotFoundError("no such object", path=path, status=404)
    if status == 412:
        return ObjectChangedError("the object is another version", path=path, status=412)
    return StoreError(
        f"the server answered {status}",
        path=path,
        status=status,
        transient=status in (408, 429) or status >= 500,
        retry_after=retry_after,
    )
