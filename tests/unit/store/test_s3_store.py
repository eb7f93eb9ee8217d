"""S3 read directly: what comes is what obstore would have brought, and what it refuses too."""

from __future__ import annotations

import asyncio
import ssl
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore, S3Store

from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.options import Options, Transport
from accel.ranges import ByteRange, Suffix
from accel.store import s3_store
from accel.store.http_connections import connections_to
from accel.store.http_store import HttpStore
from accel.store.obstore_store import ObstoreStore
from accel.store.range_store import Header, Lister, Pager, RangeStore, Writer
from accel.store.request_errors import IncompleteBodyError, ShortObjectError, SuffixUnsupportedError
from accel.store.s3_store import DirectStore, adapt
from tests.support.object_server import ObjectServer, s3_at, status

BODY = bytes(i % 251 for i in range(1000))


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield
    s3_store.left_to_obstore.clear()


def s3_of(url: str, **client: Any) -> S3Store:
    return s3_at(url, **{"read_timeout": "200ms", "connect_timeout": "1s", **client})


@pytest.fixture
async def s3(server: Any) -> AsyncIterator[DirectStore]:
    server.objects["/b/f"] = BODY
    store = adapt(s3_of(server.url), Options())
    assert isinstance(store, DirectStore)
    yield store
    signed = await store.signer.sign("f")
    assert signed is not None
    await connections_to(signed.origin, store.signer.timeouts).close()


def directly(server: Any) -> list[bool]:
    """Of each request, whether accel itself sent it."""
    return [request.headers.get("user-agent") == "accel" for request in server.requests]


def test_what_it_is() -> None:
    store = adapt(s3_of("http://127.0.0.1:1"), Options())
    for protocol in (RangeStore, Header, Lister, Pager, Writer):
        assert isinstance(store, protocol)
    assert type(adapt(MemoryStore(), Options())) is ObstoreStore


def test_obstore_alone_where_that_is_wanted() -> None:
    given = s3_of("http://127.0.0.1:1")
    assert type(adapt(given, Options(transport=Transport.OBSTORE))) is ObstoreStore


async def test_a_range(server: Any, s3: DirectStore) -> None:
    payload = await s3.read("f", ByteRange(10, 20), if_match='"v1"')
    assert (bytes(payload.data), payload.range) == (BODY[10:20], ByteRange(10, 20))
    assert (payload.size, payload.etag) == (1000, '"v1"')
    (request,) = server.requests
    assert (request.headers["range"], request.headers["if-match"]) == ("bytes=10-19", '"v1"')
    assert "authorization" not in request.headers
    assert directly(server) == [True]


@pytest.mark.parametrize(("length", "start"), [(1, 999), (1000, 0), (5000, 0)])
async def test_a_suffix(server: Any, s3: DirectStore, length: int, start: int) -> None:
    payload = await s3.read("f", Suffix(length))
    assert (bytes(payload.data), payload.range, payload.size) == (BODY[start:], ByteRange(start, 1000), 1000)
    assert [r.headers["range"] for r in server.requests] == [f"bytes=-{length}"]


async def test_names_of_all_kinds(server: Any, s3: DirectStore) -> None:
    server.objects["/b/a%20b/%C3%BC%25%2B.parquet"] = BODY
    assert bytes((await s3.read("a b/ü%+.parquet", ByteRange(1, 3))).data) == BODY[1:3]


TRUSTED = {
    404: (ObjectNotFoundError, False),
    408: (StoreError, True),
    412: (ObjectChangedError, False),
    416: (ShortObjectError, False),
    429: (StoreError, True),
    500: (StoreError, True),
    502: (StoreError, True),
    503: (StoreError, True),
}


@pytest.mark.parametrize("code", TRUSTED)
async def test_statuses_that_mean_the_same_whoever_asks(server: Any, s3: DirectStore, code: int) -> None:
    kind, transient = TRUSTED[code]
    server.script[0] = status(code, b"<Error><Code>TheCode</Code><Message>hunter2</Message></Error>")
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    error = caught.value
    assert (type(error), error.status, error.transient) == (kind, code, transient)
    assert "hunter2" not in str(error)
    assert ("[TheCode]" in str(error)) is transient
    assert directly(server) == [True]


