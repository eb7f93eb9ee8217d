"""How much of a file's end is read first: by the default rule, as given, and as learned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import accel
from accel.options import KIB, MIB
from accel.planning.file_entry import FileEntry
from accel.planning.opening import first_tail_bytes
from accel.reader.opener import TailHints
from accel.store.network import Network

GIB = 1024 * MIB


def client(root: str = "s3://b", *, latency: float = 0.03, bandwidth: float = 90e6) -> Any:
    return SimpleNamespace(root=root, token="t", network=Network(latency=latency, bandwidth=bandwidth))


def file(path: str = "d/1.parquet", size: int | None = None) -> FileEntry:
    return FileEntry("s3://b", path, f"s3://b/{path}", size)


def opened(size: int, took: int) -> Any:
    return SimpleNamespace(id=SimpleNamespace(size=size), suggested_tail_bytes=lambda: took)


@pytest.mark.parametrize(
    ("size", "worth", "first"),
    [
        (None, GIB, 448 * KIB),
        (None, 512 * KIB, 448 * KIB),
        (None, 256 * KIB, 256 * KIB),
        (None, 0, 128 * KIB),
        (0, GIB, 128 * KIB),
        (64 * MIB, GIB, 128 * KIB),
        (100 * MIB, GIB, 200 * KIB),
        (100 * MIB, 160 * KIB, 160 * KIB),
        (GIB, GIB, 448 * KIB),
        (GIB, 64 * KIB, 128 * KIB),
    ],
)
def test_the_rule(size: int | None, worth: int, first: int) -> None:
    assert first_tail_bytes(size, worth) == first


@pytest.mark.parametrize(
    ("root", "latency", "bandwidth", "first"),
    [
        ("s3://b", 0.03, 90e6, 448 * KIB),
        ("https://h", 0.03, 90e6, 448 * KIB),
        ("s3://b", 0.015, 90e6, 256 * KIB),
        ("s3://b", 0.001, 90e6, 128 * KIB),
        ("s3://b", 0.03, 10e6, 128 * KIB),
        ("file://", 0.03, 90e6, 128 * KIB),
    ],
)
def test_never_more_than_the_way_to_the_store_is_worth(
    root: str, latency: float, bandwidth: float, first: int
) -> None:
    hints = TailHints(accel.Cache(), accel.Options())
    assert hints.of(client(root, latency=latency, bandwidth=bandwidth), file()) == first


def test_what_is_given_is_what_is_read() -> None:
    cache = accel.Cache()
    given = TailHints(cache, accel.Options(tail_hint=MIB))
    assert given.of(client(), file()) == MIB
    assert given.of(client("file://"), file(size=20 * GIB)) == MIB
    # A file that took less changes nothing for who says so, nor one that took more for who says even more.
    TailHints(cache, accel.Options()).learn(client(), file(), opened(GIB, 200 * KIB), 448 * KIB)
    assert given.of(client(), file()) == MIB
    assert TailHints(cache, accel.Options(tail_hint=64)).of(client(), file()) == 250 * KIB


@pytest.mark.parametrize(
    ("took", "learned"),
    [
        (1 * KIB, 128 * KIB),
        (120 * KIB, 150 * KIB),
        (400 * KIB, 500 * KIB),
        (MIB, MIB * 5 // 4),
        (GIB, 4 * MIB),
    ],
)
def test_the_first_file_of_a_prefix_says_what_its_like_take(took: int, learned: int) -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    hints.learn(store, file("d/1.parquet"), opened(4 * GIB, took), 448 * KIB)
    assert hints.of(store, file("d/2.parquet")) == learned
    assert hints.of(store, file("d/3.parquet", size=GIB)) == learned
    assert hints.of(store, file("e/1.parquet")) == 448 * KIB


def test_what_was_learned_only_grows() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    found = []
    for took in (200 * KIB, 100 * KIB, 300 * KIB, 2 * KIB):
        known = hints.of(store, file())
        hints.learn(store, file(), opened(GIB, took), known)
        found.append(hints.of(store, file()))
    assert found == [250 * KIB, 250 * KIB, 375 * KIB, 375 * KIB]


def test_a_file_that_came_whole_says_nothing() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    hints.learn(store, file(), opened(300 * KIB, 2 * KIB), 448 * KIB)
    assert hints.of(store, file()) == 448 * KIB


def test_a_given_length_is_only_learned_upwards() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options(tail_hint=64 * KIB)), client()
    hints.learn(store, file(), opened(GIB, 2 * KIB), 64 * KIB)
    assert hints.of(store, file()) == 64 * KIB
    hints.learn(store, file(), opened(GIB, 80 * KIB), 64 * KIB)
    assert hints.of(store, file()) == 100 * KIB


def met(hints: TailHints, store: Any, *, files: int, took: int = 2 * KIB, size: int = MIB) -> None:
    for number in range(files):
        one = file(f"d{number}/1.parquet", size=size)
        hints.learn(store, one, opened(size, took), hints.of(store, one))


@pytest.mark.parametrize(
    ("files", "took", "listed", "unlisted"),
    [
        (15, 2 * KIB, 128 * KIB, 448 * KIB),
        (16, 2 * KIB, 4 * KIB, 4 * KIB),
        (16, 40 * KIB, 50 * KIB, 50 * KIB),
        (16, 120 * KIB, 128 * KIB, 150 * KIB),
        (16, 400 * KIB, 128 * KIB, 448 * KIB),
        (2000, 10 * KIB, 12.5 * KIB, 12.5 * KIB),
    ],
)
def test_the_files_of_a_scan_say_what_the_others_take(
    files: int, took: int, listed: int, unlisted: int
) -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    met(hints, store, files=files, took=took)
    assert hints.of(store, file("e/1.parquet", size=MIB)) == listed
    assert hints.of(store, file("e/2.parquet")) == unlisted


def test_the_longest_of_them_says_it() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    met(hints, store, files=16, took=8 * KIB)
    met(hints, store, files=1, took=80 * KIB)
    met(hints, store, files=16, took=8 * KIB)
    assert hints.of(store, file("e/1.parquet", size=MIB)) == 100 * KIB


def test_small_files_come_whole() -> None:
    """Their data needs no other request, in this scan and those after it."""
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    met(hints, store, files=20)
    assert hints.of(store, file("e/1.parquet", size=32 * KIB)) == 32 * KIB
    assert hints.of(store, file("e/1.parquet", size=32 * KIB + 1)) == 4 * KIB
    # Where a file's size is not known, the smallest that the scan has met stands for it.
    met(hints, store, files=1, size=20 * KIB)
    assert hints.of(store, file("e/1.parquet")) == 32 * KIB
    assert hints.of(store, file("e/1.parquet", size=MIB)) == 4 * KIB


def test_what_small_files_take_says_nothing_of_large_ones() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options()), client()
    met(hints, store, files=50, size=32 * KIB)
    assert hints.of(store, file("e/1.parquet", size=MIB)) == 128 * KIB
    met(hints, store, files=50, size=33 * KIB)  # they came whole, too
    assert hints.of(store, file("e/1.parquet", size=MIB)) == 4 * KIB


@pytest.mark.parametrize(
    ("concurrent", "size", "first"),
    [
        (1, MIB, 128 * KIB),
        (64, MIB, 128 * KIB),
        (128, MIB, 64 * KIB),
        (512, MIB, 32 * KIB),
        (512, GIB, 32 * KIB),
        (18, GIB, 448 * KIB),
        (32, None, 256 * KIB),
    ],
)
def test_files_of_which_nothing_is_known_share_what_the_rule_may_bring(
    concurrent: int, size: int | None, first: int
) -> None:
    hints = TailHints(accel.Cache(), accel.Options())
    assert hints.of(client(), file(size=size), concurrent=concurrent) == first
    given = TailHints(accel.Cache(), accel.Options(tail_hint=300 * KIB))
    assert given.of(client(), file(size=size), concurrent=concurrent) == 300 * KIB


def test_a_scan_shows_nothing_of_another_store_nor_to_the_next_scan() -> None:
    cache, store = accel.Cache(), client()
    hints = TailHints(cache, accel.Options())
    met(hints, store, files=20)
    other = client()
    other.token = "u"
    assert hints.of(other, file("e/1.parquet", size=MIB)) == 128 * KIB
    assert TailHints(cache, accel.Options()).of(store, file("e/1.parquet", size=MIB)) == 128 * KIB


def test_a_given_length_is_not_shortened() -> None:
    hints, store = TailHints(accel.Cache(), accel.Options(tail_hint=64 * KIB)), client()
    met(hints, store, files=20)
    assert hints.of(store, file("e/1.parquet", size=MIB)) == 64 * KIB
