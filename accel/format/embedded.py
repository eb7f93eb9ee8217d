"""Indexes embedded in a file: the table of contents that locates them, and DataFusion's `IDX1` index.

The table of contents is JSON under the footer key `accel.indexes`; docs/formats.md specifies it. A
fingerprint ties it to the file's data. It has a checksum, and so has every index.

The `IDX1` index of DataFusion's example is its magic, a u64 length, and the distinct texts of a column, one a
line. It has neither checksum nor fingerprint and does not name its column, so the caller who names one
vouches for it. An empty payload may mean no text or the empty one; a text with a line end cannot be
distinguished from two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from accel.errors import IndexFormatError, SchemaMismatchError
from accel.format.footer import IDX1_KEY, TOC_KEY
from accel.format.model import FileMetadata
from accel.ranges import Buffer

__all__ = [
    "IDX1_KEY",
    "LONGEST_HEAD",
    "TOC_KEY",
    "Checksum",
    "CoveredColumn",
    "Entry",
    "Toc",
    "check_seal",
    "checksum",
    "encode_idx1",
    "encode_toc",
    "fingerprint",
    "idx1_range",
    "pack_head",
    "parse_idx1",
    "parse_idx1_offset",
    "parse_toc",
    "seal",
    "unpack_head",
    "verify_blob",
    "verify_head",
]

_VERSION = 1
_MAX_TOC = 64 << 20
_MAX_TEXT = 4096
_MAX_PATH = 1000
_VALUE = "value"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoveredColumn:
    """One of the columns that an index covers."""

    column: Path
    signature: str
    of: str
    """What is indexed: "value", or the name of an expression ("lower", "year", ...; "tuple" for a part of a
    tuple)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One index."""

    kind: str
    version: int
    """The version of the kind's bytes."""
    column: Path
    """The path from the top level. For an index of several columns, the one whose pages are its units."""
    signature: str
    """The stored form of the column's values: `accel.indexes.native.signature_of`."""
    level: str
    """"file", "row group", "page" or "row range"; readers ignore other levels."""
    row_group: int
    """-1 for the whole file."""
    units: int
    """The number of units: 1, the pages, or the rows."""
    offset: int
    """File offset of its bytes."""
    length: int
    checksum: int
    """XXH64 of its bytes."""
    head: int = 0
    """Length of the part that locates the others, for kinds that can be read in parts; else 0."""
    head_checksum: int | None = None
    """XXH64 of that part; None where the file lacks it, so that the index must be read as a whole."""
    head_again: tuple[int, int] | None = None
    """Offset and length of a compressed copy of that part near the footer."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """How the index was made, for information."""
    columns: tuple[CoveredColumn, ...] = ()
    """What an index of several columns, or of expressions, covers; empty where it covers just `column`."""
    seconds: float | None = None
    """CPU time of building it, without decoding, as an equal share of its run's time; None where the file
    lacks it."""

    def paths(self) -> tuple[Path, ...]:
        """Return the distinct columns that the index covers."""
        return tuple(dict.fromkeys(each.column for each in self.columns)) or (self.column,)

    def signature_of(self, column: Path, of: str | None = None) -> str | None:
        """Return the stored form of a column's values; None where the index does not cover the column.

        `of` restricts it to one indexed thing ("value", "lower", ...).
        """
        if not self.columns:
            place = self.params.get("of", _VALUE)
            return self.signature if column == self.column and of in (None, place) else None
        found = (each for each in self.columns if each.column == column and of in (None, each.of))
        return next((each.signature for each in found), None)


@dataclass(frozen=True, slots=True)
class Toc:
    """The indexes of a file, in the order of their bytes."""

    entries: tuple[Entry, ...]
    nbytes: int
    """Approximate memory, which counts against the cache's limit."""


