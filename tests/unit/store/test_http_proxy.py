"""Which proxy a server is reached by, and errors of one that is dead."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.store.http_store import HttpStore
from accel.store.location import parse_url
from accel.store.proxies import named_proxy, proxy_for
from accel.store.storage_options import build_store
from tests.support.object_server import serving


@pytest.fixture(autouse=True)
def none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("variables", "scheme", "host", "proxy"),
    [
        pytest.param({}, "https", "h", None, id="none"),
        pytest.param({"https_proxy": "http://p:1"}, "https", "h", "http://p:1", id="named"),
        pytest.param({"HTTPS_PROXY": "http://p:1"}, "https", "h", "http://p:1", id="in capitals"),
        pytest.param({"https_proxy": "http://p:1"}, "http", "h", None, id="for the other scheme"),
        pytest.param({"https_proxy": "https://p:1"}, "https", "h", "https://p:1", id="over TLS"),
        pytest.param({"all_proxy": "http://p:1"}, "https", "h", "http://p:1", id="for all schemes"),
        pytest.param({"https_proxy": "http://p:1", "no_proxy": "h,i"}, "https", "h", None, id="not for this"),
        pytest.param(
            {"https_proxy": "http://p:1", "no_proxy": "i"}, "https", "h", "http://p:1", id="but this"
        ),
        pytest.param({"https_proxy": ""}, "https", "h", None, id="empty"),
    ],
)
def test_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], scheme: str, host: str, proxy: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(scheme, host) == proxy


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (None, None),
        ("", None),
        ("http://p:3128", "by the proxy p:3128"),
        ("http://user:s3cret@p.example", "by the proxy p.example"),
        ("user:s3cret@p:1", "by the proxy p:1"),
        ("socks5://[::1]:9/", "by the proxy [::1]:9"),
    ],
)
def test_a_proxy_is_named_without_its_password(url: str | None, named: str | None) -> None:
    assert named_proxy(url) == named


@pytest.fixture(params=["refuses", "is silent"])
def dead_proxy(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The server of a proxy, and what its connections end with."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "is silent":
            listening.listen(50)
        yield f"127.0.0.1:{listening.getsockname()[1]}", request.param


@pytest.mark.parametrize(
    ("url", "named_by"),
    [
        ("s3://b", "environment"),
        ("s3://b", "option"),
        ("gs://b", "environment"),
        ("gs://b", "option"),
        ("https://h.example", "environment"),
        ("http://h.example", "environment"),
    ],
)
async def test_the_error_names_a_dead_proxy(
    dead_proxy: tuple[str, str], monkeypatch: pytest.MonkeyPatch, url: str, named_by: str
) -> None:
    server, how = dead_proxy
    proxy = f"http://user:s3cret@{server}"
    given = {"skip_signature": "true"} if "://b" in url else {}
    if url == "s3://b":
        given["region"] = "us-east-1"
    if named_by == "environment":
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("https_proxy", proxy)
    else:
        given["proxy_url"] = proxy
    store = build_store(parse_url(url), given, options=Options(connect_timeout=0.4, read_timeout=0.4))
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(0, 4))
    error = caught.value
    assert f"by the proxy {server})" in error.message
    assert error.message.startswith(
        "connection refused" if how == "refuses" else ("no connection", "the server made")
    )
    assert error.transient
    assert "s3cret" not in f"{error} {error!r} {error.__cause__!r}"
    if not error.message.startswith("the server made"):
        assert "https_proxy" in (error.hint or "")


# -- proxies that do their work ------------------------------------------------------------------

BODY = bytes(i % 251 for i in range(1000))
CREDENTIALS = "Proxy-Authorization: Basic dXM6ZXI6d29yZA=="
FAST = Options(connect_timeout=0.4, read_timeout=0.4)


class Tunnels:
    """A proxy that connects to whatever server it is told."""

    def __init__(self) -> None:
        self.heads: list[list[str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.heads.append([line for line in head if line])
        host, _, port = head[0].split(" ")[1].rpartition(":")
        onward, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(pump(reader, back))
                both.create_task(pump(onward, writer))
        finally:
            back.transport.abort()


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


async def test_a_tunnel_is_dug_once_and_hears_nothing_of_what_passes(
    server: Any, secure: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Tunnels()
    async with serving(server.serve, secure) as port, serving(proxy.serve) as by:
        monkeypatch.setenv("https_proxy", f"http://us%3Aer:word@127.0.0.1:{by}")
        headers = {"Authorization": "Bearer SECRET"}
        store = HttpStore(
            f"https://localhost:{port}", storage_options={"headers": headers}, options=Options()
        )
        for start in (10, 20):
            assert bytes((await store.read("f", ByteRange(start, 30))).data) == BODY[start:30]
    assert proxy.heads == [
        [f"CONNECT localhost:{port} HTTP/1.1", f"Host: localhost:{port}", CREDENTIALS],
    ]
    assert [(r.target, r.headers["authorization"]) for r in server.requests] == [("/f", "Bearer SECRET")] * 2
    assert not any("proxy-authorization" in request.headers for request in server.requests)


async def test_a_plain_request_names_its_server_to_the_proxy(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["http://h.example:81/f?x=1"] = server.objects["http://h.example:81/f"] = BODY
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//us%3Aer:word@"))
    store = HttpStore("http://h.example:81", storage_options={}, options=Options())
    assert bytes((await store.read("f?x=1", ByteRange(10, 20))).data) == BODY[10:20]
    assert await store.head("f?x=1")
    seen = {(r.target, r.headers["host"], r.headers["proxy-authorization"]) for r in server.requests}
    assert seen == {("http://h.example:81/f?x=1", "h.example:81", CREDENTIALS.partition(": ")[2])}
    assert server.connections == 1


async def test_a_certificate_is_judged_behind_a_proxy_too(
    server: Any, secure: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Tunnels()
    async with serving(server.serve, secure) as port, serving(proxy.serve) as by:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{by}")
        store = HttpStore(f"https://127.0.0.1:{port}", storage_options={}, options=Options())
        with pytest.raises(StoreError, match="certificate is for another host") as caught:
            await store.read("f", ByteRange(10, 20))
    assert (caught.value.transient, server.requests) == (False, [])


async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(data)
    await writer.drain()


WRONG: dict[str, tuple[bytes, str, bool]] = {
    "no HTTP": (b"SSH-2.0 x\r\n\r\n", "the answer is not HTTP", False),
    "too much": (b"HTTP/1.1 200 x\r\n\r\nHTTP/1.1 206 x\r\n\r\n", "the answer is not HTTP", False),
    "too long": (b"HTTP/1.1 200 x\r\n" + b"X: y\r\n" * 20_000, "connection reset by the server", True),
    "nothing": (b"", "connection reset by the server", True),
    "half a head": (b"HTTP/1.1 200 x\r\n", "connection reset by the server", True),
    "a refusal": (
        b"HTTP/1.1 502 x\r\nContent-Length: 2\r\n\r\nno",
        "the proxy answered with status 502",
        True,
    ),
}


@pytest.mark.parametrize(("data", "message", "transient"), WRONG.values(), ids=WRONG)
async def test_a_proxy_that_answers_otherwise(
    data: bytes, message: str, transient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(lambda reader, writer: say(reader, writer, data)) as by:
        monkeypatch.setenv("https_proxy", f"http://user:s3cret@127.0.0.1:{by}")
        store = HttpStore("https://h.example", storage_options={}, options=FAST)
        with pytest.raises(StoreError) as caught:
            await store.read("f", ByteRange(10, 20))
    error = caught.value
    assert (error.message.partition(" (")[0], error.transient) == (message, transient)
    assert "s3cret" not in f"{error} {error!r} {error.__cause__!r}"
