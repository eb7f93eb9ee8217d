"""`python -m bench.e2e.tables`: one table of 500 files as Delta, Iceberg and DuckLake, and who reads what of it.

The files are the same: 20,000 rows of 6 columns, `id` sorted over the files, a `key` in ten of them. The Delta
log has 500 commits and a checkpoint of the 491st; the Iceberg table has 50 manifests. Each reader is a new
process that has read a small table before, 20 ms from the first byte; the first question is cold, the second is
the same again. Then each plans by a Delta log of very many files, on the disk (`bench.e2e.long_log`). With
--publish both tables go into docs/tables/index.md.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from bench.e2e.long_log import Planned, measure_plans
from bench.e2e.table_readers import READERS
from bench.network import BUCKET, Network, Traffic, slow_network
from bench.tables import aligned, table

BEGIN: Final = "<!-- measured: python -m bench.e2e.tables --publish writes this -->"
BEGIN_LOGS: Final = "<!-- measured: python -m bench.e2e.tables --publish writes this, of long logs -->"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs/tables/index.md"
ROWS: Final = 20_000
FIRST_BYTE: Final = 0.020
_PER_MANIFEST: Final = 10
_AFTER_CHECKPOINT: Final = 9
_LIMIT: Final = 600.0
_OF_LOG: Final = ("_delta_log", "/metadata/")
"""What the paths have of the objects that describe a table."""
_KEYS_IN: Final = 10
"""Files that have one key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One question, asked twice."""

    format: str
    question: str
    system: str
    rows: int
    seconds: tuple[float, float]
    traffic: tuple[Traffic, Traffic]
    of_log: int
    """The requests of the first question that went to the log, or to the metadata."""


def key_text(number: int) -> str:
    """Return a key; those of neighbours lie anywhere, so that the bounds of a file rule none out."""
    return f"key-{int(number) * 2_654_435_761 % (1 << 32):010}"


def data_file(number: int, files: int) -> tuple[bytes, dict[str, Any]]:
    """Return a file, and what a log says of it."""
    ids = np.arange(number * ROWS, number * ROWS + ROWS)
    dice = np.random.default_rng(number)
    # Each key is in ten files, whose numbers differ by a tenth of all.
    group = number % max(1, files // _KEYS_IN)
    keys = [key_text(number) for number in dice.permutation(ROWS) + group * ROWS]
    rows = pa.table(
        {
            "id": ids,
            "key": keys,
            "a": dice.random(ROWS),
            "b": dice.integers(0, 1 << 40, ROWS),
            "c": [f"text {at % 97}" for at in ids],
            "d": dice.random(ROWS),
        }
    )
    out = io.BytesIO()
    pq.write_table(rows, out, max_rows_per_page=2_000, write_page_index=True, compression="zstd")
    stats = {
        "numRecords": ROWS,
        "minValues": {"id": int(ids[0]), "key": min(keys)},
        "maxValues": {"id": int(ids[-1]), "key": max(keys)},
        "nullCount": {"id": 0, "key": 0},
    }
    return out.getvalue(), stats


_TYPES: Final = {"id": "long", "key": "string", "a": "double", "b": "long", "c": "string", "d": "double"}


_OF_DUCKDB: Final = {"long": "BIGINT", "string": "VARCHAR", "double": "DOUBLE"}


def make_delta(directory: Path, files: int) -> None:
    """Write a Delta table, a commit for each file."""
    import deltalake

    log = directory / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()]
    for number in range(files):
        data, stats = data_file(number, files)
        name = f"part-{number:05}.parquet"
        (directory / name).write_bytes(data)
        lines: list[dict[str, Any]] = []
        if not number:
            lines.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            metadata = {
                "id": "events",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
            lines.append({"metaData": metadata})
        add = {
            "path": name,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": 0,
            "dataChange": True,
        }
        lines.append({"add": {**add, "stats": json.dumps(stats)}})
        (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, lines)))
        if number == files - 1 - _AFTER_CHECKPOINT:
            deltalake.DeltaTable(directory).create_checkpoint()


def make_iceberg(network: Network, directory: Path, files: int) -> str:
    """Add the files to an Iceberg table, ten in each commit; return the place of its metadata."""
    from pyiceberg.catalog.sql import SqlCatalog

    options = pyiceberg_options(network, network.endpoint.origin)
    catalog = SqlCatalog(
        "bench", uri=f"sqlite:///{directory}/iceberg.db", warehouse=f"s3://{BUCKET}/w", **options
    )
    catalog.create_namespace("db")
    kinds = {"long": pa.int64(), "string": pa.string(), "double": pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _TYPES.items()])
    made = catalog.create_table("db.events", schema, properties={"commit.manifest-merge.enabled": "false"})
    for start in range(0, files, _PER_MANIFEST):
        some = range(start, min(files, start + _PER_MANIFEST))
        made.add_files([f"s3://{BUCKET}/events/part-{number:05}.parquet" for number in some])
    return str(made.metadata_location)


def make_ducklake(network: Network, directory: Path) -> str:
    """Add the files to a DuckLake whose catalog is in SQLite; return its URL."""
    import importlib

    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "ducklake", "sqlite_scanner"):
        home = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        connection.load_extension(str(next(home.glob("extensions/*/*.duckdb_extension"))))
    end = network.endpoint
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{end.access_key_id}', SECRET '{end.secret_access_key}', REGION "
        f"'{end.region}', ENDPOINT '{end.origin.partition('://')[2]}', USE_SSL false, URL_STYLE 'path')"
    )
    path = directory / "lake.db"
    connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS lake (DATA_PATH 's3://{BUCKET}/data/')")
    columns = ", ".join(f"{name} {_OF_DUCKDB[kind]}" for name, kind in _TYPES.items())
    connection.execute(f"CREATE TABLE lake.events ({columns})")
    connection.execute(
        f"CALL ducklake_add_data_files('lake', 'events', 's3://{BUCKET}/events/part-*.parquet')"
    )
    connection.close()
    return f"sqlite:///{path}"


def pyiceberg_options(network: Network, url: str) -> dict[str, str]:
    """Return the properties with which pyiceberg reaches the bucket."""
    end = network.endpoint
    return {
        "s3.endpoint": url,
        "s3.access-key-id": end.access_key_id,
        "s3.secret-access-key": end.secret_access_key,
        "s3.region": end.region,
    }


def upload(network: Network, directory: Path) -> None:
    """Put the Delta table into the bucket."""
    from obstore.store import S3Store

    store = S3Store(BUCKET, **{**network.storage_options, "allow_http": True})  # type: ignore[arg-type]
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            store.put(f"events/{path.relative_to(directory)}", path)


def settings_of(network: Network, iceberg: str, ducklake: str) -> dict[str, Any]:
    """Return what the readers are told."""
    end = network.endpoint
    through = {**network.storage_options, "endpoint": end.url}
    return {
        "store": f"s3://{BUCKET}",
        "delta": f"s3://{BUCKET}/events",
        "iceberg": iceberg,
        "ducklake": ducklake,
        "indexes": {
            "delta": "auto",
            "iceberg": f"s3://{BUCKET}/index-iceberg/",
            "ducklake": f"s3://{BUCKET}/index-ducklake/",
        },
        "storage_options": through,
        "aws": {
            "AWS_ENDPOINT_URL": end.url,
            "AWS_ACCESS_KEY_ID": end.access_key_id,
            "AWS_SECRET_ACCESS_KEY": end.secret_access_key,
            "AWS_REGION": end.region,
            "AWS_ALLOW_HTTP": "true",
        },
        "pyiceberg": pyiceberg_options(network, end.url),
    }


def build_indexes(network: Network, given: dict[str, Any]) -> None:
    """Build the three indexes of the key, past the slow network."""
    options = network.storage_options
    kinds: Any = {"key": "keys"}
    tables: Any = accel.tables
    accel.build_index(given["delta"], indexes=kinds, storage_options=options)
    store = (given["store"],)
    lake = tables.ducklake(
        given["ducklake"], "main.events", data_path=f"{given['store']}/data/", allowed_stores=store
    )
    for name, source in (
        ("iceberg", tables.iceberg(given["iceberg"], allowed_stores=store)),
        ("ducklake", lake),
    ):
        accel.build_index(source, to=given["indexes"][name], indexes=kinds, storage_options=options)


def ask(network: Network, given: dict[str, Any], system: str, form: str, question: str, where: str) -> Result:
    """Have a new process ask a question twice."""
    command = [sys.executable, "-m", "bench.e2e.table_readers", system, form, where, json.dumps(given)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a child has pipes")
    seconds, traffic, rows, of_log = [], [], 0, []
    try:
        child.stdout.readline()
        for _ in range(2):
            network.begin(FIRST_BYTE)
            child.stdin.write("\n")
            child.stdin.flush()
            took, rows = json.loads(child.stdout.readline())
            traffic.append(network.end())
            of_log.append(sum(any(name in each.path for name in _OF_LOG) for each in network.passages))
            seconds.append(took)
    finally:
        child.stdin.close()
        child.wait(_LIMIT)
    return Result(
        format=form,
        question=question,
        system=system,
        rows=rows,
        seconds=(seconds[0], seconds[1]),
        traffic=(traffic[0], traffic[1]),
        of_log=of_log[0],
    )


def measure(files: int) -> Iterator[Result]:
    """Yield the results."""
    with tempfile.TemporaryDirectory() as made, slow_network() as network:
        directory = Path(made)
        make_delta(directory / "events", files)
        upload(network, directory / "events")
        make_delta(directory / "small", 12)
        given = {"small": str(directory / "small")}
        given |= settings_of(
            network, make_iceberg(network, directory, files), make_ducklake(network, directory)
        )
        build_indexes(network, given)
        sought = (files // 3) * ROWS + 777
        key = (files // 7) % max(1, files // _KEYS_IN) * ROWS + 4_321
        questions = (
            ("one file by bounds", f"id = {sought}"),
            ("an unsorted key", f"key = '{key_text(key)}'"),
        )
        for form in ("delta", "iceberg", "ducklake"):
            for question, where in questions:
                systems = [name for name, (formats, _) in READERS.items() if form in formats]
                expected = None
                for system in systems:
                    if ("index" in system) != (question == "an unsorted key") and system.startswith("accel"):
                        continue
                    try:
                        found = ask(network, given, system, form, question, where)
                    except (ValueError, OSError) as error:
                        print(f"{form}, {question}, {system}: failed ({error})", file=sys.stderr, flush=True)
                        continue
                    if found.rows != (expected := found.rows if expected is None else expected):
                        raise RuntimeError(f"{system} has {found.rows} rows, not {expected}")
                    yield found


_TITLES: Final = {"delta": "Delta", "iceberg": "Iceberg", "ducklake": "DuckLake"}


def rows_of(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the results as a table."""
    out: list[tuple[str, ...]] = [
        (
            "table",
            "question",
            "reader",
            "requests, of the log",
            "again",
            "round trips",
            "bytes",
            "time",
            "again",
        )
    ]
    for one in results:
        first, second = one.traffic
        out.append(
            (
                _TITLES[one.format],
                one.question,
                one.system,
                f"{first.requests:,}, {one.of_log:,}",
                f"{second.requests:,}",
                f"{first.trips:,}",
                f"{first.bytes / 1e6:,.2f} MB",
                f"{one.seconds[0]:.2f} s",
                f"{one.seconds[1]:.2f} s",
            )
        )
    return out


