"""The Parquet file that `embed` reads: its footer, its page indexes, and where its tail may be cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from accel.errors import AccelError, EncryptedFileError, IndexFormatError, ParquetFormatError
from accel.format.footer import parse_footer, parse_tail
from accel.format.model import FileMetadata, OffsetIndex
from accel.format.page_header import parse_page_header
from accel.format.page_index import PageIndexMismatchError, chunk_offset_index, parse_column_index
from accel.format.thrift import ThriftReader
from accel.options import MIB, Options
from accel.writing.source import Source

__all__ = ["At", "Original", "cut_at", "open_original", "read_metadata"]

At = tuple[int, int]
"""Row group and leaf."""


@dataclass(frozen=True, slots=True, eq=False)
class Original:
    """The metadata of a file before indexes are built."""

    source: Source
    metadata: FileMetadata
    offset_indexes: dict[At, OffsetIndex]
    """The valid offset indexes, parsed."""
    offset_bytes: dict[At, bytes]
    """The valid offset indexes, as stored."""
    column_bytes: dict[At, bytes]
    """The valid column indexes, as stored."""
    warnings: list[str] = field(default_factory=list)
    """The page indexes that are not valid and are built again."""

    def without_page_index(self, error: ParquetFormatError) -> Original:
        """Return the file as if it had no page index, because its pages contradict it."""
        error.at(path=self.source.name)
        warning = f"{error}: the page index contradicts the pages, and is made anew"
        warnings = [*self.warnings, warning]
        return replace(self, offset_indexes={}, offset_bytes={}, column_bytes={}, warnings=warnings)


def open_original(source: Source, *, options: Options) -> Original:
    """Read a file's footer and page indexes.

    Raises
    ------
    EncryptedFileError
        The footer, or any column, is encrypted, or the footer is signed.
    IndexFormatError
        A page index does not verify, with `options.strict`.
    ParquetFormatError
        The file is no Parquet file, or has columns in other files.
    """
    try:
        metadata = read_metadata(source, max_footer_bytes=options.max_footer_bytes)
        _refuse(metadata)
        return _read_page_indexes(source, metadata, strict=options.strict)
    except AccelError as error:
        raise error.at(path=source.name)


def read_metadata(source: Source, *, max_footer_bytes: int) -> FileMetadata:
    """Read and parse the footer of a file."""
    size = source.size
    if size < 12:
        raise ParquetFormatError(f"a Parquet file has at least 12 bytes, this has {size}")
    start = max(0, size - source.window)
    [tail] = source.read([(start, size)])
    length = parse_tail(tail[-8:]).length
    if length > max_footer_bytes or length > size - 12:
        raise ParquetFormatError(f"a footer of {length} bytes in a file of {size}", place="footer")
    begin = size - 8 - length
    if begin >= start:
        footer = tail[begin - start : -8]
    else:
        [footer] = source.read([(begin, size - 8)])
    return parse_footer(footer, file_size=size, footer_start=begin)


def _refuse(metadata: FileMetadata) -> None:
    if bool(metadata.chunks.encrypted.any()):
        raise EncryptedFileError(
            "the file has encrypted columns", hint="indexes would tell what is in them in clear"
        )
    # Field 8, encryption_algorithm: the footer is signed, and a changed one would not verify.
    if any(number == 8 for number in _numbers(metadata.footer)):
        raise EncryptedFileError("the footer is signed", hint="accel cannot sign what it changes")
    if bool(metadata.chunks.external.any()):
        raise ParquetFormatError("columns of this file lie in other files")


def _numbers(footer: bytes) -> list[int]:
    reader = ThriftReader(footer)
    found = []
    for number, ctype in reader.fields():
        found.append(number)
        reader.skip(ctype)
    return found


_READ_AT_ONCE = 16 * MIB

Wanted = tuple[str, At, int, int]
"""A half of the page index, its chunk, and its bytes in the file."""


def _read_page_indexes(source: Source, metadata: FileMetadata, *, strict: bool) -> Original:
    original = Original(source, metadata, {}, {}, {})
    unverified: list[IndexFormatError] = []
    for wanted in _batches(metadata):
        found = source.read([(start, end) for _, _, start, end in wanted])
        for (name, at, _, _), data in zip(wanted, found, strict=True):
            try:
                _take(original, name, at, data)
            except IndexFormatError as error:
                error.at(path=source.name)
                error.within(f"row group {at[0]}, column {'.'.join(metadata.schema.leaves[at[1]].path)}")
                if strict:
                    raise
                unverified.append(error)
    if unverified:
        more = f" (and of {len(unverified) - 1:,} more)" if len(unverified) > 1 else ""
        original.warnings.append(f"{unverified[0]}: this page index{more} is made anew")
    mismatch = _first_mismatch(original)
    if mismatch is None:
        return original
    if strict:
        raise mismatch.as_index_error() from mismatch
    return original.without_page_index(mismatch)


def _first_mismatch(original: Original) -> PageIndexMismatchError | None:
    """Return the error of the first page whose length the offset index contradicts.

    Pages lie back to back. A page before a gap is checked by its header: some writers leave the headers out
    of the sizes, and others leave out pages without a value.
    """
    ends = original.metadata.chunks.end
    for at, index in original.offset_indexes.items():
        following = np.append(index.offset[1:], ends[at])
        gaps = np.flatnonzero(index.offset + index.size != following)
        if not len(gaps):
            continue
        page = int(gaps[0])
        offset, size = int(index.offset[page]), int(index.size[page])
        [data] = original.source.read([(offset, int(following[page]))])
        try:
            header = parse_page_header(data)
            if header.header_length + header.compressed_size == size:
                continue
            message = f"data page {page} is not of the {size} bytes that the offset index says"
        except ParquetFormatError as error:
            message = error.message
        leaf = original.metadata.schema.leaves[at[1]]
        return PageIndexMismatchError(message, place=f"row group {at[0]}, column {'.'.join(leaf.path)}")
    return None


def _batches(metadata: FileMetadata) -> Iterator[list[Wanted]]:
    """Yield the places of all page indexes in batches that are worth a request and bounded."""
    chunks = metadata.chunks
    batch: list[Wanted] = []
    total = 0
    for group in range(metadata.num_row_groups):
        # Offset indexes come first: they tell the number of pages, by which column indexes are parsed.
        for name in ("offset_index", "column_index"):
            offsets = getattr(chunks, f"{name}_offset")[group].tolist()
            lengths = getattr(chunks, f"{name}_length")[group].tolist()
            for leaf, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
                if offset > 0:
                    batch.append((name, (group, leaf), offset, offset + length))
                    total += length
        if total >= _READ_AT_ONCE:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _take(original: Original, name: str, at: At, data: memoryview) -> None:
    if name == "offset_index":
        original.offset_indexes[at] = chunk_offset_index(data, original.metadata, *at)
        original.offset_bytes[at] = bytes(data)
    elif at in original.offset_indexes:
        parse_column_index(data, num_pages=original.offset_indexes[at].num_pages)
        original.column_bytes[at] = bytes(data)


def cut_at(metadata: FileMetadata, own: list[tuple[int, int]]) -> int:
    """Return where the tail of a file may be cut; everything before stays in its place.

    Page indexes and accel's own earlier indexes (`own`, half-open ranges) are cut off if nothing else lies
    behind them. Data, bloom filters, and what other programs have put into the file stay.
    """
    chunks = metadata.chunks
    ranges = list(own)
    for name in ("offset_index", "column_index"):
        offsets, lengths = getattr(chunks, f"{name}_offset"), getattr(chunks, f"{name}_length")
        have = offsets > 0
        ranges += zip(offsets[have].tolist(), (offsets[have] + lengths[have]).tolist(), strict=True)
    cut = metadata.footer_start
    for start, end in sorted(ranges, key=lambda r: (r[1], r[0]), reverse=True):
        if end < cut:
            break
        cut = min(cut, start)
    return max(cut, 4, int(np.max(chunks.end, initial=0)))