async def test_the_servers_wish_to_wait_is_heard(server: Any, s3: DirectStore) -> None:
    server.script[0] = status(503, b"", Retry_After="7")
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert caught.value.retry_after == 7.0


async def test_a_bucket_that_is_not_there_is_told_apart(server: Any, s3: DirectStore) -> None:
    server.script[0] = status(404, b"<Error><Code>NoSuchBucket</Code></Error>")
    with pytest.raises(ObjectNotFoundError, match="no such bucket"):
        await s3.read("f", ByteRange(10, 20))


async def test_how_long_a_short_object_is(server: Any, s3: DirectStore) -> None:
    for want in (ByteRange(990, 1010), ByteRange(2000, 2010)):
        with pytest.raises(ShortObjectError) as caught:
            await s3.read("f", want)
        assert caught.value.size == 1000
    server.objects["/b/f"] = b""
    with pytest.raises(ParquetFormatError, match="empty"):
        await s3.read("f", Suffix(10))


REFUSALS = {
    "200": status(200, BODY),
    "307": status(307, b"", Location="http://127.0.0.1:1/"),
    "400": status(400),
    "401": status(401),
    "403": status(403, b"<Error><Code>AccessDenied</Code></Error>"),
    "501": status(501),
    "in chunks": lambda reply: setattr(
        reply,
        "raw",
        b"HTTP/1.1 206 x\r\nContent-Range: bytes 10-19/1000\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "no HTTP": lambda reply: setattr(reply, "raw", b"garbage\r\n\r\n"),
}


@pytest.mark.parametrize("edit", REFUSALS.values(), ids=REFUSALS)
async def test_what_is_refused_is_asked_of_obstore_and_so_is_all_after_it(
    server: Any, s3: DirectStore, edit: Any
) -> None:
    server.script[0] = edit
    for _ in range(3):
        payload = await s3.read("f", ByteRange(10, 20), if_match='"v1"')
        assert (bytes(payload.data), payload.etag) == (BODY[10:20], '"v1"')
    assert directly(server) == [True, False, False, False]
    s3_store.left_to_obstore.clear()  # as after a minute
    await s3.read("f", ByteRange(10, 20))
    assert directly(server)[4:] == [True]


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are signed, as they are."""
    paths: list[str] = []
    sign = s3_store.obstore.sign

    def noted(store: Any, method: Any, path: str, valid: Any) -> str:
        paths.append(path)
        return str(sign(store, method, path, valid))

    monkeypatch.setattr(s3_store.obstore, "sign", noted)
    return paths


@pytest.mark.parametrize("code", [400, 401, 403])
async def test_what_obstore_is_refused_too_is_told_by_it(
    server: Any, s3: DirectStore, signed: list[str], code: int
) -> None:
    refused = status(code, b"<Error><Code>ExpiredToken</Code></Error>")
    server.script |= {0: refused, 1: refused}
    with pytest.raises(StoreError, match="ExpiredToken") as caught:
        await s3.read("f", ByteRange(10, 20))
    assert caught.value.status == code
    assert bytes((await s3.read("f", ByteRange(10, 20))).data) == BODY[10:20]
    assert directly(server) == [True, False, True]  # it may have been this object alone
    assert signed == ["f", "f"]


async def test_what_is_refused_is_signed_anew(server: Any, s3: DirectStore, signed: list[str]) -> None:
    server.script[1] = status(403)
    for refused in (False, True, False):
        assert bytes((await s3.read("f", ByteRange(10, 20))).data) == BODY[10:20]
        assert (len(s3_store.left_to_obstore) == 1) is refused
        s3_store.left_to_obstore.clear()
    assert directly(server) == [True, True, False, True]
    assert signed == ["f", "f"]


async def test_without_credentials_obstore_tells(server: Any) -> None:
    def provide() -> Any:
        raise ValueError("nothing here: hunter2")

    store = S3Store(
        "b", endpoint=server.url, client_options={"allow_http": True}, credential_provider=provide
    )
    adapted = adapt(store, Options())
    assert isinstance(adapted, DirectStore)
    with pytest.raises(AccelError):
        await adapted.read("f", ByteRange(0, 1))
    assert server.requests == []


@pytest.mark.parametrize("encoding", ["aws-chunked", "AWS-Chunked, identity", "identity", ","])
async def test_what_an_upload_was_framed_by_is_no_encoding(
    server: Any, s3: DirectStore, encoding: str
) -> None:
    server.always = lambda reply: reply.headers.update({"Content-Encoding": encoding})
    assert bytes((await s3.read("f", ByteRange(10, 20))).data) == BODY[10:20]
    assert directly(server) == [True]
    http = HttpStore(f"{server.url}/b", storage_options={}, options=Options())
    assert bytes((await http.read("f", ByteRange(10, 20))).data) == BODY[10:20]


HEADS = {
    "shifted": lambda r: r.headers.update({"Content-Range": "bytes 11-20/1000"}),
    "no total, of a suffix": lambda r: r.headers.update({"Content-Range": "bytes 990-999/*"}),
    "none": lambda r: r.headers.update({"Content-Range": ""}),
    "encoded": lambda r: r.headers.update({"Content-Encoding": "gzip"}),
    "longer than its range": lambda r: setattr(r, "body", r.body + b"more"),
    "shorter than its range": lambda r: setattr(r, "body", r.body[:-1]),
}


@pytest.mark.parametrize("edit", HEADS.values(), ids=HEADS)
async def test_a_wrong_head_is_refused(server: Any, s3: DirectStore, edit: Any) -> None:
    server.script[0] = edit
    with pytest.raises(StoreError) as caught:
        await s3.read("f", Suffix(10))
    assert not caught.value.transient
    assert directly(server) == [True]


@pytest.mark.parametrize(
    "edit",
    [
        lambda reply: setattr(reply, "vanish", True),
        lambda reply: setattr(reply, "delay", 5.0),
    ],
    ids=["closed", "stalled"],
)
async def test_no_answer_is_transient(server: Any, s3: DirectStore, edit: Any) -> None:
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert caught.value.transient
    assert directly(server) == [True]


@pytest.mark.parametrize(
    "edit",
    [lambda reply: setattr(reply, "cut", 4), lambda reply: setattr(reply, "stall", (4, 5.0))],
    ids=["cut", "stalled"],
)
async def test_what_came_of_a_body_is_kept(server: Any, s3: DirectStore, edit: Any) -> None:
    server.script[0] = edit
    with pytest.raises(IncompleteBodyError) as caught:
        await s3.read("f", ByteRange(10, 20))
    error = caught.value
    assert (bytes(error.partial), error.range, error.size, error.etag) == (
        BODY[10:14],
        ByteRange(10, 20),
        1000,
        '"v1"',
    )


async def test_an_etag_that_is_no_header_goes_through_obstore(server: Any, s3: DirectStore) -> None:
    with pytest.raises(StoreError):
        await s3.read("f", ByteRange(10, 20), if_match='"v1"\r\nX: y')
    assert not any(directly(server))
    assert all("x" not in request.headers for request in server.requests)


async def test_no_error_tells_the_signature(server: Any, s3: DirectStore) -> None:
    for number, edit in enumerate((status(403), status(403), status(503), status(404), status(416))):
        server.script[number] = edit
    told = []
    while len(told) < 4:
        with pytest.raises(StoreError) as caught:
            await s3.read("f", ByteRange(10, 20))
        told.append(f"{caught.value!r} {caught.value} {caught.value.__cause__} {caught.value.__context__}")
    assert directly(server) == [True, False, True, True, True]
    assert not any("X-Amz" in text or "SECRET" in text or "http" in text for text in told)


def _told_by_frames(error: BaseException | None) -> str:
    """All that a tool would write down that records the locals of accel's frames."""
    told = []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if Path(frame.f_code.co_filename).is_relative_to(Path(s3_store.__file__).parents[1]):
                told += [f"{name} = {value!r}" for name, value in frame.f_locals.items()]
        error = error.__context__
    return "\n".join(told)


@pytest.mark.parametrize(
    "edit",
    [
        status(503),
        status(404),
        HEADS["shifted"],
        lambda reply: setattr(reply, "vanish", True),
        lambda reply: setattr(reply, "delay", 5.0),
        lambda reply: setattr(reply, "cut", 4),
    ],
    ids=["503", "404", "shifted", "closed", "stalled", "cut"],
)
async def test_no_frame_tells_the_signature(server: Any, s3: DirectStore, edit: Any) -> None:
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert directly(server) == [True]
    told = _told_by_frames(caught.value)
    assert "want = " in told
    assert "X-Amz" not in told
    assert "SECRET" not in told


async def test_nobody_there_is_for_obstore_to_say() -> None:
    store = adapt(s3_of("http://127.0.0.1:1"), Options())
    assert isinstance(store, DirectStore)
    with pytest.raises(StoreError):
        await store.read("f", ByteRange(0, 1))


# Everything that a server may do to one answer, and both ways to read it.
EDITS = {
    **{f"status {code}": status(code) for code in (*TRUSTED, 400, 401, 403, 405, 409, 501, 504)},
    "none": lambda reply: None,
    "cut": lambda reply: setattr(reply, "cut", 2),
    "vanish": lambda reply: setattr(reply, "vanish", True),
    "garbage": lambda reply: setattr(reply, "raw", b"garbage\r\n\r\n"),
    "longer": HEADS["longer than its range"],
    "no etag": lambda reply: reply.headers.pop("ETag", None),
    "weak etag": lambda reply: reply.headers.update({"ETag": 'W/"v1"'}),
}
WANTS = st.one_of(
    st.builds(Suffix, st.integers(1, 1100)),
    st.tuples(st.integers(0, 1010), st.integers(1, 300)).map(lambda at: ByteRange(at[0], at[0] + at[1])),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edit=st.sampled_from(sorted(EDITS)), want=WANTS, if_match=st.sampled_from([None, '"v1"', '"v2"']))
def test_both_ways_agree(edit: str, want: ByteRange | Suffix, if_match: str | None) -> None:
    asyncio.run(_compare(edit, want, if_match))


async def _compare(edit: str, want: ByteRange | Suffix, if_match: str | None) -> None:
    it = ObjectServer(objects={"/b/f": BODY}, always=EDITS[edit])
    tasks: list[asyncio.Task[None]] = []
    listening = await asyncio.start_server(
        lambda reader, writer: tasks.append(asyncio.ensure_future(it.serve(reader, writer))), "127.0.0.1", 0
    )
    given = s3_of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    outcomes = []
    direct = adapt(given, Options())
    assert isinstance(direct, DirectStore)
    for store in (direct, ObstoreStore(given)):
        try:
            payload = await store.read("f", want, if_match=if_match)
        except StoreError as error:
            outcomes.append((type(error), error.transient, error.status, getattr(error, "etag", None)))
        except AccelError as error:
            outcomes.append((type(error), error.message))
        else:
            outcomes.append((bytes(payload.data), payload.range, payload.size, payload.etag))
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert _comparable(outcomes[0]) == _comparable(outcomes[1])


def _comparable(outcome: tuple[object, ...]) -> object:
    # obstore tells neither the etag of a 416 nor the status of some heads that it refuses.
    if isinstance(outcome[0], type) and issubclass(outcome[0], (ShortObjectError, SuffixUnsupportedError)):
        return outcome[0]
    return outcome[:2] if isinstance(outcome[0], type) else outcome


class Authority:
    """A server of objects over TLS, its certificate known to whoever looks where the environment says."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.known = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.known))
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(self.context)


@pytest.fixture
async def secure(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Store]:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.known))
    tasks: set[asyncio.Task[None]] = set()
    listening = await asyncio.start_server(
        lambda reader, writer: tasks.add(asyncio.ensure_future(server.serve(reader, writer))),
        "127.0.0.1",
        0,
        ssl=authority.context,
    )
    server.objects["/b/f"] = bytes(i % 253 for i in range(1_000_000))
    yield s3_of(f"https://localhost:{listening.sockets[0].getsockname()[1]}", read_timeout="5s")
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_over_tls_long_ranges_are_left_to_obstore(server: Any, secure: S3Store) -> None:
    store, data = adapt(secure, Options()), server.objects["/b/f"]
    for want in (ByteRange(5, 200_000), ByteRange(7, 10), ByteRange(0, 1_000_000)):
        assert bytes((await store.read("f", want)).data) == data[want.start : want.end]
    assert directly(server) == [True, True, False]


async def test_a_certificate_that_is_not_known_is_refused(
    server: Any, secure: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    given = s3_of(str(secure.config["endpoint"]), read_timeout="5s")
    with pytest.raises(StoreError, match="certificate is from an unknown authority") as caught:
        await adapt(given, Options()).read("f", ByteRange(0, 1))
    assert not caught.value.transient
    assert server.requests == []
