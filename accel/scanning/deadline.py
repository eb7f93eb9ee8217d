"""The deadline of a scan: how long a run, or the planning of one, may take.

In: the seconds that the caller allows. Out: `ScanTimeoutError`, raised where the caller waits. What is under
way ends by the cancellation of whoever waits for it, as it does where a caller gives up: nothing is in flight
afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.errors import ScanTimeoutError
from accel.scanning.run import RunHandle

if TYPE_CHECKING:
    from accel.scanning.resolved_source import ResolvedSource

__all__ = ["Deadline", "TimedRun"]


class Deadline:
    """A moment by which a scan is to be done.

    Parameters
    ----------
    seconds : float
        From now on.
    source : str
        The source, as errors name it.
    """

    def __init__(self, seconds: float, source: str) -> None:
        self._seconds = seconds
        self._source = source
        self._ends = time.monotonic() + seconds

    @asynccontextmanager
    async def watch(self, found: Callable[[], ResolvedSource | None]) -> AsyncIterator[None]:
        """Cancel the block when time is up.

        Parameters
        ----------
        found : callable
            Returns what is known of the source, to say what the scan was waiting for; None for a plan.

        Raises
        ------
        ScanTimeoutError
        """
        left = self._ends - time.monotonic()
        if left <= 0:
            raise self._error(found())
        try:
            async with asyncio.timeout(left) as timer:
                yield
        except TimeoutError:
            if not timer.expired():
                raise  # it is the error of a request
            raise self._error(found()) from None

    def _error(self, found: ResolvedSource | None) -> ScanTimeoutError:
        return ScanTimeoutError(
            f"the scan was not done within {self._seconds:g} seconds; it was waiting for {_awaited(found)}",
            path=self._source,
            hint="allow more seconds, or ask for less: explain tells what is read",
        )


def _awaited(found: ResolvedSource | None) -> str:
    if found is None:
        return "rows"
    if not found.num_files:
        return "the names of the files"
    if found.settled is None:
        return "the metadata of the first file"
    return f"the metadata or rows of {found.num_files} file{'s' if found.num_files > 1 else ''}"


class TimedRun(RunHandle):
    """A run that ends with an error when its time is up.

    Parameters
    ----------
    deadline : Deadline
    found : callable
        As for `Deadline.watch`.
    **handle
        As for `RunHandle`.
    """

    def __init__(
        self, *handle: Any, deadline: Deadline, found: Callable[[], ResolvedSource | None], **more: Any
    ) -> None:
        super().__init__(*handle, **more)
        self._deadline = deadline
        self._found = found

    async def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        async with self._deadline.watch(self._found):
            return await super().schema()

    async def take(self) -> pa.RecordBatch | None:
        """Return the next batch, or None; whatever is raised, the run has ended then."""
        try:
            async with self._deadline.watch(self._found):
                return await super().take()
        except ScanTimeoutError:
            if not self.ended:
                await self.close()
            raise
