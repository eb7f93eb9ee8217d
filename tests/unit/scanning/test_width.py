"""The limit of requests grows while somebody waits and the loop is idle, and stops at its most."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from accel.scanning import footer_prefetch as width
from accel.scanning.footer_prefetch import RequestWidth


class Clock:
    """Time as told, and the loop's own share of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.worked = 0.0
        told = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.worked)
        monkeypatch.setattr(width, "time", told)
        monkeypatch.setattr(width, "_LOOK", 0.0)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("worked", "grows"), [(0.0, True), (0.74, True), (0.75, False), (1.0, False)])
async def test_it_grows_while_the_loop_is_idle(
    monkeypatch: pytest.MonkeyPatch, worked: float, grows: bool
) -> None:
    clock, looked = Clock(monkeypatch), []
    limit = RequestWidth(200, widened=lambda: looked.append(limit.now))
    assert limit.now == 128
    for _ in range(3):
        limit.ask()
        limit.ask()  # it is looked at already
        clock.now += 1.0
        clock.worked += worked
        await turns()
    assert looked == ([160, 192, 200] if grows else [128, 128, 128])
    limit.ask()
    await turns()
    assert len(looked) == (3 if grows else 4)  # at its most nobody looks


async def test_a_small_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    looked: list[int] = []
    limit = RequestWidth(3, widened=lambda: looked.append(limit.now))
    limit.ask()
    await turns()
    assert (limit.now, looked) == (3, [])


async def test_closed_it_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    looked: list[int] = []
    limit = RequestWidth(200, widened=lambda: looked.append(limit.now))
    limit.close()
    limit.ask()
    limit.close()
    await turns()
    assert (limit.now, looked) == (128, [])
