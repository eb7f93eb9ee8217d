"""The Spark block of the quick start does what it says when it is pasted into the project's Python, with
nothing set for Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.fences import read_fences

ROOT = Path(__file__).resolve().parents[2]


def test_the_block_runs_as_it_is_printed(tmp_path: Path) -> None:
    fences = read_fences((ROOT / "docs/first-steps.md").read_text(encoding="utf-8"))
    (block,) = (fence.code for fence in fences if "paths.mapInArrow" in fence.code)
    make = [sys.executable, "-m", "demo.flights", str(tmp_path)]
    subprocess.run(make, cwd=ROOT, timeout=120, check=True)
    # The system's python3, as Spark's workers find it, has no numpy.
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = os.pathsep.join([str(other.parent), environment["PATH"]])
    environment["PYTHONPATH"] = str(ROOT)
    asked = subprocess.run(
        ["python3", "-c", "import numpy"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "No module named 'numpy'" in asked.stderr
    # As pasted: the prompt takes it line by line, and goes on after an error.
    ran = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=block,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout.splitlines() == ["True"], ran.stderr[-4000:]
