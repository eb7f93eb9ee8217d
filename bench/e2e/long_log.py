"""A Delta log of very many files without a checkpoint, and how long and how much memory planning by it takes.

The first log has the shape of the one that delta-kernel-rs measures itself by: 300,000 files of 100 columns, in
five commits, three partitions, no statistics. In the second one each file has statistics of all columns, which
are most of its bytes. A few files match, and exist.

`python -m bench.e2e.long_log SYSTEM TABLE WHERE SMALL` plans once in a process of its own, after a small table
of twenty files of the same kind, and prints a line of JSON: the seconds, those of CPU, the number of files that
are left, and the most memory in megabytes.
"""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["COLUMNS", "PLANNERS", "Planned", "make_log", "measure_plans"]

COLUMNS: Final = 100
_IN_COMMIT: Final = 100_000
_PARTITIONS: Final = 3
_MATCHING: Final = 10
"""Files that exist and match, at the end of the log."""
_LIMIT: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What planning by a log took."""

    log: str
    """Which log it was."""
    system: str
    seconds: float
    cpu: float
    """Seconds of CPU in all threads, of which a busy machine changes less."""
    files: int
    peak: float
    """Megabytes."""


def make_log(directory: Path, files: int, *, statistics: bool) -> str:
    """Write the log of a table of so many files, and the files that match; return the filter.

    With statistics `col_0` is sorted over the files.
    """
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    names = [f"col_{number}" for number in range(COLUMNS - 1)]
    kinds = [("partition_col", "string"), *((name, "long") for name in names)]
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds]
    metadata = {
        "id": "long-log",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["partition_col"],
        "configuration": {},
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    last = (files - 1) * 10
    few = pa.table({name: pa.array(np.arange(4) + last + at % 7) for at, name in enumerate(names)})
    out = io.BytesIO()
    pq.write_table(few, out)
    for version, start in enumerate(range(0, files, _IN_COMMIT), 1):
        with (log / f"{version:020}.json").open("w") as lines:
            for number in range(start, min(files, start + _IN_COMMIT)):
                matches = number >= files - _MATCHING
                part = f"part_{_PARTITIONS if matches else number % _PARTITIONS}"
                path = f"{part}/file_{number}.parquet"
                if matches:
                    (directory / part).mkdir(exist_ok=True)
                    (directory / path).write_bytes(out.getvalue())
                add = {
                    "path": path,
                    "partitionValues": {"partition_col": part},
                    "size": len(out.getvalue()) if matches else 1024 * (number % 1000 + 1),
                    "modificationTime": 1_234_567_890 + number,
                    "dataChange": True,
                }
                if statistics:
                    add["stats"] = _statistics(names, number if not matches else files - 1)
                lines.write(f"{json.dumps({'add': add}, separators=(',', ':'))}\n")
    return f"col_0 = {last + 2}" if statistics else f"partition_col = 'part_{_PARTITIONS}'"


def _statistics(names: list[str], number: int) -> str:
    low = {name: number * 10 + at % 7 for at, name in enumerate(names)}
    return json.dumps(
        {
            "numRecords": 4,
            "minValues": low,
            "maxValues": {name: value + 9 for name, value in low.items()},
            "nullCount": dict.fromkeys(names, 0),
        },
        separators=(",", ":"),
    )


Plan = Callable[[str, str], Callable[[], int]]
"""Imports what it needs, and returns the question, which returns the number of files that are left."""


def _accel(table: str, where: str) -> Callable[[], int]:
    import accel

    tables: Any = accel.tables
    source = tables.delta(table)
    return lambda: len({task.file.url for task in accel.plan(source, where).tasks})


def _file_uris(table: str, where: str) -> Callable[[], int]:
    import deltalake

    return lambda: len(deltalake.DeltaTable(table).file_uris(file_pruning_predicate=where))


def _add_actions(table: str, where: str) -> Callable[[], int]:
    import deltalake

    return lambda: int(deltalake.DeltaTable(table).get_add_actions(flatten=True).num_rows)


def _duckdb(table: str, where: str) -> Callable[[], int]:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    home = Path(str(importlib.import_module("duckdb_extension_delta").__file__)).parent
    connection.load_extension(str(next(home.glob("extensions/*/*.duckdb_extension"))))
    found = f"SELECT count(DISTINCT filename) FROM delta_scan('{table}', filename = true) WHERE {where}"

    def ask() -> int:
        row = connection.execute(found).fetchone()
        return 0 if row is None else int(row[0])

    return ask


PLANNERS: Final[Mapping[str, Plan]] = {
    "accel.plan": _accel,
    "deltalake file_uris, pruned": _file_uris,
    "deltalake get_add_actions": _add_actions,
    "DuckDB, the rows": _duckdb,
}
"""How each plans, by name; the add actions are all, as no filter is taken."""


def measure_plans(directory: Path, files: int, with_statistics: int) -> Iterator[Planned]:
    """Yield what planning takes each system, by a log of so many files without statistics, and by one of so
    many with statistics."""
    for name, count, statistics in (("plain", files, False), ("statistics", with_statistics, True)):
        if not count:
            continue
        table = directory / name
        where = make_log(table, count, statistics=statistics)
        small = directory / f"{name}-small"
        make_log(small, 20, statistics=statistics)
        title = f"{count:,} files, " + (
            f"statistics of {COLUMNS - 1} columns" if statistics else "no statistics"
        )
        for system in PLANNERS:
            command = [sys.executable, "-m", "bench.e2e.long_log", system, str(table), where, str(small)]
            try:
                ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=True)
            except (subprocess.SubprocessError, OSError) as error:
                text = getattr(error, "stderr", None) or str(error)
                print(f"{title}, {system}: failed ({text[-300:]})", file=sys.stderr, flush=True)
                continue
            seconds, cpu, left, peak = json.loads(ran.stdout.splitlines()[-1])
            yield Planned(log=title, system=system, seconds=seconds, cpu=cpu, files=left, peak=peak)


def main() -> None:
    """Plan once."""
    system, table, where, small = sys.argv[1:]
    # What is imported late is imported now.
    PLANNERS[system](small, where)()
    ask = PLANNERS[system](table, where)
    begin, worked = time.perf_counter(), time.process_time()
    files = ask()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - worked
    # Not `ru_maxrss`, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps([round(seconds, 3), round(cpu, 3), files, round(peak)]))


if __name__ == "__main__":
    main()
