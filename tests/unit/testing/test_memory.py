"""The dictionary store answers as a server with strong etags would."""

from __future__ import annotations

import threading

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Lister, ObjectEntry, Payload, RangeStore
from accel.testing.memory import DictStore, content_etag

DATA = bytes(range(100))
ETAG = content_etag(DATA)


@pytest.mark.parametrize(
    ("want", "span"),
    [
        pytest.param(ByteRange(0, 100), ByteRange(0, 100), id="whole"),
        pytest.param(ByteRange(7, 9), ByteRange(7, 9), id="inner"),
        pytest.param(Suffix(10), ByteRange(90, 100), id="suffix"),
        pytest.param(Suffix(101), ByteRange(0, 100), id="suffix longer than the object"),
    ],
)
async def test_read_answers_exactly_the_range(want: ByteRange | Suffix, span: ByteRange) -> None:
    payload = await DictStore({"a": DATA}).read("a", want)
    assert payload == Payload(DATA[span.start : span.end], span, 100, ETAG)


@pytest.mark.parametrize(
    ("path", "want", "pin", "error", "status"),
    [
        pytest.param("b", ByteRange(0, 1), None, ObjectNotFoundError, 404, id="no such object"),
        pytest.param("a", ByteRange(99, 101), None, StoreError, 416, id="past the end"),
        pytest.param("empty", Suffix(8), None, StoreError, 416, id="suffix of nothing"),
        pytest.param("a", ByteRange(0, 1), '"old"', ObjectChangedError, 412, id="another version"),
        pytest.param(
            "weak", ByteRange(0, 1), 'W/"w"', ObjectChangedError, 412, id="a weak etag never matches"
        ),
    ],
)
async def test_read_refuses(
    path: str, want: ByteRange | Suffix, pin: str | None, error: type[StoreError], status: int
) -> None:
    store = DictStore({"a": DATA, "empty": b"", "weak": DATA})
    store.etags["weak"] = 'W/"w"'
    with pytest.raises(error) as caught:
        await store.read(path, want, if_match=pin)
    assert type(caught.value) is error
    assert caught.value.status == status


async def test_an_overwritten_object_changes_its_etag() -> None:
    store = DictStore({"a": DATA})
    store.put("a", DATA[::-1])
    assert (await store.read("a", Suffix(1))).etag == content_etag(DATA[::-1]) != ETAG


async def test_bytes_and_etag_are_of_one_version_whatever_is_put_meanwhile() -> None:
    """A checksum lets other threads run: one that read then had the new bytes under the old etag."""
    versions = [bytes([number]) * 100_000 for number in range(2)]
    etags = {content_etag(data): data for data in versions}
    store = DictStore({"a": versions[0]})
    ended = threading.Event()

    def replace() -> None:
        while not ended.is_set():
            for data in versions:
                store.put("a", data)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(3_000):
            payload = await store.read("a", ByteRange(0, 10))
            assert payload.etag is not None
            assert etags[payload.etag][:10] == payload.data
    finally:
        ended.set()
        thread.join()


async def test_list_takes_whole_segments_in_order() -> None:
    store = DictStore({"d/b": b"1", "d/a": b"22", "dd/c": b"", "d": b"4"})
    assert isinstance(store, RangeStore)
    assert isinstance(store, Lister)
    assert [e async for e in store.list("d")] == [
        ObjectEntry("d", 1, content_etag(b"4")),
        ObjectEntry("d/a", 2, content_etag(b"22")),
        ObjectEntry("d/b", 1, content_etag(b"1")),
    ]
    assert [e.path async for e in store.list("")] == ["d", "d/a", "d/b", "dd/c"]
