"""Segments of objects: what is held comes back exact, bounded by bytes, what was used again last to go."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping, Sequence

import pytest
from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st

from accel.cache.byte_tier import ByteTier, CachedRange
from accel.ranges import ByteRange, ObjectId

OBJECT = bytes(range(200))
FILE = ObjectId("f", len(OBJECT), '"1"')
OVERHEAD = 256


def keep(cache: ByteTier, start: int, end: int, file: ObjectId = FILE) -> None:
    cache.put("t", file, start, memoryview(OBJECT[start:end]))


def find(cache: ByteTier, start: int, end: int, file: ObjectId = FILE) -> CachedRange:
    return cache.find("t", file, [ByteRange(start, end)])[0]


CASES = [
    pytest.param([], (10, 20), (10, 20), 0, id="nothing"),
    pytest.param([(10, 20)], (10, 20), None, 10, id="the same"),
    pytest.param([(0, 100)], (10, 20), None, 10, id="inside"),
    pytest.param([(0, 15), (15, 30)], (10, 20), None, 10, id="over two neighbours"),
    pytest.param([(0, 15)], (10, 20), (15, 20), 5, id="the beginning"),
    pytest.param([(15, 30)], (10, 20), (10, 15), 5, id="the end"),
    pytest.param([(0, 12), (18, 30)], (10, 20), (12, 18), 4, id="both ends"),
    pytest.param([(12, 18)], (10, 20), (10, 20), 0, id="only the middle"),
    pytest.param([(0, 11), (12, 13), (19, 30)], (10, 20), (11, 19), 2, id="a part between does not count"),
    pytest.param([(0, 10), (20, 30)], (10, 20), (10, 20), 0, id="neighbours"),
    pytest.param([(0, 15), (10, 20)], (0, 20), None, 20, id="they overlapped"),
    pytest.param([(10, 20), (5, 30)], (5, 30), None, 25, id="swallowed"),
    pytest.param([(5, 30), (10, 20)], (5, 30), None, 25, id="held already"),
]


@pytest.mark.parametrize(("kept", "wanted", "missing", "nbytes"), CASES)
def test_what_is_held(
    kept: list[tuple[int, int]], wanted: tuple[int, int], missing: tuple[int, int] | None, nbytes: int
) -> None:
    cache = ByteTier(1 << 20)
    for start, end in kept:
        keep(cache, start, end)
    gap = None if missing is None else ByteRange(*missing)
    assert cache.missing("t", FILE, ByteRange(*wanted)) == gap
    held = find(cache, *wanted)
    assert (held.missing, held.nbytes) == (gap, nbytes)
    came = None if missing is None else memoryview(OBJECT[slice(*missing)])
    assert held.complete(came) == OBJECT[slice(*wanted)]


spans = st.tuples(st.integers(0, 199), st.integers(1, 60)).map(lambda s: (s[0], min(200, s[0] + s[1])))
moves = st.lists(st.tuples(st.sampled_from(["put", "find", "find", "drop"]), spans), max_size=60)


@given(moves, st.sampled_from([0, 600, 1500, 1 << 20]))
def test_against_a_set_of_bytes(steps: list[tuple[str, tuple[int, int]]], limit: int) -> None:
    """Whatever is kept, in whatever order: what comes back is the object's, and never above the limit."""
    cache, known = ByteTier(limit), set[int]()
    for what, (start, end) in steps:
        if what == "put":
            cache.put("t", FILE, start, memoryview(OBJECT[start:end]))
            known |= set(range(start, end))
        elif what == "drop":
            cache.drop("t", "f")
            known.clear()
            assert (len(cache), cache.nbytes) == (0, 0)
        else:
            held = find(cache, start, end)
            lacking = set() if held.missing is None else set(range(held.missing.start, held.missing.end))
            assert set(range(start, end)) - lacking <= known
            if limit == 1 << 20:
                holes = [at for at in range(start, end) if at not in known]
                assert held.missing == (ByteRange(holes[0], holes[-1] + 1) if holes else None)
            came = None if held.missing is None else memoryview(OBJECT[held.missing.start : held.missing.end])
            assert held.complete(came) == OBJECT[start:end]
        assert cache.nbytes <= limit


def test_another_version_takes_its_place() -> None:
    cache = ByteTier(1 << 20)
    keep(cache, 0, 10)
    other = ObjectId("f", len(OBJECT), '"2"')
    assert find(cache, 0, 10, other).missing == ByteRange(0, 10)
    keep(cache, 50, 60, other)
    assert find(cache, 0, 10).missing == ByteRange(0, 10)
    assert (find(cache, 50, 60, other).missing, len(cache)) == (None, 1)


def test_objects_and_stores_are_apart() -> None:
    cache = ByteTier(1 << 20)
    keep(cache, 0, 10)
    assert cache.find("other credentials", FILE, [ByteRange(0, 10)])[0].missing is not None
    assert find(cache, 0, 10, ObjectId("g", len(OBJECT), '"1"')).missing is not None
    cache.drop("t", "g")
    assert find(cache, 0, 10).missing is None


def version(number: int) -> ObjectId:
    return ObjectId(f"f{number}", 100, '"1"')


