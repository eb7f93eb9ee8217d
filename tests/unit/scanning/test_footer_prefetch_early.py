"""Files opened while the rest of their directory is still being listed: which, how often, and what ends
them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import StoreError
from accel.runtime import io_loop
from accel.store import listing
from accel.store.clients import client_for
from accel.store.range_store import ObjectEntry
from accel.testing import DictStore
from tests.unit.scanning.many_files import many_files, opening_tasks

FILES, PAGE = 40, 11
PAGES = -(-FILES // PAGE)


class Paged(DictStore):
    """Lists by pages; before all but the first it does what `between` does, given the files asked for by
    then."""

    cuts_listings = True

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.read_of: list[str] = []
        self.pages_asked = 0
        self.between: Callable[[], Any] = self.until_read
        self.wanted = PAGE
        self.page = PAGE

    async def until_read(self) -> None:
        async with asyncio.timeout(20):
            while len(set(self.read_of)) < self.wanted:
                await asyncio.sleep(0)

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        found = [entry async for entry in self.list(prefix) if after is None or entry.path > after]
        for start in range(0, len(found), self.page):
            self.pages_asked += 1
            if start:
                await self.between()
            yield found[start : start + self.page]

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        self.read_of.append(path)
        return await super().read(path, want, if_match=if_match)


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return many_files(FILES)


@pytest.fixture
def store(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Paged:
    monkeypatch.setattr(listing, "LIST_PAGE", PAGE)
    return Paged(objects)


def keys(scan: Any) -> list[int]:
    return list(scan.to_table()["key"].to_pylist())


@pytest.mark.parametrize("source", ["d/", "d/*.parquet", "d/0*.parquet"])
@pytest.mark.parametrize("where", ["key IN (2, 30, 60, 159)", None, "key < 0"])
@pytest.mark.parametrize("order", [True, False])
def test_the_first_page_is_opened_while_the_next_is_waited_for(
    store: Paged, objects: dict[str, bytes], source: str, where: str | None, order: bool
) -> None:
    scan = accel.scan(source, where, store=store, cache=accel.Cache(), order=order)
    found = keys(scan)  # ends only if the first page is asked for
    assert store.pages_asked == PAGES
    plain = accel.scan(source, where, store=DictStore(objects), cache=accel.Cache(), order=order)
    assert sorted(found) == sorted(keys(plain))
    assert not order or found == sorted(found)
    assert scan.metrics.as_dict() == plain.metrics.as_dict()
    assert scan.metrics.metadata_misses == FILES


def test_a_plan_does_too(store: Paged) -> None:
    plan = accel.plan("d/", "key = 77", store=store, cache=None)
    assert [task.path for task in plan.tasks] == ["d/0019.parquet"]
    assert sorted(store.read_of) == sorted(store.objects)


def test_none_twice(store: Paged) -> None:
    assert keys(accel.scan("d/", "key < 0", store=store, cache=None)) == []
    assert sorted(store.read_of) == sorted(store.objects)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: accel.scan("d/", "key >= 0", limit=2, store=store, cache=None),
        lambda store: accel.scan(["d/", "d/"], "key = 77", store=store, cache=None),
        lambda store: accel.scan(
            "d/", selection={"d/0019.parquet": {0: [(1, 2)]}}, store=store, cache=None, columns=["key"]
        ),
        lambda store: accel.scan(
            "d/",
            "key = 77",
            store=store,
            cache=None,
            options=accel.Options(max_files_in_flight=1),
        ),
    ],
    ids=["limit", "two sources", "selection", "one file at a time"],
)
def test_where_not_all_are_sure_to_be_wanted_none_is(store: Paged, ask: Callable[[Any], Any]) -> None:
    store.wanted = 0
    read: list[int] = []

    async def between() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        read.append(len(store.read_of))

    store.between = between
    assert ask(store).to_table().num_rows
    assert read and not any(read)


def test_nor_where_paths_spell_columns(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", PAGE)
    placed = {f"d/day={at // 20}/{name[2:]}": data for at, (name, data) in enumerate(sorted(objects.items()))}
    store = Paged(placed)
    store.wanted = 0
    scan = accel.scan("d/", "day = 1 AND key = 90", store=store, cache=None)
    assert keys(scan) == [90]
    # The first tells the schema, those of the other day are not read.
    assert {path for path in store.read_of if "day=0" in path} == {"d/day=0/0000.parquet"}


def test_hidden_files_and_markers_are_not_opened(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", PAGE)
    store = Paged(
        {**objects, "d/.hidden": b"x", "d/_SUCCESS": b"", "d/0000": b"", "d/0001.parquet/x": b"PAR1"}
    )
    store.wanted = 5
    with pytest.raises(accel.ParquetFormatError, match=r"0001\.parquet/x"):
        keys(accel.scan("d/", "key = 77", store=store, cache=None))
    assert not {"d/.hidden", "d/_SUCCESS", "d/0000"} & set(store.read_of)


def test_what_is_wrong_with_a_file_is_told_in_its_turn(store: Paged) -> None:
    store.put("d/0005.parquet", b"PAR1 this is none PAR1")
    seen: list[int] = []
    store.wanted = 1
    with pytest.raises(accel.ParquetFormatError, match="0005"):
        for batch in accel.scan("d/", "key >= 0", store=store, cache=None):
            seen += batch.column(0).to_pylist()
    assert seen == list(range(20))
    assert store.read_of.count("d/0005.parquet") == 1


def test_a_first_file_that_is_broken_is_asked_for_once(store: Paged) -> None:
    store.put("d/0000.parquet", b"PAR1 this is none PAR1")
    store.wanted = 1
    with pytest.raises(accel.ParquetFormatError, match="0000"):
        keys(accel.scan("d/", "key >= 0", store=store, cache=None))
    assert store.read_of.count("d/0000.parquet") == 1


def test_one_that_a_second_listing_shows_replaced_is_opened_anew(
    store: Paged, objects: dict[str, bytes]
) -> None:
    changed: list[int] = []
    store.cuts_listings = False  # so that it lists anew after a failure

    async def between() -> None:
        await store.until_read()
        if not changed:
            changed.append(store.read_of.count("d/0005.parquet"))
            store.put("d/0005.parquet", objects["d/0039.parquet"])
            raise StoreError("503", path="d", status=503, transient=True)

    store.between = between
    scan = accel.scan("d/", "key >= 0", store=store, cache=accel.Cache())
    assert keys(scan) == [*range(20), *range(156, 160), *range(24, 160)]
    assert changed == [1]


@pytest.mark.parametrize("victim", ["d/0000.parquet", "d/0005.parquet"])
def test_one_that_is_replaced_while_its_footer_is_read_is_opened_anew(store: Paged, victim: str) -> None:
    """The first one tells the schema, and is opened anew like any other."""
    read = store.read

    async def replace(path: str, want: Any, *, if_match: str | None = None) -> Any:
        if path == victim and if_match is not None and store.read_of.count(victim) == 1:
            store.put(victim, store.objects["d/0039.parquet"])
        return await read(path, want, if_match=if_match)

    store.read = replace  # type: ignore[method-assign]
    options = accel.Options(tail_hint=16, max_tail_hint=16)
    found = keys(accel.scan("d/", "key >= 0", store=store, cache=accel.Cache(), options=options))
    at = 4 * int(victim[2:6])
    assert found == [*range(at), *range(156, 160), *range(at + 4, 160)]


@pytest.mark.parametrize("failure", [StoreError("listing failed", path="d"), RuntimeError("no")])
def test_a_listing_that_fails_ends_them(store: Paged, failure: Exception) -> None:
    hang(store)

    async def between() -> None:
        await store.until_read()
        raise failure

    store.between = between
    cache = accel.Cache()
    with pytest.raises(type(failure)):
        keys(accel.scan("d/", "key = 77", store=store, cache=cache, options=accel.Options(max_attempts=1)))
    assert len(store.read_of) == PAGE
    assert opening_tasks() == []
    assert len(cache.single_flight) == 0


def test_a_listing_that_is_tried_again_opens_none_twice(store: Paged) -> None:
    failed: list[int] = []

    async def between() -> None:
        await store.until_read()
        if not failed:
            failed.append(1)
            raise StoreError("503", path="d", status=503, transient=True)

    store.between = between
    scan = accel.scan("d/", "key = 77", store=store, cache=accel.Cache())
    assert keys(scan) == [77]
    assert (scan.metrics.retries, scan.metrics.metadata_misses) == (1, FILES)
    assert {path: store.read_of.count(path) for path in store.objects if path != "d/0019.parquet"} == {
        path: 1 for path in store.objects if path != "d/0019.parquet"
    }


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
def test_one_that_is_cancelled_leaves_nothing_under_way(store: Paged, turns: int) -> None:
    cache = accel.Cache()
    store.wanted = 3

    async def play() -> None:
        scan = accel.scan("d/", "key = 77", store=store, cache=cache)
        task = asyncio.create_task(scan.to_table_async())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    io_loop.run(play())
    assert opening_tasks() == []
    assert len(cache.single_flight) == 0


@pytest.mark.parametrize("seed", range(25))
def test_as_if_all_were_listed_first(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever the page, the depth, the filter and the broken file: rows, metrics and failures are the
    same."""
    draw = random.Random(seed)
    page = draw.randint(2, 45)
    monkeypatch.setattr(listing, "LIST_PAGE", page)
    monkeypatch.setattr("accel.reader.footer_prefetch.DEPTH", draw.choice([3, 70, 512]))
    chosen = dict(sorted(objects.items())[: draw.randint(1, FILES)])
    if draw.random() < 0.3:
        chosen[draw.choice(list(chosen))] = draw.choice([b"", b"PAR1 this is none PAR1"])
    low, high = sorted(draw.sample(range(-5, 4 * FILES), 2))
    where = draw.choice([None, f"key >= {low} AND key < {high}", "key = -1", "key IN (3, 50, 51, 150)"])
    options = accel.Options(max_files_in_flight=draw.choice([2, 5, 256]))
    schema = draw.choice([None, pa.schema([("key", pa.int64())])])
    paged = Paged(chosen)
    paged.page = page
    paged.wanted = 0
    known = draw.random() < 0.5  # listed before: all pages come at once

    def ask(store: DictStore) -> tuple[list[int] | str, Any]:
        cache = accel.Cache()
        if known:
            with contextlib.suppress(accel.AccelError):
                accel.scan("d/", store=store, cache=None, limit=1).to_table()
        scan = accel.scan("d/", where, store=store, cache=cache, options=options, schema=schema)
        found: list[int] | str
        try:
            found = keys(scan)
        except accel.AccelError as error:
            return str(error), None
        assert len(cache.single_flight) == 0
        metrics = scan.metrics.as_dict()
        return found, {name: value for name, value in metrics.items() if "requests" not in name}

    assert ask(paged) == ask(DictStore(chosen))
    assert opening_tasks() == []


