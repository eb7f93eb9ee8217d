"""Rows of a data set by their numbers, counted over all files in order.

In: the files of a source. Out: the rows, read by the pages that hold them. Files that hold none of them are
skipped by the counts of a table where it has them, and opened for their footers otherwise, a few and then
more at a time; files behind the last row are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accel.planning.column_bounds import known_counts
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.runtime.tasks import Group
from accel.scanning.block_pruning import known_files
from accel.scanning.file_jobs import PlannedTasks
from accel.scanning.resolved_source import ResolvedSource
from accel.scanning.run import Run, RunHandle
from accel.store.request_errors import raising_foremost

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["open_window"]


async def open_window(source: ResolvedSource, wanted: RowSelection) -> RunHandle:
    """Return a run of rows of a source.

    Parameters
    ----------
    source : ResolvedSource
        A source without a predicate.
    wanted : RowSelection
        The numbers of the rows, from 0 on; there may be fewer.
    """
    async with aclosing(source):
        question = await source.question()
        tasks: list[ScanTask] = []
        depth = before = 0
        stop = int(wanted.stops[-1]) if wanted else 0
        block: FileBlock | None = await source.first_block() if wanted else None
        while block is not None and before < stop:
            depth = max(depth, block.round_trips)
            files, rows = list(source.chosen(block)), _known_rows(block)
            at, width = 0, 1
            while at < len(files) and before < stop:
                some: list[FileEntry] = []
                starts: list[int | None] = []
                ahead: int | None = before
                while at < len(files) and len(some) < width and (ahead is None or ahead < stop):
                    file, known = files[at], rows.get(id(files[at]))
                    at += 1
                    if ahead is None or known is None or wanted.within(ahead, ahead + known):
                        some.append(file)
                        starts.append(ahead)
                    ahead = None if ahead is None or known is None else ahead + known
                width = min(2 * width, source.spec.options.max_files_in_flight)
                opened = await _open_all(source, some)
                for start, (file, handle, trips) in zip(starts, opened, strict=True):
                    depth = max(depth, block.round_trips + trips)
                    remaining = source.rows_of(file, handle)
                    window, before = _cut(handle, remaining, wanted, before if start is None else start)
                    if window:
                        plan, more = await source.plan_file(replace(file, selected=window, deleted=None))
                        depth = max(depth, more)
                        tasks += plan.tasks
                before = before if ahead is None else ahead
            block = await source.next_block()
    jobs = PlannedTasks(source.reader, tasks, question=question, depth=depth)
    return RunHandle(
        Run(jobs, limit=None, ordered=True, speculates=False), schema=question.output, for_spark=False
    )


def _known_rows(block: FileBlock) -> Mapping[int, int]:
    """Return the rows of the files of a block that its source counts, by the identity of the entry."""
    counts = known_counts(block.num_rows, len(block.files))
    usable = known_files(block) & (counts >= 0)
    return {
        id(block.files[at]): int(counts[at])
        for at in np.flatnonzero(usable).tolist()
        if block.files[at].deleted is None
    }


async def _open_all(
    source: ResolvedSource, files: list[FileEntry]
) -> list[tuple[FileEntry, FileHandle, int]]:
    with raising_foremost():
        async with Group() as group:
            tasks = [group.create_task(source.open_all_rows(file)) for file in files]
    return [task.result() for task in tasks]


def _cut(
    handle: FileHandle, remaining: Mapping[int, RowSelection] | None, wanted: RowSelection, before: int
) -> tuple[dict[int, RowSelection], int]:
    """Return the rows of a file that are wanted, and the rows up to the end of the file.

    Parameters
    ----------
    remaining : mapping or None
        By row group, the rows that there are; None for all.
    wanted : RowSelection
        Rows of the data set.
    before : int
        The rows before the file.
    """
    window: dict[int, RowSelection] = {}
    group_rows: Int64s = handle.metadata.group_rows
    for group, num_rows in enumerate(group_rows.tolist()):
        rows = RowSelection.all(num_rows) if remaining is None else remaining.get(group, RowSelection.none())
        inside = wanted.within(before, before + rows.count)
        if inside:
            window[group] = _at_places(rows, RowSelection(inside.starts - before, inside.stops - before))
        before += rows.count
    return window, before


def _at_places(rows: RowSelection, places: RowSelection) -> RowSelection:
    """Return those of some rows whose places among them, in order, are given."""
    mask = np.zeros(int(places.stops[-1]), bool)
    mask[places.row_numbers()] = True
    return rows.refine(mask)
