"""An index of the caller's own: what it is told of a predicate, and what comes of the files and rows that it
names."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS = 100


def part(first: int) -> bytes:
    k = pa.array(range(first, first + ROWS), pa.int64())
    return write_file(
        table(k=k, s=pa.array([f"s{x}" for x in k.to_pylist()])), Layout(group_rows=50, page_rows=10)
    )


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore({f"t/{at}.parquet": part(at * ROWS) for at in range(5)}))


class Names:
    """Yields what it was made with, and notes what it was asked."""

    def __init__(self, *found: Any) -> None:
        self.found = found
        self.asked: list[tuple[accel.PredicateView, Sequence[str] | None]] = []

    def files(self, predicate: accel.PredicateView, columns: Sequence[str] | None) -> Iterator[Any]:
        self.asked.append((predicate, columns))
        yield from self.found


class Awaited(Names):
    async def files(  # type: ignore[override]
        self, predicate: accel.PredicateView, columns: Sequence[str] | None
    ) -> AsyncIterator[Any]:
        self.asked.append((predicate, columns))
        for one in self.found:
            yield [one]


class Returned(Names):
    def files(self, predicate: accel.PredicateView, columns: Sequence[str] | None) -> Any:
        self.asked.append((predicate, columns))
        return list(self.found)


def keys(store: object, index: Any, where: str | None = None, **given: Any) -> list[int]:
    scan = accel.scan("t/", where, columns=["k"], index=index, store=store, cache=None, **given)
    return scan.to_table()["k"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [Names, Awaited, Returned])
def test_the_files_it_names_are_read_in_its_order(store: RecordingStore, kind: type[Names]) -> None:
    index = kind("3.parquet", accel.IndexedFile("1.parquet"))
    assert keys(store, index, "k >= 0") == [*range(300, 400), *range(100, 200)]
    assert {call.path for call in store.calls} == {"t/1.parquet", "t/3.parquet"}
    ((predicate, columns),) = index.asked
    assert (str(predicate), columns) == ("k >= 0", ("k",))


def test_rows_that_it_leaves_out_are_not_read(store: RecordingStore) -> None:
    index = Names(accel.IndexedFile("2.parquet", rows={0: [(3, 5)], 1: [(0, 1)]}), "4.parquet")
    assert keys(store, index, "k < 420") == [203, 204, 250, *range(400, 420)]
    scan = accel.scan("t/", "k < 420", index=index, store=store, cache=None)
    assert scan.count_rows() == 23


def test_rows_are_of_the_version_that_it_names(store: RecordingStore) -> None:
    body, etag = store.inner.objects["t/0.parquet"], store.inner.etags["t/0.parquet"]
    mine = accel.IndexedFile("0.parquet", size=len(body), etag=etag, rows={0: [(7, 8)]})
    assert keys(store, Names(mine), "k >= 0") == [7]
    store.inner.put("t/0.parquet", part(1000))
    assert keys(store, Names(mine), "k >= 0") == list(range(1000, 1100))


def test_no_file_is_no_row_of_the_schema_that_files_have(store: RecordingStore) -> None:
    found = accel.scan("t/", "k = 7", index=Names(), store=store, cache=None).to_table()
    assert (found.num_rows, found.schema.names) == (0, ["k", "s"])


def test_what_is_no_file_is_refused(store: RecordingStore) -> None:
    with pytest.raises(TypeError, match="names files as text or accel.IndexedFile"):
        keys(store, Names([7]), "k = 7")


def test_what_it_raises_comes_out(store: RecordingStore) -> None:
    class Broken:
        def files(self, predicate: accel.PredicateView, columns: Sequence[str] | None) -> Any:
            raise KeyError("no such shard")

    with pytest.raises(KeyError, match="no such shard"):
        keys(store, Broken(), "k = 7")


class Seen:
    """Takes the predicate that an index is given."""

    predicate: accel.PredicateView

    def files(self, predicate: accel.PredicateView, columns: Sequence[str] | None) -> list[str]:
        self.predicate = predicate
        return ["0.parquet"]


def predicate(where: Any) -> accel.PredicateView:
    index, store = Seen(), DictStore({"t/0.parquet": part(0)})
    with suppress(accel.AccelError):  # the file has no such columns: the index was asked before
        accel.scan("t/", where, index=index, store=store, cache=None).to_table()
    return index.predicate


def test_the_comparisons_of_a_predicate() -> None:
    found = predicate(
        "a >= 3 AND 7 > a AND b IN ('x', 'y', NULL) AND c LIKE '%z%' AND (d = 1 OR d = 2) AND e IS NULL"
    )
    assert [tuple(one) for one in found.tests()] == [
        ("a", ">=", 3),
        ("a", "<", 7),
        ("b", "IN", ["x", "y"]),
        ("c", "LIKE", "%z%"),
        ("d", "IN", [1, 2]) if found.tests("d") else ("e", "IS NULL", None),
        *([("e", "IS NULL", None)] if found.tests("d") else []),
    ]
    assert found.range("a") == (3, 7)
    assert found.range("c") == (None, None)
    assert found.values("b") == ["x", "y"]
    assert found.values("a") is None
    assert set(found.columns) == {"a", "b", "c", "d", "e"}


@pytest.mark.parametrize(
    ("where", "bounds", "may"),
    [
        ("a = 5", {"a": (6, 9)}, False),
        ("a = 5", {"a": (5, 9)}, True),
        ("a = 5", {"a": (None, 4)}, False),
        ("a = 5", {}, True),
        ("a = 5 AND b = 1", {"b": (2, 3)}, False),
        ("a = 5 OR b = 1", {"b": (2, 3)}, True),
        ("NOT a = 5", {"a": (5, 5)}, False),
        ("a > 2.5", {"a": (0, 2)}, False),
        ("a > 2.5", {"a": (0.0, 2.0)}, True),  # NaN is above every number
        ("s LIKE 'ab%'", {"s": ("ac", "zz")}, False),
        ("s = 'q'", {"s": (7, 9)}, True),  # not comparable: it cannot be said
        ("t >= '2020-01-02'", {"t": (datetime.date(2019, 1, 1), datetime.date(2020, 1, 1))}, False),
        ("t >= '2020-01-01 12:00:00'", {"t": (None, datetime.datetime(2020, 1, 1, 13))}, True),
        ("d < 1.25", {"d": (decimal.Decimal("1.25"), decimal.Decimal("3.5"))}, False),
        ("a IS NULL", {"a": (1, 2)}, True),
    ],
)
def test_whether_bounds_may_match(where: str, bounds: dict[str, tuple[Any, Any]], may: bool) -> None:
    assert predicate(where).may_match(bounds) is may


def test_without_nulls_is_null_matches_nothing() -> None:
    assert predicate("a IS NULL").may_match({"a": (1, 2)}, nulls=False) is False
