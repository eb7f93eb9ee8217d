"""`order_by=` with a limit: the first rows in an order, exact, and the requests that they take."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.planning.row_order import SortKey, parse_order
from accel.testing import DictStore, FaultStore, Layout, RecordingStore, Status, table, write_file

CHANCE = random.Random(5)
KINDS: dict[str, list[Any]] = {
    "int": [-7, 0, 3, 2**40],
    "float": [-1.5, -0.0, 0.0, 2.25, math.nan, math.inf],
    "text": ["", "a", "ab", "é", "z" * 40, "\U0001f600"],
    "flag": [False, True],
    "day": [dt.date(1960, 1, 1), dt.date(2024, 2, 29)],
    "price": [decimal.Decimal("-1.50"), decimal.Decimal("7.25"), decimal.Decimal("99999.99")],
    "when": [dt.datetime(2020, 1, 1), dt.datetime(2026, 11, 28, 12)],
}
ROWS = 240


def rows_of(seed: int) -> pa.Table:
    chance = random.Random(seed)
    columns: dict[str, Any] = {
        name: [None if chance.random() < 0.1 else chance.choice(values) for _ in range(ROWS)]
        for name, values in KINDS.items()
    }
    at = sorted(chance.randrange(10**5) for _ in range(ROWS))
    return table(**columns, at=at, n=[chance.randrange(9) for _ in range(ROWS)]).append_column(
        "pair", pa.array([{"x": x, "y": str(x)} for x in at])
    )


TABLES = [rows_of(seed) for seed in range(3)]
LAYOUTS = {
    "pages": Layout(group_rows=80, page_rows=12),
    "no page index": Layout(group_rows=60, page_index=False),
    "no statistics": Layout(group_rows=120, page_rows=40, statistics=False, page_index=False),
}


def files_of(layout: str) -> dict[str, bytes]:
    return {f"d/k={at}/{at}.parquet": write_file(one, LAYOUTS[layout]) for at, one in enumerate(TABLES)}


FILES = {layout: files_of(layout) for layout in LAYOUTS}
EVERY = [row | {"k": at} for at, one in enumerate(TABLES) for row in one.to_pylist()]


def expected(order: str, limit: int, keep: Any) -> list[dict[str, Any]]:
    """The answer of Python's own stable sort."""
    rows = [row for row in EVERY if keep(row)]
    for key in reversed(parse_order(order)):
        values, nans, nulls = [], [], []
        for row in rows:
            value: Any = row
            for name in key.column.split("."):
                value = value[name]
            into = nulls if value is None else nans if repr(value) == "nan" else values
            into.append((value, row))
        values.sort(
            key=lambda one: one[0].encode() if isinstance(one[0], str) else one[0], reverse=key.descending
        )
        parts = [nulls, nans, values] if key.nulls_first else [values, nans, nulls]
        rows = [row for part in parts for _, row in part]
    return rows[:limit]


ORDERS = [
    *(f"{name}{way}" for name in KINDS for way in ("", " desc")),
    *("float nulls first", "text desc nulls first"),
    *("at", "at DESC", "n, at desc", "k desc", "k, at", "pair.x desc", "text, float desc, int nulls first"),
]


