from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from accel.errors import AccelError, SchemaMismatchError
from accel.indexes import Zonemap
from accel.indexes.kind import Level
from accel.writing.wanted import read_wanted
from tests.unit.writing.files import metadata_of, write


@pytest.fixture
def path(tmp_path: Path) -> str:
    columns = {"a": [1], "b": [{"c": 1}], "s": ["x"], "b.d": [2], "odd, (name)": [3]}
    return write(tmp_path / "a.parquet", pa.table(columns))


@pytest.mark.parametrize(
    ("indexes", "label", "anchor", "leaves"),
    [
        ({"a": "zonemap"}, "a", ("a",), []),
        ({"b.c": "zonemap"}, "b.c", ("b", "c"), []),
        ({"odd, (name)": "zonemap"}, "odd, (name)", ("odd, (name)",), []),
        ({"lower(s)": "zonemap"}, "lower(s)", ("s",), [("s",)]),
        ({"a, b.c, lower(s)": "zonemap"}, "a, b.c, lower(s)", ("a",), [("a",), ("b", "c"), ("s",)]),
        ({"(s, a)": "zonemap"}, "(s, a)", ("s",), [("s",), ("a",)]),
        ({"s, (s, a), lower(s)": "zonemap"}, "s, (s, a), lower(s)", ("s",), [("s",), ("a",)]),
        ({'b.d, "odd, (name)"': "zonemap"}, 'b.d, "odd, (name)"', ("b.d",), [("b.d",), ("odd, (name)",)]),
        ({"*": Zonemap(columns=("a", "lower(s)"))}, "a, lower(s)", ("a",), [("a",), ("s",)]),
        ({"*": Zonemap(columns=(("b", "c"),))}, "b.c", ("b", "c"), [("b", "c")]),
        ({"s": Zonemap(columns="a, b.c")}, "a, b.c", ("s",), [("a",), ("b", "c")]),
        ({"*": Zonemap(of="lower", columns=("s",))}, "lower(s)", ("s",), [("s",)]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_it_is_of(
    path: str, indexes: Any, label: str, anchor: tuple[str, ...], leaves: list[Any]
) -> None:
    [wanted] = read_wanted(indexes, metadata_of(path))
    assert (wanted.column, wanted.leaf.path, [leaf.path for leaf in wanted.leaves]) == (label, anchor, leaves)
    if leaves:
        kind: Any = wanted.kind
        assert [kind.path_of(name) for name in kind.inputs] == leaves


def test_paths_beside_names_with_dots(tmp_path: Path) -> None:
    below = pa.array([{"c": 2, "d": 3}])
    columns = {"b.c": [1], "b": below, "x.y": below, "x": [{"y": 4, "z": {"y": 5}}], "x.z": below}
    metadata = metadata_of(write(tmp_path / "a.parquet", pa.table(columns)))
    zonemap = Zonemap(columns=("b.c", ("b", "c"), "x.z.y", "x.z.c", ("x", "z", "y"), ("x.y", "c"), "b.d"))
    [several] = read_wanted({"b.c": zonemap}, metadata)
    paths = [("b.c",), ("b", "c"), ("x", "z", "y"), ("x.z", "c"), ("x", "z", "y"), ("x.y", "c"), ("b", "d")]
    assert [leaf.path for leaf in several.leaves] == paths
    with pytest.raises(SchemaMismatchError, match="column x.y is nested"):
        read_wanted({"x.y": "distinct"}, metadata)
    with pytest.raises(AccelError, match="no column b.d"):
        read_wanted({"*": Zonemap(columns=(("b.d",),))}, metadata)


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        ({"a, s": "distinct"}, "index kind distinct is of one column, not of 'a, s'"),
        ({"a, s": "idx1"}, "idx1 is of one column"),
        ({"*": "distinct"}, "index kind distinct does not say of which columns"),
        ({"*": "zonemap"}, "index kind zonemap does not say of which columns"),
        ({"a, none": "zonemap"}, "no column none"),
        ({"none": "zonemap"}, "no column none"),
        ({"upper(s)": "zonemap"}, r"an index is of one of value, lower, .* not of 'upper\(s\)'"),
        ({"(a": "zonemap"}, "is no list of columns"),
        ({"a,,s": "zonemap"}, "is no list of columns"),
        ({"(a)": "zonemap"}, "a tuple is of two columns or more"),
        ({"a, s": ["zonemap", "zonemap"]}, "asked for twice"),
        (
            {"a": ("distinct", "pages")},
            r"^'pages' is no level of an index \(there are file, row group, page, row range\), nor a kind$",
        ),
        ({"a": ("distinct", "row range")}, "^index kind distinct has no level 'row range', only "),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be(path: str, indexes: Any, message: str) -> None:
    with pytest.raises((ValueError, AccelError), match=message):
        read_wanted(indexes, metadata_of(path))


def _twice(names: list[str], *kinds: pa.DataType) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(1, kind) for kind in kinds], names=names)


@pytest.mark.parametrize(
    ("table", "column", "named"),
    [
        (_twice(["a", "b", "a"], pa.int64(), pa.int64(), pa.string()), "a", "a"),
        (_twice(["a", "b", "a"], pa.int64(), pa.int64(), pa.string()), "b, lower(a)", "a"),
        (_twice(["s"], pa.struct([("x", pa.int64()), ("x", pa.int64())])), "s.x", "s.x"),
        (_twice(["s", "s"], pa.struct({"x": pa.int64()}), pa.struct({"y": pa.int64()})), "s.y", "s"),
        (_twice(["s", "s"], pa.struct({"x": pa.int64()}), pa.int64()), "s", "s"),
    ],
    ids=["columns", "in a list", "fields", "structs", "struct and column"],
)
def test_one_of_several_of_a_name_is_not_chosen(
    tmp_path: Path, table: pa.Table, column: str, named: str
) -> None:
    found = metadata_of(write(tmp_path / "a.parquet", table))
    with pytest.raises(SchemaMismatchError) as caught:
        read_wanted({column: "zonemap"}, found)
    assert str(caught.value) == f"the file has several columns named {named!r} (name others in `indexes=`)"


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (("distinct", "row group"), [("distinct", Level.ROW_GROUP)]),
        (("distinct", "row-group"), [("distinct", Level.ROW_GROUP)]),
        (("bitmap", "row-range"), [("bitmap", Level.ROW_RANGE)]),
        (("distinct", Level.FILE), [("distinct", Level.FILE)]),
        (
            [("distinct", "page"), ("bloom", "row-group")],
            [("distinct", Level.PAGE), ("bloom", Level.ROW_GROUP)],
        ),
        (("distinct", "idx1"), [("distinct", Level.PAGE), ("idx1", Level.FILE)]),
    ],
    ids=str,
)
def test_levels(path: str, asked: Any, wanted: list[tuple[str, Level]]) -> None:
    found = read_wanted({"s": asked}, metadata_of(path))
    assert [(index.kind_name, index.level) for index in found] == wanted


def test_two_sets_of_one_column(path: str) -> None:
    wanted = read_wanted({"a": "zonemap", "a, s": "zonemap", "a, b.c": "zonemap"}, metadata_of(path))
    assert [index.column for index in wanted] == ["a", "a, s", "a, b.c"]


def test_a_sketch_without_the_package_that_builds_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ValueError, match=r"pip install 'accel-parquet\[sketch\]'"):
        read_wanted({"a": "sketch"}, metadata_of(path))
    assert read_wanted({"a": "zonemap"}, metadata_of(path))