def others_wait(store: Paged) -> None:
    """Where all pages are asked for at once, all but the first come after what is opened early."""
    pages = store.pages

    async def late(prefix: str, *, after: str | None = None) -> AsyncGenerator[Any, None]:
        if after is not None:
            await store.until_read()
        async with contextlib.aclosing(pages(prefix, after=after)) as found:
            async for page in found:
                yield page

    store.pages = late  # type: ignore[method-assign]


def test_a_directory_listed_before_too(store: Paged) -> None:
    store.wanted = 0
    assert keys(accel.scan("d/", limit=1, store=store, cache=None)) == [0]
    assert store.pages_asked == PAGES
    store.read_of, store.wanted = [], PAGE
    others_wait(store)
    assert keys(accel.scan("d/", "key = 77", store=store, cache=accel.Cache())) == [77]
    assert sorted(set(store.read_of)) == sorted(store.objects)


def hang(store: Paged, save: str = "") -> None:
    """Of all objects but one, reads that never come back."""
    read = store.read

    async def wait_for_ever(path: str, want: Any, *, if_match: str | None = None) -> Any:
        if path != save:
            store.read_of.append(path)
            await asyncio.Event().wait()
        return await read(path, want, if_match=if_match)

    store.read = wait_for_ever  # type: ignore[method-assign]


