"""The proxy passes on, counts and damages as declared, so that what is measured through it can be trusted."""

from __future__ import annotations

import asyncio
import http.client
import os
import select
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import pytest

from accel.testing import CutBody, ShortBody, Stall, Status, WrongRange
from tests.support.certificate import make_certificate
from tests.support.proxy import Proxy, ProxyProcess
from tests.support.relay import Etags, Passage, Relay, RelayFault, Substitute
from tests.support.s3 import S3Admin

DATA = bytes(range(256)) * 4
ETAG = '"abc"'
MakeProxy = Callable[..., Proxy]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(url: str, *, method: str = "GET", timeout: float = 10.0, **headers: str) -> Answer:
    """One request on a connection of its own. Header names are given with _ for -."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request(
            method,
            parts.path + (f"?{parts.query}" if parts.query else ""),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


@pytest.fixture
def origin(make_proxy: MakeProxy) -> str:
    """A server that answers every path with DATA."""
    return make_proxy(None, script=lambda _: Substitute(DATA, ETAG)).url


CONDITIONAL = [
    pytest.param({}, 200, DATA, None, id="whole"),
    pytest.param({"Range": "bytes=10-19"}, 206, DATA[10:20], "bytes 10-19/1024", id="range"),
    pytest.param({"Range": "bytes=-24"}, 206, DATA[1000:], "bytes 1000-1023/1024", id="suffix"),
    pytest.param(
        {"Range": "bytes=1000-2000"}, 206, DATA[1000:], "bytes 1000-1023/1024", id="range past the end"
    ),
    pytest.param({"Range": "bytes=-2000"}, 206, DATA, "bytes 0-1023/1024", id="suffix past the start"),
    pytest.param({"Range": "bytes=1024-1030"}, 416, b"", "bytes */1024", id="range outside"),
    pytest.param({"If_Match": ETAG}, 200, DATA, None, id="same version"),
    pytest.param({"If_Match": '"other"'}, 412, b"", None, id="other version"),
]


@pytest.mark.parametrize(("headers", "status", "body", "content_range"), CONDITIONAL)
def test_what_the_origin_says_passes_unchanged(
    origin: str,
    make_proxy: MakeProxy,
    headers: dict[str, str],
    status: int,
    body: bytes,
    content_range: str | None,
) -> None:
    proxy = make_proxy(origin)
    for url in (origin, proxy.url):
        answer = ask(f"{url}/a%20b/c?x=1", **headers)
        assert (answer.status, answer.body, answer.headers.get("content-range")) == (
            status,
            body,
            content_range,
        )
    [passage] = proxy.passages
    assert (passage.method, passage.path, passage.status, passage.sent) == (
        "GET",
        "/a%20b/c?x=1",
        status,
        len(body),
    )
    assert (passage.range, passage.if_match) == (headers.get("Range"), headers.get("If_Match"))


def test_requests_and_bytes_are_counted_by_path(origin: str, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(origin)
    ask(f"{proxy.url}/a", Range="bytes=0-9")
    ask(f"{proxy.url}/a?list=1", Range="bytes=0-19")
    assert ask(f"{proxy.url}/b", method="HEAD").headers["content-length"] == "1024"
    assert proxy.by_path() == {("GET", "/a"): (2, 30), ("HEAD", "/b"): (1, 0)}
    assert (proxy.requests, proxy.bytes) == (3, 30)
    proxy.reset()
    assert (proxy.requests, proxy.bytes) == (0, 0)


def test_a_whole_url_is_a_path_of_the_origin(origin: str, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(origin)
    parts = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET", "http://elsewhere.test/a?x=1", headers={"Authorization": "secret"})
    assert connection.getresponse().read() == DATA
    connection.close()
    [passage] = proxy.passages
    assert passage.headers["host"] == "elsewhere.test"
    assert "authorization" not in passage.headers


def test_an_origin_that_is_gone_is_a_502(make_proxy: MakeProxy) -> None:
    with Proxy(None) as gone:
        url = gone.url
    assert ask(make_proxy(url).url).status == 502


@pytest.mark.parametrize(
    ("fault", "status", "headers", "body"),
    [
        pytest.param(Status(503, 2.0), 503, {"retry-after": "2"}, b"", id="503"),
        pytest.param(Status(429), 429, {}, b"", id="429"),
        pytest.param(
            WrongRange(5),
            206,
            {"content-range": "bytes 15-24/1024", "content-length": "10"},
            DATA[10:20],
            id="wrong range",
        ),
        pytest.param(
            ShortBody(3),
            206,
            {"content-range": "bytes 10-19/1024", "content-length": "7"},
            DATA[10:17],
            id="short body",
        ),
        pytest.param(
            Substitute(DATA[::-1], '"b"'), 206, {"etag": '"b"'}, DATA[::-1][10:20], id="other version"
        ),
        pytest.param(
            Substitute(DATA, honour_range=False), 200, {"content-length": "1024"}, DATA, id="range ignored"
        ),
    ],
)
def test_faults_that_answer(
    origin: str, make_proxy: MakeProxy, fault: RelayFault, status: int, headers: dict[str, str], body: bytes
) -> None:
    proxy = make_proxy(origin, script=[None, fault])
    assert ask(proxy.url, Range="bytes=10-19").body == DATA[10:20]
    answer = ask(proxy.url, Range="bytes=10-19")
    assert (answer.status, answer.body) == (status, body)
    assert {name: answer.headers[name] for name in headers} == headers
    assert ask(proxy.url, Range="bytes=10-19").body == DATA[10:20]
    assert [passage.fault for passage in proxy.passages] == [None, type(fault).__name__, None]


@pytest.mark.parametrize("honours", [True, False])
def test_a_substitute_honours_if_match_or_not(make_proxy: MakeProxy, honours: bool) -> None:
    proxy = make_proxy(None, script=lambda _: Substitute(DATA, ETAG, honour_if_match=honours))
    assert ask(proxy.url, If_Match='"old"').status == (412 if honours else 200)


@pytest.mark.parametrize("after", [0, 1, 1023])
def test_a_cut_body_ends_early(origin: str, make_proxy: MakeProxy, after: int) -> None:
    proxy = make_proxy(origin, script=[CutBody(after)])
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(proxy.url)
    assert proxy.passages[0].sent == after


@pytest.mark.parametrize("after", [0, 10])
def test_a_stall_stays_silent(origin: str, make_proxy: MakeProxy, after: int) -> None:
    proxy = make_proxy(origin, script=[Stall(30.0, after)])
    with pytest.raises(TimeoutError):
        ask(proxy.url, timeout=0.2)
    assert proxy.passages[0].sent == after


@pytest.mark.parametrize(
    ("etags", "seen"),
    [(Etags.KEEP, ETAG), (Etags.WEAK, f"W/{ETAG}"), (Etags.UNQUOTED, "abc"), (Etags.MISSING, None)],
)
def test_etags(origin: str, make_proxy: MakeProxy, etags: Etags, seen: str | None) -> None:
    assert ask(make_proxy(origin, etags=etags).url, Range="bytes=0-1").headers.get("etag") == seen


def test_a_script_may_decide_by_the_request(origin: str, make_proxy: MakeProxy) -> None:
    def script(passage: Passage) -> RelayFault | None:
        return Status(404) if passage.range == "bytes=0-1" else None

    proxy = make_proxy(origin, script=script)
    assert [ask(proxy.url, Range=r).status for r in ("bytes=0-0", "bytes=0-1")] == [206, 404]


def test_latency_and_pace(origin: str, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(origin, first_byte=0.05, bandwidth=1024 / 0.1)
    start = time.monotonic()
    assert ask(proxy.url).body == DATA
    took = time.monotonic() - start
    [passage] = proxy.passages
    # 50 ms to the first byte and 100 ms of body. No upper bound: the machine may be busy.
    assert passage.first_byte is not None
    assert passage.first_byte - passage.begin >= 0.0495
    assert took >= 0.149


async def test_a_client_that_leaves_ends_the_request_at_the_proxy(origin: str, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(origin, script=[Stall(30.0)])
    async with aiohttp.ClientSession() as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await session.get(proxy.url)
    async with asyncio.timeout(5):
        while proxy.passages[0].end is None:
            await asyncio.sleep(0.01)
    assert proxy.passages[0].status == 200


def test_the_process_counts_is_set_anew_and_ends(origin: str) -> None:
    with ProxyProcess(origin) as proxy:
        url = proxy.url
        assert ask(f"{url}/a", Range="bytes=0-9").body == DATA[:10]
        assert proxy.by_path() == {("GET", "/a"): (1, 10)}
        proxy.reset(first_byte=0.02)
        ask(f"{url}/a")
        [passage] = proxy.passages
        assert passage.first_byte is not None
        assert passage.first_byte - passage.begin >= 0.0195
    with pytest.raises(OSError):
        ask(url)


@pytest.mark.parametrize("kind", [Proxy, ProxyProcess])
def test_the_same_proxy_is_reached_by_tls(origin: str, kind: type[Proxy | ProxyProcess]) -> None:
    with make_certificate() as certificate, kind(origin, certificate=certificate) as proxy:
        trusting = ssl.create_default_context(cafile=str(certificate.authorities))
        with urllib.request.urlopen(f"{proxy.secure_url}/a", context=trusting) as answer:
            assert answer.read() == DATA
        assert ask(f"{proxy.url}/a").body == DATA
        assert proxy.by_path() == {("GET", "/a"): (2, 2 * len(DATA))}
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"{proxy.secure_url}/a")
        assert proxy.requests == 2
    assert not certificate.server.exists()


def test_a_proxy_without_a_certificate_has_no_url_for_tls(origin: str) -> None:
    with Proxy(origin) as proxy:
        assert proxy.secure_url == ""


def test_a_relay_tells_what_it_is() -> None:
    relay = Relay("http://127.0.0.1:1", first_byte=0.03, bandwidth=90e6)
    assert (relay.first_byte, relay.bandwidth, relay.etags, relay.passages) == (0.03, 90e6, Etags.KEEP, [])


AT_ONCE = 512


@pytest.mark.parametrize("cache_as", [None, S3Admin("http://127.0.0.1:9")], ids=["relay", "cache"])
def test_many_connections_at_once_come_about(cache_as: S3Admin | None) -> None:
    """While the process does not even run: it is the system that answers them, as many as it was told."""
    with ProxyProcess("http://127.0.0.1:9", cache_as=cache_as) as proxy, ExitStack() as stack:
        process = proxy._process
        assert process is not None
        port = urlsplit(proxy.url).port
        os.kill(process.pid, signal.SIGSTOP)
        stack.callback(os.kill, process.pid, signal.SIGCONT)
        waiting, poll = {}, select.poll()
        for _ in range(AT_ONCE):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            poll.register(one, select.POLLOUT)
            waiting[one.fileno()] = one
        # One that is not answered is asked for again after a second.
        deadline = time.monotonic() + 0.8
        while waiting and (left := deadline - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                poll.unregister(waiting.pop(number))
        assert not waiting, f"{len(waiting)} of {AT_ONCE}"
