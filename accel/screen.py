"""Opened files that are judged together where several are at hand, before any is planned by itself.

What is dropped is what planning would drop, and for the same reason (`planning.screening`).
"""

from __future__ import annotations

import asyncio

from accel.errors import AccelError
from accel.planning.file import DataFile
from accel.planning.handle import FileHandle
from accel.planning.paths import PathValues
from accel.planning.query import FileQuery, Question, compile_query, with_partition
from accel.planning.screening import excluded_files

__all__ = ["Screen", "shared_query"]

# Files; fewer are planned as soon as judged.
_FEWEST = 3

_Waiting = tuple[FileQuery, object, FileHandle, "asyncio.Future[bool]"]


class Screen:
    """Where a session's files go once they are open. Used on one event loop."""

    def __init__(self, paths: PathValues) -> None:
        self._paths = paths
        self._waiting: list[_Waiting] = []

    async def excludes(self, file: DataFile, handle: FileHandle, question: Question) -> bool:
        """Whether statistics and path are known to exclude a file; False too where it is alone."""
        # A table of indexes that does not verify is told of, whatever the statistics say.
        if handle.bad_toc is not None:
            return False
        try:
            query, key = shared_query(file, handle, question, self._paths)
        except AccelError:
            return False  # planning says what is wrong
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((query, key, handle, found))
        if len(self._waiting) == 1:
            loop.call_soon(self._judge)
        return await found

    def _judge(self) -> None:
        waiting, self._waiting = self._waiting, []
        alike: dict[object, list[_Waiting]] = {}
        try:
            for one in waiting:
                alike.setdefault(one[1], []).append(one)
            for some in alike.values():
                if len(some) < _FEWEST:
                    continue
                verdicts = excluded_files([handle for _, _, handle, _ in some], some[0][0])
                for (_, _, _, found), verdict in zip(some, verdicts, strict=True):
                    if not found.done():
                        found.set_result(verdict)
        finally:
            for _, _, _, found in waiting:
                if not found.done():
                    found.set_result(False)


def shared_query(
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
