"""INT96 timestamps beyond the years of nanoseconds: refused with their place, never another instant."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore

US = pa.timestamp("us")
LAST, FIRST, NOW = (
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1, 1, 1),
    dt.datetime(2020, 5, 1),
)
EDGES = [dt.datetime(1677, 9, 21, 0, 12, 44), dt.datetime(2262, 4, 11, 23, 47, 16)]


def store_of(values: list[Any], kind: pa.DataType = US, **options: Any) -> DictStore:
    sink = pa.BufferOutputStream()
    rows = pa.table({"i": range(len(values)), "ts": pa.array(values, kind)})
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True, **options)
    return DictStore({"f.parquet": sink.getvalue().to_pybytes()})


def ask(store: DictStore, where: str | None = None, **keywords: Any) -> dict[str, list[Any]]:
    return accel.scan("f.parquet", where, store=store, cache=None, **keywords).to_table().to_pydict()


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [(LAST, "9999-12-31T23:59:59.999"), (FIRST, "0001-01-01T00:00:00.000")],
    ids=["the last", "the first"],
)
def test_what_nanoseconds_cannot_tell_is_refused(value: dt.datetime, shown: str, dictionary: bool) -> None:
    store = store_of([NOW, None, value], use_dictionary=dictionary)
    for keywords in ({}, {"where": "ts < '1850-01-01'"}, {"where": "ts > '2100-01-01'"}):
        with pytest.raises(accel.SchemaMismatchError) as caught:
            ask(store, **keywords)
        assert str(caught.value) == (
            f"f.parquet, row group 0, column ts: {shown}, stored as INT96, does not fit in timestamp[ns] (leave "
            "the column out with columns=, or write it with 64-bit timestamps)"
        )
    # Neither other rows nor other columns mind.
    assert ask(store, selection={"f.parquet": {0: [(0, 2)]}})["ts"] == [NOW, None]
    assert ask(store, columns=["i"]) == {"i": [0, 1, 2]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(US), [NOW, LAST]),
        (pa.large_list(US), [LAST]),
        (pa.struct([("x", pa.int64()), ("at", US)]), {"x": 1, "at": LAST}),
        (pa.map_(pa.string(), US), [("a", LAST)]),
        (pa.list_(pa.struct([("at", pa.list_(US))])), [{"at": None}, {"at": [LAST]}]),
    ],
    ids=["list", "large list", "struct", "map", "nested twice"],
)
def test_at_any_depth(kind: pa.DataType, value: Any) -> None:
    store = store_of([None, value], kind)
    with pytest.raises(accel.SchemaMismatchError, match=r"9999-12-31T23:59:59.999, stored as INT96"):
        ask(store)


def test_all_that_nanoseconds_can_tell_comes_out() -> None:
    values = [*EDGES, NOW, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
    assert ask(store_of(values))["ts"] == values
    assert ask(store_of([[NOW], [], None, [None, *EDGES]], pa.list_(US)))["ts"] == [
        [NOW],
        [],
        None,
        [None, *EDGES],
    ]
