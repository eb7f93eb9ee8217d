"""Texts that were decoded, held against the pages that they came from.

A column that was written as `optional`, of a file whose schema now says `required`, has definition levels where its
first text is looked for: they are taken for one, and the last text is left over, unless just one was null, which
nothing tells from a text. pyarrow asks for so many texts and does not look at what is behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.decode.value_sizes import PageBody, begins_with_levels
from accel.decode.verify import IS_DATA, PageFacts
from accel.errors import ParquetFormatError
from accel.format.model import Encoding, Leaf, PageType

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["check_text_sizes"]


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
    """That the PLAIN texts of a required column are not levels.

    Where they take up less than their page and it begins with levels, they are. Else pyarrow passes over what is left.

    Parameters
    ----------
    array : ChunkedArray
        All values of the pages.
    body : callable, optional
        As in `check_sizes`.

    Raises
    ------
    ParquetFormatError
        They are.
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
            # Its levels do not lie among its texts.
            continue
        raw = body(number, page) if texts < due and body is not None else None
        if raw is None or begins_with_levels(raw, count):
            raise ParquetFormatError(
                f"a page of {due} bytes whose {count} texts take {texts}; the schema says that none is null"
            )


def _bytes_before(array: pa.ChunkedArray, rows: Int64s, kind: np.dtype[Any]) -> Int64s:
    """How many bytes of text lie before these rows (ascending; the array's length is one, too)."""
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
