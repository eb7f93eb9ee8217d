"""How much of a file's end is read first: by rule, as given, and as learned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import accel
from accel.io.network import Network
from accel.options import KIB, MIB
from accel.planning.file import DataFile
from accel.planning.opening import first_tail_bytes
from accel.tail_hints import TailHints

GIB = 1024 * MIB


def client(root: str = "s3://b", *, latency: float = 0.03, bandwidth: float = 90e6) -> Any:
    return SimpleNamespace(root=root, token="t", network=Network(latency=latency, bandwidth=bandwidth))


def file(path: str = "d/1.parquet", size: int | None = None) -> DataFile:
    return DataFile("s3://b", path, f"s3://b/{path}", size)


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
