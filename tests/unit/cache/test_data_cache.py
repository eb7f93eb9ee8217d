"""Segments of objects: what is held comes back exact, bounded by bytes, what was used again last to go."""

from __future__ import annotations

import itertools
import threading
from collections.abc import MutableMapping, Sequence

import pytest
from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st

from accel.cache.data_cache import DataCache, Held
from accel.planning.file import ObjectId
from accel.ranges import ByteRange

OBJECT = bytes(range(200))
FILE = ObjectId("f", len(OBJECT), '"1"')
OVERHEAD = 256


def keep(cache: DataCache, start: int, end: int, file: ObjectId = FILE) -> None:
    cache.keep("t", file, start, memoryview(OBJECT[start:end]))


def find(cache: DataCache, start: int, end: int, file: ObjectId = FILE) -> Held:
    return cache.find("t", file, ByteRange(start, end))


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
    cache = DataCache(1 << 20)
    for start, end in kept:
        keep(cache, start, end)
    gap = None if missing is None else ByteRange(*missing)
    assert cache.missing("t", FILE, ByteRange(*wanted)) == gap
    held = find(cache, *wanted)
    assert (held.missing, held.nbytes) == (gap, nbytes)
    came = None if missing is None else memoryview(OBJECT[slice(*missing)])
    assert held.complete(came) == OBJECT[slice(*wanted)]


spans = st.tuples(st.integers(0, 199), st.integers(1, 60)).map(lambda s: (s[0], min(200, s[0] + s[1])))
moves = st.lists(
    st.tuples(st.sampled_from(["keep", "keep known", "find", "find", "find", "drop"]), spans), max_size=60
)


@given(moves, st.sampled_from([0, 600, 1500, 1 << 20]))
def test_against_a_set_of_bytes(steps: list[tuple[str, tuple[int, int]]], limit: int) -> None:
    """Whatever is kept, in whatever order: what comes back is the object's, and never above the limit."""
    cache, known = DataCache(limit), set[int]()
    for what, (start, end) in steps:
        if what.startswith("keep"):
            cache.keep("t", FILE, start, memoryview(OBJECT[start:end]), known=what == "keep known")
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
        version = cache._versions.get(("t", "f"))
        segments = [] if version is None else version.items
        assert len(segments) == len(cache)
        assert set(map(id, segments)) == {id(s) for order in (cache._new, cache._protected) for s in order}
        assert cache._protected.currsize <= limit * 3 // 4
        assert cache.nbytes == sum(s.end - s.start + OVERHEAD for s in segments)
        assert all(s.data.nbytes == s.end - s.start for s in segments)
        assert all(one.end <= two.start for one, two in itertools.pairwise(segments))
        assert version is None or version.starts == [s.start for s in segments]


def test_another_version_takes_its_place() -> None:
    cache = DataCache(1 << 20)
    keep(cache, 0, 10)
    other = ObjectId("f", len(OBJECT), '"2"')
    assert find(cache, 0, 10, other).missing == ByteRange(0, 10)
    keep(cache, 50, 60, other)
    assert find(cache, 0, 10).missing == ByteRange(0, 10)
    assert (find(cache, 50, 60, other).missing, len(cache)) == (None, 1)


def test_objects_and_stores_are_apart() -> None:
    cache = DataCache(1 << 20)
    keep(cache, 0, 10)
    assert cache.find("other credentials", FILE, ByteRange(0, 10)).missing is not None
    assert find(cache, 0, 10, ObjectId("g", len(OBJECT), '"1"')).missing is not None
    cache.drop("t", "g")
    assert find(cache, 0, 10).missing is None


def test_what_was_used_again_outlives_a_scan() -> None:
    """Ten lookups asked twice stay, whatever is read once after them; what was asked once goes."""
    segment = 100 + OVERHEAD
    cache = DataCache(40 * segment)
    data = memoryview(bytes(100))

    def version(number: int) -> ObjectId:
        return ObjectId(f"f{number}", 100, '"1"')

    whole = ByteRange(0, 100)
    for number in range(20):
        cache.keep("t", version(number), 0, data)
    for number in range(10):
        assert cache.find("t", version(number), whole).missing is None
    for number in range(100, 1100):
        cache.keep("t", version(number), 0, data)
    assert [cache.missing("t", version(n), whole) is None for n in range(20)] == [True] * 10 + [False] * 10
    assert (len(cache), cache.evictions) == (40, 980)


def test_the_protected_make_way_for_each_other() -> None:
    """Three quarters at most are protected: what is used again and again goes on to change with the times."""
    segment = 100 + OVERHEAD
    cache = DataCache(40 * segment)
    whole = ByteRange(0, 100)
    versions = [ObjectId(f"f{number}", 100, '"1"') for number in range(200)]
    for version in versions:
        cache.keep("t", version, 0, memoryview(bytes(100)))
        cache.find("t", version, whole)
    held = [cache.missing("t", version, whole) is None for version in versions]
    assert held == [False] * 160 + [True] * 40


