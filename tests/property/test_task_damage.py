"""Tasks that are damaged on their way: never other rows, never another error than accel's."""

from __future__ import annotations

import copy
import struct
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import accel
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, checksum_of
from accel.testing import DictStore, Layout, write_file

ROWS = 60
QUESTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "a filter": {"where": "k > 10 AND w <> 'w3'", "columns": ["k", "l", "p"]},
    "a partition": {"where": "p = 'x' AND f < 9", "columns": ["f", "w"]},
}


@cache
def store() -> DictStore:
    columns = {
        "k": pa.array(np.arange(ROWS)),
        "w": pa.array([None if n % 11 == 0 else f"w{n % 5}" for n in range(ROWS)]),
        "l": pa.array([None if n % 7 == 0 else [{"a": n}] * (n % 4) for n in range(ROWS)]),
        "f": pa.array(np.arange(ROWS) / 4),
    }
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    data = write_file(table, Layout(group_rows=30, page_rows=7, dictionary=["w"], codec="snappy"))
    return DictStore({f"d/p={p}/f.parquet": data for p in ("1", "x")})


@cache
def told(question: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tasks, and the rows of a question."""
    keywords: dict[str, Any] = {"store": store(), "cache": None, **QUESTIONS[question]}
    return accel.plan("d/", **keywords).to_arrow().to_pylist(), accel.scan(
        "d/", **keywords
    ).to_table().to_pylist()


def damage(value: Any, kind: pa.DataType, draw: Any) -> Any:
    """Something else of the same type."""
    types = pa.types
    if draw(st.integers(0, 9)) == 0:
        return None
    if types.is_integer(kind):
        top = (1 << (kind.bit_width - 1)) - 1
        near = [value + step for step in (-1, 1, 7)] if value is not None else []
        return draw(
            st.sampled_from([0, 1, -1, 30, 60, 255, top, -top - 1, *(n for n in near if abs(n) <= top)])
        )
    if types.is_floating(kind):
        return draw(st.floats(allow_nan=True))
    if types.is_boolean(kind):
        return not value
    if types.is_string(kind):
        text = value or ""
        return draw(st.sampled_from(["", "x", "d/p=1/f.parquet", "s3://b/x", "é", text + "z", text[:-1]]))
    if types.is_binary(kind):
        body = bytearray(value or b"?")
        at, how = draw(st.integers(0, len(body) - 1)), draw(st.sampled_from(["flip", "cut", "more"]))
        if how == "flip":
            body[at] ^= draw(st.sampled_from([1, 2, 4, 16, 64, 128, 255]))
        return bytes(body[:at] if how == "cut" else body + b"\0\1" if how == "more" else body)
    if types.is_list(kind):
        items = list(value or [])
        at, how = (
            draw(st.integers(0, max(0, len(items) - 1))),
            draw(st.sampled_from(["item", "less", "more"])),
        )
        if how == "more" or not items:
            return [*items, items[-1] if items else damage(None, kind.value_type, draw)]
        if how == "less":
            return items[:at] + items[at + 1 :]
        return [*items[:at], damage(items[at], kind.value_type, draw), *items[at + 1 :]]
    field = draw(st.sampled_from(list(kind)))
    return {**(value or {}), field.name: damage((value or {}).get(field.name), field.type, draw)}


@pytest.mark.parametrize("question", QUESTIONS)
@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_a_damaged_task_is_refused(question: str, data: st.DataObject) -> None:
    tasks, rows = told(question)
    changed = copy.deepcopy(tasks)
    field = data.draw(st.sampled_from(list(TASK_ARROW_SCHEMA)))
    at = data.draw(st.integers(0, len(tasks) - 1))
    changed[at][field.name] = damage(changed[at][field.name], field.type, data.draw)
    assume(changed != tasks)
    table = pa.Table.from_pylist(changed, schema=TASK_ARROW_SCHEMA)
    options = accel.Options(memory_limit=64 << 20)
    for source in (lambda: iter(table.to_batches()), lambda: accel.Plan.from_arrow(table)):
        with pytest.raises(accel.AccelError):
            accel.scan(source(), store=store(), cache=None, options=options).to_table()
    # Those before it were right.
    intact = pa.Table.from_pylist(tasks, schema=TASK_ARROW_SCHEMA)
    assert accel.scan(iter(intact.to_batches()), store=store(), cache=None).to_table().to_pylist() == rows


NUMBERS = [field for field in TASK_ARROW_SCHEMA if field.name not in ("version", "checksum")]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_task_of_absurd_numbers_gives_rows_or_an_error(question: str) -> None:
    """With the checksum of what it says it may be of other rows, but nothing else comes of it than rows or an
    error."""
    tasks, _ = told(question)
    options = accel.Options(memory_limit=64 << 20)
    answers = 0

    @given(data=st.data())
    @settings(max_examples=150, deadline=None)
    def ask(data: st.DataObject) -> None:
        nonlocal answers
        row = copy.deepcopy(tasks[data.draw(st.integers(0, len(tasks) - 1))])
        for field in data.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3)):
            row[field.name] = damage(row[field.name], field.type, data.draw)
        assume(None not in (row["leaves"] or []))  # of these there is no checksum
        (row,) = pa.Table.from_pylist([row], schema=TASK_ARROW_SCHEMA).to_pylist()
        batch = pa.RecordBatch.from_pylist([row | {"checksum": checksum_of(row)}], schema=TASK_ARROW_SCHEMA)
        with suppress(accel.AccelError):
            accel.scan(iter([batch]), store=store(), cache=None, options=options).to_table().validate(
                full=True
            )
            answers += 1

    ask()
    assert answers >= 5


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _ending(stop: int) -> bytes:
    """One text of 77 bytes, said to end elsewhere."""
    stream = _stream(pa.RecordBatch.from_pydict({"p": ["x" * 77]}))
    before, offsets, text = stream.rpartition(struct.pack("<ii", 0, 77))
    assert offsets
    return before + struct.pack("<ii", 0, stop) + text


@pytest.mark.parametrize("question", ["all", "a partition"])
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (_ending(4096), "offset"),
        (_ending(-1), "offset"),
        (_stream(pa.RecordBatch.from_pydict({"p": ["x", "y"]})), "2 values of each partition column"),
        (_stream(pa.RecordBatch.from_pydict({"p": pa.array([], pa.string())})), "0 values of each partition"),
    ],
    ids=["beyond its bytes", "before them", "two rows", "no row"],
)
def test_forged_partition_values_are_refused(question: str, values: bytes, said: str) -> None:
    """What lies beside them in memory is nobody's value."""
    tasks, _ = told(question)
    row = tasks[0] | {"partition": values}
    batch = pa.RecordBatch.from_pylist([row | {"checksum": checksum_of(row)}], schema=TASK_ARROW_SCHEMA)
    with pytest.raises(accel.AccelError, match=said):
        accel.scan(iter([batch]), store=store(), cache=None).to_table()
