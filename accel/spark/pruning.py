"""SQL that reads what it needs: the DataFrames of accel in a query get its own filters and columns.

Spark plans the query as it always does. In the optimized plan each use of accel is then replaced by a read of
the rows and columns that the plan asks of it. Spark's filters stay where they are, so that a filter that was
pushed saves bytes and decides nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.api import plan, scan
from accel.decode.spark_types import Decimals, taken_schema
from accel.errors import AccelError, SchemaMismatchError
from accel.options import MIB, check_options
from accel.planning.projection import find_type
from accel.predicate.expr import And, Expr, join, name_key
from accel.predicate.sql import to_sql
from accel.predicate.where import to_expr
from accel.scanning.spec import OnError
from accel.spark.aggregates import FoldedUse, folded_row
from accel.spark.arrow_frames import arrow_frame, loses_rows_without_columns
from accel.spark.catalyst import Leaf, Measure, Rewriter, UnlikePlanError
from accel.spark.catalyst_filters import Combination, Connective
from accel.spark.column_tests import (
    NOTHING,
    ColumnTest,
    Operator,
    Translated,
    translate_and,
    translate_not,
    translate_or,
    translate_test,
)
from accel.spark.credentials import with_credentials
from accel.spark.estimates import with_size
from accel.spark.executing import TaskReader, for_executors, one_line_errors
from accel.spark.file_names import source_of
from accel.spark.frame import PlannedRead, plan_read
from accel.spark.join import MAX_KEYS, key_predicate
from accel.spark.read_records import ReadRecord, name_of_source
from accel.spark.schema import spark_schema
from accel.spark.session import is_case_sensitive
from accel.spark.source_options import SourceOptions, read_options
from accel.spark.struct_fields import fields_to_read, whole_structs

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from accel.metrics import Metrics
    from accel.scanning.spec import Paths

__all__ = ["INSTEAD_OF_PRUNE", "explain", "prune", "sql", "table"]

_UNKNOWN_SIZE = 1 << 40
"""Bytes that Spark takes a table for as long as nobody has pruned it: too many to be sent anywhere."""
_SHOWN = 8
"""Values of a list that `explain` shows."""
_AT_ONCE = 16
"""Reads of one query that are planned at a time."""
_OF_PLANNING = (
    "schema",
    "partitioning",
    "glob",
    "table",
    "embedded",
    "index",
    "listing",
    "file_path",
    "row_number",
    "case_sensitive",
    "timeout",
)
_OF_EXECUTORS = ("storage_options", "options", "store", "cache")
_OF_READ = ("partitions", "planning", "on_error", "credentials")
KEY_BYTES = 16 * MIB
"""The most bytes, as Spark's planner takes it, of a side of a join whose keys are asked for on the other."""
WORTH_BYTES = 64 * MIB
"""The least bytes of a read, decoded, for which the keys of the other side are collected."""
INSTEAD_OF_PRUNE = "where= and columns= of accel.spark.read prune on any Spark"


def prune(df: DataFrame, *, join_keys: bool = True) -> DataFrame:
    """Return a DataFrame of the same rows that reads only the columns and pages of accel that its filters
    leave.

    Every use of accel in its plan is pruned by itself: views and DataFrames of `format("accel")`, and of
    `accel.spark.table`, below joins, in subqueries, unions and self-joins. They are planned now, as
    `accel.spark.read` plans, and each file is read in the version that is planned.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        A DataFrame of a classic session that is not streaming. Relations that Spark has cached stay as they
        are.
    join_keys : bool
        Whether joins ask by keys: where one side of a join on plain columns has at most 16 MiB, and the other
        reads at least 64 MiB of accel, a job collects the distinct keys of the first now, and the other reads
        only what may have them, as `accel.spark.lookup` does. The first side runs twice, so that only one
        is taken that reads nothing but accel.

    Returns
    -------
    pyspark.sql.DataFrame
        The DataFrame itself where it uses no accel, or where its plan has something that is unknown to accel;
        that is warned of.

    Raises
    ------
    TypeError
        `df` is no DataFrame.
    AccelError
        It is of Spark Connect, or streaming; or as `accel.spark.read` raises it.

    Examples
    --------
    >>> frame = spark.sql("SELECT carrier FROM flights WHERE month = 2 AND dep_delay > 60")
    >>> pruned = accel.spark.prune(frame)
    """
    return _pruned(df, join_keys=join_keys)[0]


