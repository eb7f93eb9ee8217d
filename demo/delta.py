"""The flights as a Delta table, a commit for each week: one aeroplane, without an index and with one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import accel
from demo.flights import read_flights

WEEKS = 52
PLANE = "N541US"
"""One that comes in few weeks."""
_TYPES = {pa.string(): "string", pa.float64(): "double", pa.int64(): "long"}


def write_table(folder: Path) -> int:
    """Write the table, in the order of time, with a page index; return how many flights the plane has.

    Its log is written by hand, so that the demonstration needs no more packages.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "_delta_log").mkdir(parents=True)
    columns = ["flight", "tailnum", "dest", "distance"]
    flights = read_flights().sort_by("time_hour").select(columns)
    flights = flights.cast(pa.schema([(f.name, _plain(f.type)) for f in flights.schema]))
    fields = [
        {"name": f.name, "type": _TYPES[f.type], "nullable": True, "metadata": {}} for f in flights.schema
    ]
    size = flights.num_rows // WEEKS + 1
    for week in range(WEEKS):
        rows, name = flights.slice(week * size, size), f"week-{week:02}.parquet"
        pq.write_table(rows, folder / name, max_rows_per_page=500, write_page_index=True)
        add = {
            "path": name,
            "partitionValues": {},
            "size": (folder / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
        actions: list[dict[str, Any]] = [{"add": add}]
        if not week:
            metadata = {
                "id": "flights",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
            actions = [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {"metaData": metadata},
                *actions,
            ]
        (folder / "_delta_log" / f"{week:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return int(pc.sum(pc.equal(flights["tailnum"], PLANE)).as_py())


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else pa.string()


def look_up(folder: Path) -> tuple[accel.Metrics, accel.Metrics, int]:
    """Ask for the plane before there is an index, and after; return what each took, and the rows."""

    tables: Any = accel.tables

    def ask() -> tuple[accel.Metrics, pa.Table]:
        scan = accel.scan(tables.delta(folder), f"tailnum = '{PLANE}'", cache=None)
        rows = scan.to_table()
        return scan.metrics, rows

    before, rows = ask()
    accel.build_index(tables.delta(folder), indexes={"tailnum": "keys"})
    after, again = ask()
    if rows.num_rows != again.num_rows:
        raise SystemExit(f"{rows.num_rows} rows without the index, {again.num_rows} with it")
    return before, after, rows.num_rows
