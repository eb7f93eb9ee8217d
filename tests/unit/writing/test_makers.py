from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.writing.index_building import Timed, make_maker


def chunk(value: int) -> ChunkValues:
    return ChunkValues(pa.array([value]), np.zeros(1, np.int64), 1)


class Sum(IndexKind):
    name = "sum"
    levels = frozenset(Level)
    most = 99
    """Chunks that it takes."""

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        total = 0
        for count, each in enumerate(chunks):
            total += each.array[0].as_py()
            if total == 13:
                raise RuntimeError("thirteen")
            if count + 1 == self.most:
                break
        return str(total).encode()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("accel-index")]


@pytest.mark.parametrize("level", [Level.FILE, Level.PAGE])
def test_a_kind_without_a_builder(level: Level) -> None:
    maker = make_maker(Sum(), level)
    for value in (1, 2, 3):
        maker.add(chunk(value))
    assert maker.finish() == b"6"
    maker.close()
    assert threads() == []


def test_one_that_stops_early_is_given_no_more() -> None:
    kind = Sum()
    kind.most = 2  # type: ignore[misc]
    maker = make_maker(kind, Level.FILE)
    for value in (1, 2, 3, 4):
        maker.add(chunk(value))
    assert maker.finish() == b"3"


def test_one_that_asks_for_nothing() -> None:
    class Nothing(Sum):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            return b"nothing"

    maker = make_maker(Nothing(), Level.FILE)
    maker.add(chunk(1))
    assert maker.finish() == b"nothing"


def test_one_that_fails() -> None:
    maker = make_maker(Sum(), Level.FILE)
    maker.add(chunk(13))
    maker.add(chunk(1))
    with pytest.raises(RuntimeError, match="thirteen"):
        maker.finish()
    assert threads() == []


def test_one_that_is_left_half_way() -> None:
    maker = make_maker(Sum(), Level.FILE)
    maker.add(chunk(1))
    assert len(threads()) == 1
    maker.close()
    assert threads() == []


def test_seconds_are_those_of_the_kind_alone() -> None:
    class Slow(Sum):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            for _ in chunks:
                until = time.thread_time() + 0.02
                while time.thread_time() < until:
                    pass
            return b""

    for level in (Level.FILE, Level.PAGE):
        maker = Timed(make_maker(Slow(), level))
        for value in range(3):
            maker.add(chunk(value))
        time.sleep(0.05)
        maker.finish()
        assert 0.05 < maker.seconds < 0.5