def sql(spark: SparkSession, text: str, *, join_keys: bool = True, **sources: Any) -> DataFrame:
    """Return the rows of a query in SQL, which reads only the columns and pages of accel that it needs.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A classic session.
    text : str
        The query. It may use views over `format("accel")`, and `{name}` for each of the sources.
    join_keys : bool
        As of `prune`.
    **sources : str, path, list, or DataFrame
        What `{name}` stands for: what `accel.spark.table` takes as its URL, or any DataFrame.

    Returns
    -------
    pyspark.sql.DataFrame
        As of `prune`.

    Raises
    ------
    ValueError
        A source has the name of a parameter of `spark.sql`.
    AccelError
        As `prune` raises it.

    Examples
    --------
    >>> accel.spark.sql(
    ...     spark,
    ...     "SELECT name, count(*) FROM {f} JOIN {a} ON f.carrier = a.carrier WHERE month = 2 GROUP BY name",
    ...     f="s3://bucket/flights/",
    ...     a="s3://bucket/airlines.parquet",
    ... )
    """
    _check_session(spark)
    for name in ("args", "sqlQuery"):
        if name in sources:
            raise ValueError(f"a source cannot be named {name!r}, which is a parameter of spark.sql")
    frames: dict[str, Any] = {
        name: source if hasattr(source, "mapInArrow") else table(spark, source)
        for name, source in sources.items()
    }
    return prune(spark.sql(text, **frames) if frames else spark.sql(text), join_keys=join_keys)


def table(spark: SparkSession, url: Paths, **arguments: Any) -> DataFrame:
    """Return a DataFrame of whole files that is there to be pruned: by `prune`, or in a query of
    `accel.spark.sql`.

    Only its schema is settled now. If it is used without `prune`, all its rows are read by a single task.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A classic session of Spark 3.5 or later.
    url : str, path, or list
        As for `accel.spark.read`.
    **arguments : object
        As for `accel.spark.read`, without `where`, `columns`, `limit` and `selection`: the query has those.

    Returns
    -------
    pyspark.sql.DataFrame
        All rows, in the types that docs/spark.md lists.

    Raises
    ------
    TypeError
        An argument is none of these.
    AccelError
        It is a session of Spark Connect, or as `accel.scan(...).schema` raises it.

    Examples
    --------
    >>> flights = accel.spark.table(spark, "s3://bucket/flights/")
    >>> accel.spark.prune(flights.where("month = 2").select("carrier")).count()
    """
    from accel.spark.job_metrics import counts_of

    _check_session(spark)
    for name in arguments:
        if name not in (*_OF_PLANNING, *_OF_EXECUTORS, *_OF_READ):
            raise TypeError(f"accel.spark.table has no argument {name!r}")
    if arguments.get("case_sensitive") is None:
        arguments["case_sensitive"] = is_case_sensitive(spark)
    try:
        options = check_options(arguments.pop("options", None)).for_spark()
        own = {name: value for name, value in arguments.items() if name in _OF_PLANNING}
        travelling = {name: value for name, value in arguments.items() if name in _OF_EXECUTORS}
        credentials = arguments.get("credentials")
        keywords = with_credentials({**own, **travelling, "options": options}, credentials)
        schema = scan(url, **keywords).schema
        sent = {**own, **for_executors({**travelling, "options": options})}
        more = {name: value for name, value in arguments.items() if name in _OF_READ}
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        keywords, travelling, own, arguments = {}, {}, {}, {}
        del url
        raise
    found = AccelTable(source=url, scanning=sent, reading=more, schema=schema, counts=counts_of(spark))
    one = with_size(spark, arrow_frame(spark, pa.table({"table": pa.array([0], pa.int32())})), _UNKNOWN_SIZE)
    return one.mapInArrow(found, spark_schema(schema))


