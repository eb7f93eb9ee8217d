"""An Iceberg table as the user names it: a metadata file, a directory, a name in a catalog, or an opened
table of pyiceberg.

Without a catalog the newest metadata file of a directory is read, as Hadoop's tables have it: what a catalog
has not taken in, or has taken back, is read as well.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from accel.errors import AccelError, ObjectNotFoundError, StoreError, TableFormatError, forget_frames
from accel.runtime.tasks import Group
from accel.runtime.threads import CREDENTIALS
from accel.scanning.file_source import SourceRequest
from accel.store.identity import StorageOptions
from accel.store.request_errors import raising_foremost
from accel.tables.file_urls import encoded_url
from accel.tables.formats.iceberg.catalog import Located, locate
from accel.tables.formats.iceberg.metadata import (
    MOST_METADATA_BYTES,
    SnapshotEntry,
    TableMetadata,
    parse_metadata,
)
from accel.tables.formats.iceberg.paths import TablePaths
from accel.tables.formats.iceberg.schema import LINEAGE, ROW_ID, TableSchema
from accel.tables.formats.iceberg.source import IcebergSource
from accel.tables.formats.iceberg.vended import options_of
from accel.tables.metadata_objects import MetadataObjects
from accel.tables.table import Table

if TYPE_CHECKING:
    from accel.store.range_store import ObjectEntry

__all__ = ["IcebergTable", "iceberg", "of_opened", "open_directory"]

_METADATA: Final = re.compile(r"(?:v(\d{1,18})|(\d{1,18})-[^/]+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT: Final = "version-hint.text"
_MOST_HINT: Final = 1000
CATALOG_SECONDS = 120.0
"""Seconds that a catalog is waited for: pyiceberg's clients wait without end."""


