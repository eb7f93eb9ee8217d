"""The footer keys that indexes are found by: accel's table of contents, and the seeds' offset of IDX1.

The table of contents here is a stand-in: JSON, with neither a version policy nor the file's fingerprint. It gives
way to `accel.format.embedded`, which this module is the only caller of, as soon as that is there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from accel.errors import AccelError, SchemaMismatchError
from accel.format.model import FileMetadata
from accel.writing.building import BuiltIndex
from accel.writing.source import Source

__all__ = [
    "IDX1_KEY",
    "TOC_KEY",
    "PlacedIndex",
    "check_container",
    "earlier_ranges",
    "encode_container",
    "encode_idx1",
]

TOC_KEY = "accel.indexes"
IDX1_KEY = "distinct_index_offset"


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndex:
    """An index, and where in the file it is to stand."""

    index: BuiltIndex
    offset: int


def encode_container(metadata: FileMetadata, placed: Sequence[PlacedIndex]) -> dict[str, bytes | None]:
    """The footer keys to set; None for one to remove."""
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    entries = [_entry(each) for each in placed]
    for each in placed:
        if each.index.wanted.kind is None:
            pairs[IDX1_KEY] = str(each.offset).encode()
    if entries:
        pairs[TOC_KEY] = json.dumps({"version": 1, "indexes": entries}, separators=(",", ":")).encode()
    return pairs


def _entry(placed: PlacedIndex) -> dict[str, Any]:
    index, wanted = placed.index, placed.index.wanted
    return {
        "kind": wanted.kind_name,
        "kind_version": 1 if wanted.kind is None else wanted.kind.version,
        "params": {} if wanted.kind is None else dict(wanted.kind.params),
        "column": list(wanted.leaf.path),
        "signature": index.signature,
        "level": str(wanted.level),
        "row_group": index.row_group,
        "units": index.units,
        "offset": placed.offset,
        "length": index.data.length,
        "crc32": zlib.crc32(index.data.read()),
    }


def check_container(metadata: FileMetadata, built: Sequence[BuiltIndex], *, start: int) -> None:
    """Read the keys of a new footer back, and hold them against the indexes that stand from `start` on.

    Raises AccelError where they differ.
    """
    at = start
    entries = _entries(metadata)
    if len(entries) != len(built):
        raise AccelError(f"{len(entries)} indexes read back where {len(built)} were built")
    for entry, index in zip(entries, built, strict=True):
        if entry != (at, at + index.data.length, index.wanted.kind_name):
            raise AccelError(f"an index of column {index.wanted.column} does not read back")
        if index.wanted.kind is None and metadata.key_value.get(IDX1_KEY) != str(at).encode():
            raise AccelError(f"the key {IDX1_KEY} does not read back")
        at += index.data.length


def earlier_ranges(metadata: FileMetadata, source: Source, *, idx1: bool) -> list[tuple[int, int]]:
    """Where accel's own earlier indexes stand; IDX1 among them only where it is to be written anew.

    A table of contents that makes no sense names nothing: what it meant stays in the file.
    """
    end = metadata.footer_start
    return [
        (lower, upper)
        for lower, upper, kind in _entries(metadata)
        if 4 <= lower < upper <= end and (idx1 or kind != "idx1")
    ]


def _entries(metadata: FileMetadata) -> list[tuple[int, int, str]]:
    """Bytes and kind of each index that the table of contents names."""
    try:
        toc = json.loads(metadata.key_value.get(TOC_KEY, b"{}"))
        found = [(e["offset"], e["offset"] + e["length"], e["kind"]) for e in toc.get("indexes", ())]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []
    return found if all(type(n) is int for lower, upper, _ in found for n in (lower, upper)) else []


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
