"""The obstore adapter: S3 over a misbehaving server, Azure, memory and local stores, and panics."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import io
import os
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest
from obstore import exceptions
from obstore.store import AzureStore, HTTPStore, LocalStore, MemoryStore, S3Store

import accel
from accel.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    StoreError,
)
from accel.ranges import ByteRange, Suffix
from accel.store import obstore_store
from accel.store.obstore_errors import translate
from accel.store.obstore_store import CONFIG_HIDDEN, ObstoreStore, upload
from accel.store.range_store import Header, Lister, ObjectEntry, RangeStore
from accel.store.request_errors import IncompleteBodyError, ShortObjectError, SuffixUnsupportedError
from accel.testing import Layout, table, write_file
from tests.support.object_server import s3_at, status

BODY = bytes(i % 251 for i in range(1000))


@pytest.fixture
def s3(server: Any) -> ObstoreStore:
    server.objects["/b/f"] = BODY
    return ObstoreStore(
        S3Store(
            "b",
            endpoint=server.url,
            access_key_id="KEY",
            secret_access_key="SECRET",
            region="us-east-1",
            client_options={"allow_http": True, "read_timeout": "200ms", "connect_timeout": "1s"},
            retry_config={"max_retries": 0},
        )
    )


def test_what_it_is() -> None:
    it = ObstoreStore(MemoryStore())
    assert isinstance(it, RangeStore)
    assert isinstance(it, Lister)
    assert isinstance(it, Header)
    assert repr(it) == "ObstoreStore(MemoryStore)"


async def test_a_range(server: Any, s3: ObstoreStore) -> None:
    payload = await s3.read("f", ByteRange(10, 20), if_match='"v1"')
    assert (bytes(payload.data), payload.range, payload.size, payload.etag) == (
        BODY[10:20],
        ByteRange(10, 20),
        1000,
        '"v1"',
    )
    (request,) = server.requests
    assert (request.headers["range"], request.headers["if-match"]) == ("bytes=10-19", '"v1"')


@pytest.mark.parametrize(("length", "start"), [(1, 999), (1000, 0), (5000, 0)])
async def test_a_suffix(server: Any, s3: ObstoreStore, length: int, start: int) -> None:
    payload = await s3.read("f", Suffix(length))
    assert (bytes(payload.data), payload.range, payload.size) == (BODY[start:], ByteRange(start, 1000), 1000)
    assert [r.headers["range"] for r in server.requests] == [f"bytes=-{length}"]


@pytest.mark.parametrize("whole", [0, 12 << 20], ids=["in parts", "whole"])
async def test_a_long_body(
    server: Any, s3: ObstoreStore, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    monkeypatch.setattr(obstore_store, "WHOLE_BYTES", whole)
    data = bytes(i % 253 for i in range(3 * obstore_store.PART_BYTES))
    server.objects["/b/f"] = data
    payload = await s3.read("f", ByteRange(5, len(data) - 5))
    assert bytes(payload.data) == data[5:-5]


async def test_after_a_cut_body_others_come_in_parts_for_a_while(server: Any, s3: ObstoreStore) -> None:
    part = obstore_store.PART_BYTES
    data = bytes(i % 253 for i in range(4 * part))
    server.objects["/b/f"] = data
    server.script |= {n: lambda reply: setattr(reply, "cut", 3 * part) for n in range(3)}
    came = []
    for elapsed in (0.0, 0.0, 60.0):
        s3._careful_until -= elapsed
        with pytest.raises(IncompleteBodyError) as caught:
            await s3.read("f", ByteRange(0, len(data)))
        came.append(len(caught.value.partial) >= 2 * part)
        assert bytes(caught.value.partial) == data[: len(caught.value.partial)]
    assert came == [False, True, False]


async def test_a_cut_long_body_hands_on_its_whole_parts(
    server: Any, s3: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_store, "WHOLE_BYTES", 0)
    part = obstore_store.PART_BYTES
    data = bytes(i % 253 for i in range(4 * part))
    server.objects["/b/f"] = data
    server.script[0] = lambda reply: setattr(reply, "cut", 3 * part)
    with pytest.raises(IncompleteBodyError) as caught:
        await s3.read("f", ByteRange(0, len(data)))
    came = len(caught.value.partial)
    assert 2 * part <= came <= 3 * part
    assert bytes(caught.value.partial) == data[:came]
    assert (caught.value.size, caught.value.etag) == (len(data), '"v1"')


async def test_a_cut_short_body_is_asked_for_again(server: Any, s3: ObstoreStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "cut", 4)
    with pytest.raises(IncompleteBodyError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert (len(caught.value.partial), caught.value.range) == (0, ByteRange(10, 20))


async def test_a_stalled_body_times_out(server: Any, s3: ObstoreStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "stall", (4, 5.0))
    with pytest.raises(IncompleteBodyError, match="no progress"):
        await s3.read("f", ByteRange(10, 20))


async def test_a_range_past_the_end(server: Any, s3: ObstoreStore) -> None:
    with pytest.raises(ShortObjectError) as caught:
        await s3.read("f", ByteRange(990, 1010))
    assert caught.value.size == 1000
    with pytest.raises(ShortObjectError) as caught:
        await s3.read("f", ByteRange(2000, 2010))
    assert caught.value.size is None  # obstore does not show the 416's Content-Range


@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        (400, StoreError, False),
        (401, AccessDeniedError, False),
        (403, AccessDeniedError, False),
        (404, ObjectNotFoundError, False),
        (408, StoreError, True),
        (409, StoreError, False),
        (412, ObjectChangedError, False),
        (416, ShortObjectError, False),
        (429, StoreError, True),
        (500, StoreError, True),
        (501, StoreError, False),
        (502, StoreError, True),
        (503, StoreError, True),
        (504, StoreError, True),
    ],
)
async def test_statuses(
    server: Any, s3: ObstoreStore, code: int, kind: type[StoreError], transient: bool
) -> None:
    server.script[0] = status(code, b"<Error><Code>TheCode</Code><Message>hunter2</Message></Error>")
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    error = caught.value
    assert (type(error), error.status, error.transient) == (kind, code, transient)
    assert "hunter2" not in str(error)
    assert len(server.requests) == 1  # obstore itself did not retry


@pytest.mark.parametrize(
    ("retry_config", "requests"), [(None, 1), ({"max_retries": 1}, 2)], ids=["unsaid", "the maker's wish"]
)
async def test_a_store_of_the_callers_does_not_retry_unless_it_was_told_to(
    server: Any, retry_config: Any, requests: int
) -> None:
    given = S3Store(
        "b",
        prefix="below",
        endpoint=server.url,
        access_key_id="KEY",
        secret_access_key="SECRET",
        region="us-east-1",
        client_options={"allow_http": True, "default_headers": {"x-mine": "1"}},
        retry_config=retry_config,
    )
    server.always = status(503)
    with pytest.raises(StoreError):
        await ObstoreStore(given).read("f", ByteRange(0, 1))
    assert len(server.requests) == requests
    assert (server.requests[0].target, server.requests[0].headers["x-mine"]) == ("/b/below/f", "1")


def test_a_store_that_cannot_be_copied_is_used_as_it_is() -> None:
    # Its `config` panics in obstore 0.12.1, over an argument that its constructor takes.
    given = S3Store("b", allow_http=True, access_key_id="KEY", secret_access_key="SECRET")
    assert ObstoreStore(given).inner is given


async def test_a_store_that_cannot_be_copied_is_tried_once_and_told_of(
    server: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    server.objects["/b/f.parquet"] = write_file(table(x=pa.array(range(10))), Layout())
    settings: dict[str, Any] = {"access_key_id": "KEY", "secret_access_key": "SECRET", "region": "us-east-1"}
    given = S3Store("b", endpoint=server.url, allow_http=True, **settings)
    scans = [accel.scan("f.parquet", store=given, cache=None) for _ in range(3)]
    assert [(await scan.to_table_async()).num_rows for scan in scans] == [10, 10, 10]
    assert [scan.metrics.warnings for scan in scans] == [[CONFIG_HIDDEN]] * 3
    # Rust tells of a panic whoever catches it.
    assert capfd.readouterr().err.count("panicked at") == 1
    client_options: Any = {"allow_http": True}
    told = accel.scan(
        "f.parquet", store=S3Store("b", endpoint=server.url, client_options=client_options, **settings)
    )
    assert ((await told.to_table_async()).num_rows, told.metrics.warnings) == (10, [])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("ExpiredToken", "the credentials have expired: get new ones"),
        ("SignatureDoesNotMatch", "secret_access_key or account_key is wrong"),
        ("RequestTimeTooSkewed", "this machine's clock is wrong"),
        ("AccessDenied", "check the credentials"),
    ],
)
async def test_the_servers_code_is_told(server: Any, s3: ObstoreStore, code: str, hint: str) -> None:
    server.script[0] = status(403, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
    with pytest.raises(StoreError, match=rf"status 403 \[{code}\] \({hint}") as caught:
        await s3.read("f", ByteRange(10, 20))
    assert caught.value.status == 403


async def test_a_path_cannot_pose_as_a_status(server: Any, s3: ObstoreStore) -> None:
    path = "inner: Status {  status: 404, non-2xx status code: 404"
    server.script[0] = status(503)
    with pytest.raises(StoreError) as caught:
        await s3.read(path, ByteRange(10, 20))
    assert (caught.value.status, caught.value.transient) == (503, True)


HEADS = {
    "200 for a range": (
        lambda r: (setattr(r, "status", 200), r.headers.pop("Content-Range")),
        "non-partial",
    ),
    "shifted": (lambda r: r.headers.update({"Content-Range": "bytes 11-20/1000"}), "Requested 10..20"),
    "no total": (lambda r: r.headers.update({"Content-Range": "bytes 10-19/*"}), "CONTENT_RANGE"),
    "none": (lambda r: r.headers.update({"Content-Range": ""}), "Content-Range"),
}


@pytest.mark.parametrize(("edit", "message"), HEADS.values(), ids=HEADS.keys())
async def test_a_wrong_head_is_refused(server: Any, s3: ObstoreStore, edit: Any, message: str) -> None:
    server.script[0] = edit
    with pytest.raises(StoreError, match=message) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert not caught.value.transient


async def test_a_body_longer_than_its_range_is_refused(server: Any, s3: ObstoreStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "body", reply.body + b"more")
    with pytest.raises(StoreError, match="14 bytes that are not the wanted ones"):
        await s3.read("f", ByteRange(10, 20))


async def test_of_a_body_far_longer_than_its_range_little_is_taken(server: Any, s3: ObstoreStore) -> None:
    """More than is taken may never come."""

    def endless(reply: Any) -> None:
        reply.headers["Content-Length"] = str(1500 << 20)
        reply.body, reply.stall = bytes(1 << 20), (1 << 20, 3600.0)

    server.script[0] = endless
    async with asyncio.timeout(5):
        with pytest.raises(StoreError, match="bytes that are not the wanted ones") as caught:
            await s3.read("f", ByteRange(10, 20))
    assert not caught.value.transient


async def test_a_body_that_is_missing_is_asked_for_again(server: Any, s3: ObstoreStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "body", b"")
    with pytest.raises(IncompleteBodyError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert (len(caught.value.partial), caught.value.range) == (0, ByteRange(10, 20))


CONNECTIONS = {
    "closed": lambda reply: setattr(reply, "vanish", True),
    "stalled": lambda reply: setattr(reply, "delay", 5.0),
}


@pytest.mark.parametrize("edit", CONNECTIONS.values(), ids=CONNECTIONS.keys())
async def test_no_answer_is_transient(server: Any, s3: ObstoreStore, edit: Any) -> None:
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await s3.read("f", ByteRange(10, 20))
    assert caught.value.transient


async def test_garbage_is_not_transient(server: Any, s3: ObstoreStore) -> None:
    server.always = lambda reply: setattr(reply, "raw", b"garbage\r\n\r\n")
    with pytest.raises(StoreError, match="the answer is not HTTP"):
        await s3.read("f", ByteRange(10, 20))


async def test_a_cancelled_read_ends(server: Any, s3: ObstoreStore) -> None:
    server.script[0] = lambda reply: setattr(reply, "delay", 5.0)
    task = asyncio.ensure_future(s3.read("f", ByteRange(10, 20)))
    while not server.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("code", [400, 416, 501])
async def test_a_refused_suffix_may_be_an_empty_object(server: Any, s3: ObstoreStore, code: int) -> None:
    server.script[0] = status(code)
    with pytest.raises(SuffixUnsupportedError) as caught:
        await s3.read("f", Suffix(10))
    assert (caught.value.sent, caught.value.certain) == (True, False)


async def test_azure_is_not_even_asked_for_a_suffix() -> None:
    azure = ObstoreStore(AzureStore(container_name="c", account_name="a", account_key="aGVsbG8="))
    with pytest.raises(SuffixUnsupportedError) as caught:
        await azure.read("f", Suffix(10))
    assert (caught.value.sent, caught.value.certain) == (False, True)


async def test_head(server: Any, s3: ObstoreStore) -> None:
    server.always = lambda reply: reply.headers.update({"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert await s3.head("f") == ObjectEntry("f", 1000, '"v1"')
    with pytest.raises(ObjectNotFoundError):
        await s3.head("nope")


@pytest.fixture(params=["memory", "local"])
def plain(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> ObstoreStore:
    inner = MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path))
    for path, data in {"d/f": BODY, "d/e": b"", "d-x/g": b"1", "d/sub/h": b"22"}.items():
        inner.put(path, data)
    return ObstoreStore(inner)


async def test_plain_stores_read(plain: ObstoreStore) -> None:
    tail = await plain.read("d/f", Suffix(10))
    assert (bytes(tail.data), tail.range, tail.size) == (BODY[-10:], ByteRange(990, 1000), 1000)
    part = await plain.read("d/f", ByteRange(5, 9), if_match=tail.etag)
    assert (bytes(part.data), part.etag) == (BODY[5:9], tail.etag)
    with pytest.raises(ObjectChangedError):
        await plain.read("d/f", ByteRange(5, 9), if_match='"other"')
    with pytest.raises(ObjectNotFoundError):
        await plain.read("nope", ByteRange(5, 9))
    for want in (ByteRange(990, 1001), ByteRange(2000, 2001)):
        with pytest.raises(ShortObjectError) as caught:
            await plain.read("d/f", want)
        assert caught.value.size == 1000


async def test_plain_stores_and_empty_objects(plain: ObstoreStore) -> None:
    with pytest.raises((ParquetFormatError, SuffixUnsupportedError)):
        await plain.read("d/e", Suffix(10))
    assert (await plain.head("d/e")).size == 0


@pytest.mark.parametrize("now", [bytes(1000), bytes(2000), b"cut off"], ids=["as long", "longer", "shorter"])
@pytest.mark.parametrize("want", [ByteRange(5, 900), Suffix(900)], ids=["range", "suffix"])
async def test_a_file_that_is_written_while_it_is_read_has_changed(
    now: bytes, want: ByteRange | Suffix, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(BODY)
    os.utime(tmp_path / "f", (1, 1))
    look_up = obstore_store.obstore.get_async

    async def look_up_too_early(*args: Any, **more: Any) -> Any:
        result = await look_up(*args, **more)
        (tmp_path / "f").write_bytes(now)
        return result

    store = ObstoreStore(LocalStore(str(tmp_path)))
    monkeypatch.setattr(obstore_store.obstore, "get_async", look_up_too_early)
    with pytest.raises(ObjectChangedError, match="no longer the version that was asked for"):
        await store.read("f", want)
    monkeypatch.undo()
    assert bytes((await store.read("f", ByteRange(0, 5))).data) == now[:5]


async def test_plain_stores_list_by_whole_segments(plain: ObstoreStore) -> None:
    listed = [entry async for entry in plain.list("d")]
    assert [(entry.path, entry.size) for entry in listed] == [("d/e", 0), ("d/f", 1000), ("d/sub/h", 2)]
    assert listed[1].etag == (await plain.read("d/f", ByteRange(0, 1))).etag
    assert [entry.path async for entry in plain.list("")] == ["d-x/g", "d/e", "d/f", "d/sub/h"]
    assert [entry.path async for entry in plain.list("d/")] == ["d/e", "d/f", "d/sub/h"]
    assert [entry.path async for entry in plain.list("nope")] == []


async def test_a_plain_http_server_cannot_list() -> None:
    with pytest.raises(StoreError, match="cannot list"):
        [_ async for _ in ObstoreStore(HTTPStore("http://127.0.0.1:1")).list("")]


@pytest.mark.parametrize("path", ["a//b", "../x", "a/./b"])
async def test_a_path_that_obstore_cannot_spell(path: str) -> None:
    with pytest.raises(StoreError, match="Could not parse path") as caught:
        await ObstoreStore(MemoryStore()).read(path, ByteRange(0, 1))
    assert (
        caught.value.hint == "a path in a store has no empty segment, no . and no .., and begins at its root"
    )


async def test_a_panic_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    class RustPanic(Exception):
        pass

    async def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    async def fall_over(*_: object, **__: object) -> AsyncIterator[Any]:
        raise RustPanic("rust future panicked: unknown error")
        yield

    for name in ("get_async", "head_async"):
        monkeypatch.setattr(obstore_store.obstore, name, panic)
    monkeypatch.setattr(obstore_store.obstore, "list", fall_over)
    calls: dict[str, Callable[[ObstoreStore], Awaitable[Any]]] = {
        "f, bytes 0..1: obstore panicked: index out of bounds": lambda it: it.read("f", ByteRange(0, 1)),
        "f: obstore panicked: index out of bounds": lambda it: it.head("f"),
        "d: obstore panicked: rust future panicked: unknown error": lambda it: anext(it.pages("d")),
    }
    for told, call in calls.items():
        it = ObstoreStore(MemoryStore())
        assert not it.broken
        with pytest.raises(StoreError) as caught:
            await call(it)
        hint = (
            "a bucket, an option or a variable of the environment may hold what belongs in no URL or header, such as "
            "a line break at its end, or be empty"
        )
        assert (str(caught.value), caught.value.transient, it.broken) == (f"{told} ({hint})", False, True)


@pytest.mark.parametrize("etag", ['"a\x01b"', '"a\r\nX: b"', '"ü"'], ids=ascii)
async def test_an_etag_that_is_no_header_is_not_handed_to_obstore(
    server: Any, s3: ObstoreStore, etag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield BODY

    with pytest.raises(StoreError, match="the etag that was asked for is no header"):
        await s3.read("f", ByteRange(10, 20), if_match=etag)
    with pytest.raises(StoreError, match="cannot replace one certain version"):
        await s3.write("f", parts(), size=1000, if_match=etag)
    assert (server.requests, capfd.readouterr().err) == ([], "")


async def test_a_missing_bucket_is_not_found(server: Any, s3: ObstoreStore) -> None:
    server.always = status(404, b"<Error><Code>NoSuchBucket</Code></Error>")
    with pytest.raises(ObjectNotFoundError, match="no such bucket"):
        await s3.read("f", ByteRange(0, 1))
    with pytest.raises(ObjectNotFoundError, match="no such bucket"):
        [_ async for _ in s3.list("d")]


@pytest.mark.parametrize(
    ("store", "names"),
    [
        ("S3", "access_key_id and secret_access_key"),
        ("GCS", "service_account_path"),
        ("MicrosoftAzure", "account_name and account_key"),
    ],
)
def test_failing_to_find_credentials_says_so(store: str, names: str) -> None:
    text = (
        f"Generic {store} error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - HTTP error: "
        "error sending request\n\nDebug source:\nHttpError {\n    kind: Connect,"
    )
    error = translate(exceptions.GenericError(text), "f", None)
    assert isinstance(error, StoreError)
    assert (error.message, (error.hint or "").startswith(f"give {names}")) == (
        "no credentials were found",
        True,
    )
    assert "169.254.169.254" in str(error.__cause__)
    assert not error.transient  # waiting out six timeouts would not make them appear


@pytest.mark.parametrize(
    ("debug", "message", "endpoint", "server"),
    [
        ("HttpError {\n    kind: Connect,", "it cannot be reached", "", "sts.eu-west-1.amazonaws.com"),
        (
            "inner: Status {\n    status: 403,",
            "it answered with status 403",
            "https://u:p@sts.example/",
            "sts.example",
        ),
    ],
    ids=["unreachable", "refused"],
)
def test_the_server_of_roles_is_named(
    debug: str, message: str, endpoint: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    raw = f"Generic S3 error: Error performing POST REDACTED in 1ms - failed\n\nDebug source:\n{debug}"
    error = translate(exceptions.GenericError(raw), "f", None)
    assert isinstance(error, StoreError)
    assert error.message == f"STS gave no credentials of a role: {message}"
    assert (error.hint or "").startswith(f"it was asked of {server}; see the variables AWS_ROLE_ARN")


@pytest.mark.parametrize(
    ("debug", "transient"),
    [
        ("kind: Connect, source: Os { code: 111, kind: ConnectionRefused", True),
        ("kind: Connect, source: dns error: Name or service not known", False),
        ("kind: Connect, source: invalid peer certificate: UnknownIssuer", False),
        ("kind: Request, source: hyper::Error(IncompleteMessage)", True),
        ("kind: Request, source: builder error", False),
        ("kind: Timeout, source: TimedOut", True),
        ("kind: Interrupted, source: hyper::Error(Body", True),
        ("kind: Decode, source: x", False),
    ],
)
def test_which_connection_failures_may_pass(debug: str, transient: bool) -> None:
    error = translate(exceptions.GenericError(f"m\n\nDebug source:\nHttpError {{ {debug},"), "f", None)
    assert isinstance(error, StoreError)
    assert error.transient == transient


_BUILDER = """Generic HTTP client error: builder error

