"""The verbs of the catalog: `build_index`, `refresh_index`, `compact_index`, `vacuum_index`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from accel.catalog.asking.published import index_beside
from accel.catalog.building.builder import CatalogBuilder, IndexOfTableError, IndexReport, Progress
from accel.catalog.building.named_files import name_files
from accel.catalog.describing import column_text
from accel.catalog.head import CatalogHead
from accel.catalog.homes.home import CatalogHome, home_at
from accel.catalog.homes.objects import directory_at
from accel.catalog.kinds.kind import path_named
from accel.catalog.kinds.registry import spelled_indexes
from accel.errors import StoreError
from accel.metrics import Metrics
from accel.options import Options, check_options
from accel.runtime import io_loop
from accel.runtime.time_limits import time_limit
from accel.scanning.spec import is_source
from accel.store.client import Client
from accel.store.clients import Connector
from accel.tables.foreign_tables import ForeignTableError, is_all_of
from accel.tables.table import Table
from accel.tables.table_formats import format_titled, settle_source, table_at

if TYPE_CHECKING:
    from accel.scanning.file_source import FileSource, SourceMaker

__all__ = [
    "IndexCall",
    "build_index",
    "build_index_async",
    "compact_index",
    "compact_index_async",
    "refresh_index",
    "refresh_index_async",
    "vacuum_index",
    "vacuum_index_async",
]

GRACE_SECONDS = 24 * 3600.0
Path = str | os.PathLike[str]
Indexes = Mapping[str | tuple[str, ...], str | Sequence[str]]


def build_index(
    source: Path | FileSource | SourceMaker,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Build an index outside the files of a directory, or bring the one that is there up to date.

    The index holds, for each file, the metadata that a scan would read first, and bounds of the columns. A
    scan with `index=` rules files out by it without opening them, and opens the others without a request. It
    is used for the versions of the files that it was built from, and for no others: out of date, it costs
    time and never a row.

    Parameters
    ----------
    source : str, PathLike, table, or FileSource
        The URL or path of a directory of Parquet files, or of a table; a table (`accel.tables`), or a source
        of your own whose paths are immutable. An index of a table covers all versions that it was built at:
        files of earlier ones stay in it, and it goes by columns whatever they are called.
    to : str or PathLike, optional
        The directory of the index; by default `_accel/` in the source, where scans find it when they are
        given that directory, or the table that lies there. A table that a catalog names has no such place:
        scans of it are told by `index=`.
    columns : sequence of str, optional
        The columns, or dotted paths into structs, that have bounds; None for all. An index that exists keeps
        its own.
    indexes : mapping, optional
        Kinds of index, a name or a list of them, by column: "keys" and "ngram" tell which pages may hold a
        value, or a part of a text; "distinct", "bloom" and "zonemap" tell of each file which values it has.
        "keys" may be of several columns, given as a tuple; "zonemap" of an expression, as in "lower(name)".
        All values of these columns are read. An index that exists keeps those that it has, and takes up the
        others: its files are described again for them.
    progress : callable, optional
        Called with the number of files done and the number of files to do.
    store : obstore store or RangeStore, optional
        As for `accel.scan`.
    storage_options : mapping, optional
        As for `accel.scan`, for the files and the index alike.
    options : Options, optional
        As for `accel.scan`.
    timeout : float, optional
        Seconds after which the call ends with ScanTimeoutError; what was committed by then stays.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    StoreError
        A store failed, or cannot be written to; the source holds no file (ObjectNotFoundError).
    IndexFormatError
        The index that is there is damaged.
    ColumnNotFoundError, SchemaMismatchError
        No file has a column that is to be indexed, or none can have an index of that kind. Where some have
        it, the others are named in `notes` of the report, and by a warning.
    TypeError, ValueError
        An argument is of another type; there is no such kind of index, or it is not of so many columns.

    Examples
    --------
    >>> report = accel.build_index("s3://bucket/flights/")  # doctest: +SKIP
    >>> index = "s3://bucket/flights/_accel/"
    >>> accel.scan("s3://bucket/flights/", "carrier = 'HA'", index=index)  # doctest: +SKIP
    >>> kinds = {"tailnum": ["keys", "ngram"], ("carrier", "flight"): "keys"}
    >>> accel.build_index("s3://bucket/flights/", to="s3://bucket/index/", indexes=kinds)  # doctest: +SKIP
    """
    with time_limit(timeout, source):
        call = IndexCall(store, storage_options, options, progress).build(source, to, columns, indexes)
        del to, store, storage_options  # so that no traceback shows what they hold
        return _warned(io_loop.run(call))


