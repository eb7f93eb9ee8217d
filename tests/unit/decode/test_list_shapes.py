"""Lists of leaves that do not agree outside the rows that are wanted."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import projected_schema
from accel.decode.columns import decode_columns
from accel.decode.nested import list_sizes
from accel.errors import ParquetFormatError
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import chosen_pages, open_metadata

_ITEM = pa.struct([("a", pa.int64()), ("b", pa.int64())])


def _write(array: pa.Array, rows_a_page: int) -> bytes:
    sink = pa.BufferOutputStream()
    settings = {"compression": "NONE", "write_page_index": True, "max_rows_per_page": rows_a_page}
    pq.write_table(pa.Table.from_arrays([array], names=["c"]), sink, use_dictionary=False, **settings)
    return sink.getvalue().to_pybytes()


def _decode(data: bytes, other: bytes, rows: RowSelection) -> pa.Array:
    """The first leaf of one file, the second one of another of the same schema and number of values a page."""
    meta = open_metadata(data)
    theirs = open_metadata(other)
    chunks = {0: chosen_pages(data, meta, 0, 0, rows), 1: chosen_pages(other, theirs, 0, 1, rows)}
    (found,) = decode_columns(
        meta.schema,
        meta.key_value,
        chunks={leaf: replace(chunk, num_values=1_000) for leaf, chunk in chunks.items()},
        rows=rows,
        arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0, 1]),
        leaves=[0, 1],
        path="f",
        row_group=0,
    )
    return found


def _nested(sizes: list[int], kind: str) -> pa.Array:
    lists = [[{"a": row, "b": -row}] * size for row, size in enumerate(sizes)]
    if kind == "list":
        return pa.array(lists, pa.list_(_ITEM))
    if kind == "list in a struct":
        return pa.array([{"l": items} for items in lists], pa.struct([("l", pa.list_(_ITEM))]))
    if kind == "list in a list":
        return pa.array([[items, []] for items in lists], pa.list_(pa.list_(_ITEM)))
    pairs = [[(100 * row + n, row) for n in range(size)] for row, size in enumerate(sizes)]
    return pa.array(pairs, pa.map_(pa.int64(), pa.int64()))


# An item more, as a flipped definition level makes it, or one that has gone over to the next row.
@pytest.mark.parametrize(
    ("rows_a_page", "begin"),
    [(10, [0, 2]), (4, [0, 2]), (4, [2, 1])],
    ids=["a page", "pages", "pages, moved"],
)
@pytest.mark.parametrize("kind", ["list", "list in a struct", "list in a list", "map"])
def test_lists_before_the_rows_that_are_wanted(kind: str, rows_a_page: int, begin: list[int]) -> None:
    sizes = [1, 2, 3, 1, 1, 2, 0, 2, 1, 1]
    array, moved = _nested(sizes, kind), _nested([*begin, *sizes[2:]], kind)
    data, other = _write(array, rows_a_page), _write(moved, rows_a_page)
    for rows in (RowSelection.all(10), RowSelection.of([(3, 4), (5, 10)])):
        right = pa.concat_arrays([array.slice(a, b - a) for a, b in rows])
        assert _decode(data, data, rows).equals(right)
        with pytest.raises(ParquetFormatError):
            _decode(data, other, rows)
    if rows_a_page == 4:
        # Of other pages nothing is known.
        assert _decode(data, other, RowSelection.of([(5, 10)])).equals(array.slice(5))


_SIZES = [
    (pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32())), 1, [[2, 0, 0, 1]]),
    (pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32())), 2, [[2, 0, 0, 1]]),
    (pa.array([[[1], [2, 3]], [], [None]], pa.large_list(pa.list_(pa.int8()))), 2, [[2, 0, 1], [1, 2, 0]]),
    (pa.array([{"a": [1]}, {"a": []}, None], pa.struct([("a", pa.list_(pa.int8()))])), 1, [[1, 0, 0]]),
    (pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int8()), 2)), 2, [[2], [1, 2]]),
    (pa.array([1, 2]), 1, []),
]


@pytest.mark.parametrize(("array", "depth", "sizes"), _SIZES)
def test_sizes(array: pa.Array, depth: int, sizes: list[list[int]]) -> None:
    assert [level.tolist() for level in list_sizes(array, depth)] == sizes
    assert [level.tolist() for level in list_sizes(array.slice(1), depth)][:1] == [s[1:] for s in sizes[:1]]
