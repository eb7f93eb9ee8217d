"""accel's table of contents: which indexes a file holds, and where.

The footer key `accel.indexes` holds it, as JSON; docs/formats.md specifies it. It is bound to the file by a
fingerprint, and has a checksum, as every index has.
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
    "Covered",
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
class Covered:
    """A column that an index of several speaks of."""

    column: Path
    signature: str
    of: str
    """What of it: "value", or an expression's name ("lower", "year", ...; "tuple" for a place in one)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One index."""

    kind: str
    version: int
    """Of the kind's bytes."""
    column: Path
    """Names from the top level down. Where the index is of several columns, the one whose pages are its units."""
    signature: str
    """What the column's values were stored as: `accel.indexes.native.signature_of`."""
    level: str
    """"file", "row group", "page", "row range"; a reader passes over others."""
    row_group: int
    """-1 for the whole file."""
    units: int
    """Units that the index is of: 1, or its pages, or its rows."""
    offset: int
    """In the file."""
    length: int
    checksum: int
    """XXH64 of its bytes."""
    head: int = 0
    """Length of the part that finds the others, for kinds that can be read in parts; else 0."""
    head_checksum: int | None = None
    """XXH64 of that part; None where the file does not say, and the index is to be read as a whole."""
    head_again: tuple[int, int] | None = None
    """Where that part stands once more, packed and near the footer: offset and length."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, for people."""
    columns: tuple[Covered, ...] = ()
    """What an index of several columns, or of several things of one, speaks of; empty where it is of `column`."""
    seconds: float | None = None
    """Processor time that building it took, decoding not counted: its part of what the run's indexes took. None where
    the file does not say."""

    def paths(self) -> tuple[Path, ...]:
        """The columns that it speaks of, each once."""
        return tuple(dict.fromkeys(each.column for each in self.columns)) or (self.column,)

    def signature_of(self, column: Path, of: str | None = None) -> str | None:
        """What that column's values were stored as; None where the index does not speak of it.

        `of` asks for one thing of it ("value", "lower", ...); None: for any.
        """
        if not self.columns:
            told = self.params.get("of", _VALUE)
            return self.signature if column == self.column and of in (None, told) else None
        found = (each for each in self.columns if each.column == column and of in (None, each.of))
        return next((each.signature for each in found), None)


@dataclass(frozen=True, slots=True)
class Toc:
    """The indexes of a file, in the order of their bytes."""

    entries: tuple[Entry, ...]
    nbytes: int
    """What holding it costs, for the cache's limit."""


def encode_toc(entries: Iterable[Entry], metadata: FileMetadata) -> bytes:
    """The value of the footer key, for a file whose data lies as in `metadata`.

    Only neighbours of one kind, column and level are put together, so entries keep their order.
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

    toc = {"version": _VERSION, "fingerprint": f"{fingerprint(metadata):016x}", "indexes": runs}
    return seal(json.dumps(toc, separators=(",", ":"), ensure_ascii=False, sort_keys=False).encode())


_SHARED = ("kind", "version", "column", "signature", "level")


def _shared(entry: Entry) -> tuple[Any, ...]:
    import json

    params = json.dumps(entry.params, sort_keys=True)
    return entry.kind, entry.version, entry.column, entry.signature, entry.level, entry.columns, params


def parse_toc(metadata: FileMetadata) -> Toc | None:
    """The table of contents of a file; None where it has none.

    Raises
    ------
    IndexFormatError
        It is no table of contents of this version, it was made for another file or is not as it was written, or it
        places an index outside of the file's body.
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
    covered = tuple(map(_covered, columns))
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
            head_again=_again(second, head, metadata),
        )


def _again(told: Any, head: int, metadata: FileMetadata) -> tuple[int, int] | None:
    """Where a head stands once more, if that may be; what it is worth its checksum tells."""
    if not isinstance(told, list) or len(told) != 2 or not all(map(_is_int, told)) or head > LONGEST_HEAD:
        return None
    offset, length = told
    return (offset, length) if 4 <= offset < offset + length <= metadata.footer_start else None


