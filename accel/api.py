"""The verbs: what a caller asks a scan or a plan with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import pyarrow as pa

from accel.cache.cache import Cache
from accel.metrics import Metrics
from accel.options import Options, check_options
from accel.scanning.engine import Engine
from accel.scanning.file_source import FileSource
from accel.scanning.scan import Scan
from accel.scanning.spec import ScanSpec, check_arguments
from accel.store import io_loop
from accel.store.client import Connector

if TYPE_CHECKING:
    from accel.catalog.own_index import FilesIndex
    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Partitioning, Path, PathKey, Source

__all__ = ["DEFAULT_CACHE", "plan", "plan_async", "scan"]

AUTO = "auto"
"""Stands for the index that lies beside the files, if there is one."""
DEFAULT_CACHE = Cache()
"""The one that the scans of a process share, where they are not given another."""


def scan(
    source: Source,
    where: Where = None,
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    selection: Mapping[PathKey, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    order: bool = True,
    embedded: Mapping[str, str] | None = None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Scan:
    """Ask a question of Parquet files. No I/O happens before the result is used.

    Parameters
    ----------
    source : str, path, list, Plan, or iterator of record batches
        A URL or path, a list of them, a glob, a directory (hive partitions are recognised), a `Plan`; or what
        `mapInArrow` passes: record batches with a `path` column, or with the tasks of a plan.
    where : str, list, or expression, optional
        A SQL boolean expression (docs/predicates.md), pyarrow's filter lists, or `accel.col("a") > 1`.
    columns : sequence of str, optional
        Names, or dotted paths into structs, in the order wanted; None for all, [] for row counts only.
    limit : int, optional
        Stop after so many rows: the first in file order, with `order=False` any that many.
    selection : mapping, optional
        The caller's own access plan, `{path: {row group: [(start, stop), ...]}}`: half-open rows within each
        row group. Files and row groups not named are not read. It is intersected with what pruning finds.
        A path stands for a URL where no other store's file has it.
    schema : pyarrow.Schema, optional
        Of the data set. By default the first file's, with the partition columns appended.
    partitioning : {"auto", "hive", None} or pyarrow.Schema
        How directory names are read: "hive" makes columns of `key=value`, a schema of those that it names, in its types,
        None of none. "auto" is "hive", but None of an iterator: its paths come some at a time, and keys and types are
        told by all of them. Of a folder only names below it count (docs/stores.md).
    glob : bool
        Whether `*`, `?` and `[` in a path form a pattern.
    order : bool
        Rows come in file order; False may interleave files, each with its own rows in order.
    embedded : mapping, optional
        `{column: "idx1"}`: the files hold the distinct-value index of DataFusion's example, and it covers this
        column. It names no column and has no checksum: whoever says this vouches for it. Indexes of accel's own
        (docs/indexes.md) are found without being named.
    index : "auto", str, PathLike, FilesIndex, or None
        The directory of an index outside the files, which `accel.build_index` has made: it rules files out before they are
        opened, and has the metadata of the others. Out of date it costs time, and never a row. "auto" is `_accel/` in the
        directory that is scanned, if there is one; None takes none. An object with a method `files` is an index of your own
        (docs/catalog.md).
    listing : {"store", "index"}
        Where the list of files comes from: the store, or the index as it was refreshed last, which saves the listing.
    store : obstore store or RangeStore, optional
        Takes the place of the store that URLs name; paths then are relative to it.
    storage_options : mapping, optional
        obstore's keys (`endpoint`, `access_key_id`, `region`, ...), each store's own (docs/stores.md); else the
        usual environment variables.
    cache : Cache or None
        By default one for the process; None for no caching beyond this scan.
    options : Options, optional
        Every setting a caller may change.

    Returns
    -------
    Scan

    Raises
    ------
    PredicateError
        `where` does not parse, or is no predicate.
    TypeError
        Another argument is of no type named here; `store` and `storage_options` are looked at when the result is used,
        which raises StoreError.
    ValueError
        Arguments that do not go together.
    """
    _refuse("scan", refused)
    spec = check_arguments(
        source,
        where,
        columns=columns,
        limit=limit,
        selection=selection,
        schema=schema,
        partitioning=partitioning,
        glob=glob,
        order=order,
        embedded=embedded,
        options=check_options(options),
    )
    return Scan(
        _engine(spec, store=store, storage_options=storage_options, cache=cache, index=index, listing=listing)
    )


def _engine(
    spec: ScanSpec,
    *,
    store: object | None,
    storage_options: Mapping[str, Any] | None,
    cache: Cache | None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
) -> Engine:
    if cache is not None and not isinstance(cache, Cache):
        raise TypeError(f"cache is an accel.Cache, or None for none, not {cache!r:.80}")

    _check_index(index, listing, spec)
    connector = Connector(storage_options=storage_options, store=store, options=spec.options)

    def make_source(spec: ScanSpec) -> FileSource:
        from accel.catalog.published import INDEX_NAME, IndexBesideFiles
        from accel.tables.path_source import PathSource

        beside = None
        if index == AUTO and isinstance(spec.source, str | os.PathLike) and listing == "store":
            beside = IndexBesideFiles(spec, connector, cache=cache, in_store=store is not None)
        paths = PathSource(
            spec.source,
            partitioning=spec.partitioning,
            glob=spec.glob,
            in_store=store is not None,
            text_columns=spec.texts,
            cache=cache,
            index=beside,
        )
        if index is None or (index == AUTO and listing == "store"):
            return paths
        if not isinstance(index, str | os.PathLike):
            from accel.catalog.own_index import OwnIndexSource

            return OwnIndexSource(index, os.fspath(spec.source), in_store=store is not None, files=paths)
        from accel.catalog.pruning import CatalogPruner
        from accel.catalog.source import CatalogSource, Listing
        from accel.catalog.verbs import home_at

        place = f"{os.fspath(spec.source).rstrip('/')}/{INDEX_NAME}" if index == AUTO else index
        pruner = CatalogPruner(home_at(place, connector, in_store=store is not None), spec, cache=cache)
        return CatalogSource(paths, pruner, spec, listing=Listing(listing), in_store=store is not None)

    return Engine(spec, connector.client, cache=cache, make_source=make_source)


def _check_index(index: Path | FilesIndex | None, listing: str, spec: ScanSpec) -> None:
    if not (index is None or isinstance(index, str | os.PathLike) or hasattr(index, "files")):
        raise TypeError(f"index is a directory, an index of your own, or None, not {index!r:.80}")
    if listing not in ("store", "index"):
        raise ValueError(f'listing is "store" or "index", not {listing!r:.80}')
    if listing == "index":
        if index is None:
            raise ValueError('listing="index" needs an index')
        if index == AUTO and not isinstance(spec.source, str | os.PathLike):
            raise ValueError('name the index: listing="index" finds none beside a list of files')


def plan(
    source: Source,
    where: Where = None,
    *,
    columns: Sequence[str] | None = None,
    selection: Mapping[PathKey, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    embedded: Mapping[str, str] | None = None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Plan:
    """Plan a scan: read its metadata and find the pages to read, but read no data.

    The arguments are those of `scan`, but for `limit` and `order`, which are given to the scan of the plan. Over an
    iterator of record batches with a `path` column (`mapInArrow`) it plans those files.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError, ValueError
        As `scan` does.
    PredicateError, ColumnNotFoundError, SchemaMismatchError
        The question does not parse, or not fit the files.
    ParquetFormatError, EncryptedFileError
        A file cannot be read.
    StoreError
        The store did not answer, or holds no such file (ObjectNotFoundError).
    """
    _refuse("plan", refused)
    asked = scan(
        source,
        where,
        columns=columns,
        selection=selection,
        schema=schema,
        partitioning=partitioning,
        glob=glob,
        embedded=embedded,
        index=index,
        listing=listing,
        store=store,
        storage_options=storage_options,
        cache=cache,
        options=options,
    )._engine
    # They may be credentials, and whoever shows a failure may show the variables of its frames.
    del source, store, storage_options
    return _one_plan([io_loop.run(part.plan(Metrics())) for part in asked.parts()])


async def plan_async(
    source: Source,
    where: Where = None,
    *,
    columns: Sequence[str] | None = None,
    selection: Mapping[PathKey, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    embedded: Mapping[str, str] | None = None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Plan:
    """`plan`, awaited."""
    _refuse("plan_async", refused)
    asked = scan(
        source,
        where,
        columns=columns,
        selection=selection,
        schema=schema,
        partitioning=partitioning,
        glob=glob,
        embedded=embedded,
        index=index,
        listing=listing,
        store=store,
        storage_options=storage_options,
        cache=cache,
        options=options,
    )._engine
    del source, store, storage_options
    return _one_plan([await io_loop.bridge(part.plan(Metrics())) for part in asked.parts()])


# What other libraries call an argument -> what it is here.
_ELSEWHERE = {
    **dict.fromkeys(("filter", "filters", "predicate", "query"), "where"),
    **dict.fromkeys(("n_rows", "nrows", "num_rows", "head"), "limit"),
    **dict.fromkeys(("select", "projection", "usecols"), "columns"),
    **dict.fromkeys(("filesystem", "fs"), "store= or storage_options"),
    **dict.fromkeys(
        ("endpoint", "endpoint_url", "region", "credentials", "headers", "config"), "storage_options"
    ),
    **dict.fromkeys(("hive_partitioning", "partition_by"), "partitioning"),
    "row_groups": "selection",
}


def _refuse(verb: str, refused: Mapping[str, object]) -> None:
    for name in refused:
        if name in ("limit", "order"):
            raise TypeError(f"{verb}() takes no {name}")
        meant = _ELSEWHERE.get(name)
        if meant is None:
            import difflib

            meant = next(iter(difflib.get_close_matches(name, scan.__kwdefaults__ or (), 1)), None)
        told = f": did you mean {meant}=?" if meant else ""
        raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{told}")


def _one_plan(plans: Sequence[Plan]) -> Plan:
    if len(plans) == 1:
        return plans[0]
    from accel.planning.plan import Plan

    tasks = [task for plan in plans for task in plan.tasks]
    return Plan(tasks, schema=plans[0].schema if plans else pa.schema([]))
