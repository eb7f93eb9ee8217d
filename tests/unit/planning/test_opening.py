"""From the tail of a file to its footer: exact requests, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import EncryptedFileError, ParquetFormatError
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes, footer_start

DATA = write_file(table(x=pa.array(np.arange(5000))), Layout(page_rows=500, dictionary=False, codec="none"))
FOOTER = len(DATA) - footer_start(DATA)
"""Bytes from the footer's first to the file's end."""


@pytest.mark.parametrize("hint", [FOOTER, FOOTER + 1, FOOTER + 300, len(DATA) - 1, len(DATA), len(DATA) + 10])
def test_one_request_where_the_hint_is_long_enough(hint: int) -> None:
    source = Bytes(DATA)
    handle = source.open(hint)
    assert source.waves == [hint]
    assert handle.id == ObjectId("f", len(DATA), '"v1"')
    assert handle.metadata.num_rows == 5000
    assert handle.arrow_schema.equals(pa.schema([("x", pa.int64())]))


@pytest.mark.parametrize("hint", [1, 8, 9, FOOTER - 1])
def test_the_rest_of_a_longer_footer_and_only_that(hint: int) -> None:
    source = Bytes(DATA)
    handle = source.open(hint)
    first = max(hint, 8)
    want = Want(ReadKey(Kind.FOOTER), ByteRange(footer_start(DATA), len(DATA) - first))
    assert source.waves == [first, (want,)]
    assert handle.metadata.num_rows == 5000
    assert len(handle.tail) == 0


def test_what_is_kept_are_the_indexes_that_came_along() -> None:
    handle = Bytes(DATA).open(len(DATA) - 1000)
    start = handle.tail_start
    chunks = handle.metadata.chunks
    first = min(int(chunks.column_index_offset[0, 0]), int(chunks.offset_index_offset[0, 0]))
    assert start == first == len(DATA) - handle.suggested_tail_bytes()
    assert bytes(handle.tail) == DATA[start : footer_start(DATA)]
    assert handle.in_tail(ByteRange(start, start + 5)) == DATA[start : start + 5]
    assert handle.in_tail(ByteRange(start - 1, start + 5)) is None
    assert handle.in_tail(ByteRange(start, footer_start(DATA) + 1)) is None


def test_a_file_that_came_whole_is_kept_whole() -> None:
    handle = Bytes(DATA).open(len(DATA))
    assert (handle.tail_start, bytes(handle.tail)) == (0, DATA[: footer_start(DATA)])


def test_the_kept_bytes_hold_no_response() -> None:
    """A slice would keep the whole tail alive."""
    response = bytearray(DATA)
    source = Bytes(bytes(response))
    handle = source.open(len(DATA) - 1000)
    assert isinstance(handle.tail, bytes)


def damaged(name: str) -> bytes:
    length = len(DATA) - footer_start(DATA) - 8
    return {
        "short": b"PAR1" + b"PAR1",
        "eleven bytes": b"PAR1xxxPAR1",
        "magic": DATA[:-4] + b"PARX",
        "encrypted": DATA[:-4] + b"PARE",
        "longer than the file": DATA[:-8] + (len(DATA)).to_bytes(4, "little") + b"PAR1",
        "into the first magic": DATA[:-8] + (len(DATA) - 8 - 3).to_bytes(4, "little") + b"PAR1",
        "cut": DATA[:-8] + (length - 1).to_bytes(4, "little") + b"PAR1",
    }[name]


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("short", ParquetFormatError, "8 bytes are too few for a Parquet file"),
        ("eleven bytes", ParquetFormatError, "11 bytes are too few for a Parquet file"),
        ("magic", ParquetFormatError, "it ends with b'PARX', not b'PAR1'"),
        ("encrypted", EncryptedFileError, "the footer is encrypted"),
        ("longer than the file", ParquetFormatError, f"the footer claims {len(DATA)} bytes"),
        ("into the first magic", ParquetFormatError, f"the footer claims {len(DATA) - 11} bytes"),
        ("cut", ParquetFormatError, "footer"),
    ],
)
@pytest.mark.parametrize("hint", [8, 1 << 20])
def test_damage(name: str, kind: type[Exception], text: str, hint: int) -> None:
    with pytest.raises(kind, match=text):
        Bytes(damaged(name)).open(hint)


@pytest.mark.parametrize("name", ["short", "magic"])
def test_what_may_be_no_parquet_at_all_is_told_with_a_pattern(name: str) -> None:
    with pytest.raises(ParquetFormatError) as caught:
        Bytes(damaged(name)).open(8)
    assert (caught.value.hint or "").endswith(
        "For a directory with other files too, name dir/*.parquet, or dir/**/*.parquet"
    )


def test_a_footer_longer_than_allowed_is_not_asked_for() -> None:
    source = Bytes(DATA)
    with pytest.raises(ParquetFormatError) as caught:
        source.open(8, max_footer_bytes=FOOTER - 9)
    assert source.waves == [8]
    assert caught.value.place == "footer"
    assert "options.max_footer_bytes" in str(caught.value.hint)
    assert Bytes(DATA).open(8, max_footer_bytes=FOOTER - 8).metadata.num_rows == 5000
