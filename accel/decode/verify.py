"""Page headers are verified against the metadata and the bytes before pyarrow reads a page.

pyarrow returns wrong rows without an error where the counts of a page are wrong, and allocates by sizes that
it has not checked. Sources: parquet-format `parquet.thrift` (PageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import Int64s
from accel.decode.chunks import ChunkPages
from accel.decode.codecs import decompress
from accel.errors import AccelError, MemoryLimitError, ParquetFormatError
from accel.format.model import Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.page_header import PageHeader, parse_page_header, parse_sole_page, walk_pages
from accel.format.page_index import PageIndexMismatchError
from accel.format.runs import continues_row, find_runs
from accel.planning.leaf_chunks import BOOLEAN_BYTES, READABLE_CODECS, level_bytes
from accel.ranges import Buffer

__all__ = [
    "DICTIONARY_PAGE_ENCODINGS",
    "IS_DATA",
    "IS_DICTIONARY",
    "DictionaryFacts",
    "PageBody",
    "PageFacts",
    "begins_with_levels",
    "check_sizes",
    "check_text_sizes",
    "needs_dictionary",
    "page_body",
    "value_width",
    "verify_chunk",
]

_MAX_PAGES = 1 << 24
_DICTIONARY_ENCODINGS = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
DICTIONARY_PAGE_ENCODINGS = (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY)
"""Both mean that the entries are PLAIN."""
# These are indexed by number. A page without an encoding has -1, which is the last.
IS_DICTIONARY = np.isin(np.arange(129), _DICTIONARY_ENCODINGS)
IS_DATA = np.isin(np.arange(128), (PageType.DATA_PAGE, PageType.DATA_PAGE_V2))


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryFacts:
    """A dictionary, whose entries the pages may refer to any number of times."""

    page: Buffer
    """Its header included."""
    header: PageHeader
    named: int
    """Values of the pages that refer to its entries, nulls included."""
    longest: int
    """The most bytes of one text, which has them if all others are empty; 0 for types other than
    BYTE_ARRAY."""

    @property
    def uncompressed(self) -> int:
        """Bytes of its body after decompression."""
        return self.header.uncompressed_size

    @property
    def entries(self) -> int:
        return self.header.num_values


@dataclass(frozen=True, slots=True, eq=False)
class PageFacts:
    """Facts about the pages of one chunk that have been verified."""

    tables: tuple[PageTable, ...]
    """The pages of each buffer of the chunk; the dictionary page of a whole chunk is among them."""
    encoded: npt.NDArray[np.bool_]
    """Which data pages are dictionary-encoded."""
    parts: tuple[Buffer, ...]
    """The chunk's bytes to splice: the dictionary page, then the data pages; no padding."""
    page_values: Int64s
    """Level values of each data page, nulls included."""
    num_values: int
    uncompressed: int
    """Bytes of all pages after decompression."""
    dictionary: DictionaryFacts | None
    """The dictionary, where pages refer to it."""
    prefixed: int
    """The most bytes of texts that are encoded by their common prefixes (DELTA_BYTE_ARRAY)."""
    separate_dictionary: PageHeader | None = None
    """The header of the dictionary page, where that is not in one of the buffers."""

    @property
    def sole_dictionary(self) -> DictionaryFacts | None:
        """The dictionary, where every value refers to it."""
        named = self.dictionary
        return named if named is not None and named.named == self.num_values else None


def needs_dictionary(buffer: Buffer) -> bool:
    """Return whether any of the adjacent data pages in `buffer` is dictionary-encoded, as far as their
    headers decode.

    `verify_chunk` reports headers that do not decode.
    """
    position = 0
    while position < len(buffer):
        try:
            header = parse_page_header(buffer, position)
        except ParquetFormatError:
            return False
        if header.type != PageType.DICTIONARY_PAGE and header.encoding in _DICTIONARY_ENCODINGS:
            return True
        position += header.header_length + header.compressed_size
    return False


