"""A DuckLake table as a source: `accel.tables.ducklake`."""

from __future__ import annotations

import datetime
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import Int64s, make_scalar
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import AccelError, TableFormatError, forget_frames, redact
from accel.planning.column_mapping import ColumnMapping
from accel.planning.evolution import Evolution, FieldDefaults
from accel.planning.file_entry import FileBlock
from accel.planning.promotion import Promotion
from accel.predicate.atoms import Bound, BoundColumn
from accel.predicate.bind import bind
from accel.predicate.expr import Expr
from accel.runtime.threads import DATABASES
from accel.scanning.file_source import SourceRequest
from accel.store.fetch import Retry
from accel.store.identity import StorageOptions
from accel.tables.formats.ducklake.data_paths import DataPaths
from accel.tables.formats.ducklake.databases import DuckLakeDatabase, Session, database_at
from accel.tables.formats.ducklake.deletes import LakeDeletes
from accel.tables.formats.ducklake.files import FilePage, read_deleted_rows, read_files
from accel.tables.formats.ducklake.inlined import carried_rows, defaults_below, read_inlined
from accel.tables.formats.ducklake.mappings import LakeMappings
from accel.tables.formats.ducklake.metadata import (
    LakeVersion,
    TableName,
    find_version,
    read_mappings,
    read_state,
)
from accel.tables.formats.ducklake.statistics import JudgedColumn, column_bounds, family_of
from accel.tables.formats.ducklake.types import LakeColumn
from accel.tables.table import Snapshot, Table, TableSource

__all__ = ["DuckLakeTable", "ducklake"]

_FOOTER_END: Final = 8
"""Bytes behind a footer: its length, and the magic."""
_OTHERS_END: Final = 128 << 10
"""Bytes of the end of a file that another writer has made: DuckDB writes no page index, others do."""
_LEAST_BYTES: Final = 10_000
"""Bytes that what is known of a table takes at least in a cache."""


def ducklake(
    catalog: str,
    table: str,
    *,
    version: int | None = None,
    timestamp: datetime.datetime | str | None = None,
    data_path: str | None = None,
    allowed_stores: Sequence[str] = (),
    storage_options: StorageOptions | None = None,
) -> DuckLakeTable:
    """Return a table of a DuckLake, to be scanned.

    Parameters
    ----------
    catalog : str
        The database that holds the catalog: `sqlite:///relative.db`, `sqlite:////absolute.db`,
        `postgresql://user:password@host/database`, or `duckdb:///file.ducklake`.
    table : str
        `schema.table`; without a schema, a table of `main`.
    version : int, optional
        The snapshot; the newest one by default.
    timestamp : datetime or str, optional
        The newest snapshot that is not younger: a time, or its ISO text; UTC where it has no zone.
    data_path : str, optional
        Where the data are, if they are elsewhere than the catalog says.
    allowed_stores : sequence of str, optional
        URLs of other stores than that of the data, in which the table may name files that were added.
    storage_options : mapping, optional
        Those of the files, as `accel.scan` takes them.

    Returns
    -------
    DuckLakeTable
        A source for `accel.scan` and the other functions that take one. It pickles, with the URL as given.

    Raises
    ------
    StoreError
        The URL is none of these.
    ValueError
        The name is none, or both version and timestamp are given.

    Examples
    --------
    >>> accel.scan(accel.tables.ducklake("sqlite:///lake.db", "main.events", version=7), "id = 3").to_table()
    """
    moment = timestamp
    if isinstance(moment, str):
        moment = datetime.datetime.fromisoformat(moment)
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    if version is not None and moment is not None:
        raise ValueError("a version and a timestamp are given: give one of them")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise TypeError(f"a version is an int, not a {type(version).__name__}")
    try:
        database = database_at(catalog)
    except AccelError as error:
        del catalog  # a password must not stay in the variables of a frame that a traceback may show
        forget_frames(error)
        raise
    return DuckLakeTable(
        catalog,
        TableName.parse(table),
        version,
        moment,
        data_path,
        tuple(allowed_stores),
        storage_options,
        shown=str(database),
    )


open_in_catalog = ducklake
"""See `accel.tables.table_formats.FormatModule`."""


