"""The footer keys that indexes are found by: accel's table of contents, and the DataFusion example's offset of IDX1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from accel.errors import AccelError, IndexFormatError
from accel.format.embedded import (
    IDX1_KEY,
    TOC_KEY,
    Checksum,
    Covered,
    Entry,
    checksum,
    encode_toc,
    parse_toc,
)
from accel.format.model import FileMetadata
from accel.writing.building import BuiltIndex

__all__ = [
    "IDX1_KEY",
    "TOC_KEY",
    "PlacedIndex",
    "check_container",
    "earlier_entries",
    "encode_container",
    "head_of",
    "kept_entries",
]


_REPRODUCIBLE = "SOURCE_DATE_EPOCH"
"""The environment variable by which builds ask for the same bytes every time: seconds are not written then."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndex:
    """An index, and where in the file it is to stand."""

    index: BuiltIndex
    offset: int
    head_again: tuple[int, int] | None = None
    """Where its head stands once more: offset and length."""


def encode_container(
    metadata: FileMetadata, placed: Sequence[PlacedIndex], *, kept: Sequence[Entry]
) -> dict[str, bytes | None]:
    """The footer keys to set; None for one to remove. `kept` are entries of before that stay."""
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    for each in placed:
        if each.index.wanted.kind is None:
            pairs[IDX1_KEY] = str(each.offset).encode()
    entries = [*kept, *(_entry(each) for each in placed)]
    if entries:
        pairs[TOC_KEY] = encode_toc(entries, metadata)
    return pairs


def _entry(placed: PlacedIndex) -> Entry:
    index, wanted = placed.index, placed.index.wanted
    check, head, head_check = _checksums(index)
    leaf = wanted.leaf.ordinal
    signatures = dict(zip([each.ordinal for each in wanted.leaves] or [leaf], index.signatures, strict=True))
    return Entry(
        kind=wanted.kind_name,
        version=index.version,
        column=tuple(wanted.leaf.path),
        signature=signatures.get(leaf, index.signatures[0]),
        level=str(wanted.level),
        row_group=index.row_group,
        units=index.units,
        offset=placed.offset,
        length=index.data.length,
        checksum=check,
        head=head,
        head_checksum=head_check,
        head_again=placed.head_again,
        params={} if wanted.kind is None else dict(wanted.kind.params),
        columns=_covered(index),
        seconds=None if _REPRODUCIBLE in os.environ else index.seconds,
    )


def _checksums(index: BuiltIndex) -> tuple[int, int, int | None]:
    """The checksum of an index, the length of its head, and that one's checksum; 0 and None where it has none."""
    head_bytes = getattr(index.wanted.kind, "head_bytes", None)
    head, head_check = 0, None
    whole = Checksum()
    for at, piece in enumerate(index.data.pieces()):
        if at == 0 and head_bytes is not None:
            # A head is kept in one piece.
            head = head_bytes(piece)
            head_check = checksum(piece[:head])
        whole.add(piece)
    return whole.value, head, head_check


def head_of(index: BuiltIndex) -> bytes:
    """The part of an index that finds the others; empty where it is not read in parts."""
    head_bytes = getattr(index.wanted.kind, "head_bytes", None)
    if head_bytes is None:
        return b""
    first = next(index.data.pieces())
    return bytes(first[: head_bytes(first)])


def _covered(index: BuiltIndex) -> tuple[Covered, ...]:
    """What an index of several columns speaks of; each column as it is, where its kind does not say."""
    leaves, kind = index.wanted.leaves, index.wanted.kind
    covers = getattr(kind, "covers", None)
    told = [(at, "value") for at in range(len(leaves))] if covers is None else covers()
    return tuple(Covered(leaves[at].path, index.signatures[at], of) for at, of in told) if leaves else ()


def check_container(
    metadata: FileMetadata, built: Sequence[BuiltIndex], *, kept: Sequence[Entry], start: int
) -> None:
    """Read the keys of a new footer back, and hold them against the indexes that stand from `start` on, and those kept.

    Raises AccelError where they differ.
    """
    at = start
    toc = parse_toc(metadata)
    entries = toc.entries if toc is not None else ()
    if len(entries) != len(kept) + len(built):
        raise AccelError(f"{len(entries)} indexes read back where {len(kept) + len(built)} should be")
    if list(entries[: len(kept)]) != list(kept):
        raise AccelError("an index that was to stay does not read back")
    for entry, index in zip(entries[len(kept) :], built, strict=True):
        if (entry.offset, entry.length, entry.kind) != (at, index.data.length, index.wanted.kind_name):
            raise AccelError(f"an index of column {index.wanted.column} does not read back")
        if index.wanted.kind is None and metadata.key_value.get(IDX1_KEY) != str(at).encode():
            raise AccelError(f"the key {IDX1_KEY} does not read back")
        at += index.data.length


def earlier_entries(metadata: FileMetadata) -> tuple[Entry, ...]:
    """accel's own earlier indexes. A table of contents that makes no sense names nothing: what it meant stays in the
    file."""
    try:
        toc = parse_toc(metadata)
    except IndexFormatError:
        return ()
    return toc.entries if toc is not None else ()


def kept_entries(metadata: FileMetadata, *, idx1: bool) -> tuple[Entry, ...]:
    """Those that stay: an IDX1, where none is written anew, so that its column stays known."""
    offset = metadata.key_value.get(IDX1_KEY)
    entries = () if idx1 else earlier_entries(metadata)
    return tuple(e for e in entries if e.kind == "idx1" and offset == str(e.offset).encode())
