"""Spark: a DataFrame of a scan, and the schemas and types that `mapInArrow` takes.

Importing this module loads no pyspark; calling `read` or `spark_schema` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel.decode.spark_types import spark_arrow_schema
    from accel.spark.frame import TASK_SCHEMA, read
    from accel.spark.schema import spark_ddl, spark_schema

__all__ = ["TASK_SCHEMA", "read", "spark_arrow_schema", "spark_ddl", "spark_schema"]

_HOMES = {
    "TASK_SCHEMA": "accel.spark.frame",
    "read": "accel.spark.frame",
    "spark_arrow_schema": "accel.decode.spark_types",
    "spark_ddl": "accel.spark.schema",
    "spark_schema": "accel.spark.schema",
}


def __getattr__(name: str) -> Any:
    # Imported on use, because `read` loads the whole scanner.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
