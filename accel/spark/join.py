"""A join of a DataFrame with files, of which only the pages are read that may hold its keys.

The distinct keys are collected on the driver, which plans with them as a predicate; the tasks share one copy
of it. The executors filter by it, and Spark's own join of the DataFrame with what is left gives the rows. So
the keys only have to match too much, never too little, and the join means what it means in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from accel.api import plan, scan
from accel.errors import ColumnNotFoundError
from accel.options import check_options
from accel.planning.projection import spelled_name
from accel.predicate.expr import And, Constant, Expr, join, name_key
from accel.predicate.where import to_expr
from accel.runtime.time_limits import time_limit
from accel.scanning.signatures import refuse_unknown, spells_out
from accel.scanning.spec import SourceOptions, check_count
from accel.spark.arrow_frames import collect_arrow
from accel.spark.estimates import BROADCAST_BYTES, decoded_bytes
from accel.spark.frame import check_partitions, planned_frame
from accel.spark.job_limits import jobs_in_time
from accel.spark.keys import joined_ranges, key_sql, range_predicate, ranges_of_batches, tuple_predicate
from accel.spark.session import is_case_sensitive

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Paths

__all__ = ["MAX_KEYS", "key_predicate", "lookup"]

_JOINS: Final = ("inner", "left", "semi", "anti")
_KEY: Final = "__accel_key_"
MAX_KEYS: Final = 1_000_000
"""Keys that the driver and every Python worker can have in memory as a sorted list: 8 MB of numbers, some 100
MB of text."""


@spells_out(SourceOptions, as_for="accel.spark.read")
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
    timeout: float | None = None,
    **arguments: Unpack[SourceOptions],
) -> DataFrame:
    """Join a DataFrame with files, of which only the pages are read that may hold its keys.

    The distinct keys are collected now, by a job of Spark, and planned with on the driver; the rest runs when
    the result is used. The DataFrame is computed for both: cache it if that is expensive, and if it may
    differ from one time to the next (`rand`, a limit without an order), write it out before. Keys in an index
    (`indexes={"id": "keys"}`) are looked up on the driver.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The DataFrame, of Spark 3.5 or later.
    url : str, path, or list
        As for `accel.scan`. The driver and every executor must be able to read it.
    on : str, list of str, or mapping
        The key columns, which are equal in a row of the result: names that both sides have, or
        `{column of the DataFrame: column of the files}`. Null equals nothing, and NaN equals NaN, as in any
        join of Spark. Types that Spark compares by value may differ (docs/spark.md).
    columns : sequence of str, optional
        As for `accel.scan`: the columns of the files that come out beside those of the DataFrame, all by
        default. Their key columns do not.
    how : {"inner", "left", "semi", "anti"}
        The kind of join: the pairs that match; with the rows of the DataFrame that match nothing, too; the
        rows of the DataFrame that match, or that do not.
    where : str, list, or expression, optional
        As for `accel.scan`: rows of the files that do not pass are no match.
    max_keys : int
        Most distinct keys that are collected. Of more, the driver gets up to 64 ranges of each key column,
        which rule out less.
    partitions : int, optional
        As for `accel.spark.read`.
    timeout : float, optional
        Seconds for what is done now, the collection of the keys and the planning, after which
        ScanTimeoutError is raised.
    **arguments
        As for `accel.spark.read`.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns of the DataFrame, then those of the files, in no particular order of rows.

    Raises
    ------
    ColumnNotFoundError
        The files lack a key column.
    SchemaMismatchError
        A key column has a type that Spark does not compare by value with that of the files, or a column has a
        type for which Spark has no counterpart.
    TypeError
        `df` is no DataFrame, or an argument is of none of these types.
    ValueError
        The arguments contradict each other, or both sides have a column of one name that is no key.
    AccelError
        As `accel.plan` raises it. An executor raises `ObjectChangedError` if a file has changed since.

    Examples
    --------
    >>> wanted = spark.createDataFrame([("UA", 1545), ("B6", 725)], "carrier string, number int")
    >>> accel.spark.lookup(wanted, "s3://bucket/flights/", on={"carrier": "carrier", "number": "flight"})
    """
    refuse_unknown("lookup", arguments, SourceOptions)
    partitions, max_keys = check_partitions(partitions), check_count(max_keys, "max_keys")
    if how not in _JOINS:
        raise ValueError(f"how is one of {', '.join(_JOINS)}, not {how!r}")
    if not hasattr(df, "mapInArrow"):
        raise TypeError(f"the first argument is a DataFrame, not a {type(df).__name__}")
    pairs = _pairs(on)
    try:
        options = check_options(arguments.get("options"))
        exact = is_case_sensitive(df.sparkSession)
        source: dict[str, Any] = {**arguments, "options": options.for_spark(), "case_sensitive": exact}
        with time_limit(timeout, url if isinstance(url, str) else None), jobs_in_time(df.sparkSession):
            files = scan(url, **source).schema
            if not exact:
                pairs = {own: spelled_name(name, files) for own, name in pairs.items()}
                columns = None if columns is None else [spelled_name(name, files) for name in columns]
            values = _values(files, pairs, columns, how=how)
            keys = key_predicate(df, pairs, files, max_keys)
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
        del url, arguments
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


def key_predicate(df: DataFrame, pairs: Mapping[str, str], files: pa.Schema, max_keys: int) -> Expr:
    """Return the predicate of the distinct keys, for which Spark runs a job."""
    from pyspark.sql import functions

    columns = [files.field(name) for name in pairs.values()]
    names = [f"{_KEY}{at}" for at in range(len(pairs))]
    chosen = []
    for own, column, name in zip(pairs, columns, names, strict=True):
        given = df.select(_named(own)).schema[0].dataType.simpleString()
        sql = key_sql(given, column, name=own).format(_quoted(own))
        chosen.append(functions.expr(sql).alias(name))
    keys = df.select(chosen)
    for name in names:
        keys = keys.where(_named(name).isNotNull())
    found = _collected(keys, max_keys)
    if found is not None:
        return tuple_predicate(columns, found) if found.num_rows else Constant(False)
    if len(columns) == 1:
        return _range_predicate(keys, columns[0])
    tests = []
    for column, name in zip(columns, names, strict=True):
        one = keys.select(name)
        found = _collected(one, max_keys)
        tests.append(_range_predicate(one, column) if found is None else tuple_predicate([column], found))
    return join(And, tests)


def _collected(keys: DataFrame, max_keys: int) -> pa.Table | None:
    """Return the distinct keys; None where they are too many."""
    found = collect_arrow(keys.distinct().limit(max_keys + 1))
    return found if found.num_rows <= max_keys else None


def _range_predicate(keys: DataFrame, column: pa.Field) -> Expr:
    """Return the predicate of the ranges in which the keys of one column lie; the executors look for them."""
    (name,) = keys.columns
    kind = keys.schema[0].dataType.simpleString()
    parted = keys.repartitionByRange(name).sortWithinPartitions(name)
    ranges = collect_arrow(parted.mapInArrow(ranges_of_batches, f"low {kind}, high {kind}"))
    return range_predicate(column, joined_ranges(ranges))


def _joined(df: DataFrame, rows: DataFrame, planned: Plan, pairs: Mapping[str, str], how: str) -> DataFrame:
    """Join the DataFrame with the rows that may match."""
    inner = {name: f"{_KEY}{at}" for at, name in enumerate(pairs.values())}
    _refuse_clash(df, [name for name in planned.schema.names if name not in inner])
    rows = rows.toDF(*[inner.get(name, name) for name in planned.schema.names])
    if decoded_bytes(planned.tasks) > BROADCAST_BYTES:
        # Spark takes the size of the tasks for that of their rows, and would send those rows to every
        # executor.
        rows = rows.hint("merge")
    condition = [_named(own) == _named(inner[theirs]) for own, theirs in pairs.items()]
    return df.join(rows, condition, how).drop(*inner.values())


def _refuse_clash(df: DataFrame, names: Sequence[str]) -> None:
    key = name_key(case_sensitive=is_case_sensitive(df.sparkSession))
    theirs = set(map(key, df.columns))
    clash = [name for name in names if key(name) in theirs]
    if clash:
        raise ValueError(
            f"the DataFrame and the files both have columns named {clash}: rename those of the DataFrame, "
            "or leave those of the files out with columns="
        )


def _named(name: str) -> Column:
    from pyspark.sql import functions

    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
