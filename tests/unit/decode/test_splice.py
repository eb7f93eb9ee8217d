"""The spliced file, byte by byte, and the cache of what depends on the schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import projected_schema
from accel.decode.splice import SchemaMemo, SplicedChunk, plan_splice, splice, splice_groups
from accel.format.model import ParquetSchema
from accel.format.thrift import read_struct
from accel.testing import write_file
from tests.unit.decode.selected import open_metadata


def _meta(schema: pa.Schema) -> object:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    return open_metadata(sink.getvalue().to_pybytes())


_TWO = pa.schema([("a", pa.int32()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))])


def _footer(spliced: pa.Buffer) -> dict[int, tuple[int, object]]:
    data = spliced.to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    struct, end = read_struct(data[-8 - length : -8])
    assert end == length
    return struct


def test_the_pages_lie_between_the_magics_and_the_footer_says_where() -> None:
    meta = _meta(_TWO)
    plan = plan_splice(meta.schema, meta.key_value, fields=[1])
    assert plan.leaves == (1, 2)
    data = splice(plan, {2: SplicedChunk((b"dict", memoryview(b"page")), 6, 300, 77)}, num_rows=301)
    assert data[:12] == b"PAR1dictpage"
    assert data[-4:] == b"PAR1"
    footer = _footer(data)
    assert sorted(footer) == [1, 2, 3, 4, 5]
    assert footer[3][1] == 301
    names = [element[4][1] for element in footer[2][1].items]
    assert names == [b"schema", b"s", b"x", b"y"]
    (group,) = footer[4][1].items
    assert group[3][1] == 301
    unread, read = (chunk[3][1] for chunk in group[1][1].items)
    # type, codec, num_values, uncompressed, compressed, data_page_offset
    assert [read[i][1] for i in (1, 4, 5, 6, 7, 9)] == [6, 6, 301, 77, 8, 4]
    assert [unread[i][1] for i in (1, 4, 5, 6, 7, 9)] == [2, 0, 301, 0, 0, 4]
    assert sorted(read) == [1, 2, 3, 4, 5, 6, 7, 9]


def test_without_chunks_there_is_no_row_group() -> None:
    meta = _meta(_TWO)
    data = splice(plan_splice(meta.schema, meta.key_value, fields=[0, 1]), {}, num_rows=0)
    assert data[:4] == b"PAR1"
    assert _footer(data)[4][1].items == []
    assert pq.read_schema(pa.BufferReader(data)) == _TWO


def test_more_than_fourteen_columns_and_large_numbers() -> None:
    meta = _meta(pa.schema([(f"c{i}", pa.int32()) for i in range(20)]))
    plan = plan_splice(meta.schema, meta.key_value, fields=range(20))
    footer = _footer(splice(plan, {3: SplicedChunk((b"x" * 300,), 0, 1 << 40, 1 << 50)}, num_rows=1 << 33))
    (group,) = footer[4][1].items
    chunks = [chunk[3][1] for chunk in group[1][1].items]
    assert len(chunks) == 20
    assert [chunks[3][i][1] for i in (5, 6, 7)] == [1 << 40, 1 << 50, 300]
    assert group[3][1] == 1 << 33


def test_a_plan_is_kept_for_the_same_objects_only() -> None:
    meta, other = _meta(_TWO), _meta(_TWO)
    plan = plan_splice(meta.schema, meta.key_value, fields=[0])
    assert plan_splice(meta.schema, meta.key_value, fields=(0, 0)) is plan
    assert plan_splice(meta.schema, meta.key_value, fields=[1]) is not plan
    assert plan_splice(other.schema, other.key_value, fields=[0]) is not plan


def test_other_keys_travel_only_when_asked() -> None:
    meta = _meta(_TWO.with_metadata({"note": "naïve", "other": b"\xff"}))
    keys = {**meta.key_value, "odd\udcff": b"\x00"}

    def written(carry: bool) -> set[bytes]:
        plan = plan_splice(meta.schema, keys, fields=[0], carry_metadata=carry)
        return {pair[1][1] for pair in _footer(splice(plan, {}, num_rows=0))[5][1].items}

    assert written(False) == {b"ARROW:schema"}
    assert written(True) == {b"ARROW:schema", b"note", b"other", b"odd\xff"}


@pytest.mark.parametrize("store", [True, False], ids=["with keys", "without"])
def test_the_writer_is_named_when_asked(store: bool) -> None:
    meta = _meta(_TWO)
    keys = meta.key_value if store else {}
    footer = _footer(splice(plan_splice(meta.schema, keys, fields=[0], created_by="naïve"), {}, num_rows=0))
    assert footer[6][1] == "naïve".encode()
    assert (5 in footer) is store
    assert 6 not in _footer(splice(plan_splice(meta.schema, keys, fields=[0]), {}, num_rows=0))


def test_a_stored_schema_of_other_columns_is_left_out() -> None:
    meta, other = _meta(_TWO), _meta(pa.schema([("a", pa.int32())]))
    keys = {**other.key_value, "note": b"x"}
    plan = plan_splice(meta.schema, keys, fields=[0], carry_metadata=True)
    assert [pair[1][1] for pair in _footer(splice(plan, {}, num_rows=0))[5][1].items] == [b"note"]


def test_each_row_group_has_its_own_chunks() -> None:
    meta = _meta(_TWO)
    plan = plan_splice(meta.schema, meta.key_value, fields=[0, 1])
    groups = [{0: SplicedChunk((b"first",), 0, 3, 5)}, {0: SplicedChunk((b"se", b"cond"), 6, 4, 9)}, {}]
    data = splice_groups(plan, groups, num_rows=[3, 4, 0])
    assert data.to_pybytes()[:15] == b"PAR1firstsecond"
    footer = _footer(data)
    assert footer[3][1] == 7
    found = [[chunk[3][1] for chunk in group[1][1].items] for group in footer[4][1].items]
    assert [group[3][1] for group in footer[4][1].items] == [3, 4, 0]
    # codec, num_values, uncompressed, compressed, data_page_offset
    assert [[chunks[0][i][1] for i in (4, 5, 6, 7, 9)] for chunks in found] == [
        [0, 3, 5, 5, 4],
        [6, 4, 9, 6, 9],
        [0, 0, 0, 0, 4],
    ]
    assert [len(chunks) for chunks in found] == [3, 3, 3]


_TABLE = pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "b"])


def _schema() -> ParquetSchema:
    return open_metadata(write_file(_TABLE)).schema


def test_a_value_is_found_by_schema_metadata_and_question() -> None:
    memo: SchemaMemo[str] = SchemaMemo(4)
    schema, other = _schema(), _schema()
    assert memo.put(schema, {"k": b"1"}, "q", "kept") == "kept"
    assert memo.get(schema, {"k": b"1"}, "q") == "kept"
    assert memo.get(schema, {"k": b"2"}, "q") is None
    assert memo.get(schema, {"k": b"1"}, "r") is None
    assert memo.get(other, {"k": b"1"}, "q") is None


def test_the_least_recently_used_goes_first() -> None:
    memo: SchemaMemo[int] = SchemaMemo(2)
    schema = _schema()
    memo.put(schema, {}, 0, 0)
    memo.put(schema, {}, 1, 1)
    memo.get(schema, {}, 0)
    memo.put(schema, {}, 2, 2)
    assert [memo.get(schema, {}, question) for question in range(3)] == [0, None, 2]


def test_a_projected_schema_is_worked_out_once_and_right_for_each_projection() -> None:
    meta = open_metadata(write_file(_TABLE))
    first = projected_schema(meta.schema, meta.key_value, leaves=[0])
    assert projected_schema(meta.schema, dict(meta.key_value), leaves=[0]) is first
    assert first.names == ["a"]
    assert projected_schema(meta.schema, meta.key_value, leaves=[1]).names == ["b"]
    assert projected_schema(meta.schema, {}, leaves=[0]).names == ["a"]
