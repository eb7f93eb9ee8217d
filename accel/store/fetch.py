"""Fetching one byte range of one object: admission, retries, resumption of cut bodies, and the check of the
version."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, StoreError, redact
from accel.metrics import Metrics
from accel.options import KIB, Options
from accel.ranges import Buffer, ByteRange, Kind, Suffix
from accel.runtime.tasks import cancel_requests, foreign_cancellation
from accel.store.gate import Gate
from accel.store.network import Network
from accel.store.range_store import Gatherer, Payload, RangeStore, can_be_sent
from accel.store.request_errors import (
    IncompleteBodyError,
    ObjectGoneError,
    ShortObjectError,
    SuffixUnsupportedError,
    quoted,
)
from accel.versions import is_weak, same_etag

__all__ = ["Fetcher", "Pin", "Retry"]


T = TypeVar("T")


def _uniform(least: float, most: float) -> float:
    # The import takes a millisecond, which only failures need. The system's numbers leave those of the
    # program alone: it may have seeded them.
    import random

    return random.SystemRandom().uniform(least, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff with full jitter. All times are seconds."""

    max_attempts: int
    """Attempts, including the first."""
    backoff_base: float
    backoff_max: float
    seconds: float = math.inf
    """After these no further attempt is made, unless bytes came meanwhile."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = _uniform

    @classmethod
    def of(cls, options: Options) -> Retry:
        return cls(
            max_attempts=options.max_attempts,
            backoff_base=options.backoff_base,
            backoff_max=options.backoff_max,
            seconds=options.retry_seconds,
        )

    def pause(self, failures: int, *, retry_after: float | None = None) -> float:
        """Return the seconds to wait: random, at least what the server asks for, at most `backoff_max`."""
        most = min(self.backoff_max, self.backoff_base * 2.0 ** min(failures - 1, 60))
        wait = self.uniform(0.0, most)
        if retry_after is not None and retry_after > wait:
            wait = retry_after
        return min(wait, self.backoff_max)

    async def wait(self, failures: int, failure: StoreError, *, since: float) -> None:
        """Wait before the next attempt, or raise the failure if no attempt is left, or none would help.

        `since` is the time of `clock` when the first attempt began, or when bytes last came.
        """
        is_late = self.clock() - since >= self.seconds
        if not failure.transient or is_late or failures >= self.max_attempts:
            if failure.transient and self.max_attempts > 1:
                failure.message = f"{failure.message}, {failures} time{'s' if failures > 1 else ''}"
                often, long = "`options.max_attempts` says how often", "`options.retry_seconds` says how long"
                failure.hint = failure.hint or f"{long if is_late else often} to try"
            raise failure
        await self.sleep(self.pause(failures, retry_after=failure.retry_after))

    async def run(self, attempt: Callable[[], Awaitable[T]], *, on_retry: Callable[[], None]) -> T:
        """Call `attempt` until it succeeds or fails for good; `on_retry` is called before each repetition."""
        failures, since = 0, self.clock()
        while True:
            try:
                return await attempt()
            except StoreError as error:
                failures += 1
                failure = error
            await self.wait(failures, failure, since=since)
            on_retry()


@dataclass(frozen=True, slots=True)
class Pin:
    """The version that every response must agree with; None for what is unknown yet."""

    size: int | None = None
    etag: str | None = None

    @property
    def if_match(self) -> str | None:
        """The etag to send; None for a weak one, which never satisfies If-Match and is only compared with the
        response."""
        etag = self.etag
        return None if etag is None or is_weak(etag) or not can_be_sent(etag) else etag


_PROGRESS_PARTS = 16
"""If each attempt brings at least this part of the range (1/16), only the first cut counts as a failure."""
_PROGRESS_BYTES = 64 * KIB
"""So many bytes are progress in any case, if the server has sent all that it promised."""


class Fetcher:
    """Fetches ranges from one store. Used on one event loop."""

    def __init__(
        self,
        store: RangeStore,
        *,
        gate: Gate,
        retry: Retry,
        network: Network,
        allow_unpinned: bool,
    ) -> None:
        self._store = store
        self._network = network
        self._gate = gate
        self._retry = retry
        self._allow_unpinned = allow_unpinned
        # By name, as an isinstance check with a protocol takes 8 us, and clients last no longer than a scan.
        self._gatherer = cast(Gatherer, store) if hasattr(store, "gather_ranges") else None

    async def fetch(
        self, path: str, want: ByteRange | Suffix, *, pin: Pin, kind: Kind, metrics: Metrics
    ) -> Payload:
        """Return exactly the wanted bytes, of the pinned version.

        Raises
        ------
        ObjectChangedError
            The status is 412, the etag or size is not that of the pin, or the pinned object is gone.
        ObjectNotFoundError, StoreError
        """
        # Nearly every range comes whole, so the object that resumes a cut one is made only then.
        body: _Body | None = None
        rest, anchor = want, pin
        failures, since = 0, self._retry.clock()
        while True:
            try:
                payload = await self._send(path, rest, anchor.if_match, kind, metrics)
                self._verify(anchor, payload.size, payload.etag, path)
                return payload if body is None else body.finish(payload)
            except IncompleteBodyError as error:
                failure: StoreError = error
                since = self._retry.clock() if len(error.partial) else since
                self._verify(anchor, error.size, error.etag, path)
                # Without an etag nothing says that the rest belongs to the same version.
                if error.etag is not None or self._allow_unpinned:
                    body = _Body(want) if body is None else body
                    advances = body.add(error)
                    rest, anchor = body.rest, body.anchor(pin)
                    if advances and error.stated:
                        continue
                    if advances and failures:
                        failures -= 1
            except ObjectChangedError as error:
                if body is None or not body.parts or pin != Pin():
                    raise
                # The object was overwritten during its first read. Nothing else of it has been read, so start
                # again.
                failure = StoreError(error.message, path=path, transient=True)
                body, rest, anchor = None, want, pin
            except StoreError as error:
                failure = _for_pinned(pin, error, path)
            failures += 1
            await self._retry.wait(failures, failure, since=since)
            metrics.add("retries")
            metrics.emit("retry", path=redact(path), text=redact(str(failure)))

    @property
    def gathers(self) -> bool:
        """Whether the store reads several ranges in one call."""
        return self._gatherer is not None

    async def gather(
        self, path: str, wants: Sequence[tuple[ByteRange, Kind]], *, pin: Pin, metrics: Metrics
    ) -> Sequence[Payload] | None:
        """Return the payloads of several ranges by one call of the store.

        Return None if the store cannot do that, or the call fails or returns something else: `fetch` handles
        these.
        """
        if self._gatherer is None:
            return None
        gate, ranges = self._gate, [want for want, _ in wants]
        length = sum(want.length for want in ranges)
        in_flight = gate.users
        async with gate.slot(length):
            started = time.perf_counter()
            try:
                payloads = await self._gatherer.gather_ranges(path, ranges, if_match=pin.if_match)
                for want, payload in zip(ranges, payloads, strict=True):
                    _check_answer(path, want, payload)
                    self._verify(pin, payload.size, payload.etag, path)
            except (AccelError, OSError, ValueError):
                return None
            took = time.perf_counter() - started
            self._network.observe(length, took, in_flight=(in_flight + gate.users) / 2)
        for want, kind in wants:
            metrics.count_request(kind, want.length)
            metrics.report_request(kind, path, place=want, nbytes=want.length, seconds=took, error=None)
        return payloads

    async def _send(
        self, path: str, want: ByteRange | Suffix, if_match: str | None, kind: Kind, metrics: Metrics
    ) -> Payload:
        """Send one request when the gate admits it, and count it."""
        gate, length = self._gate, want.length
        if not gate.take_at_once(length):
            await gate.take(length)
        received, counts, came = 0, True, False
        in_flight, cancels_before = gate.users, cancel_requests()
        started = time.perf_counter()
        try:
            payload = await self._store.read(path, want, if_match=if_match)
            took = time.perf_counter() - started
            received = len(payload.data)
            _check_answer(path, want, payload)
            self._network.observe(received, took, in_flight=(in_flight + gate.users) / 2)
            came = True
            return payload
        except IncompleteBodyError as error:
            received = len(error.partial)
            raise
        except asyncio.CancelledError:
            if cancel_requests() == cancels_before:
                raise foreign_cancellation().at(path=path, place=str(want)) from None
            raise
        except SuffixUnsupportedError as error:
            counts = error.sent
            raise
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            # A store of the caller may raise its own errors.
            transient = isinstance(error, (ConnectionError, TimeoutError))
            raise StoreError(
                f"{type(error).__name__}: {redact(str(error))}", path=path, transient=transient
            ) from error
        finally:
            gate.release(length)
            if counts:
                metrics.count_request(kind, received)
                metrics.report_request(
                    kind,
                    path,
                    place=want,
                    nbytes=received,
                    seconds=time.perf_counter() - started,
                    error=None if came else sys.exception(),
                )

    def _verify(self, pin: Pin, size: int | None, etag: str | None, path: str) -> None:
        if size == pin.size and etag == pin.etag:
            return
        if pin.size is not None and size is not None and size != pin.size:
            raise _changed(path, f"it had {pin.size} bytes and has {size} now")
        if pin.etag is None:
            return
        if etag is not None:
            if not same_etag(etag, pin.etag):
                raise _changed(path, f"its etag was {quoted(pin.etag, 80)} and is {quoted(etag, 80)} now")
        elif not self._allow_unpinned:
            raise StoreError(
                "the response carries no etag, so its version is unknown",
                path=path,
                hint="`options.allow_unpinned` reads on without that protection",
            )


class _Body:
    """The parts received so far of one requested range."""

    def __init__(self, want: ByteRange | Suffix) -> None:
        self.rest = want
        self.parts: list[Buffer] = []
        self._whole: ByteRange | None = None
        self._version = Pin()

    def anchor(self, pin: Pin) -> Pin:
        """Return the pin, completed by the size and etag of the first part."""
        return Pin(
            self._version.size if pin.size is None else pin.size,
            self._version.etag if pin.etag is None else pin.etag,
        )

    def add(self, error: IncompleteBodyError) -> bool:
        """Add the part before a cut; return whether it is so long that the cut does not count as a
        failure."""
        came = len(error.partial)
        if not 0 < came < error.range.length:
            return False
        if self._whole is None:
            self._whole = error.range
            self._version = Pin(error.size, error.etag)
        self.parts.append(error.partial)
        self.rest = ByteRange(error.range.start + came, error.range.end)
        many = error.stated and came >= _PROGRESS_BYTES
        return many or came * _PROGRESS_PARTS >= self._whole.length

    def finish(self, last: Payload) -> Payload:
        if self._whole is None:
            return last
        return Payload(
            b"".join((*self.parts, last.data)),
            self._whole,
            self._version.size if last.size is None else last.size,
            last.etag if last.etag is not None else self._version.etag,
        )


def _check_answer(path: str, want: ByteRange | Suffix, payload: Payload) -> None:
    """Check that a store, which may be the caller's, returned the requested range."""
    got, came, size = payload.range, len(payload.data), payload.size
    if isinstance(want, ByteRange):
        right = got == want
    else:
        # Where a suffix begins depends on the size.
        right = size is not None and (got.start, got.end) == (max(0, size - want.length), size)
    if not right or came > got.length:
        raise StoreError(f"the store answered with {came} bytes as {got}", path=path, place=str(want))
    if came < got.length:
        raise IncompleteBodyError(
            f"the body ended after {came} bytes",
            path=path,
            range=got,
            partial=payload.data,
            size=size,
            etag=payload.etag,
        )


def _for_pinned(pin: Pin, error: StoreError, path: str) -> StoreError:
    """Return the error that a failed read of the pinned version means."""
    if pin == Pin():
        return error
    if error.status == 416 and not (isinstance(error, ShortObjectError) and error.size == pin.size):
        return _changed(path, error.message)
    if isinstance(error, ObjectNotFoundError) and not isinstance(error, ObjectChangedError):
        return ObjectGoneError(
            "the object has been deleted since its metadata was read",
            path=path,
            hint="list the files anew: scan or plan again",
        )
    return error


def _changed(path: str, why: str) -> ObjectChangedError:
    return ObjectChangedError(
        f"the object is no longer the version whose metadata was read: {why}", path=path, hint="scan it again"
    )
