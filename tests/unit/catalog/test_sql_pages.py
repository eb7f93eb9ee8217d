"""Tables in pages: what the keys of pages promise, and that an answer which lacks a page is noticed."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.homes import sql_pages
from accel.catalog.homes.sql_pages import Layout, Page, Part, check_range, cut_table, page_rows
from accel.catalog.intervals import HIGHEST, LOWEST, Interval, required_intervals
from accel.catalog.kinds.kind import TableRows
from accel.predicate.bind import bind
from accel.predicate.parser import parse

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
    ]
)


def intervals(where: str) -> dict[str, list[Interval]]:
    bound = bind(parse(where), SCHEMA)
    found = required_intervals(bound)
    return {bound.columns[at].path[0]: list(some) for at, some in found.items()}


def number(value: float) -> bytes:
    (found,) = intervals(f"d = {value}")["d"]
    assert found.lower == found.upper
    return found.lower


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i = 7", {"i": [(7, 7)]}),
        ("i = 7.0", {"i": [(7, 7)]}),
        ("7 = i AND t IS NULL", {"i": [(7, 7)]}),
        ("i <= 7", {"i": [(None, 7)]}),
        ("i > 7", {"i": [(8, None)]}),
        ("i >= 7", {"i": [(7, None)]}),
        ("i BETWEEN 3 AND 9", {"i": [(3, 9)]}),
        ("i > 3 AND i < 9 AND i > 5", {"i": [(6, 8)]}),
        ("i IN (1, 5, 50)", {"i": [(1, 1), (5, 5), (50, 50)]}),
        ("i IN (1, 5, 50) AND i >= 4", {"i": [(5, 5), (50, 50)]}),
        ("i = 7 AND i = 8", {"i": []}),
        ("d = 1.5 AND i < 0", {"d": [(1.5, 1.5)], "i": [(None, -1)]}),
        # NaN is above every number: what has no upper end may match it, whatever the bounds are.
        ("f > 7", {}),
        ("f = DOUBLE 'NaN'", {}),
        ("f <= 7", {"f": [(None, 7)]}),
        ("f > 3 AND f < 7", {"f": [(3, 7)]}),
        ("i = 7 OR i = 8 OR t = 'x'", {}),
        ("NOT (i = 7)", {}),
        ("i IS NULL", {}),
        ("i <> 7", {}),
    ],
)
def test_intervals_that_every_matching_row_lies_in(where: str, expected: dict[str, Any]) -> None:
    wanted = {
        name: [
            Interval(LOWEST if low is None else number(low), HIGHEST if high is None else number(high))
            for low, high in some
        ]
        for name, some in expected.items()
    }
    assert intervals(where) == wanted


def test_intervals_of_text_and_of_truth_values() -> None:
    assert intervals("t = 'abc'") == {"t": [Interval(b"abc", b"abc")]}
    assert intervals("t LIKE 'ab%'") == {"t": [Interval(b"ab", b"ac")]}
    assert intervals("t LIKE '%ab'") == {}
    assert intervals("b") == {"b": [Interval(b"\1", b"\1")]}
    long = "x" * 100
    (found,) = intervals(f"t = '{long}'")["t"]
    assert found == Interval(b"x" * 64, b"x" * 63 + b"y")


def test_many_keys_are_taken_together() -> None:
    (found,) = intervals(f"i IN ({', '.join(map(str, range(0, 5000, 5)))})").values()
    assert len(found) <= 32
    assert (found[0].lower, found[-1].upper) == (number(0), number(4995))


# -- pages -------------------------------------------------------------------------------------------


def bounds_table(ends: list[tuple[int | None, int | None, bool]]) -> pa.Table:
    """Bounds of one column of files; the third says that the column of the file is all null."""
    from accel.catalog.describing import BOUNDS_ORDER, BOUNDS_SCHEMA

    rows = [
        {
            "column": "i",
            "family": "integer",
            "row_group": -1,
            "file": at,
            "lower": None if low is None else number(low),
            "upper": None if high is None else number(high),
            "null_count": 9 if empty else 0,
            "nan_count": 0,
            "num_rows": 9,
        }
        for at, (low, high, empty) in enumerate(ends)
    ]
    return pa.Table.from_pylist(rows, schema=BOUNDS_SCHEMA).sort_by(BOUNDS_ORDER)


def cut(table: pa.Table, num_files: int) -> tuple[Layout, list[Page]]:
    found = cut_table("bounds", "bounds-x", TableRows.of(table), num_files=num_files, spool=io.BytesIO())
    return Layout.decode(found.layout.encode()), list(found.pages())


def found_for(pages: list[Page], interval: Interval, last: int) -> list[Page]:
    """What the database returns: see `Tables.in_range`."""
    before = [page.number for page in pages if page.reach is not None and page.reach < interval.lower]
    behind = [page.number for page in pages if page.floor is not None and page.floor > interval.upper]
    first = max(before, default=0)
    end = max(first, min(behind, default=last))
    return [
        page
        if page.floor <= interval.upper and page.most >= interval.lower  # type: ignore[operator]
        else replace(page, content=None)
        for page in pages
        if first <= page.number <= end
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_pages, "BOUNDS_ROWS", 3)
    monkeypatch.setattr(sql_pages, "FEW_PAGES", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("empty", [0.1, 0.9, 1])
@pytest.mark.parametrize("seed", range(8))
def test_pages_of_an_interval_hold_all_files_that_may_match(seed: int, empty: float) -> None:
    r = random.Random(seed)
    ends: list[tuple[int | None, int | None, bool]] = []
    for _ in range(r.choice([10, 40, 100])):
        low = r.randrange(100)
        high = low + r.choice([0, 1, 5, 100])
        ends.append(
            (None, None, True)
            if r.random() < empty
            else (None if r.random() < 0.1 else low, None if r.random() < 0.1 else high, False)
        )
    layout, pages = cut(bounds_table(ends), len(ends) + 2)
    (part,) = layout.parts
    assert part.keyed
    for page in pages:
        page.check("bounds-x")
    for _ in range(40):
        low = r.randrange(-5, 110)
        high = low + r.choice([0, 3, 30])
        interval = Interval(number(low), number(high))
        found = found_for(pages, interval, part.num_pages - 1)
        left = check_range(found, part, interval)
        files = {
            file for page in left for file in page_rows(page, part, layout.schema).column("file").to_pylist()
        }
        may = {
            at
            for at, (lower, upper, none) in enumerate(ends)
            if not none and (lower is None or lower <= high) and (upper is None or upper >= low)
        }
        assert may <= files
        # Whatever page is not there is missed where it counts; no page that is there too many does harm.
        for lost in found:
            rest = [page for page in found if page is not lost]
            try:
                kept = check_range(rest, part, interval)
            except accel.IndexFormatError:
                continue
            assert kept == left


@pytest.mark.usefixtures("small")
def test_a_changed_page_breaks_its_seal() -> None:
    layout, pages = cut(bounds_table([(at, at + 1, False) for at in range(20)]), 20)
    page = pages[3]
    page.check("bounds-x")
    assert page.content is not None and page.floor is not None
    changes: list[dict[str, Any]] = [
        {"part": 1},
        {"number": 4},
        {"floor": b""},
        {"reach": pages[5].reach},
        {"most": None},
        {"digest": pages[4].digest},
        {"seal": b"12345678"},
        {"content": page.content[:-1] + bytes([page.content[-1] ^ 1])},
        {"content": pages[4].content},
    ]
    for change in changes:
        with pytest.raises(accel.IndexFormatError, match="damaged"):
            replace(page, **change).check("bounds-x")
    with pytest.raises(accel.IndexFormatError, match="damaged"):
        page.check("bounds-y")
    assert layout.parts[0].num_pages == 7


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b'{"schema": "00", "parts": [], "version": 1}', b'{"version": 2}']
)
def test_what_is_no_layout_is_refused(data: bytes) -> None:
    with pytest.raises(accel.IndexFormatError):
        Layout.decode(data)


@pytest.mark.parametrize("rows", [0, -1, 1 << 17, 1 << 53])
def test_pages_of_as_many_rows_as_nobody_writes_are_refused(rows: int) -> None:
    layout = Layout(SCHEMA, (Part(tuple(SCHEMA.names), 1 << 40, rows),))
    with pytest.raises(accel.IndexFormatError, match="page has"):
        Layout.decode(layout.encode())


def packed(batch: pa.RecordBatch, *, claims: int | None = None, compression: str | None = None) -> Page:
    """A page of these rows, which claims a length of its own, or whose buffers are compressed."""
    raw = batch.serialize()
    if compression is not None:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        _, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
        raw = message.serialize()
    content = pa.Codec("zstd").compress(raw, asbytes=True)
    head = (raw.size if claims is None else claims).to_bytes(4, "little")
    return Page(0, 0, None, None, None, b"", b"", head + content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claims": (1 << 32) - 1}, "claims 4294967295 bytes"),
        ({"compression": "zstd"}, "compressed in a way"),
        ({"compression": "lz4"}, "compressed in a way"),
    ],
    ids=["length", "zstd", "lz4"],
)
def test_a_page_takes_no_more_memory_than_its_content_stands_for(change: Any, message: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(np.zeros(1 << 16, np.int64))], names=["x"])
    part = Part(("x",), 1 << 16, 1 << 16)
    assert page_rows(packed(batch), part, batch.schema).equals(batch)
    page = packed(batch, **change)
    before = pa.total_allocated_bytes()
    with pytest.raises(accel.IndexFormatError, match=message):
        page_rows(page, part, batch.schema)
    assert pa.total_allocated_bytes() - before < 1 << 16


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"\5\0\0\0hello", b"\0\0\0\0" + b"\xff" * 40])
def test_content_that_is_no_page_is_refused(content: bytes) -> None:
    page = Page(0, 0, None, None, None, b"", b"", content)
    with pytest.raises(accel.IndexFormatError):
        page_rows(page, Part(("i",), 1, 1), SCHEMA)


def test_rows_of_another_number_are_refused() -> None:
    layout, pages = cut(bounds_table([(1, 2, False), (3, 4, False)]), 2)
    (part,) = layout.parts
    assert page_rows(pages[0], part, layout.schema).num_rows == 2
    with pytest.raises(accel.IndexFormatError, match="rows"):
        page_rows(pages[0], Part(part.columns, 3, 128), layout.schema)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(np.arange(9_000)),
        pa.array([f"key {at:05}" * 9 for at in range(9_000)]),
        pa.array([*range(8_000), *[None] * 1_000], pa.int32()),
        pa.array([*np.arange(8_000) / 7, *[float("nan")] * 1_000]),
        pa.array([True, False] * 4_500),
    ],
    ids=["integers", "long text", "nulls", "NaN", "booleans"],
)
def test_tables_of_other_kinds_are_found_by_their_first_column(values: pa.Array) -> None:
    table = pa.table({"value": values, "place": pa.array(np.arange(len(values)))})
    # In batches of any size.
    rows = TableRows(table.to_reader(max_chunksize=777), len(table))
    found = cut_table("keys k", "keys-x", rows, num_files=1, spool=io.BytesIO())
    layout, pages = found.layout, list(found.pages())
    assert found.size == sum(len(page.content or b"") for page in pages)
    (part,) = layout.parts
    assert part.keyed
    assert part.num_pages == len(pages) == 9
    back = pa.Table.from_batches([page_rows(page, part, layout.schema) for page in pages])
    assert repr(back.to_pylist()) == repr(table.to_pylist())
    with pytest.raises(accel.AccelError, match="9000 of 9001 rows"):
        cut_table("keys k", "k", TableRows(table, 9001), num_files=1, spool=io.BytesIO())
    assert pages[-1].reach == max(page.most for page in pages if page.most is not None)
    if pa.types.is_floating(values.type):
        assert pages[-1].most == HIGHEST


def test_a_table_that_comes_in_batches_is_never_in_memory_as_a_whole() -> None:
    """30 MB of rows, of which 1 MB are cut at once."""
    batches, rows = 120, 1 << 14
    schema = pa.schema([("value", pa.int64()), ("place", pa.int64())])
    before, peak = pa.total_allocated_bytes(), 0

    def made() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for at in range(batches):
            peak = max(peak, pa.total_allocated_bytes() - before)
            values = pa.array(np.arange(at * rows, (at + 1) * rows))
            yield pa.RecordBatch.from_arrays([values, values], schema=schema)

    given = TableRows(pa.RecordBatchReader.from_batches(schema, made()), batches * rows)
    with tempfile.TemporaryFile() as spool:
        found = cut_table("keys k", "keys-x", given, num_files=1, spool=spool)
        pages = found.pages()
        first = next(pages)
        assert sum(1 for _ in pages) + 1 == found.layout.parts[0].num_pages == batches * rows // 1024
    assert page_rows(first, found.layout.parts[0], schema).column("value").to_pylist() == list(range(1024))
    assert peak < 4_000_000
