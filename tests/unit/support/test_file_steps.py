"""Steps driven by a function."""

from __future__ import annotations

import pytest

from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from tests.support.file_steps import drive

WANT = Want(ReadKey(Kind.FOOTER), ByteRange(0, 3))


def steps(asked: list[object]) -> Steps[str]:
    tail = yield TailRequest(5)
    asked.append(tail)
    stash = yield ReadRequest((WANT,))
    asked.append(stash)
    return "done"


def test_each_need_is_answered_in_turn() -> None:
    tail = Tail(memoryview(b"12345"), 0, 5, None)
    stash: Stash = {WANT.key: memoryview(b"123")}
    needs: list[object] = []

    def answer(need: ReadRequest | TailRequest) -> Stash | Tail:
        needs.append(need)
        return tail if isinstance(need, TailRequest) else stash

    asked: list[object] = []
    assert drive(steps(asked), answer) == "done"
    assert needs == [TailRequest(5), ReadRequest((WANT,))]
    assert asked == [tail, stash]


def test_steps_that_need_nothing() -> None:
    def nothing() -> Steps[int]:
        return 7
        yield

    def answer(need: ReadRequest | TailRequest) -> Stash | Tail:
        raise AssertionError(f"{need} was asked for")

    assert drive(nothing(), answer) == 7


def test_what_the_network_raises_goes_through() -> None:
    def answer(need: ReadRequest | TailRequest) -> Stash | Tail:
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        drive(steps([]), answer)
