"""The caching proxy responds as MinIO does, with the latency and pace that are set, and logs as the relay
does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from accel.testing import Stall
from tests.support.caching_proxy import CachingProxy, parse_head
from tests.support.object_cache import DEFAULT_CACHE_BYTES, ObjectCache
from tests.support.proxy import Proxy, ProxyProcess, serve_caching
from tests.support.relay import Passage, Substitute
from tests.support.responses import Origin
from tests.support.s3 import S3Admin

DATA = bytes(range(256)) * 4
ETAG = '"abc"'
MakeProxy = Callable[..., Proxy]
# MinIO makes these anew for each response.
PER_RESPONSE = {"date", "x-amz-request-id", "x-ratelimit-limit", "x-ratelimit-remaining"}


@contextlib.asynccontextmanager
async def serving(
    url: str, *, limit: int = DEFAULT_CACHE_BYTES, **network: Any
) -> AsyncIterator[tuple[CachingProxy, str]]:
    """A caching proxy before `url`, and its own URL."""
    origin = Origin(url)
    proxy = CachingProxy(origin, ObjectCache(origin, S3Admin(url), limit=limit), **network)
    ready: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve_caching(proxy, port=0, ready=ready.set_result, stop=stop))
        try:
            yield proxy, (await ready)[0]
        finally:
            stop.set()


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


async def ask(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request on a connection of its own. Header names are given with _ for -."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(
            method, url + path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        ) as response,
    ):
        received = sorted((name.lower(), value) for name, value in response.headers.items())
        return Answer(response.status, received, await response.read())


async def stream(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


@pytest.fixture
def behind(make_proxy: MakeProxy) -> Proxy:
    """A server that answers every path with DATA, and tells what it was asked."""
    return make_proxy(None, script=lambda _: Substitute(DATA, ETAG))


async def cache_object(proxy: CachingProxy, path: str) -> None:
    await proxy.objects.read([path])
    assert proxy.objects.find(path) is not None


REQUESTS = [
    pytest.param("GET", "/{0}/x", {}, True, id="whole"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=10-19"}, True, id="range"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=1000-"}, True, id="open"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=-24"}, True, id="suffix"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=1000-2000"}, True, id="past the end"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=-2000"}, True, id="suffix past the start"),
    pytest.param("GET", "/{0}/x?x-id=GetObject", {"Range": "bytes=0-0"}, True, id="an SDK's"),
    pytest.param("GET", "/{0}/x", {"x_amz_checksum_mode": "enabled"}, True, id="checksums wanted"),
    pytest.param("GET", "/{0}/x", {"If_Match": "{1}", "Range": "bytes=0-3"}, True, id="same version"),
    pytest.param("HEAD", "/{0}/x", {}, True, id="head"),
    pytest.param("HEAD", "/{0}/x", {"Range": "bytes=10-19"}, True, id="head of a range"),
    pytest.param("GET", "/{0}/empty", {}, True, id="empty"),
    pytest.param("GET", "/{0}/dir/a%20b", {}, True, id="encoded path"),
    pytest.param("GET", "/{0}/x", {"If_Match": '"other"'}, False, id="412"),
    pytest.param("GET", "/{0}/x", {"If_None_Match": "{1}"}, False, id="304"),
    pytest.param("GET", "/{0}/x", {"If_None_Match": '"other"'}, False, id="none match"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=1024-1030"}, False, id="416"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=-0"}, False, id="empty suffix"),
    pytest.param("GET", "/{0}/x", {"Range": "bytes=0-1,5-6"}, False, id="two ranges"),
    pytest.param("GET", "/{0}/x", {"Host": "elsewhere.test"}, False, id="another host"),
    pytest.param("GET", "/{0}/absent", {}, False, id="404"),
    pytest.param("HEAD", "/{0}/absent", {}, False, id="head of 404"),
    pytest.param("GET", "/{0}?list-type=2", {}, False, id="list"),
    pytest.param("GET", "/closed/x", {}, False, id="403"),
]


@pytest.mark.parametrize(("method", "path", "headers", "from_memory"), REQUESTS)
async def test_it_responds_as_minio_does(
    minio: S3Admin,
    make_proxy: MakeProxy,
    method: str,
    path: str,
    headers: dict[str, str],
    from_memory: bool,
) -> None:
    bucket = "caching-proxy"
    minio.create_bucket(bucket, public=True) if bucket.encode() not in minio.list_buckets() else None
    for key, data in (("x", DATA), ("empty", b""), ("dir/a b", DATA[::-1])):
        minio.put(bucket, key, data)
    etag = dict((await ask(minio.url, f"/{bucket}/x", "HEAD")).headers)["etag"]
    path, headers = (
        path.format(bucket),
        {name: value.replace("{1}", etag) for name, value in headers.items()},
    )
    watch = make_proxy(minio.url)
    async with serving(watch.url) as (proxy, url):
        await proxy.objects.read([f"/{bucket}/{key}" for key in ("x", "empty", "dir/a b")])
        watch.reset()
        direct, answer = (
            await ask(minio.url, path, method, **headers),
            await ask(url, path, method, **headers),
        )
    assert watch.requests == (0 if from_memory else 1)
    assert answer.status == direct.status
    # An error's body and the list tell who asked when.
    if answer.status < 300 and "list" not in path:
        assert answer.body == direct.body
    received, expected = (
        [line for line in a.headers if line[0] not in PER_RESPONSE] for a in (answer, direct)
    )
    assert received == expected
    assert {"date", "x-amz-request-id"} <= {name for name, _ in answer.headers}


async def test_a_listing_is_minios_until_something_is_written(minio: S3Admin, make_proxy: MakeProxy) -> None:
    bucket = "caching-proxy-listed"
    minio.create_bucket(bucket, public=True) if bucket.encode() not in minio.list_buckets() else None
    for key in ("a", "b", "c"):
        minio.put(bucket, key, DATA)
    watch = make_proxy(minio.url)
    path = f"/{bucket}?list-type=2&max-keys=2&start-after=a"
    async with serving(watch.url) as (proxy, url):
        through = S3Admin(url)
        changes: list[Callable[[], object]] = [
            lambda: None,
            lambda: through.put(bucket, "b1", DATA),
            lambda: through.delete(bucket, "b"),
            lambda: (minio.put(bucket, "b", DATA), proxy.invalidate()),
        ]
        for change in changes:
            await asyncio.to_thread(change)
            watch.reset()
            direct = await ask(minio.url, path)
            answers = [await ask(url, path) for _ in range(3)]
            assert [answer.body for answer in answers] == [direct.body] * 3
            assert [answer.status for answer in answers] == [200] * 3
            for answer in answers:
                received, expected = (
                    [line for line in a.headers if line[0] not in PER_RESPONSE] for a in (answer, direct)
                )
                assert received == expected
            assert watch.requests == 1
        assert (await ask(url, f"/{bucket}?list-type=2")).body != direct.body
        assert [p.status for p in proxy.passages if p.method == "GET"] == [200] * 13


async def test_a_listing_that_was_requested_before_a_write_is_not_cached(behind: Proxy) -> None:
    async with serving(behind.url) as (proxy, _):
        for writes, cached in ((proxy.listings.writes, True), (proxy.listings.writes - 1, False)):
            proxy.listings.store("/b?list-type=2", {}, b"old", writes=writes)
            assert (proxy.listings.find("/b?list-type=2") is not None) is cached
            proxy.invalidate("/b/k")
            assert proxy.listings.find("/b?list-type=2") is None


async def test_an_object_is_relayed_until_it_has_been_read_whole(behind: Proxy) -> None:
    async with serving(behind.url) as (proxy, url):
        assert (await ask(url, "/b/k", Range="bytes=0-9")).body == DATA[:10]
        async with asyncio.timeout(5):
            while proxy.objects.find("/b/k") is None:
                await asyncio.sleep(0.001)
        assert (await ask(url, "/b/k", Range="bytes=10-19")).body == DATA[10:20]
        assert (await ask(url, "/b/k", "HEAD")).status == 200
        assert [(p.method, p.range) for p in behind.passages] == [("GET", "bytes=0-9"), ("GET", None)]
        assert [(p.status, p.sent) for p in proxy.passages] == [(206, 10), (206, 10), (200, 0)]


async def test_what_does_not_fit_is_relayed_each_time(behind: Proxy) -> None:
    async with serving(behind.url, limit=1023) as (_, url):
        for _ in range(3):
            assert (await ask(url, "/b/k", Range="bytes=0-9")).body == DATA[:10]
            await asyncio.sleep(0.05)
        # It was looked at once whether it fits.
        assert [p.range for p in behind.passages].count("bytes=0-9") == 3
        assert behind.requests == 4


async def test_what_is_written_through_it_is_seen(minio: S3Admin, bucket: str) -> None:
    async with serving(minio.url) as (proxy, url):
        store = S3Store(bucket, config=minio.storage_options(url), client_options={"allow_http": True})  # type: ignore[arg-type]
        data = b""
        for data in (b"old", b"newer", bytes(5_000_000)):
            await obstore.put_async(store, "dir/a b", data)
            for _ in range(2):
                assert bytes(await obstore.get_range_async(store, "dir/a b", start=1, end=3)) == data[1:3]
                await proxy.objects.read([f"/{bucket}/dir/a b"])
                assert (await obstore.head_async(store, "dir/a b"))["size"] == len(data)
        cached = proxy.objects.find(f"/{bucket}/dir/a b")
        assert cached is not None
        assert bytes(cached.data) == data
        # By the one request that deletes many, of the bucket.
        await obstore.delete_async(store, ["dir/a b"])
        with pytest.raises(FileNotFoundError):
            await obstore.get_async(store, "dir/a b")


async def test_the_log_is_the_relays(behind: Proxy, make_proxy: MakeProxy) -> None:
    relay = make_proxy(behind.url)
    async with serving(behind.url) as (proxy, url):
        await cache_object(proxy, "/b/k")
        for target in (relay.url, url):
            await ask(target, "/b/k", Range="bytes=0-9", Authorization="secret", Host="127.0.0.1:1")
            await ask(target, "/b/k", Range="bytes=-9", If_Match=ETAG, Authorization="secret")
            await ask(target, "/b/k", Range="bytes=5000-")
            await ask(target, "/b/k", "HEAD")
        lasting = [
            [{**dataclasses.asdict(p), "begin": 0, "first_byte": 0, "end": 0} for p in passages]
            for passages in (relay.passages, proxy.passages)
        ]
        for each in lasting:
            for passage in each:
                passage["headers"].pop("host")
        assert lasting[0] == lasting[1]
        assert [p["status"] for p in lasting[0]] == [206, 206, 416, 200]
        for p in proxy.passages:
            assert p.first_byte is not None
            assert p.end is not None
            assert p.begin <= p.first_byte <= p.end
        proxy.reset()
        assert proxy.passages == []


@pytest.mark.parametrize("path", ["/b/k", "/b/k?relayed"], ids=["cached", "relayed"])
async def test_latency_and_pace(make_proxy: MakeProxy, path: str) -> None:
    data = bytes(1_000_000)
    behind = make_proxy(None, script=lambda _: Substitute(data, ETAG))
    async with serving(behind.url, first_byte=0.05, bandwidth=10e6) as (proxy, url):
        await cache_object(proxy, "/b/k")
        began, arrived, done = time.monotonic(), [], 0
        async with aiohttp.ClientSession() as session, session.get(url + path) as response:
            first = time.monotonic() - began
            async for chunk in response.content.iter_any():
                done += len(chunk)
                arrived.append((done, time.monotonic() - began))
        [passage] = proxy.passages
        assert passage.first_byte is not None
        assert passage.end is not None
        assert passage.first_byte - passage.begin >= 0.0485
        # No byte before its time, give or take a millisecond. No upper bound: the machine may be busy.
        assert first >= 0.0485
        assert done == passage.sent == len(data)
        assert [at for at in arrived if at[1] < 0.0485 + at[0] / 10e6 - 0.001] == []
        assert passage.end - passage.first_byte >= 0.0985
        proxy.first_byte, proxy.bandwidth = 0.0, None
        assert (await ask(url, path)).body == data


async def test_many_requests_at_once_wait_at_the_same_time(behind: Proxy) -> None:
    async with serving(behind.url, first_byte=0.1) as (proxy, url):
        await cache_object(proxy, "/b/k")
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(url, "/b/k", Range=f"bytes={n}-{n}")) for n in range(50)]
        assert time.monotonic() - began < 2.5
        assert [task.result().body for task in asked] == [DATA[n : n + 1] for n in range(50)]


async def pipelined(url: str) -> list[bytes]:
    """The bodies of the answers to a hundred requests for two bytes each, sent without waiting for any."""
    reader, writer = await stream(url)
    host = urlsplit(url).netloc
    asked = [
        f"GET /b/k{'?relayed' if n % 3 == 1 else ''} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={n}-{n + 1}\r\n"
        + ("Connection: close\r\n\r\n" if n == 99 else "\r\n")
        for n in range(100)
    ]
    raw = "".join(asked).encode()
    # Cut anywhere, also within a head.
    for start in range(0, len(raw), 1001):
        writer.write(raw[start : start + 1001])
        await asyncio.sleep(0)
    received = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return [
        part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 206 Partial Content\r\n")[1:]
    ]


async def test_requests_that_come_at_once_are_answered_in_their_order(behind: Proxy) -> None:
    async with serving(behind.url, first_byte=0.001) as (proxy, url):
        await cache_object(proxy, "/b/k")
        assert await pipelined(url) == [DATA[n : n + 2] for n in range(100)]
        assert [p.number for p in proxy.passages] == list(range(100))


async def test_also_in_the_process_on_its_own_loop(behind: Proxy) -> None:
    with ProxyProcess(behind.url, cache_as=S3Admin(), first_byte=0.001) as proxy:
        await asyncio.to_thread(proxy.read, ["/b/k"])
        assert await pipelined(proxy.url) == [DATA[n : n + 2] for n in range(100)]
        assert behind.requests == 34


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="no request"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", 400, id="old version"),
        pytest.param(b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, id="unknown length"),
        pytest.param(b"PUT /b/k HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413, id="too large"),
        pytest.param(b"GET /" + b"x" * 70_000, 431, id="endless head"),
    ],
)
async def test_what_cannot_be_understood_is_refused(behind: Proxy, raw: bytes, status: int) -> None:
    async with serving(behind.url) as (proxy, url):
        reader, writer = await stream(url)
        writer.write(raw)
        received = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert received.startswith(b"HTTP/1.1 %d " % status)
        assert received.endswith(b"\r\nConnection: close\r\n\r\n")
        assert proxy.passages == []


async def test_a_body_may_wait_to_be_asked_for(minio: S3Admin, bucket: str) -> None:
    async with serving(minio.url) as (proxy, url):
        reader, writer = await stream(url)
        _, signed = minio.signed_get(f"/{bucket}/x")
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        writer.write(
            f"PUT /{bucket}/x HTTP/1.1\r\n{lines}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        # Signed for another request: that it is refused by MinIO shows that it got there, with its body.
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 403 ")
        writer.close()
        [passage] = proxy.passages
        assert (passage.method, passage.status) == ("PUT", 403)


async def test_an_origin_that_is_gone_is_a_502() -> None:
    async with serving("http://127.0.0.1:1") as (proxy, url):
        assert (await ask(url, "/b/k")).status == 502
        assert proxy.passages[0].status == 502


@pytest.mark.parametrize("path", ["/b/k", "/b/k?relayed"], ids=["cached", "relayed"])
async def test_a_client_that_does_not_read_is_not_sent_to(make_proxy: MakeProxy, path: str) -> None:
    size = 64_000_000
    behind = make_proxy(None, script=lambda _: Substitute(bytes(size), ETAG))
    async with serving(behind.url) as (proxy, url):
        await cache_object(proxy, "/b/k")
        reader, writer = await stream(url)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        [passage] = proxy.passages
        waiting = passage.sent
        assert 0 < waiting < 32_000_000
        await asyncio.sleep(0.1)
        assert (passage.sent, passage.end) == (waiting, None)
        assert len(await asyncio.wait_for(reader.readexactly(size), 20)) == size
        assert passage.sent == size
        writer.close()


@pytest.mark.parametrize("slow", ["first byte", "body", "origin"])
async def test_a_client_that_leaves_ends_its_request(behind: Proxy, slow: str) -> None:
    network = {"first byte": {"first_byte": 30.0}, "body": {"bandwidth": 1.0}, "origin": {}}[slow]
    async with serving(behind.url, **network) as (proxy, url):
        await cache_object(proxy, "/b/k")
        behind.reset(lambda _: Stall(30.0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(url, "/b/k?relayed" if slow == "origin" else "/b/k")
        async with asyncio.timeout(5):
            while (end := proxy.passages[0].end) is None or proxy.connections:
                await asyncio.sleep(0.01)
        passage = proxy.passages[0]
        assert end - passage.begin < 5
        assert (passage.status, passage.sent) == (None if slow == "origin" else 200, 0)


async def test_it_ends_with_requests_under_way(behind: Proxy) -> None:
    async with serving(behind.url, first_byte=30.0) as (proxy, url):
        await cache_object(proxy, "/b/k")
        tasks = [asyncio.ensure_future(ask(url, path)) for path in ("/b/k", "/b/k?relayed")]
        async with asyncio.timeout(5):
            while len(proxy.passages) < 2:
                await asyncio.sleep(0.01)
    for task in tasks:
        with pytest.raises(aiohttp.ClientError):
            await task


def test_the_process_reads_caches_invalidates_and_ends(minio: S3Admin, bucket: str) -> None:
    public = f"{bucket}-public"
    minio.create_bucket(public, public=True)
    minio.put(public, "x", b"old")
    with ProxyProcess(minio.url, cache_as=minio) as proxy:
        path = f"/{public}/x"

        def get() -> bytes:
            with urllib.request.urlopen(proxy.url + path, timeout=10) as answer:
                content: bytes = answer.read()
                return content

        proxy.read([path, f"/{public}/absent"])
        assert proxy.passages == []
        minio.put(public, "x", b"new")
        # A write past the proxy is not noticed.
        assert get() == b"old"
        assert proxy.by_path() == {("GET", path): (1, 3)}
        proxy.reset(invalidate=True, first_byte=0.02)
        assert get() == b"new"
        [passage] = proxy.passages
        assert passage.first_byte is not None
        assert passage.first_byte - passage.begin >= 0.0185
        assert isinstance(passage, Passage)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(proxy.url + "/.proxy", data=b"{", timeout=10)
        with urllib.request.urlopen(proxy.url + "/.proxy", timeout=10) as answer:
            assert [each["path"] for each in json.load(answer)] == [path]
        process = proxy._process
    assert process is not None
    assert process.returncode == 0
    with pytest.raises(OSError):
        get()


def _by_obstore(options: dict[str, str], bucket: str) -> int:
    store = S3Store(bucket, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    whole = obstore.get(store, "x.parquet").bytes()
    return pq.read_table(pa.BufferReader(bytes(whole))).num_rows


def _by_accel(options: dict[str, str], bucket: str) -> int:
    import accel

    return accel.scan(f"s3://{bucket}/x.parquet", storage_options=options, cache=None).to_table().num_rows


def _by_pyarrow(options: dict[str, str], bucket: str) -> int:
    from pyarrow.fs import S3FileSystem

    system = S3FileSystem(
        endpoint_override=urlsplit(options["endpoint"]).netloc,
        scheme="http",
        access_key=options["access_key_id"],
        secret_key=options["secret_access_key"],
        region=options["region"],
    )
    return pq.read_table(f"{bucket}/x.parquet", filesystem=system).num_rows


def _by_polars(options: dict[str, str], bucket: str) -> int:
    polars = pytest.importorskip("polars")
    named = {f"aws_{name}": value for name, value in options.items()}
    return len(polars.scan_parquet(f"s3://{bucket}/x.parquet", storage_options=named).collect())


def _by_datafusion(options: dict[str, str], bucket: str) -> int:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    store = datafusion.object_store.AmazonS3(
        bucket_name=bucket,
        region=options["region"],
        endpoint=options["endpoint"],
        access_key_id=options["access_key_id"],
        secret_access_key=options["secret_access_key"],
        allow_http=True,
    )
    context.register_object_store(f"s3://{bucket}/", store, None)
    context.register_parquet("x", f"s3://{bucket}/x.parquet")
    return int(context.sql("select count(a) from x").to_arrow_table().column(0)[0].as_py())


@pytest.mark.parametrize(
    "read",
    [_by_obstore, _by_accel, _by_pyarrow, _by_polars, _by_datafusion],
    ids=["obstore", "accel", "pyarrow", "polars", "datafusion"],
)
def test_clients_read_through_it(
    minio: S3Admin, bucket: str, read: Callable[[dict[str, str], str], int]
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(range(50_000))}), sink)
    minio.put(bucket, "x.parquet", sink.getvalue())
    with ProxyProcess(minio.url, cache_as=minio, first_byte=0.005, bandwidth=90e6) as proxy:
        proxy.read([f"/{bucket}/x.parquet"])
        assert read(minio.storage_options(proxy.url), bucket) == 50_000
        assert proxy.bytes > 0
        assert {passage.status for passage in proxy.passages} <= {200, 206}


def test_a_head_is_taken_apart() -> None:
    head = parse_head(
        b"PUT /b/k?x=1 HTTP/1.1\r\nHost: a:1\r\nX-Twice: 1\r\nx-twice:\t2 \r\nContent-Length: 12\r\nConnection: Close"
    )
    assert (head.method, head.target, head.body_size, head.closes) == ("PUT", "/b/k?x=1", 12, True)
    assert head.lines == (
        ("Host", "a:1"),
        ("X-Twice", "1"),
        ("x-twice", "2"),
        ("Content-Length", "12"),
        ("Connection", "Close"),
    )
    assert head.headers == {"host": "a:1", "x-twice": "2", "content-length": "12", "connection": "Close"}


def test_a_request_without_headers_has_no_body_and_leaves_the_connection() -> None:
    head = parse_head(b"GET / HTTP/1.1")
    assert (head.body_size, head.closes, head.headers) == (0, False, {})


def test_a_length_that_is_not_declared_is_unknown() -> None:
    assert parse_head(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked").body_size is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /", id="no version"),
        pytest.param(b"GET / HTTP/1.0", id="old version"),
        pytest.param(b"GET /a b HTTP/1.1", id="space in target"),
        pytest.param(b"GET / HTTP/1.1\r\nHost", id="no colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : a", id="space before colon"),
        pytest.param(b"GET / HTTP/1.1\r\n: a", id="no name"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: -1", id="negative length"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: 1e9", id="odd length"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: \xb2", id="a digit, but not of these"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 5000, id="endless length"),
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"unpack|not "):
        parse_head(raw)
