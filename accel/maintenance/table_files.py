"""The files of a directory that a job is about: their versions, their one schema, and the folders that their rows stay in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import SchemaMismatchError, StoreError
from accel.format.footer import ARROW_SCHEMA_KEY
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.conform import joined_type
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.reader.reader import Reader
from accel.store.client import Client
from accel.store.location import Location
from accel.store.range_store import is_weak
from accel.store.request_errors import foremost
from accel.tables.path_source import discover

__all__ = ["TableFiles", "list_table", "open_table"]

_BLOCK = 256
_CALENDARS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Marks of Spark by which the values of a file mean other days."""
_OWN = (b"accel.indexes", b"distinct_index_offset", ARROW_SCHEMA_KEY.encode())
"""Metadata about one file only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """The files of a table."""

    files: tuple[FileEntry, ...]
    paths: tuple[str, ...]
    """The path of each below the directory."""
    schema: pa.Schema
    """The columns of all of them."""
    num_rows: Mapping[str, int]
    """By path."""

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size or 0 for file in self.files)

    def folders(self) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the files of each partition folder: their rows stay there. Of others it is ""."""
        found: dict[str, list[int]] = {}
        for number, path in enumerate(self.paths):
            segments = path.split("/")[:-1]
            spelling = [at for at, segment in enumerate(segments) if "=" in segment]
            depth = spelling[-1] + 1 if spelling else 0
            found.setdefault("".join(f"{segment}/" for segment in segments[:depth]), []).append(number)
        return found


async def list_table(
    directory: Location,
    text: str,
    client_for: Callable[[str], Client],
    *,
    in_store: bool,
    metrics: Metrics,
) -> tuple[list[FileEntry], list[str]]:
    """List the files of a directory, and their paths below it.

    Raises
    ------
    ObjectNotFoundError
        There is none.
    StoreError
        A file has no strong etag, by which a change would be noticed.
    """
    block = await discover(
        text if text.endswith("/") else f"{text}/",
        client_for=client_for,
        partitioning=None,
        glob=False,
        in_store=in_store,
        metrics=metrics,
    )
    base = directory.path
    paths = []
    for file in block.files:
        if file.etag is None or is_weak(file.etag):
            raise StoreError(
                "the store gives the file no strong etag, so a change would not be noticed", path=file.url
            )
        if not file.path.startswith(base):
            raise StoreError("the file does not lie in the directory", path=file.url)
        paths.append(file.path[len(base) :])
    return list(block.files), paths


async def open_table(
    files: Sequence[FileEntry],
    paths: Sequence[str],
    client_for: Callable[[str], Client],
    *,
    options: Options,
    metrics: Metrics,
) -> TableFiles:
    """Open all files, and settle the columns of the table.

    Raises
    ------
    SchemaMismatchError
        A column has types of which none holds the values of the others, or the files mean dates of different calendars.
    AccelError
        A file cannot be read.
    """
    reader = Reader(client_for, cache=Cache(memory=64 * MIB, data=0), options=options, metrics=metrics)
    fields: dict[str, pa.Field] = {}
    everywhere: set[str] | None = None
    shared: dict[bytes, bytes] | None = None
    rows: dict[str, int] = {}
    for start in range(0, len(files), _BLOCK):
        block = files[start : start + _BLOCK]
        for file, path, handle in zip(block, paths[start:], await _open(reader, block), strict=False):
            schema = handle.arrow_schema
            _merge(fields, schema, url=file.url)
            everywhere = set(schema.names) if everywhere is None else everywhere & set(schema.names)
            shared = _common(shared, schema.metadata or {}, url=file.url)
            rows[path] = handle.num_rows
    always = everywhere or set()
    columns = [field if field.name in always else field.with_nullable(True) for field in fields.values()]
    return TableFiles(
        files=tuple(files), paths=tuple(paths), schema=pa.schema(columns, metadata=shared), num_rows=rows
    )


async def _open(reader: Reader, files: Sequence[FileEntry]) -> list[FileHandle]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reader.open(file)) for file in files]
    except BaseExceptionGroup as failures:
        failure = foremost(failures)
    else:
        return [task.result()[0] for task in tasks]
    raise failure


def _merge(fields: dict[str, pa.Field], schema: pa.Schema, *, url: str) -> None:
    """Widen the columns of a table to those of one more file."""
    if len(set(schema.names)) != len(schema.names):
        raise SchemaMismatchError(
            "two columns of the file have one name, and the table would lose one", path=url
        )
    for field in schema:
        first = fields.get(field.name, field)
        # A struct has the fields of all files: what a file has is lost otherwise.
        kind = joined_type(first.type, field.type)
        if kind is None:
            raise SchemaMismatchError(
                f"column {field.name!r} is {field.type} here and {first.type} in files before",
                path=url,
                hint="no type holds both: rewrite these files by themselves",
            )
        fields[field.name] = first.with_type(kind).with_nullable(first.nullable or field.nullable)


def _common(
    shared: dict[bytes, bytes] | None, metadata: Mapping[bytes, bytes], *, url: str
) -> dict[bytes, bytes]:
    own = {key: value for key, value in metadata.items() if key not in _OWN}
    if shared is None:
        return own
    for key in _CALENDARS:
        if (key in own) != (key in shared):
            raise SchemaMismatchError(
                f"the file differs from those before by {key.decode()}: its dates are of another calendar",
                path=url,
                hint="rewrite these files by themselves",
            )
    return {key: value for key, value in shared.items() if own.get(key) == value}
