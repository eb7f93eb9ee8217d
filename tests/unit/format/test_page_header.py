"""Page headers: each field, damaged ones, and whole chunks walked one by one and together."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import ParquetFormatError
from accel.format.model import Encoding, PageType
from accel.format.page_header import parse_page_header, walk_chunks, walk_pages
from accel.format.thrift import BINARY, FALSE, I32, I64, STRUCT, TRUE, write_struct
from tests.unit.format.files import parse, write


def header(kind: int, *, size: int = 100, stored: int = 60, crc: int | None = None, **inner: dict) -> bytes:
    fields: dict = {1: (I32, kind), 2: (I32, size), 3: (I32, stored)}
    if crc is not None:
        fields[4] = (I32, crc)
    fields |= {int(name[1:]): (STRUCT, value) for name, value in inner.items()}
    return write_struct(fields)


V1 = {1: (I32, 10), 2: (I32, 8), 3: (I32, 3), 4: (I32, 3), 5: (STRUCT, {6: (BINARY, b"min")})}
V2 = {1: (I32, 10), 2: (I32, 4), 3: (I32, 9), 4: (I32, 0), 5: (I32, 6), 6: (I32, 2)}
DICTIONARY = {1: (I32, 7), 2: (I32, 2), 3: (TRUE, True)}

PLAIN = {
    "uncompressed_size": 100,
    "compressed_size": 60,
    "num_rows": -1,
    "num_nulls": -1,
    "repetition_bytes": 0,
    "definition_bytes": 0,
    "is_compressed": True,
    "crc": None,
    "level_encoding": -1,
}
HEADERS = {
    "v1": (header(0, f5=V1), {"type": 0, "num_values": 10, "encoding": 8, "level_encoding": 3}),
    "v1 with crc": (
        header(0, crc=-2, f5=V1),
        {"type": 0, "num_values": 10, "encoding": 8, "crc": 0xFFFFFFFE, "level_encoding": 3},
    ),
    "dictionary": (header(2, f7=DICTIONARY), {"type": 2, "num_values": 7, "encoding": 2}),
    "v2": (
        header(3, f8=V2),
        {
            "type": 3,
            "num_values": 10,
            "num_nulls": 4,
            "num_rows": 9,
            "encoding": 0,
            "definition_bytes": 6,
            "repetition_bytes": 2,
        },
    ),
    "index page": (header(1, f6={}), {"type": 1, "num_values": 0, "encoding": -1}),
    "page of the future": (header(9), {"type": 9, "num_values": 0, "encoding": -1}),
    "another page's header besides": (
        header(0, f5=V1, f8=V2),
        {"type": 0, "num_values": 10, "encoding": 8, "level_encoding": 3},
    ),
}


@pytest.mark.parametrize(("encoded", "fields"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(encoded, fields):
    found = parse_page_header(b"..." + encoded + b"body", 3)
    assert found._asdict() == PLAIN | fields | {"header_length": len(encoded)}


@pytest.mark.parametrize(("flag", "outcome"), [(TRUE, True), (FALSE, False)])
def test_a_v2_page_says_whether_it_is_compressed(flag, outcome):
    encoded = header(3, f8=V2 | {7: (flag, outcome)})
    assert parse_page_header(encoded).is_compressed is outcome


LIES = {
    "no type": write_struct({2: (I32, 1), 3: (I32, 1)}),
    "negative type": header(-3, f5=V1),
    "no sizes": write_struct({1: (I32, 0), 5: (STRUCT, V1)}),
    "negative size": header(0, stored=-1, f5=V1),
    "negative uncompressed size": header(0, size=-1, f5=V1),
    "size beyond 31 bits": header(0, stored=1 << 31, f5=V1),
    "crc beyond 32 bits": header(0, crc=1 << 33, f5=V1),
    "no inner header": header(0),
    "another page's inner header": header(0, f7=DICTIONARY),
    "negative values": header(0, f5=V1 | {1: (I32, -1)}),
    "no values": header(0, f5={2: (I32, 0)}),
    "no encoding": header(0, f5={1: (I32, 1)}),
    "encoding beyond a byte": header(0, f5=V1 | {2: (I32, 300)}),
    "dictionary without values": header(2, f7={2: (I32, 0)}),
    "levels longer than the page": header(3, f8=V2 | {5: (I32, 59)}),
    "negative levels": header(3, f8=V2 | {5: (I32, -6), 6: (I32, 6)}),
    "more nulls than values": header(3, f8=V2 | {2: (I32, 11)}),
    "more rows than values": header(3, f8=V2 | {3: (I32, 11)}),
    **{f"v2 without field {n}": header(3, f8={k: v for k, v in V2.items() if k != n}) for n in range(1, 7)},
    **{f"v1 without field {n}": header(0, f5={k: v for k, v in V1.items() if k != n}) for n in range(1, 5)},
    "ends early": header(0, f5=V1)[:-1],
    "nothing": b"",
}


@pytest.mark.parametrize("encoded", LIES.values(), ids=LIES.keys())
def test_headers_that_cannot_be_are_refused(encoded):
    with pytest.raises(ParquetFormatError) as caught:
        parse_page_header(encoded)
    assert caught.value.place == "page header at byte 0"


ROWS = 3000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_walking_whole_chunks(version):
    values = pa.array([None if i % 5 == 0 else i % 50 for i in range(ROWS)], pa.int64())
    raw = write(
        pa.Table.from_arrays([values, pa.array(np.arange(ROWS))], ["n", "i"]),
        data_page_version=version,
        max_rows_per_page=200,
        use_dictionary=["n"],
        compression="zstd",
        write_page_checksum=True,
    )
    chunks = parse(raw).chunks
    for column, encoding in ((0, Encoding.RLE_DICTIONARY), (1, Encoding.PLAIN)):
        start, end = int(chunks.start[0, column]), int(chunks.end[0, column])
        pages = walk_pages(memoryview(raw)[start:end], max_pages=16)
        data = pages.type != PageType.DICTIONARY_PAGE
        assert pages.num_pages == 15 + (column == 0)
        assert (pages.start[0], pages.end[-1]) == (0, end - start)
        assert (pages.start[1:] == pages.end[:-1]).all()
        assert pages.num_values[data].sum() == chunks.num_values[0, column] == ROWS
        assert set(pages.encoding[data].tolist()) == {encoding}
        assert (pages.uncompressed + pages.body - pages.start).sum() == chunks.uncompressed[0, column]
        if version == "2.0":
            assert pages.num_rows[data].tolist() == [200] * 15
            assert pages.num_nulls[data].sum() == (600 if column == 0 else 0)
            assert (pages.level_bytes[data] > 0).all()
        else:
            assert set(pages.num_rows.tolist() + pages.num_nulls.tolist()) == {-1}
        if column == 0:
            assert (pages.type[0], pages.num_values[0]) == (PageType.DICTIONARY_PAGE, 40)
        for page in range(pages.num_pages):
            one = parse_page_header(raw, start + int(pages.start[page]))
            assert one.header_length == pages.body[page] - pages.start[page]
            body = raw[start + pages.body[page] : start + pages.end[page]]
            assert one.crc == zlib.crc32(body)


def test_a_walk_may_stop_at_the_values_and_leave_padding():
    page = header(0, stored=4, size=4, f5=V1) + b"body"
    assert walk_pages(page * 3 + b"\xff" * 100, max_pages=9, num_values=30).num_pages == 3
    with pytest.raises(ParquetFormatError):
        walk_pages(page * 3 + b"\xff" * 100, max_pages=9)
    assert walk_pages(b"", max_pages=0).num_pages == 0


def test_a_walk_is_bounded():
    page = header(0, stored=0, size=0, f5=V1)
    assert walk_pages(page * 5, max_pages=5).num_pages == 5
    with pytest.raises(ParquetFormatError, match="more than 4 pages"):
        walk_pages(page * 5, max_pages=4)


def test_a_body_beyond_the_bytes_is_refused():
    with pytest.raises(ParquetFormatError, match="60 bytes where 59 are left") as caught:
        walk_pages(header(0, f5=V1) + bytes(59), max_pages=1)
    assert caught.value.place == "page header at byte 0"


DATA = header(0, stored=4, size=4, f5=V1) + b"body"
ENTRIES = header(2, stored=3, size=3, f7=DICTIONARY) + b"abc"
CHUNKS = {
    "each with a dictionary": [ENTRIES + DATA, ENTRIES + DATA * 2, ENTRIES + DATA],
    "with other headers between": [
        DATA,
        header(3, stored=8, size=9, f8=V2) + b"a newer one"[:8] + DATA,
        DATA,
    ],
    "with padding": [DATA + b"\xff" * 9, DATA * 3 + b"\0", DATA],
    "of which one is empty": [DATA, b"", DATA],
    "none": [],
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_chunks_walked_together_have_the_pages_of_each(chunks: list[bytes]) -> None:
    values = [10 * (chunk.count(b"body") + chunk.count(b"a newer")) for chunk in chunks]
    table, counts = walk_chunks(chunks, num_values=values, max_pages=9)
    each = [walk_pages(chunk, max_pages=9, num_values=due) for chunk, due in zip(chunks, values, strict=True)]
    assert counts.tolist() == [pages.num_pages for pages in each]
    for name in ("start", "body", "end", "uncompressed", "crc", "num_values", "type", "num_rows", "num_nulls",
                 "encoding", "level_bytes", "definition_bytes", "is_compressed", "level_encoding"):  # fmt: skip
        found = getattr(table, name)
        assert found.tolist() == [one for pages in each for one in getattr(pages, name).tolist()], name
        assert not each or found.dtype == getattr(each[0], name).dtype, name


def test_the_bound_holds_for_each_of_several_chunks() -> None:
    _, counts = walk_chunks([DATA * 4] * 3, num_values=[40] * 3, max_pages=4)
    assert counts.tolist() == [4, 4, 4]
    with pytest.raises(ParquetFormatError, match="more than 4 pages"):
        walk_chunks([DATA, DATA * 5], num_values=[10, 50], max_pages=4)


def test_the_last_of_several_chunks_ends_too_soon() -> None:
    with pytest.raises(ParquetFormatError, match="4 bytes where 3 are left"):
        walk_chunks([DATA, DATA[:-1]], num_values=[10, 10], max_pages=4)
    with pytest.raises(ParquetFormatError, match="ends early"):
        walk_chunks([DATA, DATA[:9]], num_values=[10, 10], max_pages=4)


def test_many_chunks_of_every_kind_have_the_pages_of_each() -> None:
    """So many that the headers of all are read at once, but for those that are not as usual."""
    longest = {1: (BINARY, b"a" * 60), 2: (BINARY, b"b" * 60), 3: (I64, 4)}
    others = [
        header(0, stored=4, size=4, f5={**V1, 5: (STRUCT, longest)}) + b"body",
        header(0, stored=4, size=4, f5={**V1, 5: (STRUCT, {3: (I64, 4), 5: (BINARY, b"z")})}) + b"body",
        header(3, stored=8, size=9, f8=V2) + b"body no." + DATA,
        header(1, stored=3, size=3) + b"abc" + DATA,
        b"",
        DATA,
    ]
    chunks = [chunk for other in [*CHUNKS["with padding"], *others] * 12 for chunk in (other, ENTRIES + DATA)]
    values = [10 * max(1, chunk.count(b"body")) for chunk in chunks]
    table, counts = walk_chunks(chunks, num_values=values, max_pages=9)
    each = [walk_pages(chunk, max_pages=9, num_values=due) for chunk, due in zip(chunks, values, strict=True)]
    assert len(chunks) > 200
    assert counts.tolist() == [pages.num_pages for pages in each]
    for found, *parts in zip(table, *each, strict=True):
        assert found.tolist() == [one for part in parts for one in part.tolist()]


def test_the_first_of_many_chunks_that_is_wrong_is_told() -> None:
    chunks = [DATA] * 100 + [DATA[:-1], DATA[:9]]
    with pytest.raises(ParquetFormatError, match="4 bytes where 3 are left"):
        walk_chunks(chunks, num_values=[10] * 102, max_pages=4)
    with pytest.raises(ParquetFormatError, match="more than 4 pages"):
        walk_chunks([DATA] * 100 + [DATA * 5, DATA[:9]], num_values=[50] * 102, max_pages=4)
