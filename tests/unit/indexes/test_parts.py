"""The directory of the parts of an index: where they are, and what contradicts itself."""

from __future__ import annotations

import numpy as np
import pytest

from accel.errors import IndexFormatError
from accel.indexes.parts import Directory, read_directory, write_directory
from accel.indexes.wire import BlobReader, BlobWriter

GOOD = {"first_keys": [5, 9, 2**64 - 1], "sizes": [3, 1, 2], "ends": [10, 11, 40], "checksums": [7, 8, 9]}


def written(columns: dict[str, list[int]]) -> bytes:
    kinds = {"first_keys": np.uint64, "sizes": np.int64, "ends": np.int64, "checksums": np.uint64}
    out = BlobWriter(b"test")
    write_directory(out, Directory(**{name: np.array(columns[name], kind) for name, kind in kinds.items()}))
    return out.bytes()


def test_there_and_back() -> None:
    blob = BlobReader(written(GOOD), b"test")
    found = read_directory(blob)
    blob.end()
    assert {name: getattr(found, name).tolist() for name in GOOD} == GOOD
    assert (len(found), found.length, found.spans(100)) == (3, 40, [(100, 110), (110, 111), (111, 140)])
    assert found.part_of(np.array([4, 5, 8, 9, 2**64 - 1], np.uint64)).tolist() == [-1, 0, 0, 1, 2]


def test_one_without_parts() -> None:
    found = read_directory(BlobReader(written({name: [] for name in GOOD}), b"test"))
    assert (len(found), found.length, found.spans(100)) == (0, 0, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_keys": [5, 5, 9]},
        {"first_keys": [5, 9, 8]},
        {"sizes": [3, 0, 2]},
        {"sizes": [0, 1, 2]},
        {"ends": [0, 11, 40]},
        {"ends": [10, 10, 40]},
        {"ends": [10, 41, 40]},
    ],
    ids=str,
)
def test_what_contradicts_itself(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(IndexFormatError, match="contradicts itself"):
        read_directory(BlobReader(written(GOOD | wrong), b"test"))
