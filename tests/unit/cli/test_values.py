from __future__ import annotations

import csv
import datetime
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from accel.cli.output import CsvSink, JsonSink
from accel.cli.values import moment_texts, plain_values, safe_text, shown_values

STRUCT = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])
MAP = pa.map_(pa.string(), pa.int32())
BACKWARDS = pa.map_(pa.int32(), pa.date32())


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


CASES = [
    pytest.param(array([True, None], pa.bool_()), [True, None], ["true", None], id="bool"),
    pytest.param(array([2**63, None], pa.uint64()), [2**63, None], [str(2**63), None], id="uint64"),
    pytest.param(
        array([1.5, float("nan"), float("inf"), float("-inf"), None], pa.float64()),
        [1.5, "NaN", "Infinity", "-Infinity", None],
        ["1.5", "NaN", "Infinity", "-Infinity", None],
        id="float",
    ),
    pytest.param(
        array([Decimal("1.50"), Decimal("-0.00"), None], pa.decimal128(9, 2)),
        ["1.50", "0.00", None],
        ["1.50", "0.00", None],
        id="decimal",
    ),
    pytest.param(
        array([Decimal(10) ** 20], pa.decimal256(40, 0)),
        ["100000000000000000000"],
        ["100000000000000000000"],
        id="large decimal without exponent",
    ),
    pytest.param(array(["é", "", None], pa.string()), ["é", "", None], ["é", "", None], id="text"),
    pytest.param(array(["a\x1b[31m\n"], pa.string_view()), ["a\x1b[31m\n"], ["a\\x1b[31m\\n"], id="control"),
    pytest.param(array([b"\x00\xff", None], pa.binary()), ["AP8=", None], ["x'00ff'", None], id="binary"),
    pytest.param(array([b"ab"], pa.binary(2)), ["YWI="], ["x'6162'"], id="fixed binary"),
    pytest.param(
        array([datetime.date(2013, 1, 2), None], pa.date32()),
        ["2013-01-02", None],
        ["2013-01-02", None],
        id="date",
    ),
    pytest.param(array([1], pa.time64("ns")), ["00:00:00.000000001"], ["00:00:00.000000001"], id="time"),
    pytest.param(
        array([1, None], pa.timestamp("ns")),
        ["1970-01-01T00:00:00.000000001", None],
        ["1970-01-01 00:00:00.000000001", None],
        id="timestamp in nanoseconds",
    ),
    pytest.param(
        array([0], pa.timestamp("ms", "America/New_York")),
        ["1970-01-01T00:00:00.000Z"],
        ["1970-01-01 00:00:00.000Z"],
        id="timestamp with a zone",
    ),
    pytest.param(array([-5], pa.duration("ms")), ["-5ms"], ["-5ms"], id="duration"),
    pytest.param(
        array(["x", "y", "x"], pa.string()).dictionary_encode(), ["x", "y", "x"], ["x", "y", "x"], id="dict"
    ),
    pytest.param(array([None, None], pa.null()), [None, None], [None, None], id="null"),
    pytest.param(
        array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}], STRUCT),
        [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}],
        ['{"a": 1, "b": ["x", null]}', None, '{"a": null, "b": null}'],
        id="struct",
    ),
    pytest.param(
        array([[1, 2], [], None], pa.list_(pa.int8())), [[1, 2], [], None], ["[1, 2]", "[]", None], id="list"
    ),
    pytest.param(
        array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        [[1, 2], None, [3, 4]],
        ["[1, 2]", None, "[3, 4]"],
        id="fixed list",
    ),
    pytest.param(
        array([[("k", 1), ("l", None)], None, []], MAP),
        [{"k": 1, "l": None}, None, {}],
        ['{"k": 1, "l": null}', None, "{}"],
        id="map with text keys",
    ),
    pytest.param(
        array([[(7, datetime.date(1970, 1, 2))]], BACKWARDS),
        [[[7, "1970-01-02"]]],
        ['[[7, "1970-01-02"]]'],
        id="map",
    ),
    pytest.param(
        array([[("k", 1), ("k", 2)]], MAP),
        [[["k", 1], ["k", 2]]],
        ['[["k", 1], ["k", 2]]'],
        id="map, a key twice",
    ),
    pytest.param(
        pa.ExtensionArray.from_storage(pa.uuid(), array([uuid.UUID(int=5).bytes], pa.binary(16))),
        ["00000000-0000-0000-0000-000000000005"],
        ["00000000-0000-0000-0000-000000000005"],
        id="uuid",
    ),
]


@pytest.mark.parametrize(("values", "plain", "shown"), CASES)
def test_values_as_json_and_as_text(values: pa.Array, plain: list[Any], shown: list[str | None]) -> None:
    assert plain_values(values) == plain
    assert shown_values(values) == shown
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.parametrize(("values", "plain", "shown"), CASES)
def test_slices_are_their_part_of_the_whole(
    values: pa.Array, plain: list[Any], shown: list[str | None]
) -> None:
    padded = pa.concat_arrays([values, values, values])
    n = len(values)
    assert plain_values(padded.slice(n - 1, n + 1)) == [plain[-1], *plain]
    assert shown_values(padded.slice(n, n)) == shown
    assert plain_values(padded.slice(0, 0)) == []


def test_text_that_is_not_utf8() -> None:
    raw = pa.array([b"a\xff", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    assert plain_values(broken) == ["a�", None]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain é 漢", "plain é 漢"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\u202egnp", "\\u202egnp"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_nothing_reaches_the_terminal_that_could_steer_it(text: str, safe: str) -> None:
    assert safe_text(text) == safe


# A day has fewer microseconds than the last time but one has.
_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "tick", "text"),
    [
        (pa.date32(), 11_248_737, "32767-12-31"),
        (pa.date32(), 11_248_738, "<value out of range: 11248738>"),
        (pa.date64(), 2**60 // 86_400_000 * 86_400_000, "<value out of range: 1152921504528000000>"),
        (pa.timestamp("s"), 2**40, "<value out of range: 1099511627776>"),
        (pa.timestamp("us", "Europe/Berlin"), 2**62, f"<value out of range: {2**62}>"),
        (pa.timestamp("us", "Europe/Berlin"), 10**15, "2001-09-09 01:46:40.000000Z"),
        (pa.timestamp("us"), -(2**63), f"<value out of range: {-(2**63)}>"),
        (pa.time64("us"), _DAY_US - 1, "23:59:59.999999"),
        (pa.time64("us"), _DAY_US, "<value out of range: 86400000000>"),
        (pa.time32("s"), -5, "<value out of range: -5>"),
    ],
    ids=str,
)
def test_a_moment_as_text(kind: pa.DataType, tick: int, text: str) -> None:
    ticks = pa.array([7, None, tick, 0], pa.int32() if kind.bit_width == 32 else pa.int64())
    if kind == pa.date64():
        ticks = pa.array([0, None, tick, 0], pa.int64())
    array = ticks.view(kind)
    assert moment_texts(array)[:2] == moment_texts(array.slice(0, 2))
    assert moment_texts(array)[2] == text
    batch = pa.RecordBatch.from_arrays([array, pa.array(list("abcd"))], names=["m", "n"])
    out, lines = io.BytesIO(), io.BytesIO()
    CsvSink(out, batch.schema).write(batch)
    assert list(csv.reader(io.StringIO(out.getvalue().decode())))[3] == [text, "c"]
    JsonSink(lines, batch.schema).write(batch)
    assert json.loads(lines.getvalue().splitlines()[2]) == {
        "m": text if text[0] == "<" else text.replace(" ", "T"),
        "n": "c",
    }
