"""What is kept and what goes, against `cachetools.LRUCache`."""

from __future__ import annotations

import cachetools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.recent import Recent

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "pop", "clear"]), st.integers(0, 6), st.integers(0, 9))
)


@given(STEPS)
def test_as_the_library_has_it(steps: list[tuple[str, int, int]]) -> None:
    ours: Recent[int, int] = Recent(9, size_of=lambda value: value)
    theirs: cachetools.LRUCache[int, int] = cachetools.LRUCache(9, getsizeof=lambda value: value)
    for what, key, value in steps:
        if what == "put":
            ours.put(key, value)
            theirs.pop(key, None)
            theirs[key] = value
        elif what == "get":
            assert ours.get(key) == theirs.get(key)
        elif what == "pop":
            ours.pop(key)
            theirs.pop(key, None)
        elif value > 7:
            ours.clear()
            theirs.clear()
        assert dict(ours._values) == dict(theirs.items())
        assert (len(ours), ours.size) == (len(theirs), theirs.currsize)


def test_values_count_one_each_unless_said_otherwise() -> None:
    recent: Recent[str, str] = Recent(3)
    for name in "abc":
        recent.put(name, name.upper())
    assert recent.get("a") == "A"
    recent.put("d", "D", 2)
    assert [recent.get(name) for name in "abcd"] == ["A", None, None, "D"]
    assert (recent.size, recent.evictions) == (3, 2)


def test_what_alone_exceeds_the_limit_is_refused() -> None:
    recent: Recent[str, bytes] = Recent(3, size_of=len)
    recent.put("a", b"1")
    with pytest.raises(ValueError, match="a value of 4, where all may have 3"):
        recent.put("a", b"1234")
    assert recent.get("a") == b"1"
