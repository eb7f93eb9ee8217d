"""The client of the origin passes on requests and responses without the headers of a connection; bodies are
paced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.support.proxy import Proxy
from tests.support.relay import Substitute
from tests.support.responses import (
    TIMER_RESOLUTION,
    Origin,
    piece_size,
    plain_response,
    sleep_until,
    split_body,
    timer_lead,
    whole_body,
)

DATA = bytes(range(256))


@pytest.fixture
def behind(make_proxy: Callable[..., Proxy]) -> Proxy:
    return make_proxy(None, script=lambda _: Substitute(DATA, '"abc"'))


@pytest.fixture
async def origin(behind: Proxy) -> AsyncIterator[Origin]:
    origin = Origin(behind.url + "/")
    await origin.open()
    yield origin
    await origin.close()


async def test_a_request_passes_as_it_is(origin: Origin, behind: Proxy) -> None:
    asked = [("Host", "signed.test"), ("Range", "bytes=1-3"), ("TE", "trailers"), ("Connection", "close")]
    response = await origin.request("GET", "http://signed.test/a%20b?x=%2F", asked)
    assert (response.status, response.headers["Content-Range"]) == (206, "bytes 1-3/256")
    assert b"".join([bytes(piece) async for piece in response.body]) == DATA[1:4]
    response.close()
    [passage] = behind.passages
    assert (passage.path, passage.headers) == ("/a%20b?x=%2F", {"host": "signed.test", "range": "bytes=1-3"})


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"], ids=["none", "gone"])
async def test_an_origin_that_is_not_there_is_an_answer_too(url: str | None) -> None:
    origin = Origin(url)
    await origin.open()
    response = await origin.request("GET", "/x", [])
    assert response.status == (404 if url is None else 502)
    response.close()
    await origin.close()


async def test_before_it_is_opened_there_is_no_origin() -> None:
    assert (await Origin("http://127.0.0.1:1").request("GET", "/x", [])).status == 404


async def test_an_answer_of_our_own() -> None:
    response = plain_response(416, b"no", Content_Range="bytes */2")
    assert dict(response.headers) == {"Content-Range": "bytes */2", "Content-Length": "2"}
    assert [piece async for piece in response.body] == [b"no"]
    response.close()


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
    found = [bytes(piece) async for piece in split_body(whole_body(body), bandwidth, stop_at)]
    assert [len(piece) for piece in found] == sizes
    assert b"".join(found) == body


async def test_waiting_ends_about_when_it_is_due() -> None:
    due = time.monotonic() + 0.02
    await sleep_until(due)
    assert time.monotonic() - due > -0.001
    # What is past or all but due does not wait at all.
    started = time.monotonic()
    for _ in range(100):
        await sleep_until(started)
    assert timer_lead(asyncio.get_running_loop()) == 0.0005


async def test_a_wait_that_is_cut_short_is_waited_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, naps = asyncio.sleep, []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await sleep(seconds / 2)

    monkeypatch.setattr(asyncio, "sleep", nap)
    due = time.monotonic() + 0.05
    await sleep_until(due)
    assert due - time.monotonic() <= TIMER_RESOLUTION
    assert 2 <= len(naps) <= 20
