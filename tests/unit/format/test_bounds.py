"""Bounds: equal to the true minima and maxima where they may be claimed, unknown where not; those of pages
agree with their chunk."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from accel.format.bounds import agrees_with_chunk, chunk_bounds, page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, ThriftList, write_struct
from tests.unit.format.files import chunk, edited, parse, write

ROWS, GROUP, PAGE = 4000, 2000, 100
# Every fifth value is null, and all of one page.
NUMBERS = [None if i % 5 == 0 or 300 <= i < 400 else i * 37 % 2003 - 100 for i in range(ROWS)]


def numbers(shift: int = 0, times: int = 1, modulo: int = 10_000) -> list[int | None]:
    return [None if v is None else (v + shift) % modulo * times for v in NUMBERS]


def signed(kind: pa.DataType) -> pa.Array:
    return pa.array(NUMBERS, pa.int64()).cast(kind)


def ticks(kind: pa.DataType, values: list[int | None], width: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, width or pa.int64()).cast(kind)


def decimals(kind: pa.DataType) -> pa.Array:
    step = Decimal(1).scaleb(-kind.scale)
    return pa.array([None if v is None else v * step for v in NUMBERS], kind)


def same(value: object) -> object:
    return value


def utf8(value: str) -> bytes:
    return value.encode()


def unscaled(value: Decimal) -> int:
    return int(value.scaleb(-value.as_tuple().exponent))


text = pa.array([None if v is None else f"{v}é" for v in NUMBERS])
raw5 = pa.array([None if v is None else (v + 100).to_bytes(5, "big") for v in NUMBERS], pa.binary(5))
uuids = pa.array([None if v is None else (v + 100).to_bytes(16, "little") for v in NUMBERS], pa.binary(16))

# The column, what it holds as int64 or bytes (None: as_py), and the domain.
COLUMNS = {
    "int8": (ticks(pa.int8(), numbers(modulo=120)), None, Domain.INTEGER),
    "int16": (signed(pa.int16()), None, Domain.INTEGER),
    "int32": (signed(pa.int32()), None, Domain.INTEGER),
    "int64": (signed(pa.int64()), None, Domain.INTEGER),
    "uint8": (ticks(pa.uint8(), numbers(modulo=256)), None, Domain.INTEGER),
    "uint16": (ticks(pa.uint16(), numbers(100, 20)), None, Domain.INTEGER),
    "uint32": (ticks(pa.uint32(), numbers(100, 2_000_000)), None, Domain.INTEGER),
    "uint64": (
        pa.array([None if v is None else (v + 100) * (1 << 52) for v in NUMBERS], pa.uint64()),
        None,
        Domain.INTEGER,
    ),
    "float16": (pa.array([None if v is None else np.float16(v / 4) for v in NUMBERS]), None, Domain.FLOAT),
    "float32": (signed(pa.float32()), None, Domain.FLOAT),
    "float64": (signed(pa.float64()), None, Domain.FLOAT),
    "bool": (pa.array([None if v is None else v > 1800 for v in NUMBERS]), None, Domain.BOOLEAN),
    "string": (text, utf8, Domain.BYTES),
    "large_string": (text.cast(pa.large_string()), utf8, Domain.BYTES),
    "string_view": (text.cast(pa.string_view()), utf8, Domain.BYTES),
    "binary": (text.cast(pa.binary()), None, Domain.BYTES),
    "fixed": (raw5, None, Domain.BYTES),
    "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), uuids), lambda v: v.bytes, Domain.BYTES),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), text), utf8, Domain.BYTES),
    "dictionary": (text.dictionary_encode(), utf8, Domain.BYTES),
    "date32": (ticks(pa.date32(), NUMBERS, pa.int32()), pa.int32(), Domain.INTEGER),
    "date64": (ticks(pa.date64(), numbers(0, 86_400_000)), pa.int32(), Domain.INTEGER),
    "time32[s]": (ticks(pa.time32("s"), numbers(100), pa.int32()), pa.int32(), Domain.INTEGER),
    "time32[ms]": (ticks(pa.time32("ms"), numbers(100), pa.int32()), pa.int32(), Domain.INTEGER),
    "time64[us]": (ticks(pa.time64("us"), numbers(100)), pa.int64(), Domain.INTEGER),
    "time64[ns]": (ticks(pa.time64("ns"), numbers(100)), pa.int64(), Domain.INTEGER),
    "timestamp[s]": (ticks(pa.timestamp("s"), NUMBERS), pa.int64(), Domain.INTEGER),
    "timestamp[ms]": (ticks(pa.timestamp("ms"), NUMBERS), pa.int64(), Domain.INTEGER),
    "timestamp[us, zone]": (ticks(pa.timestamp("us", "Europe/Oslo"), NUMBERS), pa.int64(), Domain.INTEGER),
    "timestamp[ns]": (ticks(pa.timestamp("ns"), NUMBERS), pa.int64(), Domain.INTEGER),
    "duration[ms]": (ticks(pa.duration("ms"), NUMBERS), pa.int64(), Domain.INTEGER),
    "decimal32": (decimals(pa.decimal32(9, 2)), unscaled, Domain.INTEGER),
    "decimal64": (decimals(pa.decimal64(18, 4)), unscaled, Domain.INTEGER),
    "decimal128(9)": (decimals(pa.decimal128(9, 2)), unscaled, Domain.INTEGER),
    "decimal128(38)": (decimals(pa.decimal128(38, 10)), unscaled, Domain.INTEGER),
    "decimal256": (decimals(pa.decimal256(50, 5)), unscaled, Domain.INTEGER),
}
WRITERS = {
    "default": {},
    "decimals as integers": {"store_decimal_as_integer": True},
    "no arrow schema": {"store_schema": False},
}


def plain_values(array: pa.Array, how) -> list:
    if isinstance(how, pa.DataType):
        array, how = array.cast(how), None
    return [None if v is None else (how or same)(v) for v in array.to_pylist()]


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_are_the_true_ones(name, options):
    import pyarrow.parquet as pq

    array, how, domain = COLUMNS[name]
    raw = write(
        pa.Table.from_arrays([array], ["c"]),
        row_group_size=GROUP,
        max_rows_per_page=PAGE,
        write_page_index=True,
        **options,
    )
    metadata = parse(raw)
    decoded = pq.read_table(pa.BufferReader(raw)).column(0).combine_chunks()
    if name == "date64":
        how = pa.int64() if pa.types.is_date64(decoded.type) else pa.int32()
    elif name == "duration[ms]" or name.startswith("time"):
        how = pa.int32() if pa.types.is_time32(decoded.type) else pa.int64()
    elif not options.get("store_schema", True) and name in ("uuid", "json"):
        how = how if isinstance(decoded.type, pa.BaseExtensionType) else utf8 if name == "json" else None
    values = plain_values(decoded, how)
    groups = chunk_bounds(metadata, 0, arrow_type=decoded.type)
    check(groups, values, [(0, GROUP), (GROUP, ROWS)], domain)
    for g in range(2):
        first, pages = read_pages(raw, metadata, g, decoded.type)
        edges = [*(g * GROUP + first), (g + 1) * GROUP]
        assert len(pages) == GROUP // PAGE
        check(pages, values, list(pairwise(edges)), domain)


def read_pages(raw, metadata, g, kind, leaf=0):
    chunks = metadata.chunks

    def piece(name):
        start = int(getattr(chunks, f"{name}_offset")[g, leaf])
        return raw[start : start + int(getattr(chunks, f"{name}_length")[g, leaf])]

    rows = int(metadata.group_rows[g])
    lower, upper = int(chunks.start[g, leaf]), int(chunks.end[g, leaf])
    offsets = parse_offset_index(piece("offset_index"), num_rows=rows, lower=lower, upper=upper)
    index = parse_column_index(piece("column_index"), num_pages=offsets.num_pages)
    page_rows = np.diff(np.append(offsets.first_row, rows))
    return offsets.first_row, page_bounds(metadata, leaf, index, page_rows, arrow_type=kind)


def check(bounds, values, units, domain):
    assert bounds.domain is domain
    for i, (start, end) in enumerate(units):
        part = [v for v in values[start:end] if v is not None]
        assert bounds.num_values[i] == end - start
        assert bounds.null_count[i] == end - start - len(part)
        assert bounds.nan_count[i] == (0 if domain is not Domain.FLOAT or not part else -1)
        assert bounds.has_lower[i] == bounds.has_upper[i] == bool(part)
        if part:
            assert (bounds.lower[i], bounds.upper[i]) == (min(part), max(part))


# Made by hand: a single row group of ten rows, its statistics and schema changed at will.

TYPED, TOTAL, UNKNOWN_ORDER = {1: (STRUCT, {})}, {2: (STRUCT, {})}, {7: (STRUCT, {})}


def bounds_of(kind: pa.DataType, statistics: dict, *, order=TYPED, element=None, arrow=None, nullable=True):
    """The bounds of a column written as `kind` whose Statistics, order and SchemaElement are replaced."""
    field = pa.field("c", kind, nullable=nullable)
    values = pa.array([None] * 10, kind) if nullable else pa.array(range(10), kind)
    raw = write(pa.Table.from_arrays([values], schema=pa.schema([field])), store_schema=False)

    def edit(fields):
        chunk(fields)[3][1][12] = (STRUCT, statistics)
        del fields[7]
        if order is not None:
            fields[7] = (LIST, ThriftList(STRUCT, [order]))
        fields[2][1].items[1].update(element or {})

    return chunk_bounds(edited(raw, edit), 0, arrow_type=arrow or kind)


def new(lower: bytes | None, upper: bytes | None, **more: int) -> dict:
    fields = {6: lower, 5: upper}
    counts = {int(k[1:]): (I64, v) for k, v in more.items()}
    return {k: (BINARY, v) for k, v in fields.items() if v is not None} | counts


def old(lower: bytes, upper: bytes, **more: int) -> dict:
    return {2: (BINARY, lower), 1: (BINARY, upper)} | {int(k[1:]): (I64, v) for k, v in more.items()}


def claims(bounds) -> tuple[object, object]:
    assert len(bounds) == 1
    lower = bounds.lower[0] if bounds.has_lower[0] else None
    upper = bounds.upper[0] if bounds.has_upper[0] else None
    return lower, upper


def i32(*values: int) -> tuple[bytes, ...]:
    return tuple(struct.pack("<i", v) for v in values)


def i64(*values: int) -> tuple[bytes, ...]:
    return tuple(struct.pack("<q", v) for v in values)


def f64(*values: float) -> tuple[bytes, ...]:
    return tuple(struct.pack("<d", v) for v in values)


NOTHING = (None, None)
NAN = float("nan")
SIMPLE = {
    "both": (pa.int32(), new(*i32(-3, 9)), {}, (-3, 9)),
    "lower only": (pa.int32(), new(i32(-3)[0], None), {}, (-3, None)),
    "upper only": (pa.int32(), new(None, i32(9)[0]), {}, (None, 9)),
    "none": (pa.int32(), {}, {}, NOTHING),
    "crossed": (pa.int32(), new(*i32(9, -3)), {}, NOTHING),
    "three bytes": (pa.int32(), new(b"abc", i32(9)[0]), {}, (None, 9)),
    "no bytes": (pa.int64(), new(b"", b""), {}, NOTHING),
    "nine bytes": (pa.int64(), new(bytes(9), bytes(9)), {}, NOTHING),
    "all null, and bounds": (pa.int32(), new(*i32(-3, 9), f3=10), {}, (-3, 9)),
    "unknown order": (pa.int32(), new(*i32(-3, 9)), {"order": UNKNOWN_ORDER}, NOTHING),
    "no order": (pa.int32(), new(*i32(-3, 9)), {"order": None}, NOTHING),
    "total order of integers": (pa.int32(), new(*i32(-3, 9)), {"order": TOTAL}, NOTHING),
    "deprecated int": (pa.int32(), old(*i32(-3, 9)), {"order": None}, (-3, 9)),
    "deprecated, order known": (pa.int32(), old(*i32(-3, 9)), {}, (-3, 9)),
    "new pair before deprecated": (pa.int32(), old(*i32(0, 1)) | new(*i32(-3, 9)), {}, (-3, 9)),
    "pairs are not mixed": (pa.int32(), old(*i32(0, 1)) | new(i32(-3)[0], None), {}, (-3, None)),
    "new pair without order": (pa.int32(), old(*i32(0, 1)) | new(*i32(-3, 9)), {"order": None}, (0, 1)),
    "deprecated text": (pa.string(), old(b"a", b"b"), {}, NOTHING),
    "deprecated binary": (pa.binary(), old(b"a", b"b"), {"order": None}, NOTHING),
    "deprecated unsigned": (pa.uint32(), old(*i32(1, 9)), {}, NOTHING),
    "deprecated date": (pa.date32(), old(*i32(1, 9)), {}, (1, 9)),
    "deprecated timestamp": (pa.timestamp("us"), old(*i64(1, 9)), {"order": None}, (1, 9)),
    "deprecated bool": (pa.bool_(), old(b"\0", b"\1"), {}, (False, True)),
    "deprecated decimal in bytes": (pa.decimal128(30, 2), old(bytes(13), bytes(13)), {}, NOTHING),
    "deprecated float": (pa.float64(), old(*f64(1, 2)), {"order": None}, (1.0, 2.0)),
    "bool beyond 1": (pa.bool_(), new(b"\0", b"\2"), {}, (False, None)),
    "unsigned above int32": (pa.uint32(), new(*i32(5, -1)), {}, (5, 0xFFFFFFFF)),
    "unsigned above int64": (pa.uint64(), new(*i64(5, -1)), {}, (5, 0xFFFFFFFFFFFFFFFF)),
    "unsigned crossed as unsigned": (pa.uint32(), new(*i32(-1, 5)), {}, NOTHING),
    "text": (pa.string(), new(b"", "zürich".encode()), {}, (b"", "zürich".encode())),
    "text, only the empty one": (pa.string(), new(b"", b""), {}, (b"", b"")),
    "text that is not UTF-8": (pa.string(), new(b"\xff", b"\xff\xfe"), {}, (b"\xff", b"\xff\xfe")),
    "fixed, cut short": (pa.binary(4), new(b"ab", b"c"), {}, (b"ab", b"c")),
    "fixed, too long": (pa.binary(4), new(b"abcde", b"cccc"), {}, (None, b"cccc")),
    "fixed, empty": (pa.binary(4), new(b"", b""), {}, NOTHING),
    "NaN below": (pa.float64(), new(*f64(NAN, 2)), {}, (None, 2.0)),
    "NaN above": (pa.float64(), new(*f64(1, NAN)), {}, (1.0, None)),
    "NaN in total order": (pa.float64(), new(*f64(-NAN, NAN)), {"order": TOTAL}, NOTHING),
    "total order": (pa.float64(), new(*f64(1, 2)), {"order": TOTAL}, (1.0, 2.0)),
    "infinities": (pa.float64(), new(*f64(-math.inf, math.inf)), {}, (-math.inf, math.inf)),
    "decimal, wrong width": (pa.decimal128(30, 2), new(bytes(12), bytes(13)), {}, (None, 0)),
    "decimal, negative": (pa.decimal128(30, 2), new(b"\xff" * 13, b"\0" * 12 + b"\5"), {}, (-1, 5)),
    "time of day": (pa.time64("us"), new(*i64(1, 9)), {}, (1, 9)),
}


@pytest.mark.parametrize(("kind", "stats", "more", "outcome"), SIMPLE.values(), ids=SIMPLE.keys())
def test_what_may_be_claimed(kind, stats, more, outcome):
    assert claims(bounds_of(kind, stats, **more)) == outcome


@pytest.mark.parametrize("order", [TYPED, TOTAL])
@pytest.mark.parametrize(("low", "high"), [(0.0, -0.0), (0.0, 0.0), (-0.0, -0.0), (-0.0, 0.0)])
def test_zeros_are_widened(low, high, order):
    lower, upper = claims(bounds_of(pa.float64(), new(*f64(low, high)), order=order))
    assert (math.copysign(1, lower), math.copysign(1, upper)) == (-1.0, 1.0)
    lower, upper = claims(bounds_of(pa.float64(), new(*f64(low, 5)), order=order))
    assert (math.copysign(1, lower), upper) == (-1.0, 5.0)


LOGICAL_TIME = {1: (TRUE, True)}


def timestamp(unit: int) -> dict:
    return {10: (STRUCT, {8: (STRUCT, {1: (TRUE, True), 2: (STRUCT, {unit: (STRUCT, {})})})})}


def integer(bits: int, signed: bool) -> dict:
    return {10: (STRUCT, {10: (STRUCT, {1: (3, bits), 2: (TRUE, signed)})})}


def decimal(scale: int, precision: int) -> dict:
    return {10: (STRUCT, {5: (STRUCT, {1: (I32, scale), 2: (I32, precision)})})}


MS, US, NS = (pa.timestamp(unit) for unit in ("ms", "us", "ns"))
I = new(*i64(-3, 9))
PAIRS = {
    "ms as us": (MS, I, {"arrow": US}, (-3_000, 9_000)),
    "ms as ns": (MS, I, {"arrow": NS}, (-3_000_000, 9_000_000)),
    "ms as ns, beyond": (MS, new(*i64(-3, 1 << 62)), {"arrow": NS}, NOTHING),
    "ms as ns, one bound only": (MS, new(i64(-3)[0], None), {"arrow": NS}, NOTHING),
    "us as ms": (US, I, {"arrow": MS}, NOTHING),
    "ms as s": (MS, I, {"arrow": pa.timestamp("s")}, NOTHING),
    "unit unknown": (US, I, {"element": timestamp(9)}, NOTHING),
    "time as timestamp": (pa.time64("us"), I, {"arrow": US}, NOTHING),
    "timestamp as integer": (US, I, {"arrow": pa.int64()}, NOTHING),
    "date as ms": (pa.date32(), new(*i32(1, 2)), {"arrow": pa.date64()}, (86_400_000, 172_800_000)),
    "integer as float": (pa.int32(), new(*i32(1, 2)), {"arrow": pa.float64()}, NOTHING),
    "float as double": (
        pa.float32(),
        new(struct.pack("<f", 0.5), struct.pack("<f", 2)),
        {"arrow": pa.float64()},
        (0.5, 2.0),
    ),
    "double as float": (pa.float64(), new(*f64(1, 2)), {"arrow": pa.float32()}, NOTHING),
    "text as number": (pa.string(), new(b"1", b"2"), {"arrow": pa.int64()}, NOTHING),
    "text as list": (pa.string(), new(b"1", b"2"), {"arrow": pa.list_(pa.string())}, NOTHING),
    "int32 as int8, within": (pa.int32(), new(*i32(-3, 9)), {"arrow": pa.int8()}, (-3, 9)),
    "int32 as int8, beyond": (pa.int32(), new(*i32(-3, 900)), {"arrow": pa.int8()}, NOTHING),
    "int8 that lies": (pa.int8(), new(*i32(-3, 900)), {}, NOTHING),
    "int8, one bound only": (pa.int8(), new(i32(-3)[0], None), {}, NOTHING),
    "int64 as uint64, negative": (pa.int64(), new(*i64(-3, 9)), {"arrow": pa.uint64()}, NOTHING),
    "uint64 as int64, beyond": (pa.uint64(), new(*i64(3, -9)), {"arrow": pa.int64()}, NOTHING),
    "uint64 as int64, within": (pa.uint64(), new(*i64(3, 9)), {"arrow": pa.int64()}, (3, 9)),
    "signed, annotated": (pa.int32(), new(*i32(-3, 9)), {"element": integer(32, True)}, (-3, 9)),
    "decimal, scale raised": (
        pa.decimal128(30, 2),
        new(b"\xff" * 13, b"\0" * 12 + b"\5"),
        {"arrow": pa.decimal128(38, 4)},
        (-100, 500),
    ),
    "decimal, scale lowered": (
        pa.decimal128(30, 2),
        new(b"\xff" * 13, b"\0" * 12 + b"\5"),
        {"arrow": pa.decimal128(38, 1)},
        NOTHING,
    ),
    "decimal as integer": (pa.decimal128(30, 2), new(bytes(13), bytes(13)), {"arrow": pa.int64()}, NOTHING),
    "decimal in int32": (
        pa.int32(),
        new(*i32(-3, 9)),
        {"element": decimal(2, 9), "arrow": pa.decimal128(9, 2)},
        (-3, 9),
    ),
    "decimal in int64, deprecated": (
        pa.int64(),
        old(*i64(-3, 9)),
        {"element": decimal(2, 18), "arrow": pa.decimal128(18, 2), "order": None},
        (-3, 9),
    ),
    "decimal in int64, rescaled beyond 64 bits": (
        pa.int64(),
        new(*i64(-3, 1 << 62)),
        {"element": decimal(2, 18), "arrow": pa.decimal128(38, 12)},
        (-3 * 10**10, (1 << 62) * 10**10),
    ),
    "decimal in bytes of any length": (
        pa.binary(),
        new(b"\xff\x00", b"\x00\xff\x00"),
        {"element": decimal(2, 30), "arrow": pa.decimal128(30, 2)},
        (-256, 65_280),
    ),
    "decimal in bytes, beyond Arrow's": (
        pa.binary(),
        new(b"\xff", b"\x7f" + bytes(16)),
        {"element": decimal(2, 30), "arrow": pa.decimal128(30, 2)},
        NOTHING,
    ),
    "decimal in bytes, empty": (
        pa.binary(),
        new(b"", b"\x7f"),
        {"element": decimal(2, 30), "arrow": pa.decimal128(30, 2)},
        NOTHING,
    ),
    "old annotation: uint32": (
        pa.int32(),
        new(*i32(1, -1)),
        {"element": {6: (I32, 13)}, "arrow": pa.uint32()},
        (1, 0xFFFFFFFF),
    ),
    "old annotation: ms": (pa.int64(), I, {"element": {6: (I32, 9)}, "arrow": MS}, (-3, 9)),
    "old annotation: decimal": (
        pa.int32(),
        new(*i32(-3, 9)),
        {"element": {6: (I32, 5), 7: (I32, 2), 8: (I32, 9)}, "arrow": pa.decimal128(9, 2)},
        (-3, 9),
    ),
    "old annotation: interval": (
        pa.binary(12),
        new(bytes(12), bytes(12)),
        {"element": {6: (I32, 21)}},
        NOTHING,
    ),
    "annotation of the future": (
        pa.binary(),
        new(b"a", b"b"),
        {"element": {10: (STRUCT, {40: (STRUCT, {})})}},
        NOTHING,
    ),
    "geometry": (pa.binary(), new(b"a", b"b"), {"element": {10: (STRUCT, {17: (STRUCT, {})})}}, NOTHING),
    "bool8": (pa.int8(), new(*i32(0, 1)), {"arrow": pa.bool8()}, NOTHING),
    "null": (pa.int32(), new(*i32(0, 1)), {"element": {10: (STRUCT, {11: (STRUCT, {})})}}, NOTHING),
    "fixed of another width": (pa.binary(4), new(b"abcd", b"abcd"), {"arrow": pa.binary(5)}, NOTHING),
    "fixed as binary": (pa.binary(4), new(b"abcd", b"abce"), {"arrow": pa.binary()}, (b"abcd", b"abce")),
}


@pytest.mark.parametrize(("kind", "stats", "more", "outcome"), PAIRS.values(), ids=PAIRS.keys())
def test_pairs_of_types(kind, stats, more, outcome):
    assert claims(bounds_of(kind, stats, **more)) == outcome


def test_int96_has_no_bounds():
    table = pa.Table.from_arrays([pa.array([1, 2, None], pa.timestamp("ns"))], ["c"])
    metadata = parse(write(table, use_deprecated_int96_timestamps=True))
    bounds = chunk_bounds(metadata, 0, arrow_type=pa.timestamp("ns"))
    assert (bounds.domain, bounds.num_values.tolist()) == (Domain.NONE, [3])


COUNTS = {
    "absent": ({}, (-1, 0)),
    "given": ({"f3": 4}, (4, 0)),
    "negative": ({"f3": -4}, (-1, 0)),
    "more than rows": ({"f3": 11}, (-1, 0)),
    "all, and bounds": ({"f3": 10}, (-1, 0)),
}


@pytest.mark.parametrize(("given", "outcome"), COUNTS.values(), ids=COUNTS.keys())
def test_null_counts(given, outcome):
    bounds = bounds_of(pa.int32(), new(*i32(1, 2), **given))
    assert (bounds.null_count[0], bounds.nan_count[0]) == outcome
    assert bounds.num_values.tolist() == [10]
    # The counts hold where the types do not go together, too.
    other = bounds_of(pa.int32(), new(*i32(1, 2), **given), arrow=pa.string())
    assert (other.domain, other.null_count[0], other.nan_count[0]) == (Domain.NONE, *outcome)


def test_a_required_column_has_no_nulls_whatever_is_said():
    for given in ({}, {"f3": 7}):
        bounds = bounds_of(pa.int32(), new(*i32(1, 2), **given), nullable=False)
        assert bounds.null_count.tolist() == [0]


NANS = {
    "absent": ({}, -1),
    "none": ({"f9": 0}, 0),
    "some": ({"f3": 4, "f9": 6}, 6),
    "too many": ({"f3": 4, "f9": 7}, -1),
    "negative": ({"f9": -7}, -1),
    "all null, and bounds": ({"f3": 10}, -1),
}


@pytest.mark.parametrize(("given", "outcome"), NANS.values(), ids=NANS.keys())
@pytest.mark.parametrize("arrow", [pa.float64(), pa.int8()], ids=str)
def test_nan_counts(given, outcome, arrow):
    assert bounds_of(pa.float64(), new(*f64(1, 2), **given), arrow=arrow).nan_count.tolist() == [outcome]


def test_nothing_is_known_of_a_repeated_column():
    table = pa.Table.from_arrays([pa.array([[1], [2, 3]])], ["l"])
    metadata = parse(write(table))
    bounds = chunk_bounds(metadata, 0, arrow_type=pa.int64())
    assert (bounds.domain, bounds.num_values.tolist(), bounds.null_count.tolist()) == (
        Domain.NONE,
        [-1],
        [-1],
    )


def test_a_chunk_in_another_file_or_encrypted_says_nothing():
    raw = write(pa.Table.from_arrays([pa.array([1, 2])], ["c"]))
    for field in (1, 9):

        def edit(fields, field=field):
            chunk(fields)[field] = (BINARY, b"elsewhere")

        bounds = chunk_bounds(edited(raw, edit), 0, arrow_type=pa.int64())
        assert claims(bounds) == NOTHING
        assert bounds.null_count.tolist() == [-1]


def column_index(nulls: list[bool], low: list[bytes], high: list[bytes], **lists: list[int]):
    fields = {
        1: (LIST, ThriftList(TRUE, nulls)),
        2: (LIST, ThriftList(BINARY, low)),
        3: (LIST, ThriftList(BINARY, high)),
        4: (I32, 1),
    }
    fields |= {int(name[1:]): (LIST, ThriftList(I64, values)) for name, values in lists.items()}
    return parse_column_index(write_struct(fields), num_pages=len(nulls))


def pages_of(kind: pa.DataType, index, rows: list[int], order=TYPED):
    raw = write(pa.Table.from_arrays([pa.array([None] * 10, kind)], ["c"]))

    def edit(fields):
        fields[7] = (LIST, ThriftList(STRUCT, [order]))

    return page_bounds(edited(raw, edit), 0, index, np.array(rows), arrow_type=kind)


def test_pages_each_for_itself():
    # Ascending, says the index: page 2 shows that nobody may believe it.
    index = column_index(
        [False, True, False, False, False],
        [*i32(1), b"", *i32(-5), b"xx", *i32(9)],
        [*i32(2), b"", *i32(0), *i32(3), *i32(8)],
        f5=[0, 10, -1, 11, 3],
    )
    bounds = pages_of(pa.int32(), index, [10] * 5)
    assert bounds.has_lower.tolist() == [True, False, True, False, False]
    assert bounds.has_upper.tolist() == [True, False, True, True, False]
    assert bounds.lower[bounds.has_lower].tolist() == [1, -5]
    assert bounds.upper[bounds.has_upper].tolist() == [2, 0, 3]
    assert bounds.null_count.tolist() == [0, 10, -1, -1, 3]
    assert bounds.num_values.tolist() == [10] * 5


def test_a_page_that_is_and_is_not_all_null_has_no_count():
    index = column_index([True, False, True], i32(1, 1, 1), i32(2, 2, 2), f5=[9, 10, 10])
    bounds = pages_of(pa.int32(), index, [10] * 3)
    assert bounds.null_count.tolist() == [-1, -1, 10]
    assert bounds.has_lower.tolist() == [False, True, False]


def test_null_pages_without_counts():
    index = column_index([True, False, True], [b"", *i32(1, 1)], [b"", *i32(2, 2)])
    # The last one has bounds.
    assert pages_of(pa.int32(), index, [10, 20, 30]).null_count.tolist() == [10, -1, -1]


def test_a_page_that_is_no_null_page_after_all_may_hold_nan():
    """To a writer that knows no bounds of NaN, a page of nothing else may look as if it were all null."""
    bounds = f64(1, 0, 7), f64(3, 0, 9)
    unsaid = pages_of(pa.float64(), column_index([False, True, False], *bounds, f5=[0, 0, 0]), [3] * 3)
    assert unsaid.nan_count.tolist() == [-1, -1, -1]
    index = column_index([False, True, True], *bounds, f5=[0, 0, 3], f8=[0, 3, 0])
    assert pages_of(pa.float64(), index, [3] * 3).nan_count.tolist() == [0, 3, 0]


def test_pages_of_floats():
    index = column_index([False, False, True], f64(0, NAN, 0), f64(-0.0, 4, 0), f8=[0, 3, 0])
    bounds = pages_of(pa.float64(), index, [10] * 3, order=TOTAL)
    assert bounds.nan_count.tolist() == [0, 3, 0]
    assert bounds.has_lower.tolist() == [True, False, False]
    assert (math.copysign(1, bounds.lower[0]), math.copysign(1, bounds.upper[0])) == (-1.0, 1.0)
    absent = pages_of(pa.float64(), column_index([False, True], [*f64(0), b""], [*f64(1), b""]), [10] * 2)
    assert absent.nan_count.tolist() == [-1, 0]


def test_pages_without_an_order_have_counts_only():
    index = column_index([False], i32(1), i32(2), f5=[4])
    bounds = pages_of(pa.int32(), index, [10], order=UNKNOWN_ORDER)
    assert claims(bounds) == NOTHING
    assert bounds.null_count.tolist() == [4]


def test_pages_that_do_not_fit_the_rows_are_unknown():
    index = column_index([False], i32(1), i32(2))
    bounds = pages_of(pa.int32(), index, [10, 10])
    assert (len(bounds), bounds.domain) == (2, Domain.NONE)


def one_unit(domain, dtype):
    value, count = np.zeros(1, dtype), np.array([1], np.int64)
    return Bounds(domain, value, value, np.array([True]), np.array([True]), count, count * 0, count * 0)


@pytest.mark.parametrize(
    ("domain", "dtype", "joins"),
    [
        (Domain.INTEGER, np.int64, True),
        (Domain.FLOAT, np.int64, False),
        (Domain.NONE, np.int64, False),
        (Domain.INTEGER, np.uint64, False),
        (Domain.INTEGER, object, False),
    ],
)
def test_only_bounds_of_one_kind_are_joined(domain, dtype, joins):
    parts = [one_unit(Domain.INTEGER, np.int64), one_unit(domain, dtype)]
    for order in (parts, parts[::-1]):
        assert Bounds.joinable(order) is joins
        if joins:
            joined = Bounds.join(order)
            assert (joined.domain, joined.lower.tolist(), joined.num_values.tolist()) == (
                domain,
                [0, 0],
                [1, 1],
            )


def bounds(domain: Domain, pairs: list[tuple], dtype: type) -> Bounds:
    def side(at: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.empty(len(pairs), dtype)
        values[:] = [(b"" if dtype is object else 0) if pair[at] is None else pair[at] for pair in pairs]
        return values, np.array([pair[at] is not None for pair in pairs], bool)

    (lower, has_lower), (upper, has_upper) = side(0), side(1)
    count = np.full(len(pairs), 10, np.int64)
    return Bounds(domain, lower, upper, has_lower, has_upper, count, count * 0, count * 0)


def agree(pages: list[tuple], chunk: tuple, domain: Domain = Domain.BYTES) -> bool:
    dtype = object if domain is Domain.BYTES else np.int64
    return agrees_with_chunk(
        bounds(domain, pages, dtype), bounds(domain, [chunk], dtype), valued=np.ones(len(pages), bool)
    )


TEXT_CLAIMS = {
    "the same": ([(b"a", b"c"), (b"c", b"z")], (b"a", b"z"), True),
    "lower cut": ([(b"a", b"abz")], (b"abc", b"abz"), True),
    "chunk's lower cut": ([(b"abc", b"abz")], (b"a", b"abz"), True),
    "upper cut and raised": ([(b"abc", b"ac")], (b"abc", b"abz"), True),
    "chunk's upper cut and raised": ([(b"abc", b"abz")], (b"abc", b"ac"), True),
    "raised with a carry": ([(b"a", b"b\x00")], (b"a", b"a\xff\xff"), True),
    "raised by a character": ([(b"a", "aö".encode())], (b"a", "aõz".encode()), True),
    "raised past the surrogates": ([(b"a", "\ue000".encode())], (b"a", "\ud7ffz".encode()), True),
    "raised to nothing known": ([(b"a", b"b\xff")], (b"a", b"b"), False),
    "upper cut, not raised": ([(b"abc", b"ab")], (b"abc", b"abz"), False),
    "empty": ([(b"", b"")], (b"abc", b"abz"), False),
    "empty, over a chunk from nothing on": ([(b"", b"")], (b"", b"abz"), False),
    "below": ([(b"A", b"a"), (b"b", b"c")], (b"b", b"c"), False),
    "above": ([(b"b", b"c"), (b"x", b"z")], (b"b", b"c"), False),
    "too high together": ([(b"c", b"d")], (b"a", b"d"), False),
    "too low together": ([(b"a", b"c")], (b"a", b"d"), True),
    "far too low together": ([(b"a", b"b")], (b"a", b"d"), False),
    "a page without": ([(b"c", b"d"), (None, None)], (b"a", b"z"), True),
    "a chunk without": ([(b"c", b"d")], (None, None), True),
    "one wrong beside one raised": ([(b"a", b"ac"), (b"a", b"abzz")], (b"a", b"abz"), False),
}


@pytest.mark.parametrize(("pages", "chunk", "fits"), TEXT_CLAIMS.values(), ids=TEXT_CLAIMS.keys())
def test_texts(pages: list[tuple], chunk: tuple, fits: bool) -> None:
    assert agree(pages, chunk) is fits


NUMBER_CLAIMS = {
    "the same": ([(1, 5), (4, 9)], (1, 9), True),
    "outside": ([(0, 5), (4, 9)], (1, 9), False),
    "above": ([(1, 5), (4, 10)], (1, 9), False),
    "too narrow": ([(1, 5), (4, 8)], (1, 9), False),
    "too narrow, and a page without": ([(1, 5), (4, None)], (1, 9), True),
    "beyond": ([(1, 5), (10, None)], (1, 9), False),
    "a chunk without an upper one": ([(1, 5)], (1, None), True),
}


@pytest.mark.parametrize(("pages", "chunk", "fits"), NUMBER_CLAIMS.values(), ids=NUMBER_CLAIMS.keys())
def test_numbers(pages: list[tuple], chunk: tuple, fits: bool) -> None:
    assert agree(pages, chunk, Domain.INTEGER) is fits


def cut(value: bytes, most: int) -> bytes:
    return value[:most]


def raised(value: bytes, most: int) -> bytes:
    if len(value) <= most:
        return value
    kept = value[:most].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else value


@pytest.mark.parametrize("seed", range(50))
def test_bounds_that_are_cut_and_raised_always_agree(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        values = [bytes(rng.choices(b"\x00\x01a\xfe\xff", k=rng.randrange(6))) for _ in range(12)]
        pages, most = [values[i : i + 3] for i in range(0, 12, 3)], rng.randrange(1, 6)
        of_chunk = rng.choice([most, 99, rng.randrange(1, 6)])
        given = [(cut(min(page), most), raised(max(page), most)) for page in pages]
        chunk = cut(min(values), of_chunk), raised(max(values), of_chunk)
        assert agree(given, chunk), (values, given, chunk)
