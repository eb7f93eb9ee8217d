"""The same table, written by other programs: each writer takes a table and a path."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["WRITERS"]


def by_pyarrow(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=2000, write_page_index=True, max_rows_per_page=300)


def by_pyarrow_v2_delta(table: pa.Table, path: Path) -> None:
    plain = {"s": "DELTA_BYTE_ARRAY", "i64": "DELTA_BINARY_PACKED", "f64": "BYTE_STREAM_SPLIT"}
    pq.write_table(
        table,
        path,
        row_group_size=2000,
        data_page_version="2.0",
        use_dictionary=["cat"],
        column_encoding={n: e for n, e in plain.items() if n in table.schema.names},
        write_page_index=True,
        write_page_checksum=True,
        compression="gzip",
        max_rows_per_page=257,
    )


def by_pyarrow_int96(table: pa.Table, path: Path) -> None:
    pq.write_table(
        table, path, use_deprecated_int96_timestamps=True, write_page_index=True, data_page_size=2000
    )


def by_pyarrow_special_types(table: pa.Table, path: Path) -> None:
    """Dictionary, large, view, half-float, fixed-size and extension types, kept by ARROW:schema."""
    import uuid

    kinds = {"s": pa.large_string(), "bin": pa.large_binary(), "li": pa.large_list(pa.int64())}
    for name, kind in kinds.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(kind))
    at = table.schema.get_field_index("cat")
    table = table.set_column(at, "cat", table.column("cat").combine_chunks().dictionary_encode())
    rows = table.num_rows
    table = table.append_column("half", table.column("f32").cast(pa.float16()))
    table = table.append_column("view", table.column("s").cast(pa.string_view()))
    table = table.append_column("wide", table.column("d").cast(pa.date64()))
    table = table.append_column("span", table.column("i64").cast(pa.duration("ms")))
    storage = pa.array([uuid.UUID(int=i).bytes for i in range(rows)], pa.binary(16))
    table = table.append_column("id", pa.ExtensionArray.from_storage(pa.uuid(), storage))
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(range(2 * rows), pa.int32()), 2)
    table = table.append_column("pair", pairs)
    pq.write_table(table, path, row_group_size=2000, write_page_index=True, max_rows_per_page=300)


def by_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as database:
        database.register("given", table)
        database.execute(f"COPY (SELECT * FROM given) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


def by_duckdb_v2(table: pa.Table, path: Path) -> None:
    # pyarrow does not decode this version's unsigned 32-bit deltas.
    table = table.drop_columns(["u32"])
    with duckdb.connect() as database:
        database.register("given", table)
        database.execute(
            f"COPY (SELECT *, i64::HUGEINT AS huge, uuid() AS id, cat::ENUM('cat 1', 'cat 2', 'cat 3', 'cat 0', "
            f"'cat 4', 'cat 5', 'cat 6', 'cat 7', 'cat 8') AS enum FROM given) TO '{path}' "
            f"(FORMAT parquet, ROW_GROUP_SIZE 2048, PARQUET_VERSION v2, COMPRESSION zstd)"
        )


def by_polars(table: pa.Table, path: Path) -> None:
    import polars

    polars.from_arrow(table).write_parquet(path, row_group_size=1800, data_page_size=4096)  # type: ignore[union-attr]


def by_polars_statistics(table: pa.Table, path: Path) -> None:
    import polars

    frame = polars.from_arrow(table)
    frame = frame.with_columns(polars.col("cat").cast(polars.Categorical))  # type: ignore[union-attr]
    frame.write_parquet(path, row_group_size=1800, statistics="full", compression="lz4")


def by_fastparquet(table: pa.Table, path: Path) -> None:
    import fastparquet
    import pandas

    flat = ["i8", "i16", "i32", "i64", "u8", "u16", "f32", "f64", "b", "s", "cat", "bin", "ts", "ts_ns"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        at = table.schema.get_field_index("bin")
        table = table.set_column(at, "bin", table.column("bin").fill_null(b"none"))
        frame = table.select(flat).to_pandas(types_mapper={pa.int64(): pandas.Int64Dtype()}.get)
        fastparquet.write(str(path), frame, row_group_offsets=1900)


def by_fastparquet_int96(table: pa.Table, path: Path) -> None:
    import fastparquet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = table.select(["i32", "f64", "ts"]).to_pandas()
        frame["ts"] = frame["ts"].astype("datetime64[ns]")
        fastparquet.write(str(path), frame, row_group_offsets=1900, times="int96", compression="GZIP")


def by_arrow_rs(table: pa.Table, path: Path) -> None:
    import arro3.core
    import arro3.io

    for name, kind in (("s", pa.string_view()), ("bin", pa.binary_view())):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(kind))
    arro3.io.write_parquet(
        arro3.core.Table.from_arrow(table),
        str(path),
        max_row_group_size=2000,
        data_page_row_count_limit=400,
        write_batch_size=100,
        bloom_filter_enabled=True,
    )


def by_arrow_rs_v2(table: pa.Table, path: Path) -> None:
    import arro3.core
    import arro3.io

    arro3.io.write_parquet(
        arro3.core.Table.from_arrow(table),
        str(path),
        writer_version="parquet_2_0",
        max_row_group_size=2000,
        data_page_row_count_limit=400,
        write_batch_size=100,
        dictionary_enabled=False,
        compression="zstd(3)",
    )


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    name.removeprefix("by_"): function
    for name, function in sorted(globals().items())
    if name.startswith("by_")
}
