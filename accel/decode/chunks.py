"""The bytes of one column that were chosen from one row group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.decode.ahead import Unpacked

__all__ = ["ChunkPages"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkPages:
    """Whole data pages of one column chunk, and the rows that each of them holds.

    A chunk that is read without an offset index is one pseudo page: `buffers` is the whole chunk,
    its dictionary page included, `dictionary` is None, `first_rows` is [0] and `stop_rows` is
    [rows of the row group].
    """

    leaf: int
    """The column's ordinal in the file's schema."""
    codec: int
    """As `format.model.Codec`."""
    dictionary: Buffer | None
    """The dictionary page, header included; None where no page here is dictionary-encoded."""
    buffers: tuple[Buffer, ...]
    """Whole data pages, headers included, back to back, in row order."""
    first_rows: Int64s
    """The first row of each data page, counted from the row group's first; ascending."""
    stop_rows: Int64s
    """The row after each data page's last."""
    num_values: int
    """Level values of these pages at most, as far as the metadata says."""
    whole: bool
    """Read without an offset index: the pages and their rows are not known one by one, and padding may follow them."""
    sizes: Int64s | None = None
    """Bytes of each data page, header included, as the offset index has them; None where they are to be found out."""
    ahead: Unpacked | None = None
    """Of a single data page, where it was decompressed beforehand."""

    @property
    def num_rows(self) -> int:
        return int((self.stop_rows - self.first_rows).sum())
