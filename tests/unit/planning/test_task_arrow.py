"""Scan tasks as Arrow rows: what comes back is what was sent, and reads the same."""

from __future__ import annotations

import dataclasses
import decimal
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.decode.arrow import file_schema
from accel.errors import AccelError, ParquetFormatError
from accel.planning.task import ScanTask
from accel.planning.task_arrow import (
    TASK_ARROW_SCHEMA,
    checksum_of,
    decode_schema,
    decode_tasks,
    encode_schema,
    join_rows,
    rows_of,
    take_out,
)
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from tests.support.file_steps import Bytes

ROWS = 600
N = np.arange(ROWS)
NESTED = pa.array(
    [
        {"x": i, "tags": None if i % 5 == 0 else [f"t{i % 7}"] * (i % 3), "in": {"y": i / 2}}
        for i in range(ROWS)
    ],
    pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string())), ("in", pa.struct([("y", pa.float64())]))]),
)
DATA = table(
    id=pa.array(N),
    price=pa.array([decimal.Decimal(i).scaleb(-2) for i in range(ROWS)], pa.decimal128(9, 2)),
    name=pa.array([f"n{i % 20:02}" for i in range(ROWS)]).dictionary_encode(),
    at=pa.array(N * 1000, pa.timestamp("ms", "Europe/Paris")),
    nested=NESTED,
    pairs=pa.array([[(f"k{i}", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64())),
)
FILE = write_file(DATA, Layout(group_rows=200, page_rows=20))
ROOT = "t/year=2024/day=2024-05-01/none=__HIVE_DEFAULT_PARTITION__/"


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore({f"{ROOT}{name}.parquet": FILE for name in "ab"}))


def encode(tasks: Sequence[ScanTask]) -> pa.RecordBatch:
    """The rows of a few tasks, as a plan gives them."""
    return next(iter(accel.Plan(tasks, schema=pa.schema([]))))


CASES: dict[str, dict[str, Any]] = {
    "all": {},
    "a filter": {"where": "id BETWEEN 150 AND 420 AND name = 'n05'"},
    "columns in another order": {"where": "id < 50", "columns": ["price", "id"]},
    "part of a struct": {"where": "id < 50", "columns": ["nested.in"]},
    "a filter inside a struct": {"where": "nested.x >= 590", "columns": ["nested.tags", "at"]},
    "a map": {"where": "id = 7", "columns": ["pairs"]},
    "no columns": {"where": "name = 'n03'", "columns": []},
    "no columns and no filter": {"columns": []},
    "partitions": {"where": "year = 2024 AND id < 9", "columns": ["day", "id", "none"]},
    "partitions alone": {"columns": ["year"]},
    "a partition in the filter only": {"where": "day = '2024-05-01' AND id = 3", "columns": ["id"]},
    "a list of values": {"where": "id IN (3, 5, 599)"},
    "an array of values": {"where": accel.col("id").isin(pa.array([3, 5, 599]))},
    "a filter list": {"where": [[("id", "<", 3)], [("name", "in", ["n07"]), ("id", ">", 580)]]},
    "a type of the scan's own": {
        "where": "id < 3",
        "columns": ["id", "more"],
        "schema": pa.schema([("id", pa.decimal128(25, 2)), ("more", pa.string())]),
    },
    "a selection": {"selection": {f"{ROOT}a.parquet": {1: [(10, 30), (199, 200)]}}},
}


def equal(one: object, other: object) -> bool:
    """Deep equality of what tasks are made of."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if dataclasses.is_dataclass(one) and type(one).__eq__ is object.__eq__:
        return type(one) is type(other) and all(
            equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    if isinstance(one, tuple | list):
        return isinstance(other, type(one)) and len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("case", CASES)
def test_tasks_travel(store: RecordingStore, case: str) -> None:
    keywords = {"store": store, "cache": accel.Cache()} | CASES[case]
    plan = accel.plan("t/", **keywords)
    want = accel.scan("t/", **keywords).to_table()
    sent = encode(plan.tasks)
    assert sent.schema == TASK_ARROW_SCHEMA
    back = list(decode_tasks(sent))
    assert len(back) == len(plan.tasks)
    for task, copy in zip(plan.tasks, back, strict=True):
        for name in ("row_group", "num_rows", "rows", "certain"):
            assert equal(getattr(task, name), getattr(copy, name)), name
        assert [equal(_moved(a, b), b) for a, b in zip(task.reads, copy.reads, strict=True)] == [True] * len(
            task.reads
        )
        assert (copy.file.root, copy.file.id, copy.file.url) == (task.file.root, task.file.id, task.file.url)
        assert copy.file.question.output.equals(task.file.question.output)
        assert copy.file.question.where == task.file.question.where
    # Encoded once more they are the same rows (IPC spells the name of a map's entries otherwise).
    again = encode(back)
    for name in TASK_ARROW_SCHEMA.names:
        if not name.endswith("_schema") and name != "checksum":
            assert again.column(name).equals(sent.column(name)), name
    # And they read the same, in a process that knows nothing else.
    found = accel.scan(back, store=store, cache=None).to_table()
    assert found.equals(want)
    assert found.num_rows > 0
    assert accel.scan(back, store=store, cache=None).count_rows() == want.num_rows


def _moved(reads: Any, like: Any) -> Any:
    """The reads with the leaf's new ordinal: the schema that travels is cut to what is read."""
    return dataclasses.replace(reads, leaf=like.leaf)


def test_readers_of_tasks_ask_for_no_metadata(store: RecordingStore) -> None:
    plan = accel.plan(
        "t/", "id = 250", columns=["id", "price"], store=store, options=accel.Options(tail_hint=8)
    )
    back = list(decode_tasks(encode(plan.tasks)))
    store.clear()
    scan = accel.scan(back, store=store, cache=None)
    assert scan.to_table().num_rows == 2
    data = {"data page", "dictionary page", "column chunk"}
    assert {str(kind) for kind in scan.metrics.requests_by_kind} <= data
    assert store.waves == 1


def test_tasks_of_one_file_share_what_they_can(store: RecordingStore) -> None:
    back = list(decode_tasks(encode(accel.plan("t/", store=store).tasks)))
    assert [task.row_group for task in back] == [0, 1, 2, 0, 1, 2]
    assert len({id(task.file) for task in back}) == 2


def test_the_same_file_of_two_plans_is_not_taken_for_one(store: RecordingStore) -> None:
    """Its partition columns have other types, or values, in each."""
    path = f"{ROOT}a.parquet"
    other = pa.schema([("year", pa.string())])
    tasks = [
        accel.plan(path, "id = 1", columns=["id"], partitioning=p, store=store).tasks[0]
        for p in ("hive", other)
    ]
    one, two = decode_tasks(encode(tasks))
    assert one.file.partition["year"] == pa.scalar(2024, pa.int64())
    assert two.file.partition["year"] == pa.scalar("2024")


def test_no_tasks() -> None:
    sent = encode([])
    assert (sent.num_rows, sent.schema) == (0, TASK_ARROW_SCHEMA)
    assert list(decode_tasks(sent)) == []


def changed(store: object, **fields: Any) -> pa.RecordBatch:
    row = encode(accel.plan("t/", "id = 1", store=store).tasks[:1]).to_pylist()[0]
    return sealed(row | fields)


def sealed(row: dict[str, Any]) -> pa.RecordBatch:
    """A task that says of itself that it is whole, whatever it holds."""
    return pa.RecordBatch.from_pylist([row | {"checksum": checksum_of(row)}], schema=TASK_ARROW_SCHEMA)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"version": 99}, id="another version"),
        pytest.param({"version": None}, id="no version"),
        pytest.param({"footer": None}, id="no schema"),
        pytest.param({"footer": b"\x15\x02"}, id="a damaged schema"),
        pytest.param({"arrow_schema": b"xx"}, id="a damaged arrow schema"),
        pytest.param(
            {"arrow_schema": pa.schema([("other", pa.int64())]).serialize().to_pybytes()}, id="other columns"
        ),
        pytest.param({"where": b"{"}, id="a damaged predicate"),
        pytest.param({"partition": b""}, id="a damaged partition"),
        pytest.param({"leaves": None}, id="no leaves"),
        pytest.param({"size": 10}, id="pages past the file"),
    ],
)
def test_what_does_not_decode_is_an_error(store: RecordingStore, fields: dict[str, Any]) -> None:
    batch = changed(store, **fields)
    with pytest.raises(AccelError) as caught:
        list(decode_tasks(batch))
    assert caught.value.path == batch.column("url")[0].as_py()


