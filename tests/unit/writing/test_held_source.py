from __future__ import annotations

from accel.writing.source import HeldSource
from tests.unit.writing.test_survey import Far


def test_what_is_held_is_read_once() -> None:
    far = Far(bytes(range(100)))
    source = HeldSource(far, most_held=50)
    assert (source.name, source.size, source.window) == (far.name, 100, far.window)
    source.hold(20, 60)
    assert [bytes(data) for data in source.read([(20, 22), (58, 60), (30, 30)])] == [b"\x14\x15", b":;", b""]
    assert far.reads == [(20, 60)]
    # Beyond what is held the source is asked, for all.
    assert [bytes(data) for data in source.read([(20, 21), (60, 61)])] == [b"\x14", b"<"]
    assert far.reads[1:] == [(20, 21), (60, 61)]
    source.release()
    source.read([(20, 21)])
    assert far.reads[3:] == [(20, 21)]


def test_what_is_too_long_is_not_held() -> None:
    far = Far(bytes(100))
    source = HeldSource(far, most_held=50)
    source.hold(0, 51)
    source.hold(5, 5)
    assert far.reads == []
    assert source.read([]) == []
