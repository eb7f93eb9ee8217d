"""The client of the origin passes on what was asked and what was said, but for what belongs to a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from accel.testing.origin import Origin, plain_answer
from accel.testing.proxy import Proxy
from accel.testing.relay import Substitute

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
    answer = await origin.ask("GET", "http://signed.test/a%20b?x=%2F", asked)
    assert (answer.status, answer.headers["Content-Range"]) == (206, "bytes 1-3/256")
    assert b"".join([bytes(piece) async for piece in answer.body]) == DATA[1:4]
    answer.close()
    [passage] = behind.passages
    assert (passage.path, passage.headers) == ("/a%20b?x=%2F", {"host": "signed.test", "range": "bytes=1-3"})


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"], ids=["none", "gone"])
async def test_an_origin_that_is_not_there_is_an_answer_too(url: str | None) -> None:
    origin = Origin(url)
    await origin.open()
    answer = await origin.ask("GET", "/x", [])
    assert answer.status == (404 if url is None else 502)
    answer.close()
    await origin.close()


async def test_before_it_is_opened_there_is_no_origin() -> None:
    assert (await Origin("http://127.0.0.1:1").ask("GET", "/x", [])).status == 404


async def test_an_answer_of_our_own() -> None:
    answer = plain_answer(416, b"no", Content_Range="bytes */2")
    assert dict(answer.headers) == {"Content-Range": "bytes */2", "Content-Length": "2"}
    assert [piece async for piece in answer.body] == [b"no"]
    answer.close()
