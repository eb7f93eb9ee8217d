"""Cases made from seeds and read by a worker process, which damaged bytes may end: another goes on behind
that case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

__all__ = ["run_seeds"]

ROOT = Path(__file__).resolve().parents[2]
_AT_ONCE = 2_500


def run_seeds(worker: str, start: int, stop: int) -> tuple[Counter[str], list[str]]:
    """What came of the cases of these seeds, and each that is a fault, with its seed.

    Parameters
    ----------
    worker : str
        The module that reads them. For each case it says lines of JSON: its `seed`; the `reader` that begins,
        "accel" or "pyarrow"; what was asked (`read`), what came of it (`outcome`, in capitals where that is a
        fault), and `words` about it; and `done` at the end.
    """
    counts: Counter[str] = Counter()
    faults: list[str] = []
    while start < stop:
        ran = _run_worker(worker, start, min(stop, start + _AT_ONCE))
        seed, reader = start, "accel"
        done = False
        for line in ran.stdout.splitlines():
            said = json.loads(line)
            seed, reader, done = said.get("seed", seed), said.get("reader", reader), "done" in said
            if "outcome" in said:
                counts[said["outcome"]] += 1
                if said["outcome"].isupper():
                    faults.append(f"seed {seed}, {said['read']}: {said['outcome']}: {said['words']}")
        if not done and reader == "accel":
            faults.append(f"seed {seed}: accel ended the process ({ran.returncode}): {ran.stderr[-2000:]}")
        elif not done:
            counts["pyarrow ends the process"] += 1
        start = min(stop, start + _AT_ONCE) if done else seed + 1
    return counts, faults


def _run_worker(worker: str, start: int, stop: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", worker, str(start), str(stop)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


if __name__ == "__main__":
    outcome, found = run_seeds(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print("\n".join(found))
    print(dict(outcome), len(found), "faults")