WHERES: list[tuple[str | None, Any]] = [
    (None, lambda row: True),
    ("n = 4 AND at > 2000", lambda row: row["n"] == 4 and row["at"] > 2000),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_rows_are_those_of_a_sort(order: str, layout: str) -> None:
    where, keep = CHANCE.choice(WHERES)
    limit = CHANCE.choice([1, 7, 50])
    scan = accel.scan("d/", where, order_by=order, limit=limit, store=DictStore(FILES[layout]), cache=None)
    assert repr(scan.to_pylist()) == repr(expected(order, limit, keep))


@pytest.mark.parametrize("limit", [0, 1, 719, 720, 5000])
def test_any_limit(limit: int) -> None:
    store = DictStore(FILES["pages"])
    found = accel.scan("d/", order_by="int desc", columns=["at", "k"], store=store, cache=None).head(limit)
    assert found.to_pylist() == [
        {"at": row["at"], "k": row["k"]} for row in expected("int desc", limit, lambda row: True)
    ]


def test_faces() -> None:
    scan = accel.scan(
        "d/", "n = 1", order_by=["text", ("at", "descending")], limit=9, store=DictStore(FILES["pages"]),
        options=accel.Options(batch_rows=4), columns=["pair", "file", "row"], file_path="file", row_number="row",
    )  # fmt: skip
    assert "order_by=text ASC, at DESC, limit=9" in repr(scan)
    rows = expected("text, at desc", 9, lambda row: row["n"] == 1)
    found = scan.to_table()
    assert found["pair"].to_pylist() == [row["pair"] for row in rows]
    assert found.schema == scan.schema
    for url, row, pair in zip(*(found[name].to_pylist() for name in ("file", "row", "pair")), strict=True):
        assert TABLES[int(url[4])]["pair"][row].as_py() == pair
    assert [batch.num_rows for batch in scan] == [4, 4, 1]
    assert scan.count_rows() == 9
    assert scan.to_reader().read_all() == found
    assert any("best bounds" in note for note in scan.explain().notes)
    assert (
        accel.scan("d/", "n = 77", order_by="at", limit=3, store=DictStore(FILES["pages"]))
        .to_table()
        .num_rows
        == 0
    )
    assert (
        accel.scan("d/", order_by="at", limit=3, columns=[], store=DictStore(FILES["pages"]))
        .to_table()
        .num_rows
        == 3
    )


def test_selected_rows() -> None:
    name = next(iter(FILES["pages"]))
    scan = accel.scan(
        "d/", order_by="at desc", limit=2, selection={name: {0: [(3, 8)]}}, store=DictStore(FILES["pages"])
    )
    assert scan.to_pylist() == [TABLES[0].to_pylist()[at] | {"k": 0} for at in (7, 6)]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("ts", [SortKey("ts")]),
        ("ts DESC NULLS FIRST , a.b asc", [SortKey("ts", descending=True, nulls_first=True), SortKey("a.b")]),
        ('"my, ""column""" desc', [SortKey('"my, ""column"""', descending=True)]),
        ([("x", "ascending"), "y nulls last"], [SortKey("x"), SortKey("y")]),
    ],
)
def test_what_an_order_is(order: Any, keys: list[SortKey]) -> None:
    assert parse_order(order) == tuple(keys)


@pytest.mark.parametrize(
    "order", ["", "a b", "a desc,", "a,,b", "a desc desc", ["a", 3], [("a", "down")], "a, a", 3, []]
)
def test_what_is_no_order(order: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="order_by"):
        parse_order(order)


def test_refusals() -> None:
    store = DictStore(FILES["pages"])
    with pytest.raises(ValueError, match="`order_by=` takes a `limit=`"):
        accel.scan("d/", order_by="at", store=store).to_table()
    with pytest.raises(accel.SchemaMismatchError, match="no order by column 'pair'"):
        accel.scan("d/", order_by="pair", limit=1, store=store).to_table()
    with pytest.raises(accel.ColumnNotFoundError, match="no column 'nothing'"):
        accel.scan("d/", order_by="nothing", limit=1, store=store).to_table()
    with pytest.raises(ValueError, match="order_by is for files"):
        accel.scan(accel.plan("d/", store=store), order_by="at", limit=1)
    with pytest.raises(ValueError, match="not aggregated"):
        accel.scan("d/", order_by="at", limit=1, store=store).aggregate([("at", "max")])


# -- what is read ------------------------------------------------------------------------------------

SORTED = {
    f"s/{at}.parquet": write_file(
        table(
            ts=list(range(at * 10_000, (at + 1) * 10_000)),
            user=[f"u{(row * 7919) % 100}" for row in range(10_000)],
            blob=[f"{row:060}" for row in range(10_000)],
        ),
        Layout(group_rows=2500, page_rows=250, dictionary=False, codec="none"),
    )
    for at in range(4)
}


def reads(store: RecordingStore) -> list[tuple[str, int]]:
    found = [(call.path, 0 if call.want is None else call.want.length) for call in store.calls]
    store.calls.clear()
    return found