@pytest.mark.parametrize(
    "leaf",
    [
        pytest.param({"leaf": 99}, id="an unknown leaf"),
        pytest.param({"leaf": -1}, id="a negative leaf"),
        pytest.param({"size": [1, 2, 3, 4, 5, 6, 7]}, id="lists that do not fit together"),
        pytest.param({"chunk_start": 10, "chunk_end": 5}, id="a chunk that ends before it starts"),
    ],
)
def test_leaves_that_do_not_decode(store: RecordingStore, leaf: dict[str, Any]) -> None:
    row = encode(accel.plan("t/", "id = 1", store=store).tasks[:1]).to_pylist()[0]
    row["leaves"][0] |= leaf
    with pytest.raises(AccelError) as caught:
        list(decode_tasks(sealed(row)))
    assert caught.value.path == row["url"]


def test_two_tasks_of_one_row_group_that_differ_in_where_it_lies(store: RecordingStore) -> None:
    row = encode(accel.plan("t/", "id = 1", store=store).tasks[:1]).to_pylist()[0]
    other = pickle.loads(pickle.dumps(row))
    reads = other["leaves"][0]
    reads["offset"][0] += 1
    reads["size"][0] -= 1
    batches = [sealed(row), sealed(other)]
    with pytest.raises(AccelError) as caught:
        accel.scan(accel.Plan.from_arrow(pa.Table.from_batches(batches)), store=store).to_table()
    assert caught.value.path == row["url"]


