"""ScanTask: one row group's share of a scan, with everything that reading it takes.

Whoever runs a task sends no metadata request and needs no other argument than the store's options.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import Final

import pyarrow as pa

from accel.errors import ParquetFormatError, SchemaMismatchError
from accel.format.footer import ARROW_SCHEMA_KEY
from accel.format.model import INT96_UNIT, ParquetSchema
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.pages import LeafReads
from accel.planning.query import FileQuery, Question, compile_query
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, ObjectId

__all__ = [
    "DECODE_AT_ONCE",
    "ScanTask",
    "TaskFile",
    "adjacent_tasks",
    "check_alike",
    "check_task",
    "describe_file",
    "truncate_task",
    "without_rows",
]

DECODE_AT_ONCE = 64 << 20
"""Chunks without an offset index that would decode to more bytes are cut after they were fetched."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskFile:
    """The parts that the tasks of one file share."""

    root: str
    url: str
    id: ObjectId
    schema: ParquetSchema
    arrow_schema: pa.Schema
    key_value: Mapping[str, bytes]
    """The key-value metadata that decoding needs: `ARROW:schema`, where the file has it."""
    created_by: str
    """The writer: a few old ones need to be read with care."""
    partition: Mapping[str, pa.Scalar]
    question: Question
    query: FileQuery
    int96_unit: str = INT96_UNIT
    """The unit of INT96 timestamps in `arrow_schema`: "ns" or "us"."""
    loaded: tuple[tuple[int, memoryview], ...] = ()
    """Bytes of the file that need not be requested, by where they start: of a small file all of them, as
    the first read brought them; of chunks that were read whole to be cut, those."""

    _reach: tuple[int, ...] = field(init=False, repr=False)
    """How far each of `loaded`, which are in order, reaches together with those before it."""

    def __post_init__(self) -> None:
        loaded = tuple(sorted(self.loaded, key=itemgetter(0))) if len(self.loaded) > 1 else self.loaded
        object.__setattr__(self, "loaded", loaded)
        object.__setattr__(self, "_reach", tuple(accumulate((at + len(data) for at, data in loaded), max)))

    def __reduce__(self) -> tuple[type[TaskFile], tuple[object, ...]]:
        # The bytes in memory do not pickle: elsewhere they are requested.
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
        """Return the part of a range to request: all, none, or the bytes before those in memory."""
        if not self.loaded:
            return wanted
        holding = self._holding(wanted.end)
        if holding is None:
            return wanted
        return ByteRange(wanted.start, holding[0]) if wanted.start < holding[0] else None

    def complete(self, wanted: ByteRange, given: memoryview | None) -> memoryview:
        """Return the bytes of a range from the requested part and those in memory."""
        if given is not None and len(given) == wanted.end - wanted.start:
            return given
        holding = self._holding(wanted.end)
        if holding is None or max(holding[0], wanted.start) != wanted.start + len(given or b""):
            raise ValueError(f"{wanted} is neither loaded nor wanted")
        start, data = holding
        rest = data[max(wanted.start, start) - start : wanted.end - start]
        return rest if given is None else memoryview(b"".join((given, rest)))

    def _holding(self, end: int) -> tuple[int, memoryview] | None:
        """Return the first bytes in memory that contain the byte before `end`."""
        place = bisect_left(self._reach, end)
        if place == len(self._reach) or self.loaded[place][0] >= end:
            return None
        return self.loaded[place]

    def __repr__(self) -> str:
        return f"TaskFile({self.id.path.partition('?')[0]!r}, {self.id.size} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    """One row group's share of a scan."""

    file: TaskFile
    row_group: int
    """The number of the row group in the file."""
    num_rows: int
    """The rows of the row group."""
    rows: RowSelection
    """Rows that may match."""
    certain: RowSelection
    """The rows among them that are certain to match; the others go through the exact filter."""
    reads: tuple[LeafReads, ...]
    share: float = 1.0
    """The share of the undecided rows that is expected to match: a guess (`planning.selectivity`) that
    decides how to read."""
    first_row: int = 0
    """The number of its first row in the file, where the question has row numbers."""
    nbytes: int = field(init=False)
    """Compressed bytes of the pages it names (dictionaries aside)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum([reads.nbytes for reads in self.reads]))

    @property
    def path(self) -> str:
        """The path of the file in its store."""
        return self.file.id.path

    @property
    def is_certain(self) -> bool:
        """Whether every row of the row group is certain to match."""
        return self.certain.count == self.num_rows

    @property
    def needs_filter(self) -> bool:
        """Whether rows are undecided."""
        # `certain` is a part of `rows`.
        if not len(self.certain.starts):
            return len(self.rows.starts) > 0
        return self.certain is not self.rows and self.certain.count < self.rows.count

    @property
    def reads_whole_chunks(self) -> bool:
        """Whether it has to read a chunk whole for want of an offset index."""
        return any(r.whole for r in self.reads)

    @property
    def cut_when_read(self) -> bool:
        """Whether chunks without an offset index are too large to decode at once: they are fetched, then
        cut."""
        if not self.reads_whole_chunks:
            return False
        return sum(r.nbytes * r.expansion for r in self.reads) > DECODE_AT_ONCE

    def __repr__(self) -> str:
        rows = f"row group {self.row_group}, {self.rows.count} rows"
        return f"ScanTask({self.file!r}, {rows}, {self.nbytes} bytes)"


def truncate_task(task: ScanTask, num_rows: int) -> ScanTask:
    """Cut a task to its first `num_rows` rows; a task with a filter stays as it is."""
    if task.needs_filter or task.rows.count <= num_rows:
        return task
    rows = task.rows.head(num_rows)
    reads = []
    for leaf in task.reads:
        if not leaf.whole:
            leaf = leaf.take(leaf.first_row < (int(leaf.reach(rows).stops[-1]) if rows else 0))
        reads.append(leaf)
    return replace(task, rows=rows, certain=rows, reads=tuple(reads))


def without_rows(task: ScanTask, gone: RowSelection) -> ScanTask | None:
    """Return a task without some rows of its row group, and without the pages that only these need; None
    where no row is left."""
    rows = task.rows.without(gone, task.num_rows)
    if not rows:
        return None
    certain = task.certain.without(gone, task.num_rows)
    doubtful = rows.without(certain, task.num_rows)
    reads = tuple(
        leaf.narrow(rows if leaf.for_output else doubtful)
        for leaf in task.reads
        if leaf.for_output or doubtful
    )
    return replace(task, rows=rows, certain=certain, reads=reads)


def check_alike(tasks: Sequence[ScanTask], schema: pa.Schema) -> None:
    """Check that tasks, perhaps of several plans, give columns of one schema.

    Spark takes columns by their position.

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