def test_the_latest_ten_of_a_file() -> None:
    store = RecordingStore(DictStore(SORTED))
    scan = accel.scan("s/3.parquet", order_by="ts desc", limit=10, store=store)
    assert [row["ts"] for row in scan.to_pylist()] == list(range(39_999, 39_989, -1))
    # A page of the key, then the last page of each other column.
    _, keys, *rows = reads(store)
    assert keys[1] < 2_500
    assert [nbytes < limit for (_, nbytes), limit in zip(rows, (2_000, 17_000), strict=True)] == [True, True]
    assert scan.metrics.round_trips == 3
    assert scan.metrics.rows_out == 10


class Log(accel.FileSource):
    """A table whose log has the bounds of a column."""

    async def schema(self, request: Any) -> pa.Schema:
        return pa.schema([("ts", pa.int64()), ("user", pa.string()), ("blob", pa.string())])

    async def blocks(self, request: Any) -> Any:
        lower = pa.array([at * 10_000 for at in range(4)])
        upper = pa.array([at * 10_000 + 9_999 for at in range(4)])
        bounds = accel.ColumnBounds(lower=lower, upper=upper, null_count=pa.array([0] * 4))
        yield request.block(
            list(SORTED), bounds={"ts": bounds}, num_rows=pa.array([10_000] * 4), immutable=True
        )


@pytest.mark.parametrize(
    ("where", "order", "opened"),
    [
        (None, "ts desc", "s/3.parquet"),
        (None, "ts", "s/0.parquet"),
        ("user = 'u7'", "ts desc", "s/3.parquet"),
        ("ts < 20000", "ts desc", "s/1.parquet"),
    ],
)
def test_a_table_names_the_file(where: str | None, order: str, opened: str) -> None:
    store = RecordingStore(DictStore(SORTED))
    found = accel.scan(Log(), where, order_by=order, limit=10, store=store, cache=None).to_table()
    assert found.num_rows == 10
    assert {call.path for call in store.calls} == {opened}
    assert len(store.calls) <= 6


def test_pages_whose_bounds_are_no_better_stay_unread() -> None:
    chance = random.Random(9)
    values = [chance.random() for _ in range(40_000)]
    data = write_file(
        table(v=values, blob=["x" * 20] * 40_000), Layout(group_rows=20_000, page_rows=500, dictionary=False)
    )
    store = RecordingStore(DictStore({"f": data}))
    scan = accel.scan("f", order_by="v desc", limit=3, columns=["v"], store=store, cache=None)
    assert scan.to_table()["v"].to_pylist() == sorted(values, reverse=True)[:3]
    # Three pages of eighty hold them.
    assert len(reads(store)) == 1 + 1 + 3
    assert scan.metrics.round_trips == 4


def test_equal_rows_are_read_once() -> None:
    store = RecordingStore(
        DictStore({"f": write_file(table(c=[1] * 10_000), Layout(group_rows=1000, page_rows=100))})
    )
    scan = accel.scan("f", order_by="c", limit=5, row_number="row", store=store, cache=None)
    assert scan.to_table()["row"].to_pylist() == [0, 1, 2, 3, 4]
    assert len(reads(store)) <= 3


def test_the_catalog_names_the_file(tmp_path: Any) -> None:
    for name, data in SORTED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    accel.build_index(tmp_path / "s")
    scan = accel.scan(tmp_path / "s", order_by="ts desc", limit=3)
    assert scan.to_table()["ts"].to_pylist() == [39_999, 39_998, 39_997]
    # The first settles the schema.
    assert scan.metrics.files.kept <= 2


def test_a_file_that_changes_meanwhile_is_read_as_it_is() -> None:
    files = {"f": write_file(table(x=list(range(100))))}
    store = DictStore(files)
    cache = accel.Cache()
    scan = accel.scan("f", order_by="x desc", limit=1, store=store, cache=cache)
    assert scan.to_pylist() == [{"x": 99}]
    store.put("f", write_file(table(x=list(range(200)))))
    assert scan.to_pylist() == [{"x": 199}]


def test_errors_come_out_and_nothing_is_left() -> None:
    store = FaultStore(DictStore(SORTED), lambda attempt: Status(403) if "2" in attempt.path else None)
    scan = accel.scan("s/", order_by="ts desc", limit=10, store=store, cache=None)
    with scan, pytest.raises(accel.AccelError):
        scan.to_table()
