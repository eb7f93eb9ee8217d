"""Counts, minima and maxima of a query in Spark, from the metadata of the files.

They are taken where they mean the same in Spark, and where accel reads little for them: the driver asks, when
the query is pruned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.api import scan
from accel.decode.spark_types import spark_conversion
from accel.errors import SchemaMismatchError
from accel.options import MIB
from accel.planning.plan import Plan
from accel.planning.projection import find_type
from accel.predicate.expr import Expr
from accel.predicate.kinds import Family, kind_of
from accel.scanning.spec import OnError
from accel.spark.arrow_frames import arrow_frame
from accel.spark.credentials import with_credentials
from accel.spark.planning import Planning, plan_or_find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from accel.spark.catalyst import Measure

__all__ = ["FoldedUse", "folded_row"]

MOST_BYTES: Final = 16 * MIB
"""The most bytes that the driver reads for one query; executors read what takes more."""
_NOT_OF_SCANS: Final = ("partitions", "planning", "on_error", "credentials", "limit")
_ORDERED_ALIKE: Final = (Family.INTEGER, Family.DECIMAL, Family.DATE, Family.TEXT, Family.BINARY)
"""Families whose minima and maxima are those of Spark. NaN is the largest float there, and no number here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedUse:
    """One use of accel, of which metadata gave aggregates."""

    source: str
    measures: tuple[Measure, ...]
    pushed: tuple[str, ...]

    def __str__(self) -> str:
        requested = [f"{name}({'.'.join(path)})" if path else "count(*)" for path, name in self.measures]
        return (
            f"accel {self.source}\n  aggregates, computed now: {', '.join(requested)}\n"
            f"  pushed: {' AND '.join(self.pushed) or '(no filter)'}"
        )


def folded_row(
    spark: SparkSession,
    source: Any,
    where: Expr | None,
    measures: Sequence[Measure],
    columns: tuple[StructType, pa.Schema],
    keywords: Mapping[str, Any],
) -> DataFrame | None:
    """Return the aggregates in one row of Spark's types; None where Spark is to compute them.

    Parameters
    ----------
    spark : SparkSession
    source, where
        As for `accel.scan`.
    measures : sequence of (path, function)
    columns : (StructType, pyarrow.Schema)
        All columns, in Spark's types and in those of the files.
    keywords : mapping
        The other arguments of `accel.spark.read`.
    """
    from pyspark.sql import functions

    from accel.spark.job_metrics import counts_of

    if OnError(keywords.get("on_error", OnError.RAISE)) is not OnError.RAISE:
        return None
    if not all(_is_alike(measure, *columns) for measure in measures):
        return None
    requested: list[Any] = [([], name) if path is None else (".".join(path), name) for path, name in measures]
    if len(set(map(str, requested))) < len(requested):
        return None
    given = {name: value for name, value in keywords.items() if name not in _NOT_OF_SCANS}
    scanning = with_credentials(given, keywords.get("credentials"))
    place = Planning(keywords.get("planning", Planning.AUTO))
    if not isinstance(
        plan_or_find(source, where, planning=place, on_error=OnError.RAISE, keywords=scanning), Plan
    ):
        return None
    answers = scan(source, where, **scanning)
    if sum(answers.explain(aggregates=requested).bytes.values()) > MOST_BYTES:
        return None
    try:
        row = answers.aggregate(requested)
    except SchemaMismatchError:
        return None  # a text that is not UTF-8, which Spark takes
    counts = counts_of(spark)
    if counts is not None:
        counts.add(answers.metrics)
    convert = spark_conversion(row.schema)
    if convert is not None:
        row = pa.Table.from_batches([convert(batch) for batch in row.to_batches()])
    kinds = [_type_of(measure, columns[0]) for measure in measures]
    row = row.rename_columns([f"m{at}" for at in range(len(requested))])
    return arrow_frame(spark, row).select(
        *(functions.col(f"m{at}").cast(kind or "string").alias(f"m{at}") for at, kind in enumerate(kinds))
    )


def _is_alike(measure: Measure, schema: StructType, columns: pa.Schema) -> bool:
    path, name = measure
    if path is None:
        return True
    if any("." in part or '"' in part for part in path) or len(columns.get_all_field_indices(path[0])) != 1:
        return False
    kind = find_type(columns.field(path[0]).type, path[1:])
    if kind is None or pa.types.is_dictionary(kind):
        return False
    if name == "count":
        return True
    found = kind_of(kind)
    if found.family is Family.TIMESTAMP:
        return bool(kind.unit == "us")
    return found.family in _ORDERED_ALIKE and _type_of(measure, schema) is not None


def _type_of(measure: Measure, schema: StructType) -> str | None:
    """Return the type of an aggregate in Spark; None for text whose order is another."""
    path, name = measure
    if path is None or name == "count":
        return "bigint"
    kind: Any = schema
    for part in path:
        field = kind[part]
        kind = field.dataType
    text = str(kind.simpleString())
    if field.metadata.get("__CHAR_VARCHAR_TYPE_STRING") or text.startswith("string "):
        return None
    return text
