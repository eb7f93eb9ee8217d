"""Spark: a DataFrame of a scan, a data source, and the schemas and types that `mapInArrow` takes.

Importing this module loads no pyspark; calling `read`, `register` or `spark_schema` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from accel.decode.spark_types import spark_arrow_schema
from accel.spark.frame import TASK_SCHEMA, read
from accel.spark.join import lookup
from accel.spark.schema import spark_ddl, spark_schema
from accel.spark.session import metrics, register

__all__ = [
    "TASK_SCHEMA",
    "build_index",
    "compact_index",
    "embed",
    "explain",
    "lookup",
    "metrics",
    "optimize",
    "prune",
    "read",
    "refresh_index",
    "register",
    "spark_arrow_schema",
    "spark_ddl",
    "spark_schema",
    "sql",
    "table",
]

if TYPE_CHECKING:
    from accel.spark.index_jobs import build_index as build_index
    from accel.spark.index_jobs import compact_index as compact_index
    from accel.spark.index_jobs import refresh_index as refresh_index
    from accel.spark.jobs import embed as embed
    from accel.spark.jobs import optimize as optimize
    from accel.spark.pruning import explain as explain
    from accel.spark.pruning import prune as prune
    from accel.spark.pruning import sql as sql
    from accel.spark.pruning import table as table

_LAZY = {
    "build_index": "index_jobs",
    "compact_index": "index_jobs",
    "embed": "jobs",
    "explain": "pruning",
    "optimize": "jobs",
    "prune": "pruning",
    "refresh_index": "index_jobs",
    "sql": "pruning",
    "table": "pruning",
}


def __getattr__(name: str) -> object:
    # The workers of a scan have no use for what writes, and pyspark is loaded by what needs its types.
    if name in _LAZY:
        return getattr(import_module(f"accel.spark.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'accel.spark' has no attribute {name!r}")