def describe_file(
    file: FileEntry,
    handle: FileHandle,
    question: Question,
    *,
    partition: Mapping[str, pa.Scalar],
    schema: ParquetSchema,
    arrow_schema: pa.Schema,
    int96_unit: str,
) -> TaskFile:
    """Return the parts that the tasks of an opened file share, which is read with these schemas."""
    metadata = handle.metadata
    key_value = {k: v for k, v in metadata.key_value.items() if k == ARROW_SCHEMA_KEY}
    return TaskFile(
        root=file.root,
        url=file.url,
        id=handle.id,
        schema=schema,
        arrow_schema=arrow_schema,
        key_value=key_value,
        created_by=metadata.created_by,
        partition=partition,
        question=question,
        query=compile_query(
            question,
            file_schema=schema,
            arrow_schema=arrow_schema,
            partition=partition,
            url=file.url,
        ),
        int96_unit=int96_unit,
        loaded=((0, memoryview(handle.tail)),) if handle.tail_start == 0 else (),
    )


_SPAN = 512 * 1024
"""Bytes of the file, from the first to the last that is wanted of all: no request is cut to less."""

_MOST_GROUPED = 64
"""Tasks: to begin so many at once holds an event loop up for milliseconds."""


def adjacent_tasks(tasks: Sequence[ScanTask]) -> Iterator[Sequence[ScanTask]]:
    """Yield the tasks of one file in order, those together that lie within `_SPAN` of each other; most are
    alone."""
    begun: list[ScanTask] = []
    start = end = 0
    for task in tasks:
        # The sum of the bytes is cheaper to find than their span.
        span = None if len(tasks) == 1 or task.nbytes > _SPAN else _span(task)
        if span is None:
            if begun:
                yield begun
            begun = []
            yield [task]
            continue
        if 0 < len(begun) < _MOST_GROUPED and max(end, span[1]) - min(start, span[0]) <= _SPAN:
            start, end = min(start, span[0]), max(end, span[1])
            begun.append(task)
        else:
            if begun:
                yield begun
            begun, (start, end) = [task], span
    if begun:
        yield begun


def _span(task: ScanTask) -> tuple[int, int] | None:
    """Return where the bytes that are wanted start and end; None where nothing is wanted."""
    ends = [span for reads in task.reads if (span := _leaf_span(reads)) is not None]
    if not ends:
        return None
    return min(start for start, _ in ends), max(end for _, end in ends)


def _leaf_span(reads: LeafReads) -> tuple[int, int] | None:
    if reads.whole:
        return reads.chunk.start, reads.chunk.end
    if not len(reads.offset):
        return None
    start = reads.offset.item(0)
    if reads.dictionary is not None:
        start = min(start, reads.dictionary.start)
    return start, reads.offset.item(-1) + reads.size.item(-1)


