"""The verbs `scan`, `plan` and `distinct`: they check their arguments, choose a source of files and hand it to `scanning`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, cast

import pyarrow as pa

from accel.cache.cache import Cache
from accel.metrics import Metrics
from accel.options import Options, check_options
from accel.scanning.engine import Engine
from accel.scanning.file_source import FileSource
from accel.scanning.scan import Scan
from accel.scanning.spec import OnError, ScanSpec, check_arguments
from accel.store import io_loop
from accel.store.client import Connector

if TYPE_CHECKING:
    from accel.catalog.homes import CatalogHome
    from accel.catalog.own_index import FilesIndex
    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Partitioning, Path, PathKey, Source

__all__ = ["DEFAULT_CACHE", "distinct", "distinct_async", "plan", "plan_async", "scan"]

AUTO = "auto"
"""Stands for the index that lies beside the files, if there is one."""
DEFAULT_CACHE = Cache()
"""The cache that the scans of a process share unless they are given another."""


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
    learn: bool = False,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Scan:
    """Query Parquet files. No I/O happens before the result is used.

    Parameters
    ----------
    source : str, path, list, Plan, or iterator of record batches
        A URL or path, a list of them, a glob, a directory (hive partitions are recognised), a `Plan`; or the
        record batches that `mapInArrow` passes, with a `path` column or with the tasks of a plan.
    where : str, list, or expression, optional
        A SQL boolean expression (docs/predicates.md), pyarrow's filter lists, or `accel.col("a") > 1`.
    columns : sequence of str, optional
        Names, or dotted paths into structs, in the order of the result; None for all, [] for row counts only.
    limit : int, optional
        Stop after this many rows: the first in file order, or any of them with `order=False`.
    selection : mapping, optional
        The caller's own access plan, `{path: {row group: [(start, stop), ...]}}`: half-open rows within each
        row group. Files and row groups not named are not read. It is intersected with what pruning finds.
        A path may stand for a URL unless a file of another store has the same path.
    schema : pyarrow.Schema, optional
        The schema of the data set; by default that of the first file, with the partition columns appended.
    partitioning : {"auto", "hive", None} or pyarrow.Schema
        How directory names are read: "hive" makes a column of every `key=value`, a schema makes those that it names, in
        its types, and None makes none. "auto" is "hive", or None for an iterator, whose paths come bit by bit while keys
        and types depend on all of them. For a folder only names below it count (docs/stores.md).
    glob : bool
        Whether `*`, `?` and `[` in a path form a pattern.
    order : bool
        Whether rows come in file order; False may interleave files, each with its own rows in order.
    embedded : mapping, optional
        `{column: "idx1"}`: the files hold the distinct-value index of DataFusion's example, and it covers this
        column. That index names no column and has no checksum, so the caller vouches for it. accel's own indexes
        (docs/indexes.md) are found without being named.
    index : "auto", str, PathLike, FilesIndex, or None
        The directory of an index outside the files, which `accel.build_index` has made: it rules files out before they are
        opened, and has the metadata of the others. Out of date it costs time, and never a row. "auto" is `_accel/` in the
        directory that is scanned, if there is one; None takes none. An object with a method `files` is an index of your own
        (docs/catalog.md).
    listing : {"store", "index"}
        Where the list of files comes from: the store, or the index as it was refreshed last, which saves the listing.
    learn : bool
        Whether the index takes in the metadata of files that the scan opens and that it lacks (docs/catalog.md). That
        happens beside the answer, and now and then; `close` waits for it. An index that is not there yet is made. With
        `index="auto"` it is that of the directory, `_accel/`.
    store : obstore store or RangeStore, optional
        Replaces the store that URLs name; paths are relative to it.
    storage_options : mapping, optional
        obstore's keys (`endpoint`, `access_key_id`, `region`, ...), which differ by store (docs/stores.md); by default
        the usual environment variables.
    cache : Cache or None
        By default one for the process; None for no caching beyond this scan.
    options : Options, optional
        Every setting that a caller may change.

    Returns
    -------
    Scan
        The query, to be read as batches, a table or a count, or explained.

    Raises
    ------
    PredicateError
        `where` does not parse, or is no predicate.
    TypeError
        Another argument is of none of these types, or unknown. `store` and `storage_options` are checked when the result
        is used, which raises StoreError.
    ValueError
        The arguments contradict each other.

    Examples
    --------
    >>> scan = accel.scan("s3://bucket/flights/", "carrier = 'UA'", columns=["flight", "dep_delay"])
    >>> scan.to_table()
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
        _engine(
            spec,
            store=store,
            storage_options=storage_options,
            cache=cache,
            index=index,
            listing=listing,
            learn=learn,
        )
    )


