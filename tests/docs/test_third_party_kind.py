"""The page's own index kind, shipped as a package of its own: found by its entry point, and not missed where
it is absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import read_fences

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "indexes.md"
WRITE = """
import accel, pyarrow as pa
hosts = pa.array([f"10.{i // 5000}.{i % 250}.{i % 199}" for i in range(20_000)])
table = pa.Table.from_arrays([hosts], names=["host"])
accel.write_table(table, "hosts.parquet", page_rows=1000, indexes={"host": "networks"}, use_dictionary=False)
"""
READ = """
import accel, json
out = []
for host in ("10.1.7.32", "10.1.300.1"):
    scan = accel.scan("hosts.parquet", f"host = '{host}'", options=accel.Options(probe_min_bytes=0))
    out.append([scan.to_table().num_rows, scan.metrics.rows.kept])
print(json.dumps(out))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """What `pip install` would leave of a package that holds the page's class and names it."""
    (code,) = [f.code for f in read_fences(PAGE.read_text(encoding="utf-8")) if "class Networks" in f.code]
    kind = code[: code.index("accel.register_index")]
    assert len([line for line in kind.splitlines() if line.strip()]) < 40
    site = tmp_path / "site"
    (site / "networks-1.0.dist-info").mkdir(parents=True)
    (site / "networks_index.py").write_text(f"{kind}\nNETWORKS = Networks()\n")
    info = site / "networks-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: networks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[accel.indexes]\nnetworks = networks_index:NETWORKS\n")
    return site


def run(script: str, folder: Path, *sites: Path) -> str:
    path = os.pathsep.join([str(ROOT), *map(str, sites)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_a_package_brings_its_kind(package: Path, tmp_path: Path) -> None:
    run(WRITE, tmp_path, package)
    # Rows found, and rows that were read for it: every page of the second quarter has the first network, and
    # none the second, although it lies between their bounds.
    assert json.loads(run(READ, tmp_path, package)) == [[1, 5_000], [0, 0]]
    # Who does not have the package reads what statistics leave.
    assert json.loads(run(READ, tmp_path)) == [[1, 5_000], [0, 5_000]]