def _optional(run: Mapping[str, Any], name: str) -> list[Any]:
    """A list with one thing for each index of a run; of None where it has none."""
    found, empty = run.get(name), [None] * len(run["at"])
    return found if isinstance(found, list) and len(found) == len(empty) else empty


def _is_path(path: Any) -> TypeGuard[list[str]]:
    return (
        isinstance(path, list) and 1 <= len(path) <= _MAX_PATH and all(isinstance(name, str) for name in path)
    )


def _covered(each: Any) -> Covered:
    good = isinstance(each, list) and len(each) == 3 and _is_path(each[0])
    if not good or not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in each[1:]):
        raise IndexFormatError("the table of contents has an index of a column that is none")
    return Covered(tuple(each[0]), each[1], each[2])


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
    """Hold an index's bytes against its entry.

    Raises
    ------
    IndexFormatError
        They are not of that length, or not those that were written.
    """
    if len(data) != entry.length:
        raise IndexFormatError(f"an index of {entry.length} bytes came as {len(data)}")
    _compare(entry, data, entry.checksum)


def verify_head(entry: Entry, data: Buffer) -> None:
    """The same for the head of an index that is read in parts."""
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
"""Bytes; a longer one is not packed, nor unpacked."""
_LEVEL = 9


def pack_head(head: bytes) -> bytes:
    """As a Zstandard frame."""
    return bytes(pa.Codec("zstd", compression_level=_LEVEL).compress(head, asbytes=True))


def unpack_head(data: Buffer, length: int) -> bytes:
    """The head of so many bytes; it is yet to be held against its checksum.

    Raises
    ------
    IndexFormatError
        The data is no such frame.
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
    """XXH64, seed 0, over the shape of the file's data.

    It does not depend on the keys and values of the footer, nor on page indexes and bloom filters, which
    writing an index changes. It tells a file from one with other rows, unless both lie in the same way
    and have the same statistics.
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


_SEAL = b',"checksum":"%016x"}'
_SEAL_BYTES = len(_SEAL % 0)


def checksum(data: Buffer) -> int:
    """XXH64, seed 0."""
    import xxhash

    return int(xxhash.xxh64_intdigest(data))


class Checksum:
    """The same, of bytes that come piece by piece."""

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
    """A JSON object that is not empty, with a last field "checksum": of all that stands before the comma ahead of it."""
    body = text[:-1]
    return body + _SEAL % checksum(body)


def check_seal(text: bytes) -> None:
    """Raises IndexFormatError where the object is not as it was sealed."""
    body = text[:-_SEAL_BYTES]
    if text[-_SEAL_BYTES:] != _SEAL % checksum(body):
        raise IndexFormatError("the table of contents has a wrong checksum", hint="embed the indexes again")


_MAGIC = b"IDX1"
_HEAD = 12
_MAX_DIGITS = 19


def parse_idx1_offset(metadata: FileMetadata) -> int | None:
    """Where the footer says that the index starts; None where it says nothing.

    Raises
    ------
    IndexFormatError
        The key's value is not ASCII digits, or points outside the file's body.
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
    """Half-open bytes that hold the index, and possibly more behind it; None where there is none.

    Its length stands in its own head, so this ends where what the footer locates begins.

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
    """The texts of an index, as UTF-8; what follows it is not looked at.

    The empty text is always taken to be among those of an empty payload.

    Raises
    ------
    IndexFormatError
        The magic, the length or the text is wrong.
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
    """The index of a set of texts, sorted.

    Raises
    ------
    SchemaMismatchError
        A text would read back as another: it holds a line end, ends with what some readers take for a
        part of one, or is the empty one alone.
    """
    values = sorted(set(texts))
    if values == [""] or any("\n" in value or value.endswith("\r") for value in values):
        raise SchemaMismatchError(
            "idx1 cannot hold a text with a line end, nor the empty one alone", hint="distinct can hold any"
        )
    payload = "\n".join(values).encode()
    return _MAGIC + len(payload).to_bytes(8, "little") + payload
