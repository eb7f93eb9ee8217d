"""The layout of a file: its columns, row groups and indexes, and advice on what would make it faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from accel.arrays import integers_array, relabel
from accel.cli.values import safe_text, shown_values
from accel.format.bounds import chunk_bounds, null_counts, page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.embedded import Entry
from accel.format.model import Codec, ColumnIndex, Encoding, FileMetadata, OffsetIndex, Physical
from accel.options import MIB, Options
from accel.pictures.document import byte_count
from accel.planning.handle import FileHandle

__all__ = [
    "ColumnLayout",
    "EmbeddedLayout",
    "FileLayout",
    "GroupLayout",
    "Indexes",
    "advise",
    "describe_layout",
    "extremes",
    "judge_order",
    "leaf_type",
]

_SHOWN = 32


def leaf_type(handle: FileHandle, leaf: int) -> pa.DataType:
    """Return the Arrow type of the values of a leaf, inside structs, lists and maps; null if the types do not
    match."""
    position, (first, stop) = next(
        (i, span) for i, span in enumerate(handle.metadata.schema.field_leaves) if span[0] <= leaf < span[1]
    )
    flat: list[pa.DataType] = []
    stack = [handle.arrow_schema.field(position).type]
    while stack:
        kind = stack.pop()
        if pa.types.is_nested(kind):
            stack += [kind.field(i).type for i in reversed(range(kind.num_fields))]
        else:
            flat.append(kind)
    return flat[leaf - first] if len(flat) == stop - first else pa.null()


def extremes(bounds: Bounds, kind: pa.DataType) -> tuple[str | None, str | None]:
    """Return the least and the greatest bound as text; None if a row group with values lacks one."""
    every = bounds.fold(np.array([len(bounds)], np.int64))
    ends = (every.lower, every.has_lower), (every.upper, every.has_upper)
    low, high = (
        _show(values.tolist()[0], bounds.domain, kind) if bool(has[0]) else None for values, has in ends
    )
    return low, high


def _show(value: object, domain: Domain, kind: pa.DataType) -> str:
    text = safe_text(_text(value, domain, kind))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _text(value: object, domain: Domain, kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if domain is Domain.BYTES and isinstance(value, bytes):
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return value.decode("utf-8", "backslashreplace")
        return f"x'{value.hex()}'"
    if domain is Domain.BOOLEAN:
        return str(bool(value)).lower()
    if domain is Domain.INTEGER and isinstance(value, int):
        if types.is_decimal(kind):
            digits = tuple(map(int, str(abs(value))))
            return format(Decimal((int(value < 0), digits, -kind.scale)), "f")
        if types.is_temporal(kind):
            ticks = integers_array([value], pa.int32() if kind.bit_width == 32 else pa.int64())
            try:
                return shown_values(relabel(ticks, kind))[0] or ""
            except (pa.ArrowException, ValueError):
                pass  # a date outside the calendar
    return str(value)


_NOT_VALUES = (Encoding.RLE, Encoding.BIT_PACKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """The page indexes of a file, by (row group, leaf)."""

    offset: Mapping[tuple[int, int], OffsetIndex]
    column: Mapping[tuple[int, int], ColumnIndex]
    read: bool
    """False if they are too large to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """One row group. Sizes are in bytes."""

    rows: int
    compressed: int
    uncompressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """One leaf column, over all row groups. Sizes are in bytes."""

    name: str
    physical: str
    type: str
    codecs: tuple[str, ...]
    encodings: tuple[str, ...]
    compressed: int
    uncompressed: int
    pages: int | None
    """Data pages; None if neither an index nor the footer counts them."""
    largest_page: int | None
    dictionary_fallbacks: int
    """Chunks that begin dictionary-encoded and end plain."""
    nulls: int | None
    """None if the statistics of a row group do not say."""
    min: str | None
    max: str | None
    statistics: int
    """Row groups with usable bounds."""
    column_indexes: int
    offset_indexes: int
    blooms: int
    bloom_bytes: int
    order: str
    """"ascending", "descending", "clustered", "scattered", or "unknown"."""
    overlap: float | None
    """The share of the units with bounds (pages, else row groups) that may hold one value of the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedLayout:
    """The indexes of one kind over one column, embedded in the file."""

    kind: str
    column: str
    level: str
    count: int
    """Entries in the table of contents: 1 for an index of the whole file, else one per row group that has
    it."""
    units: int
    """Files, row groups, pages or rows that they cover."""
    bytes: int
    seconds: float | None
    """Processor time of building them, without decoding; None if the file does not say."""
    idle: int = 0
    """How many of them, as far as they were read, rule nothing out."""
    shortcoming: str | None = None
    """Why, and what to build instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """One file. Sizes are in bytes."""

    url: str
    size: int
    etag: str | None
    created_by: str
    version: int
    rows: int
    footer_bytes: int
    index_bytes: int
    bloom_bytes: int
    tail_bytes: int
    """Bytes of the suffix that holds the footer and the page indexes."""
    indexes_read: bool
    key_value: Mapping[str, int]
    """Sizes of the values."""
    embedded: tuple[EmbeddedLayout, ...]
    sorting: tuple[str, ...]
    """The order that the writer declares for the first row group."""
    row_groups: tuple[GroupLayout, ...]
    columns: tuple[ColumnLayout, ...]


