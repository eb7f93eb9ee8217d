"""Plain HTTP: ranges, pins, and servers that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from accel.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    StoreError,
)
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.store.http_store import HttpStore, redirected
from accel.store.range_store import Header, Lister, ObjectEntry, RangeStore
from accel.store.request_errors import IncompleteBodyError, ShortObjectError, SuffixUnsupportedError
from tests.support.object_server import status as answering

BODY = bytes(i % 251 for i in range(1000))
FAST = Options(read_timeout=0.2, connect_timeout=1.0)


@pytest.fixture
async def store(server: Any) -> HttpStore:
    return HttpStore(server.url, storage_options={"headers": {"X-Key": "SECRET"}}, options=FAST)


def test_what_it_is() -> None:
    it = HttpStore("http://h", storage_options={}, options=FAST)
    assert isinstance(it, RangeStore)
    assert isinstance(it, Header)
    assert not isinstance(it, Lister)


async def test_a_range(server: Any, store: HttpStore) -> None:
    payload = await store.read("f", ByteRange(10, 20), if_match='"v1"')
    assert (bytes(payload.data), payload.range, payload.size, payload.etag) == (
        BODY[10:20],
        ByteRange(10, 20),
        1000,
        '"v1"',
    )
    (request,) = server.requests
    sent = request.headers
    assert (
        request.method,
        request.target,
        sent["range"],
        sent["if-match"],
        sent["x-key"],
        sent["accept-encoding"],
    ) == (
        "GET",
        "/f",
        "bytes=10-19",
        '"v1"',
        "SECRET",
        "identity",
    )


@pytest.mark.parametrize(("length", "start"), [(1, 999), (100, 900), (1000, 0), (5000, 0)])
async def test_a_suffix(server: Any, store: HttpStore, length: int, start: int) -> None:
    payload = await store.read("f", Suffix(length))
    assert (bytes(payload.data), payload.range, payload.size) == (BODY[start:], ByteRange(start, 1000), 1000)
    assert [r.headers["range"] for r in server.requests] == [f"bytes=-{length}"]


async def test_the_caller_names_the_agent(server: Any, store: HttpStore) -> None:
    given = {"user-agent": "mine", "X-Name": "é"}
    await HttpStore(server.url, storage_options={"headers": given}, options=FAST).read("f", ByteRange(0, 1))
    await store.read("f", ByteRange(0, 1))
    assert [request.headers["user-agent"] for request in server.requests] == ["mine", "accel"]
    assert server.requests[0].headers["x-name"].encode("latin-1").decode() == "é"


async def test_an_etag_of_other_bytes_comes_back_as_it_was_sent(server: Any, store: HttpStore) -> None:
    server.etags["/f"] = '"\xe9"'
    payload = await store.read("f", ByteRange(0, 1))
    assert bytes((await store.read("f", ByteRange(10, 20), if_match=payload.etag)).data) == BODY[10:20]


async def test_a_presigned_url_is_sent_as_it_is_spelt(server: Any, store: HttpStore) -> None:
    await store.read("f?X-Sig=a%2Fb%20c&d=%C3%A9", ByteRange(0, 1))
    assert server.requests[0].target == "/f?X-Sig=a%2Fb%20c&d=%C3%A9"


async def test_the_connection_is_used_again(server: Any, store: HttpStore) -> None:
    server.objects["/big"] = bytes(300_000)
    for want in (ByteRange(0, 10), ByteRange(0, 300_000), Suffix(200_000)):
        await store.read("big", want)
    assert server.connections == 1


async def test_an_address_of_ipv6_stands_in_brackets(server: Any) -> None:
    try:
        listening = await asyncio.start_server(server.serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    port = listening.sockets[0].getsockname()[1]
    store = HttpStore(f"http://[::1]:{port}", storage_options={}, options=FAST)
    assert bytes((await store.read("f", ByteRange(10, 20))).data) == BODY[10:20]
    assert server.requests[0].headers["host"] == f"[::1]:{port}"
    listening.close()


# -- servers that know no ranges ---------------------------------------------------------------------


def whole(reply: Any) -> None:
    reply.status, reply.body = 200, BODY
    reply.headers.pop("Content-Range", None)


async def test_200_is_read_up_to_the_range(server: Any, store: HttpStore) -> None:
    server.always = whole
    payload = await store.read("f", ByteRange(10, 20))
    assert (bytes(payload.data), payload.range, payload.size, payload.etag) == (
        BODY[10:20],
        ByteRange(10, 20),
        1000,
        '"v1"',
    )
    tail = await store.read("f", Suffix(5))
    assert (bytes(tail.data), tail.range, tail.size) == (BODY[-5:], ByteRange(995, 1000), 1000)


async def test_200_stops_when_the_range_has_come(server: Any, store: HttpStore) -> None:
    big = bytes(50_000_000)

    def endless(reply: Any) -> None:
        whole(reply)
        reply.body = big
        reply.stall = (1000, 30.0)

    server.always = endless
    async with asyncio.timeout(5):
        payload = await store.read("f", ByteRange(10, 20))
    assert (bytes(payload.data), payload.size) == (bytes(10), len(big))


async def test_200_of_unknown_length(server: Any, store: HttpStore) -> None:
    raw = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY
    server.always = lambda reply: setattr(reply, "raw", raw)
    tail = await store.read("f", Suffix(5))
    assert (bytes(tail.data), tail.range, tail.size, tail.etag) == (
        BODY[-5:],
        ByteRange(995, 1000),
        1000,
        None,
    )
    part = await store.read("f", ByteRange(10, 20))
    assert (bytes(part.data), part.size) == (BODY[10:20], None)


@pytest.mark.parametrize("want", [ByteRange(90, 200), Suffix(5)], ids=str)
async def test_200_beyond_the_limit_is_refused(server: Any, want: ByteRange | Suffix) -> None:
    server.always = whole
    small = HttpStore(server.url, storage_options={}, options=Options(max_unranged_bytes=100))
    with pytest.raises(StoreError, match="the server ignores ranges") as caught:
        await small.read("f", want)
    assert "max_unranged_bytes" in str(caught.value)
    assert not caught.value.transient


async def test_200_up_to_the_limit_is_read(server: Any) -> None:
    server.always = whole
    exact = HttpStore(server.url, storage_options={}, options=Options(max_unranged_bytes=200))
    assert bytes((await exact.read("f", ByteRange(90, 200))).data) == BODY[90:200]
    with pytest.raises(StoreError, match="the server ignores ranges, and 201 bytes would have to be read"):
        await exact.read("f", ByteRange(90, 201))


AZURE_HOSTS = {
    "https://acc.blob.core.windows.net": False,
    "https://acc.dfs.core.windows.net": False,
    "https://acc.z6.blob.storage.azure.net": False,
    "https://onelake.dfs.fabric.microsoft.com": False,
    "https://acc.blob.core.windows.net.example.org:8443": True,
    "https://storage.googleapis.com": True,
    "http://127.0.0.1:9000": True,
}


@pytest.mark.parametrize(("root", "known"), AZURE_HOSTS.items(), ids=AZURE_HOSTS.keys())
def test_azures_hosts_are_not_asked_for_the_end_of_an_object(root: str, known: bool) -> None:
    assert HttpStore(root, storage_options={}, options=FAST).suffixes is known


async def test_azure_by_another_name_is_found_out(server: Any, store: HttpStore) -> None:
    """It answers with the whole object, which may be large, though it knows ranges of any other kind."""

    def azure(reply: Any) -> None:
        whole(reply)
        reply.headers["x-ms-version"] = "2009-09-19"

    server.script[0] = azure
    with pytest.raises(SuffixUnsupportedError) as caught:
        await store.read("f", Suffix(5))
    assert (caught.value.sent, caught.value.certain) == (True, True)
    server.script[1] = azure
    assert bytes((await store.read("f", Suffix(2000))).data) == BODY  # what is wanted is the whole object


async def test_200_of_unknown_length_beyond_the_limit_is_refused(server: Any) -> None:
    raw = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY
    server.always = lambda reply: setattr(reply, "raw", raw)
    small = HttpStore(server.url, storage_options={}, options=Options(max_unranged_bytes=100))
    with pytest.raises(StoreError, match="longer than 100 bytes"):
        await small.read("f", Suffix(5))


@pytest.mark.parametrize("step", [3, 7, 1000])
async def test_a_range_in_chunks(server: Any, store: HttpStore, step: int) -> None:
    head = b'HTTP/1.1 206 x\r\nContent-Range: bytes 10-19/1000\r\nETag: "v1"\r\nTransfer-Encoding: chunked\r\n\r\n'
    parts = [BODY[10:20][start : start + step] for start in range(0, 10, step)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    server.script[0] = lambda reply: setattr(reply, "raw", head + chunks + b"0\r\n\r\n")
    payload = await store.read("f", ByteRange(10, 20))
    assert (bytes(payload.data), payload.size, payload.etag) == (BODY[10:20], 1000, '"v1"')
    server.script[1] = lambda reply: setattr(reply, "raw", head + chunks[:-5] + b"\r\n")
    with pytest.raises(IncompleteBodyError):
        await store.read("f", ByteRange(10, 20))


async def test_a_whole_object_in_chunks(server: Any, store: HttpStore) -> None:
    raw = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + BODY + b"\r\n0\r\n\r\n"
    server.always = lambda reply: setattr(reply, "raw", raw)
    part, tail = await store.read("f", ByteRange(10, 20)), await store.read("f", Suffix(5))
    assert (bytes(part.data), part.size) == (BODY[10:20], None)
    assert (bytes(tail.data), tail.range, tail.size) == (BODY[-5:], ByteRange(995, 1000), 1000)


async def test_an_answer_after_interim_ones(server: Any, store: HttpStore) -> None:
    raw = (
        INTERIM[0]
        + INTERIM[1]
        + b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab"
    )
    server.always = lambda reply: setattr(reply, "raw", raw)
    assert bytes((await store.read("f", ByteRange(0, 2))).data) == b"ab"


# -- answers that are wrong --------------------------------------------------------------------------

HEADERS = {
    "shifted": ({"Content-Range": "bytes 11-20/1000"}, "Content-Range"),
    "shorter": ({"Content-Range": "bytes 10-18/1000"}, "Content-Range"),
    "malformed": ({"Content-Range": "bytes 10-19"}, "Content-Range"),
    "other unit": ({"Content-Range": "items 10-19/1000"}, "Content-Range"),
    "beyond its own total": ({"Content-Range": "bytes 10-19/15"}, "Content-Range"),
    "none": ({"Content-Range": ""}, "Content-Range"),
    "encoded": ({"Content-Encoding": "gzip"}, "encodes the body (gzip)"),
    "encoded, and sent in frames": (
        {"Content-Encoding": "aws-chunked,gzip"},
        "encodes the body (aws-chunked,gzip)",
    ),
}


@pytest.mark.parametrize(("headers", "message"), HEADERS.values(), ids=HEADERS.keys())
async def test_a_wrong_head_is_refused(
    server: Any, store: HttpStore, headers: dict[str, str], message: str
) -> None:
    server.script[0] = lambda reply: reply.headers.update(headers)
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert message in str(caught.value)
    assert not caught.value.transient


async def test_a_total_of_star_is_an_unknown_size(server: Any, store: HttpStore) -> None:
    server.always = lambda reply: reply.headers.update({"Content-Range": "bytes 10-19/*"})
    assert (await store.read("f", ByteRange(10, 20))).size is None
    with pytest.raises(SuffixUnsupportedError):
        await store.read("f", Suffix(10))


@pytest.mark.parametrize(
    ("status", "kind", "transient"),
    [
        (401, AccessDeniedError, False),
        (403, AccessDeniedError, False),
        (404, ObjectNotFoundError, False),
        (410, ObjectNotFoundError, False),
        (408, StoreError, True),
        (412, ObjectChangedError, False),
        (416, ShortObjectError, False),
        (429, StoreError, True),
        (500, StoreError, True),
        (501, StoreError, False),
        (502, StoreError, True),
        (503, StoreError, True),
        (504, StoreError, True),
        (204, StoreError, False),
        (418, StoreError, False),
    ],
)
async def test_statuses(
    server: Any, store: HttpStore, status: int, kind: type[StoreError], transient: bool
) -> None:
    def refuse(reply: Any) -> None:
        reply.status, reply.headers, reply.body = status, {}, b""

    server.script[0] = refuse
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert (type(caught.value), caught.value.status, caught.value.transient) == (kind, status, transient)


async def test_an_expired_presigned_url_says_so_and_hides_itself(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "status", 403)
    with pytest.raises(StoreError) as caught:
        await store.read("f?X-Sig=SIGNATURE", ByteRange(10, 20))
    assert "may have expired" in str(caught.value)
    assert "SIGNATURE" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("soon", None),
        ("-3", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999999999", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
    ],
)
async def test_retry_after(server: Any, store: HttpStore, value: str, seconds: float | None) -> None:
    def busy(reply: Any) -> None:
        reply.status = 503
        reply.headers["Retry-After"] = value

    server.script[0] = busy
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("want", [ByteRange(0, 1), Suffix(8)], ids=str)
async def test_an_empty_object(server: Any, store: HttpStore, want: ByteRange | Suffix) -> None:
    server.objects["/f"] = b""
    kind = ParquetFormatError if isinstance(want, Suffix) else ShortObjectError
    with pytest.raises(kind):
        await store.read("f", want)
    server.always = lambda reply: (setattr(reply, "status", 200), reply.headers.clear())
    with pytest.raises(ParquetFormatError, match="the file is empty"):
        await store.read("f", want)


async def test_a_range_past_the_end(server: Any, store: HttpStore) -> None:
    for want in (ByteRange(990, 1010), ByteRange(2000, 2010)):
        with pytest.raises(ShortObjectError) as caught:
            await store.read("f", want)
        assert caught.value.size == 1000


# -- bodies that do not come whole -------------------------------------------------------------------


async def test_a_cut_body_hands_on_what_came(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "cut", 4)
    with pytest.raises(IncompleteBodyError) as caught:
        await store.read("f", ByteRange(10, 20))
    error = caught.value
    assert (bytes(error.partial), error.range, error.size, error.etag, error.transient) == (
        BODY[10:14],
        ByteRange(10, 20),
        1000,
        '"v1"',
        True,
    )


async def test_a_cut_suffix_knows_its_range(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "cut", 3)
    with pytest.raises(IncompleteBodyError) as caught:
        await store.read("f", Suffix(10))
    assert (bytes(caught.value.partial), caught.value.range) == (BODY[990:993], ByteRange(990, 1000))


async def test_a_body_shorter_than_its_range(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "body", reply.body[:6])
    with pytest.raises(IncompleteBodyError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert bytes(caught.value.partial) == BODY[10:16]


async def test_a_body_longer_than_its_range_is_cut_and_its_connection_dropped(
    server: Any, store: HttpStore
) -> None:
    server.script[0] = lambda reply: setattr(reply, "body", reply.body + b"more")
    assert bytes((await store.read("f", ByteRange(10, 20))).data) == BODY[10:20]
    assert bytes((await store.read("f", ByteRange(30, 40))).data) == BODY[30:40]


async def test_a_stalled_body_times_out(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "stall", (4, 5.0))
    with pytest.raises(IncompleteBodyError, match="no progress") as caught:
        await store.read("f", ByteRange(10, 20))
    assert bytes(caught.value.partial) == BODY[10:14]


@pytest.mark.parametrize(
    ("number", "transient", "message"),
    [
        (
            socket.EAI_NONAME,
            False,
            "f: the server's name is not known (check the host and the port in the URL)",
        ),
        (socket.EAI_AGAIN, True, "f: the server's name cannot be looked up at present"),
    ],
    ids=["unknown", "no resolver"],
)
async def test_a_name_that_is_not_known(
    number: int, transient: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*args: object) -> None:
        raise socket.gaierror(number, "resolving failed")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    it = HttpStore("http://host.invalid", storage_options={}, options=FAST)
    with pytest.raises(StoreError) as caught:
        await it.read("f", ByteRange(10, 20))
    assert (str(caught.value), caught.value.transient) == (message, transient)


FAILURES = {
    "stalled head": lambda reply: setattr(reply, "delay", 5.0),
    "connection closed": lambda reply: setattr(reply, "vanish", True),
}


@pytest.mark.parametrize("edit", FAILURES.values(), ids=FAILURES.keys())
async def test_no_answer_is_transient(server: Any, store: HttpStore, edit: Any) -> None:
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert caught.value.transient


INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"]


@pytest.mark.parametrize("interim", INTERIM, ids=["100", "103"])
async def test_silence_after_an_interim_response_ends_in_time(interim: bytes) -> None:
    asked: list[bytes] = []
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(interim)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    it = HttpStore(url, storage_options={}, options=Options(read_timeout=0.1, connect_timeout=0.1))
    async with asyncio.timeout(5):
        with pytest.raises(StoreError, match="no progress") as caught:
            await it.read("f", ByteRange(10, 20))
        await gone.wait()
    assert (caught.value.transient, len(asked)) == (True, 1)
    listening.close()


async def test_garbage_is_no_http(server: Any, store: HttpStore) -> None:
    server.always = lambda reply: setattr(reply, "raw", b"\x00\x01 garbage\r\n\r\n")
    with pytest.raises(StoreError, match="f: the answer is not HTTP"):
        await store.read("f", ByteRange(10, 20))


@pytest.mark.parametrize(
    ("code", "transient", "hint"),
    [
        (503, True, None),
        (502, True, None),
        (403, False, None),
        (407, False, "credentials for it stand in its URL"),
    ],
)
async def test_what_a_proxy_refuses(
    server: Any, monkeypatch: pytest.MonkeyPatch, code: int, transient: bool, hint: str | None
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", server.url.replace("http://", "http://user:SECRET@"))
    server.always = answering(code)
    store = HttpStore("https://h.example", storage_options={}, options=FAST)
    with pytest.raises(StoreError, match=f"the proxy answered with status {code}") as caught:
        await store.read("f", ByteRange(10, 20))
    (request,) = server.requests
    assert (request.method, request.target) == ("CONNECT", "h.example:443")
    error = caught.value
    assert (error.transient, error.status, (error.hint or "").partition(":")[0] or None) == (
        transient,
        None,
        hint,
    )
    assert "SECRET" not in str(error)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_proxy_hears_its_own_credentials(
    server: Any, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    scheme = "http" if plain else "https"
    monkeypatch.setenv(f"{scheme}_proxy", server.url.replace("http://", "http://user:word@"))
    server.always = answering(502)
    store = HttpStore(f"{scheme}://h.example", storage_options={}, options=FAST)
    with pytest.raises(StoreError, match="status 502"):
        await store.read("f", ByteRange(10, 20))
    (request,) = server.requests
    assert request.target == ("http://h.example/f" if plain else "h.example:443")
    assert request.headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
    assert "authorization" not in request.headers


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer mine"}])
async def test_what_a_netrc_holds_is_sent_to_nobody(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str]
) -> None:
    """Nor stands it in the way of what the caller gives."""
    (tmp_path / ".netrc").write_text("default login user password SECRET\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    store = HttpStore(server.url, storage_options={"headers": given}, options=FAST)
    await store.read("f", ByteRange(10, 20))
    (request,) = server.requests
    assert request.headers.get("authorization") == given.get("Authorization")


async def test_nobody_listens() -> None:
    store = HttpStore("http://127.0.0.1:1", storage_options={}, options=FAST)
    with pytest.raises(StoreError) as caught:
        await store.read("f", ByteRange(10, 20))
    assert caught.value.transient


async def test_a_cancelled_read_closes_its_connection(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "stall", (4, 5.0))
    task = asyncio.ensure_future(store.read("f", ByteRange(10, 20)))
    while not server.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bytes((await store.read("f", ByteRange(30, 40))).data) == BODY[30:40]


# -- redirects ---------------------------------------------------------------------------------------


def moved(target: str) -> Any:
    def edit(reply: Any) -> None:
        reply.status, reply.headers, reply.body = 302, {"Location": target}, b""

    return edit


async def test_a_redirect_is_followed_with_range_and_pin(server: Any, store: HttpStore) -> None:
    server.script[0] = moved("/f?moved=1")
    payload = await store.read("old", ByteRange(10, 20), if_match='"v1"')
    assert bytes(payload.data) == BODY[10:20]
    second = server.requests[1]
    assert (second.target, second.headers["range"], second.headers["if-match"]) == (
        "/f?moved=1",
        "bytes=10-19",
        '"v1"',
    )
    assert second.headers["x-key"] == "SECRET"


async def test_the_callers_headers_do_not_follow_to_another_server(server: Any, store: HttpStore) -> None:
    server.script[0] = moved(server.url.replace("127.0.0.1", "localhost") + "/f")
    payload = await store.read("old", ByteRange(10, 20))
    assert bytes(payload.data) == BODY[10:20]
    assert "x-key" in server.requests[0].headers
    assert "x-key" not in server.requests[1].headers


async def test_a_user_in_a_redirect_is_named_to_that_server_alone(server: Any, store: HttpStore) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    server.script[0] = moved(other.replace("//", "//us%65r:word@") + "/again")
    server.script[1] = moved(other + "/f")
    assert bytes((await store.read("old", ByteRange(10, 20))).data) == BODY[10:20]
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [None, "Basic dXNlcjp3b3Jk", None]
    assert {request.headers["host"] for request in server.requests[1:]} == {other.removeprefix("http://")}


async def test_a_redirect_that_is_not_ascii_is_followed(server: Any, store: HttpStore) -> None:
    server.objects["/%C3%A9%20x"] = BODY
    raw = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /é x#part\r\n\r\n".encode()
    server.script[0] = lambda reply: setattr(reply, "raw", raw)
    assert bytes((await store.read("old", ByteRange(10, 20))).data) == BODY[10:20]
    assert [request.target for request in server.requests] == ["/old", "/%C3%A9%20x"]


async def test_redirects_end(server: Any, store: HttpStore) -> None:
    server.always = moved("/again")
    with pytest.raises(StoreError, match="more than 5 redirects"):
        await store.read("f", ByteRange(10, 20))
    assert len(server.requests) == 6


@pytest.mark.parametrize("target", ["ftp://h/x", "file:///etc/passwd", "http://h:99999/x"])
async def test_a_redirect_to_elsewhere_is_refused(server: Any, store: HttpStore, target: str) -> None:
    server.always = moved(target)
    with pytest.raises(StoreError, match="no https URL"):
        await store.read("f", ByteRange(10, 20))


@pytest.mark.parametrize(
    ("url", "target", "new"),
    [
        ("https://h/x", "http://h/x", None),
        ("https://h/x", "//other/y", "https://other/y"),
        ("https://h/x", "https://other/y", "https://other/y"),
        ("http://h/x", "https://h/x", "https://h/x"),
        ("http://h/x", "http://other/y", "http://other/y"),
    ],
)
def test_https_is_not_left_for_http(url: str, target: str, new: str | None) -> None:
    if new is not None:
        assert redirected(url, target, "f") == new
        return
    with pytest.raises(StoreError, match="no https URL"):
        redirected(url, target, "f")


# Each fails in another place: while it is parsed, while its name is spelt for a lookup, while it is sent.
NO_TARGETS = {
    "bytes of no text": b"http://\xff\xfe/x",
    "a label too long": b"http://" + b"a" * 300 + b"/",
    "an empty label": b"http://a..b/",
    "a dot that is none": "http://münchen\u2024/".encode(),
    "a control character": b"/f?\x01",
    "a port too large": b"http://h:99999/",
}


@pytest.mark.parametrize("target", NO_TARGETS.values(), ids=NO_TARGETS)
async def test_a_redirect_to_what_no_client_can_ask_for(server: Any, store: HttpStore, target: bytes) -> None:
    raw = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n"
    server.always = lambda reply: setattr(reply, "raw", raw)
    with pytest.raises(StoreError, match="the server redirects to what is no https URL") as caught:
        await store.read("f?X-Sig=SIGNATURE", ByteRange(10, 20))
    assert not caught.value.transient
    assert "SIGNATURE" not in str(caught.value)
    assert len(server.requests) == 1


async def test_a_url_that_cannot_be_sent(server: Any, store: HttpStore) -> None:
    with pytest.raises(StoreError, match="this is no URL"):
        await store.read("f?\x01", ByteRange(10, 20))
    assert server.requests == []


# -- head --------------------------------------------------------------------------------------------


async def test_head(server: Any, store: HttpStore) -> None:
    assert await store.head("f") == ObjectEntry("f", 1000, '"v1"')
    assert [r.method for r in server.requests] == ["HEAD"]
    with pytest.raises(ObjectNotFoundError):
        await store.head("nope")


async def test_head_of_a_presigned_url_is_a_get_of_one_byte(server: Any, store: HttpStore) -> None:
    assert await store.head("f?X-Sig=1") == ObjectEntry("f?X-Sig=1", 1000, '"v1"')
    assert [(r.method, r.headers["range"]) for r in server.requests] == [("GET", "bytes=0-0")]
    server.objects["/f"] = b""
    assert await store.head("f?X-Sig=1") == ObjectEntry("f?X-Sig=1", 0, None)


async def test_a_server_without_head(server: Any, store: HttpStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "status", 405)
    assert await store.head("f") == ObjectEntry("f", 1000, '"v1"')
    assert [r.method for r in server.requests] == ["HEAD", "GET"]


# -- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("storage_options", "message"),
    [
        ({"endpoint": "x"}, "'endpoint' means nothing"),
        ({"headers": {"Range": "bytes=0-1"}}, "'Range' is accel's own"),
        ({"headers": {"if-match": "x"}}, "'if-match' is accel's own"),
    ],
)
def test_bad_options(storage_options: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        HttpStore("http://h", storage_options=storage_options, options=FAST)


@pytest.mark.parametrize(
    ("root", "named"),
    [
        ("https://acc.blob.core.windows.net", "az://container/path"),
        ("https://storage.googleapis.com", "gs://bucket/path"),
        ("https://bucket.s3.eu-west-1.amazonaws.com", "s3://bucket/path"),
        ("https://example.org", "known: headers"),
    ],
)
def test_credentials_for_a_web_address_of_a_cloud(root: str, named: str) -> None:
    with pytest.raises(StoreError, match=named):
        HttpStore(root, storage_options={"account_key": "x"}, options=FAST)
