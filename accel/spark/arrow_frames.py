"""Arrow tables as DataFrames of Spark and back, on Sparks that do not know Arrow themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.spark.schema import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["arrow_frame", "collect_arrow", "loses_rows_without_columns"]


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a DataFrame."""
    if _version(spark) >= (4, 0):
        return spark.createDataFrame(table)
    # Spark 4.0 is the first to make a DataFrame of Arrow data for its users.
    if getattr(spark, "sparkContext", None) is not None:
        return _older_frame(spark, table)
    return spark.createDataFrame(
        list(zip(*(column.to_pylist() for column in table), strict=True)), spark_ddl(table.schema)
    )


def _older_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as Spark 3.5 makes a DataFrame of one of pandas: unlike a list of rows, its planner
    knows the size of that."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    from accel.spark.schema import spark_schema

    context: Any = spark.sparkContext
    functions = context._jvm.PythonSQLUtils
    batches = context._serialize_to_jvm(
        table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)],
        ArrowStreamSerializer(),
        functions.readArrowStreamFromFile,
        context._jvm.ArrowIteratorServer,
    )
    session: Any = spark._jsparkSession
    found = functions.toDataFrame(batches, spark_schema(table.schema).json(), session)
    return DataFrame(found, spark)


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Run a job and return its rows as a table."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    # Spark 4.0 has the method; before, that of its `toPandas` does the same.
    from pyspark.sql.pandas.types import to_arrow_schema

    older: Any = frame
    batches = older._collect_as_arrow()
    return pa.Table.from_batches(batches, schema=None if batches else to_arrow_schema(frame.schema))


def loses_rows_without_columns(spark: SparkSession) -> bool:
    """Return whether Spark is older than 4.1, the first that keeps the number of rows of a batch that has no
    columns."""
    return _version(spark) < (4, 1)


def _version(spark: SparkSession) -> tuple[int, int]:
    """Return the major and minor version of a session; the server's, of Spark Connect."""
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))
