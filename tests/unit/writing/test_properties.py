"""Any table, any layout: what embedding leaves is the same table, and what it says of pages is true."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import accel
from accel.writing import embed
from tests.unit.writing.files import metadata_of, read_all
from tests.unit.writing.test_embedding import page_indexes

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 3) | st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1.5, -2.5])),
    "text": (
        pa.string(),
        st.sampled_from(["", "a", "b", "é", "a" * 70, "\U0010ffff" * 30]) | st.text(max_size=5),
    ),
    "bytes": (pa.binary(), st.binary(max_size=4) | st.just(b"\xff" * 80)),
    "bool": (pa.bool_(), st.booleans()),
    "list": (pa.list_(pa.int16()), st.lists(st.none() | st.integers(0, 9), max_size=4)),
    "moment": (pa.timestamp("ms"), st.integers(-(10**12), 10**12)),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 60))
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    columns = []
    for name in names:
        kind, values = VALUES[name]
        share = draw(st.sampled_from(["none", "some", "all"]))
        value = {"none": values, "some": st.none() | values, "all": st.none()}[share]
        columns.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind))
    return pa.Table.from_arrays(columns, names=names)


layouts = st.fixed_dictionaries(
    {
        "row_group_size": st.sampled_from([7, 20, 100]),
        "max_rows_per_page": st.sampled_from([1, 3, 8, 50]),
        "write_page_index": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
        "write_page_checksum": st.booleans(),
        "write_batch_size": st.just(1),
    }
)


@given(tables(), layouts)
def test_the_rows_and_the_page_index(table: pa.Table, layout: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        pq.write_table(table, path, **layout)
        before = path.read_bytes()
        old = metadata_of(path)
        embed(path, indexes={})
        after = path.read_bytes()
        end = int(np.max(old.chunks.end, initial=4))
        assert after[:end] == before[:end]
        full = read_all(path)
        assert full.schema.equals(table.schema)
        assert all(_same(a, b) for a, b in zip(full.columns, table.columns, strict=True))
        new = metadata_of(path)
        assert new.key_value == old.key_value
        indexes = page_indexes(path)
        filled = [g for g, rows in enumerate(new.group_rows.tolist()) if rows]
        assert indexes.keys() >= {(g, leaf.ordinal) for g in filled for leaf in new.schema.leaves}
        for (group, ordinal), (_, _, first_row, bounds) in indexes.items():
            leaf = new.schema.leaves[ordinal]
            if leaf.max_repetition or not bounds:
                continue
            first = int(new.group_rows[:group].sum())
            column = table.column(leaf.path[0]).combine_chunks().slice(first, int(new.group_rows[group]))
            stops = [*first_row[1:], len(column)]
            pages = [column.slice(a, b - a) for a, b in zip(first_row, stops, strict=True)]
            assert bounds[0] == [page.null_count == len(page) for page in pages]
            if bounds[2] and min(bounds[2]) >= 0:
                assert bounds[2] == [page.null_count for page in pages]
        _scan_agrees(path, table)


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(left.type):
        # NaN is NaN, and the zeros differ.
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
        a, b = (c.combine_chunks().fill_null(7.25) for c in (left, right))
        return left.is_null().equals(right.is_null()) and a.view(pa.int64()).equals(b.view(pa.int64()))
    return bool(left.equals(right))


def _scan_agrees(path: Path, table: pa.Table) -> None:
    """By the page index as by none: some row's own value finds that row."""
    for name in ("int", "text"):
        if name not in table.column_names or table.num_rows == 0:
            continue
        value = table.column(name)[table.num_rows // 2].as_py()
        where = f"{name} IS NULL" if value is None else accel.col(name) == value
        found = accel.scan(str(path), where=where, columns=[name], cache=None).count_rows()
        truth = pc.is_null(table.column(name)) if value is None else pc.equal(table.column(name), value)
        assert found == pc.sum(truth.cast(pa.int64())).as_py()
