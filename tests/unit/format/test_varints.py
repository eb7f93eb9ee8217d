"""The numpy passes over Thrift numbers equal the plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import ParquetFormatError
from accel.format.thrift import I64, ThriftList, ThriftReader, read_zigzags, write_struct

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