def verify_chunk(
    chunk: ChunkPages,
    leaf: Leaf,
    *,
    element: SchemaElement,
    memory_limit: int | None,
    place: Callable[[], str],
) -> PageFacts:
    """Walk all page headers of a chunk.

    Parameters
    ----------
    memory_limit : int, optional
        Bytes that the pages may decompress to, and decode to as far as the headers show.
    place : callable
        Names the row group and the column in errors.

    Raises
    ------
    ParquetFormatError
        The headers contradict each other, the rows that the offset index gives, or the bytes.
    MemoryLimitError
        The pages decode to more than `memory_limit`.
    """
    try:
        facts = _verify(chunk, leaf, element, memory_limit)
    except AccelError as error:
        raise error.within(place())
    if memory_limit is not None:
        decoded = facts.num_values * (value_width(element) + level_bytes(leaf))
        if max(decoded, facts.uncompressed) > memory_limit:
            raise MemoryLimitError(
                f"pages of {facts.uncompressed} bytes and {facts.num_values} values decode to more than "
                f"{memory_limit} bytes",
                place=place(),
                hint="raise `options.memory_limit`",
            )
    return facts


def page_body(
    chunk: ChunkPages, tables: Sequence[PageTable], memory_limit: int | None, number: int, page: int
) -> bytes | None:
    """Decompress a v1 page, given the numbers of its buffer and its page.

    The result is None where it does not decompress, or has more than `memory_limit` bytes.
    """
    table = tables[number]
    size = int(table.uncompressed[page])
    if memory_limit is not None and size > memory_limit:
        return None
    body = memoryview(chunk.buffers[number])[int(table.body[page]) : int(table.end[page])]
    raw = decompress(body, chunk.codec, size=size)
    return None if raw is None else raw.tobytes()


def _verify(
    chunk: ChunkPages,
    leaf: Leaf,
    element: SchemaElement,
    memory_limit: int | None,
) -> PageFacts:
    if chunk.codec not in READABLE_CODECS:
        raise ParquetFormatError(f"compression codec {chunk.codec} cannot be read")
    if len(chunk.first_rows) != len(chunk.stop_rows):
        raise ValueError("first_rows and stop_rows are not as many")
    expected = chunk.stop_rows - chunk.first_rows
    if min(expected.tolist(), default=0) < 0:
        raise ValueError("first_rows and stop_rows do not fit together")
    walked = [_walk(buffer, chunk) for buffer in chunk.buffers]
    dictionary = separate = None
    if chunk.dictionary is not None:
        dictionary = separate = parse_sole_page(chunk.dictionary) if len(chunk.dictionary) else None
        if dictionary is None or dictionary.type != PageType.DICTIONARY_PAGE:
            raise ParquetFormatError("where the dictionary page should be is another page")
    values, rows, encodings, compressed_whole = _data_pages(walked, chunk)
    if chunk.whole:
        for buffer, end in zip(chunk.buffers, compressed_whole, strict=True):
            _check_padding(buffer, end)
    page = chunk.dictionary
    if chunk.whole:
        dictionary, page = _dictionary_of(walked, chunk.buffers), chunk.buffers[0] if chunk.buffers else None
    # Pages are few: Python's own sum and any over them are faster than numpy's.
    encoded = IS_DICTIONARY[encodings]
    some = any(encoded.tolist())
    named = sum(values[encoded].tolist()) if some else 0
    if dictionary is None and some:
        raise ParquetFormatError(
            f"data page {int(np.flatnonzero(encoded)[0])} is dictionary-encoded, and there is no dictionary "
            "page"
        )
    _check_dictionary(dictionary, element)
    _check_counts(chunk, leaf, values, rows, expected)
    num_values = sum(values.tolist())
    body = partial(page_body, chunk, walked, memory_limit)
    if leaf.max_repetition and num_values != chunk.num_values:
        _check_last_rows(chunk, walked, leaf, num_values, body=body)
    if leaf.max_definition == 0:
        check_sizes(walked, leaf, element, body=body)
    parts = tuple(
        buffer if end == len(buffer) else memoryview(buffer)[:end]
        for buffer, end in zip(chunk.buffers, compressed_whole, strict=True)
    )
    if chunk.dictionary is not None:
        parts = (chunk.dictionary, *parts)
    uncompressed = sum([size for table in walked for size in table.uncompressed.tolist()])
    if chunk.dictionary is not None and dictionary is not None:
        uncompressed += dictionary.uncompressed_size
    return PageFacts(
        tables=tuple(walked),
        encoded=encoded,
        parts=parts,
        page_values=values,
        num_values=num_values,
        uncompressed=uncompressed,
        dictionary=_dictionary_facts(page, dictionary, named, element),
        prefixed=_prefixed(walked, element),
        separate_dictionary=separate,
    )


