"""Page indexes for chunks that have none: the places of the pages, and their bounds and nulls from decoded
values.

Sources: parquet-format `PageIndex.md`, `parquet.thrift` (ColumnIndex), `LogicalTypes.md` (sort orders).

Bounds are written only if every reader understands them alike: in an order that the schema defines, of a type
whose values pyarrow returns as they were written, and without NaN in the chunk. The format leaves NaN out of
the bounds, so that readers which take NaN for the greatest number, as DataFusion does, would drop pages that
hold one. INT96 has no order.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.decode.arrow import projected_schema
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.nested import count_levels
from accel.errors import AccelError, ParquetFormatError
from accel.format.model import ColumnOrder, Leaf, OffsetIndex, PageType, Physical, SchemaElement
from accel.format.page_header import PageHeader, parse_page_header
from accel.format.schema import ConvertedType, LogicalType, time_unit
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, Struct, ThriftList, write_struct
from accel.options import Options
from accel.planning.selection import RowSelection
from accel.writing.original import At, Original
from accel.writing.source import Source
from accel.writing.values import flat_leaf, whole_chunk

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "BoundsBuilder",
    "ChunkPageList",
    "PageIndexBuilder",
    "PageIndexes",
    "bounds_builder",
    "encode_offset_index",
    "list_pages",
]

_MOST_BYTES = 64
"""Longer bounds of texts are cut, as parquet-java and arrow-rs cut them."""
_TEXT = (LogicalType.STRING, LogicalType.ENUM, LogicalType.JSON)
"""The types that are UTF-8."""
_UNSIGNED = (ConvertedType.UINT_8, ConvertedType.UINT_16, ConvertedType.UINT_32, ConvertedType.UINT_64)


@dataclass(frozen=True, slots=True)
class _Coding:
    """How the values of one column are compared, and how bounds are encoded."""

    to: pa.DataType | None
    """The type to view the values as; None if their own can be compared."""
    lower: Callable[[Any], bytes]
    upper: Callable[[Any], bytes]


@dataclass(slots=True)
class BoundsBuilder:
    """Builds the column index of one chunk from its pages in order."""

    coding: _Coding
    null_pages: list[bool] = field(default_factory=list)
    lower: list[bytes] = field(default_factory=list)
    upper: list[bytes] = field(default_factory=list)
    null_counts: list[int] = field(default_factory=list)
    keys: list[tuple[Any, Any]] = field(default_factory=list)
    """The comparable bounds of the pages that are not all null."""
    void: bool = False
    """Whether there is a NaN, so that there can be no column index."""

    def add_run(self, array: pa.Array, first_rows: Int64s) -> None:
        """Take the values of the next pages, given where each starts among them."""
        stops = np.append(first_rows[1:], len(array))
        for start, stop in zip(first_rows.tolist(), stops.tolist(), strict=True):
            self.add(array.slice(start, stop - start))

    def add(self, page: pa.Array) -> None:
        """Take the values of the next page."""
        if self.void:
            return
        if pa.types.is_dictionary(page.type):
            page = page.dictionary_decode()
        self.null_counts.append(page.null_count)
        if page.null_count == len(page):
            self.null_pages.append(True)
            self.lower.append(b"")
            self.upper.append(b"")
            return
        if self.coding.to is not None:
            page = page.view(self.coding.to)
        if pa.types.is_float16(page.type):
            page = page.cast(pa.float32())
        if pa.types.is_decimal32(page.type) or pa.types.is_decimal64(page.type):
            # Arrow has no bounds of the narrow decimals.
            page = page.cast(pa.decimal128(page.type.precision, page.type.scale))
        if pa.types.is_floating(page.type) and pc.any(pc.is_nan(page)).as_py():
            self.void = True
            return
        bounds = pc.min_max(page)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        lower, upper = self.coding.lower(least), self.coding.upper(most)
        self.null_pages.append(False)
        self.lower.append(lower)
        self.upper.append(upper)
        # Cut texts may be in another order than whole ones.
        self.keys.append((lower, upper) if isinstance(least, bytes) else (least, most))

    def finish(self) -> bytes | None:
        """Return the ColumnIndex in Thrift's compact protocol; None if there can be none."""
        if self.void:
            return None
        return write_struct(
            {
                1: (LIST, ThriftList(TRUE, self.null_pages)),
                2: (LIST, ThriftList(BINARY, self.lower)),
                3: (LIST, ThriftList(BINARY, self.upper)),
                4: (I32, _order(self.keys)),
                5: (LIST, ThriftList(I64, self.null_counts)),
            }
        )


def _order(keys: Sequence[tuple[Any, Any]]) -> int:
    pairs = list(itertools.pairwise(keys))
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        return 1
    if all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        return 2
    return 0