def encode_toc(entries: Iterable[Entry], metadata: FileMetadata) -> bytes:
    """Encode the table of contents of a file whose data is laid out as in `metadata`.

    Only adjacent entries of one kind, column and level are grouped, so the order of entries is preserved.
    """
    runs = []
    for head, run in itertools.groupby(entries, _shared):
        first, *rest = run
        rows = [
            [e.row_group, e.units, e.offset, e.length, f"{e.checksum:016x}", e.head] for e in (first, *rest)
        ]
        shared: dict[str, Any] = {name: value for name, value in zip(_SHARED, head[:-2], strict=True)}
        if first.columns:
            shared["columns"] = [[each.column, each.signature, each.of] for each in first.columns]
        if any(e.head for e in (first, *rest)):
            shared["heads"] = [_digest(e.head_checksum) for e in (first, *rest)]
            if any(e.head_again for e in (first, *rest)):
                shared["heads_again"] = [e.head_again for e in (first, *rest)]
        seconds = [e.seconds for e in (first, *rest) if e.seconds is not None]
        if seconds:
            shared["seconds"] = round(sum(seconds), 3)
        runs.append({**shared, "params": first.params, "at": rows})
    import json

    toc = {
        "version": _VERSION,
        "fingerprint": f"{fingerprint(metadata):016x}",
        "names": _names_of(metadata),
        "indexes": runs,
    }
    return seal(json.dumps(toc, separators=(",", ":"), ensure_ascii=False, sort_keys=False).encode())


_SHARED = ("kind", "version", "column", "signature", "level")


def _shared(entry: Entry) -> tuple[Any, ...]:
    import json

    params = json.dumps(entry.params, sort_keys=True)
    return entry.kind, entry.version, entry.column, entry.signature, entry.level, entry.columns, params


def parse_toc(metadata: FileMetadata) -> Toc | None:
    """Parse the table of contents of a file; None where it has none.

    Raises IndexFormatError where it is damaged, of another version or made for another file, or it places an
    index outside the file's body.
    """
    raw = metadata.key_value.get(TOC_KEY)
    if raw is None:
        return None
    try:
        return _parse(raw, metadata)
    except IndexFormatError as error:
        raise error.at(place=f"footer key {TOC_KEY}") from None


def _parse(raw: bytes, metadata: FileMetadata) -> Toc:
    if len(raw) > _MAX_TOC:
        raise IndexFormatError(f"a table of contents of {len(raw)} bytes")
    import json

    try:
        toc = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise IndexFormatError(f"the table of contents is no JSON: {error}") from None
    if not isinstance(toc, dict) or not _is_int(toc.get("version")):
        raise IndexFormatError("the table of contents has no version")
    if toc["version"] != _VERSION:
        raise IndexFormatError(
            f"the table of contents is of version {toc['version']}", hint="a newer accel may read it"
        )
    if toc.get("fingerprint") != f"{fingerprint(metadata):016x}":
        raise IndexFormatError(
            "the indexes were made for another file", hint="the file was rewritten since; embed them again"
        )
    if toc.get("names") not in (None, _names_of(metadata)):
        raise IndexFormatError(
            "the indexes were made for columns of other names",
            hint="the footer was rewritten since; embed them again",
        )
    if "checksum" in toc:
        check_seal(raw)
    runs = toc.get("indexes")
    if not isinstance(runs, list):
        raise IndexFormatError("the table of contents lists no indexes")
    entries = tuple(entry for run in runs for entry in _entries(run, metadata))
    return Toc(entries, 2 * len(raw) + 400 * len(entries) + 200)