def _walk(buffer: Buffer, chunk: ChunkPages) -> PageTable:
    if chunk.whole:
        # Only a whole chunk may be followed by padding.
        return walk_pages(buffer, max_pages=_MAX_PAGES, num_values=chunk.num_values)
    try:
        return walk_pages(buffer, max_pages=_MAX_PAGES)
    except ParquetFormatError as error:
        raise PageIndexMismatchError(error.message, place=error.place) from error


def _check_padding(buffer: Buffer, end: int) -> None:
    """Refuse a data page behind all values of a whole chunk.

    Such a page shows that the header of an earlier one is wrong, so that rows are not where the headers say.
    """
    if end >= len(buffer):
        return
    try:
        header = parse_page_header(buffer, end)
    except ParquetFormatError:
        return
    stop = end + header.header_length + header.compressed_size
    if (
        header.type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
        and header.num_values
        and stop <= len(buffer)
    ):
        raise ParquetFormatError(f"a page of {header.num_values} values behind all values of the chunk")


def _data_pages(walked: list[PageTable], chunk: ChunkPages) -> tuple[Int64s, Int64s, Int64s, list[int]]:
    """Return values, rows (-1 for v1) and encodings of the data pages, and the end of the pages in each
    buffer."""
    values, rows, encodings, ends = [], [], [], []
    for table in walked:
        ends.append(int(table.end[-1]) if table.num_pages else 0)
        data = IS_DATA[table.type]
        if all(data.tolist()):
            values.append(table.num_values)
            rows.append(table.num_rows)
            encodings.append(table.encoding)
            continue
        if not chunk.whole:
            other = int(table.type[np.flatnonzero(~data)[0]])
            raise PageIndexMismatchError(f"a page of type {other} where the offset index has a data page")
        values.append(table.num_values[data])
        rows.append(table.num_rows[data])
        encodings.append(table.encoding[data])
    if len(walked) == 1:
        return values[0], rows[0], encodings[0], ends
    none = np.empty(0, np.int64)
    return (
        np.concatenate([none, *values]),
        np.concatenate([none, *rows]),
        np.concatenate([none, *encodings]),
        ends,
    )


def _dictionary_of(walked: list[PageTable], buffers: Sequence[Buffer]) -> PageHeader | None:
    if not walked or not walked[0].num_pages or walked[0].type[0] != PageType.DICTIONARY_PAGE:
        return None
    return parse_page_header(buffers[0])


def _check_dictionary(dictionary: PageHeader | None, element: SchemaElement) -> None:
    if dictionary is None:
        return
    entries, size = dictionary.num_values, dictionary.uncompressed_size
    if element.physical is Physical.BOOLEAN:
        raise ParquetFormatError("a dictionary of booleans")
    if dictionary.encoding not in DICTIONARY_PAGE_ENCODINGS:
        raise ParquetFormatError(f"a dictionary whose entries are of encoding {dictionary.encoding}")
    if entries * value_width(element) > size:
        raise ParquetFormatError(f"a dictionary of {entries} values in {size} bytes")


def _check_counts(chunk: ChunkPages, leaf: Leaf, values: Int64s, rows: Int64s, expected: Int64s) -> None:
    if chunk.whole:
        total, claimed = int(values.sum()), int(expected.sum())
        # cuDF has counted all values of a list for the flat columns beside it. Where the footer says so too,
        # the first values of the only page are those of the rows, as any reader takes them.
        if leaf.max_repetition == 0 and len(values) == 1 and claimed < total == chunk.num_values:
            return
        if (total != claimed) if leaf.max_repetition == 0 else (total < claimed):
            raise ParquetFormatError(f"the pages hold {total} values for {claimed} rows")
        return
    if len(values) != len(expected):
        raise PageIndexMismatchError(f"{len(values)} data pages where the offset index has {len(expected)}")
    wrong = (values != expected) if leaf.max_repetition == 0 else (values < expected)
    if max(rows.tolist(), default=-1) >= 0:
        wrong |= (rows >= 0) & (rows != expected)
    if any(wrong.tolist()):
        page = int(np.flatnonzero(wrong)[0])
        raise PageIndexMismatchError(
            f"data page {page} of those read has {int(values[page])} values (and {int(rows[page])} rows, -1 "
            f"if untold), the offset index says {int(expected[page])} rows"
        )


