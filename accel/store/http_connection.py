"""One HTTP/1.1 connection, which answers one GET or HEAD after the other.

The body of a response, if its length is known and its beginning is wanted, is received into the memory in
which it stays.
"""

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
from accel.store.http_body import BodyStream
from accel.store.http_response import HEAD_END, ResponseHead, read_head

__all__ = ["MOST_HEAD", "Connection", "Loss", "LostError", "Reply", "Request", "new_scratch"]

_SCRATCH_BYTES = 64 * 1024
MOST_HEAD = 64 * 1024
# Bytes read of the body of an error response: enough for the error code of S3.
_MOST_REFUSAL = 64 * 1024
_MOST_INTERIM = 16
# Smaller bodies are put into memory of Python's. Arrow releases the interpreter lock to allocate, and an
# event loop among busy threads then waits for it (1.4 ms of a lookup).
_SMALL = 256 * 1024
# Nearly every head is shorter, and comes whole with the first bytes.
_USUAL_HEAD = 2048


class Loss(enum.Enum):
    """Why a request got no response."""

    CLOSED = CLOSED.message
    STALLED = STALLED.message
    GARBLED = "the answer is not HTTP"
    EXHAUSTED = "no connection could be made, as the process has as many files open as it may"


class LostError(Exception):
    """There is no response. `begun` says whether some of it had come; the cause is the error that ended the
    connection."""

    def __init__(self, loss: Loss, *, begun: bool) -> None:
        super().__init__(loss.value)
        self.loss = loss
        self.begun = begun


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A whole request without a body. Its repr hides the text, which may hold a signed URL."""

    text: bytes
    status: int = 206
    """The status of the response whose body is wanted; of others, only the beginning is read."""
    window: Callable[[ResponseHead], range] | None = None
    """If given, a function that returns which bytes of the body are wanted, whatever the status."""
    bodiless: bool = False
    """Whether responses have no body, as those to HEAD."""

    def window_of(self, head: ResponseHead, room: int) -> range | None:
        """Return which bytes of the body are wanted; None if the connection is better dropped."""
        if self.window is not None:
            return self.window(head)
        most = room if head.status == self.status else _MOST_REFUSAL
        if head.length is not None:
            return range(head.length) if head.length <= most else None
        # obstore reads ranges that come in chunks.
        return range(most) if head.chunked and head.status != 206 else None


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    head: ResponseHead
    body: memoryview
    """The part of the body that was wanted, or less for the reason in `cut`."""
    cut: Loss | None = None


def new_scratch() -> memoryview:
    """Return a buffer for the heads of responses, which all connections of one event loop can share."""
    return memoryview(bytearray(_SCRATCH_BYTES))


class Connection(asyncio.BufferedProtocol):
    """One connection, on which one request is under way at a time.

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
        self._request = Request(b"")
        self._stream: BodyStream | None = None
        self._reusable = False
        self._early = b""
        self._interim = 0
        self._head: ResponseHead | None = None
        self.body = memoryview(b"")
        self._filled = 0
        self.progress = 0.0
        """The loop's time when a request was sent, or when bytes of its response last came."""

    async def ask(self, request: Request, room: int) -> Reply:
        """Send a request and return its response; being cancelled ends the connection.

        Parameters
        ----------
        request : Request
        room : int
            Maximum bytes of the body if the status is that of the request, which has no window.

        Raises
        ------
        LostError
            No complete and valid head came.
        """
        if self._transport is None or self._transport.is_closing():
            raise LostError(Loss.CLOSED, begun=False)
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._answer = answer
        self._room, self._request = room, request
        self._early, self._interim = b"", 0
        self._head = self._stream = None
        self.progress = self._loop.time()
        self._transport.write(request.text)
        try:
            return await answer
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._answer = None
            self.body, self._stream = memoryview(b""), None

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Whether no bytes have come since the last response. Bytes that the loop has not read yet would be
        taken for the next response."""
        return self._unread is None or not self._unread()

    def stalled(self) -> None:
        """End the connection, as no bytes came for too long."""
        self._lose(Loss.STALLED)
        self.abort()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        if socket is not None and hasattr(select, "poll"):
            looking = select.poll()
            looking.register(socket.fileno(), select.POLLIN)
            self._unread = partial(looking.poll, 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._head is None or self._stream is not None:
            return self._scratch
        return self.body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None or self._answer.done():
            return self.abort()  # nothing was requested, or nobody waits any more
        if self._head is None:
            self._begin(nbytes)
        elif self._stream is not None:
            self._feed(self._stream, bytes(self._scratch[:nbytes]))
        else:
            self._filled += nbytes
        if self._head is None:
            return  # an incomplete head is no progress
        self.progress = self._loop.time()
        if self._stream is None and self._filled == len(self.body):
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Loss.CLOSED, exc)
        self._on_lost(self)

    def _begin(self, came: int) -> None:
        """Read the first bytes of a response: the head, or more of it, and the first bytes of the body."""
        early = len(self._early)
        raw = self._early + bytes(self._scratch[: min(came, _USUAL_HEAD)])
        end = raw.find(HEAD_END)
        if end < 0 and came > _USUAL_HEAD:
            raw = self._early + bytes(self._scratch[:came])
            end = raw.find(HEAD_END)
        if end < 0:
            self._early = raw
            # A head whose lines end in line feeds alone has ended too: nothing more would come.
            if len(raw) > MOST_HEAD or b"\n\n" in raw or b"\n\r\n" in raw:
                self._garbled()
            return
        try:
            head = read_head(raw[:end])
        except ValueError:
            return self._garbled()
        first = self._scratch[end + len(HEAD_END) - early : came]
        if head.interim:
            return self._pass_by(bytes(first))
        bodiless = self._request.bodiless
        window = range(0) if bodiless else self._request.window_of(head, self._room)
        self._head, self._filled = head, 0
        if window is None:
            # Only the head is returned, and the connection is dropped.
            self._finish(None)
            return self.abort()
        length = 0 if bodiless else head.length
        if length is None or window.start:
            self._stream = BodyStream(window, length=length, chunked=head.chunked)
            return self._feed(self._stream, bytes(first))
        wanted = min(len(window), length)
        self.body = _room_for(wanted)
        self._filled = min(len(first), wanted)
        self.body[: self._filled] = first[: self._filled]
        # If more comes than is wanted, the beginning of the next response is unknown.
        self._reusable = wanted == length and len(first) <= length

    def _pass_by(self, rest: bytes) -> None:
        """Drop an interim response, which is no progress, and read what follows it."""
        self._early = b""
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            return self._garbled()
        self._scratch[: len(rest)] = rest
        if rest:
            self._begin(len(rest))

    def _feed(self, stream: BodyStream, came: bytes) -> None:
        """Read more of a body that is not received where it stays."""
        try:
            if not stream.feed(came):
                return
        except ValueError:
            self._finish(Loss.GARBLED)
            return self.abort()
        self._reusable = stream.reusable
        self._finish(None)

    def _finish(self, cut: Loss | None) -> None:
        answer, head = self._answer, self._head
        if answer is None or head is None or answer.done():
            return
        if self._stream is not None:
            self.body = memoryview(self._stream.body)
            self._filled = len(self.body)
        self._head = self._stream = None  # bytes that come now were not requested
        answer.set_result(Reply(head, self.body[: self._filled].toreadonly(), cut))
        if cut is None and not (head.keep_alive and self._reusable):
            self.abort()

    def _garbled(self) -> None:
        self._lose(Loss.GARBLED)
        self.abort()

    def _lose(self, loss: Loss, cause: Exception | None = None) -> None:
        answer = self._answer
        if answer is None or answer.done():
            return
        if self._head is not None:
            stream = self._stream
            ended = (
                loss is Loss.CLOSED and cause is None and stream is not None and stream.ends_with_connection
            )
            self._reusable = False
            self._finish(None if ended else loss)
        else:
            lost = LostError(loss, begun=bool(self._early or self._interim))
            lost.__cause__ = cause
            answer.set_exception(lost)


def _room_for(length: int) -> memoryview:
    if length <= _SMALL:
        return memoryview(bytearray(length))
    # Arrow reuses memory, where the system would give fresh pages.
    return memoryview(allocate(length)).cast("B")
