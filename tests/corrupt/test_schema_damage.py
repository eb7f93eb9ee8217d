"""What the writer stored of its Arrow schema, damaged in ways that pyarrow lets pass."""

from __future__ import annotations

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq

import accel
from accel.cli.terminal import short_type
from accel.decode.spark_types import spark_arrow_schema
from accel.format.thrift import BINARY, read_struct, write_struct
from accel.testing import DictStore


def _with_zone(zone: bytes) -> bytes:
    """A file whose ARROW:schema has these bytes for its time zone, which was UTC."""
    sink = io.BytesIO()
    moments = pa.array([1, 2, 3]).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.Table.from_arrays([moments], names=["t"]), sink)
    data = sink.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[start:-8])
    stored = footer[5][1].items[0]
    schema = base64.b64decode(stored[2][1])
    assert schema.count(b"UTC") == 1
    stored[2] = (BINARY, base64.b64encode(schema.replace(b"UTC", zone)))
    made = write_struct(footer)
    return data[:start] + made + len(made).to_bytes(4, "little") + b"PAR1"


def test_a_time_zone_that_is_not_utf8() -> None:
    files = {"t/a.parquet": _with_zone(b"UTC"), "t/b.parquet": _with_zone(b"\xffTC")}
    store = DictStore(files)
    assert pq.read_table(pa.BufferReader(files["t/b.parquet"])).num_rows == 3
    found = accel.scan("t/", store=store, cache=accel.Cache()).to_table()
    assert found.column("t").cast(pa.int64()).to_pylist() == [1, 2, 3, 1, 2, 3]
    alone = accel.scan("t/b.parquet", store=store, cache=accel.Cache())
    assert alone.count_rows() == 3
    assert spark_arrow_schema(alone.schema).field("t").type == pa.timestamp("us", "UTC")
    assert short_type(alone.schema.field("t").type) == "timestamp[us, UTC]"
