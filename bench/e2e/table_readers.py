"""One reader of tables in a process of its own: it asks one question each time it is told to.

`python -m bench.e2e.table_readers SYSTEM FORMAT WHERE SETTINGS` reads lines from its standard input, and
answers each by a line of JSON: the seconds, and the number of rows.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["READERS"]

Given = Mapping[str, Any]
Ask = Callable[[], int]


def _accel(given: Given, form: str, where: str) -> Ask:
    import accel

    options = given["storage_options"]
    tables: Any = accel.tables
    table: Any = tables.delta(given["delta"])
    if form == "iceberg":
        table = tables.iceberg(given["iceberg"], allowed_stores=(given["store"],))
    elif form == "ducklake":
        table = tables.ducklake(
            given["ducklake"],
            "main.events",
            data_path=f"{given['store']}/data/",
            allowed_stores=(given["store"],),
        )
    index = given["indexes"].get(form) if given["indexed"] else None

    def ask() -> int:
        return int(accel.scan(table, where, index=index, storage_options=options).to_table().num_rows)

    return ask


def _delta_dataset(given: Given, form: str, where: str) -> Ask:
    import deltalake
    import pyarrow.dataset as ds

    name, _, value = where.partition(" = ")
    literal = value.strip("'") if "'" in value else int(value)

    def ask() -> int:
        table = deltalake.DeltaTable(given["delta"], storage_options=given["aws"])
        return int(table.to_pyarrow_dataset().to_table(filter=ds.field(name) == literal).num_rows)

    return ask


def _delta_sql(given: Given, form: str, where: str) -> Ask:
    import deltalake

    def ask() -> int:
        table = deltalake.DeltaTable(given["delta"], storage_options=given["aws"])
        found = deltalake.QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {where}")
        return int(pa.table(found.read_all()).num_rows)

    return ask


def _polars(given: Given, form: str, where: str) -> Ask:
    import polars as pl

    def ask() -> int:
        if form == "delta":
            frame = pl.scan_delta(given["delta"], storage_options=given["aws"])
        else:
            frame = pl.scan_iceberg(given["iceberg"], storage_options=given["pyiceberg"])
        return int(frame.filter(pl.sql_expr(where)).collect().height)

    return ask


def _pyiceberg(given: Given, form: str, where: str) -> Ask:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(given["iceberg"], given["pyiceberg"])
    return lambda: table.scan(row_filter=where).to_arrow().num_rows


def _duckdb(given: Given, form: str, where: str) -> Ask:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "delta", "ducklake", "sqlite_scanner"):
        home = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        connection.load_extension(str(next(home.glob("extensions/*/*.duckdb_extension"))))
    aws = given["aws"]
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{aws['AWS_ACCESS_KEY_ID']}', SECRET '{aws['AWS_SECRET_ACCESS_KEY']}', "
        f"REGION '{aws['AWS_REGION']}', ENDPOINT '{aws['AWS_ENDPOINT_URL'].partition('://')[2]}', "
        "USE_SSL false, URL_STYLE 'path')"
    )
    source = f"delta_scan('{given['delta']}')"
    if form == "ducklake":
        path = given["ducklake"].removeprefix("sqlite:///")
        connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS lake (READ_ONLY)")
        source = "lake.events"
    return lambda: connection.execute(f"SELECT * FROM {source} WHERE {where}").to_arrow_table().num_rows


READERS: Mapping[str, tuple[tuple[str, ...], Callable[[Given, str, str], Ask]]] = {
    "accel": (("delta", "iceberg", "ducklake"), _accel),
    "accel, keys index": (("delta", "iceberg", "ducklake"), _accel),
    "deltalake data set": (("delta",), _delta_dataset),
    "deltalake SQL": (("delta",), _delta_sql),
    "Polars": (("delta", "iceberg"), _polars),
    "DuckDB": (("delta", "ducklake"), _duckdb),
    "pyiceberg": (("iceberg",), _pyiceberg),
}
"""The formats that each reads here, and what makes the question."""


def main() -> None:
    """Answer questions until there are no more."""
    system, form, where, settings = sys.argv[1:]
    given = json.loads(settings)
    formats, make = READERS[system]
    if "delta" in formats:
        # What is imported late is imported now: a small table of the same columns, on the disk.
        make({**given, "delta": given["small"], "indexed": False}, "delta", where)()
    ask = make({**given, "indexed": "index" in system}, form, where)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        rows = ask()
        print(json.dumps([time.perf_counter() - begin, rows]), flush=True)


if __name__ == "__main__":
    main()
