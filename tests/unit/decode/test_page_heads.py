"""Headers read in lockstep are those that walking the pages gives."""

from __future__ import annotations

import dataclasses
import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import columns, verify
from accel.decode.chunks import ChunkPages
from accel.decode.page_heads import LEAST_PAGES, read_lone, read_tables
from accel.format.model import PageTable
from accel.format.page_header import walk_pages
from accel.format.thrift import FALSE, I32, STRUCT, TRUE, Struct, write_struct
from accel.planning.selection import RowSelection
from accel.ranges import Buffer
from accel.testing import DictStore
from tests.unit.decode import selected


def header(
    size: int,
    values: int,
    *,
    encoding: int = 0,
    level: int = 3,
    uncompressed: int | None = None,
    crc: int | None = None,
    extra: Struct | None = None,
    kind: int = 0,
) -> bytes:
    inner: Struct = {1: (I32, values), 2: (I32, encoding), 3: (I32, level), 4: (I32, 3), **(extra or {})}
    fields: Struct = {
        1: (I32, kind),
        2: (I32, size if uncompressed is None else uncompressed),
        3: (I32, size),
    }
    if crc is not None:
        fields[4] = (I32, crc)
    fields[5] = (STRUCT, inner)
    return write_struct(fields)


def page_v2(size: int, values: int, flag: bool) -> bytes:
    inner: Struct = {1: (I32, values), 2: (I32, 0), 3: (I32, values), 4: (I32, 0), 5: (I32, 2), 6: (I32, 0)}
    inner[7] = (TRUE if flag else FALSE, flag)
    return write_struct({1: (I32, 3), 2: (I32, size), 3: (I32, size), 8: (STRUCT, inner)}) + bytes(size)


def chunk(buffers: list[Buffer], sizes: list[int] | None, leaf: int = 0) -> ChunkPages:
    none = np.zeros(0, np.int64)
    return ChunkPages(
        leaf=leaf,
        codec=0,
        dictionary=None,
        buffers=tuple(buffers),
        first_rows=none,
        stop_rows=none,
        num_values=0,
        whole=False,
        sizes=None if sizes is None else np.array(sizes, np.int64),
    )


def assert_same(found: PageTable, walked: PageTable) -> None:
    for field in dataclasses.fields(PageTable):
        mine, other = getattr(found, field.name), getattr(walked, field.name)
        assert mine.tolist() == other.tolist(), field.name
        assert mine.dtype == other.dtype, field.name


def test_tables_are_those_that_walking_gives() -> None:
    dice = random.Random(7)
    chunks, known = [], {}
    for leaf in range(40):
        buffers: list[Buffer] = []
        sizes: list[int] = []
        for _ in range(dice.randrange(4)):
            pages = []
            for _ in range(dice.randrange(1, 9)):
                size = dice.choice([0, 1, 5, 60, 70, 130, 9_000, 70_000])
                crc = dice.choice([None, None, 0, -1, 2**31 - 1, -(2**31), dice.randrange(-(2**31), 2**31)])
                pages.append(
                    header(
                        size,
                        dice.choice([0, 1, 63, 64, 8_191, 8_192, 2**20, 2**27, 2**31 - 1]),
                        encoding=dice.choice([0, 2, 3, 8, 63]),
                        level=dice.choice([3, 4, 0]),
                        uncompressed=dice.choice([size, 2**31 - 1, 3 * size]),
                        crc=crc,
                    )
                    + dice.randbytes(size)
                )
            sizes += map(len, pages)
            buffers.append(dice.choice([bytes, bytearray, memoryview])(b"".join(pages)))
        chunks.append(chunk(buffers, sizes, leaf))
        known[leaf] = [walk_pages(buffer, max_pages=100) for buffer in buffers]
    found = read_tables(chunks, least_pages=0)
    assert {leaf for leaf, tables in known.items() if tables} == set(found)
    for leaf, tables in found.items():
        for mine, walked in zip(tables, known[leaf], strict=True):
            assert mine is not None
            assert_same(mine, walked)


def test_pages_that_fill_a_buffer_each() -> None:
    dice = random.Random(8)
    pages: list[Buffer] = []
    for size in [0, 1, 5, 60, 70, 130, 9_000, 70_000] * 5:
        crc = dice.choice([None, 0, -1, 2**31 - 1, -(2**31)])
        page = header(size, dice.choice([0, 1, 8_192, 2**31 - 1]), crc=crc) + dice.randbytes(size)
        pages.append(dice.choice([bytes, bytearray, memoryview])(page))
    for page, mine in zip(pages, read_lone(pages), strict=True):
        assert mine is not None
        assert_same(mine, walk_pages(page, max_pages=1))
    assert read_lone([]) == []


PLAIN = header(50, 10) + bytes(50)
OTHERS = {
    "v2": page_v2(50, 10, True),
    "statistics": header(50, 10, extra={5: (STRUCT, {3: (I32, 0)})}) + bytes(50),
    "an encoding beyond 63": header(50, 10, encoding=64) + bytes(50),
    "a negative size": header(50, 10, uncompressed=-1) + bytes(50),
    "negative values": header(50, -10) + bytes(50),
    "a negative encoding": header(50, 10, encoding=-1) + bytes(50),
    "another type": header(50, 10, kind=1) + bytes(50),
    "a size that ends elsewhere": header(49, 10) + bytes(50),
    "a size of six bytes": b"\x15\x00\x15\xff\xff\xff\xff\xff\x01" + PLAIN[5:],
    "a size above 32 bits": b"\x15\x00\x15\xff\xff\xff\xff\x1f" + PLAIN[5:],
    "bytes that never end": b"\x15\x00\x15" + b"\xff" * 60,
    "no header": bytes(60),
}


