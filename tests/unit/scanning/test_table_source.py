"""A source that knows a table: its schema, its files and their bounds, the rows that are gone, and renamed
columns."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel import ColumnMapping, DeletedRows, MappedColumn
from accel.planning.column_bounds import ColumnBounds
from accel.planning.file_entry import FileBlock
from accel.planning.query import Question
from accel.predicate.bind import bind
from accel.predicate.where import to_expr
from accel.scanning.block_pruning import excluded_by_bounds
from accel.scanning.file_source import FileColumns, FileSource, SourceRequest
from accel.testing import DictStore, RecordingStore, TableFile, TableSource
from accel.testing.tables import made_files

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("part", pa.int32()),
        ("added", pa.int64()),
        ("later", pa.string()),
    ]
)
MAPPING = ColumnMapping(
    [
        MappedColumn("id", "col-1"),
        MappedColumn("name", "col-2"),
        MappedColumn("added", "col-3", default=pa.scalar(7, pa.int64())),
        MappedColumn("later", "col-4"),
    ]
)
ROWS = 100
DELETED = {1: [3, 5, 50], 2: list(range(ROWS)), 3: [0, 39, 40, 99], 5: list(range(40))}


def rows_of(at: int) -> pa.Table:
    """The rows of a file under the names that it has; `name` of the file is a column that the table has
    dropped."""
    columns = {
        "col-1": pa.array(range(at * ROWS, (at + 1) * ROWS), pa.int32() if at < 2 else pa.int64()),
        "col-2": [f"n{i % 10}" for i in range(ROWS)],
        "name": ["dropped"] * ROWS,
    }
    if at > 3:
        columns["col-3"] = pa.array([None] * 50 + [9] * 50, pa.int64())
    return pa.table(columns)


def expected_rows() -> pa.Table:
    parts = []
    for at in range(6):
        found = rows_of(at)
        left = [i for i in range(ROWS) if i not in DELETED.get(at, ())]
        added = found["col-3"] if at > 3 else pa.array([7] * ROWS, pa.int64())
        whole = pa.table(
            {
                "id": found["col-1"].cast(pa.int64()),
                "name": found["col-2"],
                "part": pa.array([at // 2] * ROWS, pa.int32()),
                "added": added,
                "later": pa.nulls(ROWS, pa.string()),
            },
            schema=SCHEMA,
        )
        parts.append(whole.take(pa.array(left, pa.int64())))
    return pa.concat_tables(parts)


EXPECTED = expected_rows()


def made(
    *, loads: bool = False, etags: bool = False, per_block: int = 100
) -> tuple[TableSource, RecordingStore]:
    store = DictStore({})
    source = TableSource(
        SCHEMA,
        partition_schema=pa.schema([("part", pa.int32())]),
        columns=MAPPING,
        loads_deletes=loads,
        per_block=per_block,
    )
    for at in range(6):
        source.write(
            store,
            f"t/{at}.parquet",
            rows_of(at),
            names={"col-1": "id"},
            deleted=DELETED.get(at, ()),
            partition={"part": at // 2},
            bounded=["col-1"],
            etags=etags,
            row_group_size=40,
            data_page_size=64,
            write_page_index=True,
        )
    return source, RecordingStore(store)


WHERES: dict[str, Callable[[pa.Table], Any]] = {
    "id >= 0": lambda t: pc.greater_equal(t["id"], 0),
    "id = 103": lambda t: pc.equal(t["id"], 103),
    "id = 104": lambda t: pc.equal(t["id"], 104),
    "id >= 598 OR id < 2": lambda t: pc.or_(pc.greater_equal(t["id"], 598), pc.less(t["id"], 2)),
    "name = 'n3'": lambda t: pc.equal(t["name"], "n3"),
    "name = 'dropped'": lambda t: pc.equal(t["name"], "dropped"),
    "added = 7": lambda t: pc.equal(t["added"], 7),
    "added IS NULL": lambda t: pc.is_null(t["added"]),
    "added > 7 AND part = 2": lambda t: pc.and_(pc.greater(t["added"], 7), pc.equal(t["part"], 2)),
    "part = 1": lambda t: pc.equal(t["part"], 1),
    "NOT part = 1": lambda t: pc.not_equal(t["part"], 1),
    "later IS NULL AND id < 310": lambda t: pc.less(t["id"], 310),
    "later = 'x'": lambda t: pc.equal(t["later"], "x"),
}


@pytest.mark.parametrize("kind", [{}, {"loads": True}, {"etags": True}, {"per_block": 2}], ids=str)
@pytest.mark.parametrize("where", WHERES)
def test_rows_that_are_gone_are_in_no_answer(where: str, kind: dict[str, Any]) -> None:
    source, store = made(**kind)
    expected = EXPECTED.filter(WHERES[where](EXPECTED))
    scan = accel.scan(source, where, store=store)
    assert scan.to_table().equals(expected)
    assert scan.count_rows() == expected.num_rows
    assert scan.head(5).equals(expected.slice(0, 5))
    assert scan.schema.equals(SCHEMA)
    plan = accel.plan(source, where, columns=["added", "id"], store=store)
    for carried in (plan, pickle.loads(pickle.dumps(plan)), accel.Plan.from_arrow(plan.to_arrow())):
        assert accel.scan(carried, store=store).to_table().equals(expected.select(["added", "id"]))
    found = sorted(set(expected["name"].to_pylist()))
    assert accel.distinct(source, "name", where, store=store).to_pylist() == found
    sums = scan.aggregate([("id", "sum"), ("id", "min"), ("name", "count"), ([], "count_all")]).to_pylist()[0]
    ids = expected["id"].to_pylist()
    assert list(sums.values()) == [sum(ids) if ids else None, min(ids, default=None), len(ids), len(ids)]


def test_all_rows_and_counts_without_a_predicate() -> None:
    source, store = made(loads=True)
    scan = accel.scan(source, store=store)
    assert (scan.count_rows(), scan.to_table().num_rows) == (EXPECTED.num_rows, EXPECTED.num_rows)
    assert scan.to_table().equals(EXPECTED)
    assert scan.explain().rows == (EXPECTED.num_rows, 6 * ROWS)


def test_a_selection_and_deleted_rows_meet() -> None:
    source, store = made()
    selection = {"t/1.parquet": {0: [(2, 7)], 1: [(9, 12)]}, "t/2.parquet": {0: [(0, 9)]}}
    found = accel.scan(source, columns=["id"], selection=selection, store=store)
    assert found.to_table()["id"].to_pylist() == [102, 104, 106, 149, 151]
    assert found.count_rows() == 5
    with pytest.raises(ValueError, match="names row group 7; t/1.parquet has 3"):
        accel.scan(source, selection={"t/1.parquet": {7: [(0, 1)]}}, store=store).to_table()


def test_the_deleted_rows_of_planned_files_alone_are_loaded() -> None:
    source, store = made(loads=True)
    accel.scan(source, "id = 104", store=store).to_table()
    assert source.loaded == ["t/1.parquet"]


def test_bounds_and_partitions_rule_files_out_before_any_is_opened() -> None:
    source, store = made()
    for where, paths in {
        "id = 250": {"t/2.parquet"},
        "part = 1 AND id < 250": {"t/2.parquet"},
        "part = 7": set(),
        "id > 1000": set(),
    }.items():
        store.calls.clear()
        scan = accel.scan(source, where, store=store, cache=accel.Cache())
        scan.to_table()
        assert {call.path for call in store.calls} == paths
        assert (scan.metrics.files.total, scan.metrics.round_trips) == (6, len(paths))


def test_a_file_that_never_changes_is_not_asked_for_again() -> None:
    source, store = made()
    cache = accel.Cache(max_age=0)
    accel.scan(source, "id = 104", store=store, cache=cache).to_table()
    store.calls.clear()
    scan = accel.scan(source, "id = 104", columns=["id"], store=store, cache=cache)
    assert scan.to_table().num_rows == 1
    assert scan.metrics.requests == 0


def test_a_table_without_files_is_empty() -> None:
    empty = TableSource(SCHEMA)
    scan = accel.scan(empty, "id = 1", store=DictStore({}))
    assert (scan.to_table().schema, scan.count_rows()) == (SCHEMA, 0)
    assert accel.plan(empty, store=DictStore({})).tasks == ()


def test_without_a_schema_the_first_file_settles_it() -> None:
    store, source = DictStore({}), TableSource(None)
    source.write(store, "a", pa.table({"x": [1, 2]}), deleted=[0])
    source.write(store, "b", pa.table({"y": [1], "x": [5]}))
    assert accel.scan(source, store=store).to_table().to_pydict() == {"x": [2, 5]}


def test_field_ids_are_followed_below_structs_lists_and_maps() -> None:
    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    def table_schema(a: str, b: str, c: str, d: str) -> pa.Schema:
        inner = pa.struct([field(b, pa.int64(), 3), field(c, pa.string(), 4)])
        below = pa.struct([field(b, pa.int64(), 9)])
        key = field("key", pa.string(), 8).with_nullable(False)
        return pa.schema(
            [
                field(a, pa.struct([field(d, pa.int64(), 2)]), 1),
                field("list" + a, pa.list_(field("element", inner, 6)), 5),
                field("map" + a, pa.map_(key, field("value", below, 10)), 7),
            ]
        )

    old, new = table_schema("old", "b", "c", "d"), table_schema("new", "b2", "c2", "d2")
    value = [{"b": 1, "c": "x"}, {"b": 2, "c": None}]
    rows = {
        "old": [{"d": 1}, {"d": 2}],
        "listold": [value, []],
        "mapold": [[("k", {"b": 5})], []],
    }
    written = pa.table([pa.array(rows[f.name], f.type) for f in old], schema=old)
    schema = pa.schema([new.field(at) for at in (1, 2, 0)]).remove_metadata()
    store, source = DictStore({}), TableSource(schema, columns=ColumnMapping.by_field_id(new))
    source.write(store, "a", written)
    found = accel.scan(source, "new.d2 = 1", store=store).to_table()
    assert found.to_pylist() == [
        {
            "listnew": [{"b2": 1, "c2": "x"}, {"b2": 2, "c2": None}],
            "mapnew": [("k", {"b2": 5})],
            "new": {"d2": 1},
        }
    ]


def test_a_name_that_was_given_anew_is_another_column() -> None:
    """`a` was dropped and added again: files from before do not have it, whatever they call so."""
    store = DictStore({})
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])

    def field(name: str, number: int) -> pa.Field:
        return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})

    mapping = ColumnMapping.by_field_id(pa.schema([field("a", 3), field("b", 1)]))
    source = TableSource(schema, columns=mapping)
    source.write(store, "old", pa.table([[1], [2]], schema=pa.schema([field("a", 1), field("b", 2)])))
    source.write(store, "new", pa.table([[5], [6]], schema=pa.schema([field("b", 1), field("a", 3)])))
    cache = accel.Cache()
    for where, rows in {
        "b >= 1": [{"a": None, "b": 1}, {"a": 6, "b": 5}],
        "a = 6": [{"a": 6, "b": 5}],
        "a IS NULL": [{"a": None, "b": 1}],
    }.items():
        for _ in range(3):  # answered from what earlier scans found, too
            assert accel.scan(source, where, store=store, cache=cache).to_table().to_pylist() == rows
    plain = accel.scan("old", "a = 1", store=store, cache=cache)
    assert plain.to_table().to_pylist() == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("kind", ["distinct", "bitmap", "bloom", "zonemap", "ngram"])
def test_an_embedded_index_is_of_the_files_own_column(kind: str, tmp_path: Path) -> None:
    """The table has given the names of two columns to one another."""
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    numbers = range(4000)
    accel.write_table(
        pa.table({"a": [f"x{n % 50}" for n in numbers], "b": [f"y{n % 50}" for n in numbers]}), str(source)
    )
    accel.embed(str(source), str(target), indexes={"a": kind})
    data = target.read_bytes()
    table = TableSource(
        pa.schema([("a", pa.string()), ("b", pa.string())]),
        [TableFile(path="t.parquet", size=len(data), num_rows=4000)],
        columns=ColumnMapping.by_name({"a": "b", "b": "a"}),
    )
    store = DictStore({"t.parquet": data})

    def count(where: str) -> int:
        return accel.scan(table, where, store=store, cache=None).to_table().num_rows

    assert (count("a = 'y7'"), count("b = 'x7'"), count("a = 'x7' OR b = 'y7'")) == (80, 80, 0)
    assert (count("a LIKE 'y4%'"), count("b LIKE '%x4%'")) == (880, 880)
    found = accel.scan(table, store=store, cache=None)
    assert found.distinct("b").to_pylist() == sorted({f"x{n}" for n in range(50)})
    assert found.aggregate([("a", "min"), ("b", "max")]).to_pylist() == [{"a_min": "y0", "b_max": "x9"}]


def test_mappings_of_one_file_do_not_share_answers() -> None:
    """Under one mapping `x` is the first column, under the other the second: caches keep them apart."""
    store, cache = DictStore({}), accel.Cache()
    one, other = (
        TableSource(pa.schema([("x", pa.int64())]), columns=ColumnMapping.by_name({"x": name}))
        for name in "ab"
    )
    one.write(store, "f", pa.table({"a": [1] * 50 + [2], "b": [2] * 50 + [1]}))
    other.files = one.files
    for _ in range(3):
        for source, count in ((one, 50), (other, 1)):
            scan = accel.scan(source, "x = 1", store=store, cache=cache)
            assert (scan.to_table().num_rows, scan.count_rows()) == (count, count)


class Lying(FileSource):
    """Yields what it is given."""

    def __init__(self, schema: pa.Schema | None, **block: Any) -> None:
        self._schema = schema
        self._block = block

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        return self._schema

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        yield request.block(**self._block)


X = pa.schema([("x", pa.int64())])
LIES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "rows beyond the file": ({"urls": ["f"], "deleted": {0: [3]}}, accel.TableFormatError, "f: row 3 is named as deleted, and the file has 3"),
    "a negative row": ({"urls": ["f"], "deleted": {0: [-1]}}, accel.TableFormatError, "-1 is no row of a file"),
    "rows that are text": ({"urls": ["f"], "deleted": {0: ["1"]}}, accel.TableFormatError, "deleted rows are whole numbers"),
    "rows of no file": ({"urls": ["f"], "deleted": {1: [0]}}, accel.TableFormatError, "deleted rows are given for file 1 of 1"),
    "one path twice": ({"urls": ["f", "f"]}, accel.TableFormatError, "f: the source names the file twice"),
    "another size": ({"urls": ["f"], "sizes": [17], "immutable": True}, accel.ObjectChangedError, "17 and None were expected"),
    "another version": ({"urls": ["f"], "etags": ['"z"'], "deleted": {0: [1]}}, accel.ObjectChangedError, "the file is not the one that its source names"),
    "a size that is none": ({"urls": ["f"], "sizes": [-1]}, accel.TableFormatError, "-1 is no size of a file"),
    "too few sizes": ({"urls": ["f"], "sizes": []}, accel.TableFormatError, "0 sizes are given for 1 files"),
    "bounds of other files": ({"urls": ["f"], "bounds": {"x": ColumnBounds(lower=pa.array([1, 2]))}}, accel.TableFormatError, r"bounds of \[2\] files are given for 1"),
    "no such file": ({"urls": ["g"], "immutable": True}, accel.ObjectNotFoundError, "g: no such object"),
    "no URL": ({"urls": [""]}, accel.StoreError, "the path is empty"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_source_that_lies(lie: str) -> None:
    block, error, text = LIES[lie]
    store, made_source = DictStore({}), TableSource(X)
    made_source.write(store, "f", pa.table({"x": [1, 2, 3]}))
    with pytest.raises(error, match=text):
        accel.scan(Lying(X, **block), store=store).to_table()
    if "deleted" in block or "urls" not in block:
        with pytest.raises(error, match=text):
            accel.scan(Lying(X, **block), store=store).count_rows()


def test_a_loader_that_finds_other_than_it_promised() -> None:
    async def load() -> list[int]:
        return [1]

    store, source = DictStore({}), TableSource(X)
    source.write(store, "f", pa.table({"x": [1, 2, 3]}))
    lying = Lying(X, urls=["f"], deleted={0: DeletedRows.later(load, count=2)})
    with pytest.raises(accel.TableFormatError, match="f: 1 deleted rows were found where 2 are promised"):
        accel.scan(lying, store=store).to_table()


def test_a_schema_that_no_file_has() -> None:
    store, source = DictStore({}), TableSource(pa.schema([("y", pa.int64())]))
    source.write(store, "f", pa.table({"x": [1, 2]}))
    assert accel.scan(source, store=store).to_table().to_pydict() == {"y": [None, None]}
    narrow = TableSource(pa.schema([("x", pa.int8())]), source.files)
    with pytest.raises(accel.SchemaMismatchError, match="f: .*x"):
        accel.scan(narrow, store=store).to_table()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    gone=st.lists(st.integers(0, 149), max_size=40),
)
def test_what_is_left_of_a_file(sizes: list[int], gone: list[int]) -> None:
    total = sum(sizes)
    rows = DeletedRows.of(np.array([row for row in gone if row < total], np.uint64))
    left = rows.remaining(np.array(sizes, np.int64))
    kept = np.ones(total, bool)
    kept[[row for row in gone if row < total]] = False
    start = 0
    for group, size in enumerate(sizes):
        mask = np.zeros(size, bool)
        for a, b in left.get(group, ()):
            mask[a:b] = True
        assert mask.tolist() == kept[start : start + size].tolist()
        start += size


def question_over(where: str, schema: pa.Schema, partitions: tuple[str, ...] = ()) -> Question:
    expr = to_expr(where)
    question = Question(expr, schema, schema, partitions)
    assert expr is not None
    question.compiled.bound = bind(expr, schema)
    return question


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_block_is_judged_as_its_rows(data: st.DataObject) -> None:
    """No file is ruled out that holds a matching row, whatever is known of it."""
    kinds: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.int64(): st.integers(-3, 3),
        pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("nan")]),
        pa.string(): st.sampled_from(["", "a", "b", "é"]),
        pa.bool_(): st.booleans(),
    }
    kind = data.draw(st.sampled_from(list(kinds)))
    files = [
        data.draw(st.lists(st.none() | kinds[kind], max_size=3)) for _ in range(data.draw(st.integers(1, 6)))
    ]
    literal = {pa.int64(): "1", pa.float64(): "0.0", pa.string(): "'a'", pa.bool_(): "true"}[kind]
    where = data.draw(
        st.sampled_from(
            [f"c = {literal}", f"c > {literal}", f"NOT c <= {literal}", "c IS NULL", "c IS NOT NULL"]
        )
    )
    lower, upper, nulls, nans = [], [], [], []
    for values in files:
        numbers = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        known = numbers and data.draw(st.booleans())
        lower.append(min(numbers) if known else None)
        upper.append(max(numbers) if known else None)
        nulls.append(values.count(None) if data.draw(st.booleans()) else None)
        nans.append(
            sum(isinstance(v, float) and math.isnan(v) for v in values) if data.draw(st.booleans()) else None
        )
    bounds = ColumnBounds(
        lower=pa.array(lower, kind),
        upper=pa.array(upper, kind),
        null_count=pa.array(nulls, pa.int64()),
        nan_count=pa.array(nans, pa.int64()),
    )
    schema = pa.schema([("c", kind)])
    block = FileBlock(
        FileColumns([f"f{at}" for at in range(len(files))], immutable=True),
        pa.schema([]),
        0,
        bounds={("c",): bounds},
        num_rows=pa.array([len(values) for values in files], pa.int64()),
    )
    excluded = excluded_by_bounds(block, question_over(where, schema))
    for at, values in enumerate(files):
        store, source = DictStore({}), TableSource(schema)
        source.write(store, "f", pa.table({"c": pa.array(values, kind)}))
        matches = accel.scan("f", where, store=store).count_rows()
        assert excluded is None or not (excluded.excluded[at] and matches)


TAGS = [f'"{at}"' for at in range(100_000)]


@pytest.mark.parametrize(
    "versions",
    [{"immutable": True}, {"etags": pa.array(TAGS)}, {"etags": pa.chunked_array([TAGS])}, {"etags": TAGS}],
    ids=["immutable", "an array", "chunks", "a list"],
)
def test_a_hundred_thousand_files_are_judged_in_thirty_milliseconds(versions: dict[str, Any]) -> None:
    n = 100_000
    firsts = np.arange(n, dtype=np.int64) * 1000
    block = FileBlock(
        FileColumns(pa.array([f"part-{at}" for at in range(n)]), **versions),
        pa.schema([]),
        0,
        bounds={("k",): ColumnBounds(lower=pa.array(firsts), upper=pa.array(firsts + 999))},
    )
    question = question_over("k = 77077", pa.schema([("k", pa.int64())]))
    times = []
    for _ in range(5):
        began = time.process_time()
        excluded = excluded_by_bounds(block, question)
        times.append(time.process_time() - began)
    assert excluded is not None
    assert np.flatnonzero(~excluded.excluded).tolist() == [77]
    assert min(times) < 0.03


def test_a_hundred_thousand_files_of_which_one_is_opened() -> None:
    store = DictStore({})
    source = TableSource(pa.schema([("k", pa.int64())]), made_files(100_000))
    source.files[77] = replace(source.files[77], path="there")
    one = TableSource(None)
    one.write(store, "there", pa.table({"k": range(77_000, 78_000)}))
    source.files[77] = replace(source.files[77], size=one.files[0].size)
    scan = accel.scan(source, "k = 77077", store=store)
    assert scan.to_table()["k"].to_pylist() == [77_077]
    assert (scan.metrics.files.total, scan.metrics.files.kept) == (100_000, 1)


def test_an_object_that_makes_a_source_for_each_run() -> None:
    store, tables = DictStore({}), TableSource(X)
    tables.write(store, "f", pa.table({"x": [1, 2, 3]}), deleted=[0])
    runs: list[int] = []

    class Table:
        def source(self) -> FileSource:
            runs.append(1)
            return tables

    scan = accel.scan(Table(), store=store)
    assert (scan.count_rows(), scan.to_table().num_rows, len(runs)) == (2, 2, 2)
    with pytest.raises(ValueError, match="partitioning is for paths"):
        accel.scan(Table(), partitioning="hive")


def test_an_entry_is_made_once_and_only_when_it_is_looked_at() -> None:
    files = FileColumns(
        ["a", "b", "c"], sizes=pa.array([1, None, 3]), etags=[None, '"1"', None], in_store=True
    )
    assert (files[1].etag, files[1].size, files[2].size, len(files)) == ('"1"', None, 3, 3)
    assert files[-1] is files[2]
    assert [file.path for file in files[1:]] == ["b", "c"]
    assert files.known.tolist() == [False, True, False]
    with pytest.raises(IndexError):
        files[3]


def test_the_file_of_the_double() -> None:
    file = TableFile(path="f", size=1, num_rows=2)
    assert (file.deleted, file.etag) == ((), None)


@pytest.mark.parametrize("per_block", [2, 100])
def test_an_index_serves_the_files_of_a_table_that_never_change(per_block: int) -> None:
    """It is known by path and size, as the log has no etags; rows that are gone come off what it finds."""
    store = DictStore({})
    source = TableSource(pa.schema([("id", pa.int64()), ("v", pa.int64())]), per_block=per_block)
    for at in range(6):
        rows = pa.table({"id": [(i * 7 + at) % 60 for i in range(10)], "v": [at] * 10})
        source.write(store, f"t/{at}.parquet", rows, deleted=[0] if at % 2 else [])
    accel.build_index("t", to="index", indexes={"id": "keys"}, store=store)
    source.files.pop(2)  # dropped from the table, and still in the index
    recorded = RecordingStore(store)
    everything = accel.scan(source, store=store).to_table()
    for value in range(60):
        expected = everything.filter(pc.equal(everything["id"], value))
        scan = accel.scan(source, f"id = {value}", index="index", store=recorded, cache=accel.Cache())
        recorded.calls.clear()
        assert scan.to_table().equals(expected)
        assert {call.path for call in recorded.calls if call.path.startswith("t/")} <= {
            f"t/{v}.parquet" for v in range(6) if value in [(i * 7 + v) % 60 for i in range(10)]
        }
        assert (
            accel.scan(source, f"id = {value}", index="index", store=store).count_rows() == expected.num_rows
        )
    assert accel.scan(source, index="index", store=store).count_rows() == everything.num_rows


def test_an_index_of_your_own_over_a_table() -> None:
    store, source = DictStore({}), TableSource(X)
    source.write(store, "a", pa.table({"x": [1, 2, 3]}), deleted=[0])
    source.write(store, "b", pa.table({"x": [3]}))

    class Index:
        def files(self, predicate: accel.PredicateView, columns: Any) -> list[str]:
            return ["a"]

    with pytest.raises(ValueError, match="an index of your own names the files itself"):
        accel.scan(source, "x = 3", index=Index(), store=store)


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("later", [False, True])
def test_values_of_deleted_rows_are_not_distinct_values(files: int, later: bool) -> None:
    """Not even where a dictionary page lists the values of a file."""
    store, source = DictStore({}), TableSource(pa.schema([("k", pa.int64())]), loads_deletes=later)
    for at in range(files):
        rows = pa.table({"k": pa.array(range(at * 10, at * 10 + 10), pa.int64())})
        source.write(store, f"f{at}", rows, deleted=[0, 9])
    kept = [at * 10 + row for at in range(files) for row in range(1, 9)]
    assert accel.distinct(source, "k", store=store).to_pylist() == kept
