"""Files for the tests of writing, and what their page indexes say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from accel.format.footer import parse_footer, parse_tail
from accel.format.model import FileMetadata
from accel.writing.source import LocalSource, open_local

ROWS = 3000


def sample(rows: int = ROWS) -> pa.Table:
    """Every shape that matters: ascending, text, nulls, floats, booleans, a struct, a list, decimals,
    time."""
    numbers = range(rows)
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "category": pa.array([None if i % 11 == 0 else f"cat-{i * 7 % 23}" for i in numbers]),
            "price": pa.array(rng.normal(size=rows).round(6)),
            "flag": pa.array([i % 3 == 0 for i in numbers]),
            "place": pa.array([None if i % 13 == 0 else {"x": i % 50, "y": f"y{i}"} for i in numbers]),
            "tags": pa.array([[str(j) for j in range(i % 4)] for i in numbers], pa.list_(pa.string())),
            "money": pa.array(numbers, pa.int64()).cast(pa.decimal128(20, 0)).cast(pa.decimal128(24, 4)),
            "at": pa.array([1_000_000 * i for i in numbers], pa.timestamp("us")),
            "code": pa.array([f"c{i % 17}" for i in numbers]).dictionary_encode(),
        }
    ).replace_schema_metadata({"owner": "somebody", "empty": ""})


def write(path: Path, table: pa.Table | None = None, **more: Any) -> str:
    """A file of several row groups and many pages; with a page index only where asked."""
    settings: dict[str, Any] = {"row_group_size": 1000, "max_rows_per_page": 128, "write_page_checksum": True}
    pq.write_table(sample() if table is None else table, path, **{**settings, **more})
    return str(path)


def metadata_of(path: str | Path) -> FileMetadata:
    data = Path(path).read_bytes()
    length = parse_tail(data[-8:]).length
    start = len(data) - 8 - length
    return parse_footer(data[start:-8], file_size=len(data), footer_start=start)


def as_source(path: str | Path) -> LocalSource:
    return open_local(str(path))


def read_all(path: str | Path) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def read_bytes(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data), page_checksum_verification=True)
