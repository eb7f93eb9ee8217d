"""Planning by a table imports no pandas, which pyarrow does for Python values wherever it is installed: it takes
longer than the requests of a lookup."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from tests.support.delta_table import VECTORS, DeltaTableInMemory
from tests.tables.test_iceberg_requests import made

pytest.importorskip("pandas")

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("size", pa.float64())])
CHILD = """
import pickle, sys
import accel
from accel.testing import DictStore

given = pickle.load(sys.stdin.buffer)
scan = accel.scan(given["source"], given["where"], store=DictStore(given["objects"]), cache=accel.Cache())
found = scan.to_table()
print(found.column("id").to_pylist(), "pandas" in sys.modules)
"""


def delta_table() -> DeltaTableInMemory:
    """Return a table of forty files with partitions and statistics, half of them in a checkpoint."""
    table = DeltaTableInMemory(SCHEMA, partition_columns=["day"], protocol=VECTORS)
    adds = []
    for number in range(40):
        rows = pa.table({"id": [10 * number, 10 * number + 9], "size": [0.5, number + 0.5]})
        day = f"2024-01-{number % 3 + 1:02d}"
        adds.append(table.add(f"{number}.parquet", rows, partitionValues={"day": day}))
        table.commit(adds[-1])
        if number == 19:
            table.checkpoint(adds)
    table.commit({"remove": {"path": "7.parquet", "dataChange": True}})
    return table


def iceberg_table() -> tuple[Any, dict[str, Any]]:
    url, store = made()
    return accel.tables.iceberg(url), dict(store.inner.objects)


@pytest.mark.parametrize(
    ("form", "where", "expected"),
    [
        ("delta", "id = 119 AND day = '2024-01-03' AND size > 1", [119]),
        ("delta", "id = 329 AND size < 100", [329]),
        ("iceberg", "id = 777", [777]),
    ],
)
def test_a_lookup_imports_no_pandas(form: str, where: str, expected: list[int], tmp_path: Path) -> None:
    source: Any = accel.tables.delta("t")
    objects = dict(delta_table().store.objects)
    if form == "iceberg":
        source, objects = iceberg_table()
    given = pickle.dumps({"source": source, "where": where, "objects": objects})
    ran = subprocess.run(
        [sys.executable, "-c", CHILD], input=given, capture_output=True, check=True, cwd=tmp_path
    )
    assert ran.stdout.decode().strip() == f"{expected} False"
