"""A join of a DataFrame with files, of which only the pages are read that may hold its keys.

The distinct keys are collected on the driver, which plans with them as a predicate; the tasks share one copy of it. The
executors filter by it, and Spark's own join of the DataFrame with what is left gives the rows. So the keys only have to
match too much, never too little, and the join means what it means in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.api import AUTO, DEFAULT_CACHE, plan, scan
from accel.errors import ColumnNotFoundError
from accel.options import MIB, Options, check_options
from accel.predicate.expr import And, Constant, Expr, join
from accel.predicate.where import to_expr
from accel.scanning.spec import Path, check_count
from accel.spark.frame import check_partitions, planned_frame
from accel.spark.keys import key_cast, key_predicate, keys_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from accel.cache.cache import Cache
    from accel.catalog.own_index import FilesIndex
    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Partitioning, Paths

__all__ = ["lookup"]

_JOINS: Final = ("inner", "left", "semi", "anti")
_KEY: Final = "__accel_key_"
MAX_KEYS: Final = 1_000_000
_BROADCAST_BYTES: Final = 64 * MIB


def lookup(
    df: DataFrame,
    url: Paths,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    columns: Sequence[str] | None = None,
    how: str = "inner",
    where: Where = None,
    max_keys: int = MAX_KEYS,
    partitions: int | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
) -> DataFrame:
    """Join a DataFrame with files."""
    partitions, max_keys = check_partitions(partitions), check_count(max_keys, "max_keys")
    if how not in _JOINS:
        raise ValueError(f"how is one of {', '.join(_JOINS)}, not {how!r}")
    if not hasattr(df, "mapInArrow"):
        raise TypeError(f"the first argument is a DataFrame, not a {type(df).__name__}")
    pairs = _pairs(on)
    try:
        options = check_options(options)
        source: dict[str, Any] = {
            "schema": schema,
            "partitioning": partitioning,
            "glob": glob,
            "index": index,
            "listing": listing,
            "store": store,
            "storage_options": storage_options,
            "cache": cache,
            "options": options.for_spark(),
        }
        files = scan(url, **source).schema
        values = _values(files, pairs, columns, how=how)
        keys = _collected(df, pairs, files, max_keys)
        condition = to_expr(where)
        planned = plan(
            url,
            keys if condition is None else join(And, [condition, keys]),
            columns=[*dict.fromkeys([*pairs.values(), *values])],
            **source,
        )
        source["options"] = options
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        source = {}
        del url, storage_options, store
        raise
    rows = planned_frame(df.sparkSession, planned, partitions=partitions, keywords=source)
    return _joined(df, rows, planned, pairs, how)


def _pairs(on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the key columns of the DataFrame, each with that of the files."""
    pairs = dict(on) if isinstance(on, Mapping) else None
    if pairs is None:
        names = [on] if isinstance(on, str) else list(on)
        pairs = {name: name for name in names}
        if len(pairs) < len(names):
            raise ValueError(f"on= names a column twice: {names}")
    if not pairs or not all(isinstance(name, str) for pair in pairs.items() for name in pair):
        raise TypeError("on= is the name of a column, a list of names, or a mapping from names to names")
    if len(set(pairs.values())) < len(pairs):
        raise ValueError(f"on= names a column of the files twice: {list(pairs.values())}")
    return pairs


def _values(
    files: pa.Schema, pairs: Mapping[str, str], columns: Sequence[str] | None, *, how: str
) -> list[str]:
    """Return the columns of the files that come out, without those that the DataFrame has as keys."""
    missing = [name for name in pairs.values() if name not in files.names]
    if missing:
        raise ColumnNotFoundError(
            f"the files have no column {missing[0]!r} to look keys up in",
            column=missing[0],
            hint="on= takes names of top-level columns, {column of the DataFrame: column of the files}",
        )
    if how in ("semi", "anti"):
        if columns:
            raise ValueError(
                f"a join of the kind {how} has only the columns of the DataFrame: leave columns= out"
            )
        return []
    if columns is None:
        return [name for name in files.names if name not in pairs.values()]
    return [name for name in columns if name not in pairs.values()]


def _collected(df: DataFrame, pairs: Mapping[str, str], files: pa.Schema, max_keys: int) -> Expr:
    """Return the predicate of the distinct keys, for which Spark runs a job."""
    casts = {
        own: key_cast(df.select(_named(own)).schema[0].dataType.simpleString(), files.field(theirs), name=own)
        for own, theirs in pairs.items()
    }
    chosen = [
        (_named(own) if cast is None else _named(own).try_cast(cast)).alias(f"{_KEY}{at}")
        for at, (own, cast) in enumerate(casts.items())
    ]
    keys = df.select(chosen)
    for at in range(len(pairs)):
        keys = keys.where(_named(f"{_KEY}{at}").isNotNull())
    found = keys.distinct().limit(max_keys + 1).toArrow()
    arrays = [keys_of(found.column(at), files.field(name)) for at, name in enumerate(pairs.values())]
    if any(not len(values) for values in arrays):
        return Constant(False)
    return key_predicate(list(pairs.values()), arrays)


def _joined(df: DataFrame, rows: DataFrame, planned: Plan, pairs: Mapping[str, str], how: str) -> DataFrame:
    """Join the DataFrame with the rows that may match."""
    inner = {name: f"{_KEY}{at}" for at, name in enumerate(pairs.values())}
    _refuse_clash(df, [name for name in planned.schema.names if name not in inner])
    rows = rows.toDF(*[inner.get(name, name) for name in planned.schema.names])
    if (
        sum(reads.nbytes * reads.expansion for task in planned.tasks for reads in task.reads)
        > _BROADCAST_BYTES
    ):
        # Spark takes the size of the tasks for that of their rows, and would send those rows to every executor.
        rows = rows.hint("merge")
    condition = [_named(own) == _named(inner[theirs]) for own, theirs in pairs.items()]
    return df.join(rows, condition, how).drop(*inner.values())


def _refuse_clash(df: DataFrame, names: Sequence[str]) -> None:
    exact = df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    theirs = {name if exact else name.lower() for name in df.columns}
    clash = [name for name in names if (name if exact else name.lower()) in theirs]
    if clash:
        raise ValueError(
            f"the DataFrame and the files both have columns named {clash}: rename those of the DataFrame, "
            "or leave those of the files out with columns="
        )


def _named(name: str) -> Column:
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")
