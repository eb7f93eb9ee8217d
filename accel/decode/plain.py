"""PLAIN values without nulls, taken out of their pages as they lie there.

pyarrow appends texts and values of fixed length one by one, makes each a decimal, and copies numbers once more; for a
page of which one row is wanted too. A page here is decompressed by pyarrow's codec and its bytes are gathered. Of
texts, those pages are read so whose texts are all of one length, as identifiers, hashes and dates are. Any page that
is not of such a form is none of ours: it is decoded the common way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import WIDE_TEXTS
from accel.decode.bodies import Bytes, DataPage, check_crc, decompress, plain_size, value_bytes
from accel.decode.forms import Form, Shape, put
from accel.decode.stored import bare_page
from accel.format.page_header import PageHeader, parse_page_header
from accel.memory import allocate
from accel.planning.selection import RowSelection
from accel.ranges import Buffer

__all__ = ["is_plain", "read_entries", "read_plain", "uniform_length"]

Ints = npt.NDArray[np.integer]

_PREFIX = 4
_MOST_TEXT = (1 << 31) - 1
"""Bytes that 32-bit offsets reach."""


def is_plain(page: DataPage, form: Form, *, optional: bool) -> bool:
    """Whether a page has the size that values of this form have if none is null; whether they are is seen later."""
    size, count = plain_size(page, optional=optional), page.num_values
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
    """The selected rows of pages that are each `is_plain`; None where one of them turns out not to be.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages given.
    kind, form
        Of the array, and how its values lie.
    optional : bool
        Whether the pages have definition levels.

    Raises
    ------
    ParquetFormatError
        A checksum does not match.
    """
    ends = np.array([page.num_values for page in pages]).cumsum()
    chosen = rows.row_numbers() if rows.count < int(ends[-1]) else None
    cuts = (ends if chosen is None else chosen.searchsorted(ends)).tolist()
    texts = form.shape is Shape.TEXT
    widths = [_width(page, form, optional=optional) for page in pages]
    counts = [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]
    sink = (_Texts if texts else _Values)(kind, form, counts, widths)
    if not sink.fits:
        return None
    wanted = [page for page, count in zip(pages, counts, strict=True) if count]
    values = value_bytes(wanted, optional=optional)
    done = first = 0
    few = _Few(sink)
    for end, cut, width in zip(ends.tolist(), cuts, widths, strict=True):
        if cut > done:
            raw = next(values)
            if raw is None or (texts and not _is_uniform(raw, width)):
                return None
            if chosen is not None and cut - done < end - first:
                few.put(raw.view(f"V{width}").take(chosen[done:cut] - first).view(np.uint8), width)
            else:
                few.flush()
                sink.put(raw, width)
        done, first = cut, end
    few.flush()
    return sink.array()


def read_entries(
    page: Buffer, codec: int, *, kind: pa.DataType, form: Form, chosen: Ints | None = None
) -> pa.Array | None:
    """The entries of a dictionary page (header included) of such values, all or those with the `chosen` numbers;
    None where it is not of that form.

    Raises
    ------
    ParquetFormatError
        The checksum does not match.
    """
    header = parse_page_header(page)
    count, size = header.num_values, header.uncompressed_size
    texts = form.shape is Shape.TEXT
    width = form.width if not texts else size // count if count else _PREFIX
    if size != width * count or (texts and width < _PREFIX):
        return None
    kept = count if chosen is None else len(chosen)
    sink = (_Texts if texts else _Values)(kind, form, [kept], [width])
    if not sink.fits:
        return None
    bare = None if chosen is None or kept * width > _MOST_SOUGHT else bare_page(page)
    raw = None
    if bare is not None and chosen is not None and (not texts or bare.even == width):
        raw = bare.pick(codec, header.header_length, size=size, width=width, chosen=chosen)
    if raw is None:
        raw = _entries_of(page, header, codec)
        if raw is None or (texts and not _is_uniform(raw, width)):
            return None
        if bare is not None and texts:
            bare.even = width
        if chosen is not None:
            raw = raw.view(f"V{width}").take(chosen).view(np.uint8)
    sink.put(raw, width)
    return sink.array()


_MOST_SOUGHT = 64 << 10
"""Bytes: more are faster taken from a copy of all than looked for one by one."""


def uniform_length(page: Buffer, codec: int) -> int | None:
    """The bytes of each text of a dictionary page (header included) whose texts are all of one length; else None.

    Raises
    ------
    ParquetFormatError
        The checksum does not match.
    """
    header = parse_page_header(page)
    count, size = header.num_values, header.uncompressed_size
    if not count or size % count or size < _PREFIX * count:
        return None
    raw = _entries_of(page, header, codec)
    return size // count - _PREFIX if raw is not None and _is_uniform(raw, size // count) else None


def _entries_of(page: Buffer, header: PageHeader, codec: int) -> Bytes | None:
    body = memoryview(page)[header.header_length :][: header.compressed_size]
    check_crc(body, header.crc)
    return decompress(body, codec, size=header.uncompressed_size)


def _width(page: DataPage, form: Form, *, optional: bool) -> int:
    """Bytes of one value in a page that is `is_plain`."""
    if form.width or not page.num_values:
        return form.width
    return plain_size(page, optional=optional) // page.num_values


def _is_uniform(raw: Bytes, width: int) -> bool:
    """Whether texts behind their lengths, so many bytes each if they are all of one length, are."""
    lengths: Ints = np.ndarray((len(raw) // width,), "<u4", raw, 0, (width,))
    return bool((lengths == width - _PREFIX).all())


class _Few:
    """Values chosen from pages: those of several pages are put together, as each call costs more than a few of them."""

    def __init__(self, sink: _Values | _Texts) -> None:
        self._sink = sink
        self._parts: list[Bytes] = []
        self._width = self._held = 0

    def put(self, raw: Bytes, width: int) -> None:
        if width != self._width or self._held > _MOST_HELD:
            self.flush()
            self._width = width
        self._parts.append(raw)
        self._held += len(raw)

    def flush(self) -> None:
        """Pass on what is held."""
        if self._parts:
            self._sink.put(
                np.concatenate(self._parts) if len(self._parts) > 1 else self._parts[0], self._width
            )
        self._parts, self._held = [], 0


_MOST_HELD = 64 << 10
"""Bytes: more are not worth another copy."""


class _Values:
    """Values of a fixed width, put behind each other."""

    fits = True

    def __init__(self, kind: pa.DataType, form: Form, counts: Sequence[int], widths: Sequence[int]) -> None:
        self._kind, self._form, self._count = kind, form, sum(counts)
        self._out = allocate(self._count * form.out)
        self._data = np.frombuffer(self._out, np.uint8)
        self._row = 0

    def put(self, raw: Bytes, width: int) -> None:
        """Values as they lie in a page."""
        put(self._form, raw, self._data, self._row)
        self._row += len(raw) // width

    def array(self) -> pa.Array:
        """All of them."""
        return pa.Array.from_buffers(self._kind, self._count, [None, self._out], 0)


class _Texts:
    """Texts, those of a page all of one length, put behind each other."""

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
        """Texts behind their lengths, as they lie in a page."""
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
        """All of them."""
        return pa.Array.from_buffers(self._kind, self._count, [None, self._places, self._out], 0)
