"""A catalog in a database: the head, and the tables of segments in pages."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
from accel.catalog.head import HEAD_NAME, CatalogHead, Segment, SegmentObject
from accel.catalog.homes.home import CatalogHome
from accel.catalog.homes.sql_database import PAGE_COLUMNS
from accel.catalog.homes.sql_pages import cut_table
from accel.catalog.homes.sql_tables import DatabaseTables
from accel.catalog.kinds.kind import TableRows
from accel.catalog.segments import CatalogSnapshot, SegmentReader
from accel.errors import IndexFormatError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import Kind
from accel.runtime.threads import DATABASES, WORK
from accel.store.location import parse_url
from accel.store.range_store import ObjectEntry
from accel.store.writes import note_written, written_since

if TYPE_CHECKING:
    from accel.catalog.homes.sql_database import Database, Session
    from accel.catalog.homes.sql_pages import Page
    from accel.store.location import Location

__all__ = ["DatabaseHome"]


class DatabaseHome(CatalogHome):
    """One catalog in a database. Used on the I/O loop.

    Parameters
    ----------
    database : Database
    in_store : bool
        The caller gave a store, which holds the files.
    """

    def __init__(self, database: Database, *, in_store: bool) -> None:
        self.database = database
        self.in_store = in_store
        self.key = CacheKey(database.key, HEAD_NAME, None, Entry.CATALOG)

    def __str__(self) -> str:
        return str(self.database)

    def is_in(self, directory: Location) -> bool:
        """Return whether a scan of that directory would take the home for files; see `CatalogHome.is_in`."""
        return False

    def base(self, head: CatalogHead) -> tuple[str, str]:
        """Return the root and the path that the catalog covers; see `CatalogHome.base`."""
        location = parse_url(head.base, in_store=self.in_store)
        return location.root, location.path

    def base_url(self, head: CatalogHead) -> str:
        """Return the directory that the catalog covers, as a source; see `CatalogHome.base_url`."""
        return head.base

    def reader(self, *, cache: Cache | None, options: Options, metrics: Metrics) -> SegmentReader:
        """Return a reader of the tables of a snapshot; see `CatalogHome.reader`."""
        return SegmentReader(DatabaseTables(self.database, metrics=metrics))

    # -- the head --------------------------------------------------------------------------------

    async def load(
        self, cache: Cache | None, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head has it, and the round trips; see `CatalogHome.load`."""
        if cache is None:
            return await self._read(metrics), 1
        cached, now = self.cached(cache), time.monotonic()
        # Taken before the head is read, so that what comes between is noticed the next time.
        state = await self._file_state()
        if cached is not None and cached.file_state == state:
            written = written_since(self.key.store, HEAD_NAME, moment=cached.checked_at)
            if now - cached.checked_at < cache.max_age and not written:
                return cached, 0
        snapshot = await self._read(metrics, cached=cached)
        snapshot.file_state = state
        if snapshot is cached:
            cached.checked_at = now
        else:
            cache.put(self.key, snapshot, snapshot.nbytes)
        return snapshot, 1

    async def _file_state(self) -> object:
        """Return what differs once the file that holds the database was replaced.

        What is cached of its head is not used without a look at the database then.
        """
        return None

    async def read_head(self, metrics: Metrics) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head is now, and the round trips; see `CatalogHome.read_head`."""
        return await self._read(metrics), 1

    async def _read(self, metrics: Metrics, *, cached: CatalogSnapshot | None = None) -> CatalogSnapshot:
        version = "" if cached is None or cached.etag is None else cached.etag
        query = (
            "SELECT version, CASE WHEN version <> ? THEN content END "
            f"FROM {self.database.tables.head} WHERE id = 1"
        )
        now = time.monotonic()
        content: Any = None
        try:
            rows = await DATABASES.run(self.database.read, lambda session: session.fetch(query, (version,)))
            found, content = rows[0] if rows else (None, None)
        finally:
            metrics.count_request(Kind.CATALOG, len(content) if isinstance(content, bytes) else 0)
        if not rows:
            raise ObjectNotFoundError("there is no index in the database", path=str(self))
        if content is None and cached is not None and found == version:
            return cached
        if not isinstance(content, bytes) or not isinstance(found, str):
            raise IndexFormatError("the head of the catalog is damaged", path=str(self))
        try:
            head = CatalogHead.decode(content)
        except IndexFormatError as error:
            raise error.of(str(self)) from None
        return CatalogSnapshot.of(head, etag=found, head_bytes=len(content), checked_at=now)

    # -- writing ---------------------------------------------------------------------------------

    async def put_head(self, head: CatalogHead, *, instead_of: CatalogSnapshot | None) -> None:
        """Commit a head in the place of the one that it was made from; see `CatalogHome.put_head`."""
        content, version = head.encode(), secrets.token_hex(16)
        table, objects = self.database.tables.head, self.database.tables.objects
        added = head.names - (frozenset() if instead_of is None else instead_of.head.names)

        def work(session: Session) -> int:
            if added and not added <= {name for (name,) in session.fetch(f"SELECT name FROM {objects}")}:
                raise StoreError(
                    "the database lacks what this builder has written: it was replaced meanwhile",
                    path=str(self),
                    hint="build the index again",
                )
            if instead_of is None:
                return session.change(
                    f"INSERT INTO {table} (id, version, content) VALUES (1, ?, ?) ON CONFLICT DO NOTHING",
                    (version, content),
                )
            return session.change(
                f"UPDATE {table} SET version = ?, content = ? WHERE id = 1 AND version = ?",
                (version, content, instead_of.etag),
            )

        try:
            changed = await DATABASES.run(self.database.write, work, create=instead_of is None)
        finally:
            note_written(self.key.store, HEAD_NAME)
        if changed != 1:
            raise ObjectChangedError("another commit came between", path=str(self))

    async def put_segment(
        self,
        tables: Mapping[str, TableRows],
        *,
        num_files: int,
        uncovered: Mapping[str, frozenset[int]] | None = None,
    ) -> Segment:
        """Write the tables of a segment; see `CatalogHome.put_segment`."""
        objects = {
            name: await self._put_table(name, rows, num_files=num_files) for name, rows in tables.items()
        }
        return Segment(
            id=secrets.token_hex(8),
            num_files=num_files,
            objects=objects,
            num_rows={name: table.num_rows for name, table in tables.items()},
            uncovered=uncovered or {},
        )

    async def _put_table(self, name: str, rows: TableRows, *, num_files: int) -> SegmentObject:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        object_name = f"{name.partition(' ')[0]}-{stamp}-{secrets.token_hex(8)}.pages"
        names = self.database.tables
        # The pages of a table may be more than fit into memory, and the database wants their keys, which
        # later pages decide.
        with tempfile.TemporaryFile(prefix="accel-catalog-") as spool:
            cut = await WORK.run(lambda: cut_table(name, object_name, rows, num_files=num_files, spool=spool))

            def work(session: Session) -> int:
                ((row,),) = session.fetch(
                    f"INSERT INTO {names.objects} (name, size) VALUES (?, ?) RETURNING id",
                    (object_name, cut.size),
                )
                session.insert(names.pages, PAGE_COLUMNS, (_row(row, page) for page in cut.pages()))
                return int(row)

            row = await DATABASES.run(self.database.write, work)
        return SegmentObject(
            name=object_name,
            size=cut.size,
            etag=str(row),
            num_rows=rows.num_rows,
            tail=cut.layout.encode(),
        )

    # -- what lies there -------------------------------------------------------------------------

    async def list_objects(self) -> Sequence[ObjectEntry]:
        """List the objects that there are; see `CatalogHome.list_objects`."""
        query = f"SELECT name, size FROM {self.database.tables.objects}"
        rows = await DATABASES.run(self.database.read, lambda session: session.fetch(query))
        if not all(isinstance(name, str) and isinstance(size, int) for name, size in rows):
            raise IndexFormatError("the list of objects in the database is damaged", path=str(self))
        return [ObjectEntry(name, size, None) for name, size in rows]

    async def delete(self, name: str) -> None:
        """Remove an object of a segment; see `CatalogHome.delete`."""
        tables = self.database.tables

        def work(session: Session) -> None:
            which = f"SELECT id FROM {tables.objects} WHERE name = ?"
            session.change(f"DELETE FROM {tables.pages} WHERE object = ({which})", (name,))
            session.change(f"DELETE FROM {tables.objects} WHERE name = ?", (name,))

        await DATABASES.run(self.database.write, work)


def _row(row: int, page: Page) -> tuple[Any, ...]:
    return (
        row,
        page.part,
        page.number,
        page.floor,
        page.reach,
        page.most,
        page.digest,
        page.seal,
        page.content,
    )
