"""Expressions of pyarrow.compute select the rows that Arrow's own scanner selects, whatever the data."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import pickle
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.codec import decode, encode
from accel.predicate.where import to_expr
from accel.testing.stores import DictStore

ROWS = 400
ROUNDS = 40
EACH = 60
BUDGET = 25.0
"""Seconds after which no new round starts, on a machine that is busy."""

UTC = dt.UTC
_INTS = [-(2**63), -129, -1, 0, 1, 2, 3, 127, 128, 200, 2**31, 2**53, 2**53 + 1, 2**63 - 1]
_FLOATS = [float("nan"), -0.0, 0.0, 1.0, 1.5, -2.5, float("inf"), float("-inf"), 1e300, 0.1]
_TEXTS = ["", "a", "ab", "ab%", "a_b", "b\\", "é", "zz"]
_DECIMALS = [decimal.Decimal(text) for text in ("0.00", "1.00", "1.50", "-2.25", "99.99")]
_MOMENTS = [dt.datetime(2020, 1, day, hour) for day in (1, 2) for hour in (0, 5)]
_DAYS = [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(1969, 12, 31)]

POOLS = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "i32": (pa.int32(), [-5, 0, 1, 2, 200, 2**31 - 1]),
    "i64": (pa.int64(), _INTS),
    "u64": (pa.uint64(), [0, 1, 2, 2**63, 2**64 - 1]),
    "f64": (pa.float64(), _FLOATS),
    "f32": (pa.float32(), [float("nan"), -0.0, 0.0, 1.0, 1.5, float(np.float32(0.1)), float("inf")]),
    "text": (pa.string(), _TEXTS),
    "big": (pa.large_string(), _TEXTS),
    "bin": (pa.binary(), [text.encode() for text in _TEXTS]),
    "word": (pa.dictionary(pa.int32(), pa.string()), _TEXTS[:4]),
    "flag": (pa.bool_(), [True, False]),
    "dec": (pa.decimal128(9, 2), _DECIMALS),
    "naive": (pa.timestamp("us"), _MOMENTS),
    "zoned": (pa.timestamp("us", "Europe/Zurich"), [moment.replace(tzinfo=UTC) for moment in _MOMENTS]),
    "millis": (pa.timestamp("ms", "UTC"), [moment.replace(tzinfo=UTC) for moment in _MOMENTS]),
    "day": (pa.date32(), _DAYS),
    "clock": (pa.time64("us"), [dt.time(0), dt.time(12, 30), dt.time(23, 59)]),
}


def _column(rng: np.random.Generator, name: str) -> pa.Array:
    kind, pool = POOLS[name]
    few = [pool[at] for at in rng.choice(len(pool), size=max(1, len(pool) // int(rng.integers(1, 4))))]
    share = float(rng.choice([0.0, 0.2, 0.9]))
    values = [None if rng.random() < share else few[rng.integers(len(few))] for _ in range(ROWS)]
    if rng.random() < 0.5 and name not in ("f64", "f32"):
        values.sort(key=lambda value: (value is None, value))
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array(values, plain)
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else array


def _table(rng: np.random.Generator) -> pa.Table:
    columns = {name: _column(rng, name) for name in POOLS}
    gone = pa.array(rng.random(ROWS) < 0.2)
    columns["pair"] = pa.StructArray.from_arrays(
        [_column(rng, "i32"), _column(rng, "f64"), _column(rng, "text")], ["n", "x", "t"], mask=gone
    )
    columns["a.b"] = _column(rng, "i64")
    columns["list"] = pa.array([None if i % 3 == 0 else [i] for i in range(ROWS)], pa.list_(pa.int64()))
    return pa.table(columns)


NESTED = {("pair", "n"): "i32", ("pair", "x"): "f64", ("pair", "t"): "text", ("a.b",): "i64"}


class Maker:
    """Makes expressions at random; many make no sense, which both sides then refuse."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def any_of(self, things):
        return things[int(self.rng.integers(len(things)))]

    def field(self):
        if self.rng.random() < 0.25:
            path = self.any_of(list(NESTED))
            return pc.field(*path) if len(path) > 1 else pc.field(path[0]), NESTED[path]
        name = self.any_of(list(POOLS))
        return pc.field(name), name

    def scalar(self, name):
        kind, pool = POOLS[name if self.rng.random() < 0.85 else self.any_of(list(POOLS))]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        # pyarrow crashes where it compares a null large_string with a string.
        value = None if self.rng.random() < 0.04 and kind != pa.large_string() else self.any_of(pool)
        if (
            self.rng.random() < 0.3
            and isinstance(value, int | float | str)
            and value != 2**64 - 1
            and value != 2**63
        ):
            return pc.scalar(value)
        return pc.scalar(pa.scalar(value, kind))

    def expression(self, depth=0):
        if depth < 3 and self.rng.random() < 0.45:
            shape = self.any_of(["and", "or", "not"])
            left = self.expression(depth + 1)
            if shape == "not":
                return ~left
            right = self.expression(depth + 1)
            return left & right if shape == "and" else left | right
        return self.leaf()

    def compared(self, left, right):
        return self.any_of(
            [
                lambda: left == right,
                lambda: left != right,
                lambda: left < right,
                lambda: left <= right,
                lambda: left > right,
                lambda: left >= right,
            ]
        )()

    def leaf(self):
        field, name = self.field()
        kind, pool = POOLS[name]
        match self.any_of(
            ["compare"] * 6 + ["mirrored", "in", "null", "nan", "text", "cast", "pair", "sum", "flag", "list"]
        ):
            case "compare":
                return self.compared(field, self.scalar(name))
            case "mirrored":
                return self.compared(self.scalar(name), field)
            case "in":
                kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                values = [self.any_of(pool) for _ in range(int(self.rng.integers(0, 5)))]
                values += [None] if self.rng.random() < 0.3 else []
                if self.rng.random() < 0.3:
                    options = pc.SetLookupOptions(
                        pa.array(values, kind), skip_nulls=bool(self.rng.random() < 0.5)
                    )
                    return pc.Expression._call("is_in", [field], options)
                return field.isin(pa.array(values, kind))
            case "null":
                return self.any_of(
                    [
                        field.is_null(),
                        field.is_null(nan_is_null=True),
                        field.is_valid(),
                        pc.field("pair").is_null(),
                        pc.field("pair").is_valid(),
                    ]
                )
            case "nan":
                return pc.is_nan(field)
            case "text":
                text = self.any_of(_TEXTS)
                make = self.any_of([pc.starts_with, pc.ends_with, pc.match_substring, pc.match_like])
                return make(field, text, ignore_case=bool(self.rng.random() < 0.2))
            case "cast":
                to = self.any_of([pa.float64(), pa.int64(), pa.string(), pa.float32()])
                return self.compared(field.cast(to, safe=False), self.scalar(name))
            case "pair":
                return self.compared(field, self.field()[0])
            case "sum":
                return self.compared(field + self.field()[0], self.scalar(name))
            case "flag":
                return self.any_of([pc.field("flag"), pc.scalar(True), pc.scalar(False)])
            case _:
                return self.any_of([pc.field("list").is_null(), pc.list_value_length(pc.field("list")) > 0])