@pytest.mark.parametrize("ask", [accel.scan, accel.plan])
def test_a_second_listing_of_one_file_ends_those_of_the_first(store: Paged, ask: Any) -> None:
    store.cuts_listings = False  # so that it lists anew after a failure
    hang(store, save="d/0000.parquet")

    async def between() -> None:
        await store.until_read()
        for path in sorted(store.objects)[1:]:
            store.delete(path)
        raise StoreError("503", path="d", status=503, transient=True)

    store.between = between
    cache = accel.Cache()
    found = ask("d/", "key >= 0", store=store, cache=cache)
    assert [task.path for task in found.tasks] if ask is accel.plan else keys(found)
    assert opening_tasks() == []
    assert len(cache.single_flight) == 0


@pytest.mark.parametrize("turns", range(6))
def test_two_cancellations_leave_nobody_waiting(store: Paged, turns: int) -> None:
    cache = accel.Cache()
    hang(store)

    async def play() -> None:
        scan = accel.scan("d/", "key = 77", store=store, cache=cache)
        task = asyncio.ensure_future(scan.to_table_async())
        await store.until_read()
        task.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)

    store.between = asyncio.Event().wait
    io_loop.run(play())
    assert len(cache.single_flight) == 0
    assert opening_tasks() == []


def test_who_waits_for_the_same_first_file_outlives_one_that_is_cancelled(store: Paged) -> None:
    """The one that opens it early is cancelled while its question waits for that very file."""
    cache, freed, read = accel.Cache(), asyncio.Event(), store.read

    async def wait(path: str, want: Any, *, if_match: str | None = None) -> Any:
        await freed.wait()
        return await read(path, want, if_match=if_match)

    async def settle() -> None:
        for _ in range(300):
            await asyncio.sleep(0)

    async def play() -> Any:
        one = asyncio.create_task(accel.scan("d/", "key = 77", store=store, cache=cache).to_table_async())
        await settle()
        other = asyncio.create_task(
            accel.scan("d/0000.parquet", "key = 2", store=store, cache=cache).to_table_async()
        )
        await settle()
        one.cancel()
        await asyncio.wait([one])
        freed.set()
        async with asyncio.timeout(20):
            return await other

    store.read, store.wanted = wait, 0  # type: ignore[method-assign]
    assert io_loop.run(play())["key"].to_pylist() == [2]
    assert len(cache.single_flight) == 0