_MOST_BYTES: Final = 1 << 62
"""No number of bytes or rows is larger; two of them can be added."""


def check_task(task: ScanTask) -> None:
    """Check that the rows are the row group's, and that the pages are the file's and hold those rows.

    A checksum finds damage on the way, but not numbers that were wrong when they were written, by another
    program or by hand.

    Raises
    ------
    ParquetFormatError
        They do not.
    """
    file, query = task.file, task.file.query
    named = isinstance(file.root, str) and isinstance(file.url, str) and isinstance(file.id.path, str)
    if (
        not named
        or not 0 <= file.id.size < _MOST_BYTES
        or task.row_group < 0
        or not 0 <= task.num_rows < _MOST_BYTES
        or not 0 <= task.first_row < _MOST_BYTES
    ):
        raise ParquetFormatError("a scan task names no row group of a file")
    if not (_is_within(task.rows, task.num_rows) and _is_within(task.certain, task.num_rows)):
        raise ParquetFormatError(
            f"the rows of a scan task are not some of the {task.num_rows} of its row group"
        )
    if task.certain.intersect(task.rows).count != task.certain.count:
        raise ParquetFormatError("a scan task is certain of rows that it does not read")
    maybe = task.rows.without(task.certain, task.num_rows)
    filters, outputs = set(query.filter_leaves), set(query.output_leaves)
    leaves = [reads.leaf for reads in task.reads]
    columns = [reads.column for reads in task.reads]
    if leaves != sorted(set(leaves)) or columns != sorted(set(columns)) or (columns and columns[0] < 0):
        raise ParquetFormatError("the columns of a scan task are not in order")
    if {reads.leaf for reads in task.reads if reads.for_output} != outputs:
        raise ParquetFormatError("a scan task does not read the columns of its result")
    filtered = {reads.leaf for reads in task.reads if reads.for_filter}
    if not filtered <= filters or (maybe and filtered != filters):
        raise ParquetFormatError("a scan task does not read the columns of its filter")
    for reads in task.reads:
        wanted = task.rows if reads.for_output else maybe if reads.for_filter else RowSelection.none()
        fault = _chunk_fault(reads, file.id.size) or _pages_fault(reads, wanted, task.num_rows)
        if fault:
            raise ParquetFormatError(f"a scan task {fault} (column {reads.column})")


def _is_within(rows: RowSelection, num_rows: int) -> bool:
    starts, stops = rows.starts, rows.stops
    if len(starts) != len(stops):
        return False
    if not len(starts):
        return True
    disjoint = len(starts) == 1 or bool((stops[:-1] <= starts[1:]).all())
    return disjoint and starts.item(0) >= 0 and stops.item(-1) <= num_rows and bool((starts < stops).all())


def _chunk_fault(reads: LeafReads, size: int) -> str:
    """Return the fault in the numbers of the chunk; "" if there is none."""
    ends = [reads.chunk.end] if reads.dictionary is None else [reads.chunk.end, reads.dictionary.end]
    if max(ends) > size:
        return "names pages outside its file"
    if not 0.0 <= reads.expansion <= _MOST_BYTES or not 0 <= reads.num_values < _MOST_BYTES:
        return "says that a chunk holds no number of values"
    if reads.dictionary_pages < -1 or reads.total_pages < (len(reads.ordinal) > 0):
        return "miscounts the pages of a chunk"
    return ""


def _pages_fault(reads: LeafReads, wanted: RowSelection, num_rows: int) -> str:
    """Return the fault in the numbers of the pages; "" if there is none."""
    if reads.whole:
        return ""
    ordinal, first, stop = reads.ordinal, reads.first_row, reads.stop_row
    if not len(ordinal):
        return "reads no page of rows that it wants" if wanted else ""
    if (
        ordinal.item(0) < 0
        or ordinal.item(-1) >= reads.total_pages
        or bool((ordinal[1:] <= ordinal[:-1]).any())
    ):
        return "miscounts the pages of a chunk"
    offset, size, end = reads.offset, reads.size, reads.chunk.end
    # Neither sum nor difference overflows, once the places are those of the file.
    if bool((offset < reads.chunk.start).any()) or bool((offset >= end).any()) or bool((size <= 0).any()):
        return "names pages outside their chunk"
    if bool((size > end - offset).any()) or bool((offset[1:] < (offset + size)[:-1]).any()):
        return "names pages that overlap"
    if first.item(0) < 0 or stop.item(-1) > num_rows or bool((stop < first).any()):
        return "names rows that its row group does not have"
    if bool((first[1:] < stop[:-1]).any()):
        return "names rows of several pages"
    if int(wanted.counts(first, stop).sum()) != wanted.count:
        return "reads no page of rows that it wants"
    return ""
