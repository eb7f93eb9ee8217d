"""PLAIN values of flat columns, which accel takes out of their pages itself where none is null.

Sources: parquet-format `Encodings.md` (PLAIN; RLE/bit-packed hybrid), `parquet.thrift` (DataPageHeader,
DataPageHeaderV2); README (nulls, data pages).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import WIDE_TEXTS, Int64s
from accel.decode.chunks import ChunkPages
from accel.decode.codecs import Bytes, check_crc, decompress
from accel.decode.verify import DictionaryFacts, PageFacts
from accel.format.model import Codec, Encoding, PageType, Physical, SchemaElement
from accel.format.runs import find_runs
from accel.format.schema import time_unit
from accel.format.thrift import encode_varint
from accel.memory import allocate
from accel.planning.selection import RowSelection

__all__ = [
    "DataPage",
    "Form",
    "Shape",
    "data_pages",
    "form_of",
    "is_plain",
    "put",
    "read_entries",
    "read_plain",
    "value_bytes",
    "widen",
]


class DataPage(NamedTuple):
    """One data page of a flat column."""

    body: memoryview
    """As it is stored."""
    codec: int
    """The codec of the values; those of a v2 page may be stored uncompressed."""
    is_v2: bool
    uncompressed: int
    """Bytes of the body after decompression."""
    num_values: int
    """Nulls included."""
    num_nulls: int
    """-1 where the header does not say."""
    encoding: int
    level_bytes: int
    """The bytes of a v2 page's definition levels, which are not compressed; -1 where it has repetition levels
    too."""
    level_encoding: int
    crc: int
    """Unsigned; -1 and 0 stand for no checksum."""


def data_pages(chunk: ChunkPages, facts: PageFacts) -> list[DataPage]:
    """Return the data pages of a chunk, in order."""
    pages: list[DataPage] = []
    for buffer, table in zip(chunk.buffers, facts.tables, strict=True):
        view = memoryview(buffer)
        for _, body, end, size, crc, values, kind, _, nulls, encoding, levels, of_depth, packed, how in zip(
            *[column.tolist() for column in table], strict=True
        ):
            if kind in _DATA:
                codec = chunk.codec if packed else Codec.UNCOMPRESSED
                depth = levels if levels == of_depth else -1
                pages.append(
                    DataPage(
                        view[body:end], codec, kind == _V2, size, values, nulls, encoding, depth, how, crc
                    )
                )
    return pages


_V2: Final = int(PageType.DATA_PAGE_V2)
_DATA: Final = frozenset({int(PageType.DATA_PAGE), _V2})


def _plain_size(page: DataPage, *, optional: bool) -> int:
    """Return the bytes of a page's values by its header; -1 where they are not PLAIN, or some are null.

    The header of a v1 page of an optional column does not say whether some are null. The result holds if none
    is.
    """
    if page.encoding != Encoding.PLAIN or page.num_nulls > 0:
        return -1
    if page.is_v2:
        return page.uncompressed - page.level_bytes if page.level_bytes >= 0 else -1
    if not optional:
        return page.uncompressed
    if page.level_encoding != Encoding.RLE:
        return -1
    return page.uncompressed - len(_present_levels(page.num_values))


def value_bytes(pages: Iterable[DataPage], *, optional: bool) -> Iterator[Bytes | None]:
    """Yield the bytes of each page's values, whatever their encoding; None where some are null, or it does
    not decode.

    pyarrow then reads the page, and reports what is wrong with it.

    Raises
    ------
    ParquetFormatError
        The checksum of a page does not match.
    """
    for page in pages:
        check_crc(page.body, page.crc)
        yield _value_bytes(page, optional)


def _value_bytes(page: DataPage, optional: bool) -> Bytes | None:
    if page.is_v2:
        stop = page.level_bytes
        if (
            page.num_nulls > 0
            or stop < 0
            or (optional and not _all_present(page.body[:stop], page.num_values))
        ):
            return None
        return decompress(page.body[stop:], page.codec, size=page.uncompressed - stop)
    raw = decompress(page.body, page.codec, size=page.uncompressed)
    if raw is None or not optional:
        return raw
    if page.level_encoding != Encoding.RLE:
        return None
    levels = _present_levels(page.num_values)
    return raw[len(levels) :] if raw[: len(levels)].tobytes() == levels else None


@lru_cache(64)
def _present_levels(count: int) -> bytes:
    """Return the levels of a v1 page without nulls as writers make them: their length, then one run of
    ones."""
    run = encode_varint(count << 1) + b"\x01"
    return len(run).to_bytes(4, "little") + run


def _all_present(levels: memoryview, count: int) -> bool:
    """Return whether definition levels of one bit, in RLE runs, are those of `count` values without a
    null."""
    runs = find_runs(levels.tobytes(), start=0, width=1, count=count, most_runs=_MOST_RUNS)
    # Bit-packed levels mostly have nulls.
    return runs is not None and min(runs.values, default=1) == 1


_MOST_RUNS: Final = 64


_DECIMAL_BYTES: Final = 16


class Shape(enum.Enum):
    """How the bytes of a value become Arrow's."""

    COPIED = "copied"
    """They are the same."""
    NARROWED = "narrowed"
    """Arrow's type has the lower bytes of an integer."""
    WIDENED = "widened"
    """A little-endian integer becomes a decimal."""
    SWAPPED = "swapped"
    """A big-endian integer becomes a decimal."""
    TEXT = "text"
    """A value follows its length in four bytes."""


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are stored."""

    shape: Shape
    width: int
    """Bytes of a value in the page; 0 for texts, whose length differs by page."""
    out: int
    """Bytes of a value in Arrow; 0 for texts."""


_OF_4: Final = frozenset({pa.lib.Type_INT32, pa.lib.Type_UINT32, pa.lib.Type_DATE32})
_OF_8: Final = frozenset({pa.lib.Type_INT64, pa.lib.Type_UINT64, pa.lib.Type_DURATION})
_NARROW: Final = {
    pa.lib.Type_INT8: 1,
    pa.lib.Type_UINT8: 1,
    pa.lib.Type_INT16: 2,
    pa.lib.Type_UINT16: 2,
}
_MOMENTS: Final = {
    pa.lib.Type_TIME32: Physical.INT32,
    pa.lib.Type_TIME64: Physical.INT64,
    pa.lib.Type_TIMESTAMP: Physical.INT64,
}
_TEXTS: Final = frozenset(
    {pa.lib.Type_STRING, pa.lib.Type_BINARY, pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY}
)

_TEXT: Final = Form(Shape.TEXT, 0, 0)
_COPY_4: Final = Form(Shape.COPIED, 4, 4)
_COPY_8: Final = Form(Shape.COPIED, 8, 8)


def form_of(kind: pa.DataType, element: SchemaElement) -> Form | None:
    """Return how PLAIN values of a column become an array of its Arrow type; None where pyarrow has to read
    them."""
    number, physical = kind.id, element.physical
    if physical is Physical.BYTE_ARRAY:
        return _TEXT if number in _TEXTS else None
    if physical is Physical.FIXED_LEN_BYTE_ARRAY:
        return _fixed(kind, element.type_length)
    if physical is Physical.DOUBLE:
        return _COPY_8 if number == pa.lib.Type_DOUBLE else None
    if physical is Physical.FLOAT:
        return _COPY_4 if number == pa.lib.Type_FLOAT else None
    if physical is not Physical.INT32 and physical is not Physical.INT64:
        return None
    size, same = (4, _OF_4) if physical is Physical.INT32 else (8, _OF_8)
    if number in same or (_MOMENTS.get(number) is physical and kind.unit == time_unit(element)):
        return _COPY_4 if size == 4 else _COPY_8
    if number == pa.lib.Type_DECIMAL128:
        return Form(Shape.WIDENED, size, _DECIMAL_BYTES)
    if physical is Physical.INT32 and number in _NARROW:
        return Form(Shape.NARROWED, size, _NARROW[number])
    return None


def _fixed(kind: pa.DataType, width: int) -> Form | None:
    if not width:
        return None
    if kind.id == pa.lib.Type_DECIMAL128:
        return Form(Shape.SWAPPED, width, _DECIMAL_BYTES) if width <= _DECIMAL_BYTES else None
    if kind.id in (pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_HALF_FLOAT) and kind.byte_width == width:
        return Form(Shape.COPIED, width, width)
    return None


def put(form: Form, raw: Bytes, data: Bytes, row: int) -> None:
    """Write values other than texts, as a page has them, into Arrow's bytes from some row on."""
    start, count = form.out * row, len(raw) // form.width
    if form.shape is Shape.COPIED:
        data[start : start + len(raw)] = raw
        return
    part = data[start : start + form.out * count]
    if form.shape is Shape.NARROWED:
        part.view(f"<u{form.out}")[:] = raw.view("<u4")
        return
    words = part.view("<i8").reshape(count, 2)
    if form.shape is Shape.SWAPPED:
        widen(raw, form.width, out=words)
        return
    words[:, 0] = raw.view(f"<i{form.width}")
    np.right_shift(words[:, 0], 63, out=words[:, 1])


