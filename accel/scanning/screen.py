"""Opened files judged together, before any is planned by itself.

What is dropped is what planning would drop, and for the same reason (`planning.screening`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from accel.errors import AccelError
from accel.planning.file import DataFile
from accel.planning.handle import FileHandle
from accel.planning.paths import PathValues
from accel.planning.query import FileQuery, Question, compile_query, with_partition
from accel.planning.screening import excluded_files

__all__ = ["excluded_together"]


def excluded_together(
    opened: Sequence[tuple[DataFile, FileHandle]],
    question: Question,
    *,
    paths: PathValues,
    check: Callable[[DataFile, FileHandle], None],
    schema_of: Callable[[FileHandle], pa.Schema],
) -> list[bool]:
    """Of each file, whether statistics and path are known to exclude it.

    Parameters
    ----------
    opened : sequence of (DataFile, FileHandle)
    question : Question
    paths : PathValues
    check : callable
        Raises AccelError for a file that is not to be judged: planned in its turn, it says what is wrong.
    schema_of : callable
        The Arrow schema that a file is read with.
    """
    out = [False] * len(opened)
    groups: dict[object, _Group] = {}
    # What the question comes to is the same for files that agree on this.
    asked: dict[tuple[int, int, tuple[object, ...]], _Group] = {}
    for place, (file, handle) in enumerate(opened):
        # A table of indexes that does not verify is told of, whatever the statistics say.
        if handle.bad_toc is not None:
            continue
        try:
            check(file, handle)
            form = id(handle.kin.schema), id(handle.arrow_schema), file.partition
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


@dataclass(slots=True, eq=False)
class _Group:
    """Files of which the same is asked, and their places."""

    query: FileQuery
    places: list[int] = field(default_factory=list)
    handles: list[FileHandle] = field(default_factory=list)


def _shared_query(
    file: DataFile, handle: FileHandle, question: Question, paths: PathValues, arrow_schema: pa.Schema
) -> tuple[FileQuery, object]:
    """What the statistics of a file are asked, and a key that is equal for files that share it."""
    query = compile_query(
        question,
        file_schema=handle.kin.schema,
        arrow_schema=arrow_schema,
        partition={},
        url=file.url,
    )
    if not file.partition or query.constants.keys().isdisjoint((n,) for n in question.partition_names):
        return query, id(query)
    return with_partition(query, paths.of(file, question)), (id(query), file.partition)
