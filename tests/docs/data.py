"""The data set that the examples read: flights/month=1 … month=12, small and always the same."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["write_flights"]

_CARRIERS = ("AA", "B6", "DL", "HA", "UA", "WN")
_PLACES = ("BOS", "HNL", "IAH", "LAX", "MIA", "ORD", "SFO")
_SCHEMA = pa.schema(
    [
        ("year", pa.int32()),
        ("day", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("time_hour", pa.timestamp("us", "UTC")),
    ]
)


def write_flights(folder: Path) -> None:
    """Twelve files of 600 rows, sorted by carrier, with pages of 50 rows and a page index."""
    chance = random.Random(2013)
    for month in range(1, 13):
        rows = [
            {
                "year": 2013,
                "day": day,
                "dep_delay": delay,
                "arr_delay": None if delay is None else delay + chance.randint(-20, 20),
                "carrier": carrier,
                "flight": chance.randint(1, 4000),
                "tailnum": f"N{chance.randint(100, 999)}{carrier}",
                "origin": chance.choice(("EWR", "JFK", "LGA")),
                "dest": chance.choice(_PLACES),
                "distance": chance.randint(100, 4983),
                "time_hour": dt.datetime(2013, month, day, chance.randint(5, 23), tzinfo=dt.UTC),
            }
            for carrier in _CARRIERS
            for day in range(1, 26)
            for delay in (chance.randint(-15, 180), chance.randint(-15, 10), chance.randint(-15, 40), None)
        ]
        path = folder / f"month={month}" / "flights.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema=_SCHEMA),
            path,
            compression="zstd",
            write_page_index=True,
            max_rows_per_page=50,
            write_batch_size=50,
        )
