"""`explain` of `order_by=` with a limit: what is read first, and when reading stops."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cli.main import main
from accel.planning.ordered_reads import FirstRead, OrderedReads
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

DAY = dt.datetime(2024, 1, 1)
ROWS = 1000
FILES = {
    f"d/{at}.parquet": write_file(
        table(
            ts=[DAY + dt.timedelta(days=30 * at, minutes=row) for row in range(ROWS)],
            user=[f"u{row % 7}" for row in range(ROWS)],
            price=[None if row % 10 == 3 else row / 4 for row in range(ROWS)],
        ),
        Layout(group_rows=500, page_rows=100),
    )
    for at in range(3)
}


def explained(
    order: str | None, limit: int | None = 10, where: str | None = None, **more: Any
) -> accel.Explain:
    store = more.pop("store", None) or DictStore(FILES)
    source = more.pop("source", "d/")
    return accel.scan(source, where, order_by=order, limit=limit, store=store, cache=None, **more).explain()


def test_what_is_read_first_and_how_far_it_goes() -> None:
    assert explained("ts desc, user").order == OrderedReads(
        order=("ts DESC", "user ASC"),
        limit=10,
        files=(3, 3),
        first=(
            FirstRead(
                file="d/2.parquet",
                row_group=1,
                rows=(900, 1000),
                bound="ts <= TIMESTAMP '2024-03-01 16:39:00'",
            ),
        ),
        first_parts=1,
        left_parts=1,
        bound="ts >= TIMESTAMP '2024-03-01 15:00:00'",
    )


def test_without_counts_nothing_says_how_far_it_goes() -> None:
    found = explained("ts", where="user = 'u3'").order
    assert found is not None
    assert [(one.file, one.rows) for one in found.first] == [("d/0.parquet", (0, 100))]
    # Four pages of the same row group, and the five other row groups.
    assert (found.first_parts, found.left_parts, found.bound) == (1, 1 + 4 + 5, None)


@pytest.mark.parametrize(
    ("order", "limit", "lines"),
    [
        (
            "ts desc",
            200,
            [
                "order      ts DESC; the first 200",
                "  opened   3 files, to look at the statistics",
                "  read     d/2.parquet, row group 1, rows 900 to 999: ts <= TIMESTAMP '2024-03-01 16:39:00'",
                "           d/2.parquet, row group 1, rows 800 to 899: ts <= TIMESTAMP '2024-03-01 14:59:00'",
                "  stops    when no part that is left can hold one of these rows: they have ts >= TIMESTAMP '2024-03-01 13:20:00'",
            ],
        ),
        (
            "price desc nulls first",
            1,
            [
                "order      price DESC NULLS FIRST; the first 1",
                "  opened   3 files, to look at the statistics",
                "  read     d/0.parquet, row group 0, rows 0 to 99: price is null or NaN, or may be",
                "  then     9 other parts at most, the best bounds first",
                "  stops    when no part that is left can hold one of these rows: they have price >= 125.0, or are null or NaN",
            ],
        ),
        ("ts", 0, ["order      ts ASC; no row is wanted, and none read"]),
    ],
)  # fmt: skip
def test_as_text(order: str, limit: int, lines: list[str]) -> None:
    text = str(explained(order, limit))
    told = text[text.index("order  ") : text.index("requests  ")].splitlines()
    assert told == lines


def test_a_picture_says_that_it_shows_all_that_may_be_read() -> None:
    page = explained("ts desc").to_html()
    assert "All that may be read is drawn as read" in page
    assert page.index("order      ts DESC; the first 10") < page.index("Pages, by file and column")
    assert "drawn as read" not in explained(None).to_html()


def test_no_order_or_no_number_of_rows() -> None:
    assert explained(None).order is None
    without = explained("ts", None)
    assert without.order is None
    assert any("best bounds" in note for note in without.notes)


def test_nothing_is_cut_by_the_limit_that_may_be_read() -> None:
    # The rows may be in any file, so the bytes are not those of the first ten rows of the first file.
    ordered, whole = explained("user desc, ts"), explained(None, None)
    assert ordered.bytes["data"] == whole.bytes["data"]


class Log(accel.FileSource):
    """A table whose log has the bounds of a column."""

    async def schema(self, request: Any) -> pa.Schema:
        return pa.schema([("ts", pa.timestamp("us")), ("user", pa.string()), ("price", pa.float64())])

    async def blocks(self, request: Any) -> Any:
        first = [DAY + dt.timedelta(days=30 * at) for at in range(3)]
        last = [one + dt.timedelta(minutes=ROWS - 1) for one in first]
        kind = pa.timestamp("us")
        bounds = accel.ColumnBounds(
            lower=pa.array(first, kind), upper=pa.array(last, kind), null_count=pa.array([0] * 3)
        )
        yield request.block(list(FILES), bounds={"ts": bounds}, num_rows=pa.array([ROWS] * 3), immutable=True)


def test_bounds_that_are_known_name_the_files_to_open() -> None:
    store = RecordingStore(DictStore(FILES))
    scan = accel.scan(Log(), order_by="ts desc", limit=10, store=store, cache=None)
    found = scan.explain().order
    assert found is not None
    assert found.files == (1, 3)
    assert "opened   1 of 3 files before rows are read: their bounds are the best" in "\n".join(found.lines())
    store.calls.clear()
    assert scan.to_table().num_rows == 10
    assert {call.path for call in store.calls} == {one.file for one in found.first}


def test_bounds_of_any_type() -> None:
    kinds = {
        "flag": pa.array([False, True] * 50),
        "raw": pa.array([bytes([at, 255]) for at in range(100)]),
        "long": pa.array([f"{at:03}" * 40 for at in range(100)]),
        "price": pa.array(list(range(100)), pa.int32()).cast(pa.decimal128(12, 2)),
        "day": pa.array(list(range(100)), pa.int32()).cast(pa.date32()),
        "when": pa.array(list(range(100)), pa.int64()).cast(pa.timestamp("ns", "UTC")),
        "clock": pa.array(list(range(100)), pa.int64()).cast(pa.time64("us")),
        "word": pa.array(["a", "b"] * 50).dictionary_encode(),
        "nothing": pa.nulls(100, pa.int32()),
    }
    store = DictStore({"f": write_file(pa.table(kinds), Layout(page_rows=100))})
    found = {}
    for name in kinds:
        order = explained(name, 1, store=store, source="f").order
        assert order is not None
        found[name] = order.first[0].bound
    assert found == {
        "flag": "flag >= FALSE",
        "raw": "raw >= X'00ff'",
        "long": "long >= '" + "000" * 18 + "00...",
        "price": "price >= 0E0",
        "day": "day >= DATE '1970-01-01'",
        "when": "when >= TIMESTAMP '1970-01-01 00:00:00+00:00'",
        "clock": "clock >= TIME '00:00:00'",
        "word": "word >= 'a'",
        "nothing": "nothing is null or NaN, or may be",
    }


def test_on_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(FILES["d/1.parquet"])
    assert main(["explain", str(path), "--order-by", "ts desc", "--limit", "10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["order"]
    order = accel.scan(str(path), order_by="ts desc", limit=10).explain().order
    assert order is not None
    assert told == json.loads(json.dumps(dataclasses.asdict(order)))
    assert main(["explain", str(path), "--aggregate", "count_all"]) == 0
    assert "rows answered from metadata" in capsys.readouterr().out
    assert main(["explain", str(path), "--limit", "3"]) == 0
    assert "limit 3: reading stops" in capsys.readouterr().out
