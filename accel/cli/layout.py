"""How a Parquet file is laid out: what `accel inspect` shows, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from accel.cli.extremes import extremes, leaf_type
from accel.cli.values import safe_text
from accel.format.bounds import chunk_bounds, null_counts, page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.embedded import Entry
from accel.format.model import Codec, ColumnIndex, Encoding, FileMetadata, OffsetIndex, Physical
from accel.planning.handle import FileHandle

__all__ = [
    "ColumnLayout",
    "EmbeddedLayout",
    "FileLayout",
    "GroupLayout",
    "Indexes",
    "describe_layout",
    "judge_order",
]

_NOT_VALUES = (Encoding.RLE, Encoding.BIT_PACKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """The page indexes of a file, by (row group, leaf)."""

    offset: Mapping[tuple[int, int], OffsetIndex]
    column: Mapping[tuple[int, int], ColumnIndex]
    read: bool
    """False where they were passed over for their size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    rows: int
    compressed: int
    uncompressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """One leaf column, over all row groups. Sizes are bytes."""

    name: str
    physical: str
    type: str
    codecs: tuple[str, ...]
    encodings: tuple[str, ...]
    compressed: int
    uncompressed: int
    pages: int | None
    """Data pages; None where neither an index nor the footer tells."""
    largest_page: int | None
    dictionary_fallbacks: int
    """Chunks that begin dictionary-encoded and end plain."""
    nulls: int | None
    """None where a row group does not say."""
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
    """Of the units with bounds (pages, else row groups): the share in which a value of the column may lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedLayout:
    """The indexes of one kind over one column, embedded in the file."""

    kind: str
    column: str
    level: str
    count: int
    """Entries in the table of contents: 1 for an index of the whole file, else one a row group that has it."""
    units: int
    """Files, row groups, pages or rows that they speak of."""
    bytes: int
    seconds: float | None
    """What building them took, decoding not counted; None where the file does not say."""
    idle: int = 0
    """Of `count`, those that rule nothing out, as far as they were read."""
    shortcoming: str | None = None
    """Why they do not, and what to take instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """One file. Sizes are bytes."""

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
    """What one suffix read must bring for footer and page indexes at once."""
    indexes_read: bool
    key_value: Mapping[str, int]
    """Sizes of the values."""
    embedded: tuple[EmbeddedLayout, ...]
    sorting: tuple[str, ...]
    """As the writer declares it, for the first row group."""
    row_groups: tuple[GroupLayout, ...]
    columns: tuple[ColumnLayout, ...]


def describe_layout(
    url: str, handle: FileHandle, *, indexes: Indexes, shortcomings: Mapping[int, str] = {}
) -> FileLayout:
    """Put together what the footer and the indexes say; and of embedded ones, by their place in the table, why they rule
    nothing out."""
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
    """The column that an index is of, or what of which columns."""
    told = entry.params.get("columns")
    if entry.columns and isinstance(told, list):
        return ", ".join(map(str, told))
    if entry.columns:
        return ", ".join(".".join(each.column) for each in entry.columns)
    column, of = ".".join(entry.column), entry.params.get("of", "value")
    return column if of == "value" else f"{of}({column})"


def _sum(seconds: list[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return round(sum(known), 3) if len(known) == len(seconds) else None


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
    """Of the data pages' values: those of levels are everywhere, and every dictionary page is plain."""
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
    """How the column lies in the file, judged by its pages where they have bounds, else by row groups."""
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
    """Name the order of units by their bounds, and the share of them that a value's search must read."""
    n = len(lower)
    if n < 2:
        return "unknown", None
    # Of each unit's lower bound: how many units hold it between their bounds.
    begun = np.searchsorted(np.sort(lower), lower, side="right")
    ended = np.searchsorted(np.sort(upper), lower, side="left")
    overlap = float((begun - ended).mean()) / n
    if bool((upper[:-1] <= lower[1:]).all()):
        return "ascending", overlap
    if bool((upper[1:] <= lower[:-1]).all()):
        return "descending", overlap
    return ("clustered" if overlap * n <= 2 or overlap <= 0.1 else "scattered"), overlap
