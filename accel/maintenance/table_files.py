"""The files of a directory that a job is about: their versions, their one schema, and the folders that their
rows stay in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import SchemaMismatchError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Int96Unit, Options
from accel.planning.data_set import UnionSchema
from accel.planning.file_entry import FileEntry
from accel.reader.reader import Reader
from accel.store.client import Client
from accel.store.clients import Clients
from accel.store.location import Location
from accel.tables.journal import partition_folder
from accel.tables.path_source import PathRules, discover
from accel.versions import is_weak
from accel.writing.merged_footers import MergedFooters
from accel.writing.stored_types import SeenTypes, StoredTypes

__all__ = ["TableFiles", "list_table", "open_table"]

_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """The files of a table."""

    files: tuple[FileEntry, ...]
    paths: tuple[str, ...]
    """The path of each below the directory."""
    schema: pa.Schema
    """The columns of all of them."""
    stored: StoredTypes
    """The same, and how they are stored."""
    num_rows: Mapping[str, int]
    """By path."""

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size or 0 for file in self.files)

    def folders(self) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the files of each partition folder: their rows stay there. Of others it is
        ""."""
        found: dict[str, list[int]] = {}
        for number, path in enumerate(self.paths):
            found.setdefault(partition_folder(path), []).append(number)
        return found


async def list_table(
    directory: Location,
    text: str,
    clients: Clients[Client],
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
        clients=clients,
        rules=PathRules(partitioning=None, glob=False, in_store=in_store),
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
    clients: Clients[Client],
    *,
    options: Options,
    metrics: Metrics,
) -> TableFiles:
    """Open all files, and settle the columns of the table.

    Raises
    ------
    SchemaMismatchError
        A column has types of which none holds the values of the others, or the files mean dates of different
        calendars.
    AccelError
        A file cannot be read.
    """
    reader = Reader(clients, cache=Cache(memory=64 * MIB, data=0), options=options, metrics=metrics)
    # A struct has the fields of all files: what a file has is lost otherwise.
    union = UnionSchema()
    seen, footers = SeenTypes(), MergedFooters()
    rows: dict[str, int] = {}
    for start in range(0, len(files), _BLOCK):
        block = files[start : start + _BLOCK]
        for file, path, handle in zip(block, paths[start:], await reader.open_all(block), strict=False):
            schema = handle.arrow_schema
            union.add(schema, url=file.url)
            seen.add(handle.shared.schema, schema, handle.shared.key_value, url=file.url)
            footers.add(schema.metadata or {}, url=file.url)
            rows[path] = handle.num_rows
    schema = union.schema
    schema = schema.with_metadata(footers.settle(schema.names))
    if seen.instants is not None:
        _check_unit(seen.instants, options)
    return TableFiles(
        files=tuple(files), paths=tuple(paths), schema=schema, stored=seen.settle(schema), num_rows=rows
    )


def _check_unit(column: str, options: Options) -> None:
    """Refuse to change the meaning of INT96."""
    if options.int96_unit != Int96Unit.AUTO:
        raise SchemaMismatchError(
            f"column {column!r} is INT96, which a rewrite keeps as it is, in no unit",
            hint="leave out int96_unit",
        )