def test_no_credential_travels_but_a_presigned_url() -> None:
    store = DictStore({"f": FILE})
    plan = accel.plan("f", store=store, storage_options={"secret_access_key": "SECRET"})
    assert b"SECRET" not in pickle.dumps(plan)
    task: ScanTask = plan.tasks[0]
    signed = dataclasses.replace(
        task,
        file=dataclasses.replace(
            task.file,
            url="https://h/f?sig=SECRET",
            id=dataclasses.replace(task.file.id, path="f?sig=SECRET"),
        ),
    )
    assert b"SECRET" in pickle.dumps(accel.Plan([signed], schema=plan.schema))
    for shown in (signed, signed.file, signed.file.id, accel.Plan([signed], schema=plan.schema)):
        assert "SECRET" not in repr(shown)
        assert "SECRET" not in str(shown)


# -- task rows --------------------------------------------------------------------------------------


STORE = DictStore(
    {
        name: write_file(table(x=pa.array(np.arange(600))), Layout(group_rows=200, page_rows=20))
        for name in "ab"
    }
)
KEYS = np.arange(30_000) * 7
SHARED = ["where", "data_schema", "output_schema"]


def planned(where: object = None) -> accel.Plan:
    return accel.plan(["a", "b"], where, store=STORE, cache=None)


def test_a_long_predicate_is_sent_once() -> None:
    plan = planned(accel.col("x").isin(KEYS))
    (whole,) = plan
    (cut,), shared = take_out(plan)
    assert whole.num_rows == 6
    assert list(shared) == SHARED
    assert [cut.column(name).null_count for name in SHARED] == [6, 6, 6]
    # Three bytes say that six rows of three columns are null.
    assert cut.nbytes == whole.nbytes - 6 * sum(map(len, shared.values())) + 3
    joined = join_rows(cut, shared)
    assert rows_of(joined) == whole.to_pylist()
    found = accel.scan(iter([joined]), store=STORE, cache=None).to_table().to_pydict()
    assert found == {"x": 2 * list(range(0, 600, 7))}