@dataclass(frozen=True, slots=True, repr=False)
class DuckLakeTable(Table):
    """A table as `accel.tables.ducklake` names it."""

    format: ClassVar[str] = "DuckLake"

    catalog: str
    name: TableName
    version: int | None = None
    moment: datetime.datetime | None = None
    data_path: str | None = None
    allowed_stores: tuple[str, ...] = ()
    options: StorageOptions | None = None
    shown: str = field(default="", kw_only=True)

    @property
    def location(self) -> str:
        """The catalog without credentials, and the name of the table."""
        return f"{self.shown}/{self.name}"

    @property
    def storage_options(self) -> StorageOptions | None:
        """The storage options of its files."""
        return self.options

    def source(self) -> DuckLakeSource:
        """Return a source that serves one run."""
        return DuckLakeSource(self)

    def __repr__(self) -> str:
        return f"DuckLakeTable({self.location!r})"


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is the same for all filters."""

    state: tuple[Any, ...]
    """That of the catalog at that time."""
    found: LakeVersion
    schema: pa.Schema
    evolution: Evolution
    mappings: LakeMappings
    inlined: Sequence[pa.RecordBatch]

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return _LEAST_BYTES + sum(int(batch.nbytes) for batch in self.inlined)


@dataclass(frozen=True, slots=True, eq=False)
class _Matching:
    """The files that a filter leaves."""

    known: _Known
    pages: Sequence[FilePage]
    judged: Sequence[JudgedColumn]
    deleted: Mapping[int, Int64s]
    """By the id of a file, the rows that the catalog itself says are deleted."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        rows = sum(int(rows.nbytes) for rows in self.deleted.values())
        return _LEAST_BYTES + rows + sum(page.nbytes for page in self.pages)


@dataclass(frozen=True, slots=True)
class _Checked:
    """When a catalog was found to be in a state (monotonic clock)."""

    known: _Known
    at: float


class DuckLakeSource(TableSource):
    """The files of a DuckLake table in one version.

    All questions are asked in one transaction, when the version is asked for, so that they agree. The answers
    are cached: while the catalog stays as it is, it is asked for its newest snapshot alone.
    """

    def __init__(self, table: DuckLakeTable) -> None:
        super().__init__(table)
        self._table = table
        self._found: _Matching | None = None

    async def open(self, request: SourceRequest) -> Snapshot:
        """Find the version, and the files that may match."""
        table, cache = self._table, request.reader.cache
        try:
            database = database_at(table.catalog)
            key = CacheKey(database.key, str(table.name), (table.version, table.moment), Entry.TABLE)
            place = key._replace(place=("files", request.where))
            checked: _Checked | None = cache.get(key)
            matching: _Matching | None = cache.get(place)
            known = None if checked is None else checked.known
            if matching is not None and matching.known is not known:
                matching = None
            now = time.monotonic()
            if checked is None or matching is None or now - checked.at >= cache.max_age:
                ask = partial(self.ask, request.where, known, matching)
                found, session = await _read(database, ask, request)
                facts = request.reader.metrics.table
                if facts is not None:
                    facts.log_requests += session.queries
                cache.put(key, _Checked(found.known, now), found.known.nbytes)
                cache.put(place, found, found.nbytes)
                matching = found
        except AccelError as error:
            raise error.at(path=table.location) from None
        self._found = matching
        lake = matching.known.found
        properties: dict[str, Any] = {"data_path": redact(lake.data_path), "files": lake.files}
        if request.where is None:
            properties |= _totals(matching)
        return Snapshot(
            version=lake.version,
            schema=matching.known.schema,
            evolution=matching.known.evolution,
            properties=properties,
        )

    def ask(
        self, where: Expr | None, known: _Known | None, matching: _Matching | None, session: Session
    ) -> tuple[_Matching, Session]:
        """Ask what is not known; in a thread."""
        table = self._table
        state = read_state(session)
        if known is not None and known.state == state:
            if matching is not None:
                return matching, session
        else:
            found = find_version(
                session, table.name, newest=state[0], version=table.version, moment=table.moment
            )
            schema = pa.schema([column.arrow_field() for column in found.columns])
            mappings = LakeMappings(found, read_mappings(session, found))
            evolution = Evolution(Promotion.SQL, FieldDefaults(dict(defaults_below(found.columns))))
            inlined = read_inlined(session, found, schema, evolution)
            known = _Known(state, found, schema, evolution, mappings, inlined)
        bound = _bound(where, known.schema)
        judged = [] if bound is None else [_judged(one, known.found.columns) for one in bound.columns]
        pages = read_files(session, known.found, bound, judged)
        deleted = read_deleted_rows(session, known.found, pages)
        used = tuple({one.column: one for one in judged if one is not None}.values())
        return _Matching(known, pages, used, deleted), session

    async def files(self, request: SourceRequest, snapshot: Snapshot) -> AsyncIterator[FileBlock]:
        """Yield the files that may match, then the rows that are in none."""
        matching = self._found
        if matching is None:
            raise TableFormatError("the catalog was not asked")
        known = matching.known
        try:
            paths = DataPaths.of(known.found, self._table.data_path, allowed=self._table.allowed_stores)
            deletes = LakeDeletes(request, paths, known.found.version)
            name = f"{self._table.location}/inlined"
            inlined = carried_rows(known.inlined, known.schema, name)
            pages = [page for page in matching.pages if len(page)] or [FilePage((), matching.judged)]
            blocks = [self._block(request, matching, page, paths, deletes) for page in pages]
        except AccelError as error:
            raise error.at(path=self._table.location) from None
        if inlined:
            blocks.append(FileBlock(tuple(inlined), pa.schema([]), 0))
        facts = request.reader.metrics.table
        if facts is not None:
            # Files that do not match are left in the catalog; inlined rows are in none.
            left_out = known.found.files - sum(map(len, matching.pages))
            facts.files += left_out - len(inlined)
            facts.excluded_by_bounds += left_out
        for number, block in enumerate(blocks, 1):
            yield replace(block, more=number < len(blocks))

    def _block(
        self,
        request: SourceRequest,
        matching: _Matching,
        page: FilePage,
        paths: DataPaths,
        deletes: LakeDeletes,
    ) -> FileBlock:
        columns, known = page.columns, matching.known
        urls = paths.urls(columns["path"], columns["relative"])
        none = np.zeros(0, np.int64)
        gone = {
            place: deletes.of(file, matching.deleted.get(file.id, none))
            for place in page.changed(known.found.version, matching.deleted)
            for file in (page.file(place),)
        }
        mappings: ColumnMapping | list[ColumnMapping] = known.mappings.own
        if columns["mapping"].null_count < len(page):
            pairs = zip(columns["mapping"].to_pylist(), urls.to_pylist(), strict=True)
            mappings = [known.mappings.of(mapping, url) for mapping, url in pairs]
        return request.block(
            urls,
            sizes=columns["size"],
            immutable=True,
            num_rows=columns["rows"],
            bounds={one.path: column_bounds(one, page.statistics[one.column]) for one in matching.judged},
            deleted=gone,
            columns=mappings,
            footers=_ends(columns["footer"], columns["mapping"]),
            round_trips=1,
        )


