"""What is kept of the last listing of a source, for whom, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

import accel
from accel.cache.cache_key import CacheKey, Entry
from accel.planning.file_entry import FileBlock, FileEntry
from accel.tables.last_listing import LastListing

NO_COLUMNS = pa.schema([])


def listing(*versions: str, partitions: pa.Schema = NO_COLUMNS) -> FileBlock:
    """One file for each etag."""
    files = (
        FileEntry("s3://b", f"d/{at}", f"s3://b/d/{at}", 100, etag, tuple(range(len(partitions))))
        for at, etag in enumerate(versions)
    )
    return FileBlock(tuple(files), partitions, 1)


def last(cache: accel.Cache, token: str = "mine") -> LastListing:
    return LastListing(cache, CacheKey(token, "k", None, Entry.LISTING))


def note(cache: accel.Cache, found: FileBlock) -> FileBlock:
    return asyncio.run(last(cache).note(found))


def test_a_source_that_holds_the_same_as_before_keeps_its_files() -> None:
    cache = accel.Cache()
    assert last(cache).recall() is None
    first = listing('"1"', '"2"')
    assert note(cache, first) is first
    assert last(cache).recall() is first
    again = note(cache, replace(listing('"1"', '"2"'), round_trips=3))
    assert again.files is first.files
    assert again.round_trips == 3


@pytest.mark.parametrize(
    "other",
    [
        listing('"1"', '"2"', '"3"'),
        listing('"1"'),
        listing('"1"', '"3"'),
        listing('"1"', '"2"', partitions=pa.schema([("a", pa.int64())])),
        replace(listing('"1"', '"2"'), files=listing('"1"', '"2"').files[::-1]),
        replace(listing('"1"', '"2"'), files=tuple(replace(f, size=99) for f in listing('"1"', '"2"').files)),
    ],
)
def test_one_that_has_changed_is_believed_when_it_was_the_same_twice(other: FileBlock) -> None:
    cache = accel.Cache()
    note(cache, listing('"1"', '"2"'))
    assert note(cache, other) is other
    assert last(cache).recall() is None
    assert note(cache, replace(other, files=tuple(other.files))).files is other.files
    found = last(cache).recall()
    assert found is not None
    assert found.files is other.files


def test_what_other_credentials_have_listed_is_not_told() -> None:
    cache, own = accel.Cache(), listing('"1"')
    note(cache, own)
    assert last(cache, token="yours").recall() is None
    other = listing('"1"')
    assert asyncio.run(last(cache, token="yours").note(other)).files is other.files
    assert last(cache, token="yours").recall() is other
    # Nor do they push out one another's.
    assert last(cache).recall() is own


def test_what_is_read_early_may_push_it_out_of_the_cache() -> None:
    cache, first = accel.Cache(), listing('"1"')
    note(cache, first)
    for _ in range(2):  # nor is it taken for changed the next time
        early = last(cache)
        assert early.recall() is not None
        cache.clear()
        again = asyncio.run(early.note(listing('"1"')))
        assert again.files is first.files
    early = last(cache)
    early.recall()
    cache.clear()
    other = listing('"2"')
    assert asyncio.run(early.note(other)) is other
    assert last(cache).recall() is None  # it has changed since


@pytest.mark.parametrize("lacking", [{"etag": None}, {"size": None}])
def test_files_without_a_version_are_not_kept(lacking: dict[str, None]) -> None:
    cache = accel.Cache()
    note(cache, listing('"1"', '"2"'))
    one, two = listing('"1"', '"2"').files
    bare = FileBlock((one, replace(two, **lacking)), NO_COLUMNS, 1)  # type: ignore[arg-type]
    assert note(cache, bare) is bare
    assert cache.stats().entries == 0


def test_a_listing_takes_no_more_than_an_eighth_of_the_memory() -> None:
    found = listing(*(f'"{at}"' for at in range(1000)))
    large = accel.Cache()
    note(large, found)
    nbytes = large.stats().nbytes
    assert 300_000 < nbytes < 400_000
    for memory, entries in ((8 * nbytes, 1), (8 * nbytes - 8, 0)):
        cache = accel.Cache(memory=memory)
        note(cache, found)
        assert cache.stats().entries == entries
    # Nor does an older one stay that is not so any more.
    cache = accel.Cache(memory=4 * nbytes)
    note(cache, listing('"1"'))
    note(cache, found)
    assert cache.stats().entries == 0
