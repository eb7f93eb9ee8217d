"""Many small things read whole: files, row groups, pages and columns, by pyarrow, Polars and accel.

Isolated: what each thing costs beside its bytes, which are next to none. Files are local and in the page
cache; a case that is marked `cached` is read with the cache that the reads before have filled. Systems take
turns, round by round; a figure is the median of CPU seconds, or of wall seconds for the case that is read
from MinIO behind a network.

`python -m bench.micro.many_small [--rounds N] [--files N] [--minio]` prints the cases with what they are to
reach.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel

__all__ = ["CASES", "Case", "measure"]

FILES = 5_000
_FILE_ROWS = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One layout that is read whole."""

    name: str
    reach: str
    """What the issue aims at, in words."""
    write: Callable[[Path, int], str]
    """Writes the case into a folder, for a number of files, and returns the path to read."""
    cached: bool = False
    """Whether accel also is measured with a cache that has met the file."""


def _flat(rows: int, columns: int = 3) -> pa.Table:
    rng = np.random.default_rng(rows)
    names = [f"c{at}" for at in range(columns)]
    return pa.Table.from_arrays([pa.array(rng.integers(0, 1 << 40, rows)) for _ in names], names=names)


def _write_files(folder: Path, files: int) -> str:
    below = folder / "files"
    below.mkdir()
    for at in range(files):
        table = pa.table(
            {
                "id": pa.array(np.arange(at * _FILE_ROWS, (at + 1) * _FILE_ROWS)),
                "value": pa.array(np.random.default_rng(at).standard_normal(_FILE_ROWS)),
                "name": pa.array([f"name {row % 37}" for row in range(_FILE_ROWS)]),
            }
        )
        pq.write_table(table, below / f"part-{at:06d}.parquet")
    return os.fspath(below)


def _write_groups(folder: Path, files: int) -> str:
    path = folder / "groups.parquet"
    pq.write_table(_flat(1_001), path, row_group_size=1)
    return os.fspath(path)


def _write_wide_groups(folder: Path, files: int) -> str:
    path = folder / "wide_groups.parquet"
    pq.write_table(_flat(200 * 50, 16), path, row_group_size=50)
    return os.fspath(path)


def _write_pages(folder: Path, files: int) -> str:
    path = folder / "pages.parquet"
    table = _flat(2_000, 13)
    pq.write_table(
        table, path, data_page_size=1, write_batch_size=10, use_dictionary=False, write_page_index=True
    )
    return os.fspath(path)


def _write_columns(folder: Path, files: int) -> str:
    path = folder / "columns.parquet"
    pq.write_table(_flat(1, 412), path)
    return os.fspath(path)


CASES = (
    Case("many files of 200 rows, CPU", "pyarrow's", _write_files),
    Case("1,001 row groups of one row", "<= 10 ms", _write_groups, cached=True),
    Case("200 row groups, 16 columns", "<= 40 ms", _write_wide_groups, cached=True),
    Case("13 columns in tiny pages", "<= 12 ms", _write_pages, cached=True),
    Case("412 columns, one row", "<= 20 ms", _write_columns, cached=True),
)
OVER_NETWORK = "many files of 200 rows from MinIO, wall"


def _readers(path: str, *, cached: bool) -> dict[str, Callable[[], int]]:
    import polars as pl
    import pyarrow.dataset as ds

    cache = accel.Cache()
    pattern = f"{path}/*.parquet" if os.path.isdir(path) else path
    found: dict[str, Callable[[], int]] = {
        "pyarrow": lambda: ds.dataset(path).to_table().num_rows,
        "polars": lambda: pl.read_parquet(pattern).height,
        "accel": lambda: accel.scan(path, cache=None).to_table().num_rows,
    }
    if cached:
        found["accel, cached"] = lambda: accel.scan(path, cache=cache).to_table().num_rows
    return found


def _compare(
    systems: Mapping[str, Callable[[], int]], rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Median seconds of each system, in turn; the first round warms."""
    taken: dict[str, list[float]] = {name: [] for name in systems}
    rows: set[int] = set()
    for number in range(rounds + 1):
        turn = number % len(systems)
        for name, read in [*systems.items()][turn:] + [*systems.items()][:turn]:
            started = clock()
            rows.add(read())
            if number:
                taken[name].append(clock() - started)
    if len(rows) != 1:
        raise AssertionError(f"the systems read different numbers of rows: {sorted(rows)}")
    return {name: statistics.median(times) for name, times in taken.items()}


@contextmanager
def _in_minio(path: str) -> Iterator[dict[str, Callable[[], int]]]:
    """The files of a folder in MinIO, and how each system reads them from there."""
    import polars as pl
    from pyarrow import dataset, fs

    from tests.support.s3 import Minio, install_minio

    with ExitStack() as stack:
        server = stack.enter_context(Minio(install_minio()))
        server.create_bucket("small")
        for file in sorted(Path(path).iterdir()):
            server.put("small", f"files/{file.name}", file.read_bytes())
        filesystem = fs.S3FileSystem(
            endpoint_override=server.url.removeprefix("http://"),
            scheme="http",
            access_key=server.access_key,
            secret_key=server.secret_key,
            region="us-east-1",
        )
        options = server.storage_options()
        url = "s3://small/files/"
        aws = {
            "aws_endpoint_url": server.url,
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
        yield {
            "pyarrow": lambda: dataset.dataset("small/files", filesystem=filesystem).to_table().num_rows,
            "polars": lambda: pl.scan_parquet(f"{url}*.parquet", storage_options=aws).collect().height,
            "accel": lambda: accel.scan(url, storage_options=options, cache=None).to_table().num_rows,
        }


def measure(
    *, rounds: int = 3, files: int = FILES, minio: bool = False, show: bool = False
) -> dict[str, float]:
    """Seconds by case and system."""
    out: dict[str, float] = {}

    def note(name: str, reach: str, found: Mapping[str, float]) -> None:
        out.update({f"{name}, {system}": seconds for system, seconds in found.items()})
        if show:
            told = ", ".join(f"{system} {seconds * 1e3:,.1f} ms" for system, seconds in found.items())
            print(f"{name}: {told} (reach: {reach})", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            path = case.write(Path(folder), files)
            many = os.path.isdir(path)
            of_case = rounds if many else 5 * rounds
            note(
                case.name,
                case.reach,
                _compare(_readers(path, cached=case.cached), of_case, time.process_time),
            )
            if many and minio:
                with _in_minio(path) as systems:
                    note(OVER_NETWORK, "1.5 x Polars'", _compare(systems, 1, time.perf_counter))
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--minio", action="store_true", help="also from a real MinIO on this machine")
    given = parser.parse_args()
    measure(rounds=given.rounds, files=given.files, minio=given.minio, show=True)


if __name__ == "__main__":
    main()
