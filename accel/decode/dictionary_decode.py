"""Dictionary-encoded values: the entries of a dictionary page, indices into it, and few values picked by
their indices.

Three ways lead from such pages to values. pyarrow decodes all of them in the spliced file. Or it decodes the
pages as INT32, by a dictionary that maps each index to itself, and only the indices of rows that are used are
looked up. Or, for few rows, their indices are read from the pages without pyarrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from accel import kernels
from accel.arrays import Int64s, from_numpy
from accel.decode.arrow import open_reader, translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.codecs import STORABLE, check_crc, decompress, store_bytes
from accel.decode.dictionary_arrays import named_bytes, take_texts
from accel.decode.plain_pages import DataPage, Form, Shape, form_of, read_entries, value_bytes
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.decode.trim import is_view
from accel.decode.verify import DictionaryFacts, PageFacts
from accel.errors import ParquetFormatError
from accel.format.bit_packing import Ints
from accel.format.model import (
    Codec,
    Encoding,
    Leaf,
    PageType,
    ParquetSchema,
    Physical,
    Repetition,
    SchemaElement,
)
from accel.format.page_header import parse_page_header
from accel.format.runs import RunValues, find_runs
from accel.format.thrift import BINARY, I32, STRUCT, Struct, read_struct, write_struct
from accel.planning.selection import RowSelection
from accel.ranges import Buffer, Kind
from accel.runtime.forks import lock_over_forks

__all__ = [
    "FEW_VALUES",
    "MOST_PICKED",
    "PickedPages",
    "dictionary_values",
    "longest_text",
    "number_page",
    "read_as_indices",
    "read_picks",
    "splice_indices",
    "stays_indexed",
]


def longest_text(page: Buffer, codec: int) -> int:
    """Return the bytes of the longest entry of a BYTE_ARRAY dictionary page (header included) that has been
    verified.

    Raises
    ------
    ParquetFormatError
        The page does not decode.
    """
    offsets = [
        np.frombuffer(chunk.buffers()[1], np.int32, len(chunk) + 1, 4 * chunk.offset)
        for chunk in _entries(page, codec, _TEXT).chunks
    ]
    return max((int(np.diff(some).max(initial=0)) for some in offsets), default=0)


def dictionary_values(
    page: Buffer, codec: int, element: SchemaElement, *, arrow_type: pa.DataType
) -> pa.Array:
    """Return the entries of a dictionary page in the type of the column's values.

    Parameters
    ----------
    page : Buffer
        The page, header included.
    element : SchemaElement
        The column's leaf.
    arrow_type : pyarrow.DataType
        The type of the column; the entries of a dictionary type have its value type.

    Raises
    ------
    ParquetFormatError
        The page does not decode, or its values are not of that type.
    """
    entries = _entries(page, codec, element)
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    with translate_errors(place=Kind.DICTIONARY.value):
        array = entries.combine_chunks() if entries.num_chunks != 1 else entries.chunk(0)
        return array if array.type.equals(kind) else array.cast(kind)


def _column_schema(element: SchemaElement) -> ParquetSchema:
    """Return the schema of a file with this one column, without nulls.

    It is cached, because what is computed from a schema is cached by its identity.
    """
    with _lock:
        cached = _schemas.get(element.raw)
    if cached is not None:
        return cached
    fields, _ = read_struct(element.raw)
    fields[3] = (I32, int(Repetition.REQUIRED))
    required = replace(element, repetition=Repetition.REQUIRED, raw=write_struct(fields))
    leaf = Leaf(ordinal=0, path=(element.name,), element=1, ancestors=(), max_definition=0, max_repetition=0)
    schema = ParquetSchema(
        elements=(_ROOT, required), leaves=(leaf,), fields=(1,), subtree_ends=(2, 2), field_leaves=((0, 1),)
    )
    with _lock:
        _schemas[element.raw] = schema
    return schema


def _element(name: str, physical: Physical | None, fields: Struct) -> SchemaElement:
    return SchemaElement(
        name=name,
        physical=physical,
        type_length=0,
        repetition=Repetition.REQUIRED,
        num_children=0 if physical is not None else 1,
        converted_type=None,
        logical_type=None,
        logical_params={},
        scale=0,
        precision=0,
        field_id=None,
        raw=write_struct(fields),
    )


_ROOT: Final = _element("schema", None, {4: (BINARY, b"schema"), 5: (I32, 1)})
_TEXT: Final = _element(
    "text", Physical.BYTE_ARRAY, {1: (I32, int(Physical.BYTE_ARRAY)), 3: (I32, 0), 4: (BINARY, b"text")}
)
_lock = lock_over_forks()
_schemas: LRUCache[bytes, ParquetSchema] = LRUCache(256)


def _entries(page: Buffer, codec: int, element: SchemaElement) -> pa.ChunkedArray:
    """Decode a dictionary page by pyarrow, from a file whose one data page has the entries as its values."""
    header = parse_page_header(page)
    body, size = memoryview(page)[header.header_length :], header.compressed_size
    crc = header.crc
    if codec != Codec.UNCOMPRESSED:
        # pyarrow would decompress it into memory of the default pool, which may not have been used yet.
        check_crc(body, crc)
        raw = decompress(body, codec, size=header.uncompressed_size)
        if raw is not None:
            body, size, crc, codec = raw.data, header.uncompressed_size, None, Codec.UNCOMPRESSED
        elif not header.num_values and codec != Codec.LZ4:
            # pyarrow does not decompress a data page of no values.
            raise ParquetFormatError("it does not decompress to its size", place=Kind.DICTIONARY.value)
    levels: Struct = {
        1: (I32, header.num_values),
        2: (I32, int(Encoding.PLAIN)),
        3: (I32, int(Encoding.RLE)),
        4: (I32, int(Encoding.RLE)),
    }
    as_data: Struct = {
        1: (I32, int(PageType.DATA_PAGE)),
        2: (I32, header.uncompressed_size),
        3: (I32, size),
        5: (STRUCT, levels),
    }
    if crc:
        # The checksum is that of the body, which is unchanged. Thrift's integers are signed.
        as_data[4] = (I32, crc - (crc >> 31 << 32))
    parts = (write_struct(as_data), body)
    chunk = SplicedChunk(parts, codec, header.num_values, header.uncompressed_size)
    plan = plan_splice(_column_schema(element), _NO_METADATA, fields=[0])
    with translate_errors(place=Kind.DICTIONARY.value):
        reader = open_reader(splice(plan, {0: chunk}, num_rows=header.num_values))
        column = reader.read_row_groups([0], [0], False).column(0)
    if len(column) != header.num_values:
        raise ParquetFormatError("it has not the entries that its header says", place=Kind.DICTIONARY.value)
    return column


_NO_METADATA: Final[dict[str, bytes]] = {}
_LEAST_NAMED: Final[dict[Physical | None, int]] = {Physical.BYTE_ARRAY: 2, Physical.FIXED_LEN_BYTE_ARRAY: 1}
"""How often an entry must be used on average for its dictionary to cost less than the values. Texts that seem
to have one length are an exception: their entries are copied as they are stored."""
FEW_ENTRIES = 4096
FEW_VALUES = 4096
"""The number of values that are decoded in the time that a small dictionary takes by itself."""


def stays_indexed(kind: pa.DataType, element: SchemaElement, *, facts: PageFacts, codec: int) -> bool:
    """Return whether a top-level column of this type is read as indices; all of its pages must be
    dictionary-encoded."""
    named = facts.sole_dictionary
    if named is None:
        return False
    few = named.named <= FEW_VALUES and named.uncompressed <= _SMALL_PAGE
    return not few and _pays(kind, element, named, codec)


def _pays(kind: pa.DataType, element: SchemaElement, named: DictionaryFacts, codec: int) -> bool:
    """Return whether values of a top-level column are decoded slower than indices; numbers are not."""
    least = 1 if _is_even(named) else _LEAST_NAMED.get(element.physical, 0)
    if codec not in STORABLE or named.named < least * named.entries:
        return False
    types = pa.types
    if element.physical is Physical.BYTE_ARRAY:
        narrow = types.is_string(kind) or types.is_binary(kind) or is_view(kind)
        return bool(narrow or types.is_large_string(kind) or types.is_large_binary(kind))
    if element.physical is not Physical.FIXED_LEN_BYTE_ARRAY:
        return False
    decimal = types.is_decimal128(kind) or types.is_decimal256(kind)
    return bool(decimal or types.is_fixed_size_binary(kind))


def _is_even(named: DictionaryFacts) -> bool:
    """Return whether a large dictionary has the size that texts of one length have."""
    return named.entries > FEW_ENTRIES and named.uncompressed % named.entries == 0


def splice_indices(chunk: ChunkPages, facts: PageFacts, *, named: DictionaryFacts) -> SplicedChunk:
    """Return the chunk as one of INT32, for a plan that has its leaf among `indexed`."""
    if chunk.dictionary is not None:
        pages = facts.parts[1:]
    else:
        # A whole chunk begins with its dictionary.
        pages = (memoryview(facts.parts[0])[len(named.page) :], *facts.parts[1:])
    numbers = number_page(named.entries, chunk.codec)
    size = facts.uncompressed - named.uncompressed + 4 * named.entries
    return SplicedChunk((numbers, *pages), chunk.codec, facts.num_values, size)


def read_as_indices(
    indices: pa.ChunkedArray, named: DictionaryFacts, *, codec: int, element: SchemaElement, kind: pa.DataType
) -> pa.ChunkedArray:
    """Return decoded indices as a DictionaryArray with the dictionary that they point into.

    Raises
    ------
    ParquetFormatError
        The dictionary does not decode.
    """
    dictionary = _dictionary(named, codec, element, kind)
    arrays = [pa.DictionaryArray.from_arrays(chunk, dictionary, safe=False) for chunk in indices.chunks]
    return pa.chunked_array(arrays, type=pa.dictionary(pa.int32(), kind))


def _pick_entries(
    named: DictionaryFacts,
    codec: int,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form,
    indices: Ints,
    *,
    most: int,
) -> pa.Array | None:
    """Return the entries that the indices point to; None where they are texts of more than `most` bytes."""
    may_exceed = named.longest * len(indices) > most
    if len(indices) * _RARE < named.entries and not _is_small(named) and not may_exceed:
        # Where all entries have one width, those that are wanted are found without decoding the others.
        found = read_entries(named, codec, kind=kind, form=form, chosen=indices)
        if found is not None:
            return found
    places, entries = from_numpy(indices), _dictionary(named, codec, element, kind)
    if may_exceed and named_bytes(pa.DictionaryArray.from_arrays(places, entries, safe=False)) > most:
        return None
    return take_texts(entries, places) if form.shape is Shape.TEXT else kernels.take(entries, places)


_RARE = 4
"""If fewer than one in this many entries is wanted, they are read one by one."""


def _is_small(named: DictionaryFacts) -> bool:
    """Return whether the decoded entries are cached."""
    small = len(named.page) <= _SMALL_PAGE and named.entries <= FEW_ENTRIES
    return small and named.uncompressed <= 4 * _SMALL_PAGE


def _dictionary(named: DictionaryFacts, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    """Return the entries; those of a small page are cached by its bytes."""
    key = (bytes(named.page), codec, element.raw, kind) if _is_small(named) else None
    if key is not None:
        with _lock:
            cached = _decoded.get(key)
        if cached is not None:
            return cached
    form = form_of(kind, element)
    found = None if form is None else read_entries(named, codec, kind=kind, form=form)
    if found is None:
        found = dictionary_values(named.page, codec, element, arrow_type=kind)
    if key is not None:
        with _lock:
            _decoded[key] = found
    return found


_SMALL_PAGE = 16 << 10
_decoded: LRUCache[Hashable, pa.Array] = LRUCache(128)


def number_page(entries: int, codec: int) -> Buffer:
    """Return a dictionary page of INT32 (header included) that maps each index to itself."""
    body = store_bytes(np.arange(entries, dtype="<i4").tobytes(), codec)
    if body is None:
        raise ValueError(f"pages of codec {codec} cannot be stored")
    header = write_struct(
        {
            1: (I32, int(PageType.DICTIONARY_PAGE)),
            2: (I32, 4 * entries),
            3: (I32, len(body)),
            7: (STRUCT, {1: (I32, entries), 2: (I32, int(Encoding.PLAIN))}),
        }
    )
    return header + body


MOST_PICKED: Final = 1 << 15
"""The most rows of a unit of which many are picked: more are faster decoded by pyarrow."""
MOST_RUNS: Final = 512
"""The most runs of a page. Consecutive bit-packed runs of one length count as one."""
MOST_LOOKED_AT: Final = 256
"""The most runs of several pages together that are looked at, for each `MOST_PICKED` rows on them: pyarrow
decodes the pages in the time that more would take."""
_MOST_BYTES: Final = 1 << 30


def read_picks(
    pages: Sequence[DataPage],
    rows: RowSelection,
    *,
    named: DictionaryFacts,
    codec: int,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form,
    optional: bool,
    memory_limit: int | None = None,
) -> pa.Array | None:
    """Return the selected rows of pages that are all dictionary-encoded; None where pyarrow has to read them,
    or they take more than `memory_limit` bytes.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages.
    kind, form
        The type of the array, and how its values are stored in the dictionary.

    Raises
    ------
    ParquetFormatError
        A checksum does not match, or the dictionary does not decode.
    """
    chosen = rows.row_numbers()
    ends = np.array([page.num_values for page in pages]).cumsum()
    cuts = [0, *chosen.searchsorted(ends).tolist()]
    places = [place for place in range(len(pages)) if cuts[place + 1] > cuts[place]]
    read = [pages[place] for place in places]
    counts = [page.num_values for page in read]
    most = MOST_LOOKED_AT * max(1, sum(counts) // MOST_PICKED)
    picked = PickedPages(named.entries)
    for done, (count, raw) in enumerate(zip(counts, value_bytes(read, optional=optional), strict=True), 1):
        if raw is None or not picked.add(raw.tobytes(), count):
            return None
        # The pages that are left are assumed to be like these.
        if done < len(read) and picked.looked_at * len(read) > most * done:
            return None
    if len(read) < len(pages):
        # The rows move up by the rows of the pages that were not read.
        skipped = ends[places] - np.cumsum(counts)
        chosen = chosen - skipped[ends[places].searchsorted(chosen, "right")]
    indices = picked.indices(chosen)
    if indices is None:
        return None
    most = _MOST_BYTES if memory_limit is None else min(memory_limit, _MOST_BYTES)
    return _pick_entries(named, codec, element, kind, form, indices, most=most)


class PickedPages:
    """The indices of consecutive pages: their runs are found page by page, and unpacked together.

    All indices of a page are compared with the size of the dictionary, however few are picked.
    """

    def __init__(self, entries: int) -> None:
        self._entries = entries
        # Consecutive pages of one width are together.
        self._parts: list[RunValues] = []
        self.looked_at = 0
        """Runs that were looked at one by one."""

    def add(self, data: bytes, count: int) -> bool:
        """Add the next page; False where it is not as writers make it, or repeats an index beyond the
        dictionary."""
        width = data[0] if data else -1
        runs = find_runs(data, start=1, width=width, count=count, most_runs=MOST_RUNS)
        if runs is None or runs.most >= self._entries:
            return False
        self.looked_at += len(runs.firsts)
        if not self._parts or self._parts[-1].width != width:
            self._parts.append(RunValues(width))
        self._parts[-1].add(data, runs, count=count)
        return True

    def indices(self, chosen: Int64s) -> Ints | None:
        """Return the indices of these rows, which ascend; None where any index of the pages is beyond the
        dictionary."""
        stops = np.cumsum([part.count for part in self._parts])
        cuts = [0, *chosen.searchsorted(stops).tolist()]
        found: list[Ints] = []
        start = 0
        for part, first, cut in zip(self._parts, cuts, cuts[1:], strict=False):
            own = chosen[first:cut] - start if start else chosen[first:cut]
            if len(own) * _LEAST_UNPACKED < part.count:
                if not part.are_below(self._entries):
                    return None
                found.append(part.pick(own))
            else:
                unpacked = part.unpack()
                if int(unpacked.max(initial=0)) >= self._entries:
                    return None
                found.append(unpacked if len(own) == part.count else unpacked[own])
            start += part.count
        return found[0] if len(found) == 1 else np.concatenate([_NONE, *found])


_NONE: Final[Int64s] = np.empty(0, np.int64)
_LEAST_UNPACKED: Final = 8
"""If fewer than one in this many indices is wanted, these are picked, and the others only compared."""
