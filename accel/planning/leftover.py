"""What is left to be read of a task once part of it is answered: tasks of the same kind, for fewer rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from accel.planning.measures import Aggregates
from accel.planning.projection import field_leaves
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile

__all__ = ["MEASURES_KEY", "Leftover", "left_tasks"]

MEASURES_KEY = b"accel.measures"
"""Of the schema of what a left task reads: the measures that its rows count for, by ordinals."""

# With more kinds of rows in a row group than this, its measures are read together.
_MOST_TASKS = 8


@dataclass(slots=True)
class Leftover:
    """What the left tasks of one file share."""

    aggregates: Aggregates
    leaves: Mapping[int, int]
    """The leaf of each measure that may be answered by units."""
    by_rows: tuple[int, ...]
    """Measures that only count rows."""
    constants: tuple[int, ...]
    """Measures of partition columns."""
    absent: tuple[int, ...]
    """Measures of columns that the file has not: all null."""
    _files: dict[tuple[int, ...], TaskFile] = field(default_factory=dict)

    def rows_to_read(
        self, task: ScanTask, answered: Mapping[int, RowSelection], *, unknown: Sequence[int]
    ) -> dict[int, RowSelection]:
        """For each measure with a column of its own in the file, the rows of the task that it is not answered for.

        A chunk that can only be read whole is either left alone or read once, for all measures that are not
        answered completely.
        """
        read = {ordinal: task.rows for ordinal in (*self.leaves, *unknown)}
        for ordinal, rows in answered.items():
            read[ordinal] = task.rows.without(rows, task.num_rows)
        rest = {ordinal for ordinal, rows in read.items() if rows}
        chunks = {self.leaves[ordinal] for ordinal in rest if ordinal in self.leaves}
        if (
            any(reads.whole and reads.column in chunks for reads in task.reads)
            or len(_split(task, read)) > _MOST_TASKS
        ):
            read |= {ordinal: task.rows for ordinal in rest}
        return read

    def file(self, task: ScanTask, measures: tuple[int, ...]) -> TaskFile:
        """The task's file, with the columns of these measures as its output, and those that take no reading."""
        file = self._files.get(measures)
        if file is None:
            file = replace(task.file, query=self._query(task.file, measures))
            self._files[measures] = file
        return file

    def _query(self, file: TaskFile, measures: tuple[int, ...]) -> FileQuery:
        chosen = (*measures, *self.constants, *self.absent)
        output = self.aggregates.project(chosen)
        present = {self.aggregates.measures[ordinal].path[0] for ordinal in (*measures, *self.constants)}
        leaves: set[int] = set()
        constants: dict[str, pa.Scalar] = {}
        for column in output:
            value = file.query.output_constants.get(column.name)
            if column.name not in present:
                constants[column.name] = pa.nulls(1, column.type)[0]
            elif value is not None:
                constants[column.name] = value
            else:
                leaves.update(field_leaves(file.schema, file.arrow_schema, column.name, column.type))
        listed = f"{_listed(chosen)};{_listed(self.by_rows)}"
        return replace(
            file.query,
            output=output.with_metadata({MEASURES_KEY: listed.encode()}),
            output_leaves=tuple(sorted(leaves)),
            output_constants=constants,
        )


def _listed(ordinals: Sequence[int]) -> str:
    return ",".join(map(str, ordinals))


def left_tasks(leftover: Leftover, task: ScanTask, *, read: Mapping[int, RowSelection]) -> list[ScanTask]:
    """The tasks that read, for each measure, the rows in `read`; every row in doubt is among them."""
    out = []
    for measures, rows in _split(task, read).items():
        file = leftover.file(task, measures)
        sure = rows.intersect(task.sure)
        maybe = rows.without(sure, task.num_rows)
        filters = frozenset(file.query.filter_leaves) if maybe else frozenset[int]()
        outputs = frozenset(file.query.output_leaves)
        reads = [
            replace(
                leaf.narrow(rows if leaf.leaf in outputs else maybe),
                for_filter=leaf.leaf in filters,
                for_output=leaf.leaf in outputs,
            )
            for leaf in task.reads
            if leaf.leaf in filters or leaf.leaf in outputs
        ]
        out.append(replace(task, file=file, rows=rows, sure=sure, reads=tuple(reads)))
    return out


def _split(task: ScanTask, read: Mapping[int, RowSelection]) -> dict[tuple[int, ...], RowSelection]:
    """The rows to read, by the measures that they are read for."""
    doubtful = task.rows.without(task.sure, task.num_rows)
    if not read:
        return {(): doubtful} if doubtful else {}
    ordinals = sorted(read)
    ends = [edge for rows in read.values() for edge in (rows.starts, rows.stops)]
    cuts = np.unique(np.concatenate([np.array([0, task.num_rows], np.int64), *ends]))
    wanted = np.array([read[ordinal].overlaps(cuts[:-1], int(cuts[-1])) for ordinal in ordinals], bool)
    parts: dict[tuple[int, ...], list[int]] = {}
    for at, flags in enumerate(wanted.T.tolist()):
        measures = tuple(ordinal for ordinal, flag in zip(ordinals, flags, strict=True) if flag)
        if measures:
            parts.setdefault(measures, []).append(at)
    return {
        measures: RowSelection.of([(int(cuts[at]), int(cuts[at + 1])) for at in places])
        for measures, places in parts.items()
    }
