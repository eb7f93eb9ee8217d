"""A run over what a directory held when it was last listed, begun while it is listed anew.

Nothing comes out before the listing has: where it has the same versions of the same files the run goes on, a round trip
ahead; else it is dropped, and what the directory holds now is read. So every scan sees what the store lists, as one that
lists first does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from accel.errors import AccelError
from accel.io.calls import begin
from accel.io.cancels import closed_early, unasked_told
from accel.io.faults import foremost
from accel.planning.file import Listing
from accel.planning.query import Question
from accel.run import Run
from accel.session import Session

__all__ = ["EarlyRun"]


class EarlyRun:
    """As a `Run`, and what its schema is asked of.

    Parameters
    ----------
    session : Session
        Lists the source, and reads it where the last listing does not hold any more.
    assuming : callable
        Makes the session that is given the last listing.
    run_of : callable
        Makes the run of a session.
    """

    def __init__(
        self, session: Session, *, assuming: Callable[[], Session], run_of: Callable[[Session], Run]
    ) -> None:
        self._session = session
        self._assuming = assuming
        self._run_of = run_of
        self._settling: asyncio.Task[None] | None = None
        self._chosen: Run | None = None
        self._closed = False

    @property
    def main(self) -> asyncio.Task[None] | None:
        """What is under way; None where nothing is."""
        if self._settling is not None and not self._settling.done():
            return self._settling
        return None if self._chosen is None else self._chosen.main

    async def take(self) -> pa.RecordBatch | None:
        """The next batch in order; None when there is no more: see `Run.take`."""
        try:
            run = await self._settled()
        except asyncio.CancelledError:
            await self.close()
            raise
        return await run.take()

    async def question(self) -> Question:
        """What is asked, with the schema settled: see `Session.question`."""
        await self._settled()
        return await self._session.question()

    async def close(self) -> None:
        """Stop: nothing is under way afterwards."""
        self._closed = True
        settling = self._settling
        if settling is not None and not settling.done():
            settling.cancel()
            await asyncio.wait((settling,))
        if self._chosen is not None:
            await self._chosen.close()

    async def _settled(self) -> Run:
        """The run that is the right one."""
        if self._chosen is None:
            if self._settling is None:
                if self._closed:
                    raise closed_early()
                self._settling = begin(self._settle())
            await asyncio.wait((self._settling,))
            if self._chosen is None:
                if self._closed:
                    raise closed_early()
                self._settling.result()  # it has failed
                raise RuntimeError("nothing was settled")
        return self._chosen

    async def _settle(self) -> None:
        last = None if self._session.last is None else self._session.last.recall()
        if last is None:
            self._chosen = self._run_of(self._session)
            return
        moment = time.monotonic()
        early = self._assuming()
        early.assume(last)
        run = self._run_of(early)
        begin(_start(run))
        try:
            listing = await self._list()
        except BaseException:
            await run.close()
            raise
        if listing.files is last.files:
            early.reader.opener.held.confirm_listed(moment)
            early.reader.metrics.deepest(listing.round_trips)
            self._session, self._chosen = early, run
        else:
            await run.close()
            self._session.reader.metrics.begin_again()
            if self._session.answering is not None:
                self._session.answering.begin_again()
            self._chosen = self._run_of(self._session)

    async def _list(self) -> Listing:
        try:
            with unasked_told():
                return await self._session.listing()
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        raise failure


async def _start(run: Run) -> None:
    # Why it could not is told by its `take`; that it was stopped, nobody asks.
    with suppress(AccelError):
        await run.start()
