"""Names of columns given as Python values: `"a"."x"` is the path that it is in a predicate, wherever a column
is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import inspect_index
from accel.predicate.expr import quoted_path
from accel.testing import DictStore, write_file

DATA = pa.table(
    {"a": [{"x": 1, "y.z": 2}] * 4, 'q"r': [3] * 4, "p.q": [4] * 4, "s,t": [5] * 4, "two words": [6] * 4}
)
NAMES = {
    "a.x": 1,
    '"a"."x"': 1,
    'a."x"': 1,
    'a."y.z"': 2,
    '"a"."y.z"': 2,
    '"q""r"': 3,
    "p.q": 4,
    '"p.q"': 4,
    '"s,t"': 5,
    '"two words"': 6,
}
MISSING = ['"a.x"', '"p"."q"', '"a"."x', '"a"x', '"a"."none"']


@pytest.fixture
def store() -> DictStore:
    return DictStore({"t/0.parquet": write_file(DATA)})


def columns(store: DictStore, name: str) -> Any:
    value = accel.scan("t/", columns=[name], store=store, cache=None).to_table().column(0)[0].as_py()
    while isinstance(value, dict):
        (value,) = value.values()
    return value


def aggregate(store: DictStore, name: str) -> Any:
    scan = accel.scan("t/", store=store, cache=None)
    return scan.aggregate([(name, "max")]).column(0)[0].as_py()


def distinct(store: DictStore, name: str) -> Any:
    return accel.scan("t/", store=store, cache=None).distinct(name)[0].as_py()


def bounds(store: DictStore, name: str) -> Any:
    return ruled_out(store, name, columns=[name])


def ruled_out(store: DictStore, name: str, **given: Any) -> int | None:
    """The value below which the index rules the file out."""
    accel.build_index("t/", to="x/", store=store, **given)
    tables = inspect_index("x/", store=store).tables
    assert [one.table for one in tables if one.uncovered or not one.rows and one.table != "bounds"] == []
    where = name if '"' in name else f'"{name}"' if name == "p.q" else name
    for value in range(1, 9):
        scan = accel.scan("t/", f"{where} = {value}", index="x/", listing="index", store=store, cache=None)
        if scan.count_rows():
            return value
    return None


def index_of(kind: str) -> Callable[[DictStore, str], Any]:
    return lambda store, name: ruled_out(store, name, columns=[], indexes={name: kind})


WAYS: dict[str, Callable[[DictStore, str], Any]] = {
    "columns": columns,
    "aggregate": aggregate,
    "distinct": distinct,
    "bounds": bounds,
    **{kind: index_of(kind) for kind in ("keys", "zonemap", "bloom")},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_column_everywhere(store: DictStore, way: str, name: str) -> None:
    assert WAYS[way](store, name) == NAMES[name]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MISSING)
def test_another_is_missing_everywhere(store: DictStore, way: str, name: str) -> None:
    with pytest.raises((accel.ColumnNotFoundError, ValueError)):
        WAYS[way](store, name)


@pytest.mark.parametrize("kind", ["distinct", "zonemap", "bloom"])
@pytest.mark.parametrize("name", NAMES)
def test_embed_understands_it(store: DictStore, kind: str, name: str) -> None:
    report = accel.embed("t/0.parquet", "u/0.parquet", indexes={name: kind}, store=store)
    assert len(report.indexes) == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.b", None),
        ('a"b', None),
        ('"a', None),
        ('"a"b', None),
        ('"a".', None),
        ('""', None),
        ('"a"', ("a",)),
        ('"a.b"', ("a.b",)),
        ('"a""b".c', ('a"b', "c")),
        ('a."b c".d', ("a", "b c", "d")),
    ],
)
def test_what_is_quoted(name: str, path: tuple[str, ...] | None) -> None:
    assert quoted_path(name) == path