def rows_of_plans(results: Sequence[Planned]) -> list[tuple[str, ...]]:
    """Return what planning took as a table."""
    return [
        ("log", "planner", "files left", "time", "CPU", "most memory"),
        *(
            (
                one.log,
                one.system,
                f"{one.files:,}",
                f"{one.seconds:.2f} s",
                f"{one.cpu:.2f} s",
                f"{one.peak:,.0f} MB",
            )
            for one in results
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and publish where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.e2e.tables", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=500, help="0 for none of these questions")
    parser.add_argument("--log-files", type=int, default=300_000, help="files of the log without statistics")
    parser.add_argument(
        "--log-statistics",
        type=int,
        default=30_000,
        help="files of the log with statistics: 5 KB each, of which 300,000 take 1.5 GB and minutes",
    )
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables/index.md")
    given = parser.parse_args(arguments)
    results = []
    for one in measure(given.files) if given.files else ():
        results.append(one)
        print(rows_of([one])[1], flush=True)
    plans = []
    with tempfile.TemporaryDirectory() as made:
        for plan in measure_plans(Path(made), given.log_files, given.log_statistics):
            plans.append(plan)
            print(rows_of_plans([plan])[1], flush=True)
    print(aligned(rows_of(results)))
    print(aligned(rows_of_plans(plans)))
    if given.publish:
        from bench.publish import replaced

        about = (
            f"{given.files:,} files of {ROWS:,} rows: a Delta log of {given.files:,} commits with a checkpoint "
            f"{_AFTER_CHECKPOINT} before the last, {-(-given.files // _PER_MANIFEST)} manifests of Iceberg "
            "without partitions, and a catalog of DuckLake in SQLite."
        )
        text = PAGE.read_text()
        if results:
            text = replaced(text, f"{about}\n\n{table(rows_of(results))}", begin=BEGIN)
        if plans:
            text = replaced(text, table(rows_of_plans(plans)), begin=BEGIN_LOGS)
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