def _check_last_rows(
    chunk: ChunkPages, walked: Sequence[PageTable], leaf: Leaf, num_values: int, *, body: PageBody
) -> None:
    """Refuse pages of lists whose headers count fewer values than there are.

    Readers end the last row of such a page early, and the number of rows does not tell. Where these are all
    pages of the chunk, its metadata has their sum; else the levels have to end where the header says.
    """
    if chunk.whole:
        raise ParquetFormatError(
            f"the pages hold {num_values} values where the metadata of the chunk has {chunk.num_values}"
        )
    for number, table in enumerate(walked):
        for page, count in enumerate(table.num_values.tolist()):
            levels = _repetition_levels(chunk, table, number, page, body)
            if levels is not None and continues_row(levels, leaf.max_repetition, count=count):
                # Read whole, without the page index, the chunk says which of the two is wrong.
                raise PageIndexMismatchError(
                    f"a page has more levels than the {count} values that its header counts"
                )


def _repetition_levels(
    chunk: ChunkPages, table: PageTable, number: int, page: int, body: PageBody
) -> bytes | None:
    """Return the runs of a page's repetition levels; None where they are not RLE or the page does not
    decompress."""
    if table.type[page] == PageType.DATA_PAGE_V2:
        start = int(table.body[page])
        size = int(table.level_bytes[page] - table.definition_bytes[page])
        return bytes(memoryview(chunk.buffers[number])[start : start + size])
    raw = body(number, page) if table.level_encoding[page] == Encoding.RLE else None
    return None if raw is None else raw[4 : 4 + int.from_bytes(raw[:4], "little")]


def _dictionary_facts(
    page: Buffer | None, dictionary: PageHeader | None, named: int, element: SchemaElement
) -> DictionaryFacts | None:
    if page is None or dictionary is None or named == 0:
        return None
    is_text = element.physical is Physical.BYTE_ARRAY
    longest = dictionary.uncompressed_size - 4 * dictionary.num_values if is_text else 0
    end = dictionary.header_length + dictionary.compressed_size
    return DictionaryFacts(memoryview(page)[:end], dictionary, named, longest)


def _prefixed(walked: list[PageTable], element: SchemaElement) -> int:
    if element.physical is not Physical.BYTE_ARRAY:
        return 0
    total = 0
    for table in walked:
        if Encoding.DELTA_BYTE_ARRAY not in table.encoding.tolist():
            continue
        pages = table.encoding == Encoding.DELTA_BYTE_ARRAY
        # Each value may repeat everything before it in its page. The product may be too large for an integer.
        total += int((table.num_values[pages].astype(float) * table.uncompressed[pages]).sum())
    return total


PageBody: TypeAlias = Callable[[int, int], bytes | None]

_WIDTHS = {
    Physical.BOOLEAN: BOOLEAN_BYTES,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.INT96: 12,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 4,
}


def value_width(element: SchemaElement) -> int:
    """Return the bytes of a decoded value, which also are those of a stored one except for booleans.

    For a text these are the bytes of its length.
    """
    if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        return element.type_length
    return 4 if element.physical is None else _WIDTHS[element.physical]


