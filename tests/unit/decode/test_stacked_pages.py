"""Chunks of several row groups verified at once: what is passed on of them, and what is left to others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.chunks import ChunkPages
from accel.decode.stack import StackedPages, Unusual, verify_stack
from accel.decode.verify import verify_chunk
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Encoding, PageType
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, STRUCT, write_struct
from accel.planning.pages import LeafReads
from tests.unit.decode.selected import open_metadata

GROUPS, ROWS = 4, 50
COLUMNS = {
    "number": pa.array(range(GROUPS * ROWS), pa.int64()),
    "text": pa.array([None if row % 7 == 0 else f"text {row % 5}" for row in range(GROUPS * ROWS)]),
    "flag": pa.array([row % 3 == 0 for row in range(GROUPS * ROWS)]),
    "unique": pa.array([f"{row:09d}" for row in range(GROUPS * ROWS)]),
}


def written(**options: Any) -> bytes:
    fields = [
        pa.field(name, array.type, nullable=name != "unique" and name != "number")
        for name, array in COLUMNS.items()
    ]
    table = pa.table(list(COLUMNS.values()), schema=pa.schema(fields))
    sink = io.BytesIO()
    settings: dict[str, Any] = {"row_group_size": ROWS, "compression": "zstd", "use_dictionary": ["text"]}
    pq.write_table(table, sink, **settings | options)
    return sink.getvalue()


class Column:
    """One column's chunks of all row groups of a file."""

    def __init__(self, data: bytes, name: str) -> None:
        metadata = open_metadata(data)
        self.leaf = next(leaf for leaf in metadata.schema.leaves if leaf.path == (name,))
        self.element = metadata.schema.elements[self.leaf.element]
        table, at = metadata.chunks, self.leaf.ordinal
        self.chunks = [
            memoryview(data)[int(table.start[group, at]) : int(table.end[group, at])]
            for group in range(GROUPS)
        ]
        self.codec = int(table.codec[0, at])
        self.values = [ROWS] * GROUPS
        self.parts: list[tuple[memoryview, ...]] = []
        """The pages of each, where they are known one by one, and the rows that each page is said to have."""
        self.page_rows: list[list[int]] = []

    def place_pages(self) -> None:
        """As an offset index does."""
        for chunk in self.chunks:
            pages = walk_pages(chunk, max_pages=9)
            self.parts.append(
                tuple(chunk[a:b] for a, b in zip(pages.start.tolist(), pages.end.tolist(), strict=True))
            )
            self.page_rows.append(pages.num_values[pages.type != PageType.DICTIONARY_PAGE].tolist())

    def reads(self, group: int) -> LeafReads:
        """What the metadata says of one, as far as it is looked at."""
        facts: Any = object.__new__(LeafReads)
        stops = np.cumsum(self.page_rows[group] if self.parts else [], dtype=np.int64)
        for name, value in (
            ("codec", self.codec),
            ("num_values", self.values[group]),
            ("whole", not self.parts),
            ("first_row", np.append(0, stops[:-1])),
            ("stop_row", stops),
        ):
            object.__setattr__(facts, name, value)
        return facts

    def verify(self, *, memory_limit: int | None = None, num_rows: list[int] | None = None) -> StackedPages:
        return verify_stack(
            self.parts or [(chunk,) for chunk in self.chunks],
            self.leaf,
            reads=[self.reads(group) for group in range(GROUPS)],
            element=self.element,
            num_rows=np.array(num_rows or [ROWS] * GROUPS, np.int64),
            memory_limit=memory_limit,
        )

    def verify_one(self, group: int) -> Any:
        """The same by `verify_chunk`."""
        chunk = ChunkPages(
            leaf=self.leaf.ordinal,
            codec=self.codec,
            dictionary=None,
            buffers=(self.chunks[group],),
            first_rows=np.zeros(1, np.int64),
            stop_rows=np.array([ROWS], np.int64),
            num_values=self.values[group],
            whole=True,
        )
        return verify_chunk(chunk, self.leaf, element=self.element, memory_limit=None, place=lambda: "here")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page_rows", [1 << 20, 20])