def _engine(
    spec: ScanSpec,
    *,
    store: object | None,
    storage_options: Mapping[str, Any] | None,
    cache: Cache | None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    learn: bool = False,
) -> Engine:
    if cache is not None and not isinstance(cache, Cache):
        raise TypeError(f"cache is an accel.Cache, or None for none, not {cache!r:.80}")

    _check_index(index, listing, spec, learn=learn)
    connector = Connector(storage_options=storage_options, store=store, options=spec.options)

    def find_home() -> CatalogHome:
        from accel.catalog.homes import home_at
        from accel.catalog.published import index_beside

        place = index_beside(os.fspath(spec.source)) if index == AUTO else cast("Path", index)
        return home_at(place, connector, in_store=store is not None)

    def make_source(spec: ScanSpec) -> FileSource:
        from accel.catalog.published import IndexBesideFiles
        from accel.tables.path_source import PathSource

        beside = None
        if index == AUTO and isinstance(spec.source, str | os.PathLike) and listing == "store" and not learn:
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
        if index is None or (index == AUTO and listing == "store" and not learn):
            return paths
        if not isinstance(index, str | os.PathLike):
            from accel.catalog.own_index import OwnIndexSource

            return OwnIndexSource(index, os.fspath(spec.source), in_store=store is not None, files=paths)
        from accel.catalog.pruning import CatalogPruner
        from accel.catalog.source import CatalogSource, Listing

        home = find_home()
        learner = None
        if learn:
            from accel.catalog.learning import first_head, learner_of

            make = first_head(spec, beside=index == AUTO, in_store=store is not None)
            learner = learner_of(home, connector.client, options=spec.options, make=make)
        pruner = CatalogPruner(home, spec, cache=cache, may_lack=learn)
        return CatalogSource(
            paths, pruner, spec, listing=Listing(listing), in_store=store is not None, learner=learner
        )

    async def settle() -> None:
        from accel.catalog.learning import settle_learning

        await settle_learning(find_home())

    return Engine(
        spec, connector.client, cache=cache, make_source=make_source, settle=settle if learn else None
    )


def _check_index(index: Path | FilesIndex | None, listing: str, spec: ScanSpec, *, learn: bool) -> None:
    if not (index is None or isinstance(index, str | os.PathLike) or hasattr(index, "files")):
        raise TypeError(f"index is a directory, an index of your own, or None, not {index!r:.80}")
    if listing not in ("store", "index"):
        raise ValueError(f'listing is "store" or "index", not {listing!r:.80}')
    if not isinstance(learn, bool):
        raise TypeError(f"learn is True or False, not {learn!r:.80}")
    if learn:
        if not isinstance(index, str | os.PathLike):
            raise ValueError("learn=True needs the directory of an index, which build_index makes")
        if listing == "index":
            raise ValueError('learn=True needs listing="store": the list of an index has no other files')
        if index == AUTO and not isinstance(spec.source, str | os.PathLike):
            raise ValueError("name the index: learn=True finds none beside a list of files")
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
    learn: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Plan:
    """Plan a scan: read its metadata and find the pages to read, but read no data.

    `limit` and `order` are arguments of the scan of the plan. For an iterator of record batches with a `path` column, as
    `mapInArrow` passes it, the plan is of those files.

    Parameters
    ----------
    source, where, columns, selection, schema, partitioning, glob, embedded, index, listing, learn
        As for `scan`.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: its error is raised, or the plan goes without it and names it in
        `plan.metrics.warnings`.
    store, storage_options, cache, options
        As for `scan`.

    Returns
    -------
    Plan
        The tasks that `accel.scan(plan)` runs, here or on other machines.

    Raises
    ------
    TypeError, ValueError
        As `scan` raises them.
    PredicateError, ColumnNotFoundError, SchemaMismatchError
        The predicate does not parse, or the query does not fit the files.
    ParquetFormatError, EncryptedFileError
        A file cannot be read.
    StoreError
        The store did not answer, or holds no such file (ObjectNotFoundError).
    """
    _refuse("plan", refused)
    skips = OnError(on_error)
    engine = scan(
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
        learn=learn,
        store=store,
        storage_options=storage_options,
        cache=cache,
        options=options,
    )._engine
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del source, index, store, storage_options
    return _one_plan([io_loop.run(part.plan(Metrics(), on_error=skips)) for part in engine.parts()])


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
    learn: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
    **refused: Never,
) -> Plan:
    """Plan a scan from a coroutine.

    Parameters
    ----------
    source, where, columns, selection, schema, partitioning, glob, embedded, index, listing, learn
        As for `scan`.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: its error is raised, or the plan goes without it and names it in
        `plan.metrics.warnings`.
    store, storage_options, cache, options
        As for `scan`.

    Returns
    -------
    Plan
        As `plan` returns it.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `plan` raises them.
    """
    _refuse("plan_async", refused)
    skips = OnError(on_error)
    engine = scan(
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
        learn=learn,
        store=store,
        storage_options=storage_options,
        cache=cache,
        options=options,
    )._engine
    del source, index, store, storage_options
    return _one_plan([await io_loop.bridge(part.plan(Metrics(), on_error=skips)) for part in engine.parts()])


