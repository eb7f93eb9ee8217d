"""Listings whose pages are asked for at once: the same as page after page, in the fewest requests, or page
after page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store

from accel.errors import StoreError
from accel.metrics import Metrics
from accel.ranges import Kind
from accel.store import listing
from accel.store.fetch import Retry
from accel.store.gate import Gate
from accel.store.listing import Cuts, Listings
from accel.store.obstore_store import ObstoreStore
from accel.store.range_store import ObjectEntry

PAGE = 5


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", PAGE)


class Bucket:
    """Lists as S3 does through obstore: raw keys in byte order by pages, of which a `/` at the end goes lost.

    What ends in one is an empty marker.

    `before` is called before a request is answered, with what it is to begin after.
    """

    cuts_listings = True

    def __init__(self, keys: Iterable[str], *, order: Callable[[str], Any] = str.encode) -> None:
        self.keys = set(keys)
        self.order = order
        self.asked: list[tuple[str | None, int]] = []
        """Of each request what it was to begin after, and which page of that it asked for."""
        self.before: Callable[[str | None], None] = lambda after: None
        self.under_way = 0
        self.most = 0

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        last, page = after, 0
        while True:
            self.asked.append((after, page))
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await asyncio.sleep(0)
                self.before(after)
                keys, more = self.answer(prefix, last, page)
            finally:
                self.under_way -= 1
            if keys:
                yield list(map(entry_of, keys))
            if not more:
                return
            last, page = keys[-1], page + 1

    def answer(self, prefix: str, after: str | None, page: int) -> tuple[list[str], bool]:
        below = [key for key in self.keys if key.startswith(f"{prefix}/" if prefix else "")]
        below = [key for key in below if after is None or self.order(key) > self.order(after)]
        below.sort(key=self.order)
        return below[:PAGE], len(below) > PAGE

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        raise AssertionError


def entry_of(key: str) -> ObjectEntry:
    return ObjectEntry(key.strip("/"), 0 if key.endswith("/") else len(key), f'"{key}"')


def told(keys: Iterable[str]) -> list[ObjectEntry]:
    """What is to be told of some keys: each path once, as the file rather than as a marker of its name."""
    by_path = {entry.path: entry for entry in map(entry_of, sorted(keys, reverse=True))}
    return [by_path[path] for path in sorted(by_path)]


def listings(store: Any, *, most: int = 64, attempts: int = 1) -> Listings:
    async def sleep(seconds: float) -> None:
        pass

    retry = Retry(max_attempts=attempts, backoff_base=0.1, backoff_max=1.0, sleep=sleep)
    return Listings(store, gate=Gate(most, max_bytes=1 << 20), retry=retry, cuts=Cuts())


def keys(numbers: Iterable[int]) -> list[str]:
    return [f"d/{number:03}" for number in numbers]


async def paths(of: Listings, prefix: str = "d") -> list[str]:
    return [entry.path for entry in await of.list_below(prefix, Metrics())]


# -- requests ------------------------------------------------------------------------------------


async def asked_twice(
    store: Bucket, change: Callable[[Bucket], object] = lambda store: None
) -> list[tuple[str | None, int]]:
    """The requests of a second listing, in the order of what they begin after."""
    it = listings(store)
    assert await paths(it) == sorted(store.keys)
    store.asked, store.most = [], 0
    change(store)
    metrics = Metrics()
    found = await it.list_below("d", metrics)
    assert found == told(store.keys)
    assert metrics.requests_by_kind == {Kind.LISTING: len(store.asked)}
    return sorted(store.asked, key=lambda one: (one[0] or "", one[1]))


async def test_the_first_is_asked_for_page_by_page() -> None:
    store = Bucket(keys(range(12)))
    metrics = Metrics()
    found = await listings(store).list_below("d", metrics)
    assert [entry.path for entry in found] == keys(range(12))
    assert (store.asked, store.most) == ([(None, 0), (None, 1), (None, 2)], 1)
    assert metrics.requests_by_kind == {Kind.LISTING: 3}


@pytest.mark.parametrize(("count", "shown"), [(3, 0), (5, 1), (12, 1)])
async def test_the_first_of_several_pages_is_shown_before_the_next_is_asked_for(
    count: int, shown: int
) -> None:
    store = Bucket(keys(range(count)))
    it, seen, asked = listings(store), list[list[str]](), list[int]()

    def begun(page: Sequence[ObjectEntry]) -> None:
        seen.append([entry.path for entry in page])
        asked.append(len(store.asked))

    await it.list_below("d", Metrics(), begun=begun)
    assert (seen, asked) == ([keys(range(PAGE))] * shown, [1] * shown)
    # The second time all pages are asked for at once, where there are several.
    await it.list_below("d", Metrics(), begun=begun)
    assert seen == [keys(range(PAGE))] * shown * 2


@pytest.mark.parametrize(
    ("cuts", "shown", "asked"),
    [
        pytest.param(True, 1, [(None, 0), (None, 1), ("d/004", 0), ("d/004", 1)], id="goes on"),
        pytest.param(False, 2, [(None, 0), (None, 1), (None, 0), (None, 1), (None, 2)], id="begins anew"),
    ],
)
async def test_after_a_failure_it_goes_on_from_the_last_key_or_begins_anew(
    cuts: bool, shown: int, asked: list[tuple[str | None, int]]
) -> None:
    store, failures = Bucket(keys(range(12))), iter([False, True, False, False, False])
    store.cuts_listings = cuts
    seen: list[str] = []

    def before(after: str | None) -> None:
        if next(failures):
            raise StoreError("503", path="d", transient=True)

    store.before = before
    metrics = Metrics()
    found = await listings(store, attempts=2).list_below(
        "d", metrics, begun=lambda page: seen.append(page[0].path)
    )
    assert found == told(store.keys)
    assert (seen, store.asked) == (["d/000"] * shown, asked)
    assert (metrics.requests, metrics.retries) == (len(asked), 1)


@pytest.mark.parametrize(
    ("count", "cuts"),
    [(0, []), (1, []), (4, []), (6, [4]), (9, [4]), (11, [4, 9]), (14, [4, 9])],
)
async def test_the_next_is_asked_for_at_once(count: int, cuts: list[int]) -> None:
    store = Bucket(keys(range(count)))
    assert await asked_twice(store) == [(None, 0), *((f"d/{cut:03}", 0) for cut in cuts)]
    assert store.most == 1 + len(cuts)


@pytest.mark.parametrize("pages", [1, 2, 3])
async def test_where_the_last_page_is_full_it_is_asked_for_more(pages: int) -> None:
    store = Bucket(keys(range(PAGE * pages)))
    ends = [f"d/{PAGE * page - 1:03}" for page in range(1, pages + 1)]
    assert await asked_twice(store) == [(None, 0), *((end, 0) for end in ends)]
    assert store.most == 1 + pages  # all of them together
    store.cuts_listings, store.asked = False, []
    assert await paths(listings(store)) == keys(range(PAGE * pages))
    assert store.asked == [(None, page) for page in range(pages)]


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        pytest.param(
            lambda s: s.keys.add("d/0021"), [(None, 0), (None, 1), ("d/004", 0), ("d/009", 0)], id="one came"
        ),
        pytest.param(
            lambda s: s.keys.discard("d/006"), [(None, 0), ("d/004", 0), ("d/009", 0)], id="one went"
        ),
        pytest.param(
            lambda s: s.keys.difference_update(keys([4, 9])),
            [(None, 0), ("d/004", 0), ("d/009", 0)],
            id="the last of the pages went",
        ),
        pytest.param(
            lambda s: s.keys.update(keys(range(12, 30))),
            [(None, 0), ("d/004", 0), *(("d/009", page) for page in range(4)), ("d/029", 0)],
            id="many came at the end, in full pages",
        ),
        pytest.param(
            lambda s: s.keys.update(keys(range(12, 29))),
            [(None, 0), ("d/004", 0), *(("d/009", page) for page in range(4))],
            id="many came at the end",
        ),
        pytest.param(
            lambda s: s.keys.difference_update(keys(range(3, 12))),
            [(None, 0), ("d/004", 0), ("d/009", 0)],
            id="most went",
        ),
        pytest.param(lambda s: s.keys.clear(), [(None, 0), ("d/004", 0), ("d/009", 0)], id="all went"),
    ],
)
async def test_what_came_and_went(
    change: Callable[[Bucket], object], asked: list[tuple[str | None, int]]
) -> None:
    assert await asked_twice(Bucket(keys(range(12))), change) == asked


class Sparse(Bucket):
    """Gives a page without objects before each of the others, as servers do that have only found prefixes or
    markers."""

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        async for page in super().pages(prefix, after=after):
            yield []
            yield page
        yield []


@pytest.mark.parametrize("count", [0, 1, 5, 23])
async def test_pages_may_be_empty(count: int) -> None:
    store = Sparse(keys(range(count)))
    it = listings(store)
    for _ in range(2):
        assert await paths(it) == keys(range(count))
    store.keys = set()
    assert await paths(it) == []


async def test_where_pages_end_is_learned_from_every_listing() -> None:
    store = Bucket(keys(range(12)))
    it = listings(store)
    await paths(it)
    store.keys.update(keys(range(12, 19)))
    await paths(it)
    store.asked = []
    assert await paths(it) == keys(range(19))
    assert sorted(store.asked, key=str) == [("d/004", 0), ("d/009", 0), ("d/014", 0), (None, 0)]
    store.keys = set(keys(range(3)))
    assert await paths(it) == keys(range(3))
    store.asked = []
    assert await paths(it) == keys(range(3))
    assert store.asked == [(None, 0)]


async def test_prefixes_have_cuts_of_their_own() -> None:
    store = Bucket([*keys(range(12)), *(f"e/{key}" for key in keys(range(7)))])
    it = listings(store)
    for _ in range(2):
        store.asked = []
        assert await paths(it) == keys(range(12))
        assert await paths(it, "e") == [f"e/{key}" for key in keys(range(7))]
    assert sorted(store.asked, key=str) == [
        ("d/004", 0),
        ("d/009", 0),
        ("e/d/004", 0),
        (None, 0),
        (None, 0),
    ]


@pytest.mark.parametrize(("most", "seen"), [(1, 1), (3, 3), (64, listing.AT_ONCE)])
async def test_few_are_under_way_at_once(most: int, seen: int) -> None:
    store = Bucket(keys(range(199)))
    it = listings(store, most=most)
    for _ in range(2):
        assert await paths(it) == keys(range(199))
    assert (store.most, len(store.asked)) == (seen, 80)


async def test_what_is_remembered_is_bounded() -> None:
    store = Bucket([f"{d}/{key}" for d in "abcd" for key in keys(range(12))])
    it = listings(store)
    it.cuts = Cuts(3 * listing.size_of_cuts(("a/d/004", "a/d/009")))
    for prefix in "abcd":
        await paths(it, prefix)
    assert sorted(it.cuts) == ["b", "c", "d"]
    store.keys.update(f"d/d/{number}" for number in range(100))
    await paths(it, "d")
    assert sorted(it.cuts) == ["b", "c"]


# -- where it cannot be done ---------------------------------------------------------------------


def utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


class _Ignoring(Bucket):
    """Knows nothing of where to begin."""

    def answer(self, prefix: str, after: str | None, page: int) -> tuple[list[str], bool]:
        return super().answer(prefix, after if page else None, page)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param(Bucket(keys(range(12)), order=lambda key: key[::-1].encode()), id="another order"),
        pytest.param(Bucket([f"d/é{number:03}" for number in range(12)]), id="letters beyond ASCII"),
        pytest.param(Bucket([*keys(range(12)), "d/001-x", "d/001/"]), id="a marker out of place"),
        pytest.param(Bucket([*keys(range(12)), "d/004/"]), id="a file and a marker of one name"),
    ],
)
async def test_what_is_in_no_plain_order_is_never_cut(store: Bucket) -> None:
    it = listings(store)
    whole = [entry.path for entry in told(store.keys)]
    for _ in range(3):
        store.asked = []
        assert await paths(it) == whole
        assert [after for after, _ in store.asked] == [None] * 3


@pytest.mark.parametrize(
    ("came", "requests"),
    [
        pytest.param("d/004/", 6, id="a marker named as a cut"),
        pytest.param("d/00/", 6, id="a marker whose name begins a cut"),
        pytest.param("d/007é", 6, id="a letter beyond ASCII"),
    ],
)
async def test_what_does_not_fit_has_it_all_listed_again(came: str, requests: int) -> None:
    store = Bucket(keys(range(12)))
    it = listings(store)
    await paths(it)
    store.keys.add(came)
    for at_most in (requests + 1, 3):
        store.asked = []
        assert await it.list_below("d", Metrics()) == told(store.keys)
        assert len(store.asked) <= at_most


async def test_a_store_that_ignores_where_to_begin_is_found_out() -> None:
    store = _Ignoring(keys(range(12)))
    it = listings(store)
    for _ in range(4):
        store.asked = []
        assert await paths(it) == keys(range(12))
    assert [after for after, _ in store.asked] == [None] * 3


@pytest.mark.parametrize(("prefix", "cuts"), [("", True), ("d", False)], ids=["the root", "by what it says"])
async def test_what_is_never_cut(prefix: str, cuts: bool) -> None:
    store = Bucket(keys(range(12)))
    store.cuts_listings = cuts
    it = listings(store)
    for _ in range(2):
        store.asked = []
        assert await paths(it, prefix) == keys(range(12))
        assert [after for after, _ in store.asked] == [None] * 3


@pytest.mark.parametrize(
    ("store", "cuts"),
    [
        pytest.param(S3Store("b", region="x"), True, id="S3"),
        pytest.param(S3Store("b", region="x", prefix="p"), True, id="S3 below a prefix"),
        pytest.param(S3Store("b", config={"allow_http": "true"}), True, id="S3 with a config that panics"),
        pytest.param(S3Store("b--usw2-az1--x-s3", s3_express=True), False, id="S3 Express"),
        pytest.param(GCSStore("b", skip_signature=True), False, id="GCS"),
        pytest.param(AzureStore("b", account_name="a", account_key="YQ=="), False, id="Azure"),
        pytest.param(MemoryStore(), False, id="memory"),
        pytest.param(LocalStore(), False, id="local"),
        pytest.param(HTTPStore("http://127.0.0.1:1"), False, id="HTTP"),
    ],
)
def test_which_stores_are_cut(store: Any, cuts: bool) -> None:
    assert ObstoreStore(store).cuts_listings is cuts


# -- failures ------------------------------------------------------------------------------------


async def test_a_stretch_is_tried_again_by_itself() -> None:
    store = Bucket(keys(range(12)))
    it = listings(store, attempts=3)
    await paths(it)
    store.asked, failures = [], [StoreError("busy", path="d", transient=True) for _ in range(2)]

    def fail(after: str | None) -> None:
        if after == "d/009" and failures:
            raise failures.pop()

    store.before = fail
    metrics = Metrics()
    found = await it.list_below("d", metrics)
    assert [entry.path for entry in found] == keys(range(12))
    assert (metrics.requests, metrics.retries, len(store.asked)) == (5, 2, 5)


async def test_one_failure_ends_the_others() -> None:
    store = Bucket(keys(range(200)))
    it = listings(store)
    await paths(it)
    store.asked = []

    def fail(after: str | None) -> None:
        raise StoreError("no permission to list", path="d", status=403)

    store.before = fail
    with pytest.raises(StoreError, match="no permission"):
        await paths(it)
    assert (store.under_way, len(store.asked)) == (0, listing.AT_ONCE)
    store.before = lambda after: None
    assert await paths(it) == keys(range(200))


async def test_a_listing_can_be_cancelled() -> None:
    store = Bucket(keys(range(200)))
    it = listings(store)
    await paths(it)
    task = asyncio.create_task(paths(it))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (store.under_way, it.gate.users) == (0, 0)
    assert await paths(it) == keys(range(200))


async def test_stores_that_know_no_pages() -> None:
    class Plain:
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            raise AssertionError

        async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
            for key in reversed(keys(range(12))):
                yield ObjectEntry(key, 1)

    metrics = Metrics()
    found = await listings(Plain()).list_below("d", metrics)
    assert [entry.path for entry in found] == keys(range(12))
    assert metrics.requests_by_kind == {Kind.LISTING: 3}


async def test_a_store_that_knows_no_pages_is_asked_again() -> None:
    """What came before the failure is not taken twice."""

    class Flaky:
        asked = 0

        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            raise AssertionError

        async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
            self.asked += 1
            for at, key in enumerate(keys(range(12))):
                if at == 7 and self.asked == 1:
                    raise StoreError("503", path="d", status=503, transient=True)
                yield ObjectEntry(key, 1)

    metrics = Metrics()
    found = await listings(Flaky(), attempts=3).list_below("d", metrics)
    assert [entry.path for entry in found] == keys(range(12))
    assert (metrics.retries, metrics.requests_by_kind) == (1, {Kind.LISTING: 2 + 3})


# -- keys that are listed twice ------------------------------------------------------------------


class _Told(Bucket):
    """Answers with these very entries, by pages."""

    def __init__(self, *pages: Sequence[ObjectEntry]) -> None:
        super().__init__([])
        self.told = pages
        self.cuts_listings = False

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        for page in self.told:
            yield page


A, B, MARKER = ObjectEntry("d/a", 7, '"1"'), ObjectEntry("d/b", 7, '"2"'), ObjectEntry("d/a", 0, '"0"')


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param([[A, A, B]], id="in one page"),
        pytest.param([[A], [A, B]], id="at the end of a page and at the beginning of the next"),
        pytest.param([[B, A], [A]], id="in no order"),
        pytest.param([[A, MARKER, B]], id="a file and a marker of its name"),
        pytest.param([[MARKER], [A, B]], id="the marker first"),
    ],
)
async def test_a_key_that_is_listed_twice_is_one(pages: list[list[ObjectEntry]]) -> None:
    assert await listings(_Told(*pages)).list_below("d", Metrics()) == [A, B]


async def test_two_markers_are_one() -> None:
    assert await listings(_Told([MARKER, MARKER])).list_below("d", Metrics()) == [MARKER]


@pytest.mark.parametrize(
    "other", [ObjectEntry("d/a", 8, '"1"'), ObjectEntry("d/a", 7, '"3"'), ObjectEntry("d/a", 7)]
)
async def test_which_of_two_objects_of_one_name_is_meant_is_not_guessed(other: ObjectEntry) -> None:
    with pytest.raises(StoreError) as caught:
        await listings(_Told([A, other, B])).list_below("d", Metrics())
    assert str(caught.value) == (
        "d/a: the store lists two different objects by this name "
        "(one may have a / at its end: rename it, or delete it)"
    )


async def test_what_comes_twice_in_the_first_page_is_shown_once() -> None:
    store = _Told([A, A, MARKER, B, B])
    seen: list[Sequence[ObjectEntry]] = []
    assert await listings(store).list_below("d", Metrics(), begun=seen.append) == [A, B]
    assert seen == [[A, B]]


# -- any keys, any change ------------------------------------------------------------------------

_PLAIN = st.text("-./01a", min_size=1, max_size=4)
_NAMES = st.one_of(*([_PLAIN] * 60), st.just("é")).map(lambda name: f"d/{name}".replace("//", "/0"))
_MANY = st.sets(_NAMES.map(lambda name: name.removesuffix("/")), min_size=12, max_size=30)
_FEW = st.sets(_NAMES, max_size=8)


@given(many=_MANY, changes=st.lists(_FEW, min_size=1, max_size=4))
def test_it_is_always_what_one_page_after_the_other_gives(many: set[str], changes: list[set[str]]) -> None:
    async def play() -> None:
        store = Bucket(many)
        it = listings(store)
        for change in (set(), *changes):
            store.keys = store.keys ^ change
            found = await it.list_below("d", Metrics())
            assert found == told(store.keys)

    asyncio.run(play())


@given(many=_MANY, change=_FEW, moves=st.lists(st.tuples(_NAMES, st.booleans()), max_size=12))
def test_what_stays_is_listed_once_whatever_comes_and_goes_meanwhile(
    many: set[str], change: set[str], moves: list[tuple[str, bool]]
) -> None:
    async def play() -> None:
        store = Bucket(many)
        it = listings(store)
        await it.list_below("d", Metrics())
        store.keys = store.keys ^ change
        always, ever = set(store.keys), set(store.keys)
        pending = list(moves)

        def move(_: str | None) -> None:
            if pending:
                key, comes = pending.pop()
                (store.keys.add if comes else store.keys.discard)(key)
                ever.update(store.keys)
                always.intersection_update(store.keys)

        store.before = move
        found = [entry.path for entry in await it.list_below("d", Metrics())]
        assert len(found) == len(set(found))
        assert {key.strip("/") for key in always} <= set(found) <= {key.strip("/") for key in ever}

    asyncio.run(play())
