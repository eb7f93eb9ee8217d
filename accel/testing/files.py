"""Parquet files with a declared layout, and the tables that go into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from accel.arrow_features import has_writer_option

__all__ = ["Layout", "bench_table", "table", "write_bench_file", "write_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table is laid out as Parquet."""

    group_rows: int | Sequence[int] = 1 << 20
    """Rows per row group; a sequence has the rows of each group, which must add up to those of the table."""
    page_rows: int = 10_000
    """Rows of every data page except the last of a chunk. Nested columns count rows, with pyarrow before 23
    values."""
    codec: str | Mapping[str, str] = "zstd"
    """One of none, snappy, gzip, brotli, zstd, lz4; or one per column."""
    dictionary: bool | Sequence[str] = True
    """Whether columns start dictionary-encoded, or the names of those that do."""
    dictionary_bytes: int = 1 << 20
    """Bytes of a dictionary beyond which a chunk falls back to plain pages."""
    page_index: bool = True
    """Whether there is a page index."""
    statistics: bool | Sequence[str] = True
    """Whether columns have statistics, or the names of those that do."""
    data_page: str = "1.0"
    """Version of the data pages, "1.0" or "2.0"."""
    checksums: bool = False
    """Whether pages have checksums."""
    arrow_schema: bool = True
    """Whether ARROW:schema is stored."""
    more: Mapping[str, Any] | None = None
    """Further keywords of `pyarrow.parquet.ParquetWriter`."""


def write_file(data: pa.Table, layout: Layout | None = None, *, where: Any = None) -> bytes:
    """Write one table as one Parquet file.

    Parameters
    ----------
    data : pyarrow.Table
        The rows.
    layout : Layout, optional
        The layout of the file.
    where : path or file object, optional
        The target; by default the bytes of the file are returned.

    Returns
    -------
    bytes
        The file, or b"" if `where` is given.

    Raises
    ------
    ValueError
        The rows of the groups do not add up to those of the table.
    """
    layout = layout or Layout()
    sink = pa.BufferOutputStream() if where is None else where
    with _writer(sink, data.schema, layout) as writer:
        at = 0
        for rows in _group_rows(data.num_rows, layout):
            writer.write_table(data.slice(at, rows), row_group_size=max(rows, 1))
            at += rows
    return sink.getvalue().to_pybytes() if where is None else b""


def _writer(sink: Any, schema: pa.Schema, layout: Layout) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression=layout.codec if isinstance(layout.codec, str) else dict(layout.codec),
        use_dictionary=_flag_or_names(layout.dictionary),
        dictionary_pagesize_limit=layout.dictionary_bytes,
        write_statistics=_flag_or_names(layout.statistics),
        write_page_index=layout.page_index,
        # A page ends at the end of a batch or at the byte limit; neither may come before `page_rows`.
        write_batch_size=layout.page_rows,
        **_page_ends(layout.page_rows),
        data_page_version=layout.data_page,
        write_page_checksum=layout.checksums,
        store_schema=layout.arrow_schema,
        **dict(layout.more or {}),
    )


def _page_ends(rows: int) -> dict[str, int]:
    if has_writer_option("max_rows_per_page"):
        return {"max_rows_per_page": rows, "data_page_size": 1 << 30}
    # With the least byte limit each batch is a page.
    return {"data_page_size": 1}


def _flag_or_names(value: bool | Sequence[str]) -> bool | list[str]:
    return value if isinstance(value, bool) else list(value)


def _group_rows(total: int, layout: Layout) -> list[int]:
    if isinstance(layout.group_rows, int):
        size = layout.group_rows
        return [min(size, total - at) for at in range(0, total, size)]
    if sum(layout.group_rows) != total:
        raise ValueError(f"row groups of {sum(layout.group_rows)} rows for a table of {total}")
    return list(layout.group_rows)


def table(**columns: Any) -> pa.Table:
    """Make a table without importing pandas, as `pyarrow.table` of a dict would.

    Parameters
    ----------
    **columns : sequence or pyarrow.Array
        The columns by name.

    Returns
    -------
    pyarrow.Table
        The table.
    """
    arrays = [c if isinstance(c, (pa.Array, pa.ChunkedArray)) else pa.array(c) for c in columns.values()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def bench_table(rows: int, *, first: int = 0, seed: int = 20) -> pa.Table:
    """Make some rows of the table of the benchmark.

    Its columns are `key` int64, sorted, every third number from 0, so that absent keys lie between present
    ones; `ts` timestamp[us, UTC], sorted, one second apart; `category` string of 1,000 values; `value`
    double, random; `name` string, unique; `amount` int32, a tenth of it null.

    Parameters
    ----------
    rows : int
        The number of rows.
    first : int, default 0
        The number of the first row. The values depend on it and on the seed, so that a file can be written
        group by group in bounded memory.
    seed : int, default 20
        The seed of the random values.

    Returns
    -------
    pyarrow.Table
        The rows.
    """
    rng = np.random.default_rng([seed, first])
    ids = np.arange(first, first + rows, dtype=np.int64)
    categories = pa.array([f"category {i:04d}" for i in range(1000)])
    chosen = pa.array(rng.integers(0, 1000, rows, dtype=np.int32))
    tokens = rng.bytes(8 * rows).hex()
    names = [f"{tokens[16 * i : 16 * i + 16]}-{first + i:08d}" for i in range(rows)]
    amounts = pa.array(rng.integers(0, 1_000_000, rows, dtype=np.int32), mask=rng.random(rows) < 0.1)
    start = 1_356_998_400_000_000  # 2013-01-01 in microseconds
    return table(
        key=pa.array(ids * 3),
        ts=pa.array(start + ids * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        category=categories.take(chosen),
        value=pa.array(rng.standard_normal(rows)),
        name=pa.array(names, pa.string()),
        amount=amounts,
    )


def write_bench_file(where: Any = None, *, rows: int = 2_000_000, groups: int = 4, seed: int = 20) -> bytes:
    """Write the file of the benchmark: zstd, pages of 10,000 rows, a page index, dictionaries of 1 MiB.

    Parameters
    ----------
    where : path or file object, optional
        The target; by default the bytes of the file are returned.
    rows : int, default 2,000,000
        The number of rows.
    groups : int, default 4
        The number of row groups.
    seed : int, default 20
        The seed of the random values.

    Returns
    -------
    bytes
        The file, or b"" if `where` is given.
    """
    sink = pa.BufferOutputStream() if where is None else where
    per_group = -(-rows // groups)
    layout = Layout(group_rows=per_group)
    with _writer(sink, bench_table(0).schema, layout) as writer:
        for at in range(0, rows, per_group):
            part = bench_table(min(per_group, rows - at), first=at, seed=seed)
            writer.write_table(part, row_group_size=per_group)
    return sink.getvalue().to_pybytes() if where is None else b""
