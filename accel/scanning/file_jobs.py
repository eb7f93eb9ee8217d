"""The files of a run as jobs, each of which opens and plans its file when its turn comes; and the tasks of a
plan as jobs."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from accel.errors import ObjectChangedError
from accel.planning.query import Question
from accel.planning.task import ScanTask
from accel.reader.reader import Reader
from accel.scanning.spec import SKIPPED

__all__ = ["FileJob", "FileJobs", "PlannedTasks", "Speculation", "skips_over"]


@dataclass(frozen=True, slots=True, eq=False)
class FileJob:
    """One file of a run: how its tasks come about, and how to start over when the file changed."""

    tasks: Callable[[], Awaitable[tuple[Sequence[ScanTask], int]]]
    """Opens and plans: the tasks, and the round trips that lie before their data."""
    forget: Callable[[], bool]
    """Drops the file's cached metadata; False where the tasks are fixed, and a change is final."""
    distrust: Callable[[], bool] | None = None
    """Gives up the file's page index; False where it had none that was used."""
    skip: Callable[[Exception], bool] | None = None
    """Notes that the file is left out from here on; False for an error that is to be raised."""


class FileJobs(AsyncIterator[FileJob]):
    """The files of one run, in order: what a run reads."""

    reader: Reader
    """Opens, plans and reads the files."""

    @abstractmethod
    async def question(self) -> Question:
        """Return the question, with its schema settled."""

    def speculate(self) -> Speculation | None:
        """Return the same files as the cache knows them, where it does. Called on the I/O loop, before the
        first job."""
        return None

    @property
    def exhausted(self) -> bool:
        """Whether it is certain already that no file comes after those that came out."""
        return False

    async def aclose(self) -> None:
        """End what is under way for files that have not come out."""


class Speculation(Protocol):
    """Files as the cache knows them, to be read while their store is queried."""

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
    question : Question, optional
        The question that they are of, where there may be none of them.
    depth : int
        Round trips that lie before their data.
    skips : bool
        Whether a file that cannot be read is left out.
    """

    def __init__(
        self,
        reader: Reader,
        tasks: Sequence[ScanTask],
        *,
        question: Question | None = None,
        depth: int = 0,
        skips: bool = False,
    ) -> None:
        self.reader = reader
        self._tasks = tasks
        self._question = question
        self._depth = depth
        self._skips = skips
        self._files = deque(tuple(file) for _, file in itertools.groupby(tasks, lambda task: id(task.file)))

    async def __anext__(self) -> FileJob:
        if not self._files:
            raise StopAsyncIteration
        return self._job(self._files.popleft())

    @property
    def exhausted(self) -> bool:
        """Whether the tasks of all files came out."""
        return not self._files

    async def question(self) -> Question:
        """Return the question that the plan was made for."""
        return self._tasks[0].file.question if self._question is None else self._question

    def _job(self, tasks: Sequence[ScanTask]) -> FileJob:
        async def planned() -> tuple[Sequence[ScanTask], int]:
            return tasks, self._depth

        def forget() -> bool:
            # The change is final for this plan, but whoever plans anew must not find the old version in the
            # cache.
            self.reader.forget(tasks[0].file.root, tasks[0].path)
            return False

        def skip(error: Exception) -> bool:
            return skips_over(error, tasks[0].file.url, self.reader)

        return FileJob(planned, forget, skip=skip if self._skips else None)


def skips_over(error: Exception, url: str, reader: Reader, *, warns: bool = True) -> bool:
    """Note in the metrics that a file is left out; return False for an error that is to be raised. A plan
    does not warn: its metrics have all there is to say."""
    if not isinstance(error, SKIPPED) or isinstance(error, ObjectChangedError):
        return False
    reader.metrics.skip(url, error.at(path=url), warns=warns)
    return True