def test_they_are_what_each_is_by_itself(name: str, version: str, page_rows: int) -> None:
    column = Column(written(data_page_version=version, max_rows_per_page=page_rows), name)
    column.chunks[2] = memoryview(bytes(column.chunks[2]) + b"padding")
    found = column.verify()
    each = [column.verify_one(group) for group in range(GROUPS)]
    for chunk, alone, whole in zip(found.chunks, each, column.chunks, strict=True):
        assert (chunk.codec, chunk.num_values, chunk.uncompressed) == (Codec.ZSTD, ROWS, alone.uncompressed)
        assert [bytes(part) for part in chunk.parts] == [bytes(part) for part in alone.parts]
        assert bytes(whole).startswith(bytes(chunk.parts[0]))
    assert len(found.chunks[2].parts[0]) == len(column.chunks[2]) - len(b"padding")
    facts = found.facts
    assert facts.page_values.tolist() == [count for one in each for count in one.page_values.tolist()]
    assert facts.encoded.tolist() == [flag for one in each for flag in one.encoded.tolist()]
    assert facts.num_values == GROUPS * ROWS
    assert facts.uncompressed == sum(one.uncompressed for one in each)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("page_rows", [1 << 20, 20])
def test_pages_that_are_known_one_by_one(name: str, page_rows: int) -> None:
    column = Column(written(max_rows_per_page=page_rows), name)
    whole = column.verify()
    column.place_pages()
    found = column.verify()
    for one, other in zip(found.chunks, whole.chunks, strict=True):
        assert b"".join(map(bytes, one.parts)) == b"".join(map(bytes, other.parts))
        assert (one.codec, one.num_values, one.uncompressed) == (
            other.codec,
            other.num_values,
            other.uncompressed,
        )
    assert found.facts.page_values.tolist() == whole.facts.page_values.tolist()
    for lie in ([30, 10, 10], [20, 20], [20, 20, 9], [20, 20, 11], [20, 20, 10, 1]):
        column.page_rows[2] = lie
        with pytest.raises(Unusual):
            column.verify()


def test_a_dictionary_that_was_not_asked_for() -> None:
    column = Column(written(), "text")
    column.place_pages()
    column.verify()
    column.parts[1] = column.parts[1][1:]
    with pytest.raises(Unusual):
        column.verify()


def test_nothing_of_a_chunk() -> None:
    column = Column(written(), "number")
    column.place_pages()
    column.parts[1] = ()
    with pytest.raises(Unusual):
        column.verify()


def page(kind: int, values: int, body: bytes, encoding: int = Encoding.PLAIN) -> bytes:
    """A page that is not compressed."""
    inner: dict[int, Any] = {1: (I32, values), 2: (I32, int(encoding))}
    if kind == 0:
        inner |= {3: (I32, int(Encoding.RLE)), 4: (I32, int(Encoding.RLE))}
    field = {0: 5, 1: 6, 2: 7}[kind]
    fields: dict[int, Any] = {
        1: (I32, kind),
        2: (I32, len(body)),
        3: (I32, len(body)),
        field: (STRUCT, inner),
    }
    return write_struct(fields) + body


