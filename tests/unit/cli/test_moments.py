"""Dates and times that Arrow has no text for."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest

from accel.cli.output import CsvSink, JsonSink
from accel.cli.values import moment_texts, tellable

_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "tick", "text"),
    [
        (pa.date32(), 11_248_737, "32767-12-31"),
        (pa.date32(), 11_248_738, "32768-01-01"),
        (pa.date32(), -(2**31), "-5877641-06-23"),
        (pa.date64(), 2**60 // 86_400_000 * 86_400_000, "36536598-01-28"),
        (pa.timestamp("s"), 2**40, "36812-02-20 00:36:16"),
        (pa.timestamp("us"), 2**62, "148108-07-06 14:00:27.387904"),
        (pa.timestamp("us", "Europe/Berlin"), 2**62, "148108-07-06 14:00:27.387904Z"),
        (pa.timestamp("us"), -(2**63), "-9223372036854775808us"),
        (pa.time64("us"), _DAY_US - 1, "23:59:59.999999"),
        (pa.time64("us"), _DAY_US, "86400000000us"),
        (pa.time32("s"), -5, "-5s"),
    ],
    ids=str,
)
def test_a_moment_as_text(kind: pa.DataType, tick: int, text: str) -> None:
    ticks = pa.array([7, None, tick, 0], pa.int32() if kind.bit_width == 32 else pa.int64())
    if kind == pa.date64():
        ticks = pa.array([0, None, tick, 0], pa.int64())
    array = ticks.view(kind)
    few = array.slice(0, 2)
    assert tellable(few) and tellable(array.slice(0, 0))
    assert moment_texts(array)[:2] == moment_texts(few)
    assert moment_texts(array)[2] == text
    batch = pa.RecordBatch.from_arrays([array, pa.array(list("abcd"))], names=["m", "n"])
    out, lines = io.BytesIO(), io.BytesIO()
    CsvSink(out, batch.schema).write(batch)
    assert list(csv.reader(io.StringIO(out.getvalue().decode())))[3] == [text, "c"]
    JsonSink(lines, batch.schema).write(batch)
    assert json.loads(lines.getvalue().splitlines()[2]) == {"m": text.replace(" ", "T"), "n": "c"}
