"""Structs read together: each is as `ThriftReader` reads it, or marked irregular."""

from __future__ import annotations

import random

import numpy as np
import pytest

from accel.format.thrift import BINARY, I32, I64, STRUCT, TRUE, Struct, ThriftReader, write_struct
from accel.format.thrift_batch import Field, StructBatch, as_words

NUMBERS = [
    0,
    1,
    -1,
    63,
    -64,
    64,
    8191,
    8192,
    -(1 << 20),
    1 << 27,
    1 << 34,
    (1 << 47) - 1,
    1 << 47,
    (1 << 48) - 1,
]
"""What fits into seven bytes, at the edges of each."""


def batch_of(structs: list[bytes]) -> StructBatch:
    data = b"".join(structs) + bytes(8)
    starts = np.cumsum([0, *map(len, structs[:-1])])
    return StructBatch(as_words(data), starts.astype(np.int64))


def number(name: str) -> object:
    return lambda batch: {name: batch.number()}


def span(batch: StructBatch) -> dict[str, np.ndarray]:
    start, length = batch.span()
    return {"start": start, "length": length}


FIELDS: list[Field] = [(1, I64, number("a")), (2, BINARY, span), (5, I32, number("b"))]


def test_numbers_of_every_length():
    structs = [write_struct({1: (I64, value)}) for value in NUMBERS]
    batch = batch_of(structs)
    found = batch.read(FIELDS)
    assert found["a"].tolist() == NUMBERS
    assert batch.pos.tolist() == np.cumsum(list(map(len, structs))).tolist()
    assert not batch.irregular.any()


@pytest.mark.parametrize("value", [1 << 48, -(1 << 60), (1 << 63) - 1])
def test_longer_numbers_are_odd(value):
    batch = batch_of([write_struct({1: (I64, v)}) for v in (5, value, 6)])
    found = batch.read(FIELDS)
    assert batch.irregular.tolist() == [False, True, False]
    assert found["a"][[0, 2]].tolist() == [5, 6]


def test_fields_that_only_some_have():
    chance = random.Random(1)
    wanted: list[Struct] = []
    for _ in range(200):
        struct: Struct = {}
        if chance.random() < 0.7:
            struct[1] = (I64, chance.choice(NUMBERS))
        if chance.random() < 0.5:
            struct[2] = (BINARY, b"x" * chance.choice([0, 1, 5, 127, 128, 300]))
        if chance.random() < 0.7:
            struct[5] = (I32, chance.randrange(-100, 100))
        wanted.append(struct)
    structs = list(map(write_struct, wanted))
    batch = batch_of(structs)
    found = batch.read(FIELDS)
    assert not batch.irregular.any()
    assert batch.pos.tolist() == np.cumsum(list(map(len, structs))).tolist()
    assert found["a"].tolist() == [s[1][1] if 1 in s else -1 for s in wanted]
    assert found["b"].tolist() == [s[5][1] if 5 in s else -1 for s in wanted]
    assert found["length"].tolist() == [len(s[2][1]) if 2 in s else -1 for s in wanted]


ODD = {
    "unknown field": {1: (I64, 5), 3: (I64, 1)},
    "another type": {1: (I32, 5)},
    "a field far on": {1: (I64, 5), 30: (I64, 1)},
    "a boolean": {1: (TRUE, True)},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_other_fields_are_odd(odd):
    usual: Struct = {1: (I64, 7), 5: (I32, 8)}
    batch = batch_of([write_struct(s) for s in (usual, odd, usual)])
    batch.read(FIELDS)
    assert batch.irregular.tolist() == [False, True, False]


def test_nested_structs():
    structs = [write_struct({3: (STRUCT, {1: (I64, v)} if v else {}), 4: (I64, -v)}) for v in range(40)]
    batch = batch_of(structs)
    found = batch.read([(3, STRUCT, lambda part: part.nested(FIELDS)), (4, I64, number("after"))])
    assert found["a"].tolist() == [-1, *range(1, 40)]
    assert found["after"].tolist() == [-v for v in range(40)]
    assert not batch.irregular.any()


def test_numbers_passed_over():
    chance = random.Random(2)
    counts = [chance.randrange(12) for _ in range(100)]
    runs = [
        b"".join(write_struct({1: (I64, chance.choice(NUMBERS))})[1:-1] for _ in range(c)) for c in counts
    ]
    batch = batch_of([run + b"\x00" for run in runs])
    starts = batch.pos
    batch.pass_numbers(np.array(counts))
    assert (batch.pos - starts).tolist() == list(map(len, runs))
    assert not batch.irregular.any()


def test_a_lane_that_leaves_the_buffer_is_an_index_error():
    batch = batch_of([write_struct({2: (BINARY, b"")})[:1] + b"\xff\xff\x7f", b"\x00"])
    with pytest.raises(IndexError):
        batch.read(FIELDS)


def test_as_the_plain_reader():
    data = write_struct({1: (I64, -12345), 2: (BINARY, b"abc"), 5: (I32, 9)})
    batch = batch_of([data])
    found = batch.read(FIELDS)
    reader = ThriftReader(data)
    assert [ctype for _, ctype in [next(reader.fields())]] == [I64]
    assert reader.zigzag() == found["a"][0]
    assert data[found["start"][0] :][: found["length"][0]] == b"abc"
