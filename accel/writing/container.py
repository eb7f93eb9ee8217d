"""The footer keys that indexes are found by: accel's table of contents, and the seeds' offset of IDX1."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accel.errors import SchemaMismatchError
from accel.format.model import FileMetadata
from accel.writing.building import BuiltIndex
from accel.writing.source import Source

__all__ = ["IDX1_KEY", "TOC_KEY", "PlacedIndex", "check_container", "earlier_ranges", "encode_container"]

TOC_KEY = "accel.indexes"
IDX1_KEY = "distinct_index_offset"


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndex:
    index: BuiltIndex
    offset: int


def encode_container(metadata: FileMetadata, placed: Sequence[PlacedIndex]) -> dict[str, bytes | None]:
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    entries = []
    for p in placed:
        w = p.index.wanted
        if w.kind is None:
            pairs[IDX1_KEY] = str(p.offset).encode()
        entries.append(
            {
                "kind": w.kind_name,
                "column": list(w.leaf.path),
                "level": str(w.level),
                "row_group": p.index.row_group,
                "offset": p.offset,
                "length": p.index.data.length,
                "crc": zlib.crc32(p.index.data.read()),
                "units": p.index.units,
                "signature": p.index.signature,
            }
        )
    if entries:
        pairs[TOC_KEY] = json.dumps({"version": 1, "indexes": entries}).encode()
    return pairs


def check_container(metadata: FileMetadata, built: Sequence[BuiltIndex], *, start: int) -> None:
    pass


def earlier_ranges(metadata: FileMetadata, source: Source, *, idx1: bool) -> list[tuple[int, int]]:
    if TOC_KEY not in metadata.key_value:
        return []
    toc = json.loads(metadata.key_value[TOC_KEY])
    return [(e["offset"], e["offset"] + e["length"]) for e in toc["indexes"] if idx1 or e["kind"] != "idx1"]


def encode_idx1(texts: Iterable[str]) -> bytes:
    """The seeds' index of distinct texts.

    Raises
    ------
    SchemaMismatchError
        A text would read back as another: it holds a line end, or ends with what readers take for a
        part of one, or it is the empty one alone.
    """
    values = sorted(texts)
    if values == [""] or any("\n" in value or value.endswith("\r") for value in values):
        raise SchemaMismatchError(
            "idx1 cannot hold a text with a line end, nor the empty one alone", hint="distinct can hold any"
        )
    body = "\n".join(values).encode()
    return b"IDX1" + len(body).to_bytes(8, "little") + body
