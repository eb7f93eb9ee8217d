"""The footer keys that indexes are found by: accel's table of contents, and the seeds' offset of IDX1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accel.format.model import FileMetadata
from accel.writing.building import BuiltIndex
from accel.writing.source import Source

__all__ = ["IDX1_KEY", "TOC_KEY", "PlacedIndex", "earlier_ranges", "encode_container", "read_container"]

TOC_KEY = "accel.indexes"
IDX1_KEY = "distinct_index_offset"


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndex:
    index: BuiltIndex
    offset: int


def encode_container(metadata: FileMetadata, placed: Sequence[PlacedIndex]) -> dict[str, bytes | None]:
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    for p in placed:
        if p.index.wanted.kind is None:
            pairs[IDX1_KEY] = str(p.offset).encode()
    return pairs


def read_container(metadata: FileMetadata, read: Callable[[int, int], bytes]) -> list[bytes]:
    return []


def earlier_ranges(metadata: FileMetadata, source: Source, *, idx1: bool) -> list[tuple[int, int]]:
    return []
