"""The compact protocol: exact round trips, exact bytes, and refusal of what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import ParquetFormatError
from accel.format.thrift import (
    BINARY,
    DOUBLE,
    FALSE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_DEPTH,
    SET,
    STRUCT,
    TRUE,
    UUID,
    ThriftList,
    ThriftMap,
    ThriftReader,
    read_struct,
    read_zigzags,
    write_struct,
)

EVERYTHING = {
    1: (I32, -5),
    2: (TRUE, True),
    3: (FALSE, False),
    4: (I8, -128),
    5: (I16, 32767),
    20: (LIST, ThriftList(TRUE, [True, False] * 10)),
    21: (MAP, ThriftMap(BINARY, I64, [(b"a", 1), (b"", -1)])),
    22: (MAP, ThriftMap(0, 0, [])),
    40: (STRUCT, {1: (DOUBLE, 1.5), 3: (STRUCT, {})}),
    41: (UUID, bytes(range(16))),
    300: (I64, -(1 << 63)),
    301: (SET, ThriftList(STRUCT, [{}, {1: (BINARY, b"zz")}])),
    302: (LIST, ThriftList(LIST, [ThriftList(I64, [1, 2]), ThriftList(BINARY, [])])),
}

CASES = {
    "empty": ({}, b"\x00"),
    "delta header": ({1: (I32, 1)}, b"\x15\x02\x00"),
    "long header": ({16: (I32, -1)}, b"\x05\x20\x01\x00"),
    "booleans are types": ({1: (TRUE, True), 2: (FALSE, False)}, b"\x11\x12\x00"),
    "edited boolean": ({1: (FALSE, True)}, b"\x11\x00"),
    "binary": ({4: (BINARY, b"ab")}, b"\x48\x02ab\x00"),
    "list of 14": ({1: (LIST, ThriftList(I8, [1] * 14))}, b"\x19\xe3" + b"\x01" * 14 + b"\x00"),
    "list of 15": ({1: (LIST, ThriftList(I8, [1] * 15))}, b"\x19\xf3\x0f" + b"\x01" * 15 + b"\x00"),
    "list of bool": ({1: (LIST, ThriftList(TRUE, [True, False]))}, b"\x19\x21\x01\x02\x00"),
    "int64 extremes": (
        {1: (I64, (1 << 63) - 1), 2: (I64, -(1 << 63))},
        b"\x16\xfe" + b"\xff" * 8 + b"\x01\x16" + b"\xff" * 9 + b"\x01\x00",
    ),
}


@pytest.mark.parametrize(("fields", "encoded"), CASES.values(), ids=CASES.keys())
def test_write_struct_gives_these_bytes(fields, encoded):
    assert write_struct(fields) == encoded


def test_everything_round_trips():
    encoded = write_struct(EVERYTHING)
    assert read_struct(b"##" + encoded + b"tail", 2) == (EVERYTHING, len(encoded) + 2)
    assert write_struct(read_struct(encoded)[0]) == encoded


scalars = {
    I16: st.integers(-(1 << 15), (1 << 15) - 1),
    I32: st.integers(-(1 << 31), (1 << 31) - 1),
    I64: st.integers(-(1 << 63), (1 << 63) - 1),
    BINARY: st.binary(max_size=20),
    DOUBLE: st.floats(allow_nan=False),
}
fields = st.one_of([st.tuples(st.just(ctype), values) for ctype, values in scalars.items()])
fields |= st.booleans().map(lambda b: (TRUE if b else FALSE, b))
structs = st.recursive(
    st.dictionaries(st.integers(1, 0x7FFF), fields, max_size=5),
    lambda inner: st.dictionaries(
        st.integers(1, 0x7FFF),
        inner.map(lambda s: (STRUCT, s))
        | st.lists(inner, max_size=3).map(lambda s: (LIST, ThriftList(STRUCT, s))),
        max_size=4,
    ),
    max_leaves=8,
)


@given(structs)
def test_any_struct_round_trips(fields):
    encoded = write_struct(fields)
    found, end = read_struct(encoded)
    assert found == fields
    assert end == len(encoded)
    assert write_struct(found) == encoded


@given(structs)
def test_skip_passes_over_exactly_what_value_reads(fields):
    encoded = write_struct(fields) + b"\x55"
    reader = ThriftReader(encoded)
    reader.skip(STRUCT)
    assert reader.pos == len(encoded) - 1


def test_every_truncation_is_refused():
    encoded = write_struct(EVERYTHING)
    for length in range(len(encoded)):
        with pytest.raises(ParquetFormatError):
            read_struct(encoded[:length])
        with pytest.raises(ParquetFormatError):
            ThriftReader(encoded, 0, end=length).skip(STRUCT)


BAD = {
    "varint of eleven bytes": b"\x16" + b"\x80" * 10 + b"\x01\x00",
    "varint of 70 bits": b"\x16" + b"\xff" * 9 + b"\x7f\x00",
    "list larger than the data": b"\x19\xf6\xff\xff\xff\x7f\x00",
    "list of doubles larger than the data": b"\x19\x27" + b"\x00" * 15,
    "list of no type": b"\x19\x1e\x00\x00",
    "map larger than the data": b"\x1b\xff\xff\x7f\x88\x00",
    "map of no type": b"\x1b\x01\xee\x00\x00",
    "binary larger than the data": b"\x18\xff\xff\xff\xff\x0fab\x00",
    "field of no type": b"\x1f\x00",
    "field id beyond i16": b"\x05\x80\x80\x80\x01\x00\x00",
    "no stop": b"\x15\x02",
}


@pytest.mark.parametrize("encoded", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_refused(encoded):
    with pytest.raises(ParquetFormatError, match="Thrift"):
        read_struct(encoded)
    with pytest.raises(ParquetFormatError, match="Thrift"):
        ThriftReader(encoded).skip(STRUCT)


@pytest.mark.parametrize(
    "encoded", [b"\x1c" * 100_000, b"\x19" + b"\x19" * 100_000], ids=["structs", "lists"]
)
def test_nesting_is_bounded(encoded):
    for read in (read_struct, lambda data: ThriftReader(data).skip(STRUCT)):
        with pytest.raises(ParquetFormatError, match=f"more than {MAX_DEPTH} levels"):
            read(encoded)


def test_a_reader_stops_at_its_end():
    reader = ThriftReader(b"\x01\x02\x03", 1, end=2)
    assert reader.varint() == 2
    with pytest.raises(ParquetFormatError):
        reader.varint()
    with pytest.raises(ParquetFormatError, match="outside"):
        ThriftReader(b"abc", 1, end=4)


def test_what_the_protocol_cannot_say_is_a_value_error():
    with pytest.raises(ValueError, match="64 bits"):
        write_struct({1: (I64, 1 << 63)})
    with pytest.raises(ValueError, match="unknown Thrift type 14"):
        write_struct({1: (14, 0)})


numbers = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300), min_size=1, max_size=120)


def encode(values: list[int]) -> bytes:
    """The numbers alone: a list's bytes without its header and without the struct around it."""
    whole = write_struct({1: (9, ThriftList(I64, [0] * 20 + values))})
    return whole[3 + 20 : -1]


@given(numbers)
def test_read_zigzags_is_the_plain_loop(values):
    data = encode(values) + b"\x05"
    fast, plain = ThriftReader(data), ThriftReader(data)
    assert read_zigzags(fast, len(values)).tolist() == [plain.zigzag() for _ in values] == values
    assert fast.pos == plain.pos == len(data) - 1


@pytest.mark.parametrize("count", [3, 100])
def test_numbers_that_end_early_are_refused(count):
    data = encode([1000] * count)
    with pytest.raises(ParquetFormatError):
        read_zigzags(ThriftReader(data[:-1]), count)
    assert read_zigzags(ThriftReader(data), count).dtype == np.int64