def test_a_short_one_stays_in_its_rows() -> None:
    plan = planned("x < 9")
    batches, shared = take_out(plan)
    assert (batches, shared) == (list(plan), {})
    assert take_out(planned("x < 0")) == (list(planned("x < 0")), {})


def test_rows_that_differ_keep_their_own() -> None:
    first, second = (encode(planned(accel.col("x").isin(keys)).tasks) for keys in (KEYS, KEYS[1:]))
    mixed = pa.concat_batches([first, second])
    (same, other, both), shared = take_out([first, second, mixed])
    assert [batch.column("where").null_count for batch in (same, other, both)] == [6, 0, 0]
    assert rows_of(join_rows(both, shared)) == mixed.to_pylist()


def test_without_what_was_taken_out_they_are_damaged() -> None:
    (cut,), shared = take_out(planned(accel.col("x").isin(KEYS)))
    for wrong in (shared | {"where": shared["where"][:-1]}, {}):
        with pytest.raises(accel.AccelError, match="a scan task is damaged: its checksum is another"):
            list(decode_tasks(join_rows(cut, wrong)))


def test_files_share_their_question_and_their_schema() -> None:
    plan = planned(accel.col("x").isin(KEYS))
    tasks = list(decode_tasks(encode(plan.tasks)))
    assert [task.path for task in tasks] == ["a"] * 3 + ["b"] * 3
    assert len({id(task.file) for task in tasks}) == 2
    assert len({id(task.file.question) for task in tasks}) == 1
    assert len({id(task.file.schema) for task in tasks}) == 1
    assert len({id(task.file.query) for task in tasks}) == 1


# -- schema wire ------------------------------------------------------------------------------------


SCHEMA = pa.schema(
    [
        ("a", pa.int8()),
        ("s", pa.struct([("x", pa.large_string()), ("y", pa.list_(pa.duration("ms")))])),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("z", pa.decimal128(9, 2)),
    ]
)
"""Leaves: a 0, s.x 1, s.y 2, d 3, m.key 4, m.value 5, z 6."""


@pytest.mark.parametrize("stored", [True, False], ids=["ARROW:schema", "none"])
@pytest.mark.parametrize(
    ("leaves", "columns", "renumbered"),
    [
        ([], [], {}),
        ([0], ["a"], {0: 0}),
        ([2], ["s"], {1: 0, 2: 1}),
        ([6, 3], ["d", "z"], {3: 0, 6: 1}),
        ([5, 1], ["s", "m"], {1: 0, 2: 1, 4: 2, 5: 3}),
        (range(7), SCHEMA.names, {i: i for i in range(7)}),
    ],
)
def test_there_and_back(
    leaves: list[int], columns: list[str], renumbered: dict[int, int], stored: bool
) -> None:
    handle = Bytes(write_file(SCHEMA.empty_table(), Layout(arrow_schema=stored))).open()
    schema, key_value = handle.metadata.schema, handle.metadata.key_value
    footer, arrow, numbers = encode_schema(
        schema, handle.arrow_schema, key_value=key_value, leaves=leaves, created_by="the writer"
    )
    assert arrow.names == columns
    assert numbers == renumbered
    back = decode_schema(footer)
    assert back.created_by == "the writer"
    assert [leaf.path for leaf in back.schema.leaves] == [schema.leaves[i].path for i in sorted(renumbered)]
    assert [leaf.max_definition for leaf in back.schema.leaves] == [
        schema.leaves[i].max_definition for i in sorted(renumbered)
    ]
    assert ("ARROW:schema" in back.key_value) is stored
    if columns:
        # Types that only ARROW:schema tells survive the cut.
        assert file_schema(back.schema, back.key_value).equals(arrow)


@pytest.mark.parametrize("footer", [b"", b"\x00", b"\x15", b"xxxx", b"\x15\x02\x19\x4c"])
def test_damage(footer: bytes) -> None:
    with pytest.raises(ParquetFormatError):
        decode_schema(footer)


def test_what_is_no_footer() -> None:
    with pytest.raises(ParquetFormatError, match="a scan task has no schema"):
        decode_schema(None)  # type: ignore[arg-type]