def bounds_builder(element: SchemaElement, arrow_type: pa.DataType) -> BoundsBuilder | None:
    """Return a builder of bounds in the order that the type defines; None for types without such bounds."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    coding = _coding(element, arrow_type)
    return None if coding is None else BoundsBuilder(coding)


def _coding(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    kind = element.physical
    if kind is Physical.BOOLEAN and pa.types.is_boolean(arrow):
        return _Coding(None, lambda v: bytes((v,)), lambda v: bytes((v,)))
    if pa.types.is_decimal(arrow):
        return _decimals(element, arrow)
    if kind in (Physical.INT32, Physical.INT64):
        return _integers(element, arrow)
    if kind is Physical.FLOAT and pa.types.is_float32(arrow):
        return _Coding(None, _float("<f", -0.0), _float("<f", 0.0))
    if kind is Physical.DOUBLE and pa.types.is_float64(arrow):
        return _Coding(None, _float("<d", -0.0), _float("<d", 0.0))
    if (
        pa.types.is_float16(arrow)
        and element.logical_type == LogicalType.FLOAT16
        and element.type_length == 2
    ):
        return _Coding(None, _float("<e", -0.0), _float("<e", 0.0))
    return _bytes(element, arrow)


def _bytes(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    kind = element.physical
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        if kind is not Physical.BYTE_ARRAY or element.logical_type not in (*_TEXT, None):
            return None
        # As bytes: the text may not be UTF-8, and is ordered by bytes anyway.
        to = pa.binary() if pa.types.is_string(arrow) else pa.large_binary()
        return _Coding(to, _cut_text, _raise_text)
    if element.logical_type is not None or element.converted_type is not None:
        return None
    if kind is Physical.BYTE_ARRAY and (pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)):
        return _Coding(None, lambda v: bytes(v[:_MOST_BYTES]), _raise_bytes)
    if kind is Physical.FIXED_LEN_BYTE_ARRAY and pa.types.is_fixed_size_binary(arrow):
        return _Coding(None, bytes, bytes) if element.type_length <= _MOST_BYTES else None
    return None


def _integers(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    wide = element.physical is Physical.INT64
    ticks = pa.int64() if wide else pa.int32()
    signed = _fixed("<q" if wide else "<i")
    types = pa.types
    logical, params = element.logical_type, element.logical_params
    if types.is_signed_integer(arrow) and logical in (None, LogicalType.INTEGER):
        if element.converted_type not in _UNSIGNED:
            return _Coding(None, signed, signed)
    elif types.is_unsigned_integer(arrow):
        if logical == LogicalType.INTEGER and not params.get("signed", 1):
            unsigned = _fixed("<Q" if wide else "<I")
            return _Coding(None, unsigned, unsigned)
    elif types.is_date32(arrow) and not wide:
        return _Coding(ticks, signed, signed)
    elif types.is_time(arrow) or types.is_timestamp(arrow):
        due = LogicalType.TIMESTAMP if types.is_timestamp(arrow) else LogicalType.TIME
        if logical == due and time_unit(element) == arrow.unit:
            return _Coding(ticks, signed, signed)
    return None


def _decimals(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    """Encode decimals as unscaled integers, of the physical type or big-endian in two's complement."""
    if element.logical_type != LogicalType.DECIMAL and element.converted_type != ConvertedType.DECIMAL:
        return None
    scale = arrow.scale
    if element.physical in (Physical.INT32, Physical.INT64):
        pack = _fixed("<q" if element.physical is Physical.INT64 else "<i")
    elif element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        length = element.type_length

        def pack(value: int) -> bytes:
            return value.to_bytes(length, "big", signed=True)
    else:
        return None
    return _Coding(None, lambda v: pack(_unscaled(v, scale)), lambda v: pack(_unscaled(v, scale)))


def _unscaled(value: Decimal, scale: int) -> int:
    # The arithmetic of Decimal rounds to 28 digits.
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * int(10 ** (int(exponent) + scale))
    return int(-number if sign else number)


def _fixed(shape: str) -> Callable[[int], bytes]:
    return struct.Struct(shape).pack


def _float(shape: str, zero: float) -> Callable[[float], bytes]:
    pack = struct.Struct(shape).pack
    # Both zeros are equal: a bound of one must not exclude the other.
    return lambda value: pack(zero if value == 0 else value)


def _cut_text(value: bytes) -> bytes:
    if len(value) <= _MOST_BYTES:
        return value
    end = _MOST_BYTES
    while end > _MOST_BYTES - 4 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def _raise_text(value: bytes) -> bytes:
    """Return a short upper bound that is valid text; the value itself if there is none."""
    if len(value) <= _MOST_BYTES:
        return value
    try:
        text = _cut_text(value).decode()
    except UnicodeDecodeError:
        return value
    for end in range(len(text), 0, -1):
        point = ord(text[end - 1]) + 1
        if 0xD800 <= point < 0xE000:
            point = 0xE000
        if point <= 0x10FFFF:
            return (text[: end - 1] + chr(point)).encode()
    return value


