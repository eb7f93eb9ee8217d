"""Files have the layout that they declare."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from accel.format.thrift import read_struct
from accel.testing import (
    Layout,
    bench_table,
    table,
    write_bench_file,
    write_file,
)
from tests.support.file_steps import footer_start


def first_rows(data: bytes) -> list[list[list[int]]]:
    """The first row of each page, by row group and column: FileMetaData.row_groups (field 4), their
    columns (1), a chunk's offset_index_offset (4), and an OffsetIndex's page_locations (1), first_row_index
    (3).
    """
    footer, _ = read_struct(data, footer_start(data))
    out = []
    for group in footer[4][1].items:
        chunks = []
        for chunk in group[1][1].items:
            index, _ = read_struct(data, chunk[4][1])
            chunks.append([page[3][1] for page in index[1][1].items])
        out.append(chunks)
    return out


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    rows: int
    layout: Layout
    pages: list[list[int]] = field(default_factory=list)
    """First rows of the pages of every column, by row group."""


CASES = [
    Case(id="one group, one page", rows=50, layout=Layout(page_rows=100), pages=[[0]]),
    Case(id="pages end where they are told", rows=250, layout=Layout(page_rows=100), pages=[[0, 100, 200]]),
    Case(id="equal groups", rows=250, layout=Layout(group_rows=150, page_rows=100), pages=[[0, 100], [0]]),
    Case(
        id="named groups", rows=60, layout=Layout(group_rows=[10, 50], page_rows=20), pages=[[0], [0, 20, 40]]
    ),
    Case(
        id="pages of version 2, uncompressed, plain",
        rows=90,
        layout=Layout(page_rows=30, codec="none", dictionary=False, data_page="2.0"),
        pages=[[0, 30, 60]],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rows_of_groups_and_pages(case: Case) -> None:
    data = bench_table(case.rows)
    written = write_file(data, case.layout)
    assert first_rows(written) == [[pages] * 6 for pages in case.pages]
    assert pq.read_table(io.BytesIO(written)).equals(data)


def test_nested_pages_count_rows() -> None:
    lists = pa.array([[1, 2, 3]] * 50, pa.list_(pa.int64()))
    assert first_rows(write_file(table(x=lists), Layout(page_rows=20))) == [[[0, 20, 40]]]


def test_groups_must_add_up() -> None:
    with pytest.raises(ValueError, match="row groups of 30 rows for a table of 31"):
        write_file(bench_table(31), Layout(group_rows=[10, 20]))


def test_codecs_dictionaries_and_fallback() -> None:
    data = bench_table(20_000)
    layout = Layout(
        codec={"key": "snappy", "name": "gzip"}, dictionary=["name", "category"], dictionary_bytes=4096
    )
    group = pq.ParquetFile(io.BytesIO(write_file(data, layout))).metadata.row_group(0)
    by_name = {group.column(i).path_in_schema: group.column(i) for i in range(6)}
    assert (by_name["key"].compression, by_name["name"].compression) == ("SNAPPY", "GZIP")
    assert not by_name["key"].has_dictionary_page
    # The unique strings outgrow 4 KiB of dictionary on their first page, so the later one is plain.
    assert set(by_name["name"].encodings) == {"PLAIN", "RLE", "RLE_DICTIONARY"}


def test_without_index_statistics_or_arrow_schema() -> None:
    layout = Layout(page_index=False, statistics=False, arrow_schema=False)
    file = pq.ParquetFile(io.BytesIO(write_file(bench_table(10), layout)))
    chunk = file.metadata.row_group(0).column(0)
    assert (chunk.has_offset_index, chunk.has_column_index, chunk.is_stats_set) == (False, False, False)
    assert file.metadata.metadata is None


def test_the_bench_file_has_its_declared_shape() -> None:
    data = write_bench_file(rows=80_000)
    assert first_rows(data) == [[[0, 10_000]] * 6] * 4
    read = pq.read_table(io.BytesIO(data))
    assert read.schema == pa.schema(
        [
            ("key", pa.int64()),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("category", pa.string()),
            ("value", pa.float64()),
            ("name", pa.string()),
            ("amount", pa.int32()),
        ]
    )
    assert read["key"].to_pylist() == list(range(0, 240_000, 3))
    assert pc.count_distinct(read["category"]).as_py() == 1000
    assert pc.count_distinct(read["name"]).as_py() == 80_000
    assert 7_000 < read["amount"].null_count < 9_000
    assert pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0).compression == "ZSTD"


def test_builders_are_repeatable_and_seeded() -> None:
    assert bench_table(1000).equals(bench_table(1000))
    assert not bench_table(1000).equals(bench_table(1000, seed=1))
    assert write_bench_file(rows=1000) == write_bench_file(rows=1000)
