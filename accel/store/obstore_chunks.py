"""What obstore lists, chunk by chunk; let go of in the middle of a request without harm to its store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from accel.errors import StoreError
from accel.store.obstore_calls import watched

__all__ = ["Chunks"]

_PATIENCE: Final = 10
"""Times the read timeout, which is that of one request, that a chunk may take: obstore asks as often as it needs."""


class Chunks:
    """A listing of obstore's, of which it becomes the only owner.

    Parameters
    ----------
    stream : obstore's ListStream
    path : str
        What is listed, as errors name it.
    read_timeout : float, optional
        Seconds, of one request. None: a chunk may take for ever.
    """

    def __init__(
        self, stream: AsyncIterator[Sequence[Any]], path: str, *, read_timeout: float | None
    ) -> None:
        self._stream: AsyncIterator[Sequence[Any]] | None = stream
        self._path = path
        self._seconds = None if read_timeout is None else read_timeout * _PATIENCE

    async def take(self) -> Sequence[Any] | None:
        """The next chunk, None after the last. Raises what obstore does; cancelled, it ends the request.

        Raises
        ------
        StoreError
            None came in time, however many answers did: some servers send empty pages without an end.
        """
        if self._stream is None:
            return None
        # Of the running loop's; a cancelled `await` of it would cancel it too early.
        turn: asyncio.Future[Sequence[Any]] = watched(asyncio.ensure_future(self._stream.__anext__()))
        try:
            try:
                await asyncio.wait((turn,), timeout=self._seconds)
            except BaseException:
                self._let_go(turn)
                raise
            if turn.done():
                return turn.result()
            self._let_go(turn)
            raise StoreError(
                f"the store listed nothing more in {self._seconds:g} seconds",
                path=self._path,
                hint="it is slow, or sends empty pages without an end; options.read_timeout allows for more",
            )
        except StopAsyncIteration:
            return None
        finally:
            # An error keeps its frames, which would keep a call that is waited for at exit.
            del turn

    def _let_go(self, turn: asyncio.Future[Sequence[Any]]) -> None:
        # In this order: what obstore's own threads hold of the stream must be the last, when they drop it. One that
        # Python frees (and only a collection of cycles may) gives its connection back outside of tokio, if an answer has
        # come meanwhile: hyper's pool panics with its lock held, and so does every later request of that store.
        self._stream = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            turn.cancel()
