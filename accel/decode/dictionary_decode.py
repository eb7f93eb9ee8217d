"""The schema of a file of one column, for values that are decoded apart from theirs."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache

from accel import kernels
from accel.arrays import Int64s, from_numpy
from accel.decode.arrow import open_reader, translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.codecs import STORABLE, check_crc, decompress, store_bytes
from accel.decode.plain_pages import DataPage, Form, form_of, read_entries, uniform_length, value_bytes
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.decode.trim import is_view
from accel.decode.verify import DictionaryFacts, PageFacts
from accel.errors import ParquetFormatError
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
from accel.format.runs import Runs, find_runs, unpack_runs
from accel.format.thrift import BINARY, I32, STRUCT, Struct, read_struct, write_struct
from accel.planning.selection import RowSelection
from accel.ranges import Buffer, Kind

__all__ = [
    "FEW_VALUES",
    "MOST_PICKED",
    "PickedPages",
    "dictionary_values",
    "lone_column",
    "longest_text",
    "number_page",
    "pays",
    "pick_entries",
    "read_as_indices",
    "read_picks",
    "splice_indices",
    "stays_indexed",
]


def lone_column(name: str, physical: Physical, *, repetition: Repetition) -> ParquetSchema:
    """A root with one flat column that has no logical type.

    Source: parquet-format `parquet.thrift` (SchemaElement).
    """
    root: Struct = {4: (BINARY, b"schema"), 5: (I32, 1)}
    own: Struct = {1: (I32, int(physical)), 3: (I32, int(repetition)), 4: (BINARY, name.encode())}
    leaf = Leaf(
        ordinal=0,
        path=(name,),
        element=1,
        ancestors=(),
        max_definition=int(repetition is Repetition.OPTIONAL),
        max_repetition=0,
    )
    return ParquetSchema(
        elements=(
            _element("schema", None, Repetition.REQUIRED, root),
            _element(name, physical, repetition, own),
        ),
        leaves=(leaf,),
        fields=(1,),
        subtree_ends=(2, 2),
        field_leaves=((0, 1),),
    )


def _element(name: str, physical: Physical | None, repetition: Repetition, fields: Struct) -> SchemaElement:
    return SchemaElement(
        name=name,
        physical=physical,
        type_length=0,
        repetition=repetition,
        num_children=0 if physical is not None else 1,
        converted_type=None,
        logical_type=None,
        logical_params={},
        scale=0,
        precision=0,
        field_id=None,
        raw=write_struct(fields),
    )


def longest_text(page: Buffer, codec: int) -> int:
    """The bytes of the longest entry of a BYTE_ARRAY dictionary page (header included), verified before.

    Raises
    ------
    ParquetFormatError
        It does not decode.
    """
    length = uniform_length(page, codec)
    if length is not None:
        return length
    chunks = _entries(page, codec, _SCHEMA).chunks
    return max(
        (
            int(np.diff(np.frombuffer(c.buffers()[1], np.int32, len(c) + 1, 4 * c.offset)).max())
            for c in chunks
        ),
        default=0,
    )


def dictionary_values(
    page: Buffer, codec: int, element: SchemaElement, *, arrow_type: pa.DataType
) -> pa.Array:
    """The entries of a dictionary page, in the type that the column's decoded values have.

    Parameters
    ----------
    page : Buffer
        The page, header included.
    element : SchemaElement
        The column's leaf.
    arrow_type : pyarrow.DataType
        Of the column; for dictionary types, the entries have its value type.

    Raises
    ------
    ParquetFormatError
        It does not decode, or its values are none of that type.
    """
    entries = _entries(page, codec, _required(element))
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    with translate_errors(place=Kind.DICTIONARY.value):
        array = entries.combine_chunks() if entries.num_chunks != 1 else entries.chunk(0)
        return array if array.type.equals(kind) else array.cast(kind)


def _required(element: SchemaElement) -> ParquetSchema:
    """A schema of this one column, without nulls. Kept, so that what is worked out of it is found again."""
    with _lock:
        cached = _schemas.get(element.raw)
    if cached is not None:
        return cached
    fields, _ = read_struct(element.raw)
    fields[3] = (I32, int(Repetition.REQUIRED))
    required = replace(element, repetition=Repetition.REQUIRED, raw=write_struct(fields))
    leaf = Leaf(ordinal=0, path=(element.name,), element=1, ancestors=(), max_definition=0, max_repetition=0)
    schema = replace(_SCHEMA, elements=(_SCHEMA.elements[0], required), leaves=(leaf,))
    with _lock:
        _schemas[element.raw] = schema
    return schema


_lock = threading.Lock()
_schemas: LRUCache[bytes, ParquetSchema] = LRUCache(256)


def _entries(page: Buffer, codec: int, schema: ParquetSchema) -> pa.ChunkedArray:
    header = parse_page_header(page)
    body, size = memoryview(page)[header.header_length :], header.compressed_size
    crc = header.crc
    if codec != Codec.UNCOMPRESSED:
        # pyarrow would decompress it into the default pool, which may not have been used yet.
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
        # Of the body, which stays as it is. Thrift's integers are signed.
        as_data[4] = (I32, crc - (crc >> 31 << 32))
    parts = (write_struct(as_data), body)
    chunk = SplicedChunk(parts, codec, header.num_values, header.uncompressed_size)
    plan = plan_splice(schema, _NO_METADATA, fields=[0])
    with translate_errors(place=Kind.DICTIONARY.value):
        reader = open_reader(splice(plan, {0: chunk}, num_rows=header.num_values))
        column = reader.read_row_groups([0], [0], False).column(0)
    if len(column) != header.num_values:
        raise ParquetFormatError("it has not the entries that its header says", place=Kind.DICTIONARY.value)
    return column


_NO_METADATA: Final[dict[str, bytes]] = {}
_SCHEMA: Final = lone_column("text", Physical.BYTE_ARRAY, repetition=Repetition.REQUIRED)


_LEAST_NAMED: Final[dict[Physical | None, int]] = {Physical.BYTE_ARRAY: 2, Physical.FIXED_LEN_BYTE_ARRAY: 1}
"""A dictionary whose entries are named fewer times than this on average would cost more than the values. Texts that
seem to be of one length are none the less: they are taken as they lie."""
_FEW_ENTRIES = 4096
FEW_VALUES = 4096
"""So few values are decoded in the time that a small dictionary takes by itself."""


def stays_indexed(kind: pa.DataType, element: SchemaElement, *, facts: PageFacts, codec: int) -> bool:
    """Whether a top-level column of this type is read as indices: all of its pages are dictionary-encoded."""
    named = facts.sole_dictionary
    if named is None:
        return False
    few = named.named <= FEW_VALUES and named.uncompressed <= _SMALL_PAGE
    return not few and pays(kind, element, named, codec)


def pays(kind: pa.DataType, element: SchemaElement, named: DictionaryFacts, codec: int) -> bool:
    """Whether values of a top-level column are decoded slower than indices; numbers are not."""
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
    """Whether the entries of a large dictionary have the size that texts of one length have."""
    return named.entries > _FEW_ENTRIES and named.uncompressed % named.entries == 0


def splice_indices(chunk: ChunkPages, facts: PageFacts, *, named: DictionaryFacts) -> SplicedChunk:
    """The chunk as one of INT32, for a plan that has its leaf among `indexed`."""
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
    """The decoded indices with the dictionary that they point into.

    Raises
    ------
    ParquetFormatError
        The dictionary does not decode.
    """
    dictionary = _dictionary(named, codec, element, kind)
    arrays = [pa.DictionaryArray.from_arrays(chunk, dictionary, safe=False) for chunk in indices.chunks]
    return pa.chunked_array(arrays, type=pa.dictionary(pa.int32(), kind))


def pick_entries(
    named: DictionaryFacts,
    codec: int,
    *,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form,
    indices: npt.NDArray[np.int64],
) -> tuple[pa.Array, npt.NDArray[np.int64] | None]:
    """Values, and the places among them of what the indices name; None for those in their order.

    Raises
    ------
    ParquetFormatError
        The dictionary does not decode.
    """
    if len(indices) * _FEW_NAMED < named.entries and not _is_small(named):
        # Of most dictionaries the entries lie where they are looked for: no other needs to be decoded.
        found = read_entries(named.page, codec, kind=kind, form=form, chosen=indices)
        if found is not None:
            return found, None
    return _dictionary(named, codec, element, kind), indices


_FEW_NAMED = 4


def _is_small(named: DictionaryFacts) -> bool:
    """Whether its entries are kept once they are decoded."""
    small = len(named.page) <= _SMALL_PAGE and named.entries <= _FEW_ENTRIES
    return small and named.uncompressed <= 4 * _SMALL_PAGE


def _dictionary(named: DictionaryFacts, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    """The entries; of a small page they are kept for the next one with the very bytes."""
    key = (bytes(named.page), codec, element.raw, kind) if _is_small(named) else None
    if key is not None:
        with _lock:
            cached = _decoded.get(key)
        if cached is not None:
            return cached
    form = form_of(kind, element)
    found = None if form is None else read_entries(named.page, codec, kind=kind, form=form)
    if found is None:
        found = dictionary_values(named.page, codec, element, arrow_type=kind)
    if key is not None:
        with _lock:
            _decoded[key] = found
    return found


_SMALL_PAGE = 16 << 10
_lock = threading.Lock()
_decoded: LRUCache[Hashable, pa.Array] = LRUCache(128)


def number_page(entries: int, codec: int) -> Buffer:
    """A dictionary page of INT32 (header included): each index names itself."""
    return _few_numbers(entries, codec) if entries <= _FEW_ENTRIES else _number_page(entries, codec)


def _number_page(entries: int, codec: int) -> Buffer:
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


_few_numbers = lru_cache(64)(_number_page)


MOST_PICKED: Final = 1 << 15
"""More rows, selected or not, are faster decoded by pyarrow: all indices of a page that is read are unpacked."""
_MOST_RUNS: Final = 512
"""Of a page. Packed ones of one length in a row count as one."""
_MOST_LOOKED_AT: Final = 256
"""Of several pages together: pyarrow decodes all of them in the time that so many looks take."""
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
) -> pa.Array | None:
    """The selected rows of pages that are all dictionary-encoded; None where they are to be read in the common way.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages given.
    kind, form
        Of the array, and how its values lie in the dictionary.

    Raises
    ------
    ParquetFormatError
        A checksum does not match, or the dictionary does not decode.
    """
    if named.longest * rows.count > _MOST_BYTES:
        return None
    chosen = rows.row_numbers()
    ends = np.array([page.num_values for page in pages]).cumsum()
    cuts = [0, *chosen.searchsorted(ends).tolist()]
    chosen_pages = [number for number in range(len(pages)) if cuts[number + 1] > cuts[number]]
    counts = [pages[number].num_values for number in chosen_pages]
    if sum(counts) > MOST_PICKED:
        return None
    bodies = value_bytes([pages[number] for number in chosen_pages], optional=optional)
    picked = PickedPages(named.entries)
    for done, (count, raw) in enumerate(zip(counts, bodies, strict=True), 1):
        if raw is None or not picked.add(raw.tobytes(), count):
            return None
        # Those that are left are taken to be as these.
        if done < len(chosen_pages) and picked.looked_at * len(chosen_pages) > _MOST_LOOKED_AT * done:
            return None
    indices = picked.indices()
    if indices is None:
        return None
    if len(chosen_pages) < len(pages):
        # Where the rows lie in the pages that were read.
        skipped = ends[chosen_pages] - np.cumsum(counts)
        chosen = chosen - skipped[ends[chosen_pages].searchsorted(chosen, "right")]
    indices = indices[chosen]
    entries, places = pick_entries(named, codec, element=element, kind=kind, form=form, indices=indices)
    return entries if places is None else kernels.take(entries, from_numpy(places))


class PickedPages:
    """The indices of pages behind each other: their runs are looked through one by one, and unpacked together.

    All indices of a page are unpacked, and held against the dictionary, however few are picked.
    """

    __slots__ = (
        "_bits",
        "_data",
        "_entries",
        "_firsts",
        "_found",
        "_repeated",
        "_size",
        "_values",
        "_width",
        "looked_at",
    )

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._found: list[Int64s] = []
        self._width = 0
        # Of pages of this width, which are yet to be unpacked: their bytes, their values, and their runs.
        self._data: list[bytes] = []
        self._size = self._values = 0
        self._firsts: list[int] = []
        self._bits: list[int] = []
        self._repeated: list[int] = []
        self.looked_at = 0
        """Runs that took a look of their own."""

    def add(self, data: bytes, count: int) -> bool:
        """The next page; False where it is not quite what writers make, or repeats what is no entry."""
        width = data[0] if data else -1
        runs = find_runs(data, start=1, width=width, count=count, most_runs=_MOST_RUNS)
        if runs is None or runs.most >= self._entries:
            return False
        self.looked_at += runs.steps
        if width != self._width:
            self._unpack()
            self._width = width
        first, bit = self._values, self._size << 3
        self._firsts.extend([first + at for at in runs.firsts] if first else runs.firsts)
        self._bits.extend([bit + at for at in runs.bits] if bit else runs.bits)
        self._repeated.extend(runs.values)
        self._data.append(data)
        self._size += len(data)
        self._values += count
        return True

    def _unpack(self) -> None:
        if not self._data:
            return
        runs = Runs(self._firsts, self._bits, self._repeated, 0)
        data = self._data[0] if len(self._data) == 1 else b"".join(self._data)
        self._found.append(unpack_runs(data, runs, width=self._width, count=self._values))
        self._data, self._firsts, self._bits, self._repeated = [], [], [], []
        self._size = self._values = 0

    def indices(self) -> Int64s | None:
        """All indices of the pages; None where one of them names what is no entry."""
        self._unpack()
        found = np.concatenate(self._found) if len(self._found) != 1 else self._found[0]
        return found if not len(found) or int(found.max()) < self._entries else None
