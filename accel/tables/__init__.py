"""Tables as sources of a scan, and the files of paths, patterns and hive directories.

Each name is imported when it is first used, as the packages that a format needs are.
"""

from __future__ import annotations

__all__ = ["IcebergTable", "delta", "ducklake", "hive", "iceberg"]

_HOMES: dict[str, str] = {
    "IcebergTable": "accel.tables.formats.iceberg.table",
    "delta": "accel.tables.formats.delta.table",
    "ducklake": "accel.tables.formats.ducklake.table",
    "iceberg": "accel.tables.formats.iceberg.table",
    "hive": "accel.tables.formats.hive.table",
}
"""The public functions, by the module that has them."""


def __getattr__(name: str) -> object:
    import importlib

    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module 'accel.tables' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
