"""The verbs of the catalog: `build_index`, `refresh_index`, `compact_index`, `vacuum_index`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from accel.catalog.building import CatalogBuilder, IndexReport, Progress
from accel.catalog.describing import column_text
from accel.catalog.head import CatalogHead
from accel.catalog.homes import CatalogHome, home_at
from accel.catalog.kinds import spelled_indexes
from accel.catalog.objects import directory_at
from accel.catalog.published import index_beside
from accel.errors import StoreError
from accel.options import Options, check_options
from accel.predicate.expr import column_named
from accel.store import io_loop
from accel.store.client import Client, Connector

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
    source: Path,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Build an index outside the files of a directory, or bring the one that is there up to date.

    The index holds, for each file, the metadata that a scan would read first, and bounds of the columns. A scan
    with `index=` rules files out by it without opening them, and opens the others without a request. It is used for the
    versions of the files that it was built from, and for no others: out of date, it costs time and never a row.

    Parameters
    ----------
    source : str or PathLike
        The URL or path of a directory of Parquet files.
    to : str or PathLike, optional
        The directory of the index; by default `_accel/` in the source, where scans find it when they are given
        that directory.
    columns : sequence of str, optional
        The columns, or dotted paths into structs, that have bounds; None for all. An index that exists keeps its own.
    indexes : mapping, optional
        Kinds of index, a name or a list of them, by column: "keys" and "ngram" tell which pages may hold a value, or a part
        of a text; "distinct", "bloom" and "zonemap" tell of each file which values it has. "keys" may be of several columns,
        given as a tuple; "zonemap" of an expression, as in "lower(name)". All values of these columns are read. An index that
        exists keeps those that it has, and takes up the others: its files are described again for them.
    progress : callable, optional
        Called with the number of files done and the number of files to do.
    store : obstore store or RangeStore, optional
        As for `accel.scan`.
    storage_options : mapping, optional
        As for `accel.scan`, for the files and the index alike.
    options : Options, optional
        As for `accel.scan`.

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
    ValueError
        There is no such kind of index, or it is not of such columns.

    Examples
    --------
    >>> report = accel.build_index("s3://bucket/flights/")  # doctest: +SKIP
    >>> accel.scan("s3://bucket/flights/", "carrier = 'HA'", index="s3://bucket/flights/_accel/")  # doctest: +SKIP
    >>> kinds = {"tailnum": ["keys", "ngram"], ("carrier", "flight"): "keys"}
    >>> accel.build_index("s3://bucket/flights/", to="s3://bucket/index/", indexes=kinds)  # doctest: +SKIP
    """
    call = IndexCall(store, storage_options, options, progress).build(source, to, columns, indexes)
    del to, store, storage_options  # so that no traceback shows what they hold
    return io_loop.run(call)


