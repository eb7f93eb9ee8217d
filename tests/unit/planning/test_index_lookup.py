"""Dictionary pages as indexes: which columns they may be asked of."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.arrow import file_schema
from accel.planning.handle import FileHandle
from accel.planning.index_lookup import Dictionaries
from accel.planning.query import Question, compile_query
from accel.predicate.where import to_expr
from accel.testing import DictStore
from tests.support.file_steps import Bytes

ROWS = 4_000
STRUCTS = [None, {"x": None}, {"x": 1}, {"x": 2}]


def data() -> bytes:
    column = pa.array([STRUCTS[n % 4] for n in range(ROWS)], pa.struct([("x", pa.int32())]))
    present = pa.array([{"x": None}] * ROWS, column.type)
    table = pa.table({"a": column, "b": present, "n": range(ROWS)})
    sink = io.BytesIO()
    # Many pages, so that a dictionary is worth its bytes.
    dictionaries = ["a.x", "b.x"]
    pq.write_table(
        table,
        sink,
        use_dictionary=dictionaries,
        write_statistics=False,
        max_rows_per_page=20,
        write_batch_size=20,
    )
    return sink.getvalue()


def found_in(handle: FileHandle, where: str) -> Dictionaries | None:
    metadata = handle.metadata
    schema = file_schema(metadata.schema, metadata.key_value)
    query = compile_query(
        Question(to_expr(where), schema, schema, ()),
        file_schema=metadata.schema,
        arrow_schema=schema,
        partition={},
        url="u",
    )
    return Dictionaries.of(handle, query, lambda *_: pa.nulls(0))


def scanned(where: str) -> int:
    store, options = DictStore({"f": data()}), accel.Options(probe_min_bytes=0)
    return accel.scan("f", where, store=store, cache=None, options=options).count_rows()


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("a.x = 1", [("a", "x")]),
        ("a.x IS NULL", [("a", "x")]),
        ("a IS NULL", []),
        ("a IS NOT NULL AND a.x IS NULL", [("a", "x")]),
        ("n = 1", []),
    ],
)
def test_only_a_column_itself_is_listed_by_its_dictionary(where: str, asked: list[tuple[str, ...]]) -> None:
    found = found_in(Bytes(data()).open(), where)
    assert [column.column.path for column in (found.columns if found is not None else [])] == asked


def test_no_dictionary_is_asked_of_a_file_whose_page_index_lied() -> None:
    handle = Bytes(data()).open()
    handle.distrusted = True
    assert found_in(handle, "a.x = 1") is None


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("a IS NULL", 1000),
        ("a IS NOT NULL", 3000),
        ("a.x IS NULL", 2000),
        ("a.x = 1 OR a IS NULL", 2000),
        ("a.x = 7 OR a IS NOT NULL", 3000),
        ("b IS NULL", 0),
        ("b.x = 1 OR b IS NULL", 0),
        ("b.x = 1 OR b IS NOT NULL", ROWS),
    ],
)
def test_a_struct_of_one_field_is_null_where_it_is_null_itself(where: str, rows: int) -> None:
    assert scanned(where) == rows