def iceberg(
    table: Any,
    *,
    catalog: Any = None,
    snapshot_id: int | None = None,
    timestamp: datetime | str | None = None,
    branch: str | None = None,
    tag: str | None = None,
    allow_moved_paths: bool = False,
    allowed_stores: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> IcebergTable:
    """Name an Iceberg table, to be passed to `accel.scan` and the other verbs.

    Parameters
    ----------
    table : str or pyiceberg.table.Table
        The URL or path of a metadata file (`.../metadata/v7.metadata.json`), or of the directory of the
        table, of which the newest metadata file is read; with `catalog`, the name of the table in it, such as
        "db.events". An opened table of pyiceberg is read in the version that it has been opened in.
    catalog : str, mapping or pyiceberg.catalog.Catalog, optional
        A catalog of pyiceberg: its name in pyiceberg's configuration, its properties (among them "name", if
        it is not called "default"), or the object.
    snapshot_id : int, optional
        The snapshot to read; by default the current one.
    timestamp : datetime or str, optional
        Read what was current then. A text is in ISO form; without a zone it is in UTC.
    branch, tag : str, optional
        Read the snapshot of a branch, or of a tag.
    allow_moved_paths : bool
        Whether the table may have been copied to another place: its metadata name files by whole paths, and
        those below its former place are looked for below the new one.
    allowed_stores : sequence of str
        URLs of other stores that its files may lie in, such as "s3://other-bucket". Files of stores that
        neither the table lies in nor this names are refused.
    storage_options : mapping, optional
        Those of its store, where the scan is given none; by default those that a catalog sends.

    Returns
    -------
    IcebergTable
        A source for `accel.scan`.

    Raises
    ------
    ValueError
        More than one snapshot is named, or an argument is of no use.

    Examples
    --------
    >>> table = accel.tables.iceberg("s3://lake/events/metadata/v7.metadata.json", branch="audit")
    >>> accel.scan(table, "user_id = 'u7'").to_table()
    """
    return IcebergTable(
        table,
        catalog=catalog,
        snapshot_id=snapshot_id,
        timestamp=timestamp,
        branch=branch,
        tag=tag,
        allow_moved_paths=allow_moved_paths,
        allowed_stores=allowed_stores,
        storage_options=storage_options,
    )


def open_directory(
    url: str,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> IcebergTable:
    """Return the table of a directory or a metadata file; its version is the id of a snapshot."""
    return IcebergTable(url, snapshot_id=version, timestamp=timestamp, storage_options=storage_options)


def open_in_catalog(
    catalog: str,
    name: str,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> IcebergTable:
    """Return the table that a catalog of pyiceberg's configuration names; its version is the id of a
    snapshot."""
    return IcebergTable(
        name, catalog=catalog, snapshot_id=version, timestamp=timestamp, storage_options=storage_options
    )


def of_opened(opened: Any) -> IcebergTable:
    """Return the table that pyiceberg has opened, in the version that it has been opened in.

    Raises
    ------
    TypeError
        It is no table.
    """
    if not hasattr(opened, "metadata_location"):
        raise TypeError(f"of pyiceberg a Table is a source, not {opened!r:.80}")
    return IcebergTable(opened)


class IcebergTable(Table):
    """An Iceberg table; `accel.tables.iceberg` makes one, and says what the parameters are."""

    format: ClassVar[str] = "Iceberg"

    def __init__(
        self,
        table: Any,
        *,
        catalog: Any = None,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        allow_moved_paths: bool = False,
        allowed_stores: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        chosen = {"snapshot_id": snapshot_id, "timestamp": timestamp, "branch": branch, "tag": tag}
        given = [name for name, value in chosen.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} each name a snapshot: give one of them")
        if snapshot_id is not None and (isinstance(snapshot_id, bool) or not isinstance(snapshot_id, int)):
            raise TypeError(f"snapshot_id is a whole number, not {snapshot_id!r:.80}")
        if isinstance(allowed_stores, str):
            raise TypeError("allowed_stores is a list of URLs")
        self._own_options = storage_options
        self._located: Located | None = None
        self._catalog = catalog
        self._metadata_url: str | None = None
        if catalog is None and not isinstance(table, str) and hasattr(table, "metadata_location"):
            self._take_opened(table)
        else:
            try:
                self._name = table if isinstance(table, str) else str(table.__fspath__())
            except AttributeError:
                raise TypeError(
                    f"an Iceberg table is a URL, a name, or pyiceberg's Table, not {table!r:.80}"
                ) from None
        self._snapshot_id = snapshot_id
        self._timestamp = _moment(timestamp)
        self._branch, self._tag = branch, tag
        self._moved = allow_moved_paths
        self._allowed = tuple(allowed_stores)
        self._lineage: frozenset[str] = frozenset()
        """The columns of row lineage that the result has."""

    @property
    def location(self) -> str:
        """The URL, or the name in the catalog."""
        return self._name

    @property
    def storage_options(self) -> StorageOptions | None:
        """Those that were given, or those of the opened table."""
        return self._own_options

    @property
    def vended_options(self) -> StorageOptions | None:
        """Those that the catalog has sent with the table."""
        return None if self._located is None else self._located.storage_options

    @property
    def directory(self) -> str | None:
        """The directory above that of the metadata file; None of a table that only a catalog knows."""
        if self._metadata_url is None and self._catalog is not None:
            return None
        url = self._metadata_url or self._name
        if url.endswith((".metadata.json", ".metadata.json.gz")):
            return url.rpartition("/")[0].rpartition("/")[0]
        return url.rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        # What a catalog has sent holds credentials, and is sent again.
        return {**self.__dict__, "_located": None}

    def source(self) -> IcebergSource:
        """Return a source that serves one run."""
        return IcebergSource(self, load=self.load, chosen=self.chosen, lineage=self._lineage)

    def with_columns(self, columns: Sequence[str]) -> tuple[Table, str | None]:
        """Return the table with the columns of row lineage that are named, which it does not have
        otherwise."""
        named = LINEAGE.keys() & set(columns)
        if not named:
            return self, None
        other = copy.copy(self)
        other._lineage = frozenset(named)
        return other, ROW_ID if ROW_ID in named else None

    def _take_opened(self, table: Any) -> None:
        """Take what an opened table of pyiceberg knows: where its metadata file is, and how its files are
        reached."""
        self._name = self._metadata_url = encoded_url(str(table.metadata_location))
        if self._own_options is None:
            self._own_options = options_of(getattr(table.io, "properties", {}))

    def chosen(self, metadata: TableMetadata) -> tuple[SnapshotEntry | None, TableSchema]:
        """Return the snapshot that is read, None of a table without one, and its schema.

        Raises
        ------
        TableFormatError
            The table has no such snapshot.
        """
        entry: SnapshotEntry | None
        if self._snapshot_id is not None:
            entry = metadata.at_id(self._snapshot_id)
        elif self._timestamp is not None:
            entry = metadata.at_time(self._timestamp)
        elif self._tag is not None:
            entry = metadata.at_ref(self._tag, "tag")
        else:
            # A branch is read with the columns that the table has now.
            if self._branch is not None:
                entry = metadata.at_ref(self._branch, "branch")
            elif metadata.current_snapshot_id is None:
                entry = None
            else:
                entry = metadata.at_id(metadata.current_snapshot_id)
            return entry, metadata.schema
        number = entry.schema_id
        if number is None:
            return entry, metadata.schema
        schema = metadata.schemas.get(number)
        if schema is None:
            raise TableFormatError(f"the table has no schema {number}, which the snapshot {entry.id} is of")
        return entry, schema

    def vend(self) -> StorageOptions:
        """Ask the catalog of the table for the storage options of its files: for another call, and for
        executors of Spark, which call a function by its name (`credentials=`).

        Options that end bring what asks the catalog again before that. This waits for the catalog.

        Returns
        -------
        mapping
            Empty where the catalog sends none.

        Raises
        ------
        ValueError
            The table has no catalog.
        TableFormatError
            The catalog has no such table.
        StoreError
            The catalog does not answer.

        Examples
        --------
        >>> def lake_credentials():
        ...     return accel.tables.iceberg("db.events", catalog="prod").vend()
        """
        if self._catalog is None:
            raise ValueError("the table is named by a path, and only a catalog sends storage options")
        try:
            self._located = locate(self._catalog, self._name)
        except AccelError as error:
            forget_frames(error)
            raise
        return self._located.storage_options or {}

    async def _ask(self, request: SourceRequest) -> str:
        """Return where the catalog says that the metadata file is; it is asked again once what it has said is
        older than the cache's `max_age`."""
        found = self._located
        if found is None or not found.is_fresh(request.reader.cache.max_age):
            try:
                async with asyncio.timeout(CATALOG_SECONDS):
                    found = await CREDENTIALS.run(locate, self._catalog, self._name)
            except TimeoutError:
                raise StoreError(
                    f"the catalog did not answer in {CATALOG_SECONDS:g} seconds", path=self._name
                ) from None
            self._located = found
        return found.metadata_url

    async def load(
        self, request: SourceRequest, objects: MetadataObjects
    ) -> tuple[TableMetadata, TablePaths, int]:
        """Return the metadata of the table as they are now, the paths that they may name, and the dependent
        requests that it took.

        Raises
        ------
        TableFormatError
            There is no such table, or it is not supported.
        """
        trips, url = 1, self._metadata_url
        if url is None:
            if self._catalog is not None:
                url = await self._ask(request)
            elif self._name.split("?")[0].endswith((".metadata.json", ".metadata.json.gz")):
                url = self._name
            else:
                url, trips = await _newest(objects, self._name), 2
        try:
            metadata = await objects.parsed(
                url,
                parse_metadata,
                most=MOST_METADATA_BYTES,
                nbytes=lambda found: found.nbytes,
                what="table metadata",
            )
        except AccelError as error:
            raise error.at(path=url) from None
        paths = TablePaths.of(
            url,
            location=metadata.location,
            in_store=request.in_store,
            allowed=self._allowed,
            moved=self._moved,
        )
        return metadata, paths, trips


def _moment(given: datetime | str | None) -> datetime | None:
    if given is None:
        return None

    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(f"timestamp is no ISO text: {given!r:.80}") from None
    if not isinstance(given, datetime):
        raise TypeError(f"timestamp is a datetime or a text, not {given!r:.80}")
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given


async def _newest(objects: MetadataObjects, directory: str) -> str:
    """Return the URL of the newest metadata file of a directory, by the hint that lies beside them, or by
    their names.

    Hadoop's tables write the hint after the file that it names, so a newer one counts.
    """
    base = directory.rstrip("/")
    with raising_foremost():
        async with Group() as group:
            hinting = group.create_task(_hint(objects, f"{base}/metadata/{_HINT}"))
            listing = group.create_task(_listed(objects, f"{base}/metadata/"))
    hint, names = hinting.result(), listing.result()
    numbered = {name: found for name in names if (found := _METADATA.fullmatch(name)) is not None}
    if hint is not None and not hint.isdecimal():
        name = next((each for each in (hint, f"{hint}.metadata.json") if each in names), None)
        if name is None:
            raise TableFormatError(
                f"{_HINT} names {hint[:80]!r}, and there is no such metadata file", path=directory
            )
        return f"{base}/metadata/{name}"
    if hint is not None:
        hadoop = {name: int(found[1]) for name, found in numbered.items() if found[1] is not None}
        newer = {name: number for name, number in hadoop.items() if number >= int(hint)}
        if newer:
            return f"{base}/metadata/{max(newer, key=lambda name: newer[name])}"
        raise TableFormatError(
            f"{_HINT} names the version {hint}, and there is no such metadata file", path=directory
        )
    if not numbered:
        raise ObjectNotFoundError(
            "there is no metadata file of an Iceberg table", path=directory, hint="it lies below metadata/"
        )
    versions = {name: int(found[1] or found[2]) for name, found in numbered.items()}
    newest = max(versions.values())
    several = sorted(name for name, number in versions.items() if number == newest)
    if len(several) > 1:
        raise TableFormatError(
            f"{len(several)} metadata files have the version {newest}, and only a catalog knows which counts",
            path=directory,
            hint=f"name one of them, such as {several[0]}, or give catalog=",
        )
    return f"{base}/metadata/{several[0]}"


async def _hint(objects: MetadataObjects, url: str) -> str | None:
    try:
        data = await objects.read(url)
    except ObjectNotFoundError:
        return None
    except StoreError:
        # A store may refuse to say that there is no such object.
        return None
    text = bytes(data[:_MOST_HINT]).decode("utf-8", "replace").strip()
    return text or None


async def _listed(objects: MetadataObjects, url: str) -> list[str]:
    try:
        entries: Sequence[ObjectEntry] = await objects.list_below(url)
    except ObjectNotFoundError:
        return []
    return [entry.path.rpartition("/")[2] for entry in entries]
