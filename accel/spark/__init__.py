"""Spark: a DataFrame of a scan, a data source, and the schemas and types that `mapInArrow` takes.

Importing this module loads no pyspark; calling `read`, `register` or `spark_schema` does.
"""

from accel.decode.spark_types import spark_arrow_schema
from accel.spark.frame import TASK_SCHEMA, read
from accel.spark.schema import spark_ddl, spark_schema
from accel.spark.session import metrics, register

__all__ = ["TASK_SCHEMA", "metrics", "read", "register", "spark_arrow_schema", "spark_ddl", "spark_schema"]
