"""Delta tables as sources of a scan."""

from __future__ import annotations

import datetime
import os
import zoneinfo
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import make_scalar, mask
from accel.errors import AccelError, TableFormatError, redact
from accel.memory import returning_pool
from accel.planning.deleted_rows import DeletedRows
from accel.planning.file_entry import FileBlock
from accel.predicate.expr import columns_of
from accel.scanning.file_source import SourceRequest
from accel.store.identity import StorageOptions
from accel.store.location import parse_url
from accel.tables.climbing import climbs, first_climbing
from accel.tables.formats.delta.deletion_vectors import VectorPlace
from accel.tables.formats.delta.log import DeltaLog
from accel.tables.formats.delta.log_state import LogState
from accel.tables.formats.delta.statistics import FileStatistics
from accel.tables.formats.delta.vector_loading import VectorLoader
from accel.tables.metadata_objects import MetadataObjects
from accel.tables.partition_texts import cast_texts
from accel.tables.table import Snapshot, Table, TableSource

__all__ = ["DeltaTable", "delta", "of_opened", "open_directory"]

_PER_BLOCK: Final = 100_000


def delta(
    url: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime.datetime | str | None = None,
    time_zone: str = "UTC",
    allowed_stores: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DeltaTable:
    """Name a Delta table as the source of a scan. No I/O happens.

    Parameters
    ----------
    url : str or PathLike
        The directory of the table, which has `_delta_log/`; a path of the store, if the scan is given one.
    version : int, optional
        The version to read; the newest by default.
    timestamp : datetime or str, optional
        A moment, as a datetime or a text in ISO 8601: the last version that was committed by then is read.
        Without a zone it is UTC.
    time_zone : str
        The zone of the values of timestamp partition columns that name none: Spark writes them in that of its
        session. Columns without a zone are not concerned.
    allowed_stores : sequence of str
        URLs of other stores that its files may lie in, such as "s3://other-bucket": a shallow clone names the
        files of the table that it was made of. Files of stores that neither the table lies in nor this names
        are refused.
    storage_options : mapping, optional
        Those of the table's files, where the scan is given none.

    Returns
    -------
    DeltaTable
        A source of `accel.scan`, `accel.plan`, `accel.distinct` and `accel.spark.read`.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type, there is no such zone, or both a version and a timestamp are given.

    Examples
    --------
    >>> accel.scan(accel.tables.delta("s3://lake/events", version=12), "user_id = 'u7'").to_table()
    """
    return DeltaTable(
        url,
        version=version,
        timestamp=timestamp,
        time_zone=time_zone,
        allowed_stores=allowed_stores,
        storage_options=storage_options,
    )


open_directory = delta
"""See `accel.tables.table_formats.FormatModule`."""


def of_opened(opened: Any) -> DeltaTable:
    """Return the table of a `deltalake.DeltaTable`, in its version and with its options.

    Raises
    ------
    TypeError
        It is none.
    """
    if type(opened).__name__ != "DeltaTable":
        raise TypeError(f"a {type(opened).__name__} of deltalake is no source: give its DeltaTable")
    options = getattr(opened, "_storage_options", None)
    return DeltaTable(
        opened.table_uri,
        version=opened.version(),
        storage_options=None if not options else {name.lower(): value for name, value in options.items()},
    )


class DeltaTable(Table):
    """A Delta table, as `accel.tables.delta` makes it.

    Parameters
    ----------
    url, version, timestamp, time_zone, allowed_stores, storage_options
        As for `accel.tables.delta`.
    """

    format: ClassVar[str] = "Delta"

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        version: int | None = None,
        timestamp: datetime.datetime | str | None = None,
        time_zone: str = "UTC",
        allowed_stores: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(url, str | os.PathLike):
            raise TypeError(f"the URL of a table is a text or a path, not a {type(url).__name__}")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise TypeError(f"version is a whole number, not {version!r:.80}")
        if version is not None and version < 0:
            raise ValueError(f"version is a whole number from 0 on, not {version}")
        if version is not None and timestamp is not None:
            raise ValueError("give a version or a timestamp, not both")
        if isinstance(allowed_stores, str):
            raise TypeError("allowed_stores is a sequence of URLs, not one text")
        self.url = os.fsdecode(url)
        self.time_zone = _zone(time_zone)
        self.allowed_stores = tuple(allowed_stores)
        self.version = version
        self.timestamp = None if timestamp is None else _moment(timestamp)
        self._storage_options = None if storage_options is None else dict(storage_options)

    @property
    def location(self) -> str:
        """Where the table is, as the user named it."""
        return self.url

    @property
    def directory(self) -> str:
        """The directory of the table, whose vacuum leaves names alone that begin with `_`."""
        return self.url

    @property
    def storage_options(self) -> StorageOptions | None:
        """The storage options of its files, where the scan is given none."""
        return self._storage_options

    def source(self) -> DeltaSource:
        """Return a source that serves one run."""
        return DeltaSource(self)

    def __repr__(self) -> str:
        given = [repr(redact(self.url))]
        if self.version is not None:
            given.append(f"version={self.version}")
        if self.timestamp is not None:
            given.append(f"timestamp={self.timestamp.isoformat()!r}")
        return f"accel.tables.delta({', '.join(given)})"


def _zone(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"time_zone is the name of a zone, not {name!r:.80}")
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r:.80}: name one as Europe/Berlin") from None
    return name