async def _read(
    database: DuckLakeDatabase, ask: Callable[[Session], tuple[_Matching, Session]], request: SourceRequest
) -> tuple[_Matching, Session]:
    """Ask in one transaction, and again where the database did not answer: a transaction only reads."""
    metrics = request.reader.metrics
    return await Retry.of(request.reader.options).run(
        lambda: DATABASES.run(database.read, ask), on_retry=lambda: metrics.add("retries")
    )


def _ends(footers: pa.Array, mappings: pa.Array) -> pa.Array:
    """Return how many bytes of the end of each file to read first; files with a mapping are others'."""
    exact = pc.add(footers, make_scalar(_FOOTER_END, pa.int64()))
    others = pc.max_element_wise(exact, make_scalar(_OTHERS_END, pa.int64()))
    return pc.if_else(pc.is_valid(mappings), others, exact)


def _totals(matching: _Matching) -> dict[str, int]:
    """Return what all files of a version come to."""
    sums = {name: 0 for name in ("size", "delete_rows")}
    for page in matching.pages:
        for name in sums:
            sums[name] += pc.sum(page.columns[name]).as_py() or 0
    return {
        "bytes": sums["size"],
        "deleted_rows": sums["delete_rows"] + sum(map(len, matching.deleted.values())),
        "inlined_rows": sum(batch.num_rows for batch in matching.known.inlined),
    }


def _bound(where: Expr | None, schema: pa.Schema) -> Bound | None:
    if where is None:
        return None
    try:
        return bind(where, schema)
    except AccelError:
        # The scan says so, with the schema that it settles.
        return None


def _judged(column: BoundColumn, columns: Sequence[LakeColumn]) -> JudgedColumn | None:
    """Return the column of a filter whose statistics count; None for those that have none."""
    below: Sequence[LakeColumn] = columns
    found: LakeColumn | None = None
    for depth, name in enumerate(column.path):
        if depth and (found is None or found.type.lower() != "struct"):
            return None
        found = next((one for one in below if one.name == name), None)
        if found is None:
            return None
        below = found.children
    family = None if found is None or found.children else family_of(found.type)
    if found is None or family is None:
        return None
    return JudgedColumn(column.path, found.id, family, column.type, len(column.path) > 1)
