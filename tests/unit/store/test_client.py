"""The client: what it sends for a list of wants, what it counts, and what it holds against the pin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Suffix, Want
from accel.store.client import Client
from accel.store.fetch import Retry
from accel.store.http_store import HttpStore
from accel.store.range_store import ObjectEntry, Payload
from accel.store.request_errors import SuffixUnsupportedError
from accel.testing import DictStore, FaultStore, RecordingStore

Spoil: TypeAlias = Callable[[list[Payload]], list[Payload]]

BODY = bytes(i % 251 for i in range(1000))
SMALL = Options(max_gap_bytes=10, max_coalesced_bytes=100, max_attempts=3)


async def no_sleep(_: float) -> None:
    return


def client_over(store: Any, options: Options = SMALL, root: str = "mem://box") -> Client:
    retry = Retry(max_attempts=options.max_attempts, backoff_base=1.0, backoff_max=1.0, sleep=no_sleep)
    return Client(store, root=root, token="t", options=options, retry=retry)


def want(start: int, end: int, ordinal: int = 0, kind: Kind = Kind.PAGE) -> Want:
    return Want(ReadKey(kind, 0, 0, ordinal), ByteRange(start, end))


def requested(store: RecordingStore | FaultStore) -> list[str]:
    calls = store.calls if isinstance(store, RecordingStore) else store.attempts
    return sorted(f"{call.want}, {call.if_match}" for call in calls)


@pytest.fixture
def inner() -> DictStore:
    return DictStore({"f": BODY, "e": b""})


@pytest.fixture
def pin(inner: DictStore) -> ObjectId:
    return ObjectId("f", 1000, inner.etags["f"])


async def test_a_read_merges_splits_and_pins(inner: DictStore, pin: ObjectId) -> None:
    store, metrics = RecordingStore(inner), Metrics()
    wants = [want(0, 10, 0), want(15, 20, 1), want(40, 50, 2), want(500, 700, 3)]
    stash = await client_over(store).read("f", wants, pin=pin, metrics=metrics)
    assert {key.ordinal: bytes(view) for key, view in stash.items()} == {
        0: BODY[0:10],
        1: BODY[15:20],
        2: BODY[40:50],
        3: BODY[500:700],
    }
    assert requested(store) == [
        f"bytes 0..20, {pin.etag}",
        f"bytes 40..50, {pin.etag}",
        f"bytes 500..600, {pin.etag}",
        f"bytes 600..700, {pin.etag}",
    ]
    assert (metrics.requests, metrics.bytes, metrics.retries) == (4, 230, 0)


async def test_all_requests_of_a_read_are_one_wave(inner: DictStore, pin: ObjectId) -> None:
    store = RecordingStore(inner)
    await client_over(store).read(
        "f", [want(i * 100, i * 100 + 5, i) for i in range(5)], pin=pin, metrics=Metrics()
    )
    assert (store.requests, store.waves) == (5, 1)


async def test_what_is_joined_off_the_loop_is_the_same(
    inner: DictStore, pin: ObjectId, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = [want(3, 950, 0), want(960, 970, 1)]
    here = await client_over(inner).read("f", wants, pin=pin, metrics=Metrics())
    monkeypatch.setattr("accel.store.client.MIB", 900)
    there = await client_over(inner).read("f", wants, pin=pin, metrics=Metrics())
    assert here == there == {w.key: BODY[w.range.start : w.range.end] for w in wants}


class Gathering(DictStore):
    """A store that answers several ranges in one call."""

    def __init__(self, objects: dict[str, bytes], spoil: Spoil | None = None) -> None:
        super().__init__(objects)
        self.spoil = spoil
        self.gathered: list[tuple[list[ByteRange], str | None]] = []

    async def gather_ranges(
        self, path: str, wants: Sequence[ByteRange], *, if_match: str | None = None
    ) -> list[Payload]:
        self.gathered.append((list(wants), if_match))
        found = [await DictStore.read(self, path, one, if_match=if_match) for one in wants]
        return found if self.spoil is None else self.spoil(found)


def fail(found: list[Payload]) -> list[Payload]:
    raise StoreError("no", path="f")


async def test_a_store_may_take_several_ranges_in_one_call() -> None:
    store, metrics = Gathering({"f": BODY}), Metrics()
    etag = store.etags["f"]
    wants = [want(0, 10, 0), want(40, 50, 1, Kind.DICTIONARY), want(500, 700, 2)]
    stash = await client_over(store).read("f", wants, pin=ObjectId("f", 1000, etag), metrics=metrics)
    assert {key.ordinal: bytes(view) for key, view in stash.items()} == {
        0: BODY[0:10],
        1: BODY[40:50],
        2: BODY[500:700],
    }
    ranges = [ByteRange(0, 10), ByteRange(40, 50), ByteRange(500, 600), ByteRange(600, 700)]
    assert store.gathered == [(ranges, etag)]
    assert metrics.requests_by_kind == {Kind.PAGE: 3, Kind.DICTIONARY: 1}
    assert metrics.bytes_by_kind == {Kind.PAGE: 210, Kind.DICTIONARY: 10}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(fail, id="it fails"),
        pytest.param(lambda found: found[:1], id="an answer too few"),
        pytest.param(lambda found: found[::-1], id="answers in another order"),
        pytest.param(lambda found: [replace(p, data=p.data[:-1]) for p in found], id="cut bodies"),
        pytest.param(lambda found: [replace(p, etag='"another"') for p in found], id="another version"),
        pytest.param(lambda found: [replace(p, size=999) for p in found], id="another size"),
    ],
)
async def test_what_does_not_come_in_one_call_is_asked_for_range_by_range(spoil: Spoil) -> None:
    store, metrics = Gathering({"f": BODY}, spoil), Metrics()
    wants = [want(0, 10, 0), want(40, 50, 1)]
    known = ObjectId("f", 1000, store.etags["f"])
    stash = await client_over(store).read("f", wants, pin=known, metrics=metrics)
    assert [bytes(view) for view in stash.values()] == [BODY[0:10], BODY[40:50]]
    assert (len(store.gathered), metrics.requests, metrics.bytes, metrics.retries) == (1, 2, 20, 0)


async def test_a_change_seen_in_one_call_is_told() -> None:
    store, metrics = Gathering({"f": BODY}), Metrics()
    old = ObjectId("f", 1000, '"old"')
    with pytest.raises(ObjectChangedError):
        await client_over(store).read("f", [want(0, 10, 0), want(40, 50, 1)], pin=old, metrics=metrics)


async def test_nothing_wanted_sends_nothing(inner: DictStore, pin: ObjectId) -> None:
    store = RecordingStore(inner)
    assert await client_over(store).read("f", [], pin=pin, metrics=Metrics()) == {}
    assert store.requests == 0


async def test_a_request_counts_for_the_kind_of_most_of_its_bytes(inner: DictStore, pin: ObjectId) -> None:
    metrics = Metrics()
    wants = [want(0, 10, 0, Kind.DICTIONARY), want(10, 60, 0), want(200, 210, 1, Kind.DICTIONARY)]
    await client_over(inner).read("f", wants, pin=pin, metrics=metrics)
    assert metrics.requests_by_kind == {Kind.PAGE: 1, Kind.DICTIONARY: 1}
    assert metrics.bytes_by_kind == {Kind.PAGE: 60, Kind.DICTIONARY: 10}


async def test_a_tail(inner: DictStore) -> None:
    store, metrics = RecordingStore(inner), Metrics()
    payload = await client_over(store).read_tail("f", 100, metrics=metrics)
    assert (bytes(payload.data), payload.range, payload.size, payload.etag) == (
        BODY[900:],
        ByteRange(900, 1000),
        1000,
        inner.etags["f"],
    )
    assert requested(store) == ["last 100 bytes, None"]
    assert metrics.requests_by_kind == {Kind.TAIL: 1}
    whole = await client_over(store).read_tail("f", 5000, metrics=metrics)
    assert whole.range == ByteRange(0, 1000)


async def test_a_tail_of_a_listed_version_is_an_exact_range(inner: DictStore, pin: ObjectId) -> None:
    store = RecordingStore(inner)
    payload = await client_over(store).read_tail("f", 100, metrics=Metrics(), pin=pin)
    assert payload.range == ByteRange(900, 1000)
    assert requested(store) == [f"bytes 900..1000, {pin.etag}"]


@pytest.mark.parametrize("pinned", [False, True])
async def test_the_tail_of_an_empty_object(inner: DictStore, pinned: bool) -> None:
    pin = ObjectId("e", 0, inner.etags["e"]) if pinned else None
    with pytest.raises(ParquetFormatError, match="mem://box/e: the file is empty"):
        await client_over(inner).read_tail("e", 100, metrics=Metrics(), pin=pin)


class NoSuffix(DictStore):
    """Knows sizes by `head` alone, like Azure."""

    sent = False
    heads = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if isinstance(want, Suffix):
            raise SuffixUnsupportedError(path=path, sent=self.sent, certain=not self.sent)
        return await super().read(path, want, if_match=if_match)

    async def head(self, path: str) -> ObjectEntry:
        self.heads += 1
        if path not in self.objects:
            raise ObjectNotFoundError("none", path=path)
        return ObjectEntry(path, len(self.objects[path]), self.etags[path])


@pytest.mark.parametrize("sent", [False, True], ids=["known beforehand", "found out"])
async def test_without_suffixes_a_head_tells_the_size(sent: bool) -> None:
    store = NoSuffix({"f": BODY, "e": b""})
    store.sent = sent
    metrics, client = Metrics(), client_over(store)
    payload = await client.read_tail("f", 100, metrics=metrics)
    assert (bytes(payload.data), payload.size) == (BODY[900:], 1000)
    assert metrics.requests_by_kind == (
        {Kind.TAIL: 2, Kind.HEAD: 1} if sent else {Kind.TAIL: 1, Kind.HEAD: 1}
    )
    # Once it is known, it is not tried again.
    again = Metrics()
    await client.read_tail("f", 100, metrics=again)
    assert again.requests_by_kind == {Kind.TAIL: 1, Kind.HEAD: 1}
    with pytest.raises(ParquetFormatError, match="empty"):
        await client.read_tail("e", 100, metrics=Metrics())
    with pytest.raises(ObjectNotFoundError):
        await client.read_tail("nope", 100, metrics=Metrics())


async def test_a_refused_suffix_of_an_empty_object_says_nothing_of_others() -> None:
    store = NoSuffix({"e": b""})
    store.sent = True
    client = client_over(store)
    with pytest.raises(ParquetFormatError, match="empty"):
        await client.read_tail("e", 100, metrics=Metrics())
    assert client.suffixes


async def test_a_server_without_suffixes(server: Any) -> None:
    server.suffixes = False
    store = HttpStore(server.url, storage_options={}, options=Options())
    metrics = Metrics()
    payload = await client_over(store).read_tail("f", 100, metrics=metrics)
    assert (bytes(payload.data), payload.size) == (BODY[900:], 1000)
    assert [(r.method, r.headers.get("range")) for r in server.requests] == [
        ("GET", "bytes=-100"),
        ("HEAD", None),
        ("GET", "bytes=900-999"),
    ]
    assert server.requests[2].headers["if-match"] == '"v1"'


async def test_wants_past_the_end_are_refused_before_any_request(inner: DictStore, pin: ObjectId) -> None:
    store = RecordingStore(inner)
    with pytest.raises(ParquetFormatError, match="past the end of the file"):
        await client_over(store).read("f", [want(990, 1001)], pin=pin, metrics=Metrics())
    assert store.requests == 0


async def test_the_first_error_cancels_the_others_and_comes_alone(inner: DictStore, pin: ObjectId) -> None:
    class Slow(DictStore):
        ended = 0

        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            if isinstance(want, ByteRange) and want.start == 0:
                raise StoreError("denied", path=path, status=403)
            try:
                await asyncio.sleep(60)
            finally:
                self.ended += 1
            raise AssertionError

    store = Slow({"f": BODY})
    client = client_over(store)
    with pytest.raises(StoreError, match="mem://box/f: denied") as caught:
        await client.read("f", [want(i * 200, i * 200 + 5, i) for i in range(4)], pin=pin, metrics=Metrics())
    assert caught.value.status == 403
    assert store.ended == 3
    assert (client.gate.users, client.gate.bytes) == (0, 0)


async def test_cancelling_a_read_ends_its_requests(inner: DictStore, pin: ObjectId) -> None:
    class Hanging(DictStore):
        inside = 0

        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            self.inside += 1
            try:
                await asyncio.sleep(60)
            finally:
                self.inside -= 1
            raise AssertionError

    store = Hanging({"f": BODY})
    client = client_over(store)
    wants = [want(i * 200, i * 200 + 5, i) for i in range(4)]
    task = asyncio.ensure_future(client.read("f", wants, pin=pin, metrics=Metrics()))
    while store.inside < 4:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (store.inside, client.gate.users) == (0, 0)
    assert len(asyncio.all_tasks()) == 1


async def test_requests_in_flight_are_bounded(pin: ObjectId) -> None:
    class Counting(DictStore):
        inside = most = requests = 0

        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            self.requests += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.inside -= 1
            return await super().read(path, want, if_match=if_match)

    store = Counting({"f": BODY})
    options = Options(max_gap_bytes=0, max_requests_in_flight=3)
    wants = [want(i * 20, i * 20 + 5, i) for i in range(20)]
    await client_over(store, options).read("f", wants, pin=pin, metrics=Metrics())
    assert (store.requests, store.most) == (20, 3)


async def test_listing(inner: DictStore) -> None:
    metrics = Metrics()
    client = client_over(inner)
    assert [entry.path for entry in await client.list_below("", metrics=metrics)] == ["e", "f"]
    assert metrics.requests_by_kind == {Kind.LISTING: 1}


async def test_listing_is_tried_again() -> None:
    class Flaky(DictStore):
        failures = 2

        async def list(self, prefix: str) -> Any:
            if self.failures:
                self.failures -= 1
                raise StoreError("busy", path=prefix, transient=True)
            async for entry in super().list(prefix):
                yield entry

    metrics = Metrics()
    client = client_over(Flaky({"a": b"1"}))
    assert [entry.path for entry in await client.list_below("", metrics=metrics)] == ["a"]
    assert (metrics.requests, metrics.retries) == (3, 2)


async def test_a_store_that_cannot_list() -> None:
    class ReadOnly:
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            raise AssertionError

    with pytest.raises(StoreError, match="this store cannot list"):
        await client_over(ReadOnly()).list_below("")


async def test_revalidation(inner: DictStore, pin: ObjectId) -> None:
    store, metrics = RecordingStore(inner), Metrics()
    client = client_over(store)
    assert await client.revalidate(pin, metrics=metrics)
    assert requested(store) == [f"bytes 992..1000, {pin.etag}"]
    assert metrics.requests_by_kind == {Kind.REVALIDATE: 1}
    assert not await client.revalidate(ObjectId("f", 1000, None), metrics=metrics)
    inner.put("f", BODY[::-1])
    assert not await client.revalidate(pin, metrics=metrics)
    inner.put("f", BODY[:500])
    assert not await client.revalidate(pin, metrics=metrics)
    inner.delete("f")
    assert not await client.revalidate(pin, metrics=metrics)


async def test_errors_name_the_whole_address_without_credentials(inner: DictStore) -> None:
    client = client_over(inner, root="https://host")
    with pytest.raises(ObjectNotFoundError) as caught:
        await client.read_tail("f?X-Sig=SECRET", 10, metrics=Metrics())
    assert caught.value.path == "https://host/f?X-Sig=***"


async def test_a_change_outweighs_other_failures(inner: DictStore, pin: ObjectId) -> None:
    class Both(DictStore):
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            if isinstance(want, ByteRange) and want.start == 0:
                raise StoreError("denied", path=path)
            raise ObjectChangedError("changed", path=path)

    with pytest.raises(ObjectChangedError):
        await client_over(Both({"f": BODY})).read(
            "f", [want(0, 5, 0), want(200, 205, 1)], pin=pin, metrics=Metrics()
        )


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ConnectionResetError("gone"), 3), (TimeoutError(), 3), (OSError(5, "disk"), 1)],
    ids=str,
)
async def test_errors_of_a_store_of_the_callers_become_ours(
    inner: DictStore, pin: ObjectId, error: OSError, tries: int
) -> None:
    class Raw(DictStore):
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            raise error

    metrics = Metrics()
    with pytest.raises(StoreError, match=type(error).__name__) as caught:
        await client_over(Raw({"f": BODY})).read("f", [want(0, 5)], pin=pin, metrics=metrics)
    assert caught.value.__cause__ is error
    assert metrics.requests == tries


class Joined(DictStore):
    """Has what it does from a task that others share, which so often is cancelled."""

    cancel_requests = 0

    async def _join(self) -> None:
        task = asyncio.create_task(asyncio.sleep(0))
        if self.cancel_requests:
            self.cancel_requests -= 1
            task.cancel()
        await task

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        await self._join()
        return await super().read(path, want, if_match=if_match)

    async def head(self, path: str) -> ObjectEntry:
        await self._join()
        return await super().head(path)

    async def list(self, prefix: str) -> Any:
        await self._join()
        async for entry in super().list(prefix):
            yield entry


async def test_a_request_that_another_has_cancelled_is_sent_again(pin: ObjectId) -> None:
    store, metrics = Joined({"f": BODY}), Metrics()
    store.cancel_requests = 2
    stash = await client_over(store).read("f", [want(0, 5), want(500, 505, 1)], pin=pin, metrics=metrics)
    assert [bytes(view) for view in stash.values()] == [BODY[0:5], BODY[500:505]]
    assert (metrics.requests, metrics.retries) == (4, 2)
    store.cancel_requests = 3
    with pytest.raises(StoreError) as caught:
        await client_over(store).read("f", [want(0, 5)], pin=pin, metrics=metrics)
    assert str(caught.value) == (
        "mem://box/f, bytes 0..5: a request was cancelled, and by nobody who waits for it, 3 times "
        "(the store may share what it does with others, one of whom was cancelled)"
    )


@pytest.mark.parametrize("ask", [lambda c: c.head("f"), lambda c: c.list_below("f")], ids=["head", "listing"])
async def test_a_look_that_another_has_cancelled_fails(ask: Callable[[Client], Any]) -> None:
    store = Joined({"f": BODY})
    store.cancel_requests = 1
    with pytest.raises(StoreError, match=r"^mem://box/f: a request was cancelled, and by nobody"):
        await ask(client_over(store))


async def test_a_task_that_is_cancelled_stays_so(pin: ObjectId) -> None:
    class Stuck(DictStore):
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            await asyncio.Event().wait()
            raise AssertionError

    client = client_over(Stuck({"f": BODY}))
    task = asyncio.create_task(client.read("f", [want(0, 5)], pin=pin, metrics=Metrics()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
