"""What is kept, what it answers, and what only the origin may answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from accel.testing.faults import CutBody, Status
from accel.testing.origin import Origin
from accel.testing.proxy import Proxy
from accel.testing.relay import Passage, RelayFault, Substitute
from accel.testing.s3 import S3Admin
from accel.testing.shelf import Shelf, ShelfObject, object_path

DATA = bytes(range(100))
ETAG = '"abc"'
KEPT = ShelfObject(memoryview(DATA), ETAG, b"ETag: %s\r\n" % ETAG.encode())


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
    answer = KEPT.answer(headers)
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
    assert KEPT.answer(headers) is None


def test_an_empty_object_has_no_ranges() -> None:
    empty = ShelfObject(memoryview(b""), ETAG, b"")
    assert empty.answer({"range": "bytes=0-"}) is None
    assert empty.answer({}) is not None


@pytest.fixture
def say() -> dict[str, RelayFault]:
    """What the origin answers to each path; else DATA."""
    return {}


@pytest.fixture
def behind(make_proxy: Callable[..., Proxy], say: dict[str, RelayFault]) -> Proxy:
    def script(passage: Passage) -> RelayFault:
        return say.get(passage.path, Substitute(DATA, ETAG))

    return make_proxy(None, script=script)


@pytest.fixture
async def shelf(behind: Proxy) -> AsyncIterator[Shelf]:
    origin = Origin(behind.url)
    await origin.open()
    shelf = Shelf(origin, S3Admin(behind.url), limit=250)
    yield shelf
    await shelf.close()
    await origin.close()


async def test_an_object_is_read_once(shelf: Shelf, behind: Proxy) -> None:
    assert shelf.find("/b/a b") is None
    await asyncio.gather(shelf.read(["/b/a b"]), shelf.read(["/b/a b", "/b/c"]))
    await shelf.read(["/b/a b", "/b/c"])
    kept = shelf.find("/b/a b")
    assert kept is not None
    assert (bytes(kept.data), kept.etag) == (DATA, ETAG)
    assert [passage.path for passage in behind.passages] == ["/b/a%20b", "/b/c"]
    assert behind.passages[0].range is None


async def test_what_does_not_fit_is_asked_for_once_and_not_kept(shelf: Shelf, behind: Proxy) -> None:
    await shelf.read(["/b/1", "/b/2", "/b/3"])
    await shelf.read(["/b/3"])
    assert [shelf.find(f"/b/{n}") is None for n in (1, 2, 3)] == [False, False, True]
    assert behind.requests == 3
    shelf.forget("/b/1")
    shelf.forget("/b/3")
    await shelf.read(["/b/3"])
    assert shelf.find("/b/3") is not None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Status(404), id="absent"),
        pytest.param(Substitute(DATA), id="no etag"),
        pytest.param(CutBody(10), id="cut"),
    ],
)
async def test_what_is_not_there_as_a_whole_is_not_kept(
    shelf: Shelf, say: dict[str, RelayFault], answer: RelayFault
) -> None:
    say["/b/k"] = answer
    await shelf.read(["/b/k"])
    assert shelf.find("/b/k") is None
    # Nor does it count.
    await shelf.read(["/b/1", "/b/2"])
    assert shelf.find("/b/2") is not None


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
async def test_forgetting(behind: Proxy, path: str, left: list[str]) -> None:
    origin = Origin(behind.url)
    await origin.open()
    shelf = Shelf(origin, S3Admin(behind.url))
    names = ["/b/x", "/b/x/y", "/c/x"]
    await shelf.read(names)
    shelf.forget(path)
    assert [name for name in names if shelf.find(name)] == left
    await shelf.close()
    await origin.close()


async def test_what_is_forgotten_while_it_is_read_is_not_kept(shelf: Shelf) -> None:
    task = shelf.want("/b/k")
    assert task is not None
    await asyncio.sleep(0)
    shelf.forget("/b/k")
    await asyncio.wait([task])
    assert shelf.find("/b/k") is None
    await shelf.read(["/b/k"])
    assert shelf.find("/b/k") is not None
