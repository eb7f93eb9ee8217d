"""Deleted rows of a lake's files: by delete files, by the catalog itself, and those of later versions in
files that were merged."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import Int64s
from accel.errors import AccelError, TableFormatError
from accel.planning.deleted_rows import DeletedRows
from accel.runtime.tasks import ending
from accel.scanning.file_source import SourceRequest
from accel.tables.deletion_vectors import rows_of_vector
from accel.tables.formats.ducklake.data_paths import DataPaths
from accel.tables.formats.ducklake.files import LakeFile
from accel.tables.metadata_objects import MetadataObjects

__all__ = ["LakeDeletes"]

_PUFFIN: Final = b"PFA1"
_SNAPSHOT: Final = "_ducklake_internal_snapshot_id"
"""The column that says in which version a row came, in files that were merged."""


class LakeDeletes:
    """Makes the deleted rows of files, which are loaded when a file is planned.

    Parameters
    ----------
    request : SourceRequest
    paths : DataPaths
    version : int
        The version that is read.
    """

    def __init__(self, request: SourceRequest, paths: DataPaths, version: int) -> None:
        self._objects = MetadataObjects(request)
        self._paths = paths
        self._version = version

    def of(self, file: LakeFile, inlined: Int64s) -> DeletedRows:
        """Return the deleted rows of a file.

        Parameters
        ----------
        inlined : array of int64
            Those that the catalog itself names.
        """
        later = file.newest is not None and file.newest > self._version
        if file.delete_path is None and not later:
            return DeletedRows.of(inlined)

        async def load() -> Int64s:
            parts = [inlined]
            if file.delete_path is not None:
                parts.append(await self._from_file(file))
            if later:
                parts.append(await self._later(file))
            return np.concatenate(parts)

        exact = not len(inlined) and not later and file.delete_newest is None
        return DeletedRows.later(load, count=file.delete_rows if exact else None)

    async def _from_file(self, file: LakeFile) -> Int64s:
        """Return the rows that a delete file names."""
        url = self._paths.url(file.delete_path, file.delete_relative)
        later = file.delete_newest is not None and file.delete_newest > self._version
        match str(file.delete_format).lower():
            case "parquet":
                return await self._positions(url, file.delete_size, later)
            case "puffin":
                data = await self._objects.read(url, size=file.delete_size, lasts=True)
                try:
                    return rows_of_vectors(data, file.delete_rows or 0, self._version)
                except AccelError as error:
                    raise error.at(path=url) from None
        raise TableFormatError(f"a delete file is of the format {str(file.delete_format)[:40]!r}", path=url)

    async def _positions(self, url: str, size: int | None, later: bool) -> Int64s:
        where = f"{_SNAPSHOT} <= {self._version}" if later else None
        found = [np.zeros(0, np.int64)]
        async with ending(self._objects.rows([url], where, columns=["pos"], sizes=[size])) as batches:
            async for batch in batches:
                column = batch.column(0)
                if column.null_count or not pa.types.is_integer(column.type):
                    raise TableFormatError("a delete file has other than row numbers", path=url)
                found.append(np.asarray(column).astype(np.int64))
        return np.concatenate(found)

    async def _later(self, file: LakeFile) -> Int64s:
        """Return the rows of a merged file that came after the version."""
        url = self._paths.url(file.path, file.relative)
        start, found = 0, [np.zeros(0, np.int64)]
        async with ending(self._objects.rows([url], columns=[_SNAPSHOT], sizes=[file.size])) as batches:
            async for batch in batches:
                column = batch.column(0)
                if column.null_count or not pa.types.is_integer(column.type):
                    raise TableFormatError(f"rows of the file have no {_SNAPSHOT}", path=url)
                found.append(np.flatnonzero(np.asarray(column) > self._version) + start)
                start += batch.num_rows
        return np.concatenate(found)


def rows_of_vectors(data: memoryview, count: int, version: int) -> Int64s:
    """Return the rows that the deletion vectors of a file name, those of later versions left out.

    A file is one vector, or a Puffin file that has one for each version in which rows were deleted.

    Raises
    ------
    TableFormatError
        It is damaged.
    """
    if bytes(data[:4]) != _PUFFIN:
        return rows_of_vector(data, cardinality=count)
    found = [np.zeros(0, np.int64)]
    for blob in _blobs(data):
        said = blob.get("properties") or {}
        start, length = blob.get("offset"), blob.get("length")
        if (
            blob.get("type") != "deletion-vector-v1"
            or not isinstance(start, int)
            or not isinstance(length, int)
            or not 0 <= start <= start + length <= len(data)
            or not isinstance(said, dict)
        ):
            raise TableFormatError("a Puffin file has other than deletion vectors")
        rows = rows_of_vector(data[start : start + length], cardinality=_number(said.get("cardinality")))
        snapshot = said.get("ducklake-snapshot-id")
        if snapshot is None or _number(snapshot) <= version:
            found.append(rows)
    return np.concatenate(found)


def _number(text: Any) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,18}", text):
        raise TableFormatError(f"a Puffin file has {str(text)[:40]!r} where a number belongs")
    return int(text)


def _blobs(data: memoryview) -> list[dict[str, Any]]:
    """Return what the footer of a Puffin file says of its blobs."""
    length = int.from_bytes(data[-12:-8], "little")
    payload = data[len(data) - 12 - length : len(data) - 12]
    if len(data) < 16 + length or bytes(data[-4:]) != _PUFFIN or any(data[-8:-4]):
        raise TableFormatError("a Puffin file has no footer that accel reads")
    try:
        blobs = json.loads(bytes(payload))["blobs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TableFormatError("the footer of a Puffin file cannot be read") from None
    if not isinstance(blobs, list) or not all(isinstance(blob, dict) for blob in blobs):
        raise TableFormatError("the footer of a Puffin file cannot be read")
    return blobs
