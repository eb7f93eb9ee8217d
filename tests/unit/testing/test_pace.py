"""Pieces are small enough to pace, and waits end when they should."""

from __future__ import annotations

import asyncio
import time

import pytest

from accel.testing.origin import once
from accel.testing.pace import NOW, lead, piece_size, pieces, until


@pytest.mark.parametrize(
    ("bandwidth", "size"),
    [(None, 1 << 20), (90e6, 180_000), (1e6, 64 * 1024), (1.0, 64 * 1024)],
    ids=["no limit", "fast", "slow", "crawling"],
)
def test_the_size_of_a_piece(bandwidth: float | None, size: int) -> None:
    assert piece_size(bandwidth) == size


@pytest.mark.parametrize(
    ("bandwidth", "stop_at", "sizes"),
    [
        pytest.param(None, None, [200_000], id="no limit"),
        pytest.param(1e6, None, [65_536, 65_536, 65_536, 3_392], id="paced"),
        pytest.param(90e6, 100, [100, 180_000, 19_900], id="an edge where it stops"),
        pytest.param(None, 0, [200_000], id="stopped at its start"),
    ],
)
async def test_pieces_are_the_body(bandwidth: float | None, stop_at: int | None, sizes: list[int]) -> None:
    body = bytes(range(250)) * 800
    found = [bytes(piece) async for piece in pieces(once(body), bandwidth, stop_at)]
    assert [len(piece) for piece in found] == sizes
    assert b"".join(found) == body


async def test_waiting_ends_about_when_it_is_due() -> None:
    due = time.monotonic() + 0.02
    await until(due)
    assert time.monotonic() - due > -0.001
    # What is past or all but due does not wait at all.
    started = time.monotonic()
    for _ in range(100):
        await until(started)
    assert lead(asyncio.get_running_loop()) == 0.0005


async def test_a_wait_that_is_cut_short_is_waited_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, naps = asyncio.sleep, []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await sleep(seconds / 2)

    monkeypatch.setattr(asyncio, "sleep", nap)
    due = time.monotonic() + 0.05
    await until(due)
    assert due - time.monotonic() <= NOW
    assert 2 <= len(naps) <= 20
