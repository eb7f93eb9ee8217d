"""`distinct` embedded into a local file: megabytes a second and core, and peak memory.

Isolated: what embedding costs over a plain copy of the same file, in a process of its own, so that memory and
processor time are its alone. The file (zstd, six columns, row groups of 500,000 rows, a page index) is made
once and lies in the page cache. The swept variable is what is embedded, and whether in place.

`python -m bench.e2e.embed [--megabytes N] [--runs N] [--only CASE] [--keep DIR]` prints one table; 1,000
megabytes are the case that the target is stated for: 200 MB/s a core at least, under 300 MB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from accel.testing import write_bench_file

_BYTES_A_ROW = 29
_GROUP_ROWS = 500_000

_WORKER = """
import json, resource, sys, time
import accel, pyarrow
from accel.writing import embed
src, dst, indexes, dry = sys.argv[1], sys.argv[2] or None, json.loads(sys.argv[3]), sys.argv[4] == "dry"
def peak():
    # Not ru_maxrss, which a process inherits from the one that started it.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

base, before = resource.getrusage(resource.RUSAGE_SELF), peak()
started = time.perf_counter()
report = embed(src, dst, indexes=indexes, dry_run=dry)
wall = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime - base.ru_utime - base.ru_stime
print(json.dumps([wall, cpu, peak(), before, report.index_bytes]))
"""

CASES: dict[str, tuple[dict[str, str], str]] = {
    "page index alone": ({}, "copy"),
    "distinct": ({"category": "distinct"}, "copy"),
    "distinct, in place": ({"category": "distinct"}, "in place"),
    "distinct, dry run": ({"category": "distinct"}, "dry"),
    "distinct, no dictionaries": ({"category": "distinct"}, "copy"),
    "idx1": ({"category": "idx1"}, "copy"),
    "distinct and bitmap": ({"category": "distinct", "amount": "bitmap"}, "copy"),
}
_PLAIN = "no dictionaries"
"""A case of that name is of the same rows, written without dictionaries."""


def measure(path: Path, indexes: dict[str, str], how: str) -> tuple[float, float, float, float, float]:
    """Wall seconds, processor seconds, peak bytes, bytes before it began, bytes of indexes."""
    target = path.with_suffix(".out")
    arguments = [str(path), "" if how == "in place" else str(target), json.dumps(indexes), how]
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, *arguments], capture_output=True, text=True, check=True
    )
    target.unlink(missing_ok=True)
    wall, cpu, peak, base, size = json.loads(done.stdout)
    return wall, cpu, peak, base, size


def _rewrite(path: Path, plain: Path) -> None:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    settings = {"compression": "zstd", "use_dictionary": False, "write_page_index": True}
    with pq.ParquetWriter(plain, file.schema_arrow, max_rows_per_page=10_000, **settings) as writer:
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_group(group))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--keep", help="directory for the file, which stays there for the next run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(given.keep or scratch) / f"embed-{given.megabytes}.parquet"
        if not path.exists():
            rows = given.megabytes * 1_000_000 // _BYTES_A_ROW
            write_bench_file(path, rows=rows, groups=max(1, rows // _GROUP_ROWS))
        plain = path.with_suffix(".plain")
        if not plain.exists():
            _rewrite(path, plain)
        print(
            f"file {path.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} cores, median of {given.runs} runs\n"
        )
        print(
            f"{'case':26} {'wall s':>8} {'MB/s':>8} {'cpu s':>8} {'MB/s/core':>10} {'peak MB':>8} {'own MB':>7} {'index kB':>9}"
        )
        for name, (indexes, how) in CASES.items():
            if given.only not in name:
                continue
            of = plain if _PLAIN in name else path
            size = of.stat().st_size / 1e6
            runs = [measure(of, indexes, how) for _ in range(given.runs)]
            wall, cpu, peak, base, index = (statistics.median(column) for column in zip(*runs, strict=True))
            print(
                f"{name:26} {wall:8.2f} {size / wall:8.0f} {cpu:8.2f} {size / cpu:10.0f} {peak / 1e6:8.0f} "
                f"{(peak - base) / 1e6:7.0f} {index / 1e3:9.1f}"
            )


if __name__ == "__main__":
    main()
