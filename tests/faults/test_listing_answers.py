"""Servers that answer a listing with something else, refuse a part of it, or fail in the middle: all keys, or
an error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from accel.errors import StoreError
from accel.metrics import Metrics
from accel.options import Options, Transport
from accel.store import listing
from accel.store.client import Client
from accel.store.fetch import Retry
from accel.store.s3_store import adapt
from tests.support.object_server import ObjectServer, Reply, Request, s3_at

PAGE = 1000
KEYS = [f"d/{number:05}" for number in range(2500)]


@dataclass
class ListingServer(ObjectServer):
    """Lists `keys` as S3, Google (`list-type=2`) and Azure (`comp=list`) do. `page` edits the answer to a
    listing."""

    keys: list[str] = field(default_factory=lambda: list(KEYS))
    size: int = PAGE
    asked: list[tuple[str | None, int]] = field(default_factory=list)
    """Of each listing request, what it begins after, and the place of its first key."""
    page: Callable[[Reply, int, dict[str, str]], None] = lambda reply, at, query: None

    def honest(self, request: Request) -> Reply:
        query = dict(parse_qsl(urlsplit(request.target).query))
        azure = query.get("comp") == "list"
        if not azure and query.get("list-type") != "2":
            return super().honest(request)
        token = query.get("marker" if azure else "continuation-token")
        after = query.get("start-after")
        if token is not None:
            at = int(token.removeprefix("t"))
        else:
            at = sum(key <= after for key in self.keys) if after is not None else 0
        self.asked.append((after, at))
        keys, more = self.keys[at : at + self.size], at + self.size < len(self.keys)
        reply = Reply(
            200, {}, (azure_page if azure else s3_page)(keys, f"t{at + self.size}" if more else None)
        )
        self.page(reply, at, query)
        return reply


def s3_page(keys: list[str], token: str | None, *, truncated: bool | None = None) -> bytes:
    follows = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    more = token is not None if truncated is None else truncated
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-02T10:00:00.000Z</LastModified>"
        f"<ETag>&quot;{key}&quot;</ETag><Size>7</Size></Contents>"
        for key in keys
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{follows}{entries}</ListBucketResult>"
    ).encode()


def azure_page(keys: list[str], token: str | None) -> bytes:
    entries = "".join(
        f"<Blob><Name>{key}</Name><Properties><Last-Modified>Mon, 02 Nov 2026 10:00:00 GMT</Last-Modified>"
        "<Content-Length>7</Content-Length><Content-Type>a/b</Content-Type><Etag>0x8</Etag></Properties></Blob>"
        for key in keys
    )
    return f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker>{token or ''}</NextMarker></EnumerationResults>".encode()


@pytest.fixture
async def server() -> AsyncIterator[ListingServer]:
    it = ListingServer()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(it.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield it
    listening.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def s3(url: str, transport: Transport = Transport.AUTO) -> Any:
    return adapt(s3_at(url), Options(transport=transport))


def by_obstore(url: str) -> Any:
    return s3(url, Transport.OBSTORE)


def google(url: str) -> Any:
    config: Any = {"base_url": url, "skip_signature": "true"}
    return adapt(GCSStore("b", config=config, client_options={"allow_http": True}), Options())


def azure(url: str) -> Any:
    config: Any = {"account_name": "a", "account_key": "YQ==", "endpoint": url}
    return adapt(AzureStore("b", config=config, client_options={"allow_http": True}), Options())


ALL = [s3, by_obstore, google, azure]


def client_of(store: Any, *, attempts: int = 4) -> Client:
    async def sleep(seconds: float) -> None:
        pass

    retry = Retry(max_attempts=attempts, backoff_base=0.1, backoff_max=1.0, sleep=sleep)
    return Client(store, root="s3://b", token="t", options=Options(), retry=retry)


async def listed(client: Client, metrics: Metrics | None = None) -> list[str]:
    return [entry.path for entry in await client.list_below("d", metrics=metrics)]


ERROR = b"<Error><Code>InternalError</Code><Message>Please try again.</Message></Error>"
HTML = b"<!DOCTYPE html><html><body><p>Busy</p></body></html>"
NO_LISTINGS = {
    "an error": ERROR,
    "a page for humans": HTML,
    "a page for humans, as XML": b"<html><body>Busy</body></html>",
    "another answer": b"<ListAllMyBucketsResult></ListAllMyBucketsResult>",
    "nothing": b"",
    "cut short": s3_page(KEYS[1000:2000], "t2000")[:5000],
}


@pytest.mark.parametrize("store", ALL, ids=lambda store: store.__name__)
@pytest.mark.parametrize("body", NO_LISTINGS.values(), ids=NO_LISTINGS)
@pytest.mark.parametrize("place", [0, 1000, 2000])
async def test_a_page_that_is_no_listing_is_asked_for_again(
    server: ListingServer, store: Any, body: bytes, place: int
) -> None:
    """First page by page, then by the cuts that were learned."""
    client = client_of(store(server.url))
    for _ in range(2):
        bad = 1

        def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
            nonlocal bad
            if at == place and bad:
                bad -= 1
                reply.body = body

        server.page = edit
        assert await listed(client) == KEYS
        assert bad == 0


async def test_what_stays_no_listing_names_the_code(server: ListingServer) -> None:
    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if at == 1000:
            reply.body = ERROR

    server.page = edit
    with pytest.raises(StoreError) as caught:
        await listed(client_of(s3(server.url)))
    assert str(caught.value) == (
        "s3://b/d: the store answered a listing with an error [InternalError], 4 times "
        "(`options.max_attempts` says how often to try)"
    )
    assert server.asked == [(None, 0), *[(None, 1000)] * 4]
    server.page = lambda reply, at, query: setattr(reply, "body", HTML)
    with pytest.raises(
        StoreError, match=r"^s3://b/d: the store answered a listing with something else, 4 times"
    ):
        await listed(client_of(s3(server.url)))


async def test_a_listing_ends_where_it_says_so(server: ListingServer) -> None:
    """Even beside a token, and without the question whether that was all."""

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if at + PAGE >= len(server.keys):
            reply.body = s3_page(server.keys[at:], "t0", truncated=False)

    server.page = edit
    for count in (0, 7, 1000, 2000, 2500):
        server.keys, server.asked = KEYS[:count], []
        assert await listed(client_of(s3(server.url))) == KEYS[:count]
        assert server.asked == [(None, at) for at in range(0, max(count, 1), PAGE)]


@pytest.mark.parametrize("fresh", [False, True], ids=["the same token", "ever new tokens"])
async def test_empty_pages_are_not_followed_without_an_end(
    server: ListingServer, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    monkeypatch.setattr(listing, "MOST_EMPTY", 20)

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        reply.body = s3_page([], f"t{len(server.asked) if fresh else 5}")

    server.page = edit
    with pytest.raises(StoreError, match="the store sends empty pages without an end"):
        await listed(client_of(s3(server.url)))
    assert len(server.asked) == (20 if fresh else 2)


async def test_a_few_empty_pages_are_followed(server: ListingServer) -> None:
    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if query.get("continuation-token") == "t1000":
            reply.body = s3_page([], "t01000")

    server.page = edit
    assert await listed(client_of(s3(server.url))) == KEYS
    assert server.asked == [(None, 0), (None, 1000), (None, 1000), (None, 2000)]


async def test_more_without_a_token_is_listed_from_the_last_key(server: ListingServer) -> None:
    """So do servers that know only the tokens of version 1, but `start-after`."""

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        reply.body = s3_page(server.keys[at : at + 700], None, truncated=at + 700 < len(server.keys))

    server.page = edit
    assert await listed(client_of(s3(server.url))) == KEYS
    assert server.asked == [(None, 0), *((KEYS[at - 1], at) for at in (700, 1400, 2100))]


@pytest.mark.parametrize("status", [400, 501])
@pytest.mark.parametrize("store", [s3, by_obstore], ids=lambda store: store.__name__)
async def test_a_store_that_refuses_to_list_from_a_key_is_noticed_once(
    server: ListingServer, store: Any, status: int
) -> None:
    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if "start-after" in query:
            reply.status, reply.body = status, b"<Error><Code>NotImplemented</Code></Error>"

    server.page = edit
    client = client_of(store(server.url))
    for _ in range(2):
        assert await listed(client) == KEYS
    for _ in range(2):
        server.asked = []
        assert await listed(client) == KEYS
        if store is s3:  # obstore does not tell whether a listing has ended, so that it is asked for
            assert server.asked == [(None, 0), (None, 1000), (None, 2000)]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(503, b"<Error><Code>SlowDown</Code></Error>", id="503"),
        pytest.param(400, b"<Error><Code>RequestTimeout</Code></Error>", id="400 RequestTimeout"),
        pytest.param(200, ERROR, id="200 with an error"),
    ],
)
async def test_a_failure_in_the_middle_goes_on_from_that_page(
    server: ListingServer, status: int, body: bytes
) -> None:
    server.keys = [f"d/{number:05}" for number in range(400)]
    server.size, bad = 10, {100, 200, 390}

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if at in bad:
            bad.discard(at)
            reply.status, reply.body = status, body

    server.page = edit
    metrics = Metrics()
    assert await listed(client_of(s3(server.url), attempts=2), metrics) == server.keys
    places = [at for at in range(0, 400, 10) for _ in range(2 if at in (100, 200, 390) else 1)]
    assert server.asked == [(None, at) for at in places]
    assert (metrics.requests, metrics.retries) == (43, 3)


@pytest.mark.parametrize("store", [by_obstore, google, azure], ids=lambda store: store.__name__)
async def test_failures_in_the_middle_of_listings_of_obstore(server: ListingServer, store: Any) -> None:
    """They go on from the last key, or from the page that failed, where pages fail again and again."""
    server.keys = [f"d/{number:05}" for number in range(8000)]
    failures = {3000: 1, 5000: 1, 6000: 1}

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        if failures.get(at):
            failures[at] -= 1
            reply.status, reply.body = 503, b"<Error><Code>SlowDown</Code></Error>"

    server.page = edit
    assert await listed(client_of(store(server.url), attempts=2)) == server.keys
    assert len(server.asked) <= 8 + 3 + 1 + (4 if store is azure else 0)


async def test_an_error_names_the_code_of_the_server(server: ListingServer) -> None:
    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        reply.status, reply.body = 503, b"<Error><Code>SlowDown</Code></Error>"

    server.page = edit
    for store in ALL:
        with pytest.raises(StoreError, match=r"status 503 \[SlowDown\], 2 times"):
            await listed(client_of(store(server.url), attempts=2))


async def test_answers_in_chunks_are_read(server: ListingServer) -> None:
    """As S3 sends them."""

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        body, chunks = reply.body, b""
        for start in range(0, len(body), 7000):
            part = body[start : start + 7000]
            chunks += b"%x\r\n%s\r\n" % (len(part), part)
        reply.headers = {"Content-Length": "", "Transfer-Encoding": "chunked"}
        reply.body = chunks + b"0\r\n\r\n"

    server.page = edit
    assert await listed(client_of(s3(server.url))) == KEYS
    assert (server.asked, server.connections) == ([(None, 0), (None, 1000), (None, 2000)], 1)


async def test_a_body_that_breaks_off_is_asked_for_again(server: ListingServer) -> None:
    cuts = iter([100, 3000])

    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        reply.cut = next(cuts, None) if at == 1000 else None

    server.page = edit
    assert await listed(client_of(s3(server.url))) == KEYS
    assert server.asked == [(None, 0), *[(None, 1000)] * 3, (None, 2000)]


@pytest.mark.parametrize("key", ["d/a//b", "d/../b", "d/a\x7fb"])
async def test_a_key_that_obstore_would_not_read_is_named(server: ListingServer, key: str) -> None:
    server.keys = [key]
    with pytest.raises(StoreError, match="a listed key holds .*rename or delete that object"):
        await listed(client_of(s3(server.url)))


async def test_a_refused_listing_is_told_as_obstore_tells_it(server: ListingServer) -> None:
    def edit(reply: Reply, at: int, query: dict[str, str]) -> None:
        reply.status, reply.body = 403, b"<Error><Code>AccessDenied</Code></Error>"

    server.page = edit
    with pytest.raises(StoreError) as caught:
        await listed(client_of(s3(server.url)))
    assert str(caught.value).startswith(
        "s3://b/d: the store answered with status 403 [AccessDenied] (check the cred"
    )


@pytest.mark.parametrize("kind", ["plain", "a coroutine"])
async def test_the_credentials_of_a_provider_sign_listings(server: ListingServer, kind: str) -> None:
    calls = []

    def plain() -> Any:
        calls.append(1)
        ends = datetime.now(UTC) + timedelta(hours=1)
        return {"access_key_id": "OTHER", "secret_access_key": "S", "token": "TOKEN", "expires_at": ends}

    async def waiting() -> Any:
        return plain()

    store = S3Store(
        "b",
        endpoint=server.url,
        region="eu-west-3",
        client_options={"allow_http": True},
        credential_provider=plain if kind == "plain" else waiting,
    )
    server.page = lambda reply, at, query: setattr(reply, "body", ERROR if at == bad.pop() else reply.body)
    bad = [-1] * 8 + [1000, -1]
    client = client_of(adapt(store, Options()))
    assert await listed(client) == KEYS
    assert len(server.asked) == 4
    for request in server.requests:
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=OTHER/\d{8}/eu-west-3/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}",
            request.headers["authorization"],
        )
        assert found is not None
        assert request.headers["x-amz-security-token"] == "TOKEN"
    assert len(calls) <= 3  # one of accel's, and those of obstore that show the server


async def test_where_a_provider_fails_obstore_says_so(server: ListingServer) -> None:
    def provider() -> Any:
        raise ValueError("no network")

    store = S3Store(
        "b", endpoint=server.url, client_options={"allow_http": True}, credential_provider=provider
    )
    with pytest.raises(StoreError, match="no network"):
        await listed(client_of(adapt(store, Options())))
    assert server.asked == []
