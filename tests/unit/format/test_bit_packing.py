"""Bit-packed groups of every width: unpacked, picked, and compared with a limit as they are packed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from accel.format.bit_packing import GROUP, PADDING, are_below, pick_packed, unpack_groups


def _pack(values: list[int], width: int) -> bytes:
    number = sum(value << (place * width) for place, value in enumerate(values))
    return number.to_bytes(len(values) // GROUP * width, "little") + PADDING


@pytest.mark.parametrize("width", range(1, 33))
def test_every_width(width: int) -> None:
    rng, top = random.Random(width), (1 << width) - 1
    values = [rng.choice([0, top, rng.randint(0, top)]) for _ in range(GROUP * 21)]
    data = _pack(values, width)
    assert unpack_groups(data, width).tolist() == values
    places = sorted(rng.sample(range(len(values)), 9))
    assert pick_packed(data, width, np.array(places)).tolist() == [values[place] for place in places]


@pytest.mark.parametrize("width", range(1, 33))
def test_one_value_that_reaches_the_limit_is_found_wherever_it_is(width: int) -> None:
    rng, top = random.Random(width), (1 << width) - 1
    for limit in sorted({1, (top + 1) // 2, rng.randint(1, top), max(1, top - 1), top}):
        below = [rng.choice([limit - 1, rng.randrange(limit)]) for _ in range(GROUP * 3)]
        assert are_below(_pack(below, width), width, limit)
        for place in range(len(below)):
            for value in {limit, top}:
                values = [*below[:place], value, *below[place + 1 :]]
                assert not are_below(_pack(values, width), width, limit)


def test_a_limit_beyond_the_width_and_one_of_nothing() -> None:
    assert are_below(_pack([7] * 8, 3), 3, 8)
    assert are_below(_pack([7] * 8, 3), 3, 1 << 40)
    assert not are_below(_pack([0] * 8, 3), 3, 0)
    assert are_below(PADDING, 3, 0)


def test_no_groups() -> None:
    assert unpack_groups(PADDING, 5).tolist() == []