Debug source:
Generic { store: "HTTP client", source: reqwest::Error { kind: Builder, source: General(
            "No CA certificates were loaded from the system",
"""


@pytest.mark.parametrize(
    ("raw", "left", "told"),
    [
        (
            "m\n\nDebug source:\nHttpError {\n    kind: Connect, Os {\n    code: 24,\n kind: TooManyOpenFiles,",
            1,
            True,
        ),
        (
            "m\n\nDebug source:\nHttpError {\n    kind: Connect, Os {\n    code: 23,\n kind: Uncategorized,",
            1,
            True,
        ),
        ("m\n\nDebug source:\nHttpError {\n    kind: Connect, Os {\n    code: 111,\n", 0, False),
        ("m\n\nDebug source:\ninner: Status {\n    status: 503,\n body: 'Os { code: 24, '", 1, False),
        (_BUILDER, 0, True),
        (_BUILDER, 1, False),
    ],
    ids=["the process", "the system", "refused", "the server", "no certificates read", "no certificates"],
)
def test_without_files_to_open_it_says_so(
    raw: str, left: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_none(*_: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    if not left:
        monkeypatch.setattr(os, "open", open_none)
    error = translate(exceptions.GenericError(raw), "f", None)
    assert isinstance(error, StoreError)
    assert ("`ulimit -n`" in (error.hint or "")) is told
    assert error.transient or not told


def test_a_panic_for_want_of_files_says_so() -> None:
    class PanicException(BaseException):
        pass

    error = translate(
        PanicException('Unable to build: Os { code: 24, kind: TooManyOpenFiles, message: "x" }'), "f", None
    )
    assert isinstance(error, StoreError)
    assert "`ulimit -n`" in str(error)
    assert not error.transient


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_interrupts_pass(kind: type[BaseException]) -> None:
    error = kind()
    assert translate(error, "f", None) is error


# -- uploads that end early ----------------------------------------------------------------------


async def test_an_upload_that_is_cancelled_leaves_no_task_that_reads_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """obstore asks for the next part in a task of its own, which read from a file that was closed by then."""
    reading, closed = asyncio.Event(), list[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = (
            b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>"
            b"</InitiateMultipartUploadResult>"
        )
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
                writer.write(b"HTTP/1.1 200 x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await reader.read()  # parts are never answered
        writer.close()

    async def parts(file: io.BytesIO) -> AsyncIterator[bytes]:
        try:
            yield file.read(8 << 20)
            reading.set()
            await asyncio.sleep(0.2)
            yield file.read(8 << 20)
        finally:
            closed.append("closed")

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        store = s3_at(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        with io.BytesIO(bytes(16 << 20)) as file:
            task = asyncio.ensure_future(upload(store, "k", parts(file), size=16 << 20))
            await reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert closed == ["closed"]
            left = [repr(it) for it in asyncio.all_tasks() - {asyncio.current_task()}]
            assert [it for it in left if "serve" not in it] == []
        await asyncio.sleep(0.4)
        gc.collect()
        assert caplog.records == []
    finally:
        listening.close()