def test_of_pages_that_fill_a_buffer_each_others_are_left() -> None:
    # Two pages, half a page, and nothing are no page either.
    odd = [*OTHERS.values(), PLAIN + PLAIN, PLAIN[:-1], b""]
    found = read_lone([PLAIN, *odd, PLAIN])
    assert [mine is None for mine in found] == [False, *[True] * len(odd), False]
    for mine in (found[0], found[-1]):
        assert mine is not None
        assert_same(mine, walk_pages(PLAIN, max_pages=1))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_buffer_with_a_header_of_another_form_is_left(other: bytes) -> None:
    buffers: list[Buffer] = [PLAIN, PLAIN + other + PLAIN, PLAIN * 2]
    sizes = [len(page) for page in (PLAIN, PLAIN, other, PLAIN, PLAIN, PLAIN)]
    (tables,) = read_tables([chunk(buffers, sizes)], least_pages=0).values()
    assert [table is None for table in tables] == [False, True, False]
    for table, buffer in zip(tables, buffers, strict=True):
        if table is not None:
            assert_same(table, walk_pages(buffer, max_pages=9))


SIZE = len(PLAIN)
WRONG: dict[str, tuple[list[Buffer], list[int] | None]] = {
    "no sizes": ([PLAIN], None),
    "too few": ([PLAIN * 2], [SIZE]),
    "too many": ([PLAIN], [SIZE, SIZE]),
    "one that ends in no page": ([PLAIN * 2], [SIZE, SIZE + 1]),
    "one that ends behind its buffer": ([PLAIN, PLAIN], [SIZE + 1, SIZE - 1]),
    "none": ([PLAIN], [0]),
    "a negative one": ([PLAIN], [-SIZE]),
}


@pytest.mark.parametrize(("buffers", "sizes"), WRONG.values(), ids=WRONG)
def test_sizes_that_are_not_those_of_the_buffers_are_not_used(
    buffers: list[Buffer], sizes: list[int] | None
) -> None:
    assert set(read_tables([chunk(buffers, sizes), chunk([PLAIN], [SIZE], leaf=1)], least_pages=0)) == {1}


def test_each_byte_that_is_damaged_is_seen_or_read_as_walking_reads_it() -> None:
    page = header(60, 700, encoding=8, crc=-5) + bytes(60)
    for place in range(len(page) - 60):
        for bit in range(8):
            bad = bytearray(page)
            bad[place] ^= 1 << bit
            (tables,) = read_tables([chunk([bytes(bad)], [len(bad)])], least_pages=0).values()
            if tables[0] is not None:
                assert_same(tables[0], walk_pages(bytes(bad), max_pages=9))


@pytest.mark.parametrize("length", range(45))
def test_ends_are_never_passed(length: int) -> None:
    data = (header(50, 10) + bytes(50))[:length]
    for table in read_tables([chunk([data], [length])], least_pages=0).values():
        assert table in ([None], []) or not length


TEXTS = [None if i % 97 == 5 else f"text {i * i % 1_000}" for i in range(6_000)]
TABLE = pa.table(
    {
        "few": pa.array([i % 7 for i in range(6_000)], pa.int32()),
        "many": pa.array([i * 7_919 % 1_000_003 for i in range(6_000)], pa.int64()),
        "texts": pa.array(TEXTS),
        "lists": pa.array([[i] * (i % 3) for i in range(6_000)], pa.list_(pa.int64())),
    }
)


@pytest.mark.parametrize("crc", [False, True], ids=["", "crc"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD"])
def test_pages_whose_sizes_are_known_decode_to_what_others_do_and_pyarrow_says(
    codec: str, version: str, crc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    pq.write_table(
        TABLE,
        out,
        compression=codec,
        data_page_version=version,
        write_page_checksum=crc,
        write_page_index=True,
        max_rows_per_page=190,
        dictionary_pagesize_limit=4_000,
    )
    data = out.getvalue()
    for start, stop in ((0, 6_000), (500, 4_321), (5_999, 6_000)):
        rows = RowSelection.of([(start, stop)])
        found = selected.decode(data, rows)
        with monkeypatch.context() as patch:
            patch.setattr(columns, "read_tables", lambda chunks: {})
            slowly = selected.decode(data, rows)
        assert found.equals(slowly)
        assert found.equals(TABLE.slice(start, stop - start))


def test_no_header_of_the_common_form_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    flat = TABLE.select(["few", "many"])
    pq.write_table(flat, out, write_page_index=True, use_dictionary=False, max_rows_per_page=190)
    monkeypatch.setattr(verify, "walk_pages", lambda *_, **__: pytest.fail("walked"))
    scanned = accel.scan("x.parquet", where="few = 3", store=DictStore({"x.parquet": out.getvalue()}))
    assert scanned.to_table().equals(flat.filter(pc.equal(flat["few"], 3)))


@pytest.mark.parametrize("count", [LEAST_PAGES - 1, LEAST_PAGES])
def test_few_pages_are_left_to_be_walked(count: int) -> None:
    assert bool(read_tables([chunk([PLAIN * count], [SIZE] * count)])) == (count == LEAST_PAGES)


def test_no_chunks() -> None:
    assert read_tables([], least_pages=0) == {}