NUMBERS = bytes(8 * ROWS)
INDICES = b"\x01" + bytes(7)
WRONG = {
    "no page at all": b"",
    "a row too few": page(0, ROWS - 1, bytes(8 * (ROWS - 1))),
    "a row too many": page(0, ROWS + 1, bytes(8 * (ROWS + 1))),
    "levels of a required column": page(0, ROWS, NUMBERS + b"\x06\x00\x00\x00\x64\x01"),
    "indices without a dictionary": page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "a dictionary behind its pages": page(0, 1, bytes(8)) + page(2, 1, bytes(8)) + page(0, ROWS - 1, bytes(8 * ROWS - 8)),
    "two dictionaries": page(2, 1, bytes(8)) * 2 + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "a dictionary of too few bytes": page(2, 9, bytes(8)) + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "an index page between": page(0, 1, bytes(8)) + page(1, 0, b"") + page(0, ROWS - 1, bytes(8 * ROWS - 8)),
    "a page of no values": page(0, 0, b"") + page(0, ROWS, NUMBERS),
    "more pages than a small chunk has": page(0, 0, b"") * 64 + page(0, ROWS, NUMBERS),
    "texts by their prefixes": page(0, ROWS, NUMBERS, Encoding.DELTA_BYTE_ARRAY),
    "a header that ends": page(0, ROWS, NUMBERS)[:9],
    "a body that ends": page(0, ROWS, NUMBERS)[:-1],
}  # fmt: skip


def test_the_pages_made_here_are_right_but_for_what_is_said_of_them() -> None:
    column = Column(written(), "number")
    column.chunks[1] = memoryview(page(2, 1, bytes(8)) + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY))
    column.chunks[3] = memoryview(page(0, ROWS, NUMBERS))
    assert [chunk.uncompressed for chunk in column.verify().chunks][1::2] == [8 + len(INDICES), 8 * ROWS]


@pytest.mark.parametrize("chunk", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("group", [0, 3])
def test_what_is_wrong_or_rare_is_left_to_others(chunk: bytes, group: int) -> None:
    column = Column(written(), "number")
    column.verify()
    column.chunks[group] = memoryview(chunk)
    with pytest.raises((Unusual, ParquetFormatError)):
        column.verify()


def test_a_dictionary_of_booleans() -> None:
    column = Column(written(), "flag")
    column.verify()
    column.chunks[1] = memoryview(page(2, 1, bytes(8)) + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY))
    with pytest.raises(Unusual):
        column.verify()


@pytest.mark.parametrize("codec", [Codec.LZO, 99])
def test_a_codec_that_cannot_be_read(codec: int) -> None:
    column = Column(written(), "number")
    column.codec = codec
    with pytest.raises(Unusual):
        column.verify()


def test_rows_that_the_row_group_does_not_have() -> None:
    column = Column(written(), "number")
    with pytest.raises(Unusual):
        column.verify(num_rows=[ROWS, ROWS, ROWS + 1, ROWS])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("number", GROUPS * ROWS * 8),
        ("text", GROUPS * ROWS * (4 + 2)),
        ("unique", GROUPS * ROWS * (4 + 9)),
    ],
)
def test_no_more_is_decoded_than_the_limit(name: str, most: int) -> None:
    column = Column(written(), name)
    column.verify(memory_limit=most)
    with pytest.raises(Unusual):
        column.verify(memory_limit=most - 1)


@pytest.mark.parametrize(("name", "longest"), [("number", 0), ("text", 5 * 6), ("flag", 0), ("unique", 0)])
def test_a_text_is_no_longer_than_all_of_its_dictionary(name: str, longest: int) -> None:
    assert Column(written(), name).verify().longest == longest


def test_the_longest_of_several_dictionaries() -> None:
    column = Column(written(), "text")
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"one", b"of these", b""))
    column.chunks[2] = memoryview(page(2, 3, texts) + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY))
    assert column.verify().longest == 5 * 6
    column.chunks[1] = memoryview(page(2, 3, texts + bytes(50)) + page(0, ROWS, INDICES, Encoding.PLAIN))
    # Whose pages name no entry of it.
    assert column.verify().longest == 5 * 6
    column.chunks[1] = memoryview(
        page(2, 3, texts + bytes(50)) + page(0, ROWS, INDICES, Encoding.RLE_DICTIONARY)
    )
    assert column.verify().longest == len(b"oneof these") + 50
