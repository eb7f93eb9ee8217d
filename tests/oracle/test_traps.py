"""What real files do, met by a whole scan: whatever of a footer is odd but legal, left out or wrong, no row
is lost."""

from __future__ import annotations

import io
import itertools
import math
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList, read_struct, write_struct
from accel.testing import DictStore, Layout, write_file
from tests.corrupt.anatomy import Anatomy

ROWS, GROUP = 60, 20
NAME = "f.parquet"
FLOATS = [0.0, -0.0, math.nan, 1.5, None, -2.0]
TEXTS = ["a", "\u00e9t\u00e9", "z" * 70, "\uffff", None, ""]
UNSIGNED = [1 << 31, 0, (1 << 32) - 1]
Row = dict[str, Any]
Edit = Callable[[Struct, Struct], None]
"""Of a chunk: ColumnChunk, and its metadata."""


@cache
def rows() -> list[Row]:
    # In each row group a column is of few values, so that there is something to prune.
    return [
        {
            "k": n,
            "f": FLOATS[(n // 10) % 6],
            "t": TEXTS[(n // 10 + 1) % 6],
            "u": UNSIGNED[n // 20],
            "d": f"d{n % 3}",
        }
        for n in range(ROWS)
    ]


@cache
def data(*, page_index: bool = True) -> bytes:
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.uint32(), pa.string()]
    names = list(rows()[0])
    columns = [pa.array([row[name] for row in rows()], kind) for name, kind in zip(names, kinds, strict=True)]
    layout = Layout(group_rows=GROUP, page_rows=7, dictionary=["d"], codec="snappy", page_index=page_index)
    return write_file(pa.Table.from_arrays(columns, names=names), layout)


def edited(edit: Edit, *, page_index: bool = True) -> bytes:
    """The file with each chunk edited once all is in its place."""
    return refooted(
        Anatomy(data(page_index=page_index)).assemble(None), lambda footer: on_chunks(footer, edit)
    )


def refooted(raw: bytes, edit: Callable[[Struct], None]) -> bytes:
    length = int.from_bytes(raw[-8:-4], "little")
    footer, _ = read_struct(raw[-8 - length : -8])
    edit(footer)
    blob = write_struct(footer)
    return raw[: -8 - length] + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def on_chunks(footer: Struct, edit: Edit) -> None:
    for group in footer[4][1].items:
        for chunk in group[1][1].items:
            edit(chunk, chunk[3][1])


def name_of(meta: Struct) -> bytes:
    return bytes(meta[3][1].items[0])


def statistics(name: bytes, change: Callable[[Struct], None]) -> Edit:
    def edit(chunk: Struct, meta: Struct) -> None:
        if name_of(meta) == name and 12 in meta:
            change(meta[12][1])
            chunk.pop(6, None)  # The column index would tell the truth.
            chunk.pop(7, None)

    return edit


def dictionary_at(told: Callable[[int], int] | None) -> Edit:
    """As some writers have it: the data pages are said to begin with the dictionary page."""

    def edit(chunk: Struct, meta: Struct) -> None:
        if 11 in meta:
            _, place = meta[9] = meta.pop(11)
            if told is not None:
                meta[11] = (I64, told(place))

    return edit


def only_deprecated(stats: Struct) -> None:
    """As old writers have them: the bytes were compared as signed ones."""
    if 5 in stats:
        stats[1], stats[2] = (BINARY, stats.pop(6)[1]), (BINARY, stats.pop(5)[1])


def without_index(*fields: int, of: Callable[[bytes], bool] = lambda name: True) -> Edit:
    def edit(chunk: Struct, meta: Struct) -> None:
        for field in fields if of(name_of(meta)) else ():
            chunk.pop(field, None)

    return edit


def as_parquet_816(raw: bytes) -> bytes:
    def edit(footer: Struct) -> None:
        footer[6] = (BINARY, b"parquet-mr version 1.2.8 (build x)")
        on_chunks(footer, shorten)

    def shorten(chunk: Struct, meta: Struct) -> None:
        if 11 in meta:
            _, body = read_struct(raw, meta[11][1])
            meta[7] = (I64, meta[7][1] - (body - meta[11][1]))

    return refooted(raw, edit)


def without_header_sizes(raw: bytes) -> bytes:
    """As the writers in Go and .NET have it: the offset index tells of each page the size of its body."""
    length = int.from_bytes(raw[-8:-4], "little")
    footer, _ = read_struct(raw[-8 - length : -8])
    out = bytearray(raw[: -8 - length])

    def move(chunk: Struct, meta: Struct) -> None:
        start, size = chunk[4][1], chunk[5][1]
        index, _ = read_struct(raw[start : start + size])
        for page in index[1][1].items:
            _, body = read_struct(raw[page[1][1] : page[1][1] + page[2][1]])
            page[2] = (I32, page[2][1] - body)
        blob = write_struct(index)
        chunk[4], chunk[5] = (I64, len(out)), (I32, len(blob))
        out.extend(blob)

    on_chunks(footer, move)
    blob = write_struct(footer)
    return bytes(out) + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def moved(raw: bytes, by: int) -> bytes:
    """The file behind other bytes, its offsets counted from the first of them."""

    def shift(chunk: Struct, meta: Struct) -> None:
        for field in (9, 11):
            if field in meta:
                meta[field] = (I64, meta[field][1] + by)

    return bytes(range(256)) * (by // 256) + refooted(raw, lambda footer: on_chunks(footer, shift))


def turned(raw: bytes) -> bytes:
    return refooted(raw, lambda footer: footer[4][1].items.reverse())


def ordered(raw: bytes, order: Struct | None) -> bytes:
    def edit(footer: Struct) -> None:
        leaves = len(footer[4][1].items[0][1][1].items)
        footer.pop(7, None)
        if order is not None:
            footer[7] = (LIST, ThriftList(STRUCT, [order] * leaves))

    return refooted(raw, edit)


NAN = struct.pack("<d", math.nan)
FILES: dict[str, Callable[[], bytes]] = {
    "as it is": data,
    "no dictionary page offset": lambda: edited(dictionary_at(None)),
    "a dictionary page offset of zero": lambda: edited(dictionary_at(lambda place: 0)),
    "a dictionary page offset that is the data's": lambda: edited(dictionary_at(lambda place: place)),
    "PARQUET-816": lambda: as_parquet_816(data(page_index=False)),
    "behind other bytes": lambda: moved(data(page_index=False), 1024),
    "row groups out of order": lambda: turned(data()),
    "no null counts": lambda: edited(
        lambda chunk, meta: (meta.get(12, (0, {}))[1].pop(3, None), chunk.pop(6, None), chunk.pop(7, None))
    ),
    "deprecated bounds of text": lambda: edited(statistics(b"t", only_deprecated)),
    "deprecated bounds of unsigned": lambda: edited(statistics(b"u", only_deprecated)),
    "max is NaN": lambda: edited(statistics(b"f", lambda stats: stats.update({5: (BINARY, NAN)}))),
    "both bounds are NaN": lambda: edited(
        statistics(b"f", lambda stats: stats.update({5: (BINARY, NAN), 6: (BINARY, NAN)}))
    ),
    "bounds of no bytes": lambda: edited(
        statistics(b"k", lambda stats: stats.update({5: (BINARY, b""), 6: (BINARY, b"")}))
    ),
    "bounds of three bytes": lambda: edited(
        statistics(b"k", lambda stats: stats.update({5: (BINARY, b"\1\0\0"), 6: (BINARY, b"\0\0\0")}))
    ),
    "an order of the future": lambda: ordered(data(), {9: (STRUCT, {})}),
    "no orders": lambda: ordered(data(), None),
    "column indexes alone": lambda: edited(without_index(4, 5)),
    "offset indexes alone": lambda: edited(without_index(6, 7)),
    "indexes of some columns": lambda: edited(
        without_index(4, 5, 6, 7, of=lambda name: name in (b"t", b"k"))
    ),
    "an index with no length": lambda: edited(lambda chunk, meta: chunk.update({5: (I32, 0), 7: (I32, 0)})),
    "no statistics": lambda: edited(
        lambda chunk, meta: (meta.pop(12, None), chunk.pop(6, None), chunk.pop(7, None))
    ),
    "fields of the future": lambda: edited(
        lambda chunk, meta: (
            meta.update({900: (BINARY, b"new")}),
            chunk.update({901: (STRUCT, {1: (I32, 7)})}),
        )
    ),
    "an offset index that leaves out page headers": lambda: without_header_sizes(data()),
    "another row group's indexes are gone": lambda: refooted(
        data(), lambda footer: [chunk.pop(4, None) for chunk in footer[4][1].items[1][1][1].items]
    ),
}


def above(one: float | None, other: float) -> bool:
    """NaN is above every number."""
    return one is not None and (math.isnan(one) or one > other)


QUESTIONS: dict[str, Callable[[Row], bool]] = {
    "k = 33": lambda row: row["k"] == 33,
    "k >= 18 AND k < 22": lambda row: 18 <= row["k"] < 22,
    "f = 0": lambda row: row["f"] == 0,
    "f > 2": lambda row: above(row["f"], 2),
    "NOT f <= 1.5": lambda row: above(row["f"], 1.5),
    "f < 0": lambda row: row["f"] is not None and row["f"] < 0,
    "f IS NULL": lambda row: row["f"] is None,
    "t IS NULL": lambda row: row["t"] is None,
    "t IS NOT NULL": lambda row: row["t"] is not None,
    "t > 'b'": lambda row: row["t"] is not None and row["t"].encode() > b"b",
    "t < 'b'": lambda row: row["t"] is not None and row["t"].encode() < b"b",
    "t = '\u00e9t\u00e9'": lambda row: row["t"] == "\u00e9t\u00e9",
    "u >= 2147483648": lambda row: row["u"] >= 1 << 31,
    "u = 4294967296": lambda row: False,
    "u < 5": lambda row: row["u"] < 5,
    "d = 'd1'": lambda row: row["d"] == "d1",
    "d = 'dx'": lambda row: False,
}


def as_text(found: list[Row]) -> str:
    return repr(found)  # NaN is NaN, -0.0 is not 0.0


EVERY_KIND: dict[str, Any] = {
    "k": ["distinct", "bitmap", "bloom", "zonemap", "sketch", ("bitmap", "row range")],
    "f": ["distinct", "bitmap", "bloom", "zonemap", "sketch"],
    "t": ["distinct", "bitmap", "bloom", "ngram", "zonemap", "sketch", ("distinct", "file")],
    "u": ["distinct", "bitmap", "bloom", "zonemap", "sketch"],
    "d": ["distinct", ("distinct", "row group"), "idx1"],
}


@pytest.mark.parametrize("indexes", [None, EVERY_KIND], ids=["as written", "embedded"])
@pytest.mark.parametrize("name", FILES)
def test_every_row_and_no_other(name: str, indexes: dict[str, Any] | None, tmp_path: Path) -> None:
    raw = FILES[name]()
    if indexes is not None:
        path = tmp_path / NAME
        path.write_bytes(raw)
        accel.embed(path, indexes=indexes)
        raw = path.read_bytes()
    expected = rows()
    if name == "row groups out of order":
        expected = [*expected[40:], *expected[20:40], *expected[:20]]
    store = DictStore({NAME: raw})
    # However much comes with the footer.
    tail_hints = itertools.cycle([8, 1 << 17])

    def scanned(where: str | None) -> str:
        options = accel.Options(tail_hint=next(tail_hints), probe_min_bytes=0, max_gap_bytes=0)
        scan = accel.scan(NAME, where, store=store, cache=accel.Cache(), options=options)
        found = scan.to_table().to_pylist()
        assert scan.count_rows() == len(found)
        return as_text(found)

    assert scanned(None) == as_text(expected)
    for where, matches in QUESTIONS.items():
        assert scanned(where) == as_text([row for row in expected if matches(row)]), where


@pytest.mark.parametrize("zero", [0.0, -0.0], ids=["0.0", "-0.0"])
def test_bloom_filters_of_zeros_and_nan(zero: float) -> None:
    """The hashes of the two zeros differ, and NaN has many."""
    floats = pa.array([zero, 3.0, 7.0] * 20 + [math.nan, 3.0, 7.0] * 20)
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays([floats, pa.array(range(120))], names=["f", "n"]),
        sink,
        row_group_size=60,
        bloom_filter_options={"f": {"ndv": 10}},
        write_statistics=False,
        use_dictionary=False,
    )
    store = DictStore({NAME: sink.getvalue()})
    options = accel.Options(probe_min_bytes=0)

    def numbers(where: Any) -> list[int]:
        return accel.scan(NAME, where, store=store, cache=None, options=options).to_table()["n"].to_pylist()  # type: ignore[no-any-return]

    for where in ("f = 0", "f = -0.0", "f IN (0.0, 99)", "f IN (99, -0.0)"):
        assert numbers(where) == list(range(0, 60, 3)), where
    nan = float("nan")
    assert numbers(accel.col("f") == nan) == list(range(60, 120, 3))
    assert numbers("f = 5") == []


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("own", [True, False], ids=["of values that may be null", "of values that may not"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_texts_of_absent_structs_that_were_not_counted_as_nulls(
    kind: pa.DataType, own: bool, version: str
) -> None:
    """Arrow's writer leaves them out of the count where the texts came dictionary-encoded."""
    size = 4000
    values: list[bytes | None] = [None if own and n % 5 == 4 else b"x" for n in range(size)]
    absent = pa.array([n % 4 == 1 for n in range(size)])
    texts = pa.array(values, kind).dictionary_encode()
    field = pa.field("a", texts.type, nullable=own)
    structs = pa.StructArray.from_arrays([texts], fields=[field], mask=absent)
    sink = io.BytesIO()
    table = pa.table({"n": range(size), "s": structs})
    pq.write_table(
        table, sink, write_page_index=True, data_page_size=500, row_group_size=1000, data_page_version=version
    )
    store = DictStore({NAME: sink.getvalue()})
    found = [None if n % 4 == 1 else values[n] for n in range(size)]
    questions: dict[str, Callable[[bytes | None], bool]] = {
        "s.a IS NULL": lambda value: value is None,
        "s.a IS NOT NULL": lambda value: value is not None,
        "s.a = 'x'": lambda value: value == b"x",
        "s.a <> 'y'": lambda value: value is not None,
        "NOT s.a = 'x'": lambda value: False,
        "s.a IS NULL OR s.a = 'y'": lambda value: value is None,
    }
    for probe in (0, None):
        options = accel.Options(probe_min_bytes=probe)
        for where, matches in questions.items():
            where = where if kind == pa.string() else where.replace("'x'", "X'78'").replace("'y'", "X'79'")
            scan = accel.scan(NAME, where, columns=["n"], store=store, cache=None, options=options)
            expected = [n for n, value in enumerate(found) if matches(value)]
            assert scan.to_table()["n"].to_pylist() == expected, where
            assert scan.count_rows() == len(expected), where
    counts = accel.scan(NAME, store=store, cache=None).aggregate([("s.a", "count"), ([], "count_all")])
    assert counts.to_pylist() == [{"s.a_count": size - found.count(None), "count_all": size}]


@pytest.mark.parametrize("nulls", [True, False], ids=["with nulls", "without"])
@pytest.mark.parametrize(
    "entries", [["a", "b", "z"], [b"a", b"b", b"z"], [1, 2, 9]], ids=["text", "bytes", "int"]
)
def test_categories_that_no_row_has_are_no_values(entries: list[Any], nulls: bool) -> None:
    """Arrow's writer lists all entries of a dictionary array, and with nulls their bounds."""
    codes = pa.array([1, 1, None if nulls else 1] * 40, pa.int32())
    data = pa.table({"c": pa.DictionaryArray.from_arrays(codes, pa.array(entries))})
    sink = io.BytesIO()
    pq.write_table(data, sink, write_page_index=True)
    scan = accel.scan(NAME, store=DictStore({NAME: sink.getvalue()}), cache=None)
    found = scan.aggregate([("c", "min"), ("c", "max")]).to_pylist()
    assert found == [{"c_min": entries[1], "c_max": entries[1]}]
    assert scan.distinct("c").to_pylist() == [entries[1], *([None] if nulls else [])]