def _raise_bytes(value: bytes) -> bytes:
    if len(value) <= _MOST_BYTES:
        return bytes(value)
    cut = value[:_MOST_BYTES].rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else bytes(value)


_DATA = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
# A header holds statistics, whose values may be long; a longer one is damaged.
_MOST_HEADER = 16 * 1024 * 1024


class ChunkPageList:
    """The data pages of one chunk by their headers, as arrays over the pages."""

    def __init__(self, columns: Int64s) -> None:
        self.offset: Int64s = columns[0]
        """The place of the header in the file."""
        self.size: Int64s = columns[1]
        """Header and body, as stored."""
        self.num_values: Int64s = columns[2]
        self.num_rows: Int64s = columns[3]
        """-1 for pages of version 1, whose headers do not say."""

    def locate(self, rows: Int64s, num_rows: int) -> OffsetIndex | None:
        """Return the offset index, given the rows of each page; None if they do not add up."""
        if not len(rows) or bool((rows <= 0).any()) or int(rows.sum()) != num_rows:
            return None
        return OffsetIndex(self.offset, self.size, np.cumsum(rows) - rows)

    def locate_counted(self, levels: Int64s) -> OffsetIndex | None:
        """Return the offset index, given the number of level values of each row; None if a page begins within
        a row."""
        ends = np.cumsum(levels)
        stops = np.cumsum(self.num_values)
        if not len(ends) or not len(stops) or int(ends[-1]) != int(stops[-1]):
            return None
        last = np.searchsorted(ends, stops)
        if bool((ends[last] != stops).any()):
            return None
        return self.locate(np.diff(last + 1, prepend=0), len(levels))


def list_pages(source: Source, start: int, *, end: int, num_values: int) -> ChunkPageList | None:
    """Walk the page headers of the chunk at bytes `start..end`; None if they do not add up to its values."""
    table = array("q")
    pos, seen = start, 0
    window = _Window(source, end)
    while seen < num_values and pos < end:
        header = _read_header(window, pos, end - pos)
        if header is None:
            return None
        size = header.header_length + header.compressed_size
        if size > end - pos:
            return None
        if header.type in _DATA:
            seen += header.num_values
            # An empty page shares its first row with the next one.
            if header.num_values:
                table.extend((pos, size, header.num_values, header.num_rows))
        pos += size
    if seen != num_values:
        return None
    return ChunkPageList(np.array(table, np.int64).reshape(-1, 4).T.copy())


class _Window:
    """The bytes of a chunk, read ahead."""

    def __init__(self, source: Source, end: int) -> None:
        self.ahead = source.window
        self._source = source
        self._end = end
        self._start = 0
        self._data = memoryview(b"")

    def at(self, pos: int, size: int) -> memoryview:
        """Return the bytes from `pos` on: at least `size`, or all up to the end of the chunk."""
        if pos < self._start or min(self._end, pos + size) > self._start + len(self._data):
            [self._data] = self._source.read([(pos, min(self._end, pos + max(size, self.ahead)))])
            self._start = pos
        return self._data[pos - self._start :]


def _read_header(window: _Window, pos: int, left: int) -> PageHeader | None:
    # Most headers take a few dozen bytes.
    for size in (64, window.ahead, 16 * window.ahead, _MOST_HEADER):
        data = window.at(pos, min(max(64, size), left))
        try:
            return parse_page_header(data)
        except ParquetFormatError:
            if len(data) >= left:
                return None
    return None


def encode_offset_index(index: OffsetIndex) -> bytes:
    """Return the OffsetIndex of one chunk in Thrift's compact protocol."""
    rows = zip(index.offset.tolist(), index.size.tolist(), index.first_row.tolist(), strict=True)
    pages: list[Struct] = [
        {1: (I64, offset), 2: (I32, size), 3: (I64, first)} for offset, size, first in rows
    ]
    return write_struct({1: (LIST, ThriftList(STRUCT, pages))})


@dataclass(slots=True, eq=False)
class PageIndexes:
    """The page indexes of the new file, by chunk."""

    offset_bytes: dict[At, bytes]
    column_bytes: dict[At, bytes]
    offset_indexes: dict[At, OffsetIndex]
    added: int = 0
    """The number of new offset indexes."""
    added_bounds: int = 0
    """The number of new column indexes."""
    type_orders: bool = False
    """Whether the footer must get column orders, which say that bounds are in the order of the type."""
    unknown: list[str] = field(default_factory=list)
    """Columns whose pages cannot be located."""


