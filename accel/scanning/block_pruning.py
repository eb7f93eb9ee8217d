"""A block of files pruned together, before any of them is planned by itself.

It prunes what planning would prune, for the same reasons (`planning.pruning`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.errors import AccelError
from accel.format.domain import Bounds
from accel.format.model import ParquetSchema
from accel.planning.column_bounds import known_counts
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.handle import FileHandle
from accel.planning.pruning import excluded_files
from accel.planning.query import FileQuery, Question, compile_query, with_partition
from accel.predicate.prune import prune
from accel.predicate.value_bounds import constants_bounds
from accel.scanning.file_source import FileColumns

if TYPE_CHECKING:
    from accel.arrays import Bools
    from accel.predicate.atoms import Bound

__all__ = [
    "BlockExclusion",
    "excluded_by_bounds",
    "excluded_by_values",
    "excluded_together",
    "known_files",
]


def excluded_together(
    opened: Sequence[tuple[FileEntry, FileHandle]],
    question: Question,
    *,
    constants: Callable[[FileEntry, pa.Schema], Mapping[str, pa.Scalar]],
    check: Callable[[FileEntry, FileHandle], None],
    schemas_of: Callable[[FileEntry, FileHandle], tuple[ParquetSchema, pa.Schema]],
) -> list[bool]:
    """Return for each file whether statistics and path exclude it.

    Parameters
    ----------
    opened : sequence of (FileEntry, FileHandle)
    question : Question
    constants : callable
        The values of the columns that a file of an Arrow schema does not have itself.
    check : callable
        Raises AccelError for a file that is not to be pruned: the error is raised when its turn comes.
    schemas_of : callable
        The schemas that a file is read with.
    """
    out = [False] * len(opened)
    groups: dict[object, _Group] = {}
    # Files that agree on this share the compiled question.
    known: dict[tuple[int, int, tuple[object, ...], int], _Group] = {}
    for place, (file, handle) in enumerate(opened):
        # A table of indexes that does not verify is reported, whatever the statistics prove.
        if handle.bad_toc is not None:
            continue
        try:
            check(file, handle)
            form = id(handle.shared.schema), id(handle.arrow_schema), file.partition, id(file.columns)
            group = known.get(form)
            if group is None:
                query, key = _shared_query(file, question, constants, *schemas_of(file, handle))
                group = known[form] = groups.setdefault(key, _Group(query))
        except AccelError:
            continue
        group.places.append(place)
        group.handles.append(handle)
    for group in groups.values():
        for place, excluded in zip(group.places, excluded_files(group.handles, group.query), strict=True):
            out[place] = excluded
    return out


@dataclass(frozen=True, slots=True, eq=False)
class BlockExclusion:
    """Which files of a block need not be opened, by what its source knows."""

    excluded: Bools
    """For each file."""
    by_partition: int
    """How many of them the partition values alone rule out."""


def excluded_by_bounds(block: FileBlock, question: Question) -> BlockExclusion | None:
    """Return which files of a block what its source knows excludes; None where that excludes none.

    Bounds count for files of a known version. Partition values that the source has as columns count for all
    files.
    """
    bound = question.compiled.bound
    if bound is None or not (block.bounds or block.partition_values):
        return None
    n = len(block.files)
    num_rows = known_counts(block.num_rows, n)
    bounds: dict[tuple[str, ...], Bounds] = {}
    constants: dict[tuple[str, ...], Bounds] = {}
    for column in bound.columns:
        if len(column.path) == 1 and column.path[0] in question.partition_names:
            given = block.partition_values.get(column.path[0])
            if given is not None and _is_exact(given, column.type):
                rows = np.where(num_rows < 0, 1, num_rows)
                constants[column.path] = constants_bounds(given, kind=column.type, num_values=rows)
        elif column.path in block.bounds:
            bounds[column.path] = block.bounds[column.path].judged(column.type, num_rows)
    excluded = np.zeros(n, bool)
    if constants:
        excluded |= ~prune(bound, constants, n).may_true
    by_partition = int(excluded.sum())
    if bounds:
        excluded |= known_files(block) & ~prune(bound, {**bounds, **constants}, n).may_true
    return BlockExclusion(excluded, by_partition) if bool(excluded.any()) else None


def excluded_by_values(bound: Bound, values: Mapping[str, pa.Array], n: int) -> Bools:
    """Return for each of `n` partitions whether its values exclude it.

    Parameters
    ----------
    bound : Bound
        The predicate, bound to columns of the types of the values.
    values : mapping of str to pyarrow.Array
        By the name of a column, its value in each partition.
    n : int
    """
    ones = np.ones(n, np.int64)
    constants: dict[tuple[str, ...], Bounds] = {
        column.path: constants_bounds(values[column.path[0]], kind=column.type, num_values=ones)
        for column in bound.columns
        if len(column.path) == 1
    }
    return ~prune(bound, constants, n).may_true


def known_files(block: FileBlock) -> Bools:
    """Return which files of a block are of a known version, so that bounds count."""
    files = block.files
    if isinstance(files, FileColumns):
        return files.known
    return np.array([file.immutable or file.etag is not None for file in files], bool)


def _is_exact(values: pa.Array, kind: pa.DataType) -> bool:
    """Return whether the values of a partition column are of its type in the data set, or cast to it."""
    if values.type.equals(kind):
        return True
    try:
        values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


@dataclass(slots=True, eq=False)
class _Group:
    """Files that share a compiled question, and their places."""

    query: FileQuery
    places: list[int] = field(default_factory=list)
    handles: list[FileHandle] = field(default_factory=list)


def _shared_query(
    file: FileEntry,
    question: Question,
    constants: Callable[[FileEntry, pa.Schema], Mapping[str, pa.Scalar]],
    file_schema: ParquetSchema,
    arrow_schema: pa.Schema,
) -> tuple[FileQuery, object]:
    """Return the compiled question of a file, and a key that is equal for files that share it."""
    query = compile_query(
        question,
        file_schema=file_schema,
        arrow_schema=arrow_schema,
        partition={},
        url=file.url,
    )
    values = constants(file, arrow_schema)
    if not values or query.constants.keys().isdisjoint((name,) for name in values):
        return query, id(query)
    return with_partition(query, values), (id(query), file.partition, id(file.columns))
