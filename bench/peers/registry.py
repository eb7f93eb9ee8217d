"""The systems of the benchmark, by name; each is imported only in the process that runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from bench.peers.protocol import Peer

__all__ = ["PEERS"]


def _at(module: str, name: str, **settings: bool) -> Callable[[], Peer]:
    def make() -> Peer:
        peer: Peer = getattr(importlib.import_module(f"bench.peers.{module}"), name)(**settings)
        return peer

    return make


PEERS: dict[str, Callable[[], Peer]] = {
    "accel": _at("accel", "Accel"),
    "datafusion": _at("datafusion", "DataFusion"),
    "datafusion-pushdown": _at("datafusion", "DataFusion", pushdown=True),
    "duckdb": _at("duckdb", "DuckDB"),
    "duckdb-cached": _at("duckdb", "DuckDB", cached=True),
    "polars": _at("polars", "Polars"),
    "pyarrow": _at("pyarrow", "PyArrow"),
    "arro3": _at("arro3", "Arro3"),
    "spark": _at("spark", "Spark"),
    "floor": _at("floor", "Floor"),
}
"""Name to what makes it. `spark` downloads 660 MB once; all others are installed by the extra `bench`."""
