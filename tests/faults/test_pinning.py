"""No byte of two versions of an object meets in one result, whatever etags a store gives."""

from __future__ import annotations

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Suffix, Want
from accel.store.client import Client
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import IncompleteBodyError, ShortObjectError
from accel.testing import CutBody, DictStore, FaultStore, OtherVersion

OLD = bytes(i % 251 for i in range(1000))
SAME_SIZE = bytes(reversed(OLD))
KEY = ReadKey(Kind.PAGE, 0, 0, 0)
WANTS = [Want(KEY, ByteRange(100, 200))]
TWO = [*WANTS, Want(ReadKey(Kind.PAGE, 0, 0, 1), ByteRange(800, 900))]


def client_over(store: object, *, allow_unpinned: bool = False, max_attempts: int = 1) -> Client:
    options = Options(
        max_gap_bytes=10, max_attempts=max_attempts, backoff_base=1e-6, allow_unpinned=allow_unpinned
    )
    return Client(store, root="mem://box", token="t", options=options)  # type: ignore[arg-type]


async def opened(client: Client, store: DictStore) -> ObjectId:
    """As the reader pins a file: by what the tail's answer said."""
    tail = await client.read_tail("f", 50, metrics=Metrics())
    assert tail.size is not None
    return ObjectId("f", tail.size, tail.etag)


STRONG, WEAK, UNQUOTED = '"v1"', 'W/"v1"', "v1"


@pytest.mark.parametrize("etag", [STRONG, WEAK, UNQUOTED])
async def test_the_same_version_reads(etag: str) -> None:
    store = DictStore({"f": OLD})
    store.etags["f"] = etag
    recorded = FaultStore(store, [])
    client = client_over(recorded)
    pin = await opened(client, store)
    stash = await client.read("f", WANTS, pin=pin, metrics=Metrics())
    assert bytes(stash[KEY]) == OLD[100:200]
    # A weak etag would never match: it is compared instead.
    assert [a.if_match for a in recorded.attempts] == [None, None if etag == WEAK else etag]


UNSENDABLE = ['"a\x01b"', '"a\r\nX: b"', '"a\x7f"', '"ü"', '"\udcff"']


@pytest.mark.parametrize("etag", UNSENDABLE, ids=ascii)
async def test_an_etag_that_is_no_header_is_compared_like_a_weak_one(etag: str) -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": SAME_SIZE})
    store.etags["f"] = etag
    recorded = FaultStore(store, [None, None, OtherVersion(other)])
    client = client_over(recorded)
    pin = await opened(client, store)
    assert bytes((await client.read("f", WANTS, pin=pin, metrics=Metrics()))[KEY]) == OLD[100:200]
    with pytest.raises(ObjectChangedError):
        await client.read("f", WANTS, pin=pin, metrics=Metrics())
    assert [attempt.if_match for attempt in recorded.attempts] == [None, None, None]


@pytest.mark.parametrize("honoured", [True, False], ids=["If-Match honoured", "If-Match ignored"])
@pytest.mark.parametrize(
    "data", [SAME_SIZE, OLD + b"more", OLD[:950]], ids=["same size", "larger", "smaller"]
)
@pytest.mark.parametrize(("before", "after"), [(STRONG, '"v2"'), (WEAK, 'W/"v2"'), (UNQUOTED, "v2")])
async def test_another_version_is_refused(before: str, after: str, data: bytes, honoured: bool) -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": data})
    store.etags["f"], other.etags["f"] = before, after
    client = client_over(FaultStore(store, [None, OtherVersion(other, honour_if_match=honoured)]))
    pin = await opened(client, store)
    with pytest.raises(ObjectChangedError, match="mem://box/f"):
        await client.read("f", WANTS, pin=pin, metrics=Metrics())


async def test_another_size_under_the_same_etag_is_refused() -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": OLD + b"more"})
    store.etags["f"] = other.etags["f"] = STRONG
    client = client_over(FaultStore(store, [None, OtherVersion(other)]))
    pin = await opened(client, store)
    with pytest.raises(ObjectChangedError, match="1000 bytes and has 1004 now"):
        await client.read("f", WANTS, pin=pin, metrics=Metrics())


async def test_truncated_below_the_wanted_range_is_refused_as_changed() -> None:
    store = DictStore({"f": OLD})
    client = client_over(store)
    pin = await opened(client, store)
    store.objects["f"] = OLD[:150]  # under the old etag: a store that is wrong about that, too
    with pytest.raises(ObjectChangedError):
        await client.read("f", WANTS, pin=pin, metrics=Metrics())


