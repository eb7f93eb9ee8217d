"""What a fresh process pays until its first answer, against `import pyarrow, pyarrow.parquet, obstore` alone.

Each round starts one process of each kind, in turn; told are medians of wall and of CPU time (the whole
process's, its threads included), the interpreter's own start taken off, and as ratios to the imports alone.
The file is small and local; the scan has a predicate. What is needed for S3 only comes in the last two: the
store there is made, and not asked. All find their modules compiled, as installed ones are.

`python -m bench.micro.startup [--rounds N]` prints one table; `measure()` gives the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["measure"]

_PEER = "import pyarrow, pyarrow.parquet, obstore"
_SCAN = "import accel; assert accel.scan({path!r}, where='key = 500', columns=['key', 'name']).to_table().num_rows == 1"
_READ = (
    f"{_PEER}; pyarrow.parquet.read_table({{path!r}}, columns=['key', 'name'], filters=[('key', '=', 500)])"
)
_STORE = "endpoint='http://127.0.0.1:9', region='us-east-1', access_key_id='a', secret_access_key='b', allow_http=True"
_PEERS_S3 = f"{_PEER}; from obstore.store import S3Store; S3Store('bucket', config=dict({_STORE}))"
_S3 = (
    "import accel; accel.scan; from accel.store.clients import client_for; from accel.store.location import parse_url; "
    f"client_for(parse_url('s3://bucket/key'), storage_options=dict({_STORE}))"
)
BARE, IMPORTS = "python", "import pyarrow, pyarrow.parquet, obstore"
PROGRAMS = {
    BARE: "pass",
    IMPORTS: _PEER,
    "import accel": "import accel",
    "import accel, accel.scan": "import accel; accel.scan",
    "import accel, first scan": _SCAN,
    "pyarrow's own first filtered read": _READ,
    "the peers and a store of S3": _PEERS_S3,
    "import accel, a client of S3": _S3,
}


def _run(program: str, compiled: str) -> tuple[float, float]:
    """Wall and CPU seconds of a process, which keeps its compiled modules in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environment | {"PYTHONPYCACHEPREFIX": compiled}
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"exit status {child.returncode} of: {program}")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime


def timings(rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each program, without those of the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "small.parquet"))
        keys = pa.array(range(1000))
        names = pa.array([f"name {i}" for i in range(1000)])
        pq.write_table(pa.Table.from_arrays([keys, names], ["key", "name"]), path, write_page_index=True)
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
        for _ in range(rounds + 1):
            for name, program in PROGRAMS.items():
                samples[name].append(_run(program.format(path=path), folder))
    medians = {
        name: tuple(statistics.median(values) for values in zip(*runs[1:], strict=True))  # the first compiles
        for name, runs in samples.items()
    }
    bare = medians.pop(BARE)
    return {name: (wall - bare[0], cpu - bare[1]) for name, (wall, cpu) in medians.items()}


def measure(rounds: int = 9) -> dict[str, float]:
    """Ratios of wall and CPU time to those of the peers' imports."""
    found = timings(rounds)
    wall, cpu = found.pop(IMPORTS)
    ratios = {}
    for name, (ours, work) in found.items():
        ratios[f"start-up, {name}, wall"] = ours / wall
        ratios[f"start-up, {name}, CPU"] = work / cpu
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    found = timings(parser.parse_args().rounds)
    wall, cpu = found[IMPORTS]
    print(f"{'':<42} {'wall ms':>8} {'ratio':>6} {'CPU ms':>8} {'ratio':>6}")
    for name, (ours, work) in found.items():
        print(f"{name:<42} {ours * 1e3:>8.0f} {ours / wall:>6.2f} {work * 1e3:>8.0f} {work / cpu:>6.2f}")


if __name__ == "__main__":
    main()
