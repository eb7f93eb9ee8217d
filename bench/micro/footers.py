"""Footers of many writers, as wide and with as many row groups as asked, around next to no data.

What a writer is too slow to write so often is written as one row group, whose bytes in the footer are then
repeated: its chunks are the same in each, which changes nothing about how they are parsed. What is written
by hand (`edited`) takes pyarrow's footer apart and puts it together as another writer would have.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accel.format.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    ThriftList,
    ThriftReader,
    read_struct,
    write_struct,
)

__all__ = ["WRITERS", "footer_of", "repeated", "table"]

ROWS = 4
Edit = Callable[[dict[int, Any]], None]


def table(columns: int, rows: int, *, nested: bool = False) -> pa.Table:
    """Columns of eight types in turn, some with nulls, one of nothing else; lists and structs where asked."""
    numbers: list[int | None] = [None if i % 3 == 1 else i * 1_000_003 for i in range(rows)]
    kinds = [
        pa.array(range(rows), pa.int64()),
        pa.array([i / 7 for i in range(rows)], pa.float64()),
        pa.array([f"value {i}" for i in range(rows)]),
        pa.array(numbers, pa.int32()),
        pa.array(numbers, pa.timestamp("us", "UTC")),
        pa.array([None if v is None else Decimal(v) for v in numbers], pa.decimal128(20, 2)),
        pa.array([i % 2 == 0 for i in range(rows)]),
        pa.array([None] * rows, pa.int64()),
    ]
    if nested:
        kinds.append(pa.array([[i, i] for i in range(rows)], pa.list_(pa.int64())))
        item = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
        kinds.append(pa.array([{"x": i, "y": [str(i)]} for i in range(rows)], item))
    names = [f"column_{i}" for i in range(columns)]
    return pa.Table.from_arrays([kinds[i % len(kinds)] for i in range(columns)], names)


def footer_of(data: bytes) -> bytes:
    """The Thrift bytes of a file's footer."""
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def repeated(footer: bytes, groups: int) -> bytes:
    """The footer with its first row group as often as asked, up to 127 times."""
    reader = ThriftReader(footer)
    for number, ctype in reader.fields():
        begin = reader.pos
        if number != 4 or ctype != LIST:
            reader.skip(ctype)
            continue
        count = reader.list_of(STRUCT)
        first = reader.pos
        reader.skip(STRUCT)
        group = footer[first : reader.pos]
        for _ in range(count - 1):
            reader.skip(STRUCT)
        size = bytes([groups << 4 | STRUCT]) if groups < 15 else bytes([15 << 4 | STRUCT, groups])
        return footer[:begin] + size + group * groups + footer[reader.pos :]
    raise ValueError("no row groups")


def by_pyarrow(
    *, nested: bool = False, edit: Edit | None = None, **options: Any
) -> Callable[[int, int], bytes]:
    def write(columns: int, groups: int) -> bytes:
        sink = io.BytesIO()
        rows = ROWS * groups
        pq.write_table(
            table(columns, rows, nested=nested),
            sink,
            **{"row_group_size": ROWS, "write_page_index": True} | options,
        )
        footer = footer_of(sink.getvalue())
        if edit is None:
            return footer
        fields = read_struct(footer)[0]
        edit(fields)
        return write_struct(fields)

    return write


def by_polars(columns: int, groups: int) -> bytes:
    import polars

    sink = io.BytesIO()
    frame = polars.from_arrow(table(columns, ROWS * groups))
    assert isinstance(frame, polars.DataFrame)
    frame.write_parquet(sink, row_group_size=ROWS)
    return footer_of(sink.getvalue())


def by_duckdb(columns: int, groups: int) -> bytes:
    import duckdb

    rows = table(columns, ROWS)
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        path = Path(folder, "a.parquet")
        database.register("rows", rows)
        database.execute(f"copy rows to '{path}' (format parquet)")
        return repeated(footer_of(path.read_bytes()), groups)


def by_datafusion(columns: int, groups: int) -> bytes:
    import datafusion

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        datafusion.SessionContext().from_arrow(table(columns, ROWS)).write_parquet(str(path))
        found = path if path.is_file() else next(path.glob("*.parquet"))
        return repeated(footer_of(found.read_bytes()), groups)


def by_arro3(columns: int, groups: int) -> bytes:
    import arro3.io

    sink = io.BytesIO()
    arro3.io.write_parquet(table(columns, ROWS * groups, nested=True), sink, max_row_group_size=ROWS)
    return footer_of(sink.getvalue())


def like_parquet_mr(fields: dict[int, Any]) -> None:
    """No exactness of bounds, no size statistics, real file offsets, and its own name."""
    fields[6] = (BINARY, b"parquet-mr version 1.15.2 (build 0123456789abcdef)")
    for group in fields[4][1].items:
        for column in group[1][1].items:
            inner = column[3][1]
            column[2] = (I64, inner.get(11, inner[9])[1])
            inner.pop(16, None)
            statistics = inner[12][1]
            statistics.pop(7, None)
            statistics.pop(8, None)


def with_everything(fields: dict[int, Any]) -> None:
    """Bloom filters, sorting, field ids, counts of NaN and of distinct values, many key-values."""
    for number, element in enumerate(fields[2][1].items):
        element[9] = (I32, number * 3)
    for group in fields[4][1].items:
        group[4] = (LIST, ThriftList(STRUCT, [{1: (I32, 0), 2: (TRUE, False), 3: (TRUE, True)}]))
        for column in group[1][1].items[::2]:
            column[3][1][14] = (I64, 4)
            column[3][1][15] = (I32, 1)
            column[3][1][12][1][4] = (I64, 12_345)
            column[3][1][12][1][9] = (I64, 0)
    pairs = [{1: (BINARY, b"key %d" % i), 2: (BINARY, b"value" * i)} for i in range(50)]
    fields[5] = (LIST, ThriftList(STRUCT, pairs))


WRITERS: dict[str, Callable[[int, int], bytes]] = {
    "pyarrow": by_pyarrow(),
    "pyarrow, no statistics": by_pyarrow(write_statistics=False),
    "pyarrow, no index, plain": by_pyarrow(
        write_page_index=False, use_dictionary=False, compression="none", store_schema=False
    ),
    "pyarrow, nested": by_pyarrow(nested=True, data_page_version="2.0", compression="zstd"),
    "polars": by_polars,
    "duckdb": by_duckdb,
    "datafusion": by_datafusion,
    "arro3, nested": by_arro3,
    "like parquet-mr": by_pyarrow(edit=like_parquet_mr),
    "with everything": by_pyarrow(edit=with_everything),
}
"""By name: (columns, row groups) to the bytes of a footer."""
