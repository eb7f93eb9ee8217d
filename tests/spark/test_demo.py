"""The demonstration runs, its two answers agree, and they are what the flights say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc

from demo.flights import read_flights
from demo.run import COLUMNS, WHERE

ROOT = Path(__file__).resolve().parents[2]


def test_demo(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "demo/run.py"), str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "The two answers are equal." in ran.stdout
    # Of 52 files of a Delta table the index leaves the five that have the aeroplane.
    table = [line.split() for line in ran.stdout.splitlines()]
    assert [words[3] for words in table if words[:3] == ["without", "the", "index"]] == ["52"]
    assert [words[3] for words in table if words[:3] == ["with", "the", "index"]] == ["5"]

    assert WHERE == "month = 7 AND carrier IN ('AS', 'HA') AND dep_delay > 60"
    flights = read_flights()
    masks = (
        pc.equal(flights["month"], 7),
        pc.or_(pc.equal(flights["carrier"], "AS"), pc.equal(flights["carrier"], "HA")),
        pc.greater(flights["dep_delay"], 60),
    )
    late = flights.filter(pc.and_kleene(pc.and_kleene(masks[0], masks[1]), masks[2])).select(COLUMNS)
    assert late.num_rows == 4
    lines = ran.stdout.splitlines()
    for row in late.to_pylist():
        words = [word for value in row.values() for word in str(value).split()]
        assert [line.split() for line in lines].count(words) == 2  # once from Python, once from Spark
