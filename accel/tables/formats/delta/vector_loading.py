"""Loads deletion vectors: those of files that are planned, all that are asked for of one object together."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from accel.cache.cache_key import CacheKey, Entry
from accel.errors import AccelError, TableFormatError
from accel.planning.deleted_rows import DeletedRows
from accel.ranges import ByteRange
from accel.scanning.file_source import SourceRequest
from accel.tables.deletion_vectors import rows_of_bitmap, rows_of_vector
from accel.tables.formats.delta.deletion_vectors import VectorPlace
from accel.tables.metadata_objects import MetadataObjects

__all__ = ["VectorLoader"]

_TURNS: Final = 3
"""Turns of the event loop that the first question for an object waits for others."""
_ROW_BYTES: Final = 8


class VectorLoader:
    """Loads the deletion vectors of a run. Used on the I/O loop.

    Parameters
    ----------
    request : SourceRequest
    objects : MetadataObjects
    """

    def __init__(self, request: SourceRequest, objects: MetadataObjects) -> None:
        self._cache = request.reader.cache
        self._memory_limit = request.reader.options.memory_limit
        self._objects = objects
        self._waiting: dict[str, list[tuple[ByteRange, asyncio.Future[memoryview]]]] = {}

    def deleted_rows(self, place: VectorPlace, url: str | None) -> DeletedRows:
        """Return the rows that a vector names, to be loaded when their file is planned.

        Parameters
        ----------
        place : VectorPlace
        url : str, optional
            The object that has it; None for one in the log.
        """

        async def load() -> Any:
            # A small bitmap may stand for more rows than fit.
            if place.cardinality * _ROW_BYTES > self._memory_limit:
                raise TableFormatError(
                    f"a deletion vector of {place.cardinality:,} rows takes more than `options.memory_limit`",
                    path=url,
                )
            if place.inline is not None:
                return rows_of_bitmap(place.inline, cardinality=place.cardinality)
            return await self._load(place, url)

        return DeletedRows.later(load, count=place.cardinality)

    async def _load(self, place: VectorPlace, url: str | None) -> Any:
        if url is None or place.part is None:
            raise TableFormatError("a deletion vector has no place")
        client, location = self._objects.locate(url)
        key = CacheKey(client.token, location.path, None, Entry.TABLE, place.part)
        rows = self._cache.get(key)
        if rows is None:
            data = await self._bytes(url, place.part)
            try:
                rows = rows_of_vector(data, cardinality=place.cardinality)
            except AccelError as error:
                raise error.at(path=url) from error.__cause__
            self._cache.put(key, rows, rows.nbytes)
        return rows

    async def _bytes(self, url: str, part: ByteRange) -> memoryview:
        """Return a part of an object, in one request with the parts that others ask for at the same time."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        batch = self._waiting.get(url)
        if batch is not None:
            batch.append((part, answer))
            return await answer
        batch = self._waiting[url] = [(part, answer)]
        try:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            del self._waiting[url]
            parts = await self._objects.read_parts(url, [one for one, _ in batch])
        except BaseException as error:
            self._waiting.pop(url, None)
            for _, future in batch[1:]:
                if not future.done():
                    if isinstance(error, Exception):
                        future.set_exception(error)
                    else:
                        future.cancel()
            raise
        for (_, future), data in zip(batch, parts, strict=True):
            if not future.done():
                future.set_result(data)
        return parts[0]
