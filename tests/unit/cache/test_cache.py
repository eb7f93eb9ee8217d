"""The cache: bytes bounded, loads shared, failures and cancellations not kept."""

from __future__ import annotations

import asyncio
import pickle
import threading
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from cachetools import LRUCache

from accel.cache.cache import Cache, CacheStats
from accel.errors import ObjectNotFoundError


def test_it_keeps_the_most_recently_used_within_its_bytes() -> None:
    cache = Cache(memory=100)
    cache.put("a", 1, 40)
    cache.put("b", 2, 40)
    assert cache.get("a") == 1
    cache.put("c", 3, 40)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert cache.stats() == CacheStats(entries=2, nbytes=80, limit=100, hits=3, misses=1, evictions=1)


def test_putting_again_replaces_and_counts_the_new_size() -> None:
    cache = Cache(memory=100)
    cache.put("a", 1, 40)
    cache.put("a", 2, 70)
    assert (cache.get("a"), cache.stats().nbytes) == (2, 70)
    cache.put("a", 3, 100)  # as much as there may be
    assert (cache.get("a"), cache.stats().nbytes) == (3, 100)
    cache.put("a", 3, 101)  # has grown beyond the limit: not kept, and the old one is gone
    assert (cache.get("a"), cache.stats().nbytes) == (None, 0)


def test_only_the_value_that_is_kept_is_weighed_again() -> None:
    cache = Cache(memory=100)
    old, new = object(), object()
    cache.put("a", old, 10)
    cache.reweigh("a", old, 30)
    assert (cache.get("a"), cache.stats().nbytes) == (old, 30)
    cache.put("a", new, 20)
    cache.reweigh("a", old, 50)
    cache.reweigh("never there", old, 50)
    assert (cache.get("a"), cache.get("never there"), cache.stats().nbytes) == (new, None, 20)


@pytest.mark.parametrize("clear", [LRUCache.clear, MutableMapping.clear], ids=["at once", "item by item"])
def test_drop_and_clear(monkeypatch: pytest.MonkeyPatch, clear: Callable[[Any], None]) -> None:
    monkeypatch.setattr(LRUCache, "clear", clear)  # it depends on the version of cachetools
    cache = Cache(memory=100)
    cache.put("a", 1, 10)
    cache.put("b", 1, 10)
    cache.drop("a")
    cache.drop("never there")
    assert (cache.get("a"), cache.get("b")) == (None, 1)
    cache.clear()
    assert (cache.get("b"), cache.stats().entries, cache.stats().nbytes) == (None, 0, 0)
    assert cache.stats().evictions == 0


def test_it_pickles_empty_with_its_limits() -> None:
    cache = Cache(memory=100, data=70, max_age=5.0)
    cache.put("a", 1, 10)
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.memory, copy.data, copy.max_age, copy.get("a")) == (100, 70, 5.0, None)