def _rows(table: pa.Table) -> str:
    # As text, in which NaN is NaN and -0.0 is not 0.0.
    return str(table["row"].to_pylist())


@pytest.mark.parametrize("seed", [7])
def test_the_rows_of_arrows_own_scanner(seed):
    rng = np.random.default_rng(seed)
    end = time.monotonic() + BUDGET
    compared = refused = 0
    for _ in range(ROUNDS):
        if time.monotonic() > end:
            break
        table = _table(rng).append_column("row", pa.array(range(ROWS)))
        sink = io.BytesIO()
        pq.write_table(
            table, sink, row_group_size=100, write_page_index=True, data_page_size=64, write_batch_size=16
        )
        store = DictStore({"t.parquet": sink.getvalue()})
        # In memory: Arrow's own reading of Parquet prunes by statistics that leave NaN out.
        oracle = ds.dataset(table)
        maker = Maker(rng)
        for _ in range(EACH):
            expression = maker.expression()
            try:
                expected = oracle.to_table(columns=["row"], filter=expression)
            except (pa.ArrowException, ValueError, TypeError):
                expected = None
            where = to_expr(expression)
            assert decode(encode(where)) == where
            try:
                found = accel.scan(
                    "t.parquet", expression, columns=["row"], store=store, cache=None
                ).to_table()
            except accel.AccelError:
                assert expected is None, expression
                refused += 1
                continue
            if expected is not None:
                assert _rows(found) == _rows(expected), expression
                compared += 1
                if compared % 20 == 0:
                    scan = accel.scan("t.parquet", expression, store=store, cache=None)
                    assert scan.count_rows() == expected.num_rows, expression
                    plan = accel.plan("t.parquet", expression, columns=["row"], store=store, cache=None)
                    again = accel.scan(pickle.loads(pickle.dumps(plan)), store=store, cache=None).to_table()
                    assert _rows(again) == _rows(expected), expression
    print(compared, refused)
    assert compared > 200
