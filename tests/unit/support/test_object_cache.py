"""Which objects are cached, how they are served, and which requests only the origin may answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from accel.testing import CutBody, Status
from tests.support.object_cache import CachedObject, ObjectCache, is_listing, object_path
from tests.support.proxy import Proxy
from tests.support.relay import Passage, RelayFault, Substitute
from tests.support.responses import Origin
from tests.support.s3 import S3Admin

DATA = bytes(range(100))
ETAG = '"abc"'
CACHED = CachedObject(memoryview(DATA), ETAG, b"ETag: %s\r\n" % ETAG.encode())


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/b/k", "/b/k"),
        ("/b/dir/a%20b%2Fc=1", "/b/dir/a b/c=1"),
        ("/b/k?x-id=GetObject", "/b/k"),
        ("/b/k?versionId=1", None),
        ("/b/k?", None),
        ("/b", None),
        ("/b/", None),
        ("/b?list-type=2", None),
        ("/b/?list-type=2&prefix=a/b", None),
        ("/", None),
        ("http://elsewhere.test/b/k", None),
    ],
)
def test_which_requests_name_an_object(target: str, path: str | None) -> None:
    assert object_path(target) == path


@pytest.mark.parametrize(
    ("target", "listing"),
    [
        ("/b?list-type=2", True),
        ("/b/?prefix=a%2F&list-type=2&start-after=x", True),
        ("/b?list-type=22", False),
        ("/b?prefix=list-type=2", False),
        ("/b/k?list-type=2", False),
        ("/b", False),
    ],
)
def test_which_requests_ask_for_a_listing(target: str, listing: bool) -> None:
    assert is_listing(target) is listing


@pytest.mark.parametrize(
    ("headers", "status", "start", "end"),
    [
        pytest.param({}, 200, 0, 100, id="whole"),
        pytest.param({"range": "bytes=10-19"}, 206, 10, 20, id="range"),
        pytest.param({"range": "bytes=99-99"}, 206, 99, 100, id="last byte"),
        pytest.param({"range": "bytes=90-"}, 206, 90, 100, id="open"),
        pytest.param({"range": "bytes=-7"}, 206, 93, 100, id="suffix"),
        pytest.param({"range": "bytes=90-1000"}, 206, 90, 100, id="past the end"),
        pytest.param({"range": "bytes=-1000"}, 206, 0, 100, id="suffix past the start"),
        pytest.param({"if-match": ETAG, "range": "bytes=0-0"}, 206, 0, 1, id="same version"),
    ],
)
def test_plain_successes_are_answered(headers: dict[str, str], status: int, start: int, end: int) -> None:
    answer = CACHED.respond(headers)
    assert answer is not None
    assert (answer[0], bytes(answer[2])) == (status, DATA[start:end])
    first, *lines = answer[1].decode().split("\r\n")
    where = [f"Content-Range: bytes {start}-{end - 1}/100"] if status == 206 else []
    assert first == ("HTTP/1.1 206 Partial Content" if status == 206 else "HTTP/1.1 200 OK")
    assert lines[:-3] == [f"Content-Length: {end - start}", *where, f"ETag: {ETAG}"]
    assert lines[-3].startswith("Date: ")
    assert lines[-2:] == ["", ""]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"range": "bytes=100-"}, id="outside"),
        pytest.param({"range": "bytes=-0"}, id="empty suffix"),
        pytest.param({"range": "bytes=5-2"}, id="turned round"),
        pytest.param({"range": "bytes=-"}, id="no range"),
        pytest.param({"range": "bytes=0-1,5-6"}, id="several"),
        pytest.param({"range": "rows=0-1"}, id="another unit"),
        pytest.param({"range": "bytes=0-" + "9" * 30}, id="endless number"),
        pytest.param({"if-match": '"other"'}, id="other version"),
        pytest.param({"if-match": f"W/{ETAG}"}, id="weak"),
        pytest.param({"if-none-match": '"other"'}, id="if none match"),
        pytest.param({"if-modified-since": "Sat, 21 Nov 2026 10:14:33 GMT"}, id="if modified"),
        pytest.param({"origin": "http://elsewhere.test"}, id="across sites"),
    ],
)
def test_everything_else_is_the_origins_to_answer(headers: dict[str, str]) -> None:
    assert CACHED.respond(headers) is None


def test_an_empty_object_has_no_ranges() -> None:
    empty = CachedObject(memoryview(b""), ETAG, b"")
    assert empty.respond({"range": "bytes=0-"}) is None
    assert empty.respond({}) is not None


@pytest.fixture
def replies() -> dict[str, RelayFault]:
    """The origin's answer for each path; by default DATA."""
    return {}