async def build_index_async(
    source: Path | FileSource | SourceMaker,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Run `build_index` without blocking the event loop.

    Parameters
    ----------
    source, to, columns, indexes, progress, store, storage_options, options, timeout
        As for `build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    with time_limit(timeout, source):
        call = IndexCall(store, storage_options, options, progress).build(source, to, columns, indexes)
        del to, store, storage_options  # so that no traceback shows what they hold
        return _warned(await io_loop.bridge(call))


def refresh_index(
    index: Path | FileSource | SourceMaker,
    *,
    to: Path | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Bring an index up to date: read the files that are new or were replaced, and drop those that are gone.

    It may be stopped at any time, and goes on from there when it is called again. Several may run at once.
    Of a table the files that are new in the version are read: nothing is listed but its log, and files that
    it has dropped stay for its earlier versions.

    Parameters
    ----------
    index : str, PathLike, or table
        The directory of the index; or the table that it is of, which is asked for its newest version, or for
        the version that it names. An index over a directory's table finds that by itself.
    to : str or PathLike, optional
        The directory of the index of a table; by default `_accel/` in the table's.
    progress, store, storage_options, options, timeout
        As for `build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    StoreError
        A store failed, or cannot be written to; there is no index (ObjectNotFoundError).
    IndexFormatError
        The index is damaged.

    Examples
    --------
    >>> accel.refresh_index("s3://bucket/index/")  # doctest: +SKIP
    >>> accel.refresh_index(accel.tables.delta("s3://lake/events"))  # doctest: +SKIP
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options, progress).refresh(index, to)
        del index, to, store, storage_options  # so that no traceback shows what they hold
        return _warned(io_loop.run(call))


async def refresh_index_async(
    index: Path | FileSource | SourceMaker,
    *,
    to: Path | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Run `refresh_index` without blocking the event loop.

    Parameters
    ----------
    index, to, progress, store, storage_options, options, timeout
        As for `refresh_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options, progress).refresh(index, to)
        del index, to, store, storage_options  # so that no traceback shows what they hold
        return _warned(await io_loop.bridge(call))


def compact_index(
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Merge the segments of an index into one. A refresh that leaves many does so by itself.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    store, storage_options, options, timeout
        As for `build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    StoreError, IndexFormatError
        As `refresh_index` does.
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options).compact(index)
        del index, store, storage_options  # so that no traceback shows what they hold
        return io_loop.run(call)


async def compact_index_async(
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Run `compact_index` without blocking the event loop.

    Parameters
    ----------
    index, store, storage_options, options, timeout
        As for `compact_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options).compact(index)
        del index, store, storage_options  # so that no traceback shows what they hold
        return await io_loop.bridge(call)


def vacuum_index(
    index: Path,
    *,
    grace: float = GRACE_SECONDS,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Remove objects of an index that it does not consist of any more.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    grace : float
        Seconds for which an object stays after the index has done without it: scans that have begun by then
        read it. Objects that were never part of the index, and files that a killed builder was writing, stay
        for an hour at least, as somebody may be building with them.
    store, storage_options, options, timeout
        As for `build_index`.

    Returns
    -------
    IndexReport
        `deleted` names the objects.

    Raises
    ------
    StoreError, IndexFormatError
        As `refresh_index` does.
    ValueError
        `grace` is negative.
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options).vacuum(index, grace)
        del index, store, storage_options  # so that no traceback shows what they hold
        return io_loop.run(call)


async def vacuum_index_async(
    index: Path,
    *,
    grace: float = GRACE_SECONDS,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Run `vacuum_index` without blocking the event loop.

    Parameters
    ----------
    index, grace, store, storage_options, options, timeout
        As for `vacuum_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    with time_limit(timeout, index):
        call = IndexCall(store, storage_options, options).vacuum(index, grace)
        del index, store, storage_options  # so that no traceback shows what they hold
        return await io_loop.bridge(call)


def dotted_paths(columns: Sequence[str] | None, indexes: Indexes | None) -> Collection[tuple[str, ...]]:
    """Return the paths of names with dots in them and without quotes: any may be the name of one column."""
    names = list(columns or ())
    for of in indexes or ():
        names += [of] if isinstance(of, str) else list(of)
    return {path_named(name) for name in names if "." in name and '"' not in name and "(" not in name}


def _first_head(columns: Sequence[str] | None, indexes: Indexes | None) -> CatalogHead:
    """Return the head that an index begins with, but for the place that it covers."""
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Sequence)):
        raise TypeError(f"columns is a sequence of names, not {columns!r:.80}")
    return CatalogHead(
        base=".",
        columns=None if columns is None else tuple(column_text(path_named(name)) for name in columns),
        indexes=spelled_indexes({} if indexes is None else indexes),
        complete=False,
    )


