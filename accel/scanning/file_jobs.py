"""The files of a run as jobs, each of which opens and plans its file when its turn comes; and the tasks of a plan as such."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from accel.planning.query import Question
from accel.planning.task import ScanTask
from accel.reader.reader import Reader

__all__ = ["FileJob", "FileJobs", "FixedJobs", "PlannedTasks"]


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
    """The files of a run, in order."""

    async def aclose(self) -> None:
        """End what is under way for files that have not come out."""


class FixedJobs(FileJobs):
    """Files that are known beforehand."""

    def __init__(self, jobs: Iterable[FileJob]) -> None:
        self._jobs = iter(jobs)

    async def __anext__(self) -> FileJob:
        for job in self._jobs:
            return job
        raise StopAsyncIteration


class PlannedTasks:
    """The tasks of a plan, as the source of a run.

    Parameters
    ----------
    reader : Reader
    tasks : sequence of ScanTask
        Tasks of one file that follow each other are one job.
    """

    def __init__(self, reader: Reader, tasks: Sequence[ScanTask]) -> None:
        self.reader = reader
        self._tasks = tasks

    async def jobs(self) -> FileJobs:
        """The files of the tasks, in order."""
        by_file = itertools.groupby(self._tasks, lambda task: id(task.file))
        return FixedJobs(self._job(tuple(tasks)) for _, tasks in by_file)

    async def question(self) -> Question:
        """What the plan was made for."""
        return self._tasks[0].file.question

    def speculate(self) -> None:
        """A plan names the versions of its files: nothing is taken for what it was."""

    def _job(self, tasks: Sequence[ScanTask]) -> FileJob:
        async def planned() -> tuple[Sequence[ScanTask], int]:
            return tasks, 0

        def forget() -> bool:
            # The change is final for this plan, but whoever plans anew must not find the old version in the cache.
            self.reader.forget(tasks[0].file.root, tasks[0].path)
            return False

        return FileJob(planned, forget)
