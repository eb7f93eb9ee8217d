"""How many units are decoded from one file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from accel.decode.columns import cut_calls
from accel.decode.units import Unit
from accel.format.model import Codec

_MIB = 1 << 20


def _known(codec: Codec, sizes: list[int]) -> Any:
    return SimpleNamespace(
        chunks={leaf: SimpleNamespace(codec=codec) for leaf in range(len(sizes))},
        facts={leaf: SimpleNamespace(uncompressed=size) for leaf, size in enumerate(sizes)},
    )


@pytest.mark.parametrize(
    ("codec", "fields", "sizes", "calls"),
    [
        (Codec.ZSTD, [0, 1, 2], [9, 9, 9], [[0, 1, 2]]),
        (Codec.SNAPPY, [0, 1, 2], [1, 3, 4], [[0, 1, 2]]),
        (Codec.SNAPPY, [0, 1, 2], [1, 3, 5], [[0, 1], [2]]),
        (Codec.SNAPPY, [0, 1, 2], [40, 1, 1], [[0], [1, 2]]),
        # What holds siblings against each other sees all of a field.
        (Codec.SNAPPY, [0, 1, 1, 2], [5, 5, 5, 5], [[0], [1, 2], [3]]),
    ],
    ids=["other codec", "all at once", "two", "a large one", "a field of two"],
)
def test_units_are_shared_out(
    codec: Codec, fields: list[int], sizes: list[int], calls: list[list[int]]
) -> None:
    units = [Unit(field, (leaf,), 10, False) for leaf, field in enumerate(fields)]
    found = cut_calls(_known(codec, [size * _MIB for size in sizes]), units)
    assert [[unit.leaves[0] for unit in call] for call in found] == calls