def counted_between(store: Paged) -> list[int]:
    """How many files' ends were asked for by the time that the second page of the listing comes."""
    asked: list[int] = []

    async def between() -> None:
        await store.until_read()
        for _ in range(200):
            await asyncio.sleep(0)
        asked.append(len(store.read_of))

    store.between = between
    return asked


def test_no_more_is_held_than_memory_limit_has_room_for(store: Paged) -> None:
    """Nothing that comes is let go before all files are known."""
    options = accel.Options(memory_limit=4 * 5 * 128 * 1024, max_files_in_flight=256)
    store.wanted = 5
    asked = counted_between(store)
    scan = accel.scan("d/", "key = 77", store=store, cache=accel.Cache(), options=options)
    assert keys(scan) == [77]
    assert asked[0] == 5


def test_nor_where_longer_ends_have_been_learned_to_be_worth_it(store: Paged) -> None:
    end = 1 << 20
    options = accel.Options(memory_limit=4 * 5 * end, max_files_in_flight=256)
    cache = accel.Cache()
    token = client_for("store:", store=store, options=options).token
    cache.put(CacheKey(token, "d", None, Entry.TAIL_HINT), end, 256)
    store.wanted = 5
    asked = counted_between(store)
    assert keys(accel.scan("d/", "key = 77", store=store, cache=cache, options=options)) == [77]
    assert asked[0] == 5


def test_a_first_file_that_is_known_by_its_schema_holds_up_no_other(store: Paged) -> None:
    store.wanted = 0
    scan = accel.scan("d/", "key = 77", store=store, cache=accel.Cache())
    assert scan.schema.names == ["key"]
    store.read_of, store.wanted = [], PAGE - 1
    others_wait(store)
    assert keys(scan) == [77]
    assert "d/0000.parquet" not in store.read_of


def test_of_a_pattern_those_that_match(store: Paged) -> None:
    store.wanted = 5
    assert keys(accel.scan("d/*[02468].parquet", "key IN (72, 77)", store=store, cache=None)) == [72]
    assert {path[-9] for path in store.read_of} == set("02468")


def test_an_object_that_is_named_like_the_pattern_is_all_that_is_meant(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_PAGE", PAGE)
    store = Paged({**objects, "d/[0z]*": objects["d/0019.parquet"]})
    store.wanted = 0
    cache = accel.Cache()
    assert keys(accel.scan("d/[0z]*", store=store, cache=cache)) == [76, 77, 78, 79]
    assert opening_tasks() == []
    assert len(cache.single_flight) == 0