def _warned(report: IndexReport) -> IndexReport:
    """Return the report, and issue its notes as warnings."""
    for note in report.notes:
        warnings.warn(note, stacklevel=3)
    return report


def _table_of(error: IndexOfTableError) -> Table:
    """Return the table of an index, in its newest version.

    Raises
    ------
    IndexOfTableError
        Its place alone does not tell which table it is.
    """
    found = format_titled(str(error.table.get("format")))
    place = (error.beside or str(error.table.get("location"))).rstrip("/") or "/"
    is_absolute = "://" in place or place.startswith("/")
    if found is None or not (error.beside or is_absolute):
        raise error
    return table_at(found.name, place)


class IndexCall:
    """One call of a verb, with the means to carry it out. On the I/O loop, but for its making.

    Parameters
    ----------
    store, storage_options, options, progress
        As for `build_index`.
    """

    def __init__(
        self,
        store: object | None,
        storage_options: Mapping[str, Any] | None,
        options: Options | None,
        progress: Progress | None = None,
    ) -> None:
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is called with two numbers, and is not {progress!r:.80}")
        self.options = check_options(options)
        self._connector = Connector(storage_options=storage_options, store=store, options=self.options)
        self._in_store = store is not None
        self._progress = progress

    def client(self, root: str) -> Client:
        """Return the client of a store."""
        return self._connector.client(root)

    def home(self, index: Path) -> CatalogHome:
        """Return the home of an index."""
        if not isinstance(index, str | os.PathLike):
            raise TypeError(f"an index is named by a URL or a path, not by {type(index).__name__}")
        return home_at(index, self._connector, in_store=self._in_store)

    def builder(self, index: Path) -> CatalogBuilder:
        """Return what builds and keeps an index."""
        return self._builder_at(self.home(index))

    def _builder_at(self, home: CatalogHome) -> CatalogBuilder:
        return CatalogBuilder(home, self._connector, options=self.options, progress=self._progress)

    async def build_over(
        self,
        source: FileSource | SourceMaker,
        to: Path | None,
        columns: Sequence[str] | None,
        indexes: Indexes | None,
    ) -> IndexReport:
        """Do what `build_index` does for a source that says itself which files there are."""
        head = _first_head(columns, indexes)
        home = self._home_over(source, to)
        beside = to is None
        del to
        builder = await self.builder_over(source, home)
        return await builder.refresh(
            make=builder.over_table(head, beside=beside), dotted=dotted_paths(columns, indexes)
        )

    def _home_over(self, source: FileSource | SourceMaker, to: Path | None) -> CatalogHome:
        """Return the home of the index of a source, whose storage options count from then on."""
        directory = None
        if isinstance(source, Table):
            table = source
            directory = table.directory
            self._connector.otherwise(lambda: table.storage_options or table.vended_options)
        if to is None:
            if directory is None:
                raise ValueError("name the place of the index by `to`: this source has no directory")
            to = index_beside(directory)
        return self.home(to)

    async def builder_over(self, source: FileSource | SourceMaker, home: CatalogHome) -> CatalogBuilder:
        """Return what builds an index of the files that a source names. Raises as `name_files` does."""
        metrics = Metrics()
        named = await name_files(
            source, clients=self._connector, in_store=self._in_store, options=self.options, metrics=metrics
        )
        return CatalogBuilder(
            home, self._connector, options=self.options, progress=self._progress, named=named, metrics=metrics
        )

    def builder_for(
        self,
        source: Path | None,
        to: Path | None,
        columns: Sequence[str] | None,
        indexes: Indexes | None,
    ) -> tuple[CatalogBuilder, CatalogHead | None, Collection[tuple[str, ...]]]:
        """Return what builds the index of a source, the head that it begins with, and the paths in it that
        may be the name of one column with dots; no head for an index that is there already.

        Raises
        ------
        StoreError, TypeError, ValueError
            As `build_index` does; ValueError too where neither a source nor an index is named.
        """
        head = _first_head(columns, indexes)
        if source is not None and not isinstance(source, str | os.PathLike):
            raise TypeError(f"the source is the URL or path of a directory, not {source!r:.80}")
        if source is None and to is None:
            raise ValueError("a source or an index is named, or both")
        beside = to is None
        index = index_beside(source or "") if to is None else to
        builder, home = self.builder(index), self.home(index)
        del index, to  # so that no traceback shows what they hold
        if source is None:
            return builder, None, ()
        directory = directory_at(source, in_store=self._in_store)
        if home.is_in(directory):
            raise StoreError(
                "the index and the files cannot share a directory",
                path=str(directory),
                hint=(
                    "a scan would take the index for data: name a directory beside, or one that begins with _"
                ),
            )
        head = replace(head, base="." if beside else directory.url)
        return builder, head, dotted_paths(columns, indexes)

    async def build(
        self,
        source: Path | FileSource | SourceMaker,
        to: Path | None,
        columns: Sequence[str] | None,
        indexes: Indexes | None,
    ) -> IndexReport:
        """Do what `build_index` does."""
        source = settle_source(source, {})[0]
        if is_source(source):
            return await self.build_over(cast("FileSource", source), to, columns, indexes)
        path = cast("Path", source)
        builder, head, dotted = self.builder_for(path, to, columns, indexes)
        build_over = self._build_later(to, columns, indexes)
        del to  # so that no traceback shows what it holds
        try:
            return await builder.refresh(make=head, dotted=dotted)
        except ForeignTableError as error:
            found = format_titled(error.table.format)
            if found is None or not is_all_of(error.table, os.fsdecode(path), in_store=self._in_store):
                raise
        except IndexOfTableError as error:
            found = format_titled(str(error.table.get("format")))
            if found is None:
                raise
        return await build_over(table_at(found.name, path))

    def _build_later(
        self, to: Path | None, columns: Sequence[str] | None, indexes: Indexes | None
    ) -> Callable[[FileSource | SourceMaker], Awaitable[IndexReport]]:
        """Return `build_over` with all but its source."""

        async def build(source: FileSource | SourceMaker) -> IndexReport:
            return await self.build_over(source, to, columns, indexes)

        return build

    async def refresh(self, index: Path | FileSource | SourceMaker, to: Path | None = None) -> IndexReport:
        """Do what `refresh_index` does."""
        source = settle_source(index, {})[0]
        del index
        if is_source(source):
            builder = await self.builder_over(source, self._home_over(source, to))
            return await builder.refresh()
        if to is not None:
            raise ValueError("`to` is the place of the index of a table, which is given as such")
        home = self.home(source)
        del source, to  # so that no traceback shows what they hold
        try:
            return await self._builder_at(home).refresh()
        except IndexOfTableError as error:
            table = _table_of(error)
        builder = await self.builder_over(table, home)
        return await builder.refresh()

    async def compact(self, index: Path) -> IndexReport:
        """Do what `compact_index` does."""
        builder = self.builder(index)
        del index
        return await builder.compact()

    async def vacuum(self, index: Path, grace: float) -> IndexReport:
        """Do what `vacuum_index` does."""
        if isinstance(grace, bool) or not isinstance(grace, int | float):
            raise TypeError(f"grace is a number of seconds, not {grace!r:.80}")
        if not grace >= 0:
            raise ValueError(f"grace is a number of seconds, not {grace!r}")
        builder = self.builder(index)
        del index
        return await builder.vacuum(grace=grace)
