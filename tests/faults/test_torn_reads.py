"""An object is replaced while it is read: the answer is one version whole, or an error, never a mixture.

The stores here are in memory and change at an exact request; `test_torn_reads_minio.py` does the same over
sockets.
"""

from __future__ import annotations

import pytest

import accel
from accel.ranges import Suffix
from accel.store.range_store import RangeStore
from accel.testing import (
    Attempt,
    DictStore,
    Fault,
    FaultStore,
    OtherVersion,
    RecordingStore,
    ShortBody,
    WrongRange,
)
from tests.faults.versions import OPTIONS, PATH, ROWS, WHERE, expected, outcome, version

A, B = version(1), version(2)
LARGER, SMALLER = version(2, rows=ROWS + 5_000), version(2, rows=ROWS - 5_000)
A_ROWS, B_ROWS = expected(1), expected(2)
WHOLE_A_OR_B = {"a", "b"}


def scan_of(store: RangeStore, cache: accel.Cache | None = None) -> accel.Scan:
    return accel.scan(PATH, WHERE, store=store, options=OPTIONS, cache=cache or accel.Cache())


def replaced_after(requests: int, before: RangeStore, after: RangeStore, *, honour: bool) -> FaultStore:
    """A store whose object is replaced when it has answered so many requests."""

    def script(attempt: Attempt) -> Fault | None:
        return OtherVersion(after, honour_if_match=honour) if attempt.number >= requests else None

    return FaultStore(before, script)


async def test_the_versions_are_of_one_size_and_read_in_several_requests() -> None:
    assert len(A) == len(B)
    assert A != B
    store = RecordingStore(DictStore({PATH: A}))
    assert await outcome(scan_of(store), a=A_ROWS, b=B_ROWS) == "a"
    # One suffix; then three columns in each of the three row groups (1,000 of 5,000, 5,000, 2,000 rows).
    assert store.calls[0].want == Suffix(OPTIONS.tail_hint)
    assert store.requests >= 4
    assert store.waves == 2


@pytest.mark.parametrize("honour", [True, False], ids=["If-Match honoured", "If-Match ignored"])
@pytest.mark.parametrize("other", [B, LARGER, SMALLER], ids=["same size", "larger", "smaller"])
@pytest.mark.parametrize("requests", [1, 2, 3, 4, 5])
async def test_replaced_between_two_requests(requests: int, other: bytes, honour: bool) -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: other})
    store = replaced_after(requests, a, b, honour=honour)
    found = await outcome(scan_of(store), a=A_ROWS, b=B_ROWS)
    assert found in WHOLE_A_OR_B | {"ObjectChangedError"}
    if requests == 1:
        # Nothing of A was handed out, so the file was planned anew, once.
        assert found == "b"


@pytest.mark.parametrize("requests", [1, 2, 3])
async def test_deleted_between_two_requests(requests: int) -> None:
    store = replaced_after(requests, DictStore({PATH: A}), DictStore(), honour=True)
    assert await outcome(scan_of(store), a=A_ROWS) in {"ObjectChangedError", "ObjectNotFoundError"}


@pytest.mark.parametrize("honour", [True, False], ids=["If-Match honoured", "If-Match ignored"])
@pytest.mark.parametrize("style", ["weak", "unquoted"])
@pytest.mark.parametrize("requests", [1, 2, 4])
async def test_replaced_under_odd_etags(requests: int, style: str, honour: bool) -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: B})
    for store, name in ((a, "one"), (b, "two")):
        store.etags[PATH] = f'W/"{name}"' if style == "weak" else name
    torn = replaced_after(requests, a, b, honour=honour)
    assert await outcome(scan_of(torn), a=A_ROWS, b=B_ROWS) in WHOLE_A_OR_B | {"ObjectChangedError"}
    # A weak etag never satisfies an If-Match, so none is sent; an unquoted one is.
    pins = {attempt.if_match for attempt in torn.attempts}
    assert pins == {None} if style == "weak" else "one" in pins


@pytest.mark.parametrize("style", ["weak", "unquoted"])
async def test_odd_etags_are_no_obstacle_to_an_unchanged_object(style: str) -> None:
    store = DictStore({PATH: A})
    store.etags[PATH] = 'W/"one"' if style == "weak" else "one"
    assert await outcome(scan_of(store), a=A_ROWS) == "a"


@pytest.mark.parametrize("requests", [1, 2, 4])
async def test_replaced_where_there_are_no_etags(requests: int) -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: B})
    a.etags[PATH] = b.etags[PATH] = None
    store = replaced_after(requests, a, b, honour=True)
    assert await outcome(scan_of(store), a=A_ROWS, b=B_ROWS) in WHOLE_A_OR_B | {"StoreError"}


