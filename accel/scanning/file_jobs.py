"""The files of a run as jobs, each of which opens and plans its file when its turn comes; and the tasks of a plan as jobs."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from accel.planning.query import Question
from accel.planning.task import ScanTask
from accel.reader.reader import Reader

__all__ = ["FileJob", "FileJobs", "PlannedTasks", "Speculation"]


@dataclass(frozen=True, slots=True, eq=False)
class FileJob:
    """One file of a run: how its tasks come about, and how to start over when the file changed."""

    tasks: Callable[[], Awaitable[tuple[Sequence[ScanTask], int]]]
    """Opens and plans: the tasks, and the round trips that lie before their data."""
    forget: Callable[[], bool]
    """Drops the file's cached metadata; False where the tasks are fixed, and a change is final."""
    distrust: Callable[[], bool] | None = None
    """Gives up the file's page index; False where it had none that was used."""


class FileJobs(AsyncIterator[FileJob]):
    """The files of one run, in order: what a run reads."""

    reader: Reader
    """Opens, plans and reads the files."""

    @abstractmethod
    async def question(self) -> Question:
        """Return the question, with its schema settled."""

    def speculate(self) -> Speculation | None:
        """Return the same files as the cache knows them, where it does. Called on the I/O loop, before the first job."""
        return None

    async def aclose(self) -> None:
        """End what is under way for files that have not come out."""


class Speculation(Protocol):
    """Files as the cache knows them, to be read while their store is asked."""

    @property
    def jobs(self) -> FileJobs:
        """The files to read meanwhile."""
        ...

    async def holds(self) -> bool:
        """Ask the store whether the files are still these."""
        ...


class PlannedTasks(FileJobs):
    """The tasks of a plan: it names the versions of its files, so a change of one is final.

    Parameters
    ----------
    reader : Reader
    tasks : sequence of ScanTask
        Tasks of one file that follow each other are one job.
    """

    def __init__(self, reader: Reader, tasks: Sequence[ScanTask]) -> None:
        self.reader = reader
        self._tasks = tasks
        self._by_file = itertools.groupby(tasks, lambda task: id(task.file))

    async def __anext__(self) -> FileJob:
        for _, tasks in self._by_file:
            return self._job(tuple(tasks))
        raise StopAsyncIteration

    async def question(self) -> Question:
        """Return the question that the plan was made for."""
        return self._tasks[0].file.question

    def _job(self, tasks: Sequence[ScanTask]) -> FileJob:
        async def planned() -> tuple[Sequence[ScanTask], int]:
            return tasks, 0

        def forget() -> bool:
            # The change is final for this plan, but whoever plans anew must not find the old version in the cache.
            self.reader.forget(tasks[0].file.root, tasks[0].path)
            return False

        return FileJob(planned, forget)
