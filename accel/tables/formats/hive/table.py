"""Tables of a Hive Metastore as sources of a scan."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import AccelError, TableFormatError, forget_frames
from accel.planning.file_entry import FileBlock
from accel.predicate.expr import Expr
from accel.runtime.tasks import ending
from accel.scanning.file_source import SourceRequest
from accel.store.identity import StorageOptions
from accel.tables.formats.hive.described import (
    DescribedTable,
    OtherFormat,
    check_partition,
    other_format,
)
from accel.tables.formats.hive.filters import filter_text
from accel.tables.formats.hive.locations import list_locations
from accel.tables.formats.hive.metastore import Conversation, RefusedError, metastore_at
from accel.tables.formats.hive.partition_values import (
    about_keys,
    partition_arrays,
    ruled_in,
    texts_of,
    texts_of_names,
)
from accel.tables.metadata_objects import MetadataObjects
from accel.tables.table import Snapshot, Table, TableSource

__all__ = ["HiveTable", "hive"]

T = TypeVar("T")

_PER_BLOCK: Final = 100_000
_BYTES_OF_TABLE: Final = 4_096
_BYTES_OF_PARTITION: Final = 512


def hive(
    metastore: str | Sequence[str],
    table: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> HiveTable:
    """Name a table of a Hive Metastore as the source of a scan. No I/O happens.

    Parameters
    ----------
    metastore : str or sequence of str
        `thrift://host:9083`; several, in a list or separated by commas, are tried in turn.
    table : str
        `database.table`; without a database, a table of `default`. Case does not matter.
    storage_options : mapping, optional
        Those of the table's files, where the scan is given none.

    Returns
    -------
    HiveTable
        A source of `accel.scan`, `accel.plan`, `accel.distinct` and `accel.spark.read`.

    Raises
    ------
    StoreError
        The URL is none of a metastore.
    ValueError
        The name is none of a table.

    Examples
    --------
    >>> accel.scan(accel.tables.hive("thrift://host:9083", "db.events"), "day = '2024-02-01'").to_table()
    """
    try:
        return HiveTable(metastore, table, storage_options=storage_options)
    except AccelError as error:
        del metastore  # a password must not stay in the variables of a frame that a traceback may show
        forget_frames(error)
        raise


def open_in_catalog(catalog: str, name: str, **options: Any) -> HiveTable:
    """Return the table of a metastore; see `accel.tables.table_formats.FormatModule`.

    Raises
    ------
    ValueError
        A version is asked for.
    """
    if "version" in options or "timestamp" in options:
        raise ValueError("a table of a Hive Metastore has one version: give no version and no timestamp")
    return hive(catalog, name, **options)


class HiveTable(Table):
    """A table of a Hive Metastore, as `accel.tables.hive` makes it.

    Parameters
    ----------
    metastore, table, storage_options
        As for `accel.tables.hive`.
    """

    format: ClassVar[str] = "Hive"

    def __init__(
        self,
        metastore: str | Sequence[str],
        table: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.metastore = metastore_at(metastore)
        if not isinstance(table, str):
            raise TypeError(f"the name of a table is a text, not a {type(table).__name__}")
        if not re.fullmatch(r"(?:[^./\s]+\.)?[^./\s]+", table):
            raise ValueError(f"a table is named by database.table, not {table!r:.80}")
        database, _, name = table.rpartition(".")
        self.database, self.name = (database or "default").lower(), name.lower()
        self._storage_options = None if storage_options is None else dict(storage_options)

    @property
    def location(self) -> str:
        """The metastore, and the name of the table."""
        return f"{self.metastore}/{self.database}.{self.name}"

    @property
    def storage_options(self) -> StorageOptions | None:
        """The storage options of its files, where the scan is given none."""
        return self._storage_options

    def source(self) -> HiveSource:
        """Return a source that serves one run."""
        return HiveSource(self)

    def __repr__(self) -> str:
        return f"accel.tables.hive({str(self.metastore)!r}, '{self.database}.{self.name}')"


@dataclass(frozen=True, slots=True, eq=False)
class _Partitions:
    """Some partitions of a table, in the order of their values."""

    values: Mapping[str, pa.Array]
    """By the name of a partition column, its value in each partition."""
    locations: Sequence[str]
    all: bool
    """Whether the table has no others."""


class HiveSource(TableSource):
    """The files of a table of a Hive Metastore, as it names them at this moment.

    Parameters
    ----------
    table : HiveTable
    """

    def __init__(self, table: HiveTable) -> None:
        super().__init__(table)
        self._hive = table
        self._described: DescribedTable | None = None
        self._other: TableSource | None = None
        """The source of a table of another format, which the metastore only names."""
        self._requests = 0

    async def open(self, request: SourceRequest) -> Snapshot:
        """Ask the metastore for the table."""
        hive = self._hive
        found = await self._answer(request, ("table",), lambda talk: _ask_for_table(talk, hive), _nbytes)
        if isinstance(found, OtherFormat):
            self._other = _table_of(found, hive).source()
            # The facts of the run become those of the other table.
            snapshot = await self._other.snapshot(request)
            _count(request, self._requests)
            return snapshot
        self._described = found
        return Snapshot(version=found.version, schema=found.columns.schema, properties=found.properties)

    async def files(self, request: SourceRequest, snapshot: Snapshot) -> AsyncIterator[FileBlock]:
        """Yield the files of the partitions that may hold matching rows."""
        if self._other is not None:
            async with ending(self._other.files(request, snapshot)) as blocks:
                async for block in blocks:
                    yield block
            return
        table = self._described
        if table is None:
            raise TableFormatError("the metastore was not asked", path=self.table.location)
        keys = table.columns.keys
        where = None if request.where is None or not keys else about_keys(request.where, keys)
        if keys:
            found = await self._answer(
                request,
                ("partitions", table.version, where),
                lambda talk: _ask_for_partitions(talk, self._hive, table, where),
                lambda one: _BYTES_OF_PARTITION * (1 + len(one.locations)),
            )
            partitions = self._judged(found, where)
        else:
            partitions = _Partitions({}, [table.location], all=False)
        above = table.location if partitions.all else None
        listed = await list_locations(MetadataObjects(request), partitions.locations, above=above)
        files = [file for some in listed for file in some]
        places = np.repeat(np.arange(len(listed)), [len(some) for some in listed])
        mapping = table.columns.in_files
        for start in range(0, max(1, len(files)), _PER_BLOCK):
            part = files[start : start + _PER_BLOCK]
            at = from_numpy(places[start : start + _PER_BLOCK].astype(np.int64))
            yield request.block(
                [file.url for file in part],
                sizes=[file.size for file in part],
                etags=[file.etag for file in part],
                partition={name: values.take(at) for name, values in partitions.values.items()},
                columns=mapping,
                round_trips=2,
                more=start + _PER_BLOCK < len(files),
            )

    def _judged(self, found: _Partitions, where: Expr | None) -> _Partitions:
        """Return those of the partitions that may hold matching rows: a metastore may name others, too."""
        kept = ruled_in(where, found.values, len(found.locations))
        if kept.all():
            return found
        at = np.flatnonzero(kept)
        taken = from_numpy(at.astype(np.int64))
        return _Partitions(
            {name: values.take(taken) for name, values in found.values.items()},
            [found.locations[place] for place in at.tolist()],
            all=False,
        )

    async def _answer(
        self,
        request: SourceRequest,
        what: tuple[object, ...],
        work: Callable[[Conversation], T],
        nbytes: Callable[[T], int],
    ) -> T:
        """Ask the metastore, unless the answer is in the cache and not older than its `max_age`."""
        cache, hive = request.reader.cache, self._hive
        key = CacheKey(f"hive {hive.metastore}", f"{hive.database}.{hive.name}", None, Entry.TABLE, what)
        cached = cache.get(key)
        now = time.monotonic()
        if cached is not None and now - cached[0] < cache.max_age:
            return cached[1]  # type: ignore[no-any-return]
        options = request.reader.options
        metastore = replace(
            hive.metastore, connect_timeout=options.connect_timeout, read_timeout=options.read_timeout
        )

        def counted(talk: Conversation) -> tuple[T, int]:
            return work(talk), talk.requests

        try:
            found, requests = await metastore.run(counted)
        except AccelError as error:
            raise _naming(error, hive) from None
        self._requests += requests
        _count(request, requests)
        cache.put(key, (now, found), nbytes(found))
        return found


def _count(request: SourceRequest, requests: int) -> None:
    facts = request.reader.metrics.table
    if facts is not None:
        facts.log_requests += requests


def _naming(error: AccelError, hive: HiveTable) -> AccelError:
    """Return an error that names the table."""
    return (
        error.of(f"{error.path or hive.metastore}/{hive.database}.{hive.name}")
        if _lacks(error, hive)
        else error
    )


def _lacks(error: AccelError, hive: HiveTable) -> bool:
    return not (error.path or "").endswith(f"/{hive.database}.{hive.name}")


def _nbytes(found: DescribedTable | OtherFormat) -> int:
    columns = 0 if isinstance(found, OtherFormat) else len(found.columns.schema)
    return _BYTES_OF_TABLE + 200 * columns


def _table_of(found: OtherFormat, hive: HiveTable) -> Table:
    """Return a table of another format.

    Raises
    ------
    TableFormatError
        This accel does not read it.
    """
    make = getattr(importlib.import_module("accel.tables"), found.format.lower(), None)
    if make is None:
        raise TableFormatError(
            f"this is a table of {found.format}, which accel does not read from a metastore",
            path=hive.location,
        )
    table: Table = make(found.place, storage_options=hive.storage_options)
    return table


# -- the questions, on a thread ----------------------------------------------------------------------


def _ask_for_table(talk: Conversation, hive: HiveTable) -> DescribedTable | OtherFormat:
    table = talk.table(hive.database, hive.name)
    try:
        found = other_format(table)
    except TableFormatError as error:
        raise error.at(path=hive.location) from None
    return DescribedTable.of(table, shown=hive.location) if found is None else found


def _ask_for_partitions(
    talk: Conversation, hive: HiveTable, table: DescribedTable, where: Expr | None
) -> _Partitions:
    """Ask for the partitions that a predicate may need: by a filter that the metastore evaluates, or else by
    the names of all, of which those are asked for whose values it does not rule out."""
    keys, schema = table.columns.keys, table.columns.schema
    text = None if where is None else filter_text(where, keys, schema)
    found = None
    if text is not None:
        try:
            found = talk.by_filter(hive.database, hive.name, text)
        except RefusedError:
            pass  # this metastore, or its database, cannot say that
    is_all = found is None
    if found is None:
        names = talk.names(hive.database, hive.name)
        texts = None if where is None else texts_of_names(names, list(keys))
        if texts is not None and names:
            try:
                kept = ruled_in(where, partition_arrays(texts, keys, schema), len(names))
            except TableFormatError as error:
                raise error.at(path=hive.location) from None
            is_all = bool(kept.all())
            names = [names[at] for at in np.flatnonzero(kept).tolist()]
        found = list(talk.by_names(hive.database, hive.name, names))
    try:
        found.sort(key=lambda one: one.values or [])
        arrays = partition_arrays(texts_of([one.values or [] for one in found], len(keys)), keys, schema)
        locations = []
        for one in found:
            try:
                locations.append(check_partition(one, table))
            except TableFormatError as error:
                pairs = zip(keys, one.values or (), strict=False)
                raise error.at(
                    place="partition " + "/".join(f"{key}={value}" for key, value in pairs)
                ) from None
    except TableFormatError as error:
        raise error.at(path=hive.location) from None
    return _Partitions(arrays, locations, all=is_all)
