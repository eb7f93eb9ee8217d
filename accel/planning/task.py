"""ScanTask: one row group's share of a scan, with everything that reading it takes.

Whoever runs a task sends no metadata request and needs no other argument than the store's options.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter

import pyarrow as pa

from accel.errors import SchemaMismatchError
from accel.format.model import INT96_UNIT, ParquetSchema
from accel.planning.pages import LeafReads
from accel.planning.query import FileQuery, Question
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, ObjectId

__all__ = ["DECODE_AT_ONCE", "ScanTask", "TaskFile", "check_alike", "truncate_task"]

DECODE_AT_ONCE = 64 << 20
"""Chunks without an offset index that would decode to more bytes are cut after they were fetched."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskFile:
    """What the tasks of one file share."""

    root: str
    url: str
    id: ObjectId
    schema: ParquetSchema
    arrow_schema: pa.Schema
    key_value: Mapping[str, bytes]
    """Of the footer's key-value metadata what decoding needs: `ARROW:schema`, where the file has it."""
    created_by: str
    """The writer: a few old ones need to be read with care."""
    partition: Mapping[str, pa.Scalar]
    question: Question
    query: FileQuery
    int96_unit: str = INT96_UNIT
    """What INT96 timestamps are read to, as `arrow_schema` has it: "ns" or "us"."""
    at_hand: tuple[tuple[int, memoryview], ...] = ()
    """Bytes of the file that need not be asked for, by where they start: of a small file all of them, as
    the first read brought them; of chunks that were read whole to be cut, those."""

    _reach: tuple[int, ...] = field(init=False, repr=False)
    """Of each of `at_hand`, which are in order, how far it and those before it reach."""

    def __post_init__(self) -> None:
        held = tuple(sorted(self.at_hand, key=itemgetter(0))) if len(self.at_hand) > 1 else self.at_hand
        object.__setattr__(self, "at_hand", held)
        object.__setattr__(self, "_reach", tuple(accumulate((at + len(data) for at, data in held), max)))

    def __reduce__(self) -> tuple[type[TaskFile], tuple[object, ...]]:
        # Without what is at hand, which does not pickle: elsewhere it is asked for.
        of_file = (
            self.root,
            self.url,
            self.id,
            self.schema,
            self.arrow_schema,
            self.key_value,
            self.created_by,
        )
        return TaskFile, (*of_file, self.partition, self.question, self.query, self.int96_unit)

    def missing(self, wanted: ByteRange) -> ByteRange | None:
        """What of a range has to be asked for: all, none, or what comes before bytes that are at hand."""
        if not self.at_hand:
            return wanted
        held = self._holding(wanted.end)
        if held is None:
            return wanted
        return ByteRange(wanted.start, held[0]) if wanted.start < held[0] else None

    def complete(self, wanted: ByteRange, asked: memoryview | None) -> memoryview:
        """The bytes of a range, from what `missing` said and what is at hand."""
        if asked is not None and len(asked) == wanted.length:
            return asked
        held = self._holding(wanted.end)
        if held is None or max(held[0], wanted.start) != wanted.start + len(asked or b""):
            raise ValueError(f"{wanted} is neither at hand nor was it asked for")
        start, data = held
        rest = data[max(wanted.start, start) - start : wanted.end - start]
        return rest if asked is None else memoryview(b"".join((asked, rest)))

    def _holding(self, end: int) -> tuple[int, memoryview] | None:
        """Of the bytes at hand that the last byte before `end` is among, those that start first."""
        place = bisect_left(self._reach, end)
        if place == len(self._reach) or self.at_hand[place][0] >= end:
            return None
        return self.at_hand[place]

    def __repr__(self) -> str:
        return f"TaskFile({self.id.path.partition('?')[0]!r}, {self.id.size} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    """One row group's share of a scan."""

    file: TaskFile
    row_group: int
    num_rows: int
    """Of the row group."""
    rows: RowSelection
    """Rows that may match."""
    sure: RowSelection
    """Those of them that are known to match; the rest goes through the exact filter."""
    reads: tuple[LeafReads, ...]
    share: float = 1.0
    """Of the rows in doubt, those expected to match, 0 to 1: a guess (`planning.selectivity`), for choosing how to
    read."""

    @property
    def path(self) -> str:
        """Of the file, in its store."""
        return self.file.id.path

    @property
    def needs_filter(self) -> bool:
        """Whether rows are in doubt."""
        # `sure` is a part of `rows`.
        if not len(self.sure.starts):
            return len(self.rows.starts) > 0
        return self.sure is not self.rows and self.sure.count < self.rows.count

    @property
    def reads_whole_chunks(self) -> bool:
        """Whether it has to read a chunk whole for want of an offset index."""
        return any(r.whole for r in self.reads)

    @property
    def cut_when_read(self) -> bool:
        """Whether those chunks are too large to be decoded at once: they are fetched first, and cut when they came."""
        if not self.reads_whole_chunks:
            return False
        return sum(r.nbytes * r.expansion for r in self.reads) > DECODE_AT_ONCE

    @property
    def nbytes(self) -> int:
        """Compressed bytes of the pages it names (dictionaries aside)."""
        return sum(r.nbytes for r in self.reads)

    def __repr__(self) -> str:
        return f"ScanTask({self.file!r}, row group {self.row_group}, {self.rows.count} rows, {self.nbytes} bytes)"


def truncate_task(task: ScanTask, num_rows: int) -> ScanTask:
    """The task, for its first `num_rows` rows; only where no filter stands between."""
    if task.needs_filter or task.rows.count <= num_rows:
        return task
    rows = task.rows.head(num_rows)
    reads = []
    for leaf in task.reads:
        if not leaf.whole:
            leaf = leaf.take(leaf.first_row < (int(leaf.reach(rows).stops[-1]) if rows else 0))
        reads.append(leaf)
    return replace(task, rows=rows, sure=rows, reads=tuple(reads))


def check_alike(tasks: Sequence[ScanTask], schema: pa.Schema) -> None:
    """See that tasks, which may be of several plans, give columns of one schema: in Spark they go by their position.

    Raises
    ------
    SchemaMismatchError
        One gives others.
    """
    for file in {id(task.file): task.file for task in tasks}.values():
        output = file.question.output
        if output is not schema and not output.equals(schema):
            raise SchemaMismatchError(
                f"its task has the columns {output.names}, another one {schema.names}, or of other types",
                path=file.url,
                hint="scan the tasks of each plan by themselves",
            )
