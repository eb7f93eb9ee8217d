"""Nested columns out of leaves."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.decode.nested import count_levels, merge_leaves
from accel.errors import ParquetFormatError

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