def _entries(run: Any, metadata: FileMetadata) -> Iterable[Entry]:
    if not isinstance(run, dict) or not isinstance(run.get("at"), list):
        raise IndexFormatError("the table of contents has an index that is none")
    texts = [run.get(name) for name in ("kind", "signature", "level")]
    path, params = run.get("column"), run.get("params", {})
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in texts):
        raise IndexFormatError("the table of contents has an index without kind, signature or level")
    columns = run.get("columns", [])
    if not _is_path(path) or not isinstance(params, dict) or not isinstance(columns, list):
        raise IndexFormatError("the table of contents has an index of no column")
    covered = tuple(map(_covered_column, columns))
    if not _is_int(run.get("version")):
        raise IndexFormatError("the table of contents has an index without a version")
    seconds = run.get("seconds")
    timed = isinstance(seconds, int | float) and 0 <= seconds < math.inf
    each = float(seconds) / max(len(run["at"]), 1) if timed and seconds is not None else None
    heads, again = _optional(run, "heads"), _optional(run, "heads_again")
    for place, head_check, second in zip(run["at"], heads, again, strict=True):
        row_group, units, offset, length, check, head = _place(place, metadata)
        yield Entry(
            kind=run["kind"],
            version=run["version"],
            column=tuple(path),
            columns=covered,
            signature=run["signature"],
            level=run["level"],
            row_group=row_group,
            units=units,
            offset=offset,
            length=length,
            checksum=check,
            head=head,
            params=params,
            seconds=each,
            head_checksum=int(head_check, 16) if _is_digest(head_check) else None,
            head_again=_copy_place(second, head, metadata),
        )


def _copy_place(place: Any, head: int, metadata: FileMetadata) -> tuple[int, int] | None:
    """Return where the copy of a head is, if the place is possible; its checksum is verified on reading."""
    if not isinstance(place, list) or len(place) != 2 or not all(map(_is_int, place)) or head > LONGEST_HEAD:
        return None
    offset, length = place
    return (offset, length) if 4 <= offset < offset + length <= metadata.footer_start else None


def _optional(run: Mapping[str, Any], name: str) -> list[Any]:
    """Return an optional list of a run, with an item for each index; all None where it is missing."""
    found, empty = run.get(name), [None] * len(run["at"])
    return found if isinstance(found, list) and len(found) == len(empty) else empty


def _is_path(path: Any) -> TypeGuard[list[str]]:
    return (
        isinstance(path, list) and 1 <= len(path) <= _MAX_PATH and all(isinstance(name, str) for name in path)
    )


def _covered_column(each: Any) -> CoveredColumn:
    good = isinstance(each, list) and len(each) == 3 and _is_path(each[0])
    if not good or not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in each[1:]):
        raise IndexFormatError("the table of contents has an index of a column that is none")
    return CoveredColumn(tuple(each[0]), each[1], each[2])


def _place(place: Any, metadata: FileMetadata) -> tuple[int, int, int, int, int, int]:
    if not isinstance(place, list) or len(place) != 6:
        raise IndexFormatError("the table of contents has an index without a place")
    row_group, units, offset, length, check, head = place
    if not all(_is_int(number) for number in (row_group, units, offset, length, head)):
        raise IndexFormatError("the table of contents has a place that is no number")
    if not -1 <= row_group < metadata.num_row_groups:
        raise IndexFormatError(f"the table of contents names row group {row_group}")
    if not (0 <= units < 1 << 31 and 4 <= offset and 0 < length and offset + length <= metadata.footer_start):
        raise IndexFormatError(f"the table of contents places an index at {offset}, {length} bytes")
    if not 0 <= head <= length:
        raise IndexFormatError(f"an index of {length} bytes has a head of {head}")
    if not _is_digest(check):
        raise IndexFormatError("the table of contents has a checksum that is none")
    return row_group, units, offset, length, int(check, 16), head


def _is_digest(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) == 16 and set(value) <= set("0123456789abcdef")


def _digest(check: int | None) -> str | None:
    return None if check is None else f"{check:016x}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def verify_blob(entry: Entry, data: Buffer) -> None:
    """Check the bytes of an index against its entry.

    Raises IndexFormatError where the length or the checksum differs.
    """
    if len(data) != entry.length:
        raise IndexFormatError(f"an index of {entry.length} bytes came as {len(data)}")
    _compare(entry, data, entry.checksum)


