"""Who wrote a file, and what of it is not believed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from accel.format.writers import (
    NO_DOUBTS,
    Doubts,
    Writer,
    doubts_about,
    leaves_out_dictionary_header,
    lists_used_values,
    parse_writer,
)
from tests.unit.format.files import parse, write

PARSED = {
    "parquet-mr version 1.8.0 (build abc)": ("parquet-mr", (1, 8, 0)),
    "parquet-mr version 1.8.0rc2-SNAPSHOT (build ddb4)": ("parquet-mr", (1, 8, 0)),
    "parquet-mr version 1.5.0-cdh5.5.0 (build x)": ("parquet-mr", (1, 5, 0)),
    "parquet-mr  version  1.12": ("parquet-mr", (1, 12, 0)),
    "parquet-mr version (build abc)": ("parquet-mr", None),
    "parquet-mr version": ("parquet-mr", None),
    "parquet-mr": ("parquet-mr", None),
    "parquet-cpp version 1.5.1-SNAPSHOT": ("parquet-cpp", (1, 5, 1)),
    "Parquet-CPP-Arrow version 10.0.1": ("parquet-cpp-arrow", (10, 0, 1)),
    "parquet-cpp-arrow version 26.0.1": ("parquet-cpp-arrow", (26, 0, 1)),
    "github.com/parquet-go/parquet-go version 0.32.0(build )": (
        "github.com/parquet-go/parquet-go",
        (0, 32, 0),
    ),
    "github.com/segmentio/parquet-go version v0.0.0-20230427215636-d483(build )": (
        "github.com/segmentio/parquet-go",
        (0, 0, 0),
    ),
    "parquet-go version latest": ("parquet-go", None),
    "Parquet.Net version 4.25.0 (build 1)": ("parquet.net", (4, 25, 0)),
    "ClickHouse v25.7.3.22": ("clickhouse", (25, 7, 3)),
    "DuckDB version v1.5.5 (build abc)": ("duckdb", (1, 5, 5)),
    "Polars": ("polars", None),
    "Arrow2 - Native Rust implementation of Arrow": ("arrow2 - native rust implementation of arrow", None),
    "": ("", None),
    " version 1.2.3": ("version 1.2.3", None),
    "\n\0 version\t9.9": ("\0", (9, 9, 0)),
    "parquet-mr version " + "9" * 5000: ("parquet-mr", None),
    "x" * 5000 + " version 1.0": ("x" * 300, None),
}


@pytest.mark.parametrize(("text", "writer"), PARSED.items(), ids=[text[:40] or "nothing" for text in PARSED])
def test_a_writer_is_read_as_other_libraries_read_it(text: str, writer: tuple) -> None:
    assert parse_writer(text) == Writer(*writer)


BOUNDS, NULLS = Doubts(bounds=True), Doubts(null_counts=True)
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
DECIMAL = pa.decimal128(30, 2)
OF_POLARS = Doubts(repeated_null_counts=True)
UNUSED = Doubts(extremes=True)

DOUBTED = {
    "parquet-mr version 1.7.9": [(pa.string(), BOUNDS), (pa.binary(4), BOUNDS), (pa.int64(), NO_DOUBTS)],
    "parquet-mr": [(pa.string(), BOUNDS), (pa.int64(), NO_DOUBTS)],
    "parquet-mr version 1.8.0": [(pa.string(), NO_DOUBTS)],
    "parquet-cpp version 1.5.1-SNAPSHOT": [(DICTIONARY, NULLS), (pa.string(), NO_DOUBTS), (DECIMAL, BOUNDS)],
    "parquet-cpp-arrow version 3.0.0": [
        (DICTIONARY, NULLS | UNUSED),
        (DECIMAL, BOUNDS),
        (pa.float64(), NO_DOUBTS),
    ],
    "parquet-cpp-arrow version 4.0.0": [(DICTIONARY, NULLS | UNUSED), (DECIMAL, NO_DOUBTS)],
    "parquet-cpp-arrow version 5.9.9": [(DICTIONARY, NULLS | UNUSED)],
    "parquet-cpp-arrow version 6.0.0": [(DICTIONARY, BOUNDS | NULLS | UNUSED), (pa.string(), NO_DOUBTS)],
    "parquet-cpp-arrow version 10.0.1": [(DICTIONARY, BOUNDS | NULLS | UNUSED)],
    "parquet-cpp-arrow version 11.0.0": [(DICTIONARY, UNUSED), (DECIMAL, NO_DOUBTS)],
    "parquet-cpp-arrow": [(DICTIONARY, BOUNDS | NULLS | UNUSED), (pa.string(), NO_DOUBTS)],
    "parquet-rs version 5.1.0": [(pa.string(), BOUNDS), (pa.int32(), NO_DOUBTS)],
    "parquet-rs version 5.2.0": [(pa.string(), NO_DOUBTS), (DECIMAL, BOUNDS)],
    "parquet-rs version 58.0.0": [(DECIMAL, NO_DOUBTS)],
    "Arrow2 - Native Rust implementation of Arrow": [(DICTIONARY, NULLS), (pa.string(), NO_DOUBTS)],
    "Polars": [
        (pa.string(), OF_POLARS),
        (pa.bool_(), OF_POLARS | Doubts(extremes=True)),
        (DECIMAL, OF_POLARS | BOUNDS),
    ],
    "github.com/segmentio/parquet-go version v0.0.0-1(build )": [
        (pa.string(), Doubts(page_uppers=True)),
        (pa.int64(), NO_DOUBTS),
        (DECIMAL, Doubts(page_uppers=True, bounds=True)),
    ],
    "github.com/parquet-go/parquet-go version 0.32.0(build )": [(pa.string(), NO_DOUBTS), (DECIMAL, BOUNDS)],
    "parquet-go version latest": [(pa.int64(), NULLS | Doubts(bloom_filters=True))],
    "parquet-go version 0.9.0": [(pa.int64(), NULLS)],
    "parquet-go version 18.3.1": [(pa.string(), NO_DOUBTS)],
    "parquet-go version 18.4.0": [(pa.string(), Doubts(bloom_filters=True))],
    "parquet-go version 18.6.9": [(pa.string(), Doubts(bloom_filters=True))],
    "parquet-go version 18.7.0": [(pa.string(), NO_DOUBTS)],
    "Parquet.Net version 4.25.0": [
        (pa.timestamp("us"), BOUNDS),
        (pa.date32(), NO_DOUBTS),
        (pa.int64(), NO_DOUBTS),
    ],
    "parquet-dotnet version 3.0.1": [(pa.timestamp("ms"), BOUNDS)],
    "ClickHouse v25.8.1.1": [(DECIMAL, BOUNDS), (pa.string(), NO_DOUBTS)],
    "ClickHouse v26.1.1.1": [(DECIMAL, NO_DOUBTS)],
    "DuckDB version v1.5.5 (build x)": [(DECIMAL, NO_DOUBTS), (pa.string(), NO_DOUBTS)],
    "": [(pa.string(), NO_DOUBTS), (DICTIONARY, NO_DOUBTS)],
}


@pytest.mark.parametrize(
    ("created_by", "columns"), DOUBTED.items(), ids=[name or "nobody" for name in DOUBTED]
)
def test_what_is_doubted_of_a_writer(created_by: str, columns: list) -> None:
    for kind, doubts in columns:
        table = pa.Table.from_arrays([pa.nulls(2, kind)], ["c"])
        metadata = replace(parse(write(table)), created_by=created_by)
        assert doubts_about(metadata, 0, arrow_type=kind) == doubts, kind


def test_without_the_arrow_schema_any_text_may_have_been_a_dictionary_array() -> None:
    table = pa.Table.from_arrays([pa.nulls(2, pa.string()), pa.nulls(2, pa.int64())], ["c", "n"])
    metadata = replace(parse(write(table, store_schema=False)), created_by="parquet-cpp-arrow version 10.0.1")
    assert doubts_about(metadata, 0, arrow_type=pa.string()) == BOUNDS | NULLS | UNUSED
    assert doubts_about(metadata, 1, arrow_type=pa.int64()) == NO_DOUBTS


def test_an_extension_stands_for_the_dictionary_that_it_holds() -> None:
    class Named(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(DICTIONARY, "accel.tests.named")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    table = pa.Table.from_arrays([pa.nulls(2, DICTIONARY)], ["c"])
    metadata = replace(parse(write(table)), created_by="parquet-cpp-arrow version 10.0.1")
    assert doubts_about(metadata, 0, arrow_type=Named()) == BOUNDS | NULLS | UNUSED


@pytest.mark.parametrize(
    ("created_by", "left_out"),
    [
        ("parquet-mr version 1.2.8", True),
        ("parquet-mr", True),
        ("parquet-mr version unknown", True),
        ("parquet-mr version 1.2.9", False),
        ("impala version 1.0.0", False),
        ("", False),
    ],
)
def test_who_leaves_out_dictionary_headers(created_by: str, left_out: bool) -> None:
    assert leaves_out_dictionary_header(created_by) is left_out


@pytest.mark.parametrize(
    ("created_by", "kind", "expected"),
    [
        ("parquet-cpp-arrow version 26.0.1", pa.string(), True),
        ("parquet-cpp-arrow version 26.0.1", DICTIONARY, False),
        ("parquet-mr version 1.15.0 (build x)", pa.string(), True),
        ("parquet-rs version 58.0.0", DICTIONARY, True),
        ("datafusion version 55.2.0", pa.string(), True),
        # An ENUM, or the categories of a data frame, are listed whole.
        ("DuckDB version v1.5.5 (build x)", pa.string(), False),
        ("fastparquet-python version 2026.9.0 (build 0)", pa.string(), False),
        ("", pa.string(), False),
    ],
)
def test_whose_dictionaries_list_no_other_values(created_by: str, kind: pa.DataType, expected: bool) -> None:
    table = pa.Table.from_arrays([pa.nulls(2, kind)], ["c"])
    metadata = replace(parse(write(table)), created_by=created_by)
    assert lists_used_values(metadata, arrow_type=kind) is expected


def test_a_dictionary_array_without_arrows_schema_may_list_other_values() -> None:
    metadata = replace(parse(write(pa.table({"c": ["x"]}))), key_value={})
    assert not lists_used_values(metadata, arrow_type=pa.string())
