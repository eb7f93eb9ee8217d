"""What became of every page of a file: what pruning left, and what ruled out the rest. For pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from accel.errors import redact
from accel.pictures.file_map import ColumnMap, Fate, FileMap
from accel.planning.file_planner import FilePlan, TaskDraft
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["map_file"]

_MOST_COLUMNS: Final = 40
_MOST_GROUPS: Final = 1000
"""Row groups of a file beyond which no picture of it is made."""


_MAKERS: Final = (("index", Fate.EMBEDDED), ("bloom filter", Fate.BLOOM), ("dictionary", Fate.DICTIONARY))


def map_file(plan: FilePlan, *, is_late: Callable[[ScanTask], bool]) -> FileMap | None:
    """Return what became of the pages of a file, of the columns that the question names.

    Parameters
    ----------
    plan : FilePlan
        As it was made: with its draft.
    is_late : callable
        Tells whether the columns of the result alone are read after those of the filter, where rows match.

    Returns
    -------
    FileMap or None
        None for a file of too many row groups to draw, and for one that was excluded without a plan.
    """
    draft = plan.draft
    if draft is None:
        return None
    handle, query = draft.handle, draft.task_file.query
    metadata = handle.metadata
    if metadata.num_row_groups > _MOST_GROUPS:
        return None
    rows = np.asarray(metadata.group_rows, np.int64)
    starts = np.cumsum(rows) - rows
    wanted = sorted({*query.filter_leaves, *query.output_leaves})
    remaining = {group for group, _ in plan.remaining}
    settled = {task.row_group: task for task in plan.tasks}
    late = {group for group, task in settled.items() if is_late(task)}
    chunks = [
        [
            _map_chunk(
                draft,
                leaf,
                group,
                remaining=group in remaining,
                drafted=plan.drafted.get(group),
                settled=settled.get(group),
                is_late=group in late,
            )
            for group in range(len(rows))
        ]
        for leaf in wanted[:_MOST_COLUMNS]
    ]
    schema = draft.task_file.schema
    columns = tuple(
        ColumnMap.joined(
            ".".join(schema.leaves[leaf].path),
            [(first + starts[at], fates, nbytes) for at, (first, fates, nbytes) in enumerate(parts)],
        )
        for leaf, parts in zip(wanted, chunks, strict=False)
    )
    return FileMap(
        name=redact(draft.task_file.url),
        size=handle.id.size,
        num_rows=metadata.num_rows,
        group_rows=starts,
        columns=columns,
        others=len(metadata.schema.leaves) - len(columns),
    )


def _map_chunk(
    draft: TaskDraft,
    leaf: int,
    group: int,
    *,
    remaining: bool,
    drafted: ScanTask | None,
    settled: ScanTask | None,
    is_late: bool,
) -> tuple[Int64s, npt.NDArray[np.uint8], Int64s]:
    """Return where the pages of a chunk start in its row group, their fates, and their bytes. A chunk whose
    pages are not known is as one page."""
    metadata, view = draft.handle.metadata, draft.handle.view
    num_rows = metadata.group_rows.item(group)
    index = view.offset_indexes.get((group, leaf))
    if index is None or not index.num_pages:
        first = np.zeros(1, np.int64)
        chunks = metadata.chunks
        nbytes = np.array([max(0, int(chunks.end[group, leaf]) - int(chunks.start[group, leaf]))], np.int64)
    else:
        first, nbytes = np.asarray(index.first_row, np.int64), np.asarray(index.size, np.int64)
    selected = None if draft.selection is None else draft.selection.get(group, RowSelection.none())
    if not remaining:
        fate = Fate.OUTSIDE if selected is not None and not selected else Fate.STATISTICS
        return first, np.full(len(first), fate, np.uint8), nbytes
    fates = np.full(len(first), Fate.PAGE_INDEX, np.uint8)
    if selected is not None:
        fates[~selected.overlaps(first, num_rows)] = Fate.OUTSIDE
    if drafted is not None:
        fates[drafted.rows.overlaps(first, num_rows)] = _strongest(draft.evidence.makers(group))
    if settled is not None:
        fates[settled.rows.overlaps(first, num_rows)] = Fate.PROVED
        reads = next((reads for reads in settled.reads if reads.leaf == leaf), None)
        if reads is not None:
            read = Fate.LATE if is_late and not reads.for_filter else Fate.READ
            if reads.whole:
                fates[:] = read
            elif len(first) == reads.total_pages:
                fates[reads.ordinal] = read
    return first, fates, nbytes


def _strongest(makers: Collection[str]) -> Fate:
    """Return what pages are said to be ruled out by, where several may have had a part in it."""
    return next((fate for maker, fate in _MAKERS if maker in makers), Fate.EMBEDDED)