def check_sizes(
    walked: Sequence[PageTable], leaf: Leaf, element: SchemaElement, *, body: PageBody | None = None
) -> None:
    """Compare the sizes of PLAIN pages without levels with what their values need.

    In a smaller page values are missing. A larger one may have bytes behind its values, as fastparquet writes
    it. But where it begins with levels, the schema calls a column `required` that was written as `optional`,
    and pyarrow would read the levels as values.

    Parameters
    ----------
    body : callable, optional
        Returns the decompressed page, given the numbers of its buffer and its page; None where it does not
        decompress. Without it no page may be larger than its values.
    """
    if any((table.num_nulls > 0).any() for table in walked):
        raise ParquetFormatError("a page with nulls, of a column that the schema says has none")
    if leaf.max_repetition or element.physical in (None, Physical.BYTE_ARRAY):
        return
    bits = 1 if element.physical is Physical.BOOLEAN else 8 * value_width(element)
    for number, table in enumerate(walked):
        due = (table.num_values * bits + 7) >> 3
        other = (
            (table.encoding == Encoding.PLAIN)
            & (table.type == PageType.DATA_PAGE)
            & (table.uncompressed != due)
        )
        if not any(other.tolist()):
            continue
        for page in np.flatnonzero(other).tolist():
            count, size = int(table.num_values[page]), int(table.uncompressed[page])
            raw = body(number, page) if size > due[page] and body is not None else None
            if raw is None or begins_with_levels(raw, count):
                raise ParquetFormatError(
                    f"a page of {size} bytes for {count} values, which take {int(due[page])}"
                )


def begins_with_levels(raw: bytes, count: int) -> bool:
    """Return whether a v1 page begins with the definition levels of `count` values, each of which may be
    null."""
    stop = 4 + int.from_bytes(raw[:4], "little")
    if not 4 < stop <= len(raw):
        return False
    return find_runs(raw[:stop], start=4, width=1, count=count, most_runs=count) is not None


_PREFIX = 4
_OFFSETS: dict[int, np.dtype[Any]] = {
    pa.lib.Type_STRING: np.dtype(np.int32),
    pa.lib.Type_BINARY: np.dtype(np.int32),
    pa.lib.Type_LARGE_STRING: np.dtype(np.int64),
    pa.lib.Type_LARGE_BINARY: np.dtype(np.int64),
}


def check_text_sizes(
    array: pa.ChunkedArray, facts: PageFacts, *, leaf: Leaf, body: PageBody | None = None
) -> None:
    """Refuse PLAIN texts of a required column that are levels in truth.

    They are where they fill less than their page and it begins with levels. pyarrow ignores other bytes
    behind them.

    Parameters
    ----------
    array : ChunkedArray
        All values of the pages.
    body : callable, optional
        As in `check_sizes`.

    Raises
    ------
    ParquetFormatError
        A page begins with levels.
    """
    offsets = _OFFSETS.get(array.type.id)
    if leaf.max_definition or offsets is None:
        return
    if len(array) != facts.num_values or array.null_count:
        return
    pages = [
        (encoding, size - levels, number, page, kind)
        for number, table in enumerate(facts.tables)
        for page, (kind, encoding, size, levels) in enumerate(
            zip(
                table.type.tolist(),
                table.encoding.tolist(),
                table.uncompressed.tolist(),
                table.level_bytes.tolist(),
                strict=True,
            )
        )
        if IS_DATA[kind]
    ]
    counts = facts.page_values
    before = _bytes_before(array, np.cumsum(counts), offsets)
    came = before - np.append(0, before[:-1]) + _PREFIX * counts
    for (encoding, due, number, page, kind), texts, count in zip(
        pages, came.tolist(), counts.tolist(), strict=True
    ):
        if encoding != Encoding.PLAIN or texts == due:
            continue
        if kind == PageType.DATA_PAGE_V2 and texts < due:
            # The levels of a v2 page are not among its texts.
            continue
        raw = body(number, page) if texts < due and body is not None else None
        if raw is None or begins_with_levels(raw, count):
            raise ParquetFormatError(
                f"a page of {due} bytes whose {count} texts take {texts}; the schema says that none is null"
            )


def _bytes_before(array: pa.ChunkedArray, rows: Int64s, kind: np.dtype[Any]) -> Int64s:
    """Return how many bytes of text are before these rows, which ascend and end with the array's length."""
    out = np.zeros(len(rows), np.int64)
    start = base = at = 0
    for chunk in array.chunks:
        count = len(chunk)
        if not count:
            continue
        places = np.frombuffer(chunk.buffers()[1], kind, count + 1, chunk.offset * kind.itemsize)
        stop = int(rows.searchsorted(start + count, "right"))
        base -= int(places[0])
        out[at:stop] = places[rows[at:stop] - start].astype(np.int64) + base
        base += int(places[count])
        start, at = start + count, stop
    return out
