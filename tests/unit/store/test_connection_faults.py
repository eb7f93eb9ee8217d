"""Failed connections: one text and one hint for each cause, as scans raise them."""

from __future__ import annotations

import asyncio
import errno
import pickle
import socket
import ssl
import struct
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from obstore.exceptions import GenericError
from obstore.store import S3Store

import accel
from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.store.connection_faults import CLOSED, STALLED, connection_fault, obstore_fault
from accel.store.http_store import HttpStore
from accel.store.obstore_store import ObstoreStore
from accel.store.proxies import PROXY_ADDRESS
from accel.store.request_errors import (
    IncompleteBodyError,
    ObjectGoneError,
    ShortObjectError,
    SuffixUnsupportedError,
    foremost,
    raising_foremost,
)
from accel.store.s3_store import adapt
from tests.support.object_server import Serve, serving

PATIENCE = Options(connect_timeout=1.0, read_timeout=0.5)


def s3_of(url: str, transport: str = "auto") -> Any:
    store = S3Store(
        "b",
        endpoint=url,
        access_key_id="KEY",
        secret_access_key="SECRET",
        region="us-east-1",
        client_options={"allow_http": True, "connect_timeout": "1s", "timeout": "1500ms"},
        retry_config={"max_retries": 0},
    )
    return adapt(store, Options(transport=transport, connect_timeout=1.0, read_timeout=0.5))  # type: ignore[arg-type]


async def over_http(url: str) -> None:
    store = HttpStore(url, storage_options={}, options=PATIENCE)
    await store.read("f?signature=SECRET", ByteRange(0, 10))


async def over_own_connections(url: str) -> None:
    await s3_of(url).read("f", ByteRange(0, 10))


async def over_obstore(url: str) -> None:
    await s3_of(url, "obstore").read("f", ByteRange(0, 10))


async def by_listing(url: str) -> None:
    async for _ in s3_of(url).list("d"):
        raise AssertionError("nothing is listed")


