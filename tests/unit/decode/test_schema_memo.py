"""What is kept of a schema is found again for that schema only."""

import pyarrow as pa

from accel.decode.arrow import projected_schema
from accel.decode.schema_memo import SchemaMemo
from accel.format.model import ParquetSchema
from accel.testing import write_file
from tests.unit.decode.selected import open_metadata

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
