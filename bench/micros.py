"""The micro-benchmarks that targets need, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence

__all__ = ["ALL", "run_micros"]

ALL = ("footer", "planning", "startup", "full_scan", "memory", "lookup_cpu", "many_small", "cpu_profile")
_LIMIT = 900.0
_CALL = """
import contextlib, json, sys
from bench.micro.{name} import measure
with contextlib.redirect_stdout(sys.stderr):
    found = measure()
print(json.dumps(found))
"""


def run_micros(
    names: Sequence[str], tell: Callable[[str], None]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Call `measure()` of each; what they found, and why some found nothing."""
    found: dict[str, dict[str, float]] = {}
    skipped: dict[str, str] = {}
    for name in names:
        if importlib.util.find_spec(f"bench.micro.{name}") is None:
            skipped[f"bench.micro.{name}"] = "there is none"
            continue
        tell(f"bench.micro.{name}")
        try:
            done = subprocess.run(
                [sys.executable, "-c", _CALL.format(name=name)],
                capture_output=True,
                text=True,
                timeout=_LIMIT,
                check=True,
            )
            found[name] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            skipped[f"bench.micro.{name}"] = f"took longer than {_LIMIT:g} s"
        except subprocess.CalledProcessError as error:
            skipped[f"bench.micro.{name}"] = (error.stderr.strip().splitlines() or ["failed"])[-1]
    return found, skipped
