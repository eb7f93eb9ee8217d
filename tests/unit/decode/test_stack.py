"""Small row groups decoded together give the rows that each gives by itself."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import stack
from accel.decode.piece import decode_piece
from accel.decode.stack import Layer, StackKind, decode_stack, stack_kind
from accel.testing import DictStore

GROUPS, ROWS = 12, 40
LIMIT = 1 << 30


def table() -> pa.Table:
    rows = range(GROUPS * ROWS)
    return pa.table(
        {
            "key": pa.array(rows, pa.int64()),
            "number": pa.array([None if row % 11 == 0 else row % 17 for row in rows], pa.int32()),
            "text": pa.array([None if row % 5 == 0 else f"text {row % 9}" for row in rows]),
            "late": pa.array([f"{row:07d}" * 2 for row in rows]),
            "kind": pa.array([f"kind {row % 3}" for row in rows]).dictionary_encode(),
            "list": pa.array([[row] * (row % 3) for row in rows]),
            "pair": pa.array([{"a": row, "b": str(row)} for row in rows]),
        }
    )


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, **{"row_group_size": ROWS, "compression": "zstd"} | options)
    return sink.getvalue()


class Met:
    """The layers that a scan decodes together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stacks: list[list[Layer]] = []
        self.found: list[list[pa.RecordBatch] | None] = []
        monkeypatch.setattr(stack, "decode_stack", self._decode)

    def _decode(self, layers: list[Layer], **settings: Any) -> list[pa.RecordBatch] | None:
        self.stacks.append(layers)
        self.found.append(decode_stack(layers, **settings))
        return self.found[-1]


def ask(data: bytes, where: Any = None, *, columns: list[str] | None = None) -> pa.Table:
    return accel.scan("f", where, columns=columns, store=DictStore({"f": data}), cache=None).to_table()


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Met:
    return Met(monkeypatch)


FLAT = ["key", "number", "text", "late"]
WHERE = {
    "all rows": None,
    "a range": "key >= 85 AND key < 370",
    "a condition": "number = 3",
    "nulls": "text IS NULL AND number > 4",
    "in few of them": "text = 'text 8' AND number = 2 AND key < 200",
    "none": "text = 'text 5' AND number = 4 AND key < 290",
}