def describe_layout(
    url: str, handle: FileHandle, *, indexes: Indexes, shortcomings: Mapping[int, str] = {}
) -> FileLayout:
    """Describe a file by its footer and indexes.

    Parameters
    ----------
    url : str
        The URL to show.
    handle : FileHandle
        The opened file.
    indexes : Indexes
        Its page indexes.
    shortcomings : mapping, optional
        Why embedded indexes rule nothing out, by their place in the table of contents.

    Returns
    -------
    FileLayout
        The description.
    """
    metadata = handle.metadata
    chunks = metadata.chunks
    lengths = (chunks.column_index_length, chunks.offset_index_length)
    return FileLayout(
        url=url,
        size=handle.id.size,
        etag=handle.id.etag,
        created_by=metadata.created_by,
        version=metadata.version,
        rows=metadata.num_rows,
        footer_bytes=len(metadata.footer) + 8,
        index_bytes=sum(_total(length) for length in lengths),
        bloom_bytes=_total(chunks.bloom_length),
        tail_bytes=handle.suggested_tail_bytes(),
        indexes_read=indexes.read,
        key_value={name: len(value) for name, value in metadata.key_value.items()},
        embedded=_embedded(handle, shortcomings),
        sorting=_sorting(metadata),
        row_groups=tuple(
            GroupLayout(
                rows=int(metadata.group_rows[g]),
                compressed=_total(chunks.compressed[g]),
                uncompressed=_total(chunks.uncompressed[g]),
            )
            for g in range(metadata.num_row_groups)
        ),
        columns=tuple(_describe_column(handle, leaf.ordinal, indexes) for leaf in metadata.schema.leaves),
    )


def _embedded(handle: FileHandle, shortcomings: Mapping[int, str]) -> tuple[EmbeddedLayout, ...]:
    found: dict[tuple[str, str, str], list[Entry]] = {}
    short: dict[tuple[str, str, str], list[str]] = {}
    for at, entry in enumerate(handle.toc.entries if handle.toc is not None else ()):
        key = (entry.kind, _covered(entry), entry.level)
        found.setdefault(key, []).append(entry)
        if at in shortcomings:
            short.setdefault(key, []).append(shortcomings[at])
    return tuple(
        EmbeddedLayout(
            kind=safe_text(kind),
            column=safe_text(column),
            level=safe_text(level),
            count=len(entries),
            units=sum(entry.units for entry in entries),
            bytes=sum(entry.length for entry in entries),
            seconds=_sum([entry.seconds for entry in entries]),
            idle=len(short.get((kind, column, level), ())),
            shortcoming=next(iter(short.get((kind, column, level), ())), None),
        )
        for (kind, column, level), entries in found.items()
    )


