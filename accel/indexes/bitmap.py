"""`bitmap`: for every value exactly which pages, or ranges of rows, hold it.

Answers EQ and IN, and IS NULL by flags. Costs: 8 bytes a distinct value, and 2 to 10 for each place that a value stands
in. The bytes are a head and parts by key, so that one value is looked up in a large index by reading
the head (which stays cached) and one part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.bitmap_parts import BitmapHead, ParsedBitmap, Part, encode_head, read_head
from accel.indexes.hashing import bits_of, hash_values
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import keys_per_block, sort_distinct, write_matrix
from accel.indexes.native import code_values, tag_of
from accel.indexes.question import LeafOp
from accel.indexes.wire import BlobWriter
from accel.records import dataclass

__all__ = ["Bitmap"]

_LEAST_PART = 64
_MOST_PART = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmap(IndexKind):
    """Where each value of a column stands.

    Parameters
    ----------
    range_rows : int
        At the row-range level, the rows of a range: 1 is exact, more is smaller.
    """

    name: ClassVar[str] = "bitmap"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_RANGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    range_rows: int = 512

    def __post_init__(self) -> None:
        if not 1 <= self.range_rows < 1 << 31:
            raise ValueError(f"range_rows is a number of rows, not {self.range_rows}")

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        (chunk,) = chunks
        range_rows = 0
        if level is Level.ROW_RANGE:
            range_rows = self.range_rows
            first = np.arange(0, max(chunk.num_rows, 1), range_rows, dtype=np.int64)
            chunk = ChunkValues(chunk.array, first, chunk.num_rows)
        presence = Presence.of(chunk, Level.PAGE)
        units = len(presence)
        coded = code_values(chunk.array)
        bits = bits_of(coded.values)
        exact = bits is not None
        keys, rank = np.unique(hash_values(coded.values) if bits is None else bits, return_inverse=True)
        valid = coded.codes >= 0
        cells = sort_distinct(rank[coded.codes[valid]] * units + chunk.units(Level.PAGE)[valid])
        counts = np.bincount(cells % units, minlength=units) if units else np.zeros(0, np.int64)
        step = max(min(max(math.isqrt(2 * len(keys)), _LEAST_PART), _MOST_PART, keys_per_block(units)), 1)
        parts = []
        for low in range(0, len(keys), step):
            high = min(low + step, len(keys))
            a, b = np.searchsorted(cells, (low * units, high * units))
            out = BlobWriter(Part.MAGIC)
            out.array(keys[low:high], "<u8")
            write_matrix(out, cells[a:b] - low * units, keys=high - low, units=units)
            parts.append(out.bytes())
        tag = tag_of(coded.values.type)
        sizes = [min(step, len(keys) - low) for low in range(0, len(keys), step)]
        return encode_head(
            presence,
            range_rows=range_rows,
            tag=0 if tag is None else tag,
            exact=exact,
            counts=counts,
            first_keys=keys[::step],
            sizes=np.array(sizes, np.int64),
            parts=parts,
        ) + b"".join(parts)

    def head_bytes(self, data: bytes) -> int:
        """The length of the head of an index that was built: what a reader needs before it knows which part."""
        return int.from_bytes(data[4:8], "little")

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedBitmap:
        """Read the head alone; what it wants for a question is then to be added by `with_parts`."""
        return ParsedBitmap(head=self._head(data, level, units), parts={})

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedBitmap:
        length = self.head_bytes(data)
        head = self._head(data[:length], level, units)
        if len(data) != length + (int(head.ends[-1]) if len(head.ends) else 0):
            raise IndexFormatError("a bitmap index is not as long as its head says")
        found = ParsedBitmap(head=head, parts={})
        return found.with_parts({(a, b): memoryview(data)[a:b] for a, b in head.spans()})

    def _head(self, data: bytes, level: Level, units: int) -> BitmapHead:
        head = read_head(data, rows=units if level is Level.ROW_RANGE else 0)
        if (level is Level.ROW_RANGE) != bool(head.range_rows):
            raise IndexFormatError("a bitmap index is of another level than its entry says")
        if level is not Level.ROW_RANGE and len(head.presence) != units:
            raise IndexFormatError(f"a bitmap index is of {len(head.presence)} units where {units} are")
        return head

    @property
    def params(self) -> Mapping[str, Any]:
        return {"range_rows": self.range_rows}
