"""Peak memory of full scans of a large file, its batches consumed as a stream, in a fresh process each.

Isolated: what a scan at its defaults holds. What is reported is the process's high-water mark of resident
memory (VmHWM): the interpreter, the libraries and the allocators' slack included. The file is made of one row
group of the benchmark's table, its bytes repeated, which takes seconds where writing 5 GB would take many
minutes; it stays in `build/bench/`, which git ignores.

`python -m bench.micro.memory [--gigabytes 5] [--layouts ...]` prints a table. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.format.thrift import I64, Struct, read_struct, write_struct
from accel.testing import Layout, bench_table, write_file

FOLDER = Path("build/bench")
ROWS = 1_000_000
"""Rows of a row group: about 29 MB compressed, 100 MB decoded."""
LAYOUTS = {
    "page index": Layout(group_rows=ROWS),
    "no page index": Layout(group_rows=ROWS, page_index=False),
    "uncompressed, plain": Layout(group_rows=ROWS, codec="none", dictionary=False),
}

_CHILD = """
import json, sys, time
import accel
arguments = json.loads(sys.argv[1])
def held(name):
    for line in open('/proc/self/status'):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
rows = 0
started = time.perf_counter()
if arguments["limit"]:
    options = accel.Options(memory_limit=arguments["limit"])
else:
    options = None
before = held("VmHWM")
for batch in accel.scan(arguments["path"], columns=arguments["columns"], options=options,
                        storage_options=arguments["storage_options"]):
    rows += batch.num_rows
seconds = time.perf_counter() - started
print(json.dumps({"rows": rows, "seconds": seconds, "before": before, "peak": held("VmHWM")}))
"""


def repeat_row_group(data: bytes, times: int, path: Path) -> None:
    """Write a file that has the one row group of `data` so many times, its page index included."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    (group,) = footer[4][1].items
    ends = [_chunk_end(chunk) for chunk in group[1][1].items]
    body = data[4 : max(ends)]
    groups = []
    with path.open("wb") as out:
        out.write(b"PAR1")
        for _ in range(times):
            out.write(body)
        for number in range(times):
            shift = number * len(body)
            chunks = []
            for chunk in group[1][1].items:
                moved = _moved(chunk, shift)
                for offset, size in ((4, 5), (6, 7)):
                    if offset not in chunk:
                        continue
                    index, at = chunk[offset][1], out.tell()
                    raw = data[index : index + chunk[size][1]]
                    written = out.write(_moved_index(raw, shift) if offset == 4 else raw)
                    moved[offset] = (chunk[offset][0], at)
                    moved[size] = (chunk[size][0], written)
                chunks.append(moved)
            groups.append({**group, 1: (group[1][0], _list_like(group[1][1], chunks)), 5: (I64, 4 + shift)})
            groups[-1].pop(7, None)  # its ordinal
        footer[3] = (footer[3][0], footer[3][1] * times)
        footer[4] = (footer[4][0], _list_like(footer[4][1], groups))
        raw = write_struct(footer)
        out.write(raw + len(raw).to_bytes(4, "little") + b"PAR1")


def _list_like(given: Any, items: list[Struct]) -> Any:
    return type(given)(given.etype, items)


def _chunk_end(chunk: Struct) -> int:
    meta = chunk[3][1]
    start = min(meta[field][1] for field in (9, 11) if field in meta)
    return int(start + meta[7][1])


def _moved(chunk: Struct, shift: int) -> Struct:
    meta = dict(chunk[3][1])
    for field in (9, 10, 11):
        if field in meta:
            meta[field] = (meta[field][0], meta[field][1] + shift)
    return {**chunk, 3: (chunk[3][0], meta)}


def _moved_index(raw: bytes, shift: int) -> bytes:
    index, _ = read_struct(raw)
    pages = [{**page, 1: (page[1][0], page[1][1] + shift)} for page in index[1][1].items]
    index[1] = (index[1][0], _list_like(index[1][1], pages))
    return write_struct(index)


def large_file(name: str, size: int) -> Path:
    """The file of a layout, of about `size` bytes; made when it is not there yet."""
    path = FOLDER / f"memory-{name.replace(' ', '-').replace(',', '')}-{size}.parquet"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        data = write_file(bench_table(ROWS), LAYOUTS[name])
        part = path.with_suffix(".part")
        repeat_row_group(data, -(-size // len(data)), part)
        part.rename(path)
    return path


def scan(path: str, *, columns: Sequence[str] | None = None, limit: int = 0, **more: Any) -> dict[str, float]:
    """Scan in a process of its own: rows, seconds, bytes held before and at the most."""
    asked = {"path": path, "columns": columns, "limit": limit, "storage_options": None, **more}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(asked)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def measure(
    *, size: int = 5_000_000_000, layouts: Sequence[str] = tuple(LAYOUTS), show: bool = False
) -> dict[str, float]:
    """Peak megabytes (2**20) by layout; at the defaults, and of the first at a quarter of the memory
    limit."""
    out: dict[str, float] = {}
    cases = [(name, name, 0) for name in layouts]
    cases.append((f"{layouts[0]}, limit 128 MiB", layouts[0], 128 << 20))
    if show:
        print(f"{'full scan of':>36}     MB   peak MiB  before MiB      rows  seconds")
    for title, name, limit in cases:
        path = large_file(name, size)
        found = scan(str(path.resolve()), limit=limit)
        out[title] = found["peak"] / 2**20
        if show:
            print(
                f"{title:>36}  {path.stat().st_size / 1e6:5.0f}  {found['peak'] / 2**20:9.0f}  "
                f"{found['before'] / 2**20:10.0f}  {found['rows']:8.0f}  {found['seconds']:7.1f}"
            )
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--layouts", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    arguments = parser.parse_args()
    measure(size=int(arguments.gigabytes * 1e9), layouts=arguments.layouts, show=True)


if __name__ == "__main__":
    main()
