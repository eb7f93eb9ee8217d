"""Requests that find no file to open while others of their event loop have some: they wait until one is let go."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel.store.connection import Connection

__all__ = ["FreeFiles"]


class FreeFiles:
    """Whoever has waited for longest goes on with what is let go. Used on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[object, asyncio.Future[Connection | None]]] = deque()
        self._moved = 0.0
        """The loop's time when somebody who waited last went on."""
        self.held = 0
        """Requests that have a connection, or try to make one."""

    def hold(self) -> None:
        """A request begins; it ends by `let_go`."""
        self.held += 1

    def let_go(self, owner: object, connection: Connection | None) -> bool:
        """A request has ended. Whether its connection went to one that waited, by itself or by being closed.

        Parameters
        ----------
        owner : object
            The pool: others have no use for its connections.
        connection : Connection or None
            One that can be used again; None where it is closed, or never came about.
        """
        while self._waiting:
            whose, turn = self._waiting.popleft()
            if turn.done():
                continue
            self._moved = self._loop.time()
            if connection is not None and (whose is not owner or not connection.silent):
                connection.abort()
                connection = None
            turn.set_result(connection)  # and what was held with it
            return True
        self.held -= 1
        return False

    async def wait(self, owner: object, *, patience: float, again: bool) -> Connection | None:
        """Be no longer a request that holds anything, until another is let go: its connection, or None where one can be
        made instead, which is held from then on.

        Parameters
        ----------
        patience : float
            Seconds in which nobody goes on.
        again : bool
            It has had its turn, and was not lucky.

        Raises
        ------
        TimeoutError
        """
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        add = self._waiting.appendleft if again else self._waiting.append
        add((owner, turn))
        self.held -= 1
        begun = self._loop.time()
        try:
            while not turn.done():
                left = max(begun, self._moved) + patience - self._loop.time()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait((turn,), timeout=left)
        except BaseException:
            if turn.done():
                connection = turn.result()
                if not self.let_go(owner, connection) and connection is not None:
                    connection.abort()
            turn.cancel()
            raise
        return turn.result()
