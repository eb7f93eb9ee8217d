"""Requests that fail and succeed later: how often they are sent, and that only what is missing is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Suffix, Want
from accel.store.client import Client
from accel.store.fetch import Retry
from accel.testing import (
    Attempt,
    CutBody,
    DictStore,
    Fault,
    FaultStore,
    OtherVersion,
    ShortBody,
    Status,
    WrongRange,
)

BODY = bytes(i % 251 for i in range(1000))
KEY = ReadKey(Kind.PAGE, 0, 0, 0)


class Bench:
    """A client over a store that fails as told, and a clock that only counts."""

    def __init__(
        self,
        script: Sequence[Fault | None] | Callable[[Attempt], Fault | None],
        *,
        etag: str | None = '"v1"',
        attempts: int = 4,
    ) -> None:
        self.inner = DictStore({"f": BODY})
        self.inner.etags["f"] = etag
        self.store = FaultStore(self.inner, script)
        self.slept: list[float] = []
        self.metrics = Metrics()
        options = Options(max_attempts=attempts)
        retry = Retry(
            max_attempts=attempts,
            backoff_base=0.5,
            backoff_max=5.0,
            sleep=self.sleep,
            uniform=lambda low, high: high,
        )
        self.client = Client(self.store, root="mem://box", token="t", options=options, retry=retry)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def read(self, start: int, end: int) -> bytes:
        pin = ObjectId("f", 1000, self.inner.etags["f"])
        wants = [Want(KEY, ByteRange(start, end))]
        return bytes((await self.client.read("f", wants, pin=pin, metrics=self.metrics))[KEY])

    @property
    def asked(self) -> list[tuple[str, str | None]]:
        return [(str(attempt.want), attempt.if_match) for attempt in self.store.attempts]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_passing_failure_is_retried(status: int) -> None:
    bench = Bench([Status(status), Status(status)])
    assert await bench.read(10, 20) == BODY[10:20]
    assert bench.asked == [("bytes 10..20", '"v1"')] * 3
    assert bench.slept == [0.5, 1.0]
    assert (bench.metrics.requests, bench.metrics.retries, bench.metrics.bytes) == (3, 2, 10)


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_lasting_failure_is_not(status: int) -> None:
    bench = Bench([Status(status)])
    with pytest.raises(StoreError) as caught:
        await bench.read(10, 20)
    assert caught.value.status == status
    assert (len(bench.asked), bench.slept) == (1, [])
    assert (bench.metrics.requests, bench.metrics.bytes) == (1, 0)


async def test_it_gives_up_in_the_end_and_says_how_often_it_tried() -> None:
    bench = Bench([Status(503)] * 10)
    with pytest.raises(StoreError, match=r"mem://box/f: .*503, 4 times"):
        await bench.read(10, 20)
    assert (len(bench.asked), bench.slept) == (4, [0.5, 1.0, 2.0])


@pytest.mark.parametrize(
    ("retry_after", "waited"), [(3.0, 3.0), (0.1, 0.5), (3600.0, 5.0)], ids=["longer", "shorter", "capped"]
)
async def test_the_server_may_ask_for_a_pause(retry_after: float, waited: float) -> None:
    bench = Bench([Status(503, retry_after=retry_after)])
    assert await bench.read(10, 20) == BODY[10:20]
    assert bench.slept == [waited]


async def test_a_cut_body_is_resumed_with_what_is_missing() -> None:
    bench = Bench([CutBody(30), CutBody(20), None])
    assert await bench.read(100, 200) == BODY[100:200]
    assert bench.asked == [("bytes 100..200", '"v1"'), ("bytes 130..200", '"v1"'), ("bytes 150..200", '"v1"')]
    # Every byte once: 30 + 20 + 50.
    assert (bench.metrics.requests, bench.metrics.bytes, bench.metrics.retries) == (3, 100, 2)


async def test_a_body_that_comes_in_parts_is_read_however_many_these_are() -> None:
    bench = Bench([CutBody(10)] * 9)
    assert await bench.read(100, 200) == BODY[100:200]
    assert [asked for asked, _ in bench.asked] == [f"bytes {start}..200" for start in range(100, 200, 10)]
    assert bench.slept == [0.5] * 9
    assert (bench.metrics.bytes, bench.metrics.retries) == (100, 9)


async def test_what_comes_in_crumbs_is_given_up() -> None:
    bench = Bench([CutBody(5)] * 20)
    with pytest.raises(StoreError, match="the body was cut, 4 times"):
        await bench.read(100, 200)
    assert [asked for asked, _ in bench.asked] == [f"bytes {start}..200" for start in (100, 105, 110, 115)]


async def test_one_try_is_one_however_far_it_came() -> None:
    bench = Bench([CutBody(99)], attempts=1)
    with pytest.raises(StoreError, match=r"the body was cut$"):
        await bench.read(100, 200)
    assert len(bench.asked) == 1


async def test_an_object_that_changes_whenever_it_is_cut_is_given_up() -> None:
    def script(attempt: Attempt) -> Fault | None:
        if attempt.number % 2 == 0:
            return CutBody(60)
        bench.inner.put("f", BODY[attempt.number :] + BODY[: attempt.number])
        return None

    bench = Bench(script)
    with pytest.raises(StoreError, match="another version, 4 times"):
        await bench.client.read_tail("f", 100, metrics=bench.metrics)
    assert len(bench.asked) == 6


async def test_a_short_body_is_resumed_too() -> None:
    bench = Bench([ShortBody(missing=1)])
    assert await bench.read(100, 200) == BODY[100:200]
    assert bench.asked == [("bytes 100..200", '"v1"'), ("bytes 199..200", '"v1"')]
    assert bench.metrics.bytes == 100


async def test_a_cut_before_the_first_byte_starts_again() -> None:
    bench = Bench([CutBody(0)])
    assert await bench.read(100, 200) == BODY[100:200]
    assert bench.asked == [("bytes 100..200", '"v1"')] * 2


async def test_a_cut_tail_is_resumed_as_a_range_of_the_same_version() -> None:
    bench = Bench([CutBody(30), None])
    payload = await bench.client.read_tail("f", 100, metrics=bench.metrics)
    assert (bytes(payload.data), payload.range, payload.size, payload.etag) == (
        BODY[900:],
        ByteRange(900, 1000),
        1000,
        '"v1"',
    )
    assert bench.asked == [("last 100 bytes", None), ("bytes 930..1000", '"v1"')]
    assert bench.metrics.requests_by_kind == {Kind.TAIL: 2}


async def test_without_an_etag_a_cut_tail_starts_again() -> None:
    bench = Bench([CutBody(30), None], etag=None)
    payload = await bench.client.read_tail("f", 100, metrics=bench.metrics)
    assert bytes(payload.data) == BODY[900:]
    assert bench.asked == [("last 100 bytes", None)] * 2


async def test_a_tail_overwritten_while_it_was_cut_is_read_anew() -> None:
    newer = bytes(reversed(BODY))

    def script(attempt: Attempt) -> Fault | None:
        if attempt.number == 0:
            return CutBody(30)
        if attempt.number == 1:
            bench.inner.put("f", newer)
        return None

    bench = Bench(script)
    payload = await bench.client.read_tail("f", 100, metrics=bench.metrics)
    assert bytes(payload.data) == newer[900:]
    assert [asked for asked, _ in bench.asked] == ["last 100 bytes", "bytes 930..1000", "last 100 bytes"]


async def test_a_pinned_read_overwritten_while_it_was_cut_has_changed() -> None:
    def script(attempt: Attempt) -> Fault | None:
        if attempt.number == 0:
            return CutBody(30)
        bench.inner.put("f", bytes(reversed(BODY)))
        return None

    bench = Bench(script)
    with pytest.raises(ObjectChangedError):
        await bench.read(100, 200)
    assert len(bench.asked) == 2


async def test_two_versions_never_meet_in_one_body_even_where_if_match_is_ignored() -> None:
    other = DictStore({"f": bytes(reversed(BODY))})
    bench = Bench([CutBody(30), OtherVersion(other)])
    with pytest.raises(ObjectChangedError):
        await bench.read(100, 200)


async def test_an_answer_for_another_range_is_refused_at_once() -> None:
    bench = Bench([WrongRange(shift=5)])
    with pytest.raises(StoreError, match="answered with 100 bytes as bytes 105..205"):
        await bench.read(100, 200)
    assert len(bench.asked) == 1


async def test_a_suffix_of_the_wrong_length_is_refused() -> None:
    class Generous(DictStore):
        async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
            length = want.length + 5 if isinstance(want, Suffix) else want.length
            return await super().read(path, Suffix(length), if_match=if_match)

    bench = Bench([])
    bench.store.inner = Generous({"f": BODY})
    with pytest.raises(StoreError, match="answered with 105 bytes"):
        await bench.client.read_tail("f", 100, metrics=bench.metrics)


async def test_a_server_that_never_answers_is_given_up_after_90_seconds() -> None:
    """By default: three attempts of 30 seconds."""
    now = 0.0

    async def answer_never(path: str, want: object, *, if_match: str | None = None) -> None:
        nonlocal now
        now += Options().read_timeout
        raise StoreError("the server made no progress in time", path=path, transient=True)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    store = DictStore({"f": BODY})
    store.read = answer_never  # type: ignore[method-assign,assignment]
    retry = dataclasses.replace(Retry.of(Options()), clock=lambda: now, sleep=sleep)
    client = Client(store, root="mem://box", token="t", options=Options(), retry=retry)
    with pytest.raises(
        StoreError, match=r"in time, 3 times \(`options.retry_seconds` says how long to try\)"
    ):
        await client.read_tail("f", 10, metrics=Metrics())
    assert 90 <= now < 100


async def test_bytes_that_come_begin_the_time_anew() -> None:
    now = 0.0
    bench = Bench([CutBody(30), CutBody(20), Status(503), None], attempts=6)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += 50.0

    retry = dataclasses.replace(bench.client.retry, clock=lambda: now, sleep=sleep, seconds=75.0)
    bench.client = Client(bench.store, root="mem://box", token="t", options=Options(), retry=retry)
    assert await bench.read(100, 200) == BODY[100:200]
    assert len(bench.asked) == 4
