"""The batches of a piece: constant columns, and rows without columns."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, ThriftList, write_struct
from accel.testing import DictStore


@pytest.mark.parametrize("columns", [["p"], ["late"], [], ["n", "p", "late"]])
def test_constants_take_no_room_for_each_row(columns: list[str]) -> None:
    """Partition values and columns that the file lacks: a row group may have any number of rows."""
    rows = 300_000
    table = pa.Table.from_arrays([pa.nulls(rows, pa.int8())], names=["n"])
    with_late = pa.Table.from_arrays([pa.array([1], pa.int8()), pa.array(["x" * 50])], names=["n", "late"])
    files = {}
    for path, data in (("t/p=long%20text/a.parquet", with_late), ("t/p=long%20text/b.parquet", table)):
        sink = io.BytesIO()
        pq.write_table(data, sink, row_group_size=rows)
        files[path] = sink.getvalue()
    options = accel.Options(memory_limit=8 << 20, batch_rows=1000)
    scan = accel.scan("t/", columns=columns, store=DictStore(files), cache=accel.Cache(), options=options)
    first, *batches = list(scan)
    assert first.num_rows == 1
    assert [b.num_rows for b in batches] == [1000] * 300
    assert all(b.schema.names == columns for b in batches)
    if "p" in columns:
        assert {v for b in batches for v in b.column("p").unique().to_pylist()} == {"long text"}
    if "late" in columns:
        assert all(b.column("late").null_count == 1000 for b in batches)
        places = {b.column("late").buffers()[1].address for b in batches}
        assert len(places) == 1


def _columnless(rows: int) -> bytes:
    """A file without columns whose footer claims so many rows."""
    root = {4: (BINARY, b"root"), 5: (I32, 0)}
    group = {1: (LIST, ThriftList(STRUCT, [])), 2: (I64, 0), 3: (I64, rows)}
    footer = write_struct(
        {
            1: (I32, 2),
            2: (LIST, ThriftList(STRUCT, [root])),
            3: (I64, rows),
            4: (LIST, ThriftList(STRUCT, [group])),
        }
    )
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_rows_without_columns_that_only_the_footer_claims() -> None:
    store = DictStore({"a.parquet": _columnless(1 << 50), "b.parquet": _columnless(300_001)})
    with pytest.raises(accel.MemoryLimitError, match="no column is read") as caught:
        accel.scan("a.parquet", store=store, cache=accel.Cache()).to_table()
    assert caught.value.path == "a.parquet"
    assert accel.scan("a.parquet", store=store, cache=accel.Cache()).count_rows() == 1 << 50
    found = [batch.num_rows for batch in accel.scan("b.parquet", store=store, cache=accel.Cache())]
    assert found == [131_072, 131_072, 37_857]
