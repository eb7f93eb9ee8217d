"""`file_path=`: the URL of the file as a column, in all that a scan is used for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.scanning.file_path_source import FilePathSource
from accel.scanning.file_source import SourceRequest
from accel.testing import DictStore, RecordingStore, table, write_file


def file_of(at: int) -> bytes:
    return write_file(table(id=list(range(at * 3, at * 3 + 3)), name=[f"n{at}"] * 3))


NAMES = [f"d/k={at % 2}/{at}.parquet" for at in range(4)]
FILES = {name: file_of(at) for at, name in enumerate(NAMES)}


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore(FILES))


def ask(store: Any, where: Any = None, **keywords: Any) -> accel.Scan:
    return accel.scan("d/", where, store=store, **{"file_path": "file", "cache": None, **keywords})


def expected(row: int) -> dict[str, Any]:
    at = row // 3
    return {"id": row, "name": f"n{at}", "k": at % 2, "file": NAMES[at]}


IN_ORDER = [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]


def test_it_is_the_last_column(store: RecordingStore) -> None:
    scan = ask(store)
    assert scan.schema.names == ["id", "name", "k", "file"]
    assert scan.schema.field("file").type == pa.string()
    assert scan.schema.field("file").metadata is None
    assert scan.to_pylist() == [expected(row) for row in IN_ORDER]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (f"file = '{NAMES[1]}'", [3, 4, 5]),
        (f"file = '{NAMES[1]}' AND id > 3", [4, 5]),
        (f"file = '{NAMES[1]}' OR id = 0", [0, 3, 4, 5]),
        (f"NOT file <> '{NAMES[2]}' AND k = 0 AND name = 'n2'", [6, 7, 8]),
        ("file LIKE '%/3.parquet'", [9, 10, 11]),
        ("file IS NULL", []),
        ("file = 'elsewhere'", []),
        (accel.col("file").isin(NAMES[2:]), [6, 7, 8, 9, 10, 11]),
    ],
    ids=str,
)
def test_where_names_it(store: RecordingStore, where: Any, rows: list[int]) -> None:
    scan = ask(store, where)
    assert scan.to_pylist() == [expected(row) for row in rows]
    assert scan.count_rows() == len(rows)
    assert scan.distinct("file").to_pylist() == sorted({NAMES[row // 3] for row in rows})
    tasks = accel.plan("d/", where, store=store, cache=None, file_path="file")
    assert accel.scan(tasks, store=store, cache=None).to_pylist() == [expected(row) for row in rows]
    again = accel.Plan.from_arrow(tasks.to_arrow())
    assert accel.scan(again, store=store, cache=None).to_pylist() == [expected(row) for row in rows]


def test_it_rules_files_out_before_they_are_opened(store: RecordingStore) -> None:
    assert ask(store, f"file = '{NAMES[3]}'").count_rows() == 3
    # The first file settles the schema.
    assert {call.path for call in store.calls} == {"d", NAMES[0], NAMES[3]}


def test_columns_and_aggregates_name_it(store: RecordingStore) -> None:
    assert ask(store, columns=["file", "id"], limit=1).to_pylist() == [{"file": NAMES[0], "id": 0}]
    assert ask(store, columns=['"file"']).to_table().column_names == ["file"]
    assert ask(store, columns=["id"]).to_table().column_names == ["id"]
    assert ask(store, columns=[], where=f"file = '{NAMES[0]}'").to_table().num_rows == 3
    found = ask(store).aggregate([("file", "min"), ("file", "max"), ("file", "count"), ("id", "sum")])
    assert found.to_pylist() == [{"file_min": NAMES[0], "file_max": NAMES[3], "file_count": 12, "id_sum": 66}]
    assert accel.distinct("d/", "file", store=store, file_path="file").to_pylist() == sorted(NAMES)


def test_with_a_selection_a_given_schema_and_the_union(store: RecordingStore) -> None:
    chosen = ask(store, f"file >= '{NAMES[1]}'", selection={NAMES[1]: {0: [(1, 2)]}, NAMES[0]: {0: [(0, 1)]}})
    assert chosen.to_pylist() == [expected(4)]
    given = ask(store, schema=pa.schema([("name", pa.string()), ("more", pa.int8())]), limit=1)
    assert given.to_pylist() == [{"name": "n0", "more": None, "k": 0, "file": NAMES[0]}]
    assert ask(store, schema="union").to_pylist() == [expected(row) for row in IN_ORDER]


def test_a_listing_that_is_known_is_read_before_the_store_answers(store: RecordingStore) -> None:
    cache = accel.Cache()
    for _ in range(3):
        assert ask(store, f"file = '{NAMES[1]}'", cache=cache).to_pylist() == [expected(r) for r in (3, 4, 5)]
        assert ask(store, cache=cache).to_pylist() == [expected(row) for row in IN_ORDER]


@pytest.mark.parametrize("listing", ["store", "index"])
def test_an_index_outside_the_files_knows_nothing_of_it(tmp_path: Path, listing: str) -> None:
    names = [tmp_path / name for name in NAMES]
    for name, data in zip(names, FILES.values(), strict=True):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(data)
    accel.build_index(tmp_path / "d", indexes={"name": "keys"})

    def found(where: str | None, **keywords: Any) -> accel.Scan:
        return accel.scan(tmp_path / "d", where, file_path="file", listing=listing, cache=None, **keywords)

    one = f"file = '{names[1]}'"
    assert found(one, columns=["id"]).to_pylist() == [{"id": 3}, {"id": 4}, {"id": 5}]
    # All rows of both files match the rest of the predicate, as the index knows.
    assert found(f"id >= 0 AND {one}").count_rows() == 3
    assert found(f"name = 'n1' AND {one}").count_rows() == 3
    assert found(f"name = 'n2' AND {one}").count_rows() == 0
    assert found("id >= 0").count_rows() == 12
    assert found("id >= 6").distinct("file").to_pylist() == [str(names[2]), str(names[3])]
    assert found(None).aggregate([("file", "max"), ("id", "max")]).to_pylist() == [
        {"file_max": str(names[3]), "id_max": 11}
    ]


def test_a_source_of_ones_own_has_it_too() -> None:
    store = DictStore({f"t/{at}": file_of(at) for at in range(3)})

    class Own(accel.FileSource):
        async def schema(self, request: Any) -> pa.Schema:
            return pa.schema([("id", pa.int64()), ("name", pa.string())])

        async def blocks(self, request: Any) -> Any:
            assert request.columns is None and request.where is None
            yield request.block([f"t/{at}" for at in range(3)], immutable=True)

    own = RecordingStore(store)
    scan = accel.scan(Own(), "file = 't/1'", store=own, cache=None, file_path="file")
    assert scan.to_pylist() == [{"id": row, "name": "n1", "file": "t/1"} for row in (3, 4, 5)]
    assert {call.path for call in own.calls} == {"t/1"}


CLASHES = {
    "a column": {"file_path": "id"},
    "a column that is not asked for": {"file_path": "id", "columns": ["name"]},
    "a partition column": {"file_path": "k"},
    "a column of a given schema": {"file_path": "x", "schema": pa.schema([("x", pa.string())])},
}


@pytest.mark.parametrize("clash", CLASHES)
@pytest.mark.parametrize("call", ["to_table", "count_rows", "explain"])
def test_a_name_that_is_taken_is_refused(store: RecordingStore, clash: str, call: str) -> None:
    name = CLASHES[clash]["file_path"]
    with pytest.raises(accel.SchemaMismatchError) as caught:
        getattr(ask(store, **CLASHES[clash]), call)()
    assert caught.value.message == f"file_path adds a column '{name}', and there is one of that name already"
    assert caught.value.hint == f"give it another name, such as 'source_{name}'"


def test_a_later_file_may_have_the_column_itself() -> None:
    store = DictStore({"a": file_of(0), "b": write_file(table(id=[1], file=["mine"]))})
    with pytest.raises(accel.SchemaMismatchError, match="b: file_path adds a column 'file'"):
        accel.scan(["a", "b"], store=store, cache=None, file_path="file").to_table()


def test_secrets_are_redacted() -> None:
    class Files(accel.FileSource):
        async def blocks(self, request: Any) -> Any:
            yield request.block(["https://h/f.parquet?X-Amz-Signature=SECRET"])

    async def first() -> Any:
        request = SourceRequest(reader=None)  # type: ignore[arg-type]
        return await anext(FilePathSource(Files(), "file").blocks(request))

    named = asyncio.run(first())
    assert named.files[0].partition == ("https://h/f.parquet?X-Amz-Signature=***",)


@pytest.mark.parametrize("name", ["", 3, ["f"]])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match="file_path is the name of a column"):
        accel.scan("d/", file_path=name)


def test_a_plan_has_its_own(store: RecordingStore) -> None:
    planned = accel.plan("d/", store=store)
    with pytest.raises(ValueError, match="file_path: a plan has its own"):
        accel.scan(planned, store=store, file_path="file")


def test_paths_that_come_bit_by_bit(store: RecordingStore) -> None:
    paths = iter([pa.RecordBatch.from_pydict({"path": [name]}) for name in NAMES[:2]])
    found = accel.scan(paths, store=store, cache=None, file_path="file", columns=["id", "file"])
    rows = [row for batch in found for row in batch.to_pylist()]
    assert rows == [{"id": row, "file": NAMES[row // 3]} for row in range(6)]


@pytest.mark.parametrize("where", [None, "file = 'x'", "id = 1"])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, where: str | None) -> None:
    (tmp_path / os.fsdecode(b"\xff.parquet")).write_bytes(file_of(0))
    (tmp_path / "a.parquet").write_bytes(file_of(1))
    with pytest.raises(accel.SchemaMismatchError, match="not UTF-8, so that column 'file' cannot have it"):
        accel.scan(str(tmp_path), where, file_path="file").to_table()
    assert accel.scan(str(tmp_path), "id >= 0").count_rows() == 6