WAYS = {
    "http": over_http,
    "own connections": over_own_connections,
    "obstore": over_obstore,
    "listing": by_listing,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


async def failure_of(way: Callable[[str], Awaitable[None]], url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await asyncio.wait_for(way(url), 20)
    return caught.value


def message_of(error: StoreError) -> str:
    """Without the server, which the path of S3 does not tell."""
    return error.message.partition(" (")[0]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # A plain server takes what a TLS client says first for a request without an end.
    await reader.read(1000)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


NOW, DAY = datetime.now(UTC), timedelta(days=1)
UNKNOWN = "the server's certificate is from an unknown authority"
NAME_IT = "name a file that holds its authority's certificate by the environment variable SSL_CERT_FILE, and start anew"
CORRECT = "correct the environment variable, and start anew"
# How the certificate is issued, what SSL_CERT_FILE names, the host of the URL; the message and the hint.
CERTIFICATES: dict[str, tuple[dict[str, Any], str | None, str, str, str]] = {
    "expired": (
        {"not_before": NOW - 9 * DAY, "not_after": NOW - DAY},
        "authority.pem",
        "localhost",
        "the server's certificate has expired",
        "its owner has to renew it; or this machine's clock is wrong",
    ),
    "not yet valid": (
        {"not_before": NOW + DAY, "not_after": NOW + 9 * DAY},
        "authority.pem",
        "localhost",
        "the server's certificate is not valid yet",
        "this machine's clock may be wrong",
    ),
    "another name": (
        {},
        "authority.pem",
        "127.0.0.1",
        "the server's certificate is for another host",
        "name the server as its certificate does; or another server answers there",
    ),
    "unknown authority": ({}, "other.pem", "localhost", UNKNOWN, NAME_IT),
    "no SSL_CERT_FILE": ({}, None, "localhost", UNKNOWN, NAME_IT),
    "a missing SSL_CERT_FILE": (
        {},
        "missing.pem",
        "localhost",
        "the server's certificate cannot be verified: SSL_CERT_FILE names {}: No such file or directory",
        CORRECT,
    ),
    "an empty SSL_CERT_FILE": (
        {},
        "empty.pem",
        "localhost",
        "the server's certificate cannot be verified: SSL_CERT_FILE names {}, which holds no certificate",
        CORRECT,
    ),
}


@ways
@pytest.mark.parametrize("case", CERTIFICATES.values(), ids=CERTIFICATES.keys())
async def test_why_a_certificate_is_refused(
    way: Any, case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued, trusted, host, message, hint = case
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    (tmp_path / "empty.pem").write_bytes(b"")
    if trusted is None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    else:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / trusted))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", **issued).configure_cert(context)
    async with serving(answer, context) as port:
        error = await failure_of(way, f"https://{host}:{port}")
    assert (message_of(error), error.hint, error.transient) == (
        message.format(tmp_path / (trusted or "")),
        hint,
        False,
    )
    cause = error.__cause__
    if way is over_http:
        assert isinstance(cause, ssl.SSLCertVerificationError)
    else:
        assert isinstance(cause, GenericError)
        assert "InvalidCertificate" in str(cause)
    assert (cause.__traceback__, cause.__context__, "SECRET" in f"{error!r} {cause!r}") == (None, None, False)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.close()


async def speak_otherwise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.write(b"SSH-2.0 hello\r\n\r\n")
    await writer.drain()
    writer.close()


async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


# How the server serves; the message, and whether it may pass.
SERVERS: dict[str, tuple[Serve, str, str, bool]] = {
    "reset": (reset, "http", "connection reset by the server", True),
    "closed": (close, "http", "the connection was closed too early", True),
    "no HTTP": (speak_otherwise, "http", "the answer is not HTTP", False),
    "silent": (stay_silent, "http", "the server made no progress in time", True),
    "no TLS": (answer, "https", "the server does not speak TLS at that port", False),
    "a silent handshake": (stay_silent, "https", "no connection came about in time", True),
}


@ways
@pytest.mark.parametrize("case", SERVERS.values(), ids=SERVERS.keys())
async def test_why_a_server_does_not_answer(way: Any, case: Any) -> None:
    serve, scheme, message, transient = case
    async with serving(serve) as port:
        error = await failure_of(way, f"{scheme}://127.0.0.1:{port}")
    assert (message_of(error), error.transient) == (message, transient)


@ways
async def test_nobody_listens(way: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        error = await failure_of(way, f"http://{server}")
    if way is over_http:
        told = ("connection refused", "check the host and the port in the URL")
        assert isinstance(error.__cause__, ConnectionRefusedError)
    else:
        told = (f"connection refused ({server})", "check `region` and `endpoint` in `storage_options`")
        assert "ConnectionRefused" in str(error.__cause__)
    assert (error.message, error.hint, error.transient) == (*told, True)


@ways
async def test_a_name_that_nobody_knows(way: Any) -> None:
    error = await failure_of(way, "http://nowhere.invalid")
    # A machine without a network cannot know.
    unknown = ("the server's name is not known", False)
    assert (message_of(error), error.transient) in (
        unknown,
        ("the server's name cannot be looked up at present", True),
    )


@ways
async def test_nobody_accepts(way: Any) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        waiting = []
        for _ in range(3):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(busy.getsockname())
            waiting.append(other)
        error = await failure_of(way, f"http://127.0.0.1:{busy.getsockname()[1]}")
        for other in waiting:
            other.close()
    assert (message_of(error), error.transient) == ("no connection came about in time", True)


async def test_a_server_that_another_redirects_to_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{taken.getsockname()[1]}"

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            place = f"http://user:SECRET@{target}/g?signature=SECRET"
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

        async with serving(redirect) as port:
            error = await failure_of(over_http, f"http://127.0.0.1:{port}")
    assert error.message == f"connection refused ({target})"
    assert "SECRET" not in f"{error} {error.__cause__!r}"


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://user:SECRET@127.0.0.1:{port}")
        error = await failure_of(over_http, "http://h.example")
    assert (error.message, error.hint) == (
        f"connection refused (by the proxy 127.0.0.1:{port})",
        "check the proxy: http_proxy and https_proxy in the environment, proxy_url in `storage_options`",
    )


async def _parts(data: bytes) -> AsyncIterator[bytes]:
    yield data


VERBS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "read": lambda store: store.read("f", ByteRange(0, 1)),
    "head": lambda store: store.head("f"),
    "list": lambda store: anext(aiter(store.pages("d/"))),
    "move": lambda store: store.move("f", "g"),
    "remove": lambda store: store.remove("f"),
    "write": lambda store: store.write("f", _parts(b"x"), size=1),
    "create": lambda store: store.write("f", _parts(b"x"), size=1, if_absent=True),
    "replace": lambda store: store.write("f", _parts(b"x"), size=1, if_match='"e"'),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_the_proxy_of_an_option_is_named_by_all_verbs(verb: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"127.0.0.1:{taken.getsockname()[1]}"
        store = S3Store(
            "b",
            config={
                "endpoint": "http://s3.example",
                "access_key_id": "k",
                "secret_access_key": "s",
                "region": "r",
            },
            client_options={"allow_http": True, "proxy_url": f"http://user:SECRET@{proxy}"},
            retry_config={"max_retries": 0},
        )
        with pytest.raises(StoreError) as caught:
            await VERBS[verb](ObstoreStore(store))
    assert f"by the proxy {proxy}" in caught.value.message
    assert caught.value.hint == PROXY_ADDRESS
    assert "SECRET" not in f"{caught.value} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENETUNREACH, "the network is unreachable"),
        (errno.EHOSTUNREACH, "the server is unreachable"),
        (errno.ECONNREFUSED, "connection refused"),
        (errno.ECONNRESET, "connection reset by the server"),
        (errno.EPIPE, "connection reset by the server"),
        (errno.ETIMEDOUT, "no connection came about in time"),
        (errno.EADDRNOTAVAIL, "the connection failed: Cannot assign requested address"),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_what_the_system_says(number: int, message: str) -> None:
    kind = "HttpError {\n    kind: Connect,\n    source: "
    fault = obstore_fault(f'{kind}Os {{\n    code: {number},\n    kind: X,\n    message: "Y",')
    assert fault == connection_fault(OSError(number, "any"))
    assert (fault.message, fault.transient) == (message, True)


@pytest.mark.parametrize(
    ("debug", "message"),
    [
        (
            "kind: Connect, source: AlertReceived(HandshakeFailure)",
            "the TLS handshake failed: handshakefailure",
        ),
        (
            "kind: Connect, InvalidCertificate(BadSignature)",
            "the server's certificate is not trusted: BadSignature",
        ),
        ("kind: Connect, invalid peer certificate: UnknownIssuer", UNKNOWN),
        ("kind: Interrupted, source: hyper::Error(Body, Kind(UnexpectedEof))", CLOSED.message),
        ("kind: Timeout, source: TimedOut", STALLED.message),
        ("kind: Decode, source: x", None),
    ],
    ids=["alert", "signature", "in words", "cut", "slow", "no connection"],
)
def test_what_obstore_says(debug: str, message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    fault = obstore_fault(f"HttpError {{ {debug}")
    assert (fault and fault.message) == message


def test_a_scan_names_the_file_the_cause_and_the_tries() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/f.parquet"
        with pytest.raises(StoreError) as caught:
            accel.scan(url, options=Options(max_attempts=2, backoff_base=0.001)).to_table()
    assert str(caught.value) == f"{url}: connection refused, 2 times (check the host and the port in the URL)"
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


_WANT = ByteRange(10, 20)
_ERRORS = [
    IncompleteBodyError(
        "cut", path="f", range=_WANT, partial=memoryview(bytearray(b"abc")), size=90, etag='"e"'
    ),
    ShortObjectError(path="f", want=_WANT, size=12),
    SuffixUnsupportedError(path="f", sent=True, certain=False, status=416),
    ObjectGoneError("gone", path="f"),
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_each_travels_to_another_process(error: Exception) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert {**vars(other), "partial": None} == {**vars(error), "partial": None}


def test_the_bytes_of_a_cut_body_stay_here() -> None:
    assert pickle.loads(pickle.dumps(_ERRORS[0])).partial == b""


def test_another_version_says_more_than_all_else() -> None:
    failures = [ValueError("x"), _ERRORS[0], ExceptionGroup("inner", [_ERRORS[3]])]
    assert foremost(ExceptionGroup("all", failures)) is _ERRORS[3]
    assert foremost(ExceptionGroup("some", failures[:2])) is _ERRORS[0]
    assert foremost(ExceptionGroup("one", failures[:1])) is failures[0]


@pytest.mark.parametrize("cause", [None, OSError("reset")], ids=["no cause", "a cause"])
async def test_the_foremost_error_is_shown_without_its_group(cause: OSError | None) -> None:
    async def fail() -> None:
        if cause is None:
            raise StoreError("no answer")
        raise StoreError("no answer") from cause

    with pytest.raises(StoreError) as caught, raising_foremost():
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    shown = "".join(traceback.format_exception(caught.value))
    assert ("OSError: reset" in shown, "ExceptionGroup" in shown) == (cause is not None, False)
