"""Spark Connect, with a local server: read, format("accel"), SQL and lookup."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.spark.pruning import INSTEAD_OF_PRUNE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_read_format_sql_and_lookup(tmp_path: Path) -> None:
    """A process of its own: a client of Connect does not share one with a classic session."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    for month in range(3):
        path = tmp_path / "t" / f"month={month}" / "part.parquet"
        path.parent.mkdir(parents=True)
        values = [f"m{month} v{number}" for number in range(40)]
        pq.write_table(pa.table({"id": pa.array(range(40), pa.int64()), "value": values}), path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment["PYTHONPATH"] = str(ROOT)
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_client.py")), str(tmp_path / "t")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    told = [line.replace(f" ({INSTEAD_OF_PRUNE})", "") for line in ran.stdout.splitlines()]
    assert sum(INSTEAD_OF_PRUNE in line for line in ran.stdout.splitlines()) == 3
    assert told == [
        "session pyspark.sql.connect.session",
        "read 40",
        "executors 70",
        "format 40",
        "sql [(0, 40), (1, 40), (2, 40)]",
        "lookup [(1, 5, 'm1 v5'), (2, 39, 'm2 v39'), (2, 39, 'm2 v39')]",
        "lookup, ranges [(1, 5, 'm1 v5'), (2, 39, 'm2 v39'), (2, 39, 'm2 v39')]",
        "lookup, left [(1, 5, 'm1 v5'), (2, 39, 'm2 v39'), (2, 39, 'm2 v39'), (2, 40, None), (9, 7, None), (None, 7, None)]",
        "lookup, index [('m1 v7', 7), ('m2 v39', 39)]",
        "metrics Spark Connect brings no counts of tasks back to its client",
        *(f"{name} Spark Connect shows its client no plan to prune" for name in ("sql", "prune", "table")),
    ]
