"""What was read before is known again, for so many bytes, of that version alone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.cache.ghosts import Ghosts
from accel.planning.file import ObjectId
from accel.ranges import ByteRange

KEY = ("t", "f")
FILE = ObjectId("f", 1000, '"1"')
Pair = tuple[int, int]


def meet(ghosts: Ghosts, *spans: Pair, file: ObjectId = FILE, key: tuple[str, str] = KEY) -> list[bool]:
    return ghosts.meet(key, file, [ByteRange(*span) for span in spans])


CASES = [
    pytest.param([[(0, 10)]], [(0, 10)], [True], id="the same"),
    pytest.param([[(0, 10), (20, 30)]], [(20, 30), (0, 10)], [True, True], id="in another order"),
    pytest.param([[(0, 10), (10, 20)]], [(0, 20)], [True], id="cut otherwise"),
    pytest.param([[(0, 20)]], [(0, 10), (10, 20)], [True, True], id="cut further"),
    pytest.param([[(0, 10)]], [(5, 15)], [True], id="half of it"),
    pytest.param([[(0, 10)]], [(6, 16)], [False], id="less than half"),
    pytest.param([[(0, 10)]], [(10, 20)], [False], id="a neighbour"),
    pytest.param([[(0, 4)], [(6, 10)]], [(0, 10)], [True], id="of two reads"),
    pytest.param([[(0, 10)], [(0, 10)]], [(0, 10)], [False], id="kept since then"),
    pytest.param([[(0, 10)], [(2, 4)]], [(0, 2), (4, 10), (2, 4)], [True, True, False], id="kept in part"),
    pytest.param([[(0, 10)], [(20, 50)]], [(0, 10)], [True], id="read between"),
    pytest.param([[(0, 10)], [(20, 70)], [(70, 120)]], [(0, 10)], [False], id="too long ago"),
    pytest.param([[(0, 101)]], [(0, 101)], [False], id="more than the limit"),
    pytest.param([[(0, 60), (70, 111)]], [(0, 60)], [False], id="together more than the limit"),
    pytest.param([[]], [], [], id="nothing"),
]


@pytest.mark.parametrize(("before", "now", "known"), CASES)
def test_what_was_read_before(before: list[list[Pair]], now: list[Pair], known: list[bool]) -> None:
    ghosts = Ghosts(100)
    for read in before:
        meet(ghosts, *read)
    assert meet(ghosts, *now) == known


def test_versions_and_objects_are_apart() -> None:
    ghosts = Ghosts(100)
    other = ObjectId("f", 1000, '"2"')
    meet(ghosts, (0, 10))
    assert meet(ghosts, (0, 10), key=("other credentials", "f")) == [False]
    assert meet(ghosts, (0, 10), key=("t", "g")) == [False]
    assert meet(ghosts, (0, 10), file=other) == [False]
    assert meet(ghosts, (0, 10)) == [False]  # the other version took its place
    assert (len(ghosts), ghosts.nbytes) == (3, 30)
    ghosts.drop(KEY)
    assert meet(ghosts, (0, 10)) == [False]
    ghosts.clear()
    assert (len(ghosts), ghosts.nbytes) == (0, 0)
    assert meet(ghosts, (0, 10), key=("t", "g")) == [False]


def test_a_scan_of_more_than_the_limit_never_knows_itself() -> None:
    ghosts = Ghosts(1_000_000)
    for _ in range(3):
        for at in range(0, 3_000_000, 100_000):
            assert meet(ghosts, (at, at + 60_000), (at + 60_000, at + 100_000)) == [False, False]
            assert (ghosts.nbytes, len(ghosts)) <= (1_000_000, 10)


def test_short_ranges_are_bounded_in_number() -> None:
    ghosts = Ghosts(1 << 30)
    for number in range(100):
        file = ObjectId(f"f{number}", 1 << 20, '"1"')
        meet(ghosts, *((at, at + 1) for at in range(0, 1000, 2)), file=file, key=("t", file.path))
    assert len(ghosts) == 4096


spans = st.tuples(st.integers(0, 99), st.integers(1, 40)).map(lambda s: (s[0], s[0] + s[1]))
steps = st.lists(
    st.tuples(st.sampled_from(["f", "g"]), st.sampled_from(["1", "2"]), st.lists(spans, max_size=4)),
    max_size=30,
)


@given(steps, st.sampled_from([1, 30, 90, 5000, 1 << 20]))
def test_against_sets_of_bytes(reads: list[tuple[str, str, list[Pair]]], limit: int) -> None:
    """Whatever is read in whatever order: without a bound exactly what a set of bytes knows, with one no more."""
    ghosts = Ghosts(limit)
    model: dict[str, tuple[str, set[int]]] = {}
    for path, etag, wanted in reads:
        file, key = ObjectId(path, 1000, etag), ("t", path)
        held = model.get(path, (etag, set()))[1] if model.get(path, (etag,))[0] == etag else set()
        expected = [sum(at in held for at in range(*span)) * 2 >= span[1] - span[0] for span in wanted]
        known = meet(ghosts, *wanted, file=file, key=key)
        if limit == 1 << 20:
            assert known == expected
        assert all(one or not other for one, other in zip(expected, known, strict=True))
        if sum(end - start for start, end in wanted) <= limit:
            for span in wanted:
                held -= set(range(*span))
            for span, one in zip(wanted, known, strict=True):
                held |= set() if one else set(range(*span))
            model[path] = (etag, held)
        _check(ghosts, model, limit)


def _check(ghosts: Ghosts, model: dict[str, tuple[str, set[int]]], limit: int) -> None:
    """What is remembered is what was read, in order and apart, and found from both sides."""
    assert ghosts.nbytes <= limit
    found = [ghost for read in ghosts._reads.values() for ghost in read.items]
    assert set(map(id, found)) == set(map(id, ghosts._latest)) and len(found) == len(ghosts)
    for (_, path), read in ghosts._reads.items():
        etag, held = model[path]
        assert read.items and read.id.etag == etag
        assert read.starts == [ghost.start for ghost in read.items]
        assert all(one.end <= two.start for one, two in itertools.pairwise(read.items))
        assert {at for ghost in read.items for at in range(ghost.start, ghost.end)} <= held