def explain(df: DataFrame) -> str:
    """Return what `prune` pushes to each use of accel in a DataFrame, one in a paragraph.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        A DataFrame, or what `prune` or `accel.spark.sql` made of one.

    Returns
    -------
    str
        Of each use: its source, its columns, the filters that were pushed, those that are left to Spark
        alone, and the bytes that Spark's planner takes it for.

    Raises
    ------
    AccelError
        As `prune` raises it.

    Examples
    --------
    >>> print(accel.spark.explain(spark.sql("SELECT carrier FROM flights WHERE month = 2")))
    """
    uses = getattr(df, _USES, None)
    if uses is None:
        uses = _pruned(df, join_keys=True)[1]
    return "\n\n".join(map(str, uses)) if uses else "no use of accel that can be pruned"


_USES = "_accel_uses"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelTable:
    """The function of `accel.spark.table`: read by `prune` for what it stands for, and by Spark for all
    rows."""

    source: Any = field(repr=False)
    scanning: Mapping[str, Any] = field(repr=False)
    """The keywords of the scan."""
    reading: Mapping[str, Any] = field(repr=False)
    """The other keywords of `accel.spark.read`."""
    schema: pa.Schema
    counts: Accumulator[Metrics] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, once for all tables that Spark passes."""
        if not sum(batch.num_rows for batch in batches):
            return
        on_error = OnError(self.reading.get("on_error", "raise"))
        credentials = self.reading.get("credentials")
        reader = TaskReader(
            keywords={name: value for name, value in self.scanning.items() if name in _OF_EXECUTORS},
            credentials=credentials,
            on_error=on_error,
            counts=self.counts,
        )
        with one_line_errors():
            keywords = with_credentials(self.scanning, credentials)
            planned = plan(self.source, columns=self.schema.names, on_error=on_error.value, **keywords)
            if not planned.schema.equals(self.schema):
                raise SchemaMismatchError(
                    "the columns of the files have changed since accel.spark.table", hint="call it again"
                )
        reader.count(planned.metrics)
        yield from reader.read(planned, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One use of accel, as it was pruned."""

    source: str
    columns: tuple[str, ...]
    of: int
    pushed: tuple[str, ...]
    left: tuple[str, ...]
    keys: tuple[str, ...] = ()
    """The columns of which a join gave the keys."""
    frame: DataFrame | None = field(repr=False)
    """What stands for it; None where it stays as it was."""

    def __str__(self) -> str:
        lines = [
            f"accel {self.source}",
            f"  columns: {len(self.columns)} of {self.of}: {', '.join(self.columns) or '(none)'}",
            f"  pushed: {' AND '.join(self.pushed) or '(no filter)'}",
        ]
        if self.keys:
            lines.append(f"  keys of a join: {', '.join(self.keys)}")
        if self.left:
            lines.append(f"  left to Spark: {' AND '.join(self.left)}")
        if self.frame is None:
            lines.append("  it stays as accel.spark.read has made it")
        else:
            lines.append(f"  size for Spark's planner: {_planned_size(self.frame):,} bytes")
        return "\n".join(lines)


