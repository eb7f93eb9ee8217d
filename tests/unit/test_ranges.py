"""Byte ranges and the names of what is read."""

from __future__ import annotations

import pytest

from accel.ranges import ByteRange, Kind, ReadKey, Suffix


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (5, 4), (-1, 3), (-3, -1)])
def test_what_is_no_range(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"not a byte range: {start}..{end}"):
        ByteRange(start, end)


@pytest.mark.parametrize("length", [0, -1])
def test_what_is_no_suffix(length: int) -> None:
    with pytest.raises(ValueError, match="not a suffix length"):
        Suffix(length)


def test_the_shortest_of_both() -> None:
    assert (Suffix(1).length, ByteRange(0, 1).length) == (1, 1)


@pytest.mark.parametrize(
    ("other", "covered"),
    [((10, 20), True), ((11, 19), True), ((9, 15), False), ((15, 21), False), ((30, 40), False)],
)
def test_cover(other: tuple[int, int], covered: bool) -> None:
    assert ByteRange(10, 20).covers(ByteRange(*other)) is covered


def test_they_sort_by_their_start_and_tell_themselves() -> None:
    assert sorted([ByteRange(5, 9), ByteRange(0, 2), ByteRange(5, 6)]) == [
        ByteRange(0, 2),
        ByteRange(5, 6),
        ByteRange(5, 9),
    ]
    assert (str(ByteRange(5, 9)), ByteRange(5, 9).length, str(Suffix(8))) == ("bytes 5..9", 4, "last 8 bytes")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ReadKey(Kind.FOOTER), "footer"),
        (ReadKey(Kind.PAGE, 2, 7, 3), "data page 3, row group 2, column 7"),
        (ReadKey(Kind.DICTIONARY, 0, 0), "dictionary page, row group 0, column 0"),
        (ReadKey(Kind.CHUNK, 1), "column chunk, row group 1"),
    ],
)
def test_keys_tell_what_is_read(key: ReadKey, text: str) -> None:
    assert str(key) == text
