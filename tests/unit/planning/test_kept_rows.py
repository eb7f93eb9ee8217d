"""Rows kept as they were decoded: little, by themselves, and for exactly what was asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from accel.planning.kept_rows import KeptRows, rows_key
from accel.planning.selection import RowSelection
from tests.unit.planning.test_remembered import query

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})


class File:
    """Of a `TaskFile` what the key is made of."""

    def __init__(self, *, int96_unit: str = "ns", **asked: Any) -> None:
        self.query = query(None, **{"output": SCHEMA, "output_leaves": (0, 1), **asked})
        self.int96_unit = int96_unit


def key(*, row_group: int = 1, rows: Any = ((3, 4), (7, 9)), batch_rows: int = 100, **asked: Any) -> bytes:
    file: Any = File(**asked)
    return rows_key(file, row_group, RowSelection.of(rows), batch_rows=batch_rows)


def test_the_same_question_has_one_key() -> None:
    assert key() == key()
    constants = {"year": pa.scalar(2013, pa.int32()), "none": pa.scalar(None, pa.string())}
    assert key(output_constants=constants) == key(output_constants=dict(constants))


OTHERS: dict[str, dict[str, Any]] = {
    "row group": {"row_group": 2},
    "rows": {"rows": ((3, 4), (7, 10))},
    "rows, as many": {"rows": ((3, 5), (7, 8))},
    "none": {"rows": ()},
    "rows of a batch": {"batch_rows": 10},
    "unit": {"int96_unit": "us"},
    "columns": {"output": pa.schema({"a": pa.int64()}), "output_leaves": (0,)},
    "columns of one name": {"output_leaves": (0, 2)},
    "order": {"output": pa.schema({"b": pa.string(), "a": pa.int64()})},
    "type": {"output": pa.schema({"a": pa.int32(), "b": pa.string()})},
    "nullable": {"output": pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])},
    "metadata": {"output": SCHEMA.with_metadata({"k": "v"})},
    "metadata of a field": {
        "output": pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"}), ("b", pa.string())])
    },
    "value of the path": {"output_constants": {"year": pa.scalar(2013)}},
    "another value of it": {"output_constants": {"year": pa.scalar(2014)}},
    "its type": {"output_constants": {"year": pa.scalar(2013, pa.int32())}},
    "null": {"output_constants": {"year": pa.scalar(None, pa.int64())}},
}


def test_every_other_question_has_another() -> None:
    keys = [key(), *(key(**asked) for asked in OTHERS.values())]
    assert len(set(keys)) == 1 + len(OTHERS)


def batch(rows: int = 3, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch({"a": range(rows), "b": [text] * rows}, schema=SCHEMA)


def test_what_is_kept_is_what_comes_back() -> None:
    kept = KeptRows(1 << 20)
    assert kept.get(b"one") is None
    assert kept.keep(b"one", [batch(), batch(2)])
    assert kept.keep(b"none", [])
    assert kept.get(b"one") == (batch(), batch(2))
    assert kept.get(b"none") == ()
    assert kept.keep(b"one", [batch(1)])
    assert kept.get(b"one") == (batch(1),)


def test_no_more_is_kept_than_fits() -> None:
    kept = KeptRows(5000)
    for number in range(20):
        assert kept.keep(b"%d" % number, [batch()])
        kept.get(b"0")
    assert kept.nbytes <= 5000
    # What was asked for last stays.
    assert [number for number in range(20) if kept.get(b"%d" % number)][:1] == [0]
    assert kept.get(b"19") is not None
    assert kept.get(b"1") is None
    assert not KeptRows(600).keep(b"one", [batch()])
    assert not KeptRows(0).keep(b"one", [])


@pytest.mark.parametrize(
    ("batches", "outcome"),
    [
        ([batch(2000)], True),
        ([batch(2), batch(6000)], False),
        ([batch(1, "x" * 65_000)], True),
        ([batch(1, "x" * 66_000)], False),
        # It would hold all that it is a part of.
        ([batch(10_000).slice(3, 1)], False),
    ],
)
def test_neither_much_nor_a_part_of_much(batches: list[pa.RecordBatch], outcome: bool) -> None:
    kept = KeptRows(1 << 20)
    assert kept.keep(b"one", batches) is outcome
    assert (kept.get(b"one") is not None) is outcome
    assert (kept.nbytes > 0) is outcome