def widen(raw: Bytes, width: int, *, out: Int64s) -> None:
    """Write big-endian integers of 1 to 16 bytes as rows of two words, the low one first."""
    count = len(out)
    low, high = out[:, 0], out[:, 1]
    if width > 8:
        low[:] = _words(raw, count, width, width - 8)
        high[:] = _words(raw, count, width, 0)
        high >>= 8 * (_DECIMAL_BYTES - width)
        return
    # A word that begins with a value ends with bytes of the next one, which the last values do not have.
    inside = max(0, count - (7 // width + 1))
    low[:inside] = _words(raw, inside, width, 0)
    tail = np.zeros((count - inside) * width + 8, np.uint8)
    tail[:-8] = raw[inside * width :]
    low[inside:] = _words(tail, count - inside, width, 0)
    low >>= 64 - 8 * width
    np.right_shift(low, 63, out=high)


def _words(raw: Bytes, count: int, width: int, offset: int) -> Int64s:
    words: Int64s = np.ndarray((count,), ">i8", raw, offset, (width,)) if count else np.zeros(0, np.int64)
    return words


Ints = npt.NDArray[np.integer]

_PREFIX = 4
_MOST_TEXT = (1 << 31) - 1
"""Bytes that 32-bit offsets reach."""


def is_plain(page: DataPage, form: Form, *, optional: bool) -> bool:
    """Return whether a page has the size that values of this form have if none is null."""
    size, count = _plain_size(page, optional=optional), page.num_values
    if form.shape is not Shape.TEXT:
        return size == form.width * count
    return size >= _PREFIX * count and (size % count == 0 if count else size == 0)


def read_plain(
    pages: Sequence[DataPage],
    rows: RowSelection,
    *,
    kind: pa.DataType,
    form: Form,
    optional: bool,
) -> pa.Array | None:
    """Return the selected rows of pages that are all `is_plain`; None where one of them turns out not to be.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages.
    kind, form
        The type of the array, and how its values are stored.
    optional : bool
        Whether the pages have definition levels.

    Raises
    ------
    ParquetFormatError
        A checksum does not match.
    """
    ends = np.array([page.num_values for page in pages]).cumsum()
    low, high = int(rows.starts[0]), int(rows.stops[-1])
    if len(rows.starts) == 1:
        # The pages of one range are adjacent: all of it is decoded, and the ends are cut off if they are
        # short.
        first, stop = int(ends.searchsorted(low, "right")), int(ends.searchsorted(high, "left")) + 1
        before = int(ends[first - 1]) if first else 0
        pages, ends = pages[first:stop], ends[first:stop] - before
        low, high = low - before, high - before
    total = int(ends[-1])
    is_slice = len(rows.starts) == 1 and (high - low) * _LEAST_SHARE > total
    chosen = None if is_slice else rows.row_numbers() - (int(rows.starts[0]) - low)
    cuts = (ends if chosen is None else chosen.searchsorted(ends)).tolist()
    widths = [_width(page, form, optional=optional) for page in pages]
    counts = [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]
    texts = form.shape is Shape.TEXT
    sink = (_Texts if texts else _Values)(kind, form, counts, widths)
    if not sink.fits:
        return None
    values = value_bytes(
        [page for page, count in zip(pages, counts, strict=True) if count], optional=optional
    )
    done = start = 0
    for end, cut, width in zip(ends.tolist(), cuts, widths, strict=True):
        if cut > done:
            raw = next(values)
            if raw is None or (texts and not _is_uniform(raw, width)):
                return None
            if chosen is not None and cut - done < end - start:
                raw = raw.view(f"V{width}").take(chosen[done:cut] - start).view(np.uint8)
            sink.put(raw, width)
        done, start = cut, end
    array = sink.array()
    return array.slice(low, high - low) if is_slice and high - low < total else array


_LEAST_SHARE = 2
"""A slice of less than 1/_LEAST_SHARE of the pages is copied, so that it does not keep the rest in memory."""


def read_entries(
    named: DictionaryFacts, codec: int, *, kind: pa.DataType, form: Form, chosen: Ints | None = None
) -> pa.Array | None:
    """Return the entries of a dictionary, all or those with the `chosen` numbers.

    The result is None where the values do not have this form.

    Raises
    ------
    ParquetFormatError
        The checksum does not match.
    """
    header = named.header
    count, size = header.num_values, header.uncompressed_size
    texts = form.shape is Shape.TEXT
    width = form.width if not texts else size // count if count else _PREFIX
    if size != width * count or (texts and width < _PREFIX):
        return None
    num_chosen = count if chosen is None else len(chosen)
    sink = (_Texts if texts else _Values)(kind, form, [num_chosen], [width])
    if not sink.fits:
        return None
    body = memoryview(named.page)[header.header_length :][: header.compressed_size]
    check_crc(body, header.crc)
    raw = decompress(body, codec, size=size)
    if raw is None or (texts and not _is_uniform(raw, width)):
        return None
    if chosen is not None:
        raw = raw.view(f"V{width}").take(chosen).view(np.uint8)
    sink.put(raw, width)
    return sink.array()


def _width(page: DataPage, form: Form, *, optional: bool) -> int:
    """Return the bytes of one value in a page that is `is_plain`."""
    if form.width or not page.num_values:
        return form.width
    return _plain_size(page, optional=optional) // page.num_values


def _is_uniform(raw: Bytes, width: int) -> bool:
    """Return whether texts that follow their lengths take `width` bytes each."""
    lengths: Ints = np.ndarray((len(raw) // width,), "<u4", raw, 0, (width,))
    return bool((lengths == width - _PREFIX).all())


class _Values:
    """Makes an array of values of a fixed width."""

    fits = True

    def __init__(self, kind: pa.DataType, form: Form, counts: Sequence[int], widths: Sequence[int]) -> None:
        self._kind, self._form, self._count = kind, form, sum(counts)
        self._out = allocate(self._count * form.out)
        self._data = np.frombuffer(self._out, np.uint8)
        self._row = 0

    def put(self, raw: Bytes, width: int) -> None:
        """Append values as a page has them."""
        put(self._form, raw, self._data, self._row)
        self._row += len(raw) // width

    def array(self) -> pa.Array:
        """Return all values."""
        return pa.Array.from_buffers(self._kind, self._count, [None, self._out], 0)


class _Texts:
    """Makes an array of texts, of which those of one page have one length."""

    def __init__(self, kind: pa.DataType, form: Form, counts: Sequence[int], widths: Sequence[int]) -> None:
        self._kind, self._count = kind, sum(counts)
        wide = kind.id in WIDE_TEXTS
        total = sum(count * (width - _PREFIX) for count, width in zip(counts, widths, strict=True) if count)
        self.fits = wide or total <= _MOST_TEXT
        if not self.fits:
            return
        self._dtype = np.dtype(np.int64 if wide else np.int32)
        self._out = allocate(total)
        self._places = allocate((self._count + 1) * self._dtype.itemsize)
        self._data = np.frombuffer(self._out, np.uint8)
        self._offsets = np.frombuffer(self._places, self._dtype)
        self._offsets[-1] = total
        self._row = self._byte = 0

    def put(self, raw: Bytes, width: int) -> None:
        """Append texts that follow their lengths, as a page has them."""
        count, length = len(raw) // width, width - _PREFIX
        row, start = self._row, self._byte
        self._row, self._byte = row + count, start + count * length
        if length:
            values = np.ndarray((count,), f"V{length}", raw, _PREFIX, (width,))
            self._data[start : self._byte].view(f"V{length}")[:] = values
            self._offsets[row : self._row] = np.arange(start, self._byte, length)
        else:
            self._offsets[row : self._row] = start

    def array(self) -> pa.Array:
        """Return all values."""
        return pa.Array.from_buffers(self._kind, self._count, [None, self._places, self._out], 0)
