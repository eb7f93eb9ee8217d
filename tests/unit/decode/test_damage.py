"""Damage of every kind, in a process of its own: it must end with status 0."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [1, 20261121])
def test_damaged_pages_never_end_the_process(seed: int, request: pytest.FixtureRequest) -> None:
    count = 20_000 if request.config.getoption("--large") else 400
    print("seed", seed)
    command = [sys.executable, "-m", "tests.unit.decode.damage", str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"refused (\d+), decoded (\d+)\n", done.stdout)
    assert found is not None, done.stdout
    assert min(map(int, found.groups())) > 10
