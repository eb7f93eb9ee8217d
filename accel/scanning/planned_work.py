"""The tasks of a plan, as the work of a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from accel.planning.task import ScanTask
from accel.reader.reader import Reader
from accel.scanning.preloading import load_ahead
from accel.scanning.works import FileWork, Works

__all__ = ["planned_work"]


async def planned_work(reader: Reader, tasks: Sequence[ScanTask]) -> Works:
    """Tasks of one file that follow each other are one piece of work."""
    if len(tasks) == 1:
        return Works([_fixed(reader, tuple(tasks))])
    return Works(
        _fixed(reader, tuple(run)) for _, run in itertools.groupby(tasks, lambda task: id(task.file))
    )


def _fixed(reader: Reader, tasks: Sequence[ScanTask]) -> FileWork:
    async def give() -> tuple[Sequence[ScanTask], int]:
        load_ahead(reader.client(tasks[0].file.root), tasks[0].file.question.where)
        return tasks, 0

    def forget() -> bool:
        # Final for this plan; whoever plans anew shall not find the old version in the cache.
        reader.forget(tasks[0].file.root, tasks[0].path)
        return False

    return FileWork(give, forget)