async def test_a_deleted_object_is_both_changed_and_not_found() -> None:
    store = DictStore({"f": OLD})
    client = client_over(store)
    pin = await opened(client, store)
    store.delete("f")
    with pytest.raises(ObjectChangedError, match="has been deleted") as caught:
        await client.read("f", WANTS, pin=pin, metrics=Metrics())
    assert isinstance(caught.value, ObjectNotFoundError)
    assert isinstance(caught.value, FileNotFoundError)


async def test_one_of_several_requests_of_another_version_is_enough() -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": SAME_SIZE})
    client = client_over(FaultStore(store, [None, None, OtherVersion(other)]))
    pin = await opened(client, store)
    with pytest.raises(ObjectChangedError):
        await client.read("f", TWO, pin=pin, metrics=Metrics())


async def test_without_a_pin_the_parts_must_still_agree() -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": SAME_SIZE})
    client = client_over(FaultStore(store, [None, OtherVersion(other)]))
    with pytest.raises(ObjectChangedError, match="changed while it was read"):
        await client.read("f", TWO, pin=None, metrics=Metrics())
    stash = await client.read("f", TWO, pin=None, metrics=Metrics())
    assert bytes(stash[KEY]) == OLD[100:200]


async def test_an_answer_without_etag_cannot_be_told_from_another_version() -> None:
    store, other = DictStore({"f": OLD}), DictStore({"f": SAME_SIZE})
    other.etags["f"] = None
    pin = await opened(client_over(store), store)
    with pytest.raises(StoreError, match="carries no etag") as caught:
        await client_over(FaultStore(store, [OtherVersion(other)])).read(
            "f", WANTS, pin=pin, metrics=Metrics()
        )
    assert "options.allow_unpinned" in str(caught.value)


async def test_a_store_without_etags_serves_one_request_and_no_more() -> None:
    store = DictStore({"f": OLD})
    store.etags["f"] = None
    client = client_over(store)
    tail = await client.read_tail("f", 5000, metrics=Metrics())
    assert (bytes(tail.data), tail.etag) == (OLD, None)  # the whole object: nothing can be mixed
    pin = ObjectId("f", 1000, None)
    metrics = Metrics()
    with pytest.raises(StoreError, match="gives no etag"):
        await client.read("f", WANTS, pin=pin, metrics=metrics)
    assert metrics.requests == 0
    with pytest.raises(StoreError, match="gives no etag"):
        await client.read("f", TWO, pin=None, metrics=Metrics())
    stash = await client.read("f", WANTS, pin=None, metrics=Metrics())
    assert bytes(stash[KEY]) == OLD[100:200]


async def test_unpinned_reads_can_be_allowed_and_still_compare_sizes() -> None:
    store = DictStore({"f": OLD})
    store.etags["f"] = None
    client = client_over(store, allow_unpinned=True)
    pin = await opened(client, store)
    stash = await client.read("f", TWO, pin=pin, metrics=Metrics())
    assert bytes(stash[KEY]) == OLD[100:200]
    store.objects["f"] = OLD + b"more"
    with pytest.raises(ObjectChangedError):
        await client.read("f", TWO, pin=pin, metrics=Metrics())


EMPTY = {"nothing": "", "quotes": '""', "weak quotes": 'W/""', "a blank": " ", "a quoted blank": '" "'}


@pytest.mark.parametrize("etag", EMPTY.values(), ids=EMPTY)
async def test_an_empty_etag_is_none(etag: str) -> None:
    store = DictStore({"f": OLD})
    store.etags["f"] = etag
    client = client_over(store)
    tail = await client.read_tail("f", 50, metrics=Metrics())
    assert (tail.size, tail.etag) == (1000, None)
    assert [entry.etag for entry in await client.list_below("")] == [None]
    for pin, wants in ((ObjectId("f", 1000, None), WANTS), (None, TWO)):
        with pytest.raises(StoreError, match="gives no etag"):
            await client.read("f", wants, pin=pin, metrics=Metrics())


@pytest.mark.parametrize("etag", EMPTY.values(), ids=EMPTY)
async def test_a_cut_body_under_an_empty_etag_is_asked_for_from_its_start(etag: str) -> None:
    """The rest may be another version's."""
    store = DictStore({"f": OLD})
    store.etags["f"] = etag
    recorded = FaultStore(store, [CutBody(20)])
    client = client_over(recorded, max_attempts=2)
    await client.read_tail("f", 50, metrics=Metrics())
    assert [attempt.want for attempt in recorded.attempts] == [Suffix(50), Suffix(50)]


def test_where_an_empty_etag_would_come_in() -> None:
    entry = ObjectEntry("f", 1000, 'W/""')
    short = ShortObjectError(path="f", want=ByteRange(0, 9), size=5, etag='""')
    cut = IncompleteBodyError("cut", path="f", range=ByteRange(0, 9), partial=b"", size=9, etag="")
    assert (entry.etag, short.etag, cut.etag) == (None, None, None)
