"""Spark: a DataFrame of a scan, and the schemas and types that `mapInArrow` takes.

Importing this module loads no pyspark; calling `read` or `spark_schema` does.
"""

from accel.decode.spark_types import spark_arrow_schema
from accel.spark.frame import TASK_SCHEMA, read
from accel.spark.join import lookup
from accel.spark.schema import spark_ddl, spark_schema

__all__ = ["TASK_SCHEMA", "lookup", "read", "spark_arrow_schema", "spark_ddl", "spark_schema"]
