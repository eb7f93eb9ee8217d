"""One HTTP/1.1 connection that answers one GET after the other; bodies are received where they stay."""

from __future__ import annotations

import asyncio
import enum
import select
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from accel.memory import allocate
from accel.store.connection_faults import CLOSED, STALLED
from accel.store.http_response import HEAD_END, ResponseHead, read_head

__all__ = ["Connection", "Loss", "LostError", "Reply", "Request", "new_scratch"]

_SCRATCH_BYTES = 64 * 1024
_MOST_HEAD = 64 * 1024
# Bytes taken of a refusal: enough for the error code that S3 puts into it.
_MOST_REFUSAL = 64 * 1024
# Up to this Python's own memory is used. Arrow releases the interpreter lock to allocate, and a loop among busy threads
# then waits for it (1.4 ms of a lookup).
_SMALL = 256 * 1024
# Nearly every head is shorter, and ends within the first bytes that come.
_USUAL_HEAD = 2048


class Loss(enum.Enum):
    """How a request was left without an answer."""

    CLOSED = CLOSED.message
    STALLED = STALLED.message
    GARBLED = "the answer is not HTTP"
    EXHAUSTED = "no connection could be made, as the process has as many files open as it may"


class LostError(Exception):
    """There is no answer. `begun` says whether some of it had come; the cause is what the connection ended by, if known."""

    def __init__(self, loss: Loss, *, begun: bool) -> None:
        super().__init__(loss.value)
        self.loss = loss
        self.begun = begun


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A whole request without a body. It may hold a signed URL, so its repr hides it."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One response."""

    head: ResponseHead
    body: memoryview
    """All `head.length` bytes, fewer where `cut` says why; none where the body was not wanted."""
    cut: Loss | None = None


def new_scratch() -> memoryview:
    """Return a buffer for the heads of responses; all connections of one event loop can share it."""
    return memoryview(bytearray(_SCRATCH_BYTES))


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection, on which one request is under way at a time.

    Parameters
    ----------
    scratch : memoryview
    on_lost : callable
        Called with the connection when it has ended.
    """

    def __init__(self, scratch: memoryview, *, on_lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scratch = scratch
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unread: Callable[[], object] | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._room = 0
        self._early = b""
        self._head: ResponseHead | None = None
        self._body = memoryview(b"")
        self._filled = 0
        self.progress = 0.0
        """The time of the loop when a request was sent, or part of its answer came."""

    async def ask(self, request: Request, room: int) -> Reply:
        """Send one request and return its answer; being cancelled ends the connection.

        Parameters
        ----------
        request : Request
        room : int
            The most bytes of a body to take, where the status is 206.

        Raises
        ------
        LostError
            No head that can be understood came.
        """
        if self._transport is None or self._transport.is_closing():
            raise LostError(Loss.CLOSED, begun=False)
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._answer = answer
        self._room, self._early, self._head = room, b"", None
        self.progress = self._loop.time()
        self._transport.write(request.text)
        try:
            return await answer
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._answer = None
            self._body = memoryview(b"")

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Whether nothing has come since the last answer. The loop may not have read it yet, and would take it for the next
        answer."""
        return self._unread is None or not self._unread()

    def stalled(self) -> None:
        """End it, as it has made no progress for too long."""
        self._lose(Loss.STALLED)
        self.abort()

    def abort(self) -> None:
        """Drop it now."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        if socket is not None and hasattr(select, "poll"):
            looking = select.poll()
            looking.register(socket.fileno(), select.POLLIN)
            self._unread = partial(looking.poll, 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch if self._head is None else self._body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None or self._answer.done():
            return self.abort()  # Nothing was requested, or nobody waits any more.
        if self._head is None:
            self._begin(nbytes)
        else:
            self._filled += nbytes
        if self._head is None:
            return  # A head without an end is no progress.
        self.progress = self._loop.time()
        if self._filled == len(self._body):
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Loss.CLOSED, exc)
        self._on_lost(self)

    def _begin(self, came: int) -> None:
        """Take what came as the head, or more of it, and as the first bytes of the body."""
        early = len(self._early)
        raw = self._early + bytes(self._scratch[: min(came, _USUAL_HEAD)])
        end = raw.find(HEAD_END)
        if end < 0 and came > _USUAL_HEAD:
            raw = self._early + bytes(self._scratch[:came])
            end = raw.find(HEAD_END)
        if end < 0:
            self._early = raw
            # A head whose lines end in bare line feeds has ended too: nothing more would come.
            if len(raw) > _MOST_HEAD or b"\n\n" in raw or b"\n\r\n" in raw:
                self._garbled()
            return
        try:
            head = read_head(raw[:end])
        except ValueError:
            return self._garbled()
        most = self._room if head.status == 206 else _MOST_REFUSAL
        self._head, self._filled = head, 0
        if head.length is None or head.length > most:
            # The body is not wanted, or of unknown length: only the head is returned, and the connection is dropped.
            self._finish(None)
            return self.abort()
        self._body = _room_for(head.length)
        first = self._scratch[end + len(HEAD_END) - early : came]
        self._filled = min(len(first), head.length)
        self._body[: self._filled] = first[: self._filled]
        if len(first) > head.length:
            # More came than was promised: where the next response begins is not known.
            self._finish(None)
            self.abort()

    def _finish(self, cut: Loss | None) -> None:
        answer, head = self._answer, self._head
        if answer is None or head is None or answer.done():
            return
        self._head = None  # Whatever comes now was not requested.
        answer.set_result(Reply(head, self._body[: self._filled].toreadonly(), cut))
        if not head.keeps and cut is None:
            self.abort()

    def _garbled(self) -> None:
        self._lose(Loss.GARBLED)
        self.abort()

    def _lose(self, loss: Loss, cause: Exception | None = None) -> None:
        answer = self._answer
        if answer is None or answer.done():
            return
        if self._head is not None:
            self._finish(loss)
        else:
            lost = LostError(loss, begun=bool(self._early))
            lost.__cause__ = cause
            answer.set_exception(lost)


def _room_for(length: int) -> memoryview:
    if length <= _SMALL:
        return memoryview(bytearray(length))
    # Arrow has memory at hand, where the system would give fresh pages.
    return memoryview(allocate(length)).cast("B")
