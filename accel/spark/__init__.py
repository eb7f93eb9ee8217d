"""Spark: a DataFrame of a scan, a data source, and the schemas and types that `mapInArrow` takes.

Importing this module loads no pyspark; calling `read`, `register` or `spark_schema` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel.decode.spark_types import spark_arrow_schema
from accel.spark.frame import TASK_SCHEMA, read
from accel.spark.join import lookup
from accel.spark.schema import spark_ddl, spark_schema
from accel.spark.session import metrics, register

__all__ = [
    "TASK_SCHEMA",
    "embed",
    "lookup",
    "metrics",
    "optimize",
    "read",
    "register",
    "spark_arrow_schema",
    "spark_ddl",
    "spark_schema",
]

if TYPE_CHECKING:
    from accel.spark.jobs import embed as embed
    from accel.spark.jobs import optimize as optimize

_JOBS = ("embed", "optimize")


def __getattr__(name: str) -> object:
    # The workers of a scan have no use for what writes.
    if name in _JOBS:
        from accel.spark import jobs

        return getattr(jobs, name)
    raise AttributeError(f"module 'accel.spark' has no attribute {name!r}")
