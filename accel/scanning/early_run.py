"""A run over what a source was the last time, begun while its store is asked whether it still is that.

Nothing comes out before the store has answered: where a directory holds the same versions of the same files, or a file
is the version that was known, the run goes on, a round trip ahead; else it is dropped, and what is there now is read. So
every scan sees what the store says, as one that asks first does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from accel.errors import AccelError
from accel.planning.file import Listing
from accel.planning.query import Question
from accel.scanning.run import Run
from accel.scanning.session import Session
from accel.store.request_errors import foremost
from accel.store.tasks import CancellationGuard, begin, closed_early, see

__all__ = ["EarlyRun"]


class EarlyRun:
    """As a `Run`, and what its schema is asked of.

    Parameters
    ----------
    session : Session
        Asks the store, and reads the source where it is not what it was.
    assuming : callable
        Makes the session that reads what it was.
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
        self._begun: Run | None = None
        """The run over what the source was, until it has been dropped."""
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
            run = self._chosen or await self._settled()
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
        # What was cancelled may have been waiting for it to end.
        for run in (self._begun, self._chosen):
            if run is not None:
                await run.close()

    async def _settled(self) -> Run:
        """The run that is the right one."""
        while self._chosen is None:
            if self._settling is not None:
                await asyncio.wait((self._settling,))
                if self._chosen is None and not self._closed:
                    self._settling.result()  # it has failed
            if self._closed:
                raise closed_early()
            if self._settling is None:
                last = self._session.recall()
                if last is None:
                    self._chosen = self._run_of(self._session)
                else:
                    self._settling = begin(self._settle(last))
                    self._settling.add_done_callback(see)
        return self._chosen

    async def _settle(self, last: Listing) -> None:
        early, moment = self._assuming(), time.monotonic()
        try:
            early.assume(last)
        except (AccelError, ValueError):
            # A selection may name files that were not there: those that are there now decide.
            self._chosen = self._run_of(self._session)
            return
        run = self._begun = self._run_of(early)
        begin(_start(run))
        metrics = self._session.reader.metrics
        try:
            trips = await self._trips_if_so(last, early)
        except BaseException:
            await run.close()
            raise
        if trips is None:
            await run.close()
            self._begun = None
            metrics.begin_again()
            if self._session.answering is not None:
                self._session.answering.begin_again()
            self._chosen = self._run_of(self._session)
        else:
            early.reader.opener.freshness.confirm_assumed(moment)
            metrics.deepest(trips)
            self._session, self._chosen = early, run

    async def _trips_if_so(self, last: Listing, early: Session) -> int | None:
        """The round trips it took to know that the source is what it was; None where it is not."""
        try:
            with CancellationGuard():
                if last.round_trips:
                    listing = await self._session.listing()
                    return listing.round_trips if listing.files is last.files else None
                (file,), reader = last.files, self._session.reader
                current = await reader.opener.freshness.revalidate(reader.client(file.root), file)
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        else:
            if current is None:
                return None
            handle, trips = current
            return trips if all(used is handle for used in early.reader.opener.freshness.assumed) else None
        raise failure


async def _start(run: Run) -> None:
    # Why it could not is told by its `take`; that it was stopped, nobody asks.
    with suppress(AccelError):
        await run.start()
