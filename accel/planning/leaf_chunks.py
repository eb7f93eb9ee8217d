"""What planning derives from the footer about the chunks of one leaf, as columns with a value per row group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accel.format.model import Codec, FileMetadata, Leaf, Physical

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["BOOLEAN_BYTES", "DECODED_SHARE", "READABLE_CODECS", "LeafChunks", "level_bytes"]

READABLE_CODECS = frozenset(Codec) - {Codec.LZO}
"""The codecs whose pages can be decoded."""
_IS_READABLE = np.zeros(256, bool)
_IS_READABLE[list(READABLE_CODECS)] = True
"""By the byte of a codec."""

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


@dataclass(frozen=True, eq=False)
class LeafChunks:
    """The chunks of one leaf of a file, one in each row group.

    Parameters
    ----------
    metadata : FileMetadata
    leaf : int
        Ordinal in the file's schema.
    """

    metadata: FileMetadata
    leaf: int

    @cached_property
    def decoded(self) -> Float64s:
        """The bytes of each chunk in Arrow. Of dictionary-encoded texts only newer writers tell how long they are.

        Levels are there for one column at a time: those of lists count, of which a row may have any number.
        """
        chunks, at = self.metadata.chunks, self.leaf
        node = self.metadata.schema.leaves[at]
        element = self.metadata.schema.elements[node.element]
        width = level_bytes(node) if node.max_repetition else 0
        if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
            width += element.type_length
        elif element.physical is not None:
            width += _WIDTHS[element.physical]
        values = chunks.num_values[:, at] * float(width)
        values += np.maximum(0, chunks.unencoded[:, at])
        out: Float64s = np.maximum(values, chunks.uncompressed[:, at])
        return out

    @cached_property
    def weight(self) -> Float64s:
        """The bytes that each chunk counts for where it is to be cut."""
        out: Float64s = np.maximum(
            self.metadata.chunks.compressed[:, self.leaf], self.decoded // DECODED_SHARE
        )
        return out

    @cached_property
    def expansion(self) -> Float64s:
        """How many times its compressed bytes each chunk takes in Arrow; at least 1."""
        out: Float64s = np.maximum(
            1.0, self.decoded / np.maximum(1, self.metadata.chunks.compressed[:, self.leaf])
        )
        return out

    @cached_property
    def unreadable(self) -> Bools:
        """Which chunks cannot be read by what the footer says of them."""
        chunks, at = self.metadata.chunks, self.leaf
        start = chunks.start[:, at]
        out: Bools = chunks.encrypted[:, at] | chunks.external[:, at]
        out |= (start < 4) | (chunks.end[:, at] <= start)
        out |= ~_IS_READABLE[chunks.codec[:, at].view(np.uint8)]
        return out

    @property
    def nbytes(self) -> int:
        return 400 + 25 * len(self.metadata.group_rows)
