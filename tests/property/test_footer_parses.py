"""A footer means the same whether its row groups are read together or one by one.

The plain reader is the reference. Every case is parsed by both; they agree on every field, or raise the
same error with the same words.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from accel.errors import AccelError
from accel.format import footer, row_group_batch
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
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
    SET,
    STRUCT,
    TRUE,
    Struct,
    ThriftList,
    ThriftMap,
    read_struct,
    write_struct,
)
from bench.micro.footers import WRITERS, repeated

SEED = 20261121
COLUMNS, GROUPS = 9, 3


@functools.cache
def footer_by(writer: str) -> bytes:
    return WRITERS[writer](COLUMNS, GROUPS)


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch, *, fast: bool) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(footer, "MIN_BATCH_CHUNKS", 1 if fast else 1 << 62)
        patch.setattr(row_group_batch, "FEW_GROUPS", 1)
        if not fast:
            patch.setattr(footer, "TYPE_DEFINED", b"\xff\xff\xff")
        yield


def parsed(data: bytes, size: int) -> FileMetadata | tuple[type, str, str | None]:
    try:
        return parse_footer(data, file_size=size + len(data) + 8, footer_start=size)
    except AccelError as error:
        return type(error), error.message, error.place


def same(one: FileMetadata, other: FileMetadata) -> None:
    for name in (field.name for field in dataclasses.fields(FileMetadata)):
        a, b = getattr(one, name), getattr(other, name)
        if name == "chunks":
            for column in a.__slots__:
                x, y = getattr(a, column), getattr(b, column)
                assert x.dtype == y.dtype, column
                assert np.array_equal(x, y), column
                assert x.flags.c_contiguous
                assert x.flags.writeable
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, name
            assert np.array_equal(a, b), name
        else:
            assert a == b, name
            assert type(a) is type(b)
    assert one.nbytes == other.nbytes


def agree(monkeypatch: pytest.MonkeyPatch, data: bytes, size: int = 1 << 30) -> bool:
    """Whether both take it, having checked that they say the same."""
    with reading(monkeypatch, fast=False):
        plain = parsed(data, size)
    with reading(monkeypatch, fast=True):
        quick = parsed(data, size)
    if isinstance(plain, tuple) or isinstance(quick, tuple):
        assert quick == plain
        return False
    same(quick, plain)
    return True


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("columns", "groups"), [(9, 3), (1, 1), (33, 2), (2, 40)])
def test_footers_of_many_writers_are_read_at_once(monkeypatch, writer, columns, groups):
    data = WRITERS[writer](columns, groups)
    assert agree(monkeypatch, data)
    taken = []
    read = row_group_batch.read_row_groups
    monkeypatch.setattr(footer, "read_row_groups", lambda *a: taken.append(read(*a)) or taken[0])
    monkeypatch.setattr(row_group_batch, "read_chunk_on", None)  # no chunk is irregular
    with reading(monkeypatch, fast=True):
        assert isinstance(parsed(data, 1 << 30), FileMetadata)
    assert taken[0] is not None


@pytest.mark.parametrize("writer", WRITERS)
def test_bytes_changed(monkeypatch, writer):
    data = footer_by(writer)
    chance = random.Random(f"{SEED}{writer}")
    taken = 0
    for _ in range(500):
        at = chance.randrange(len(data))
        value = chance.choice([0x00, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x10, chance.randrange(256)])
        taken += agree(monkeypatch, data[:at] + bytes([value]) + data[at + 1 :])
    assert 0 < taken < 500


@pytest.mark.parametrize("writer", WRITERS)
def test_truncated_padded_and_spliced(monkeypatch, writer):
    data = footer_by(writer)
    chance = random.Random(f"{SEED}{writer}")
    for _ in range(100):
        assert not agree(monkeypatch, data[: chance.randrange(len(data))])
        at, length = chance.randrange(len(data)), chance.randrange(1, 40)
        agree(monkeypatch, data[:at] + chance.randbytes(length) + data[at + chance.choice([0, length]) :])
        other = chance.randrange(len(data))
        agree(monkeypatch, data[:at] + data[other : other + length] + data[at:])
    for padding in (1, 8, 500):
        assert agree(monkeypatch, data + bytes(padding))


UNKNOWN: list[tuple[int, Any]] = [
    (TRUE, True),
    (I8, 5),
    (I64, -(1 << 62)),
    (DOUBLE, 1.5),
    (BINARY, b"\x1c\x15\x02\x19\x35\x00\x06\x10\x19\x18" * 3),
    (STRUCT, {1: (STRUCT, {15: (I32, 7)}), 2: (LIST, ThriftList(STRUCT, [{}, {3: (I16, 1)}]))}),
    (SET, ThriftList(BINARY, [b"a", b""])),
    (MAP, ThriftMap(BINARY, I32, [(b"k", 1)])),
]
NUMBERS = [
    0,
    1,
    -1,
    63,
    64,
    127,
    128,
    8191,
    8192,
    1 << 20,
    1 << 27,
    1 << 34,
    1 << 41,
    1 << 47,
    1 << 48,
    1 << 49,
]
NUMBERS += [1 << 55, 1 << 56, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63), -5]


def structs(fields: Struct) -> Iterator[Struct]:
    """This struct and all those in it."""
    yield fields
    for ctype, value in fields.values():
        if ctype == STRUCT:
            yield from structs(value)
        elif ctype == LIST and value.etype == STRUCT:
            for item in value.items:
                yield from structs(item)


def distort(fields: Struct, chance: random.Random) -> None:
    """One change to one struct: a field gone, added, of another value or another type."""
    struct = chance.choice(list(structs(fields)))
    if not struct:
        return
    number = chance.choice(list(struct))
    ctype, value = struct[number]
    match chance.randrange(6):
        case 0:
            del struct[number]
        case 1:
            struct[chance.choice([20, 33, 300, chance.randrange(1, 18)])] = chance.choice(UNKNOWN)
        case 2 if I16 <= ctype <= I64:
            struct[number] = (ctype, chance.choice(NUMBERS))
        case 3 if I16 <= ctype <= I64:
            struct[number] = (chance.choice([I16, I32, I64]), value)
        case 4 if ctype == LIST:
            items = value.items
            items[:] = items * chance.choice([0, 2, 3, 6, 15]) if len(items) < 20 else items[:-1]
        case 5 if ctype == BINARY:
            struct[number] = (BINARY, value * chance.choice([0, 2, 20, 150]))
        case _ if ctype in (TRUE, FALSE):
            struct[number] = (ctype, not value)


@pytest.mark.parametrize("writer", WRITERS)
def test_fields_gone_added_and_changed(monkeypatch, writer):
    chance = random.Random(f"{SEED}{writer}")
    taken = 0
    for _ in range(300):
        fields = read_struct(footer_by(writer))[0]
        for _ in range(chance.choice([1, 1, 1, 2, 5, 20])):
            distort(fields, chance)
        try:
            data = write_struct(fields)
        except ValueError:
            continue
        taken += agree(monkeypatch, data, chance.choice([4096, 1 << 30, 1 << 60]))
    assert taken > 30


def varint(value: int, chance: random.Random) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    if len(out) < 8 and chance.random() < 0.02:  # a legal number, longer than it need be
        out.append(value | 128)
        value = 0
    return bytes([*out, value])


def write_oddly(fields: Struct, chance: random.Random) -> bytes:
    """A struct in a legal way that no writer would choose: any order, long headers, long numbers."""
    order = list(fields)
    if chance.random() < 0.05:
        chance.shuffle(order)
    out = bytearray()
    last = 0
    for number in order:
        ctype, value = fields[number]
        if ctype <= FALSE:
            ctype = TRUE if value else FALSE
        if 0 < number - last <= 15 and chance.random() > 0.01:
            out.append(number - last << 4 | ctype)
        else:
            out.append(ctype)
            out += varint(number << 1, chance)
        last = number
        if ctype > FALSE:
            out += write_value(ctype, value, chance)
    return bytes(out) + b"\x00"


def write_value(ctype: int, value: Any, chance: random.Random) -> bytes:
    if I16 <= ctype <= I64:
        return varint((value << 1) ^ (value >> 63), chance)
    if ctype == BINARY:
        return varint(len(value), chance) + value
    if ctype == STRUCT:
        return write_oddly(value, chance)
    assert ctype == LIST
    size = len(value.items)
    if size < 15 and chance.random() > 0.01:
        head = bytes([size << 4 | value.etype])
    else:
        head = bytes([15 << 4 | value.etype]) + varint(size, chance)
    return head + b"".join(write_value(value.etype, item, chance) for item in value.items)


@pytest.mark.parametrize("writer", WRITERS)
def test_legal_but_unusual_encodings(monkeypatch, writer):
    chance = random.Random(f"{SEED}{writer}")
    fields = read_struct(footer_by(writer))[0]
    for _ in range(60):
        assert agree(monkeypatch, write_oddly(fields, chance))


def test_the_head_of_a_chunk_in_a_bound_is_none(monkeypatch):
    """As in a column that holds footers."""
    fields = read_struct(footer_by("pyarrow"))[0]
    bound = b"\x26\x00\x1c\x15\x02\x19\x35\x00\x06\x10\x19\x18\x01a\x15\x00"
    fields[4][1].items[1][1][1].items[2][3][1][12][1][6] = (BINARY, bound)
    assert agree(monkeypatch, write_struct(fields))


def test_one_odd_chunk_among_many_is_read_plainly(monkeypatch):
    fields = read_struct(repeated(footer_by("pyarrow"), 50))[0]
    odd = fields[4][1].items[7][1][1].items[3]
    odd[3][1][17] = (STRUCT, {1: (DOUBLE, 0.5)})
    odd[3][1][12][1][3] = (I64, 1 << 50)
    read = row_group_batch.read_chunk_on
    rows = []
    monkeypatch.setattr(
        row_group_batch, "read_chunk_on", lambda reader: rows.append(read(reader)) or rows[-1]
    )
    assert agree(monkeypatch, write_struct(fields))
    assert len(rows) == 1
    assert 1 << 50 in rows[0]


@pytest.mark.parametrize("longest", [1, 2, 3, 20])
def test_row_groups_sorted_alike_otherwise_and_not_at_all(monkeypatch, longest):
    chance = random.Random(f"{SEED}{longest}")
    for _ in range(40):
        fields = read_struct(repeated(footer_by("pyarrow"), 20))[0]
        some = [
            [
                {1: (I32, column), 2: (TRUE, chance.random() < 0.5), 3: (TRUE, True)}
                for column in range(longest)
            ]
            for _ in range(2)
        ]
        for group in fields[4][1].items:
            if chance.random() < 0.9:
                group[4] = (LIST, ThriftList(STRUCT, some[chance.random() < 0.05]))
        assert agree(monkeypatch, write_struct(fields))
