"""Heads packed and unpacked; what is no packed head is refused."""

from __future__ import annotations

import pytest

from accel.errors import IndexFormatError
from accel.format.embedded import LONGEST_HEAD, pack_head, unpack_head

HEAD = bytes(range(256)) * 40


def test_there_and_back() -> None:
    packed = pack_head(HEAD)
    assert len(packed) < len(HEAD)
    assert unpack_head(packed, len(HEAD)) == HEAD


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 10),
        (b"no frame", 10),
        (pack_head(HEAD)[:-5], len(HEAD)),
        (pack_head(HEAD), len(HEAD) - 1),
        (pack_head(HEAD), 0),
        (pack_head(HEAD), -1),
        (pack_head(HEAD), LONGEST_HEAD + 1),
    ],
    ids=["nothing", "another thing", "cut", "longer", "of none", "of less", "of too much"],
)
def test_what_is_none_is_refused(data: bytes, length: int) -> None:
    with pytest.raises(IndexFormatError):
        unpack_head(data, length)
