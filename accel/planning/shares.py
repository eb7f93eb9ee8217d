"""Tasks told how selective their filters are expected to be, where that may decide how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from accel.planning.handle import FileHandle
from accel.planning.need import OnBadIndex
from accel.planning.query import FileQuery
from accel.planning.task import ScanTask

__all__ = ["LEAST_LATE_BYTES", "Guesses", "guess_shares", "late_bytes"]

LEAST_LATE_BYTES = 256 << 10
"""With less to leave out, a second round trip never pays."""


def late_bytes(task: ScanTask) -> int:
    """Bytes of the columns that only the result needs: what a second phase may leave out some of."""
    if not task.needs_filter or not any(reads.for_filter for reads in task.reads):
        return 0
    return sum(reads.nbytes for reads in task.reads if not reads.for_filter)


@dataclass(frozen=True, slots=True)
class Guesses:
    """The tasks of one file, with `share` set where it may matter."""

    tasks: list[ScanTask]
    guessed: list[ScanTask]
    """Those of them that it was set for."""
    sketched: bool
    """A sketch had a say in it."""


def guess_shares(
    handle: FileHandle, query: FileQuery, *, tasks: list[ScanTask], on_bad_index: OnBadIndex
) -> Guesses:
    """Tell the tasks of one file how selective its filter is expected to be."""
    open_to = [late_bytes(task) >= LEAST_LATE_BYTES for task in tasks]
    if not any(open_to):
        return Guesses(tasks, [], False)
    # Seldom wanted: a lookup shall not pay for importing them.
    from accel.planning.selectivity import Selectivity
    from accel.planning.sketches import Sketches

    sketches, selectivity = Sketches.of(handle, query, on_bad_index), Selectivity(handle, query)
    told: list[ScanTask] = []
    guessed: list[ScanTask] = []
    for task, matters in zip(tasks, open_to, strict=True):
        if matters:
            share = selectivity.share(
                task.row_group,
                doubtful=task.rows.count - task.sure.count,
                sketches={} if sketches is None else sketches.of_group(task.row_group),
            )
            task = ScanTask(task.file, task.row_group, task.num_rows, task.rows, task.sure, task.reads, share)
            guessed.append(task)
        told.append(task)
    return Guesses(told, guessed, sketches is not None)
