"""Opened files judged together, before any is planned by itself.

What is dropped is what planning would drop, and for the same reason (`planning.screening`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    paths: PathValues,
    *,
    check: Callable[[DataFile, FileHandle], None],
) -> list[bool]:
    """Of each file, whether statistics and path are known to exclude it.

    Parameters
    ----------
    opened : sequence of (DataFile, FileHandle)
    question : Question
    paths : PathValues
    check : callable
        Raises AccelError for a file that is not to be judged: planned in its turn, it says what is wrong.
    """
    out = [False] * len(opened)
    alike: dict[object, tuple[FileQuery, list[int], list[FileHandle]]] = {}
    asked: dict[object, tuple[FileQuery, object]] = {}
    for place, (file, handle) in enumerate(opened):
        # A table of indexes that does not verify is told of, whatever the statistics say.
        if handle.bad_toc is not None:
            continue
        try:
            check(file, handle)
            # What the question comes to is the same for files that agree on this.
            form = id(handle.metadata.schema), id(handle.arrow_schema), file.partition
            if form not in asked:
                asked[form] = _shared_query(file, handle, question, paths)
            query, key = asked[form]
        except AccelError:
            continue
        _, places, handles = alike.setdefault(key, (query, [], []))
        places.append(place)
        handles.append(handle)
    for query, places, handles in alike.values():
        for place, excluded in zip(places, excluded_files(handles, query), strict=True):
            out[place] = excluded
    return out


def _shared_query(
    file: DataFile, handle: FileHandle, question: Question, paths: PathValues
) -> tuple[FileQuery, object]:
    """What the statistics of a file are asked, and a key that is equal for files that share it."""
    query = compile_query(
        question,
        file_schema=handle.metadata.schema,
        arrow_schema=handle.arrow_schema,
        partition={},
        url=file.url,
    )
    if not file.partition or query.constants.keys().isdisjoint((n,) for n in question.partition_names):
        return query, id(query)
    return with_partition(query, paths.of(file, question)), (id(query), file.partition)
