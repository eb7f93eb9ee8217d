"""A block of files pruned together, before any of them is planned by itself.

It prunes what planning would prune, for the same reasons (`planning.pruning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from accel.errors import AccelError
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.partition_pruning import PartitionValues
from accel.planning.pruning import excluded_files
from accel.planning.query import FileQuery, Question, compile_query, with_partition
from accel.predicate.bind import Bound
from accel.predicate.prune import prune, range_bounds
from accel.store.fetch import same_etag

__all__ = ["excluded_by_facts", "excluded_together"]


def excluded_together(
    opened: Sequence[tuple[FileEntry, FileHandle]],
    question: Question,
    *,
    paths: PartitionValues,
    check: Callable[[FileEntry, FileHandle], None],
    schema_of: Callable[[FileHandle], pa.Schema],
) -> list[bool]:
    """Return for each file whether statistics and path exclude it.

    Parameters
    ----------
    opened : sequence of (FileEntry, FileHandle)
    question : Question
    paths : PartitionValues
    check : callable
        Raises AccelError for a file that is not to be pruned: the error is raised when its turn comes.
    schema_of : callable
        The Arrow schema that a file is read with.
    """
    out = [False] * len(opened)
    groups: dict[object, _Group] = {}
    # Files that agree on this share the compiled question.
    asked: dict[tuple[int, int, tuple[object, ...]], _Group] = {}
    for place, (file, handle) in enumerate(opened):
        # A table of indexes that does not verify is reported, whatever the statistics prove.
        if handle.bad_toc is not None:
            continue
        try:
            check(file, handle)
            form = id(handle.shared.schema), id(handle.arrow_schema), file.partition
            group = asked.get(form)
            if group is None:
                query, key = _shared_query(file, handle, question, paths, schema_of(handle))
                group = asked[form] = groups.setdefault(key, _Group(query))
        except AccelError:
            continue
        group.places.append(place)
        group.handles.append(handle)
    for group in groups.values():
        for place, excluded in zip(group.places, excluded_files(group.handles, group.query), strict=True):
            out[place] = excluded
    return out


def excluded_by_facts(files: Sequence[FileEntry], question: Question) -> list[bool]:
    """Return for each file whether the facts of its source exclude it, before it is opened.

    Facts count for the version that the entry itself is of, as a listing shows it.
    """
    bound = question.compiled.bound
    return [bound is not None and _is_outside(file, bound) for file in files]


def _is_outside(file: FileEntry, bound: Bound) -> bool:
    facts = file.facts
    if facts is None or not facts.bounds or facts.all_match or file.etag is None or facts.etag is None:
        return False
    if file.size != facts.size or not same_etag(file.etag, facts.etag):
        return False
    bounds = {}
    for column in bound.columns:
        values = facts.bounds.get(column.path)
        if values is not None:
            bounds[column.path] = range_bounds(
                values.lower,
                values.upper,
                kind=column.type,
                num_values=-1 if values.num_rows is None else values.num_rows,
                null_count=values.null_count,
                nan_count=values.nan_count,
            )
    return not bool(prune(bound, bounds, 1).may_true[0])


@dataclass(slots=True, eq=False)
class _Group:
    """Files that share a compiled question, and their places."""

    query: FileQuery
    places: list[int] = field(default_factory=list)
    handles: list[FileHandle] = field(default_factory=list)


def _shared_query(
    file: FileEntry, handle: FileHandle, question: Question, paths: PartitionValues, arrow_schema: pa.Schema
) -> tuple[FileQuery, object]:
    """Return the compiled question of a file, and a key that is equal for files that share it."""
    query = compile_query(
        question,
        file_schema=handle.shared.schema,
        arrow_schema=arrow_schema,
        partition={},
        url=file.url,
    )
    if not file.partition or query.constants.keys().isdisjoint((n,) for n in question.partition_names):
        return query, id(query)
    return with_partition(query, paths.of(file, question)), (id(query), file.partition)
