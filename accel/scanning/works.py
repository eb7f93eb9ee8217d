"""The files of a run, each with the way to plan it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from accel.planning.task import ScanTask

__all__ = ["FileWork", "WorkSource", "Works"]


@dataclass(slots=True)
class FileWork:
    """One file of a run: how its tasks come about, and how to start over when it changed."""

    tasks: Callable[[], Awaitable[tuple[Sequence[ScanTask], int]]]
    """Opens and plans: the tasks, and the round trips that lie before their data."""
    forget: Callable[[], bool]
    """Drops the file's cached metadata; False where the tasks are fixed, and a change is final."""
    distrust: Callable[[], bool] | None = None
    """Gives up the file's page index; False where it had none that was used."""


class WorkSource(AsyncIterator[FileWork]):
    """Where the files of a run come from, in order."""

    only: FileWork | None = None
    """The only one, where that is known beforehand."""

    @property
    def waits(self) -> bool:
        """Whether the next file may be long in coming."""
        return False

    async def aclose(self) -> None:
        """End what is under way for files that have not come out."""


class Works(WorkSource):
    """Files that are known beforehand, as the work of a run."""

    def __init__(self, works: Iterable[FileWork]) -> None:
        if isinstance(works, list) and len(works) == 1:
            self.only = works[0]
        self._works = iter(works)

    async def __anext__(self) -> FileWork:
        try:
            return next(self._works)
        except StopIteration:
            raise StopAsyncIteration from None
