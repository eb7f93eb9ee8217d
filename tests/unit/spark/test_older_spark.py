"""What every Spark from 3.5 on has imports nothing that 3.5 lacks; `make test-spark35` runs it on one."""

from __future__ import annotations

import subprocess
import sys

LACKING = ["pyspark.sql.datasource", "pyspark.sql.streaming.datasource", "pyspark.sql.classic"]
NEEDED = ["frame", "join", "pruning", "jobs", "index_jobs", "job_metrics", "session"]


def test_modules_load_without_what_newer_versions_brought() -> None:
    program = [
        "import sys",
        f"sys.modules.update(dict.fromkeys({LACKING!r}))",  # importing them raises ModuleNotFoundError
        *(f"import accel.spark.{name}" for name in NEEDED),
        "print(accel.spark.prune.__name__)",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "prune\n", ran.stderr