def _covered(entry: Entry) -> str:
    """Return the column, or the list of columns and expressions, that an index covers."""
    names = entry.params.get("columns")
    if entry.columns and isinstance(names, list):
        return ", ".join(map(str, names))
    if entry.columns:
        return ", ".join(".".join(each.column) for each in entry.columns)
    column, of = ".".join(entry.column), entry.params.get("of", "value")
    return column if of == "value" else f"{of}({column})"


def _sum(seconds: list[float | None]) -> float | None:
    return None if None in seconds else round(sum(each or 0.0 for each in seconds), 3)


def _total(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    return int(values[values > 0].sum())


def _sorting(metadata: FileMetadata) -> tuple[str, ...]:
    if not metadata.sorting:
        return ()
    leaves = metadata.schema.leaves
    return tuple(
        ".".join(leaves[s.column].path) + (" descending" if s.descending else "")
        for s in metadata.sorting[0]
        if 0 <= s.column < len(leaves)
    )


def _describe_column(handle: FileHandle, leaf: int, indexes: Indexes) -> ColumnLayout:
    metadata = handle.metadata
    chunks = metadata.chunks
    schema = metadata.schema
    element = schema.elements[schema.leaves[leaf].element]
    kind = leaf_type(handle, leaf)
    bounds = chunk_bounds(metadata, leaf, arrow_type=kind)
    offsets = [indexes.offset.get((g, leaf)) for g in range(metadata.num_row_groups)]
    plain, coded = chunks.plain_pages[:, leaf], chunks.dictionary_pages[:, leaf]
    nulls = bounds.null_count if len(bounds) else np.zeros(0, np.int64)
    if schema.leaves[leaf].max_repetition:
        nulls = null_counts(metadata, leaf, arrow_type=kind)
    low, high = extremes(bounds, kind)
    order, overlap = _order(metadata, leaf, bounds, indexes, kind)
    physical = Physical(element.physical).name if element.physical is not None else "?"
    return ColumnLayout(
        name=safe_text(".".join(schema.leaves[leaf].path)),
        physical=f"{physical}({element.type_length})" if element.type_length else physical,
        type=str(kind),
        codecs=tuple(sorted({_name(Codec, code) for code in chunks.codec[:, leaf].tolist()})),
        encodings=_encodings(
            chunks.encodings[:, leaf].tolist(), coded=bool(((coded > 0) & (plain == 0)).all())
        ),
        compressed=_total(chunks.compressed[:, leaf]),
        uncompressed=_total(chunks.uncompressed[:, leaf]),
        pages=_count_pages(offsets, plain, coded),
        largest_page=max((int(o.size.max()) for o in offsets if o is not None and o.num_pages), default=None),
        dictionary_fallbacks=int(((plain > 0) & (coded > 0)).sum()),
        nulls=int(nulls.sum()) if bool((nulls >= 0).all()) else None,
        min=low,
        max=high,
        statistics=int((bounds.has_lower | bounds.has_upper).sum()),
        column_indexes=int((chunks.column_index_length[:, leaf] > 0).sum()),
        offset_indexes=int((chunks.offset_index_length[:, leaf] > 0).sum()),
        blooms=int((chunks.bloom_offset[:, leaf] > 0).sum()),
        bloom_bytes=_total(chunks.bloom_length[:, leaf]),
        order=order,
        overlap=overlap,
    )


def _name(kind: type[Codec | Encoding], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return f"unknown ({code})"


def _encodings(masks: list[int], *, coded: bool) -> tuple[str, ...]:
    """Return the encodings of the values in data pages; `coded` says that only the dictionary page is
    plain."""
    bits = 0
    for mask in masks:
        bits |= mask
    if coded:
        bits &= ~(1 << Encoding.PLAIN)
    names = [_name(Encoding, bit) for bit in range(32) if bits >> bit & 1]
    telling = [name for name in names if name not in {e.name for e in _NOT_VALUES}]
    return tuple(telling or names)


def _count_pages(
    offsets: list[OffsetIndex | None],
    plain: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
    coded: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
) -> int | None:
    total = 0
    for offset, a, b in zip(offsets, plain.tolist(), coded.tolist(), strict=True):
        if offset is not None:
            total += offset.num_pages
        elif a >= 0 and b >= 0:
            total += a + b
        else:
            return None
    return total


def _order(
    metadata: FileMetadata, leaf: int, groups: Bounds, indexes: Indexes, kind: pa.DataType
) -> tuple[str, float | None]:
    """Judge the order of a column by the bounds of its pages, or of its row groups where pages have none."""
    parts: list[Bounds] = []
    for g in range(metadata.num_row_groups):
        offset, column = indexes.offset.get((g, leaf)), indexes.column.get((g, leaf))
        if offset is None or column is None or column.num_pages != offset.num_pages:
            parts = [groups]
            break
        rows = np.diff(np.append(offset.first_row, metadata.group_rows[g]))
        parts.append(page_bounds(metadata, leaf, column, rows, arrow_type=kind, chunk=groups.part(g, g + 1)))
    if not parts or any(part.domain is Domain.NONE for part in parts):
        return "unknown", None
    lower = np.concatenate([part.lower[part.has_lower & part.has_upper] for part in parts])
    upper = np.concatenate([part.upper[part.has_lower & part.has_upper] for part in parts])
    return judge_order(lower, upper)


def judge_order(lower: np.ndarray, upper: np.ndarray) -> tuple[str, float | None]:
    """Return the order of units by their bounds, and the share of them that a search for one value must
    read."""
    n = len(lower)
    if n < 2:
        return "unknown", None
    # For each unit, the number of units whose bounds enclose its lower bound.
    begun = np.searchsorted(np.sort(lower), lower, side="right")
    ended = np.searchsorted(np.sort(upper), lower, side="left")
    overlap = float((begun - ended).mean()) / n
    if bool((upper[:-1] <= lower[1:]).all()):
        return "ascending", overlap
    if bool((upper[1:] <= lower[:-1]).all()):
        return "descending", overlap
    return ("clustered" if overlap * n <= 2 or overlap <= 0.1 else "scattered"), overlap


# A smaller file is read in a request or two whatever its layout.
_SMALL_FILE = 1 * MIB
_SMALL_COLUMN = MIB // 4
_LARGE_PAGE = 1 * MIB
_MANY_PAGE_ROWS = 100_000
_LARGE_GROUP = 1024 * MIB
_TINY_GROUP = 1 * MIB
_MANY_GROUPS = 8


def advise(file: FileLayout) -> list[str]:
    """Return the advice for one file, the most worthwhile first."""
    if not file.rows or file.size < 64 * 1024:
        return []
    large = [c for c in file.columns if c.compressed >= _SMALL_COLUMN]
    if file.size < _SMALL_FILE:
        return list(_timestamps(large))
    return [
        *_page_index(file),
        *_sort_order(file),
        *_row_groups(file),
        *_statistics(large),
        *_pages(file, large),
        *_codec(file, large),
        *_dictionary(large),
        *_timestamps(large),
        *_tail(file),
    ]


def _page_index(file: FileLayout) -> Iterator[str]:
    groups = len(file.row_groups)
    large = [c for c in file.columns if c.compressed > _SMALL_COLUMN * groups]
    if without := [c for c in large if c.offset_indexes < groups]:
        which = "no page index" if len(without) == len(large) else f"no page index for {_names(without)}"
        yield (
            f"{which}: a lookup reads whole column chunks instead of pages (pyarrow: write_page_index=True; "
            "parquet-java, arrow-rs and Polars write it by default)"
        )
    elif half := [c for c in large if c.column_indexes < groups]:
        yield f"no column index for {_names(half)}: their pages can be found, but not pruned"


def _sort_order(file: FileLayout) -> Iterator[str]:
    overlaps = [c.overlap for c in file.columns if c.overlap is not None]
    if file.rows >= 100_000 and overlaps and min(overlaps) >= 0.25:
        yield (
            "no column is sorted or clustered: statistics can exclude next to nothing (sort the rows by the "
            "column that queries filter on before writing)"
        )


def _row_groups(file: FileLayout) -> Iterator[str]:
    groups = file.row_groups
    largest = max(group.uncompressed for group in groups)
    average = sum(group.compressed for group in groups) // len(groups)
    if largest > _LARGE_GROUP:
        yield (
            f"a row group of {byte_count(largest)} uncompressed: readers without a page index need it "
            "whole, and several cannot share the work (128 to 512 MiB serve well)"
        )
    elif len(groups) >= _MANY_GROUPS and average < _TINY_GROUP:
        yield (
            f"{len(groups):,} row groups of {byte_count(average)} on average: each costs footer bytes and "
            "requests (write 100,000 rows or more at a time)"
        )


def _statistics(columns: Sequence[ColumnLayout]) -> Iterator[str]:
    without = [
        c
        for c in columns
        if not c.statistics and not c.column_indexes and c.overlap is None and _is_prunable(c)
    ]
    if without:
        yield f"no usable statistics for {_names(without)}: a filter on them excludes nothing"


def _is_prunable(column: ColumnLayout) -> bool:
    return "." not in column.name and column.physical != "INT96" and column.type != "null"


def _pages(file: FileLayout, columns: Sequence[ColumnLayout]) -> Iterator[str]:
    if heavy := [c for c in columns if (c.largest_page or 0) > _LARGE_PAGE]:
        yield (
            f"pages of up to {byte_count(max(c.largest_page or 0 for c in heavy))} in {_names(heavy)}: a "
            "lookup reads at least one whole page of each column (limit them to 10,000 to 20,000 rows, or "
            "to 64 KiB to 1 MiB)"
        )
    elif long := [
        c for c in columns if c.pages and file.rows / c.pages > _MANY_PAGE_ROWS and "." not in c.name
    ]:
        yield (
            f"pages of more than {_MANY_PAGE_ROWS:,} rows in {_names(long)}: other columns must be read for "
            "all of these rows (limit pages to 10,000 to 20,000 rows)"
        )


def _codec(file: FileLayout, columns: Sequence[ColumnLayout]) -> Iterator[str]:
    if plain := [c for c in columns if "UNCOMPRESSED" in c.codecs and c.compressed > file.size // 20]:
        yield f"{_names(plain)} not compressed: zstd usually halves what goes over the network"
    if old := [c for c in columns if {"LZ4", "LZO"} & set(c.codecs)]:
        yield f"{_names(old)} in LZ4 or LZO framing that not every reader knows: use zstd or LZ4_RAW"
    if slow := [c for c in columns if "GZIP" in c.codecs]:
        yield f"{_names(slow)} in gzip: zstd is as small and decodes several times faster"


def _dictionary(columns: Sequence[ColumnLayout]) -> Iterator[str]:
    if fallen := [c for c in columns if c.dictionary_fallbacks]:
        yield (
            f"dictionaries outgrown in {_names(fallen)}: pages written before that need a dictionary of up "
            "to a megabyte to be read (no dictionary for columns of mostly distinct values)"
        )


def _timestamps(columns: Sequence[ColumnLayout]) -> Iterator[str]:
    if old := [c for c in columns if c.physical == "INT96"]:
        yield f"{_names(old)} stored as INT96, which has no usable statistics: write 64-bit timestamps"


def _tail(file: FileLayout) -> Iterator[str]:
    if file.tail_bytes > Options().max_tail_hint:
        yield (
            f"footer and page indexes take {byte_count(file.tail_bytes)}: every cold open reads a good part "
            "of that (fewer row groups, fewer columns, shorter statistics)"
        )


def _names(columns: Sequence[ColumnLayout]) -> str:
    names = [c.name for c in columns]
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
