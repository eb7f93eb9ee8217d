"""Rows written into a directory of partitions: `key=value/...`, one file for each, in bounded memory."""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy
from accel.options import MIB
from accel.runtime.time_limits import check_time
from accel.writing.named_columns import find_column
from accel.writing.report import EmbedReport

__all__ = ["MOST_BYTES", "MOST_OPEN", "FileInProgress", "check_partition_columns", "write_partitions"]

MOST_OPEN: Final = 64
"""Files that are written at once; the one that has waited longest for rows is completed for another."""
MOST_BYTES: Final = 256 * MIB
"""Bytes of rows that wait for more of their partition."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_SPELLED: Final = "!$&'()*+,;@~ "
"""Characters, beside letters, digits and `-._`, that a directory has as they are, as Spark writes them."""


class FileInProgress(Protocol):
    """A file of the directory that takes row groups."""

    def write(self, table: pa.Table) -> None:
        """Write rows as a row group."""
        ...

    def finish(self) -> EmbedReport:
        """Complete the file, and report on it."""
        ...


def check_partition_columns(schema: pa.Schema, by: Any) -> list[str]:
    """Return the columns that name the directories.

    Raises
    ------
    TypeError
        They are no names.
    ValueError
        A column does not exist, has a type that no directory spells, or no other column is left.
    """
    names = [by] if isinstance(by, str) else by
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names) or not names:
        raise TypeError(f"partition_by is a column, or a list of columns, not {by!r:.80}")
    if len(set(names)) < len(names):
        raise ValueError(f"partition_by names a column twice: {names!r:.80}")
    for name in names:
        at = find_column(name, schema, "partition_by")
        kind = schema.field(at).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not _is_spelled(kind):
            raise ValueError(f"partition_by: column {name!r} is of type {kind}, which names no directory")
    if len(schema) == len(names):
        raise ValueError("partition_by names all columns: none is left for the files")
    return list(names)


def _is_spelled(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(text or types.is_integer(kind) or types.is_date(kind) or types.is_boolean(kind))


@dataclass(slots=True)
class _Partition:
    """The rows of one directory that wait, and its file, if one is open."""

    waiting: list[pa.Table] = field(default_factory=list)
    nbytes: int = 0
    rows: int = 0
    file: FileInProgress | None = None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


def write_partitions(
    tables: Iterable[pa.Table],
    by: Sequence[str],
    *,
    row_group_size: int,
    open_file: Callable[[str], contextlib.AbstractContextManager[FileInProgress]],
) -> list[EmbedReport]:
    """Write rows into one file for each partition, or into a few where there are very many partitions.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
    by : sequence of str
        The columns that name the directories, the outermost first.
    row_group_size : int
        The most rows of a row group.
    open_file : callable
        Opens a file in a directory, such as "year=2024/month=1/".

    Returns
    -------
    list of EmbedReport
        Of each file, in the order in which they were completed.

    Raises
    ------
    ValueError
        A text of these columns is empty, which no directory can say.
    """
    writing = _Partitions(by, row_group_size, open_file)
    try:
        for table in tables:
            check_time()
            writing.add(table)
        return writing.finish()
    except BaseException:
        writing.give_up(*sys.exc_info())
        raise


class _Partitions:
    def __init__(
        self,
        by: Sequence[str],
        row_group_size: int,
        open_file: Callable[[str], contextlib.AbstractContextManager[FileInProgress]],
    ) -> None:
        self._by = by
        self._row_group_size = row_group_size
        self._open_file = open_file
        self._found: OrderedDict[str, _Partition] = OrderedDict()
        """By directory, the one first that has got no rows for longest."""
        self._nbytes = 0
        self._open = 0
        self._reports: list[EmbedReport] = []

    def add(self, table: pa.Table) -> None:
        for directory, part in _split(table, self._by):
            partition = self._found.setdefault(directory, _Partition())
            self._found.move_to_end(directory)
            partition.waiting.append(part)
            partition.rows += part.num_rows
            partition.nbytes += part.nbytes
            self._nbytes += part.nbytes
            if partition.rows >= self._row_group_size:
                self._flush(directory, partition)
        while self._nbytes > MOST_BYTES:
            largest = max(self._found, key=lambda directory: self._found[directory].nbytes)
            self._flush(largest, self._found[largest])

    def _flush(self, directory: str, partition: _Partition) -> None:
        """Write the rows of a partition that wait."""
        if not partition.rows:
            return
        if partition.file is None:
            if self._open >= MOST_OPEN:
                oldest = next(name for name, other in self._found.items() if other.file is not None)
                self._complete(oldest, self._found[oldest])
            partition.file = partition.stack.enter_context(self._open_file(directory))
            self._open += 1
        table = pa.concat_tables(partition.waiting)
        for start in range(0, table.num_rows, self._row_group_size):
            partition.file.write(table.slice(start, self._row_group_size))
        self._nbytes -= partition.nbytes
        partition.waiting, partition.rows, partition.nbytes = [], 0, 0

    def _complete(self, directory: str, partition: _Partition) -> None:
        self._flush(directory, partition)
        if partition.file is not None:
            report = partition.file.finish()
            partition.stack.close()
            partition.file = None
            self._open -= 1
            self._reports.append(report)

    def finish(self) -> list[EmbedReport]:
        for directory, partition in list(self._found.items()):
            check_time()
            self._complete(directory, partition)
        return self._reports

    def give_up(self, *failure: Any) -> None:
        for partition in self._found.values():
            with contextlib.suppress(BaseException):
                partition.stack.__exit__(*failure)


def _split(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition with its directory, the rows in their order."""
    codes = np.zeros(table.num_rows, np.int64)
    values: list[list[str]] = []
    for name in by:
        texts = _texts(table.column(name), name)
        found = pc.dictionary_encode(texts, null_encoding="encode").combine_chunks()
        entries = [_segment(name, text) for text in found.dictionary.to_pylist()]
        codes = codes * max(1, len(entries)) + np.asarray(found.indices.cast(pa.int64()))
        # So that the codes of many columns stay small.
        distinct, codes = np.unique(codes, return_inverse=True)
        pairs = [divmod(code, max(1, len(entries))) for code in distinct.tolist()]
        values = [[*(values[before] if values else ()), entries[own]] for before, own in pairs]
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(values))
    rows = table if bool((order[1:] > order[:-1]).all()) else table.take(from_numpy(order))
    start = 0
    for segments, count in zip(values, counts.tolist(), strict=True):
        yield "".join(segments), rows.slice(start, count)
        start += count


def _texts(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = column.cast(pa.large_string())
    if pc.any(pc.equal(texts, "")).as_py():
        raise ValueError(f"partition_by: column {name!r} has an empty text, which no directory can say")
    return texts


def _segment(name: str, text: str | None) -> str:
    value = _NULL if text is None else quote(text, safe=_SPELLED, errors="surrogateescape")
    return f"{quote(name, safe=_SPELLED)}={value}/"
