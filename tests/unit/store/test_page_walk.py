"""Servers whose listings go round in circles, or stop short: nothing is asked for without an end, nothing
left out."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

import pytest

from accel.errors import StoreError
from accel.store import listing
from accel.store.listing import PageWalk
from accel.store.range_store import ObjectEntry

PAGE = 3

Pages = Iterable[str]
"""Of a listing, the keys of each page: a letter each."""


class Scripted:
    """Answers from where it is asked to begin as it was told to."""

    def __init__(self, answer: Callable[[str | None], Pages], *, cuts: bool = True) -> None:
        self.answer = answer
        self.cuts_listings = cuts
        self.asked: list[str | None] = []
        """Of each request what it was to begin after."""

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        pages = iter(self.answer(after))
        self.asked.append(after)
        for number, page in enumerate(pages):
            if number:
                self.asked.append(after)
            yield [ObjectEntry(key, 1) for key in page]


async def walked(store: Scripted, after: str | None = None) -> str:
    """All keys as they came; what was counted is what was asked."""
    walk = PageWalk(store, "d", after=after, page_keys=PAGE)
    came = ""
    try:
        async for page in walk.pages():
            came += "".join(entry.path for entry in page)
            assert came == "".join(entry.path for entry in walk.entries)
    finally:
        assert walk.requests == len(store.asked)
    return came


def in_pages(keys: str) -> list[str]:
    return [keys[start : start + PAGE] for start in range(0, len(keys), PAGE)]


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ("", [None]),
        ("ab", [None]),
        ("abc", [None, "c"]),
        ("abcd", [None, None]),
        ("abcdef", [None, None, "f"]),
    ],
)
async def test_only_what_ends_with_a_full_page_is_asked_for_more(keys: str, asked: list[str | None]) -> None:
    store = Scripted(lambda after: in_pages(keys if after is None else keys[keys.index(after) + 1 :]))
    assert (await walked(store), store.asked) == (keys, asked)


@pytest.mark.parametrize("after", [None, "a"])
async def test_a_store_that_gives_no_token_is_listed_on_from_the_last_key(after: str | None) -> None:
    keys = "bcdefghijk"
    store = Scripted(lambda after: in_pages("".join(key for key in keys if key > (after or "")))[:1])
    assert (await walked(store, after), store.asked) == (keys, [after, "d", "g", "j"])


async def test_one_that_lists_from_no_key_may_have_left_out_the_rest() -> None:
    store = Scripted(lambda after: ["abc"])
    with pytest.raises(StoreError) as caught:
        await walked(store)
    assert str(caught.value) == (
        "d: the listing may be cut short after its first 3 keys: this store lists from no key "
        "(it may only know ListObjects of version 1: name the files, or smaller directories)"
    )
    assert (store.asked, caught.value.transient) == ([None, "c"], False)


@pytest.mark.parametrize(
    ("store", "keys", "asked"),
    [
        pytest.param(
            Scripted(lambda after: ["abc", "def"]), "abcdef", [None, None, "f"], id="its tokens work"
        ),
        pytest.param(
            Scripted(lambda after: ["abc"] if after is None else ["c"]),
            "abc",
            [None, "c"],
            id="a marker of the last key's name",
        ),
        pytest.param(Scripted(lambda after: ["abc"], cuts=False), "abc", [None], id="it says that it cannot"),
        pytest.param(
            Scripted(lambda after: ["", "abc"] if after is None else [""]),
            "abc",
            [None, None, "c"],
            id="empty pages",
        ),
    ],
)
async def test_listings_that_have_ended(store: Scripted, keys: str, asked: list[str | None]) -> None:
    assert (await walked(store), store.asked) == (keys, asked)


# -- circles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pages", "requests"),
    [
        pytest.param(lambda: itertools.repeat("abc"), 4, id="one token"),
        pytest.param(lambda: itertools.cycle(["abc", "def"]), 5, id="two in turn"),
        pytest.param(lambda: itertools.cycle(["ab", ""]), 7, id="empty pages between"),
        pytest.param(lambda: itertools.chain(["abc", "def"], itertools.repeat("f")), 5, id="the last key"),
    ],
)
async def test_the_same_keys_over_and_over_are_given_up(
    pages: Callable[[], Iterator[str]], requests: int
) -> None:
    store = Scripted(lambda after: pages())
    with pytest.raises(StoreError) as caught:
        await walked(store)
    assert str(caught.value) == (
        "d: the store lists the same keys over and over "
        "(its continuation tokens lead nowhere: name the files)"
    )
    assert (len(store.asked), caught.value.transient) == (requests, False)


async def test_empty_pages_without_an_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_EMPTY", 5)
    store = Scripted(lambda after: itertools.chain(["", "", "", "ab"], itertools.repeat("")))
    with pytest.raises(StoreError, match="^d: the store sends empty pages without an end$"):
        await walked(store)
    assert len(store.asked) == 9


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(["abc", "cde", "f"], id="the last key again"),
        pytest.param(["abc", "c", "c", "de"], id="twice"),
        pytest.param(["ghi", "def", "abc", "l"], id="backwards"),
        pytest.param(["xyz", *"abcdefg"], id="by another order"),
    ],
)
async def test_what_brings_new_keys_goes_on(pages: list[str]) -> None:
    assert await walked(Scripted(lambda after: pages)) == "".join(pages)


async def test_a_failure_is_counted_as_a_request() -> None:
    def answer(after: str | None) -> Iterator[str]:
        yield "abc"
        store.asked.append(after)
        raise StoreError("503", path="d", transient=True)

    store = Scripted(answer)
    with pytest.raises(StoreError, match="503"):
        await walked(store)