@pytest.fixture
def behind(make_proxy: Callable[..., Proxy], replies: dict[str, RelayFault]) -> Proxy:
    def script(passage: Passage) -> RelayFault:
        return replies.get(passage.path, Substitute(DATA, ETAG))

    return make_proxy(None, script=script)


@pytest.fixture
async def cache(behind: Proxy) -> AsyncIterator[ObjectCache]:
    origin = Origin(behind.url)
    await origin.open()
    cache = ObjectCache(origin, S3Admin(behind.url), limit=250)
    yield cache
    await cache.close()
    await origin.close()


async def test_an_object_is_read_once(cache: ObjectCache, behind: Proxy) -> None:
    assert cache.find("/b/a b") is None
    await asyncio.gather(cache.read(["/b/a b"]), cache.read(["/b/a b", "/b/c"]))
    await cache.read(["/b/a b", "/b/c"])
    found = cache.find("/b/a b")
    assert found is not None
    assert (bytes(found.data), found.etag) == (DATA, ETAG)
    assert [passage.path for passage in behind.passages] == ["/b/a%20b", "/b/c"]
    assert behind.passages[0].range is None


async def test_what_does_not_fit_is_requested_once_and_not_cached(cache: ObjectCache, behind: Proxy) -> None:
    await cache.read(["/b/1", "/b/2", "/b/3"])
    await cache.read(["/b/3"])
    assert [cache.find(f"/b/{n}") is None for n in (1, 2, 3)] == [False, False, True]
    assert behind.requests == 3
    cache.evict("/b/1")
    cache.evict("/b/3")
    await cache.read(["/b/3"])
    assert cache.find("/b/3") is not None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Status(404), id="absent"),
        pytest.param(Substitute(DATA), id="no etag"),
        pytest.param(CutBody(10), id="cut"),
    ],
)
async def test_an_incomplete_object_is_not_cached(
    cache: ObjectCache, replies: dict[str, RelayFault], answer: RelayFault
) -> None:
    replies["/b/k"] = answer
    await cache.read(["/b/k"])
    assert cache.find("/b/k") is None
    # It takes no room either.
    await cache.read(["/b/1", "/b/2"])
    assert cache.find("/b/2") is not None


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/b/x", ["/c/x"]),
        ("/b", ["/c/x"]),
        ("/b/", ["/c/x"]),
        ("", []),
        ("/b/x/y/z", ["/b/x", "/b/x/y", "/c/x"]),
    ],
    ids=["an object, and what is under it", "a bucket", "a bucket with its slash", "everything", "another"],
)
async def test_eviction(behind: Proxy, path: str, left: list[str]) -> None:
    origin = Origin(behind.url)
    await origin.open()
    cache = ObjectCache(origin, S3Admin(behind.url))
    names = ["/b/x", "/b/x/y", "/c/x"]
    await cache.read(names)
    cache.evict(path)
    assert [name for name in names if cache.find(name)] == left
    await cache.close()
    await origin.close()


async def test_an_object_that_is_evicted_while_it_is_read_is_not_cached(cache: ObjectCache) -> None:
    task = cache.start_read("/b/k")
    assert task is not None
    await asyncio.sleep(0)
    cache.evict("/b/k")
    await asyncio.wait([task])
    assert cache.find("/b/k") is None
    await cache.read(["/b/k"])
    assert cache.find("/b/k") is not None
