"""The tree of what a user writes: what is equal, and what is not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.predicate.expr import Column, InArray

KEYS = InArray(Column(("a",)), pa.array([1, 2]))


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (InArray(Column(("a",)), pa.array([1, 2]), position=9), True),
        (InArray(Column(("a",)), pa.array([1, 3])), False),
        (InArray(Column(("a",)), pa.array([1, 2, 3])), False),
        (InArray(Column(("a",)), pa.array([1, 2], pa.int32())), False),
        (InArray(Column(("b",)), pa.array([1, 2])), False),
        (Column(("a",)), False),
    ],
    ids=[
        "elsewhere in the text",
        "other keys",
        "more keys",
        "another type",
        "another column",
        "another node",
    ],
)
def test_large_lists_are_equal_by_content(other: object, equal: bool) -> None:
    assert (other == KEYS) is equal
    if equal:
        assert hash(other) == hash(KEYS)
