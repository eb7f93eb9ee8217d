"""What each DataFrame of `accel.spark.read` was made of, so that `prune` can make it anew with less to read.

The driver alone keeps it, of the reads of late: a read of which nothing is known is left as it is. A plan of
Spark names a read by the name of its function, which people see in Spark's plans and web UI, too.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.decode.spark_types import Decimals
from accel.errors import redact
from accel.planning.plan import Plan
from accel.predicate.expr import Expr
from accel.predicate.sql import to_sql
from accel.runtime.forks import lock_over_forks

if TYPE_CHECKING:
    from accel.spark.planning import FoundFiles

__all__ = [
    "NamedFunction",
    "ReadRecord",
    "describe_read",
    "files_of",
    "keep_record",
    "name_of_source",
    "recorded_by_name",
]

MOST: Final = 256
"""Reads that are known at a time."""
_MOST_FILES: Final = 1_000_000
"""Files of all of them."""
_NUMBERED: Final = re.compile(r"^accel .* \[read (\d+)\]$", re.DOTALL)
_SHOWN: Final = 8
"""Values of a list that a name shows."""
_LONGEST: Final = 400
"""Letters of a predicate that a name shows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRecord:
    """The arguments of a read, and the files that it reads."""

    source: Any = field(repr=False)
    where: Expr | None
    columns: pa.Schema
    """Its columns, in the types of the files."""
    chosen: Sequence[str] | None
    """The columns as they were given: names and dotted paths."""
    limit: int | None
    keywords: Mapping[str, Any] = field(repr=False)
    """The other arguments of `accel.spark.read`."""
    files: frozenset[int] = field(repr=False)
    """A hash of each file and its version."""
    version: object = None
    """Of a table, its version."""
    decimals: Decimals = Decimals.SCALED
    """The form of its columns of decimals."""

    def is_within(self, other: ReadRecord) -> bool:
        """Return whether it reads nothing but what another one reads."""
        return self.version == other.version and self.files <= other.files


_records: OrderedDict[int, ReadRecord] = OrderedDict()
_numbers = itertools.count(1)
_lock = lock_over_forks()


def keep_record(record: ReadRecord) -> int:
    """Keep what a read was made of, in the place of older ones, and return its number."""
    with _lock:
        number = next(_numbers)
        _records[number] = record
        while len(_records) > 1 and (
            len(_records) > MOST or sum(len(one.files) for one in _records.values()) > _MOST_FILES
        ):
            _records.popitem(last=False)
        return number


def recorded_by_name(name: str) -> tuple[int, ReadRecord] | None:
    """Return the read that a function of a plan names; None where it names none that is known."""
    found = _NUMBERED.match(name)
    if found is None:
        return None
    record = _records.get(int(found[1]))
    return None if record is None else (int(found[1]), record)


def files_of(planned: Plan | FoundFiles) -> frozenset[int]:
    """Return a hash of each file of a plan and its version."""
    if isinstance(planned, Plan):
        return frozenset(hash((task.file.root, task.file.id)) for task in planned.tasks)
    return frozenset(hash((file.url, file.version)) for file in planned.entries)


class NamedFunction:
    """A function of `mapInArrow` under a name of its own, which Spark shows in its plans and its web UI.

    Parameters
    ----------
    function : callable
    name : str
    """

    def __init__(self, function: Callable[..., Iterator[pa.RecordBatch]], name: str) -> None:
        self._function = function
        self.__name__ = name

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function."""
        return self._function(batches)


def describe_read(planned: Plan | FoundFiles, source: Any, where: Expr | None, number: int) -> str:
    """Return the name of a read: its source, what planning left of it, and its predicate."""
    files = planned.metrics.files
    if isinstance(planned, Plan):
        pages, nbytes = planned.metrics.pages, sum(task.nbytes for task in planned.tasks)
        left = f"{files.kept:,} of {files.total:,} files"
        if pages.total:
            left += f", {pages.kept:,} of {pages.total:,} pages"
        left += f", {nbytes:,} bytes"
    else:
        left = f"{len(planned.entries):,} files, planned by the executors"
    text = "" if where is None else f"; {to_sql(where, max_values=_SHOWN)}"
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"accel {name_of_source(source)}: {left}{text} [read {number}]"


def name_of_source(source: Any) -> str:
    """Return a source for messages, without credentials."""
    if isinstance(source, list | tuple):
        return f"{len(source)} sources"
    return redact(str(source))