@pytest.mark.parametrize("requests", [1, 2, 4])
async def test_the_etag_vanishes_midway(requests: int) -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: B})
    b.etags[PATH] = None
    store = replaced_after(requests, a, b, honour=False)
    assert await outcome(scan_of(store), a=A_ROWS, b=B_ROWS) in WHOLE_A_OR_B | {
        "ObjectChangedError",
        "StoreError",
    }


async def test_replaced_again_and_again_is_an_error() -> None:
    stores = [DictStore({PATH: version(number)}) for number in (1, 2)]

    def script(attempt: Attempt) -> Fault:
        return OtherVersion(stores[attempt.number % 2], honour_if_match=True)

    store = FaultStore(stores[0], script)
    assert await outcome(scan_of(store), a=A_ROWS, b=B_ROWS) in WHOLE_A_OR_B | {"ObjectChangedError"}
    assert len(store.attempts) < 50


@pytest.mark.parametrize("max_age", [0, 60])
async def test_replaced_under_cached_data(max_age: float) -> None:
    """What was read before stands for the file as long as its metadata does, and no longer."""
    cache, store = accel.Cache(max_age=max_age), DictStore({PATH: A})
    for _ in range(2):
        assert await outcome(scan_of(store, cache), a=A_ROWS, b=B_ROWS) == "a"
    assert cache.stats().data_entries > 0
    store.put(PATH, B)
    assert await outcome(scan_of(store, cache), a=A_ROWS, b=B_ROWS) == ("a" if max_age else "b")


async def test_replaced_under_a_warm_cache() -> None:
    cache, store = accel.Cache(data=0), DictStore({PATH: A})
    recorded = RecordingStore(store)
    assert await outcome(scan_of(recorded, cache), a=A_ROWS, b=B_ROWS) == "a"
    store.put(PATH, B)
    recorded.clear()
    scan = scan_of(recorded, cache)
    assert await outcome(scan, a=A_ROWS, b=B_ROWS) == "b"
    # The data requests, pinned to A, met 412; then the file was planned again.
    assert recorded.calls[0].if_match is not None
    assert recorded.calls[0].error == "ObjectChangedError"
    assert scan.metrics.replans == 1


async def test_replaced_before_the_cache_is_asked_again() -> None:
    cache, store = accel.Cache(max_age=0), DictStore({PATH: A})
    assert await outcome(scan_of(store, cache), a=A_ROWS, b=B_ROWS) == "a"
    store.put(PATH, B)
    assert await outcome(scan_of(store, cache), a=A_ROWS, b=B_ROWS) == "b"


@pytest.mark.parametrize("honour", [True, False], ids=["If-Match honoured", "If-Match ignored"])
async def test_a_plan_of_another_version_is_always_refused(honour: bool) -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: B})
    plan = await accel.plan_async(PATH, WHERE, store=a, options=OPTIONS, cache=accel.Cache())
    torn = replaced_after(0, a, b, honour=honour)
    scan = accel.scan(plan, store=torn, options=OPTIONS, cache=accel.Cache())
    assert await outcome(scan, a=A_ROWS, b=B_ROWS) == "ObjectChangedError"
    same = accel.scan(plan, store=a, options=OPTIONS, cache=accel.Cache())
    assert await outcome(same, a=A_ROWS, b=B_ROWS) == "a"


@pytest.mark.parametrize(
    ("fault", "where", "ends"),
    [
        # What a short tail lacks is asked for as a range, and that is answered in full.
        pytest.param(ShortBody(1), "tail", "a", id="short tail"),
        pytest.param(ShortBody(1), "data", "StoreError", id="short data, for ever"),
        pytest.param(WrongRange(8), "tail", "StoreError", id="wrong tail"),
        pytest.param(WrongRange(8), "data", "StoreError", id="wrong data"),
    ],
)
async def test_a_store_that_answers_something_else(fault: Fault, where: str, ends: str) -> None:
    def script(attempt: Attempt) -> Fault | None:
        return fault if isinstance(attempt.want, Suffix) == (where == "tail") else None

    store = FaultStore(DictStore({PATH: A}), script)
    assert await outcome(scan_of(store), a=A_ROWS) == ends


async def test_rows_already_handed_out_are_never_followed_by_another_version() -> None:
    a, b = DictStore({PATH: A}), DictStore({PATH: B})
    options = accel.Options(
        tail_hint=8 * 1024, max_gap_bytes=0, batch_rows=500, max_tasks_in_flight=1, piece_bytes=20_000
    )
    replaced = False

    def script(attempt: Attempt) -> Fault | None:
        return OtherVersion(b, honour_if_match=True) if replaced else None

    scan = accel.scan(PATH, store=FaultStore(a, script), options=options, cache=accel.Cache())
    seen: set[int] = set()
    with pytest.raises(accel.ObjectChangedError, match=PATH):
        async for batch in scan:
            seen |= set(batch["version"].to_pylist())
            replaced = True
    assert seen == {1}
