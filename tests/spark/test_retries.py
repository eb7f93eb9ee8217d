"""Tasks that Spark runs again, or twice at once: on a cluster, where workers and executors are killed, and
some are slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.retrying_driver import CASES
from tests.support.hindered_store import Hindrance
from tests.support.spark_cluster import SparkCluster, find_java

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.task.maxFailures": "4",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.mark.timeout(600)
def test_rows_are_right_and_nothing_is_written_twice(tmp_path: Path) -> None:
    """One program for all cases, as a driver takes long to start. A slow process waits 40 seconds; nobody
    waits for it."""
    if find_java() is None:
        pytest.skip("needs Java")
    with SparkCluster() as cluster:
        ran = subprocess.run(
            [
                sys.executable,
                str(Path(__file__).with_name("retrying_driver.py")),
                str(tmp_path / "work"),
                json.dumps({**cluster.config(), **SPECULATION}),
            ],
            env=cluster.driver_environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    told = {line["case"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert list(told) == [f"{way.__name__}, {hindrance}" for way, _, hindrance in CASES]
    for case, found in told.items():
        assert found["hindered"], case
        assert found["right"], case
        assert found["seconds"] < 38 or Hindrance.SLOW not in case, found