class PageIndexBuilder:
    """Builds the page indexes that a file lacks, chunk by chunk.

    If some pages cannot be located, no offset index is added: readers expect them for all columns of a row
    group or none.
    """

    def __init__(self, original: Original, source: Source, *, options: Options) -> None:
        self.original = original
        self.source = source
        self.metadata = original.metadata
        self.options = options
        self.offset_indexes = dict(original.offset_indexes)
        """All offset indexes, for indexes by page, whether or not they are written."""
        self.new: dict[At, OffsetIndex] = {}
        self.bounds: dict[At, bytes] = {}
        self.unknown: dict[str, None] = {}
        self.type_orders = False
        self.ordered = self._orders()

    def lacks(self, at: At) -> bool:
        """Return whether a chunk has rows but no offset index."""
        return bool(self.metadata.group_rows[at[0]]) and at not in self.original.offset_indexes

    def locate(self, at: At) -> OffsetIndex | None:
        """Return the offset index of a chunk that lacks one; None if its pages cannot be located."""
        leaf = self.metadata.schema.leaves[at[1]]
        index = self._locate(at, leaf)
        if index is None:
            self.unknown[".".join(leaf.path)] = None
        else:
            self.new[at] = self.offset_indexes[at] = index
        return index

    def bounds_of(self, at: At, kind: pa.DataType) -> BoundsBuilder | None:
        """Return a builder for the pages of a located chunk with values of type `kind`; None if it gets no
        bounds."""
        leaf = self.metadata.schema.leaves[at[1]]
        # A writer of one half alone may have had a reason.
        if at not in self.new or at in self.original.offset_bytes or self.unknown:
            return None
        if not self.ordered[leaf.ordinal] or not flat_leaf(leaf):
            return None
        return bounds_builder(self.metadata.schema.elements[leaf.element], kind)

    def take_bounds(self, at: At, builder: BoundsBuilder) -> None:
        """Take the column index of a chunk from its builder."""
        data = builder.finish()
        if data is not None:
            self.bounds[at] = data

    def finish(self) -> PageIndexes:
        """Return the page indexes of the new file."""
        original = self.original
        found = PageIndexes(dict(original.offset_bytes), dict(original.column_bytes), self.offset_indexes)
        found.unknown = list(self.unknown)
        if not self.unknown:
            found.offset_bytes |= {at: encode_offset_index(index) for at, index in self.new.items()}
            found.column_bytes |= self.bounds
            found.added, found.added_bounds = len(self.new), len(self.bounds)
            found.type_orders = self.type_orders and bool(self.bounds)
        return found

    def _locate(self, at: At, leaf: Leaf) -> OffsetIndex | None:
        chunks = self.metadata.chunks
        num_rows = int(self.metadata.group_rows[at[0]])
        pages = list_pages(
            self.source,
            int(chunks.start[at]),
            end=int(chunks.end[at]),
            num_values=int(chunks.num_values[at]),
        )
        if pages is None:
            return None
        if flat_leaf(leaf):
            return pages.locate(pages.num_values, num_rows)
        return pages.locate(pages.num_rows, num_rows) or self._locate_counted(at, leaf, pages)

    def _locate_counted(self, at: At, leaf: Leaf, pages: ChunkPageList) -> OffsetIndex | None:
        """Locate pages of version 1 inside lists, which do not say how many rows they hold, by decoding the
        chunk."""
        chunks, schema = self.metadata.chunks, self.metadata.schema
        num_rows = int(self.metadata.group_rows[at[0]])
        if int(chunks.end[at] - chunks.start[at]) > self.options.memory_limit // 4:
            return None
        whole = whole_chunk(self.source, self.metadata, at)
        try:
            [array] = decode_columns(
                StoredRowGroup(
                    self.source.name, at[0], schema, self.metadata.key_value, self.metadata.created_by
                ),
                {leaf.ordinal: whole},
                rows=RowSelection.all(num_rows),
                arrow_schema=projected_schema(schema, self.metadata.key_value, leaves=[leaf.ordinal]),
                memory_limit=self.options.memory_limit,
                verify_checksums=self.options.verify_checksums,
            )
            parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
            counts = [count_levels(part) for part in parts]
        except AccelError:
            return None
        levels = [np.ones(len(p), np.int64) if c is None else c for p, c in zip(parts, counts, strict=True)]
        return pages.locate_counted(np.concatenate(levels))

    def _orders(self) -> list[bool]:
        """Return for each leaf whether readers would take bounds as being in the order of the type."""
        orders = self.metadata.column_orders
        chunks = self.metadata.chunks
        if not bool((orders != ColumnOrder.UNDEFINED).any()):
            # New column orders must not give a meaning to earlier bounds, which had none.
            if (
                bool((chunks.min_start >= 0).any() | (chunks.max_start >= 0).any())
                or self.original.column_bytes
            ):
                return [False] * len(orders)
            self.type_orders = True
            return [True] * len(orders)
        return [order == ColumnOrder.TYPE_DEFINED for order in orders.tolist()]
