"""Files of pyarrow, DuckDB, Polars, fastparquet and arrow-rs: read as pyarrow reads them, filtered by row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.parser import parse
from tests.interop.writers import WRITERS
from tests.oracle import rowwise
from tests.support.arrow import same
from tests.support.sample_table import PREDICATES, everything

# What a writer's file must have, so that the tests below test something.
PAGE_INDEX = {
    "arrow_rs": True,
    "arrow_rs_v2": True,
    "duckdb": False,
    "duckdb_v2": False,
    "fastparquet": False,
    "fastparquet_int96": False,
    "polars": True,
    "polars_statistics": True,
    "pyarrow": True,
    "pyarrow_int96": True,
    "pyarrow_special_types": True,
    "pyarrow_v2_delta": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="module", params=sorted(WRITERS))
def file(request: pytest.FixtureRequest, folder: Path) -> Path:
    path = folder / f"{request.param}.parquet"
    WRITERS[request.param](everything(), path)
    return path


@pytest.fixture(scope="module")
def full(file: Path) -> pa.Table:
    return pq.read_table(file, page_checksum_verification=True)


def test_the_file_is_what_it_is_meant_to_be(file: Path) -> None:
    metadata = pq.read_metadata(file)
    assert metadata.num_row_groups == (1 if file.stem == "pyarrow_int96" else 3)
    assert metadata.row_group(0).column(0).has_offset_index == PAGE_INDEX[file.stem]


def test_a_full_scan_is_the_full_read(file: Path, full: pa.Table) -> None:
    scan = accel.scan(str(file), cache=accel.Cache())
    found = scan.to_table()
    found.validate(full=True)
    assert found.schema == full.schema
    assert scan.schema == full.schema
    for name in full.schema.names:
        assert same(found.column(name), full.column(name)), name
    assert scan.count_rows() == full.num_rows


def test_each_column_alone_is_that_column(file: Path, full: pa.Table) -> None:
    cache = accel.Cache()
    for name in full.schema.names:
        found = accel.scan(str(file), columns=[name], cache=cache).to_table()
        assert found.schema.names == [name]
        assert same(found.column(name), full.column(name)), name


def test_filtered_scans_are_the_rows_that_match(file: Path, full: pa.Table) -> None:
    cache = accel.Cache()
    asked = 0
    for names, where in PREDICATES:
        if not set(names.split()) <= set(full.schema.names):
            continue
        asked += 1
        answers = rowwise.evaluate(parse(where), full)
        rows = pa.array([row for row, answer in enumerate(answers) if answer is True], pa.int64())
        # fastparquet was given no null to write in `bin`.
        assert 0 < len(rows) < full.num_rows or (file.stem, where) == ("fastparquet", "bin IS NULL")
        scan = accel.scan(str(file), where, cache=cache)
        found = scan.to_table()
        assert found.num_rows == len(rows), where
        for name in full.schema.names:
            if not _has_views(full.schema.field(name).type):
                wanted = full.column(name).take(rows)
                assert same(found.column(name), wanted), f"{name} where {where}"
        assert scan.count_rows() == len(rows), where
    assert asked >= (4 if file.stem == "fastparquet_int96" else 12)


def _has_views(kind: pa.DataType) -> bool:
    """pyarrow has no take for them."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def test_views_filter_too(folder: Path) -> None:
    path = folder / "views.parquet"
    WRITERS["arrow_rs"](everything(), path)
    full = pq.read_table(path)
    assert pa.types.is_string_view(full.schema.field("s").type)
    found = accel.scan(str(path), "s >= 'key 01' AND s < 'key 02'", columns=["s", "bin"]).to_table()
    texts = full.column("s").to_pylist()
    rows = [row for row, text in enumerate(texts) if text is not None and "key 01" <= text < "key 02"]
    assert len(rows) > 50
    for name in ("s", "bin"):
        values = full.column(name).to_pylist()
        assert found.column(name).to_pylist() == [values[row] for row in rows]


def test_selective_scans_of_indexed_files_read_little(file: Path) -> None:
    if not PAGE_INDEX[file.stem] or file.stem == "pyarrow_int96":
        return
    scan = accel.scan(str(file), "i32 = 77", columns=["i32"], cache=accel.Cache())
    assert scan.to_table().column("i32").to_pylist() == [77]
    assert scan.metrics.row_groups.kept == 1


def test_a_directory_of_all_writers_reads_as_one(folder: Path) -> None:
    """The columns that all of them have, whatever each of them took to store them."""
    names = ["arrow_rs_v2", "duckdb", "polars", "pyarrow", "pyarrow_v2_delta"]
    below = folder / "together"
    below.mkdir()
    table = everything()
    for name in names:
        WRITERS[name](table, below / f"{name}.parquet")
    columns = ["i32", "i64", "f64", "s", "d", "ts", "dec"]
    # DuckDB and Polars store their own Arrow types, or none: say what is wanted.
    schema = pa.schema([table.schema.field(c) for c in columns])
    schema = schema.set(3, pa.field("s", pa.large_string()))
    scan = accel.scan(f"{below}/", "i32 < 100", schema=schema, columns=columns)
    found = scan.to_table()
    assert found.schema == schema
    assert found.num_rows == 100 * len(names)
    for at in range(len(names)):
        part = found.slice(100 * at, 100)
        for name in columns:
            assert same(part.column(name), table.column(name).slice(0, 100).cast(schema.field(name).type)), (
                name
            )