def _moment(timestamp: datetime.datetime | str) -> datetime.datetime:
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.datetime.fromisoformat(timestamp)
        except ValueError:
            raise ValueError(
                f"timestamp is a datetime, or a text in ISO 8601, not {timestamp!r:.80}"
            ) from None
    if not isinstance(timestamp, datetime.datetime):
        raise TypeError(f"timestamp is a datetime, or a text in ISO 8601, not {timestamp!r:.80}")
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=datetime.UTC)


class DeltaSource(TableSource):
    """The files of a Delta table in one version.

    Parameters
    ----------
    table : DeltaTable
    """

    def __init__(self, table: DeltaTable) -> None:
        super().__init__(table)
        self._delta = table
        self._url = _plain(table.url)
        self._log: DeltaLog | None = None
        self._state: LogState | None = None

    async def open(self, request: SourceRequest) -> Snapshot:
        """Find the version and return what is known of it."""
        wanted = _named(request)
        log = self._log = DeltaLog(
            request, MetadataObjects(request), self._url, wanted=wanted or (() if request.answers else None)
        )
        table = self._delta
        if table.version is not None:
            state = await log.at_version(table.version)
        elif table.timestamp is not None:
            epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            state = await log.at_time((table.timestamp - epoch) // datetime.timedelta(milliseconds=1))
        else:
            state = await log.newest()
        self._state = state
        try:
            schema = state.schema.arrow
        except AccelError as error:
            raise error.at(path=f"{redact(self._url)}, version {state.version}") from error.__cause__
        return Snapshot(
            version=state.version,
            schema=schema,
            properties={
                "name": state.metadata.name,
                "id": state.metadata.id,
                "partition_columns": list(state.metadata.partition_columns),
                "features": list(state.protocol.features),
                "reader_version": state.protocol.reader_version,
                "column_mapping": state.metadata.mode(state.protocol),
                "files": len(state.files),
                "bytes": pc.sum(state.files.size).as_py() or 0,
                "deleted_rows": _deleted_in(state.files.vector),
                "configuration": dict(state.metadata.configuration),
            },
        )

    async def files(self, request: SourceRequest, snapshot: Snapshot) -> AsyncIterator[FileBlock]:
        """Yield the files of the version, in blocks."""
        log, state = cast("DeltaLog", self._log), cast("LogState", self._state)
        schema, files = state.schema, state.files
        wanted = _named(request)
        leaves = [schema.leaves[path] for path in wanted if path in schema.leaves]
        statistics: FileStatistics | None = None
        if (leaves or request.answers is not None) and len(files):
            statistics = await log.statistics(state, leaves)
        partition = {
            name: cast_texts(
                files.partition[schema.physical[name]],
                kind,
                column=name,
                null="",
                time_zone=self._delta.time_zone,
            )
            for name, kind in schema.partition_types.items()
        }
        objects = MetadataObjects(request)
        some_absolute = self._check_paths(files.path, objects)
        loader = VectorLoader(request, objects)
        for start in range(0, max(1, len(files)), _PER_BLOCK):
            stop = min(len(files), start + _PER_BLOCK)

            def part(array: Any, start: int = start, stop: int = stop) -> Any:
                return None if array is None else array.slice(start, stop - start)

            known = None if statistics is None else statistics.slice(start, stop)
            yield request.block(
                self._urls(part(files.path), some_absolute=some_absolute),
                sizes=part(files.size),
                immutable=True,
                num_rows=None if known is None else known.num_rows,
                partition={name: part(values) for name, values in partition.items()},
                bounds=None if known is None else dict(known.bounds.items()),
                deleted=self._deleted(part(files.vector), loader, objects),
                columns=schema.mapping,
                round_trips=log.round_trips,
                more=stop < len(files),
            )

    def _check_paths(self, paths: pa.Array, objects: MetadataObjects) -> bool:
        """Return whether a path is absolute.

        Raises
        ------
        TableFormatError
            A path climbs, or names another store than that of the table.
        """
        climbing = first_climbing(paths)
        if climbing is not None:
            raise TableFormatError(
                f"the log names the file {redact(paths[climbing].as_py())!r:.200}, whose path climbs",
                path=redact(self._url),
            )
        absolute = np.flatnonzero(mask(_absolute(paths))).tolist()
        for place in absolute:
            self._check_store(paths[place].as_py(), objects)
        return bool(absolute)

    def _urls(self, paths: pa.Array, *, some_absolute: bool) -> pa.Array:
        """Return the URLs of files."""
        base = f"{self._url}/" if self._url else ""
        first, nothing = (make_scalar(text, pa.string()) for text in (base, ""))
        urls = pc.binary_join_element_wise(first, paths, nothing, memory_pool=returning_pool())
        return pc.if_else(_absolute(paths), paths, urls) if some_absolute else urls

    def _check_store(self, url: str, objects: MetadataObjects) -> None:
        """Raise TableFormatError where a file or a vector is in another store than the table."""
        try:
            client, _ = objects.locate(url)
            own, _ = objects.locate(self._url or "/")
            others = {parse_url(allowed).root for allowed in self._delta.allowed_stores}
        except AccelError as error:
            raise TableFormatError(
                f"the log names the file {redact(url)!r:.200}: {error}", path=redact(self._url)
            ) from None
        if client.root != own.root and client.root not in others:
            raise TableFormatError(
                f"the log names the file {redact(url)!r:.200}, which is in another store than the table",
                path=redact(self._url),
                hint="`allowed_stores=` names other stores that its files may lie in",
            )

    def _deleted(
        self, vectors: pa.StructArray, loader: VectorLoader, objects: MetadataObjects
    ) -> dict[int, DeletedRows]:
        """Return the deleted rows of the files that have a vector, by their place."""
        out = {}
        checked = set()
        for at in np.flatnonzero(mask(vectors.is_valid())).tolist():
            place = VectorPlace.of(vectors[at].as_py())
            url = None
            if place.path is not None:
                url = (
                    place.path if place.absolute else f"{self._url}/{place.path}" if self._url else place.path
                )
                if url not in checked:
                    checked.add(url)
                    if place.absolute:
                        self._check_store(url, objects)
                    elif climbs(place.path):
                        raise TableFormatError(
                            f"the log names the deletion vector {place.path!r:.200}, whose path climbs",
                            path=redact(self._url),
                        )
            out[at] = loader.deleted_rows(place, url)
        return out


def _absolute(paths: pa.Array) -> pa.Array:
    """Return which paths do not begin at the directory of the table."""
    return pc.match_substring_regex(paths, r"^(?:/|[A-Za-z][A-Za-z0-9+.-]*:/)")


def _plain(url: str) -> str:
    """Return the URL of a table without a trailing slash; a local one as a path, as paths of the log are not
    percent-encoded in it."""
    if url[:5].lower() == "file:":
        url = parse_url(url).url
    return url.rstrip("/") or ("/" if url.startswith("/") else "")


def _named(request: SourceRequest) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the columns that the scan asks about, however their names may be read."""
    paths: dict[tuple[str, ...], None] = {}
    if request.where is not None:
        for column in columns_of(request.where):
            paths[column.path] = None
            for head in range(2, column.head + 1):
                paths[".".join(column.path[:head]), *column.path[head:]] = None
    return tuple(paths)


def _deleted_in(vectors: pa.StructArray) -> int:
    if vectors.null_count == len(vectors):
        return 0
    return int(pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0)