def _pruned(df: DataFrame, *, join_keys: bool) -> tuple[DataFrame, list[_Use | FoldedUse]]:
    _check_frame(df)
    spark = df.sparkSession
    uses: list[Any] = []
    planned: dict[Any, Future[_Planned]] = {}
    read: dict[Any, DataFrame | None] = {}

    def answer(leaf: Leaf) -> Callable[[], DataFrame | None]:
        # A plan that reads the same twice is given one read, which Spark then runs once.
        fields = tuple(sorted((name, tuple(sorted(paths))) for name, paths in leaf.fields.items()))
        key = (leaf.identity, leaf.columns, fields, repr([condition for condition, _ in leaf.conditions]))
        question = _question(spark, leaf)
        if key not in planned:
            planned[key] = threads.submit(copy_context().run, question.plan)
        places[id(leaf)] = at = len(uses)
        uses.append(None)
        leaves.append(leaf)

        def taken() -> DataFrame | None:
            found = planned[key].result()
            if key not in read:
                read[key] = found.frame(spark)
            uses[at] = found.use(leaf, read[key])
            return read[key]

        return taken

    def narrow(leaf: Leaf, columns: tuple[str, ...], keys: DataFrame) -> DataFrame | None:
        use = _use_as_written(spark, leaf)
        if not use.pushes or any(name not in use.columns.names for name in columns):
            return None
        own = [f"key{at}" for at in range(len(columns))]
        pairs = dict(zip(own, columns, strict=True))
        try:
            found = key_predicate(keys.toDF(*own), pairs, use.columns, MAX_KEYS)
        except SchemaMismatchError:
            return None  # Spark casts one of the sides
        of_keys = asked_by.setdefault(id(leaf), [])
        of_keys.append(found)
        again = _question(spark, leaf, of_keys).plan()
        frame = again.frame(spark)
        if frame is not None:
            at = places[id(leaf)]
            uses[at] = replace(uses[at], keys=(*uses[at].keys, *columns), frame=frame)
        return frame

    def fold(leaf: Leaf, measures: Sequence[Measure]) -> DataFrame | None:
        row = _fold(spark, leaf, measures)
        if row is not None:
            uses.append(row[1])
        return None if row is None else row[0]

    places: dict[int, int] = {}
    leaves: list[Leaf] = []  # so that the numbers of `places` stay theirs
    asked_by: dict[int, list[Expr]] = {}
    rewriter = Rewriter(spark, AccelTable.__name__, key_bytes=KEY_BYTES, worth_bytes=WORTH_BYTES)
    threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="accel-prune")
    try:
        found = rewriter.rewrite(df, answer, narrow if join_keys else None, fold=fold)
    except UnlikePlanError as error:
        warnings.warn(
            f"accel.spark.prune leaves this DataFrame as it was: {error}. {INSTEAD_OF_PRUNE}", stacklevel=3
        )
        return df, []
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    if found is None:
        return df, uses
    setattr(found, _USES, uses)
    return found, uses


def _check_session(spark: Any) -> None:
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")
    if getattr(spark, "sparkContext", None) is None:
        raise AccelError("Spark Connect shows its client no plan to prune", hint=INSTEAD_OF_PRUNE)


def _check_frame(df: Any) -> None:
    if not hasattr(df, "mapInArrow"):
        raise TypeError(f"the first argument is a DataFrame, not a {type(df).__name__}")
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise AccelError("Spark Connect shows its client no plan to prune", hint=INSTEAD_OF_PRUNE)
    if df.isStreaming:
        raise AccelError(
            "a streaming DataFrame is planned anew for each batch, and is not pruned",
            hint='give readStream.format("accel") the options where and columns',
        )


# -- one use of accel ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenUse:
    """A use of accel, as its user wrote it."""

    source: Any = field(repr=False)
    where: Expr | None
    pushes: bool
    """Whether filters may go below it: below a limit they would leave other rows."""
    columns: pa.Schema
    """Its columns in the types of the files."""
    keywords: Mapping[str, Any] = field(repr=False)
    """The other arguments of `accel.spark.read`."""
    planned: ReadRecord | None = None
    """Of a read, what it was planned to read."""
    chosen: Sequence[str] | None = None
    """The columns, where they were given; fields of structs among them."""


def _use_as_written(spark: SparkSession, leaf: Leaf) -> _WrittenUse:
    if leaf.options is not None:
        settings = read_options(leaf.options, case_sensitive=is_case_sensitive(spark))
        found = _source_columns(settings, leaf.schema)
        source, planning = source_of(settings)
        keywords = planning | {
            "on_error": settings.on_error.value,
            "partitions": settings.partitions,
            "credentials": settings.credentials,
            "limit": settings.limit,
        }
        if found.declared:
            keywords["schema"] = settings.of_files(found.columns)
        return _WrittenUse(
            source=source,
            where=to_expr(settings.where),
            pushes=settings.limit is None,
            columns=settings.of_predicates(found.columns),
            keywords=keywords,
            chosen=settings.columns,
        )
    if isinstance(leaf.function, ReadRecord):
        record = leaf.function
        return _WrittenUse(
            source=record.source,
            where=record.where,
            pushes=record.limit is None,
            columns=_of_predicates(_as_numbers_they_are(record), record.keywords),
            keywords={**record.keywords, "limit": record.limit},
            planned=record,
            chosen=record.chosen,
        )
    of_table: AccelTable = leaf.function
    return _WrittenUse(
        source=of_table.source,
        where=None,
        pushes=True,
        columns=_of_predicates(of_table.schema, of_table.scanning),
        keywords={**of_table.scanning, **of_table.reading},
    )


