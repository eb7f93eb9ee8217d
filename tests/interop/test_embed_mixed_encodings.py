"""Indexes of text columns that other writers encode by a dictionary here and by deltas there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import arro3.core
import arro3.io
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.writing.values import ColumnValues
from tests.unit.writing.files import as_source, metadata_of

ROWS, GROUP, FEW = 6000, 2000, 2000
"""The texts of the first row group are few, those of the others all different."""


def text_of(row: int) -> str | None:
    if row % 11 == 5:
        return None
    return f"few {row % 7}" if row < FEW else f"text number {row * 7919 % 100_003:06d}"


def sample(kind: pa.DataType) -> pa.Table:
    texts = [text_of(row) for row in range(ROWS)]
    values = texts if pa.types.is_string(kind) else [None if t is None else t.encode() for t in texts]
    columns = [pa.array(range(ROWS)), pa.array(values, kind)]
    return pa.Table.from_arrays(columns, names=["id", "t"])


def by_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as database:
        database.register("given", table)
        database.execute(
            f"COPY (SELECT * FROM given) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {GROUP}, PARQUET_VERSION v2)"
        )


def by_arrow_rs(encoding: str | None) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        arro3.io.write_parquet(
            arro3.core.Table.from_arrow(table),
            path,
            writer_version="parquet_2_0",
            max_row_group_size=GROUP,
            data_page_row_count_limit=250,
            write_batch_size=250,
            # The other row groups fall back after a few pages.
            dictionary_page_size_limit=12_000,
            column_encoding=None if encoding is None else {"t": encoding},
        )

    return write


WRITERS: dict[str, tuple[Callable[[pa.Table, Path], None], str]] = {
    "DuckDB, by chunk": (by_duckdb, "DELTA_LENGTH_BYTE_ARRAY"),
    "arrow-rs, by page": (by_arrow_rs(None), "DELTA_BYTE_ARRAY"),
    "arrow-rs, by page, of lengths": (by_arrow_rs("delta_length_byte_array"), "DELTA_LENGTH_BYTE_ARRAY"),
}
KINDS: dict[str, Any] = {
    "distinct": accel.indexes.Distinct(max_values=10_000),
    "bitmap": "bitmap",
    "bitmap by row range": ("bitmap", "row range"),
    "bloom": "bloom",
    "ngram": "ngram",
    "zonemap": "zonemap",
    "sketch": "sketch",
    "idx1": "idx1",
    "of a file": (accel.indexes.Distinct(max_values=10_000), "file"),
}
TYPES = {"text": pa.string(), "bytes": pa.binary(), "large text": pa.large_string()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_is_embedded_and_answers(tmp_path: Path, writer: str, column: str, kind: str) -> None:
    path, table = tmp_path / "f.parquet", sample(TYPES[column])
    write, delta = WRITERS[writer]
    write(table, path)
    encodings = {e for g in range(3) for e in pq.read_metadata(path).row_group(g).column(1).encodings}
    assert {"RLE_DICTIONARY", delta} <= encodings
    if column == "bytes" and kind == "idx1":
        with pytest.raises(accel.SchemaMismatchError):
            accel.embed(path, indexes={"t": KINDS[kind]})
        return
    accel.embed(path, indexes={"t": KINDS[kind]})
    assert pq.read_table(path).select(["id"]).equals(table.select(["id"]))
    options = accel.Options(strict=True, probe_min_bytes=0)
    bytes_of = (lambda t: f"X'{t.encode().hex()}'") if column == "bytes" else (lambda t: f"'{t}'")
    for row in (0, 1999, 2000, 2300, 5998):
        text = text_of(row)
        scan = accel.scan(path, f"t = {bytes_of(text)}", columns=["id"], cache=accel.Cache(), options=options)
        assert scan.to_table()["id"].to_pylist() == [n for n in range(ROWS) if text_of(n) == text]
        if row >= 2048 and kind.startswith(("distinct", "bitmap", "bloom")):
            # A page of DuckDB's is a row group.
            assert scan.metrics.rows.kept <= (2048 if writer.startswith("DuckDB") else 750)
    scan = accel.scan(path, "t IS NULL", columns=["id"], cache=accel.Cache(), options=options)
    assert scan.to_table()["id"].to_pylist() == list(range(5, ROWS, 11))


@pytest.mark.parametrize("writer", WRITERS)
def test_an_index_of_a_tuple_over_columns_of_both(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "f.parquet"
    WRITERS[writer][0](sample(pa.string()), path)
    accel.embed(path, indexes={"t, lower(t), (id, t)": "zonemap"})
    options = accel.Options(strict=True, probe_min_bytes=0)
    for row in (3, 2000, 5000):
        where = f"id = {row} AND t = '{text_of(row)}'"
        assert accel.scan(path, where, columns=["id"], options=options).to_table()["id"].to_pylist() == [row]


def test_runs_that_fall_back_come_as_the_others_do(tmp_path: Path) -> None:
    """A kind without a builder is given a row group's runs joined, so all are of one type."""
    path = tmp_path / "f.parquet"
    by_arrow_rs(None)(sample(pa.string()), path)
    source = as_source(path)
    metadata = metadata_of(path)
    from accel.writing.original import open_original
    from accel.writing.values import Texts

    original = open_original(source, options=accel.Options())
    values = ColumnValues(
        source, metadata, leaf=metadata.schema.leaves[1], options=accel.Options(), texts=Texts.CODED
    )
    found = []
    for group in range(3):
        for run in values.read_runs(group, original.offset_indexes[group, 1]):
            assert run.array.type == values.type == pa.dictionary(pa.int32(), pa.string())
            found += run.array.to_pylist()
    assert found == [text_of(row) for row in range(ROWS)]
    source.close()
