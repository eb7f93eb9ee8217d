"""Bounds of pages held against those of their chunk."""

from __future__ import annotations

import random

import numpy as np
import pytest

from accel.format.bounds import agrees_with_chunk
from accel.format.domain import Bounds, Domain


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


TEXTS = {
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


@pytest.mark.parametrize(("pages", "chunk", "fits"), TEXTS.values(), ids=TEXTS.keys())
def test_texts(pages: list[tuple], chunk: tuple, fits: bool) -> None:
    assert agree(pages, chunk) is fits


NUMBERS = {
    "the same": ([(1, 5), (4, 9)], (1, 9), True),
    "outside": ([(0, 5), (4, 9)], (1, 9), False),
    "above": ([(1, 5), (4, 10)], (1, 9), False),
    "too narrow": ([(1, 5), (4, 8)], (1, 9), False),
    "too narrow, and a page without": ([(1, 5), (4, None)], (1, 9), True),
    "beyond": ([(1, 5), (10, None)], (1, 9), False),
    "a chunk without an upper one": ([(1, 5)], (1, None), True),
}


@pytest.mark.parametrize(("pages", "chunk", "fits"), NUMBERS.values(), ids=NUMBERS.keys())
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
