"""Two versions of one object that are easy to tell apart, and what a scan made of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import accel
from accel.testing import Layout, table, write_file

__all__ = ["OPTIONS", "PATH", "WHERE", "expected", "outcome", "version"]

ROWS = 20_000
PATH = "object.parquet"
WHERE = "key >= 4000 AND key < 12000"
# Small enough that no data comes along with the footer; no patience with faults that are there to stay.
OPTIONS = accel.Options(
    tail_hint=8 * 1024,
    max_attempts=3,
    backoff_base=0.001,
    backoff_max=0.01,
    read_timeout=5.0,
    max_gap_bytes=0,
)


def version(name: int, *, rows: int = ROWS) -> bytes:
    """The object's version `name`: every row says so in `version`, and every value is new in each.

    Plain and uncompressed, so that versions of as many rows are of exactly the same size.
    """
    keys = np.arange(rows, dtype=np.int64)
    data = table(
        key=pa.array(keys),
        version=pa.array(np.full(rows, name, np.int64)),
        value=pa.array(keys * 10 + name),
    )
    return write_file(data, Layout(group_rows=5_000, page_rows=1_000, codec="none", dictionary=False))


def expected(name: int, *, rows: int = ROWS) -> pa.Table:
    """What WHERE selects of that version."""
    keys = np.arange(4_000, min(12_000, rows), dtype=np.int64)
    return table(
        key=pa.array(keys),
        version=pa.array(np.full(len(keys), name, np.int64)),
        value=pa.array(keys * 10 + name),
    )


async def outcome(scan: accel.Scan, **versions: pa.Table) -> str:
    """The name of the version whose rows came, all and only they; or the public class of the error.

    Anything else is an AssertionError: no mixture, no missing row, no other kind of exception is ever right.
    """
    try:
        found = await scan.to_table_async()
    except accel.StoreError as error:
        assert PATH in str(error)
        public = (accel.ObjectChangedError, accel.ObjectNotFoundError, accel.StoreError)
        return next(kind.__name__ for kind in public if isinstance(error, kind))
    for name, rows in versions.items():
        if found.equals(rows):
            return name
    raise AssertionError(
        f"neither version whole: {found.num_rows} rows, versions {set(found['version'].to_pylist())}"
    )
