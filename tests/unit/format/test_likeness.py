"""Schema elements that are like one read before."""

from __future__ import annotations

import pytest

from accel.format.schema import Likenesses, read_elements
from accel.format.thrift import BINARY, I32, I64, STRUCT, TRUE, Struct, ThriftReader, write_struct


def element(name: bytes, **more: object) -> Struct:
    fields: Struct = {1: (I32, 2), 3: (I32, 1), 4: (BINARY, name)}
    return fields | {int(key[1:]): value for key, value in more.items()}  # type: ignore[misc]


def read(first: Struct, second: Struct) -> tuple[object, object] | None:
    """What the second is by its likeness to the first, and what it is."""
    data = write_struct(first) + write_struct(second)
    plain = read_elements(ThriftReader(b"\x2c" + data))
    likes = Likenesses(data)
    likes.learn(plain[0])
    found = likes.read(len(plain[0].raw))
    if found is None:
        return None
    assert found[1] == len(data)
    return found[0], plain[1]


TEXT = (STRUCT, {1: (STRUCT, {})})
ALIKE = {
    "names": (element(b"a"), element(b"another")),
    "an empty name": (element(b"a"), element(b"")),
    "annotations": (element(b"a", f6=(I32, 0), f10=TEXT), element(b"b", f6=(I32, 0), f10=TEXT)),
    "field ids": (element(b"a", f9=(I32, 1), f10=TEXT), element(b"b", f9=(I32, 1 << 20), f10=TEXT)),
    "unknown fields": (element(b"a", f40=(I64, 7)), element(b"b", f40=(I64, 7))),
    "groups": ({4: (BINARY, b"g"), 5: (I32, 3)}, {4: (BINARY, b"h"), 5: (I32, 3)}),
}


@pytest.mark.parametrize(("first", "second"), ALIKE.values(), ids=ALIKE.keys())
def test_alike(first, second):
    found = read(first, second)
    assert found is not None
    assert found[0] == found[1]


UNLIKE = {
    "another type": (element(b"a"), element(b"b") | {1: (I32, 6)}),
    "another repetition": (element(b"a"), element(b"b") | {3: (I32, 0)}),
    "an annotation": (element(b"a"), element(b"b", f6=(I32, 0))),
    "another scale": (element(b"a", f7=(I32, 2)), element(b"b", f7=(I32, 3))),
    "a long name": (element(b"a"), element(b"b" * 128)),
    "a name that is no text": (element(b"a"), element(b"\xff\xfe")),
    "no field id": (element(b"a", f9=(I32, 1)), element(b"b")),
    "a flag": (element(b"a", f20=(TRUE, True)), element(b"b", f20=(TRUE, False))),
}


@pytest.mark.parametrize(("first", "second"), UNLIKE.values(), ids=UNLIKE.keys())
def test_unlike(first, second):
    data = write_struct(first) + write_struct(second)
    likes = Likenesses(data)
    likes.learn(read_elements(ThriftReader(b"\x1c" + write_struct(first)))[0])
    assert likes.read(len(write_struct(first))) is None


def test_two_names_are_not_learned():
    twice = b"\x48\x01a\x08\x08\x01b\x00"
    likes = Likenesses(twice)
    likes.learn(read_elements(ThriftReader(b"\x1c" + twice))[0])
    assert likes.read(0) is None


def test_a_wide_schema_is_read_by_likeness():
    structs = [element(b"name %d" % i, f9=(I32, i)) for i in range(500)]
    data = b"\xfc\xf4\x03" + b"".join(map(write_struct, structs))
    reader = ThriftReader(data)
    elements = read_elements(reader)
    assert [e.name for e in elements] == [f"name {i}" for i in range(500)]
    assert [e.field_id for e in elements] == list(range(500))
    assert b"".join(e.raw for e in elements) == data[3:]
    assert reader.pos == len(data)
