"""A file with a struct `a` and columns "a.b" and "a.b.c": a path and a name with dots are never taken for one
another."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.predicate.where import to_expr
from accel.testing import DictStore, Layout, write_file
from tests.oracle import rowwise

ROWS = 600
FIELD, NAME, DEEP, UNDER, LONG = 1, 2, 3, 4, 5
"""The column that a value is of; each has its own values."""


def values(column: int) -> pa.Array:
    return pa.array([row // 10 * 10 + column for row in range(ROWS)], pa.int64())


def made() -> pa.Table:
    inner = pa.StructArray.from_arrays([values(DEEP)], ["c"])
    columns = {
        "a.b": values(NAME),
        "a": pa.StructArray.from_arrays([values(FIELD), inner], ["b", "d"]),
        "a.d": pa.StructArray.from_arrays([values(UNDER)], ["c"]),
        "a.d.c": values(LONG),
        "row": pa.array(range(ROWS), pa.int64()),
    }
    return pa.table(columns)


TABLE = made()
QUESTIONS: dict[str, tuple[Any, int]] = {
    # What is asked with {} for the value, and the column that it is of.
    "a.b": ("a.b = {}", FIELD),
    '"a"."b"': ('"a"."b" = {}', FIELD),
    'a."b"': ('a."b" = {}', FIELD),
    '"a.b"': ('"a.b" = {}', NAME),
    "col, field": (lambda value: accel.col("a")["b"] == value, FIELD),
    "col, name": (lambda value: accel.col("a.b") == value, NAME),
    "list, field": (lambda value: [(("a", "b"), "=", value)], FIELD),
    "list, name": (lambda value: [("a.b", "=", value)], NAME),
    "list, name in a tuple": (lambda value: [(("a.b",), "=", value)], NAME),
    "a.d.c": ("a.d.c = {}", DEEP),
    '"a"."d"."c"': ('"a"."d"."c" = {}', DEEP),
    'a.d."c"': ('a.d."c" = {}', DEEP),
    '"a.d".c': ('"a.d".c = {}', UNDER),
    '"a.d"."c"': ('"a.d"."c" = {}', UNDER),
    '"a.d.c"': ('"a.d.c" = {}', LONG),
    "col, deeper": (lambda value: accel.col("a")["d"]["c"] == value, DEEP),
    "col, field of a dotted name": (lambda value: accel.col("a.d")["c"] == value, UNDER),
    "col, long name": (lambda value: accel.col("a.d.c") == value, LONG),
    "list, deeper": (lambda value: [(("a", "d", "c"), "in", [value])], DEEP),
    "list, under": (lambda value: [(("a.d", "c"), "in", [value])], UNDER),
    "both": ('"a.b" = {} AND a.b <> {}', NAME),
    "one beside the other": ('"a.b" > a.b AND "a.d".c > "a"."d".c AND "a.b" = {}', NAME),
}
PLAIN = Layout(group_rows=ROWS // 3, page_rows=20, statistics=False, page_index=False)
LAYOUTS = {
    "statistics": Layout(group_rows=ROWS // 3, page_rows=20),
    "dictionaries": Layout(
        group_rows=ROWS // 3, page_rows=20, statistics=False, page_index=False, codec="none"
    ),
}
KINDS = ["distinct", "bitmap", "bloom", "zonemap"]
OPTIONS = accel.Options(probe_min_bytes=0, max_gap_bytes=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("indexed")
    source, target = folder / "source.parquet", folder / "target.parquet"
    source.write_bytes(write_file(TABLE, PLAIN))
    files = {name: write_file(TABLE, layout) for name, layout in LAYOUTS.items()}
    for kind in KINDS:
        # Of the flat columns only: they say nothing of the fields.
        accel.embed(str(source), str(target), indexes={"a.b": kind, "a.d.c": kind})
        files[kind] = target.read_bytes()
    return files


@pytest.mark.parametrize("file", [*LAYOUTS, *KINDS])
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_verb_looks_at_the_same_column(question: str, file: str, files: dict[str, bytes]) -> None:
    asked, column = QUESTIONS[question]
    value = 200 + column
    where = asked.replace("{}", str(value)) if isinstance(asked, str) else asked(value)
    rows = list(range(200, 210))
    store, cache = DictStore({"f": files[file]}), accel.Cache()

    def scan(columns: list[str] | None = None) -> accel.Scan:
        return accel.scan("f", where, columns=columns, store=store, cache=cache, options=OPTIONS)

    plan = accel.plan("f", where, columns=["row"], store=store, cache=cache, options=OPTIONS)
    travelled = accel.Plan.from_arrow(pickle.loads(pickle.dumps(plan)).to_arrow())
    found = {
        "to_table": [scan().to_table()["row"].to_pylist() for _ in range(3)],  # then from what is remembered
        "projected": scan(["row"]).to_table()["row"].to_pylist(),
        "names": scan(["a.b"]).to_table().to_pydict(),
        "fields": scan(["a"]).to_table()["a"].chunk(0).field("b").to_pylist(),
        "count_rows": scan().count_rows(),
        "aggregate": scan().aggregate([("a.b", "max"), ("row", "sum")]).to_pylist(),
        "plan": accel.scan(travelled, store=store, cache=None).to_table()["row"].to_pylist(),
        "oracle": [row for row, true in enumerate(rowwise.evaluate(to_expr(where), TABLE)) if true],
    }
    assert found == {
        "to_table": [rows] * 3,
        "projected": rows,
        "names": {"a.b": [200 + NAME] * 10},
        "fields": [200 + FIELD] * 10,
        "count_rows": 10,
        "aggregate": [{"a.b_max": 200 + NAME, "row_sum": sum(rows)}],
        "plan": rows,
        "oracle": rows,
    }


TEXTS = pa.table(
    {
        "a.b": ["name"] * 3,
        "a": pa.StructArray.from_arrays([pa.array(["x", "field", None])], ["b"]),
        "s": pa.StructArray.from_arrays([pa.array(["x", "y", None])], ["t"]),
    }
)


def test_an_unlabelled_index_is_of_the_column_that_it_is_said_to_cover(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    source.write_bytes(write_file(TEXTS, Layout(statistics=False)))
    accel.embed(str(source), str(target), indexes={"a.b": "idx1"})

    def found(where: str) -> tuple[list[Any], int]:
        scan = accel.scan(str(target), where, columns=["a"], embedded={"a.b": "idx1"}, cache=None)
        return scan.to_table()["a"].to_pylist(), scan.metrics.row_groups.kept

    assert found("a.\"b\" = 'field'") == ([{"b": "field"}], 1)
    assert found("\"a.b\" = 'field'") == ([], 0)


def test_values_of_the_path_of_a_file_are_no_fields(tmp_path: pathlib.Path) -> None:
    """A partition key `a.b` beside a struct `a` of the files."""
    for key in (1, 2):
        folder = tmp_path / f"a.b={key}"
        folder.mkdir()
        cells = pa.StructArray.from_arrays([pa.array([3 - key, key + 10])], ["b"])
        (folder / "f.parquet").write_bytes(write_file(pa.table({"a": cells})))

    def found(where: Any) -> list[tuple[int, int]]:
        rows = accel.scan(str(tmp_path), where, cache=None).to_table().to_pylist()
        return [(row["a"]["b"], row["a.b"]) for row in rows]

    field, name = [(1, 2)], [(2, 1), (11, 1)]
    wheres = ["a.b = 1", '"a"."b" = 1', accel.col("a")["b"] == 1, [(("a", "b"), "=", 1)]]
    assert [found(where) for where in wheres] == [field] * 4
    assert [found(where) for where in ['"a.b" = 1', accel.col("a.b") == 1, [("a.b", "=", 1)]]] == [name] * 3
