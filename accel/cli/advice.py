"""What to change in a file so that selective reads of it become faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accel.cli.layout import ColumnLayout, FileLayout
from accel.cli.progress import byte_count
from accel.options import MIB, Options

__all__ = ["advise"]

# Below these a file is read in a request or two whatever its layout.
_SMALL_FILE = 1 * MIB
_SMALL_COLUMN = MIB // 4
_LARGE_PAGE = 1 * MIB
_MANY_PAGE_ROWS = 100_000
_LARGE_GROUP = 1024 * MIB
_TINY_GROUP = 1 * MIB
_MANY_GROUPS = 8


def advise(file: FileLayout) -> list[str]:
    """The advice for one file, the most worthwhile first; empty where there is nothing to say."""
    if not file.rows:
        return []
    if file.size < _SMALL_FILE:
        return [] if file.size < 64 * 1024 else _of_columns(file, _timestamps)
    advice = [
        *_page_index(file),
        *_sort_order(file),
        *_row_groups(file),
        *_of_columns(file, _statistics, _pages, _codec, _dictionary, _timestamps),
    ]
    hint = Options().max_tail_hint
    if file.tail_bytes > hint:
        advice.append(
            f"footer and page indexes take {byte_count(file.tail_bytes)}: every cold open reads a good part of "
            "that (fewer row groups, fewer columns, shorter statistics)"
        )
    return advice


def _page_index(file: FileLayout) -> list[str]:
    groups = len(file.row_groups)
    large = [c for c in file.columns if c.compressed > _SMALL_COLUMN * groups]
    without = [c for c in large if c.offset_indexes < groups]
    if not without:
        half = [c for c in large if c.column_indexes < groups]
        if not half:
            return []
        return [f"no column index for {_names(half)}: their pages can be found, but not pruned"]
    which = "no page index" if len(without) == len(large) else f"no page index for {_names(without)}"
    return [
        (
            f"{which}: a lookup reads whole column chunks instead of pages (pyarrow: write_page_index=True; "
            "parquet-java, arrow-rs and Polars write it by default)"
        )
    ]


def _sort_order(file: FileLayout) -> list[str]:
    judged = [c for c in file.columns if c.overlap is not None]
    if file.rows < 100_000 or not judged or any(c.overlap is not None and c.overlap < 0.25 for c in judged):
        return []
    return [
        (
            "no column is sorted or clustered: statistics can exclude next to nothing (sort the rows by the column "
            "that queries filter on before writing)"
        )
    ]


def _row_groups(file: FileLayout) -> list[str]:
    groups = file.row_groups
    largest = max(group.uncompressed for group in groups)
    if largest > _LARGE_GROUP:
        return [
            (
                f"a row group of {byte_count(largest)} uncompressed: readers without a page index need it whole, and "
                "several cannot share the work (128 to 512 MiB serve well)"
            )
        ]
    average = sum(group.compressed for group in groups) // len(groups)
    if len(groups) >= _MANY_GROUPS and average < _TINY_GROUP:
        return [
            (
                f"{len(groups):,} row groups of {byte_count(average)} on average: each costs footer bytes and requests "
                "(write 100,000 rows or more at a time)"
            )
        ]
    return []


def _of_columns(
    file: FileLayout, *rules: Callable[[FileLayout, Sequence[ColumnLayout]], list[str]]
) -> list[str]:
    large = [c for c in file.columns if c.compressed >= _SMALL_COLUMN]
    return [line for rule in rules for line in rule(file, large)]


def _statistics(file: FileLayout, columns: Sequence[ColumnLayout]) -> list[str]:
    bare = [
        c
        for c in columns
        if not c.statistics and not c.column_indexes and c.overlap is None and _is_prunable(c)
    ]
    if not bare:
        return []
    return [f"no usable statistics for {_names(bare)}: a filter on them excludes nothing"]


def _is_prunable(column: ColumnLayout) -> bool:
    return "." not in column.name and column.physical != "INT96" and column.type != "null"


def _pages(file: FileLayout, columns: Sequence[ColumnLayout]) -> list[str]:
    heavy = [c for c in columns if c.largest_page is not None and c.largest_page > _LARGE_PAGE]
    if heavy:
        largest = max(c.largest_page or 0 for c in heavy)
        return [
            (
                f"pages of up to {byte_count(largest)} in {_names(heavy)}: a lookup reads at least one whole page of "
                "each column (limit them to 10,000 to 20,000 rows, or to 64 KiB to 1 MiB)"
            )
        ]
    long = [c for c in columns if c.pages and file.rows / c.pages > _MANY_PAGE_ROWS and "." not in c.name]
    if not long:
        return []
    return [
        (
            f"pages of more than {_MANY_PAGE_ROWS:,} rows in {_names(long)}: other columns must be read for all of "
            "these rows (limit pages to 10,000 to 20,000 rows)"
        )
    ]


def _codec(file: FileLayout, columns: Sequence[ColumnLayout]) -> list[str]:
    advice = []
    plain = [c for c in columns if "UNCOMPRESSED" in c.codecs and c.compressed > file.size // 20]
    if plain:
        advice.append(f"{_names(plain)} not compressed: zstd usually halves what goes over the network")
    old = [c for c in columns if {"LZ4", "LZO"} & set(c.codecs)]
    if old:
        advice.append(f"{_names(old)} in LZ4 or LZO framing that not every reader knows: use zstd or LZ4_RAW")
    slow = [c for c in columns if "GZIP" in c.codecs]
    if slow:
        advice.append(f"{_names(slow)} in gzip: zstd is as small and decodes several times faster")
    return advice


def _dictionary(file: FileLayout, columns: Sequence[ColumnLayout]) -> list[str]:
    fallen = [c for c in columns if c.dictionary_fallbacks]
    if not fallen:
        return []
    return [
        (
            f"dictionaries outgrown in {_names(fallen)}: pages written before that need a dictionary of up to a "
            "megabyte to be read (no dictionary for columns of mostly distinct values)"
        )
    ]


def _timestamps(file: FileLayout, columns: Sequence[ColumnLayout]) -> list[str]:
    old = [c for c in columns if c.physical == "INT96"]
    if not old:
        return []
    return [f"{_names(old)} stored as INT96, which has no usable statistics: write 64-bit timestamps"]


def _names(columns: Sequence[ColumnLayout]) -> str:
    names = [c.name for c in columns]
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
