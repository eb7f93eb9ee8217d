"""What planning derives from the footer about the chunks of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accel.format.model import ChunkTable, Codec, FileMetadata, Leaf, ParquetSchema, Physical

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "BOOLEAN_BYTES",
    "DECODED_SHARE",
    "READABLE_CODECS",
    "LeafChunks",
    "level_bytes",
    "unreadable_chunks",
]

READABLE_CODECS = frozenset(Codec) - {Codec.LZO}
"""The codecs whose pages can be decoded."""

DECODED_SHARE = 4
"""Chunks and pages are weighed by their compressed bytes, or by this share of the decoded ones if more."""

BOOLEAN_BYTES = 2
"""The size of a boolean while it is decoded: pyarrow makes bytes before it packs them into bits."""
_LEVEL_BYTES = 2
_WIDTHS = {
    Physical.BOOLEAN: BOOLEAN_BYTES,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.INT96: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 4,
}
"""Bytes of a value in Arrow; of a text, of its offset."""

# Sizes are floats, because a file's numbers are not checked, and products of them may exceed 64 bits.
Float64s = npt.NDArray[np.float64]


def level_bytes(leaf: Leaf) -> int:
    """Return the bytes that pyarrow holds of a value's levels while it decodes the column."""
    return _LEVEL_BYTES * ((leaf.max_definition > 0) + (leaf.max_repetition > 0))


@dataclass(frozen=True, slots=True, eq=False)
class LeafChunks:
    """The chunks of leaves of a file: each array has a row for each row group, a column for each leaf."""

    compressed: Int64s
    decoded: Float64s
    """The bytes of each chunk in Arrow. Of dictionary-encoded texts only newer writers tell how long they
    are.

    Levels are there for one column at a time: those of lists count, of which a row may have any number.
    """

    @classmethod
    def of(cls, metadata: FileMetadata, leaves: Sequence[int]) -> LeafChunks:
        """Return the chunks of leaves, which are ordinals in the file's schema, ascending."""
        chunks, schema = metadata.chunks, metadata.schema
        of_all = len(leaves) == len(schema.leaves)
        at = slice(None) if of_all else list(leaves)
        widths = np.array([_width(schema, leaf) for leaf in leaves], float)
        decoded = chunks.num_values[:, at] * widths
        decoded += np.maximum(0, chunks.unencoded[:, at])
        return cls(chunks.compressed[:, at], np.maximum(decoded, chunks.uncompressed[:, at]))

    @property
    def weight(self) -> Float64s:
        """The bytes that each chunk counts for where it is to be cut."""
        out: Float64s = np.maximum(self.compressed, self.decoded // DECODED_SHARE)
        return out

    @property
    def expansion(self) -> Float64s:
        """How many times its compressed bytes each chunk takes in Arrow; at least 1."""
        out: Float64s = np.maximum(1.0, self.decoded / np.maximum(1, self.compressed))
        return out


def _width(schema: ParquetSchema, leaf: int) -> int:
    """Return the bytes in Arrow of each value of a leaf, its text apart."""
    node = schema.leaves[leaf]
    element = schema.elements[node.element]
    levels = level_bytes(node) if node.max_repetition else 0
    if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        return levels + element.type_length
    return levels if element.physical is None else levels + _WIDTHS[element.physical]


def unreadable_chunks(chunks: ChunkTable) -> Bools:
    """Return which chunks cannot be read by what the footer says of them, by row group and leaf."""
    readable = np.isin(chunks.codec, [*READABLE_CODECS]) & ~(chunks.encrypted | chunks.external)
    readable &= (chunks.start >= 4) & (chunks.start < chunks.end)
    out: Bools = ~readable
    return out
