"""Nested columns are built from their leaves, whose lists agree and whose texts fit the memory limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import projected_schema
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.nested import count_levels, list_sizes, merge_leaves
from accel.errors import MemoryLimitError, ParquetFormatError
from accel.planning.selection import RowSelection
from tests.support.arrow import counting_pool
from tests.unit.decode.selected import chosen_pages, decode, open_metadata

_POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])


def _leaf(values: list[object], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def test_a_struct_takes_its_nulls_from_the_first_leaf() -> None:
    x = _leaf([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())]))
    y = _leaf([{"y": "a"}, None, {"y": "b"}], pa.struct([("y", pa.string())]))
    found = merge_leaves([x, y], _POINT)
    found.validate(full=True)
    assert found.to_pylist() == [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]


@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_that_begin_at_different_offsets(wrap: type) -> None:
    x_kind, y_kind = (wrap(pa.struct([field])) for field in _POINT)
    x = _leaf([[{"x": 9}] * 3, [{"x": 1}, {"x": 2}], None, [], [{"x": 3}]], x_kind).slice(1)
    y = _leaf([[{"y": "a"}, {"y": "b"}], None, [], [{"y": "c"}], None], y_kind).slice(0, 4)
    found = merge_leaves([x, y], wrap(_POINT))
    found.validate(full=True)
    assert found.type == wrap(_POINT)
    assert found.to_pylist() == [[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], None, [], [{"x": 3, "y": "c"}]]


def test_a_map_out_of_its_keys_and_its_items() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    keys = _leaf(
        [[{"key": "a"}, {"key": "b"}], None, []],
        pa.list_(pa.field("m", pa.struct([pa.field("key", pa.string(), False)]), False)),
    )
    items = _leaf([[{"value": 1}, {"value": None}], None, []], pa.list_(pa.struct([("value", pa.int32())])))
    found = merge_leaves([keys, items], kind)
    found.validate(full=True)
    assert found.type == kind
    assert found.to_pylist() == [[("a", 1), ("b", None)], None, []]


def test_fixed_lists_and_extensions() -> None:
    target = pa.list_(pa.struct([("u", pa.uuid()), ("x", pa.int8())]), 2)
    u_kind, x_kind = (pa.list_(pa.struct([field]), 2) for field in target.value_type)
    raw = _leaf([[{"u": b"\x01" * 16}] * 2, None], pa.list_(pa.struct([("u", pa.binary(16))]), 2))
    u = pa.Array.from_buffers(
        u_kind,
        2,
        raw.buffers()[:1],
        children=[
            pa.StructArray.from_arrays(
                [pa.ExtensionArray.from_storage(pa.uuid(), raw.values.field(0))],
                fields=list(u_kind.value_type),
            )
        ],
    )
    x = _leaf([[{"x": 1}, {"x": 2}], None], x_kind)
    found = merge_leaves([u, x], target)
    assert found.type == target
    assert found[0].as_py()[1]["x"] == 2
    assert found.is_valid().to_pylist() == [True, False]


_WRONG = {
    "lengths": ([[{"x": 1}]], [[{"y": "a"}], None], "different numbers of rows"),
    "lists": ([[{"x": 1}], []], [[], [{"y": "a"}]], "do not agree about its lists"),
}


@pytest.mark.parametrize("case", _WRONG)
def test_leaves_that_do_not_fit_are_refused(case: str) -> None:
    xs, ys, message = _WRONG[case]
    x = _leaf(xs, pa.list_(pa.struct([("x", pa.int64())])))
    y = _leaf(ys, pa.list_(pa.struct([("y", pa.string())])))
    with pytest.raises(ParquetFormatError, match=message):
        merge_leaves([x, y], pa.list_(_POINT))


@pytest.mark.parametrize(
    "target", [_POINT, pa.list_(_POINT), pa.list_(_POINT, 1), pa.map_(pa.int8(), pa.int8())]
)
def test_a_leaf_of_another_shape_is_refused(target: pa.DataType) -> None:
    flat = _leaf([1], pa.int64())
    with pytest.raises(ParquetFormatError, match="a leaf decoded as int64 where "):
        merge_leaves([flat, flat], target)


_LEVELS = [
    (pa.int32(), [1, None], None),
    (pa.struct([("a", pa.int32())]), [{"a": 1}, None], None),
    (pa.list_(pa.int32()), [[1, 2, 3], [], None, [None]], [3, 1, 1, 1]),
    (pa.large_list_view(pa.int32()), [[1, 2, 3], [], None, [None]], [3, 1, 1, 1]),
    (pa.list_(pa.list_(pa.int32())), [[[1, 2], [], None], [], None, [[3]]], [4, 1, 1, 1]),
    (pa.list_(pa.struct([("l", pa.list_(pa.int32()))])), [[{"l": [1, 2]}, None], [{"l": []}]], [3, 1]),
    (pa.list_(pa.int32(), 2), [[1, 2], None], [2, 1]),
    (pa.list_(pa.list_(pa.int32()), 2), [[[1, 2, 3], []], None], [4, 1]),
    (pa.map_(pa.int32(), pa.int32()), [[(1, 2), (3, 4)], None], [2, 1]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), _LEVELS, ids=[str(case[0]) for case in _LEVELS])
def test_level_values_of_each_row(
    kind: pa.DataType, values: list[object], expected: list[int] | None
) -> None:
    array = pa.array(values, kind)
    found = count_levels(array)
    assert found is None if expected is None else found.tolist() == expected
    if expected is not None:
        assert count_levels(array.slice(1)).tolist() == expected[1:]


_ITEM = pa.struct([("a", pa.int64()), ("b", pa.int64())])


def _write(array: pa.Array, rows_a_page: int) -> bytes:
    sink = pa.BufferOutputStream()
    settings = {"compression": "NONE", "write_page_index": True, "max_rows_per_page": rows_a_page}
    pq.write_table(pa.Table.from_arrays([array], names=["c"]), sink, use_dictionary=False, **settings)
    return sink.getvalue().to_pybytes()


def _decode(data: bytes, other: bytes, rows: RowSelection) -> pa.Array:
    """The first leaf of one file, the second one of another of the same schema and number of values a
    page."""
    meta = open_metadata(data)
    theirs = open_metadata(other)
    chunks = {0: chosen_pages(data, meta, 0, 0, rows), 1: chosen_pages(other, theirs, 0, 1, rows)}
    (found,) = decode_columns(
        StoredRowGroup("f", 0, meta.schema, meta.key_value),
        {leaf: replace(chunk, num_values=1_000) for leaf, chunk in chunks.items()},
        rows=rows,
        arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0, 1]),
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


MIB = 1 << 20
LONG = "x" * 65_536


def _write_list_texts(array: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    # Without Arrow's schema, dictionary arrays are read back as texts.
    settings = {"store_schema": False, "write_page_index": True, "compression": "zstd"} | options
    pq.write_table(pa.Table.from_arrays([array], names=["c"]), sink, **settings)
    return sink.getvalue().to_pybytes()


def _named(names: list[int] | np.ndarray, entries: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(names, pa.int32()), pa.array(entries))


def _one_list(count: int) -> pa.Array:
    """A row of so many names of one long text."""
    return pa.ListArray.from_arrays([0, count], _named(np.zeros(count, np.int32), [LONG]))


@pytest.mark.parametrize("count", [1_000, 50_000], ids=["gathered", "beyond 32-bit offsets"])
@pytest.mark.parametrize("whole", [False, True], ids=["page", "chunk"])
def test_one_long_row_is_refused_before_it_is_made(
    count: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write_list_texts(_one_list(count))
    assert len(data) < 1_000
    counting = counting_pool()
    monkeypatch.setattr("accel.decode.arrow.pool", lambda: counting)
    with pytest.raises(MemoryLimitError) as caught:
        decode(data, RowSelection.all(1), memory_limit=4 * MIB, whole=whole)
    assert str(caught.value) == (
        "file.parquet, row group 0, column c.list.element: the column decodes to more than 4194304 bytes "
        "(raise `options.memory_limit`)"
    )
    assert counting.max_memory() < 4 * MIB


_NAMES = np.where(np.arange(900) % 300 == 0, 0, 1).astype(np.int32)
_TEXTS = _named(_NAMES, [LONG, "y"])
_LISTS = pa.ListArray.from_arrays(pa.array([0, 0, 300, None, 900], pa.int32()), _TEXTS)
_NUMBERS = pa.array(range(900))
_KINDS = {
    "lists": _LISTS,
    "lists of lists": pa.ListArray.from_arrays([0, 1, 4], _LISTS),
    "lists of structs": pa.ListArray.from_arrays(
        [0, 500, 900], pa.StructArray.from_arrays([_NUMBERS, _TEXTS, _TEXTS], names=["n", "s", "t"])
    ),
    "maps": pa.MapArray.from_arrays([0, 500, 900], _NUMBERS, _TEXTS),
    "large lists": pa.LargeListArray.from_arrays([0, 500, 900], _TEXTS),
}


@pytest.mark.parametrize("whole", [False, True], ids=["pages", "chunk"])
@pytest.mark.parametrize("store_schema", [False, True], ids=["as texts", "as dictionaries"])
@pytest.mark.parametrize("name", _KINDS)
def test_few_long_texts_among_many_are_read(name: str, store_schema: bool, whole: bool) -> None:
    """As many of the longest would be 58 MiB."""
    lists = _KINDS[name]
    data = _write_list_texts(lists, store_schema=store_schema)
    rows = RowSelection.all(len(lists))
    found = decode(data, rows, memory_limit=MIB, whole=whole).column("c")
    assert found.to_pylist() == lists.to_pylist()
    if not store_schema:
        with pytest.raises(MemoryLimitError, match="decodes to more than 150000 bytes"):
            decode(data, rows, memory_limit=150_000, whole=whole)


def test_a_column_that_stays_coded_is_no_larger_for_what_it_names() -> None:
    lists = pa.ListArray.from_arrays([0, 100, 200], _named(np.zeros(200, np.int32), [LONG]))
    data = _write_list_texts(lists, store_schema=True)
    found = decode(data, RowSelection.all(2), memory_limit=MIB).column("c")
    assert found.to_pylist() == lists.to_pylist()


def test_a_dictionary_that_ran_full() -> None:
    values = [[LONG[:999] + str(i % 40), f"text {i}"] for i in range(2_000)]
    data = _write_list_texts(pa.array(values), dictionary_pagesize_limit=20_000, data_page_size=4_000)
    assert decode(data, RowSelection.all(2_000), memory_limit=3 * MIB).column("c").to_pylist() == values