def test_the_least_recently_used_goes_first() -> None:
    tier, whole = ByteTier(4 * (100 + OVERHEAD)), ByteRange(0, 100)
    for number in range(4):
        tier.put("t", version(number), 0, memoryview(bytes(100)))
    assert tier.find("t", version(0), [whole])[0].missing is None
    assert tier.missing("t", version(1), whole) is None  # is no use of it
    for number in range(4, 6):
        tier.put("t", version(number), 0, memoryview(bytes(100)))
    cached = [number for number in range(6) if tier.missing("t", version(number), whole) is None]
    assert (cached, len(tier), tier.evictions) == ([0, 3, 4, 5], 4, 2)


def admit(
    tier: ByteTier, *spans: tuple[int, int], file: ObjectId = FILE, so_far: int = 1 << 30
) -> Sequence[bool]:
    return tier.admit("t", file, [ByteRange(*span) for span in spans], so_far=so_far)


def test_a_small_read_is_stored_the_first_time_as_long_as_its_scan_reads_little() -> None:
    tier = ByteTier(64 * 1000)
    tier.put("t", version(0), 0, memoryview(bytes(33_000)))  # more than half of it is in use
    assert admit(tier, (0, 400), (500, 1100), so_far=8000) == [True, True]
    assert admit(tier, (0, 400), (500, 1101), so_far=8000) == [False, False]
    assert admit(tier, (2000, 2400), so_far=8001) == [False]
    assert admit(tier, (2000, 2400), so_far=8001) == [True]


def test_a_large_read_is_stored_the_second_time() -> None:
    tier = ByteTier(64 * 1000)
    assert admit(tier, (0, 400), (500, 1101)) == [False, False]
    assert admit(tier, (0, 400), (2000, 3000)) == [True, False]
    assert admit(tier, (500, 1101), (2000, 3000)) == [True, True]
    assert admit(tier, (0, 400), (500, 1101), (2000, 3000)) == [False] * 3  # stored since, as far as it knows
    assert admit(tier, (0, 400), file=ObjectId("f", len(OBJECT), '"2"')) == [False]  # another version
    tier.clear()
    assert admit(tier, (0, 400)) == [False]
    # More than half of it is never stored, in one read or in several.
    assert [admit(tier, (0, 32_001)) for _ in range(2)] == [[False]] * 2
    for _ in range(2):
        assert [admit(tier, (at, at + 4000)) for at in range(0, 40_000, 4000)] == [[False]] * 10
    assert admit(ByteTier(0), (0, 1)) == [False]


def test_a_large_read_is_stored_at_once_while_half_is_empty_and_its_scan_reads_little() -> None:
    tier, spans = ByteTier(64 * 1000), ((0, 1000), (2000, 3000))
    assert admit(tier, *spans, so_far=4000) == [True, True]
    assert admit(tier, *spans, so_far=4001) == [False, False]
    tier.put("t", FILE, 10_000, memoryview(bytes(32_000 - 2 * (1000 + OVERHEAD) - OVERHEAD)))
    assert admit(tier, (4000, 5000), (6000, 7000), so_far=2000) == [True, True]
    tier.put("t", FILE, 0, memoryview(bytes(1)))
    assert admit(tier, (4000, 5000), (6000, 7000), so_far=2000) == [False, False]


@pytest.fixture(params=["at once", "item by item"])
def clearing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How cachetools clears a cache depends on its version."""
    if request.param == "item by item":
        monkeypatch.setattr(LRUCache, "clear", MutableMapping.clear)


@pytest.mark.usefixtures("clearing")
def test_nothing_is_left_that_was_cleared() -> None:
    cache = ByteTier(1 << 20)
    keep(cache, 0, 100)
    keep(cache, 100, 200)
    find(cache, 0, 100)
    cache.clear()
    assert (len(cache), cache.nbytes, cache.evictions) == (0, 0, 0)
    assert find(cache, 0, 200).nbytes == 0
    keep(cache, 0, 200)
    assert (len(cache), find(cache, 0, 200).missing) == (1, None)


def test_a_segment_above_the_limit_is_not_kept() -> None:
    cache = ByteTier(300)
    keep(cache, 0, 10)
    keep(cache, 20, 190)
    assert (find(cache, 0, 10).missing, len(cache)) == (None, 1)


def test_nothing_larger_is_kept_alive() -> None:
    """Cut to what was not stored yet, a segment is a copy."""
    cache = ByteTier(1 << 20)
    keep(cache, 0, 10)
    keep(cache, 5, 150)
    parts = find(cache, 0, 150).before
    assert [len(bytes(part.obj)) for part in parts] == [10, 140]  # type: ignore[arg-type]


def test_several_threads() -> None:
    cache = ByteTier(30 * (10 + OVERHEAD))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(2_000):
                start = (seed * 37 + step * 13) % 190
                if step % 50 == 0:
                    cache.drop("t", "f")
                elif step % 3:
                    keep(cache, start, start + 10)
                else:
                    held = find(cache, start, start + 10)
                    gap = held.missing
                    came = None if gap is None else memoryview(OBJECT[gap.start : gap.end])
                    assert held.complete(came) == OBJECT[start : start + 10]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cache.nbytes <= cache.limit