def admit(
    cache: DataCache, *spans: tuple[int, int], file: ObjectId = FILE, so_far: int = 0
) -> Sequence[bool] | None:
    return cache.admit("t", file, [ByteRange(*span) for span in spans], so_far=so_far)


def test_a_large_read_is_admitted_when_it_is_read_again() -> None:
    cache = DataCache(64 * 1000)
    assert admit(cache, (0, 400), (500, 1100)) is None  # small: whatever was read before
    assert admit(cache, (0, 400), (500, 1101)) == [False, False]
    assert admit(cache, (0, 400), (2000, 3000)) == [True, False]
    assert admit(cache, (500, 1101), (2000, 3000)) == [True, True]
    assert admit(cache, (0, 400), (500, 1101), (2000, 3000)) == [False] * 3  # kept since, as far as they know
    assert admit(cache, (0, 32_001)) == [False]
    assert admit(cache, (0, 32_001)) == [False]  # more than half
    assert admit(DataCache(0), (0, 1)) == [False]


def test_what_a_scan_reads_beyond_its_share_is_admitted_when_it_is_read_again() -> None:
    cache = DataCache(64 * 1000)
    assert admit(cache, (0, 400), so_far=8000) is None
    assert admit(cache, (400, 800), so_far=8001) == [False]
    assert admit(cache, (400, 800), so_far=8001) == [True]


def test_there_is_room_until_half_of_it_is_filled() -> None:
    cache = DataCache(64 * 1000)
    ranges = [ByteRange(0, 1000), ByteRange(2000, 3000)]
    assert cache.has_room(ranges, so_far=4000)
    assert not cache.has_room(ranges, so_far=4001)
    held = 32 * 1000 - 2 * (1000 + OVERHEAD)
    cache.keep("t", FILE, 10_000, memoryview(bytes(held - OVERHEAD)))
    assert cache.has_room(ranges, so_far=2000)
    cache.keep("t", FILE, 0, memoryview(bytes(1)))
    assert not cache.has_room(ranges, so_far=2000)
    assert not DataCache(0).has_room(ranges, so_far=2000)


def test_what_was_read_is_forgotten_with_its_object() -> None:
    cache = DataCache(64 * 1000)
    other = ObjectId("f", len(OBJECT), '"2"')
    for forget in (lambda: cache.drop("t", "f"), cache.clear, lambda: admit(cache, (0, 2000), file=other)):
        admit(cache, (0, 2000))
        forget()
        assert admit(cache, (0, 2000)) == [False]
        assert admit(cache, (0, 2000)) == [True]


@pytest.fixture(params=["at once", "item by item"])
def clearing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How cachetools clears a cache depends on its version."""
    if request.param == "item by item":
        monkeypatch.setattr(LRUCache, "clear", MutableMapping.clear)


@pytest.mark.usefixtures("clearing")
def test_nothing_is_left_that_was_cleared() -> None:
    cache = DataCache(1 << 20)
    keep(cache, 0, 100)
    keep(cache, 100, 200)
    find(cache, 0, 100)  # protected
    cache.clear()
    assert (len(cache), cache.nbytes, cache.evictions) == (0, 0, 0)
    assert find(cache, 0, 200).nbytes == 0
    keep(cache, 0, 200)
    assert (len(cache), find(cache, 0, 200).missing) == (1, None)


def test_a_large_read_that_is_known_is_protected_and_displaces_what_is_new() -> None:
    segment = 100 + OVERHEAD
    cache = DataCache(40 * segment)
    whole = ByteRange(0, 100)
    files = [ObjectId(f"f{number}", 100, '"1"') for number in range(50)]
    for file in files[:40]:
        cache.keep("t", file, 0, memoryview(bytes(100)))
    for file in files[:10]:
        cache.find("t", file, whole)
    for file in files[40:]:
        cache.keep("t", file, 0, memoryview(bytes(100)), known=True)
    held = [cache.missing("t", file, whole) is None for file in files]
    assert held == [True] * 10 + [False] * 10 + [True] * 30
    for number in range(100):
        cache.keep("t", ObjectId(f"g{number}", 100, '"1"'), 0, memoryview(bytes(100)))
    held = [cache.missing("t", file, whole) is None for file in files]
    assert held == [True] * 10 + [False] * 30 + [True] * 10


def test_a_segment_above_the_limit_is_not_kept() -> None:
    cache = DataCache(300)
    keep(cache, 0, 10)
    keep(cache, 20, 190)
    assert (find(cache, 0, 10).missing, len(cache)) == (None, 1)


def test_nothing_larger_is_kept_alive() -> None:
    """Cut to what was not held yet, a segment is a copy."""
    cache = DataCache(1 << 20)
    keep(cache, 0, 10)
    keep(cache, 5, 150)
    version = cache._versions["t", "f"]
    assert [len(bytes(s.data.obj)) for s in version.items] == [10, 140]  # type: ignore[arg-type]


def test_several_threads() -> None:
    cache = DataCache(30 * (10 + OVERHEAD))
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