async def build_index_async(
    source: Path,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Run `build_index` without blocking the event loop.

    Parameters
    ----------
    source, to, columns, indexes, progress, store, storage_options, options
        As for `build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    call = IndexCall(store, storage_options, options, progress).build(source, to, columns, indexes)
    del to, store, storage_options  # so that no traceback shows what they hold
    return await io_loop.bridge(call)


def refresh_index(
    index: Path,
    *,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Bring an index up to date: read the files that are new or were replaced, and drop those that are gone.

    It may be stopped at any time, and goes on from there when it is called again. Several may run at once.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    progress, store, storage_options, options
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
    """
    call = IndexCall(store, storage_options, options, progress).refresh(index)
    del index, store, storage_options  # so that no traceback shows what they hold
    return io_loop.run(call)


async def refresh_index_async(
    index: Path,
    *,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Run `refresh_index` without blocking the event loop.

    Parameters
    ----------
    index, progress, store, storage_options, options
        As for `refresh_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    call = IndexCall(store, storage_options, options, progress).refresh(index)
    del index, store, storage_options  # so that no traceback shows what they hold
    return await io_loop.bridge(call)


def compact_index(
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Merge the segments of an index into one. A refresh that leaves many does so by itself.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    store, storage_options, options
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
    call = IndexCall(store, storage_options, options).compact(index)
    del index, store, storage_options  # so that no traceback shows what they hold
    return io_loop.run(call)


async def compact_index_async(
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Run `compact_index` without blocking the event loop.

    Parameters
    ----------
    index, store, storage_options, options
        As for `compact_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
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
) -> IndexReport:
    """Remove objects of an index that it does not consist of any more.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    grace : float
        Seconds for which an object stays after the index has done without it: scans that have begun by then read it. Objects
        that were never part of the index, and files that a killed builder was writing, stay for an hour at least, as somebody
        may be building with them.
    store, storage_options, options
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
) -> IndexReport:
    """Run `vacuum_index` without blocking the event loop.

    Parameters
    ----------
    index, grace, store, storage_options, options
        As for `vacuum_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.
    """
    call = IndexCall(store, storage_options, options).vacuum(index, grace)
    del index, store, storage_options  # so that no traceback shows what they hold
    return await io_loop.bridge(call)


def _column(name: str) -> str:
    return column_text(column_named(name).path)


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
        self.options = check_options(options)
        self._connector = Connector(storage_options=storage_options, store=store, options=self.options)
        self._in_store = store is not None
        self._progress = progress

    def client(self, root: str) -> Client:
        """Return the client of a store."""
        return self._connector.client(root)

    def home(self, index: Path) -> CatalogHome:
        """Return the home of an index."""
        return home_at(index, self._connector, in_store=self._in_store)

    def builder(self, index: Path) -> CatalogBuilder:
        """Return what builds and keeps an index."""
        return CatalogBuilder(self.home(index), self.client, options=self.options, progress=self._progress)

    def builder_for(
        self,
        source: Path | None,
        to: Path | None,
        columns: Sequence[str] | None,
        indexes: Indexes | None,
    ) -> tuple[CatalogBuilder, CatalogHead | None]:
        """Return what builds the index of a source, and the head that it begins with; no head for an index that is there already.

        Raises
        ------
        StoreError, TypeError, ValueError
            As `build_index` does; ValueError too where neither a source nor an index is named.
        """
        if isinstance(columns, str):
            raise TypeError(f"columns is a sequence of names, not the text {columns!r:.80}")
        kinds = spelled_indexes(indexes or {})
        if source is None and to is None:
            raise ValueError("a source or an index is named, or both")
        beside = to is None
        index = index_beside(source or "") if to is None else to
        builder, home = self.builder(index), self.home(index)
        del index, to  # so that no traceback shows what they hold
        if source is None:
            return builder, None
        directory = directory_at(source, in_store=self._in_store)
        if home.is_in(directory):
            raise StoreError(
                "the index and the files cannot share a directory",
                path=str(directory),
                hint="a scan would take the index for data: name a directory beside, or one that begins with _",
            )
        head = CatalogHead(
            base="." if beside else directory.url,
            columns=None if columns is None else tuple(map(_column, columns)),
            indexes=kinds,
            complete=False,
        )
        return builder, head

    async def build(
        self,
        source: Path,
        to: Path | None,
        columns: Sequence[str] | None,
        indexes: Indexes | None,
    ) -> IndexReport:
        """Do what `build_index` does."""
        builder, head = self.builder_for(source, to, columns, indexes)
        del to
        return await builder.refresh(make=head)

    async def refresh(self, index: Path) -> IndexReport:
        """Do what `refresh_index` does."""
        builder = self.builder(index)
        del index
        return await builder.refresh()

    async def compact(self, index: Path) -> IndexReport:
        """Do what `compact_index` does."""
        builder = self.builder(index)
        del index
        return await builder.compact()

    async def vacuum(self, index: Path, grace: float) -> IndexReport:
        """Do what `vacuum_index` does."""
        if not grace >= 0:
            raise ValueError(f"grace is a number of seconds, not {grace!r}")
        builder = self.builder(index)
        del index
        return await builder.vacuum(grace=grace)