@pytest.mark.parametrize(
    "limits",
    [{name: bad} for name in ("memory", "data", "max_age", "disk_limit") for bad in (-1, float("nan"))],
    ids=str,
)
def test_limits_are_checked(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not limits of a cache"):
        Cache(**limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"memory": "1GB"}, "memory of a cache is a number of bytes, not '1GB'"),
        ({"data": True}, "data of a cache is a number of bytes, not True"),
        ({"max_age": None}, "max_age of a cache is a number of seconds, not None"),
    ],
    ids=str,
)
def test_limits_are_numbers(limits: dict[str, object], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        Cache(**limits)  # type: ignore[arg-type]
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("disk", "kind", "text"),
    [
        ("", ValueError, "disk of a cache is empty: name a directory, '.' for this one, or None for none"),
        (b"cache", TypeError, "disk of a cache is a directory, named by text, not b'cache'"),
    ],
    ids=["an empty variable", "bytes"],
)
def test_a_directory_has_a_name(disk: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        Cache(disk=disk)  # type: ignore[arg-type]
    assert str(caught.value) == text


class Source:
    """A loader that waits until told to go on."""

    def __init__(self, outcome: object = 7, nbytes: int = 10) -> None:
        self.calls = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self.outcome = outcome
        self.nbytes = nbytes

    async def load(self) -> tuple[object, int]:
        self.calls += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome, self.nbytes


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def start(cache: Cache, source: Source, count: int) -> list[asyncio.Task[object]]:
    tasks = [asyncio.ensure_future(cache.load("k", source.load)) for _ in range(count)]
    await settle()
    return tasks


async def test_one_load_serves_all() -> None:
    cache, source = Cache(memory=100), Source()
    tasks = await start(cache, source, 5)
    source.go.set()
    assert await asyncio.gather(*tasks) == [7] * 5
    assert (cache.get("k"), source.calls, len(cache.single_flight)) == (7, 1, 0)


async def test_a_value_that_does_not_fit_is_handed_out_all_the_same() -> None:
    cache, source = Cache(memory=5), Source()
    source.go.set()
    assert await cache.load("k", source.load) == 7
    assert cache.stats().entries == 0
    assert await cache.load("k", source.load) == 7
    assert source.calls == 2


async def test_a_failure_goes_to_all_and_is_not_kept() -> None:
    cache, source = Cache(memory=100), Source(OSError("gone"))
    tasks = await start(cache, source, 3)
    source.go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["gone"] * 3
    source.outcome = 8
    assert await cache.load("k", source.load) == 8
    assert source.calls == 2


async def test_what_one_who_waited_adds_to_an_error_is_its_own() -> None:
    cause, failure = ValueError("why"), ObjectNotFoundError("gone", path="f", status=404)
    failure.__cause__ = cause
    failure.add_note("first")
    cache, source = Cache(memory=100), Source(failure)
    tasks = await start(cache, source, 3)
    source.go.set()
    errors: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    depths = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    errors[0].of("s3://b/f")
    errors[0].add_note("second")
    with pytest.raises(ObjectNotFoundError):
        raise errors[0]
    assert [str(error) for error in errors] == ["s3://b/f: gone", "f: gone", "f: gone"]
    assert [error.__notes__ for error in errors] == [["first", "second"], ["first"], ["first"]]
    assert [(type(error), error.status, error.__cause__) for error in errors] == [
        (ObjectNotFoundError, 404, cause)
    ] * 3
    assert [len(traceback.extract_tb(error.__traceback__)) for error in errors[1:]] == depths[1:]
    assert len(set(depths)) == 1


async def test_one_cancelled_waiter_leaves_the_load_to_the_others() -> None:
    cache, source = Cache(memory=100), Source()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    first, second = await start(cache, source, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.go.set()
    assert await second == 7
    assert (source.calls, source.cancelled, told) == (1, 0, [])


async def test_the_last_cancelled_waiter_ends_the_load() -> None:
    cache, source = Cache(memory=100), Source()
    tasks = await start(cache, source, 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (source.calls, source.cancelled) == (1, 1)
    assert len(cache.single_flight) == 0
    source.go.set()
    assert await cache.load("k", source.load) == 7
    assert source.calls == 2


async def test_who_asks_while_a_load_is_being_ended_begins_anew() -> None:
    cache, source, ended = Cache(memory=100), Source(), asyncio.Event()

    async def end_slowly() -> tuple[object, int]:
        try:
            return await source.load()
        finally:
            await ended.wait()

    last = asyncio.ensure_future(cache.load("k", end_slowly))
    await settle()
    last.cancel()
    await settle()
    (late,) = await start(cache, source, 1)
    assert not last.done()  # it goes on when the load has ended
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await last
    (later,) = await start(cache, source, 1)  # nothing of the new load ended with the other
    source.go.set()
    assert await asyncio.gather(late, later) == [7, 7]
    assert (source.calls, source.cancelled, len(cache.single_flight)) == (2, 1, 0)


async def test_one_cancelled_waiter_leaves_a_load_to_who_leads_it() -> None:
    cache, source = Cache(memory=100), Source()
    led = cache.single_flight.lead("k")
    assert led is not None
    (waiter,) = await start(cache, source, 1)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (led.cancelled(), cache.single_flight.join("k") is led) == (False, True)
    cache.single_flight.land(led, value=7)
    await settle()
    assert (led.result(), source.calls, len(cache.single_flight)) == (7, 0, 0)


async def test_clear_during_a_load() -> None:
    cache, source = Cache(memory=100), Source()
    (task,) = await start(cache, source, 1)
    cache.clear()
    source.go.set()
    assert await task == 7
    assert cache.get("k") == 7


def test_two_loops_do_not_share_a_load_but_do_share_its_value() -> None:
    cache = Cache(memory=100)
    values: list[object] = []

    async def main() -> None:
        source = Source()
        source.go.set()
        values.append(await cache.load("k", source.load))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [7] * 4
    assert cache.stats().entries == 1