def distinct(
    source: Source,
    column: str,
    where: Where = None,
    *,
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
) -> pa.Array:
    """Find the distinct values of a column of Parquet files.

    They come from the paths, an index outside the files, statistics, embedded indexes and dictionary pages where these
    prove them, and from the rows of the other pages: see docs/aggregates.md. `Scan.distinct` does the same for a scan, whose
    `explain(distinct=...)` and `metrics.distinct_units` tell which.

    Parameters
    ----------
    source : str, path, list, Plan, or iterator of record batches
        As for `scan`.
    column : str
        The column, or a dotted path into structs.
    where : str, list, or expression, optional
        Which rows count, as for `scan`.
    selection, schema, partitioning, glob, embedded, index, listing
        As for `scan`.
    store, storage_options, cache, options
        As for `scan`.

    Returns
    -------
    pyarrow.Array
        The values in ascending order, each once, of the column's type without dictionary encoding; NaN follows the
        numbers, and null, where there is one, is the last. -0.0 becomes 0.0.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    SchemaMismatchError
        The values of the column have no order: lists, structs.
    TypeError, ValueError, PredicateError, ParquetFormatError, EncryptedFileError, StoreError
        As `plan` raises them.

    Examples
    --------
    >>> accel.distinct("s3://bucket/flights/", "carrier", "dep_delay > 60")
    """
    _refuse("distinct", refused)
    asked = scan(
        source,
        where,
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
    )
    del source, store, storage_options
    return asked.distinct(column)


async def distinct_async(
    source: Source,
    column: str,
    where: Where = None,
    *,
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
) -> pa.Array:
    """Find the distinct values of a column from a coroutine, as `distinct` does.

    Parameters
    ----------
    source, column, where
        As for `distinct`.
    selection, schema, partitioning, glob, embedded, index, listing
        As for `scan`.
    store, storage_options, cache, options
        As for `scan`.

    Returns
    -------
    pyarrow.Array
        The values in ascending order.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `distinct` raises them.
    """
    _refuse("distinct_async", refused)
    asked = scan(
        source,
        where,
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
    )
    del source, store, storage_options
    return await asked.distinct_async(column)


# The names of arguments in other libraries -> their names here.
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
        advice = f": did you mean {meant}=?" if meant else ""
        raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{advice}")


def _one_plan(plans: Sequence[Plan]) -> Plan:
    if len(plans) == 1:
        return plans[0]
    from accel.planning.plan import Plan

    tasks = [task for plan in plans for task in plan.tasks]
    metrics = Metrics()
    for plan in plans:
        metrics.merge(plan.metrics)
    return Plan(tasks, schema=plans[0].schema if plans else pa.schema([]), metrics=metrics)
