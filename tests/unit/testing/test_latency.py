"""The delays are the declared ones: asserted by what is slept, not by a clock."""

from __future__ import annotations

import pytest

from accel.errors import ObjectNotFoundError
from accel.ranges import Suffix
from accel.store.range_store import Lister
from accel.testing.latency import LatencyStore
from accel.testing.memory import DictStore


class Clock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    ("bandwidth", "slept"),
    [pytest.param(1000.0, [0.03, 0.05], id="paced"), pytest.param(None, [0.03], id="first byte only")],
)
async def test_read_waits_for_the_first_byte_and_the_body(
    bandwidth: float | None, slept: list[float]
) -> None:
    clock = Clock()
    store = LatencyStore(DictStore({"f": bytes(50)}), first_byte=0.03, bandwidth=bandwidth, sleep=clock.sleep)
    payload = await store.read("f", Suffix(100))
    assert len(payload.data) == 50
    assert clock.slept == slept


async def test_failures_and_listings_wait_too() -> None:
    clock = Clock()
    store = LatencyStore(DictStore({"f": b"1"}), first_byte=0.03, sleep=clock.sleep)
    with pytest.raises(ObjectNotFoundError):
        await store.read("g", Suffix(1))
    assert isinstance(store, Lister)
    assert [entry.path async for entry in store.list("")] == ["f"]
    assert clock.slept == [0.03, 0.03]
