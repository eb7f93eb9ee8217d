"""Files of many writers, given indexes: every reader reads from them what it read before."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.writing import embed
from tests.interop.writers import WRITERS
from tests.spark import conftest as spark_tests
from tests.support.arrow import same
from tests.support.sample_table import everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

spark = spark_tests.spark
ROWS = 5000
INDEXES: dict[str, Any] = {
    "cat": "idx1",
    "i32": "distinct",
    "i64": ["bitmap", "zonemap"],
    "s": ["bloom", "ngram"],
}
# What fastparquet writes for INT96 has three columns.
FEW: dict[str, Any] = {"i32": ["bitmap", ("distinct", "file")]}


@pytest.fixture(scope="module", params=sorted(WRITERS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file as its writer wrote it, and the same with indexes."""
    folder = tmp_path_factory.mktemp("embed")
    plain, indexed = folder / "plain.parquet", folder / "indexed.parquet"
    WRITERS[request.param](everything(ROWS), plain)
    names = pq.read_schema(plain).names
    report = embed(plain, indexed, indexes=INDEXES if "cat" in names else FEW)
    assert report.rows == ROWS
    assert report.pages_unknown == ()
    assert indexed.stat().st_size == report.size_after
    return plain, indexed


def equal(left: pa.Table, right: pa.Table) -> bool:
    return left.column_names == right.column_names and all(
        same(a, b) for a, b in zip(left.columns, right.columns, strict=True)
    )


def by_pyarrow(path: Path) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def by_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as database:
        return database.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()


def by_polars(path: Path) -> pa.Table:
    return polars.read_parquet(path).to_arrow()


def by_datafusion(path: Path) -> pa.Table:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    return context.sql("SELECT * FROM t").to_arrow_table()


def by_arrow_rs(path: Path) -> pa.Table:
    arro3 = pytest.importorskip("arro3.io")
    return pa.table(arro3.read_parquet(str(path)))


def by_accel(path: Path) -> pa.Table:
    return accel.scan(str(path)).to_table()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "datafusion": by_datafusion,
    "arrow_rs": by_arrow_rs,
    "accel": by_accel,
}


def attempt(read: Callable[[Path], Any], path: Path) -> Any:
    """What a reader reads, or the kind of error it raises: some cannot read some writers' files at all."""
    try:
        return read(path)
    except BaseException as error:  # Polars' and DataFusion's panics are no Exceptions
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return type(error)


@pytest.mark.parametrize("reader", sorted(READERS))
def test_the_same_rows_as_before(pair: tuple[Path, Path], reader: str) -> None:
    before, after = (attempt(READERS[reader], path) for path in pair)
    if reader in ("pyarrow", "accel"):
        assert isinstance(before, pa.Table)
    if isinstance(before, pa.Table):
        assert isinstance(after, pa.Table), after
        assert before.num_rows == ROWS
        assert equal(before, after)
    else:
        assert after is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that it leaves open
def test_fastparquet_reads_the_same(pair: tuple[Path, Path]) -> None:
    import fastparquet

    def read(path: Path) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fastparquet.ParquetFile(str(path)).to_pandas()

    before, after = (attempt(read, path) for path in pair)
    if isinstance(before, type):
        assert after is before
    else:
        assert len(before) == ROWS
        assert before.equals(after)


FILTERS = ["i32 = 1234", "i32 >= 2990 AND i32 < 3010", "f64 > 4.2", "f64 < 0.02", "f64 = 0"]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("reader", ["duckdb", "datafusion", "accel"])
def test_filters_by_page_bounds_lose_nothing(pair: tuple[Path, Path], reader: str, where: str) -> None:
    plain, indexed = pair

    def rows(path: Path) -> list[int]:
        if reader == "duckdb":
            with duckdb.connect() as database:
                found = database.sql(f"SELECT i32 FROM read_parquet('{path}') WHERE {where}").to_arrow_table()
        elif reader == "datafusion":
            datafusion = pytest.importorskip("datafusion")
            context = datafusion.SessionContext()
            context.register_parquet("t", str(path))
            found = context.sql(f"SELECT i32 FROM t WHERE {where}").to_arrow_table()
        else:
            found = accel.scan(str(path), where=where, columns=["i32"]).to_table()
        return sorted(found.column("i32").to_pylist())

    before, after = (attempt(rows, path) for path in (plain, indexed))
    assert before == after
    if reader == "accel":
        assert len(before) > 0


def test_polars_filters_lose_nothing(pair: tuple[Path, Path]) -> None:
    def rows(path: Path) -> list[int]:
        frame = polars.scan_parquet(path).filter(polars.col("i32").is_between(2990, 3010))
        return sorted(frame.select("i32").collect()["i32"].to_list())

    before, after = (attempt(rows, path) for path in pair)
    assert before == after == list(range(2990, 3011))


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_spark_reads_the_same(pair: tuple[Path, Path], spark: SparkSession) -> None:
    def read(path: Path) -> Any:
        frame = spark.read.parquet(str(path))
        # By page bounds too: Spark reads the pages that may match.
        few = frame.where("i32 between 2990 and 3010").select("i32").toArrow()
        return frame.toArrow().sort_by("i32"), sorted(few.column("i32").to_pylist())

    before, after = (attempt(read, path) for path in pair)
    if isinstance(before, type):
        # Types that Spark knows not make it refuse the whole file.
        assert after is before
    else:
        assert before[0].num_rows == ROWS
        assert equal(before[0], after[0])
        assert before[1] == after[1] == list(range(2990, 3011))


def test_every_page_bound_is_true(pair: tuple[Path, Path]) -> None:
    """Each page's values, one by one, against the bounds that were written for it."""
    from accel.format.bounds import page_bounds
    from accel.format.page_index import parse_column_index, parse_offset_index
    from tests.unit.writing.files import metadata_of

    path = pair[1]
    data, metadata, table = path.read_bytes(), metadata_of(path), by_pyarrow(path)
    chunks, checked = metadata.chunks, 0
    for leaf in metadata.schema.leaves:
        if len(leaf.path) > 1 or not pa.types.is_integer(table.schema.field(leaf.path[0]).type):
            continue
        column = table.column(leaf.path[0]).combine_chunks()
        for group in range(metadata.num_row_groups):
            at = (group, leaf.ordinal)
            if chunks.column_index_offset[at] <= 0:
                continue
            rows = int(metadata.group_rows[group])
            begin = int(chunks.offset_index_offset[at])
            pages = parse_offset_index(
                data[begin : begin + int(chunks.offset_index_length[at])],
                num_rows=rows, lower=int(chunks.start[at]), upper=int(chunks.end[at]),
            )  # fmt: skip
            begin = int(chunks.column_index_offset[at])
            index = parse_column_index(
                data[begin : begin + int(chunks.column_index_length[at])], num_pages=pages.num_pages
            )
            stops = [*pages.first_row[1:].tolist(), rows]
            counts = pages.first_row * 0 + [
                b - a for a, b in zip(pages.first_row.tolist(), stops, strict=True)
            ]
            bounds = page_bounds(metadata, leaf.ordinal, index, counts, arrow_type=column.type)
            first = int(metadata.group_rows[:group].sum())
            for page, (start, stop) in enumerate(zip(pages.first_row.tolist(), stops, strict=True)):
                part = column.slice(first + start, stop - start)
                low, high = (pc.min_max(part)[name].as_py() for name in ("min", "max"))
                assert index.null_count[page] == part.null_count
                if low is not None and bool(bounds.has_lower[page]):
                    assert bounds.lower[page] <= low <= high <= bounds.upper[page]
                    checked += 1
    assert checked > 0