def verify_head(entry: Entry, data: Buffer) -> None:
    """Check the head of an index that is read in parts; raises as `verify_blob` does."""
    if entry.head_checksum is None or len(data) != entry.head:
        raise IndexFormatError(f"the head of an index of {entry.head} bytes came as {len(data)}")
    _compare(entry, data, entry.head_checksum)


def _compare(entry: Entry, data: Buffer, expected: int) -> None:
    if checksum(data) != expected:
        raise IndexFormatError(
            f"the {entry.kind} index of column {'.'.join(entry.column)!r} has a wrong checksum",
            hint="embed it again",
        )


LONGEST_HEAD = 4 << 20
"""Most bytes of a head that has a compressed copy."""
_LEVEL = 9


def pack_head(head: bytes) -> bytes:
    """Compress a head to a Zstandard frame."""
    return bytes(pa.Codec("zstd", compression_level=_LEVEL).compress(head, asbytes=True))


def unpack_head(data: Buffer, length: int) -> bytes:
    """Decompress a head of `length` bytes; the caller verifies its checksum.

    Raises IndexFormatError where the data is no Zstandard frame of that length.
    """
    if not 0 < length <= LONGEST_HEAD:
        raise IndexFormatError(f"the head of an index, {length} bytes, does not come packed")
    try:
        return bytes(pa.decompress(data, decompressed_size=length, codec="zstd", asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise IndexFormatError(f"the head of an index does not unpack: {error}") from None


_BOUNDS = (
    ("min_start", "min_length"),
    ("max_start", "max_length"),
    ("old_min_start", "old_min_length"),
    ("old_max_start", "old_max_length"),
)


def fingerprint(metadata: FileMetadata) -> int:
    """Return a hash (XXH64, seed 0) of the layout and the statistics of the file's data.

    It does not depend on the footer's key-value metadata, page indexes and bloom filters, which change when
    an index is embedded. Files with different rows have different fingerprints unless both layout and
    statistics are equal.
    """
    import xxhash

    chunks = metadata.chunks
    hasher = xxhash.xxh64()
    leaves = len(metadata.schema.leaves)
    hasher.update(np.array([metadata.num_rows, metadata.num_row_groups, leaves], "<i8").tobytes())
    hasher.update(np.ascontiguousarray(metadata.group_rows, "<i8").tobytes())
    for figures in (
        chunks.num_values,
        chunks.data_page_offset,
        chunks.dictionary_page_offset,
        chunks.compressed,
        chunks.uncompressed,
        chunks.null_count,
    ):
        hasher.update(np.ascontiguousarray(figures, "<i8").tobytes())
    footer = memoryview(metadata.footer)
    for start_name, length_name in _BOUNDS:
        starts = getattr(chunks, start_name).ravel().tolist()
        lengths = getattr(chunks, length_name).ravel().tolist()
        for start, length in zip(starts, lengths, strict=True):
            bound = b"" if start < 0 else footer[start : start + length]
            hasher.update((len(bound) if start >= 0 else -1).to_bytes(8, "little", signed=True))
            hasher.update(bound)
    return int(hasher.intdigest())


def _names_of(metadata: FileMetadata) -> str:
    """Return a hash of the paths of the leaf columns, which indexes go by."""
    parts = []
    for leaf in metadata.schema.leaves:
        parts.append(len(leaf.path).to_bytes(8, "little"))
        for name in leaf.path:
            encoded = name.encode()
            parts += [len(encoded).to_bytes(8, "little"), encoded]
    return f"{checksum(b''.join(parts)):016x}"


_SEAL = b',"checksum":"%016x"}'
_SEAL_BYTES = len(_SEAL % 0)


def checksum(data: Buffer) -> int:
    """Return the XXH64, seed 0, of some bytes."""
    import xxhash

    return int(xxhash.xxh64_intdigest(data))


class Checksum:
    """Computes `checksum` of bytes that arrive in pieces."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        import xxhash

        self._state = xxhash.xxh64()

    def add(self, data: Buffer) -> None:
        self._state.update(data)

    @property
    def value(self) -> int:
        return int(self._state.intdigest())


def seal(text: bytes) -> bytes:
    """Append a field "checksum" to a nonempty JSON object: the checksum of all bytes before the comma ahead
    of it."""
    body = text[:-1]
    return body + _SEAL % checksum(body)


def check_seal(text: bytes) -> None:
    """Raise IndexFormatError where the checksum of a sealed object is wrong."""
    body = text[:-_SEAL_BYTES]
    if text[-_SEAL_BYTES:] != _SEAL % checksum(body):
        raise IndexFormatError("the table of contents has a wrong checksum", hint="embed the indexes again")


_MAGIC = b"IDX1"
_HEAD = 12
_MAX_DIGITS = 19


def parse_idx1_offset(metadata: FileMetadata) -> int | None:
    """Return the offset of the file's `IDX1` index; None where the footer has none.

    Raises IndexFormatError where the key's value is not ASCII digits, or points outside the file's body.
    """
    raw = metadata.key_value.get(IDX1_KEY)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > _MAX_DIGITS:
        raise IndexFormatError(f"{IDX1_KEY} is no offset: {raw[:40]!r}", place="footer")
    offset = int(raw)
    if not len(_MAGIC) <= offset <= metadata.footer_start - _HEAD:
        raise IndexFormatError(f"{IDX1_KEY} points outside the file: {offset}", place="footer")
    return offset


def idx1_range(metadata: FileMetadata) -> tuple[int, int] | None:
    """Return the half-open range of bytes that contains the index, and possibly more; None where there is
    none.

    The length is in the index itself, so the range ends at the next thing that the footer locates.

    Raises IndexFormatError as `parse_idx1_offset` does.
    """
    offset = parse_idx1_offset(metadata)
    if offset is None:
        return None
    chunks = metadata.chunks
    end = metadata.footer_start
    for starts in (
        chunks.column_index_offset,
        chunks.offset_index_offset,
        chunks.bloom_offset,
        chunks.start,
    ):
        behind = starts[starts > offset]
        if len(behind):
            end = min(end, int(behind.min()))
    return offset, end


def parse_idx1(data: Buffer) -> frozenset[bytes]:
    """Parse the texts of an index, as UTF-8; bytes after it are ignored.

    An empty payload counts as holding the empty text.

    Raises IndexFormatError where the magic, the length or the text is invalid.
    """
    view = memoryview(data)
    if bytes(view[:4]) != _MAGIC or len(view) < _HEAD:
        raise IndexFormatError(f"an IDX1 index starts with {bytes(view[:4])!r}", hint="is the offset right?")
    length = int.from_bytes(view[4:_HEAD], "little")
    if length > len(view) - _HEAD:
        raise IndexFormatError(f"an IDX1 index of {length} bytes has room for {len(view) - _HEAD}")
    payload = bytes(view[_HEAD : _HEAD + length])
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise IndexFormatError(f"an IDX1 index is not UTF-8: {error}") from None
    return frozenset(payload.split(b"\n"))


def encode_idx1(texts: Iterable[str]) -> bytes:
    """Encode the sorted index of a set of texts.

    Raises SchemaMismatchError where a text would not read back: it has a line end, ends with a carriage
    return, which some readers strip, or is the empty text alone.
    """
    values = sorted(set(texts))
    if values == [""] or any("\n" in value or value.endswith("\r") for value in values):
        raise SchemaMismatchError(
            "idx1 cannot hold a text with a line end, nor the empty one alone", hint="distinct can hold any"
        )
    payload = "\n".join(values).encode()
    return _MAGIC + len(payload).to_bytes(8, "little") + payload