def _as_numbers_they_are(record: ReadRecord) -> pa.Schema:
    """Return the columns of a read without decimals that the plan knows as whole numbers."""
    if record.decimals is Decimals.SCALED:
        return record.columns
    numbers = taken_schema(record.columns, record.decimals)
    return pa.schema(
        [
            one
            for one, taken in zip(record.columns, numbers, strict=True)
            if not (pa.types.is_decimal(one.type) and pa.types.is_int64(taken.type))
        ]
    )


def _of_predicates(columns: pa.Schema, keywords: Mapping[str, Any]) -> pa.Schema:
    """Return the columns without the number of the row, which no predicate of accel names."""
    number = keywords.get("row_number")
    return columns if number is None else pa.schema([one for one in columns if one.name != number])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a use of accel is to read."""

    use: _WrittenUse
    leaf: Leaf
    where: Expr | None
    names: Sequence[str]
    """The columns that it gives."""
    chosen: Sequence[str] | None
    """The same with the fields of structs that are used in part; None where none is."""
    known: Sequence[Expr]
    """The conditions that it had before."""
    translated: Sequence[Expr | None]
    """The conditions of the leaf, for accel; None is one that stays with Spark."""
    asks_less: bool
    """Whether it reads less than the use of accel does as it is."""

    def plan(self) -> _Planned:
        """Plan it, without Spark."""
        use = self.use
        if not self.asks_less:
            return _Planned(question=self, read=None)
        if use.chosen is not None:
            columns: Sequence[str] = _chosen_again(use, self.names)
        else:
            columns = self.names if self.chosen is None else self.chosen
        read = plan_read(use.source, where=self.where, columns=columns, **use.keywords)
        if use.planned is not None and not read.record().is_within(use.planned):
            # Files have come since: the rows of the DataFrame are those of the files that it was made of.
            return _Planned(question=self, read=None)
        return _Planned(question=self, read=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """What stands for a use of accel."""

    question: _Question
    read: PlannedRead | None
    """None where the use stays as it is."""

    def frame(self, spark: SparkSession) -> DataFrame | None:
        """Return the DataFrame, which may have whole numbers for decimals of at most 18 digits."""
        if self.read is None:
            return None
        question, before = self.question, self.question.use.planned
        decimals = Decimals.UNSCALED if question.chosen is None else Decimals.SCALED
        frame = self.read.frame(spark, decimals if before is None else before.decimals)
        return frame if question.chosen is None else whole_structs(frame, question.leaf.schema)

    def use(self, leaf: Leaf, frame: DataFrame | None) -> _Use:
        """Return what was pushed into a leaf that has this answer."""
        question, of = self.question, leaf.schema.names
        if frame is None:
            pushed = question.known
            taken = [each in question.known for each in question.translated]
        else:
            pushed = [each for each in question.translated if each is not None]
            taken = [each is not None for each in question.translated]
        names = question.names if question.chosen is None else question.chosen
        left = (text for (_, text), is_taken in zip(leaf.conditions, taken, strict=True) if not is_taken)
        return _Use(
            source=name_of_source(question.use.source),
            columns=tuple(of if frame is None else names),
            of=len(of),
            pushed=tuple(to_sql(expr, max_values=_SHOWN) for expr in pushed),
            left=tuple(left),
            frame=frame,
        )


def _question(spark: SparkSession, leaf: Leaf, of_keys: Sequence[Expr] = ()) -> _Question:
    """Return what a use of accel is to read: the columns and rows that the plan asks of it, and of these the
    rows that have keys of the other side of a join."""
    use = _use_as_written(spark, leaf)
    known = _conjuncts(use.where)
    translated = [
        _translate(condition, use.columns, leaf.schema).expr if use.pushes else None
        for condition, _ in leaf.conditions
    ]
    names = list(leaf.columns) or _without_columns(spark, leaf.schema)
    fresh = [*(each for each in translated if each is not None and each not in known), *of_keys]
    chosen = fields_to_read(names, leaf, use.columns) if use.chosen is None else None
    conditions: list[Expr] = [*([] if use.where is None else [use.where]), *fresh]
    fewer = bool(fresh) or len(names) < len(leaf.schema.names) or chosen is not None
    return _Question(
        use=use,
        leaf=leaf,
        where=join(And, conditions) if conditions else None,
        names=names,
        chosen=chosen,
        known=known,
        translated=translated,
        asks_less=use.planned is None or fewer,
    )


def _conjuncts(where: Expr | None) -> list[Expr]:
    if where is None:
        return []
    return list(where.operands) if isinstance(where, And) else [where]


def _chosen_again(use: _WrittenUse, names: Sequence[str]) -> list[str]:
    """Return those of the columns that were chosen that give the columns of these names: of structs the same
    fields."""
    key = name_key(case_sensitive=use.keywords["case_sensitive"])
    wanted = set(map(key, names))
    chosen = [(one, key(one)) for one in use.chosen or ()]
    return [one for one, name in chosen if name in wanted or name.partition(".")[0] in wanted]


def _fold(spark: SparkSession, leaf: Leaf, measures: Sequence[Measure]) -> tuple[DataFrame, FoldedUse] | None:
    """Return the aggregates of a use of accel, if its filters mean to accel what they mean to Spark."""
    use = _use_as_written(spark, leaf)
    translated = [_translate(condition, use.columns, leaf.schema) for condition, _ in leaf.conditions]
    if not use.pushes or use.planned is not None or not all(each.exact for each in translated):
        return None
    filters = [each.expr for each in translated if each.expr is not None]
    conditions = [*([] if use.where is None else [use.where]), *filters]
    where = join(And, conditions) if conditions else None
    row = folded_row(spark, use.source, where, measures, (leaf.schema, use.columns), use.keywords)
    if row is None:
        return None
    pushed = tuple(to_sql(expr, max_values=_SHOWN) for expr in filters)
    source = name_of_source(use.source)
    return row, FoldedUse(source=source, measures=tuple(measures), pushed=pushed)


def _planned_size(frame: DataFrame) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _translate(
    condition: ColumnTest | Combination | None, columns: pa.Schema, schema: StructType
) -> Translated:
    if condition is None:
        return NOTHING
    if isinstance(condition, ColumnTest):
        if condition.operator in _NULLS and _is_struct(columns, condition.path):
            return NOTHING  # accel reads all of a struct to tell whether it is null
        return translate_test(condition, columns, schema)
    parts = [_translate(part, columns, schema) for part in condition.parts]
    return _COMBINED[condition.connective](parts)


def _is_struct(columns: pa.Schema, path: Sequence[str]) -> bool:
    at = columns.get_field_index(path[0])
    kind = None if at < 0 else find_type(columns.field(at).type, path[1:])
    return kind is not None and pa.types.is_struct(kind)


_NULLS = (Operator.IS_NULL, Operator.IS_NOT_NULL)
_COMBINED: Mapping[Connective, Callable[[list[Translated]], Translated]] = {
    Connective.AND: translate_and,
    Connective.OR: translate_or,
    Connective.NOT: lambda parts: translate_not(parts[0]),
}


@dataclass(frozen=True, slots=True)
class _SourceColumns:
    columns: pa.Schema
    declared: bool
    """Whether the files have others, and these are the user's."""


def _source_columns(settings: SourceOptions, schema: StructType) -> _SourceColumns:
    """Return the columns of `format("accel")` in Arrow's types."""
    from accel.spark.data_source import declared_schema, scan_schema

    found = scan_schema(settings)
    ours = {field.name: field.dataType.simpleString() for field in spark_schema(found)}
    if all(ours.get(field.name) == field.dataType.simpleString() for field in schema):
        return _SourceColumns(found, declared=False)
    return _SourceColumns(declared_schema(schema, settings), declared=True)


def _without_columns(spark: SparkSession, schema: StructType) -> list[str]:
    """Return the columns to read where none is used: of a Spark that loses rows without columns the
    narrowest."""
    if not loses_rows_without_columns(spark):
        return []
    narrow = ("boolean", "tinyint", "smallint", "int", "float", "date", "bigint", "double", "timestamp")
    ranks = {name: rank for rank, name in enumerate(narrow)}
    best = min(schema.fields, key=lambda each: ranks.get(each.dataType.simpleString(), len(ranks)))
    return [best.name]