@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
@pytest.mark.parametrize("columns", [FLAT, ["late"], ["number", "key"]], ids=["all", "late", "two"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_together_as_one_by_one(where: str | None, columns: list[str], version: str, met: Met) -> None:
    data = written(data_page_version=version)
    found = ask(data, where, columns=columns)
    expected = table() if where is None else table().filter(pq_filter(where))
    assert found.equals(expected.select(columns))
    assert met.stacks
    for layers, batches in zip(met.stacks, met.found, strict=True):
        alone = [
            batch
            for one in layers
            for batch in decode_piece(one.task, one.piece, one.leaves, batch_rows=1000, memory_limit=LIMIT)
        ]
        assert batches is not None
        assert len(batches) == (1 if alone else 0)
        assert pa.Table.from_batches(batches, found.schema).equals(pa.Table.from_batches(alone, found.schema))


def pq_filter(where: str) -> pa.Array:
    """By Python, row by row."""
    conditions: dict[str, Any] = {
        WHERE["a range"]: lambda row: 85 <= row["key"] < 370,
        WHERE["a condition"]: lambda row: row["number"] == 3,
        WHERE["nulls"]: lambda row: row["text"] is None and (row["number"] or 0) > 4,
        WHERE["in few of them"]: lambda row: (
            row["text"] == "text 8" and row["number"] == 2 and row["key"] < 200
        ),
        WHERE["none"]: lambda row: False,
    }
    return pa.array([conditions[where](row) for row in table().select(FLAT).to_pylist()])


def test_of_the_other_columns_only_row_groups_are_decoded_in_which_rows_match(
    met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    verify = stack.verify_stack

    def counted(chunks: Any, leaf: Any, **facts: Any) -> Any:
        asked.append((leaf.ordinal, len(chunks)))
        return verify(chunks, leaf, **facts)

    monkeypatch.setattr(stack, "verify_stack", counted)
    assert ask(written(), "number = 3 AND text = 'text 1'", columns=["late"]).num_rows == 2
    assert asked == [(1, GROUPS), (2, GROUPS), (3, 2)]


def test_batches_have_at_most_so_many_rows(met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    batches = decode_stack(layers, batch_rows=100, memory_limit=LIMIT)
    assert batches is not None
    assert [batch.num_rows for batch in batches] == [100, 100, 100, 100, 80]


def test_what_they_have_in_common(met: Met) -> None:
    ask(written(), "key >= 85 AND key < 370", columns=["key", "text"])
    kinds = [{stack_kind(one.task, one.piece) for one in layers} for layers in met.stacks]
    # What the two at the ends have is in doubt, and these are not neighbours.
    assert kinds == [{StackKind((0, 2), (True, True), False)}]
    assert [one.task.row_group for one in met.stacks[0]] == [3, 4, 5, 6, 7, 8]


def wide() -> pa.Table:
    """Of more than 8 KiB in each row group, which does not compress."""
    rng = random.Random(4)
    return pa.table({"key": range(400), "wide": [rng.randbytes(400).hex() for _ in range(400)]})


def test_pages_that_are_known_one_by_one(met: Met) -> None:
    """A file without a page index shows where its pages are when it is read whole."""
    sink = io.BytesIO()
    pq.write_table(wide(), sink, row_group_size=ROWS, max_rows_per_page=10)
    store, cache = DictStore({"f": sink.getvalue()}), accel.Cache()
    for _ in range(2):
        found = accel.scan("f", "key >= 35 AND key < 370", store=store, cache=cache).to_table()
        assert found.equals(wide().slice(35, 335))
    kinds = [stack_kind(layers[0].task, layers[0].piece) for layers in met.stacks]
    # The keys are so little that they are read whole again.
    assert kinds == [StackKind((0, 1), (True, whole), False) for whole in (True, False)]
    assert [len(layers) for layers in met.stacks] == [8, 8]
    assert None not in met.found


@pytest.mark.parametrize(("stop", "together"), [(200, [5]), (185, [4]), (145, [])])
def test_some_pages_of_a_row_group_are_read_by_themselves(stop: int, together: list[int], met: Met) -> None:
    sink = io.BytesIO()
    pq.write_table(wide(), sink, row_group_size=ROWS, max_rows_per_page=10, write_page_index=True)
    assert ask(sink.getvalue(), f"wide <> '' AND key < {stop}").equals(wide().slice(0, stop))
    # Of the last row group the last pages have no such key, unless one is 199. The three before it are too few.
    assert [len(layers) for layers in met.stacks] == together


@pytest.mark.parametrize("columns", [["list"], ["pair"], ["key", "list"]])
def test_nested_columns_are_decoded_one_by_one(columns: list[str], met: Met) -> None:
    assert ask(written(), columns=columns).equals(table().select(columns))
    assert met.stacks == []


def test_so_are_instants_and_large_row_groups(met: Met) -> None:
    moments = pa.table({"at": pa.array(range(480), pa.timestamp("us"))})
    sink = io.BytesIO()
    pq.write_table(moments, sink, row_group_size=40, use_deprecated_int96_timestamps=True)
    assert ask(sink.getvalue())["at"].cast(pa.timestamp("us")).equals(moments["at"])
    many = pa.table({"n": pa.array(range(5 * stack._MOST_ROWS + 5), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(many, sink, row_group_size=stack._MOST_ROWS + 1)
    assert ask(sink.getvalue()).equals(many)
    assert met.stacks == []


def test_dictionaries_of_arrow_are_left_to_others(met: Met) -> None:
    assert ask(written(), columns=["kind"])["kind"].to_pylist() == table()["kind"].to_pylist()
    assert met.found == [None]


def test_so_is_what_might_exceed_the_limit_on_memory(met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    assert decode_stack(layers, batch_rows=1000, memory_limit=1000) is None


def test_a_long_text_that_many_rows_may_name_is_read_by_steps(met: Met) -> None:
    """Each dictionary has one of 300 bytes: named by all of 4,000 rows it would be 1.2 MB."""
    once = ["x" * 300 if row % 100 == 0 else "y" for row in range(4000)]
    often = ["y" if row % 100 == 0 else "x" * 300 for row in range(4000)]
    for texts in (once, often):
        sink = io.BytesIO()
        pq.write_table(pa.table({"t": texts}), sink, row_group_size=100)
        assert ask(sink.getvalue())["t"].to_pylist() == texts
    [few, many] = met.stacks
    for limit, steps in ((4000 * 301, 1), (1500 * 301, 3), (1024 * 301, 4), (1023 * 301, None)):
        found = decode_stack(few, batch_rows=10_000, memory_limit=limit)
        assert (None if found is None else [batch.num_rows for batch in found]) == (
            None if steps is None else [min(limit // 301, 4000 - at) for at in range(0, 4000, limit // 301)]
        )
        assert found is None or len(found) == steps
    assert decode_stack(many, batch_rows=10_000, memory_limit=4000 * 304) is not None
    assert decode_stack(many, batch_rows=10_000, memory_limit=2000 * 301) is None


@pytest.mark.parametrize("place", range(3), ids=["its header", "its compressed body", "its end"])
def test_so_is_what_is_damaged(place: int, met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    one = layers[5]
    held = one.leaves[2]
    (chunk,) = held.pages
    frame = bytes(chunk).replace(b"\x28\xb5\x2f\xfd", b"none")
    broken = [b"\xff" + bytes(chunk[1:]), frame, bytes(chunk[:-1])]
    leaves = {**one.leaves, 2: replace(held, pages=(memoryview(broken[place]),))}
    damaged = [*layers[:5], replace(one, leaves=leaves), *layers[6:]]
    assert decode_stack(damaged, batch_rows=1000, memory_limit=LIMIT) is None
