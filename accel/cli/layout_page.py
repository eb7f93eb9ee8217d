"""The page that `accel inspect --html` writes: files drawn by their pages, their columns, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import numpy as np

from accel.cli.layout import FileLayout, advise
from accel.errors import redact
from accel.format.model import OffsetIndex
from accel.pictures.document import byte_count, facts_table, page
from accel.pictures.file_map import ColumnMap, FileMap, draw_file, draw_legend
from accel.planning.handle import FileHandle

__all__ = ["layout_page", "map_layout"]

_MOST_COLUMNS: Final = 60
_NAMES: Final[Mapping[int, str]] = {
    0: "dictionary-encoded",
    1: "not dictionary-encoded",
    8: "a chunk whose pages no index shows",
}
_NOT_SHOWN: Final = 8


def map_layout(name: str, handle: FileHandle, offsets: Mapping[tuple[int, int], OffsetIndex]) -> FileMap:
    """Return where the pages of a file lie, by its page indexes."""
    metadata = handle.metadata
    rows = np.asarray(metadata.group_rows, np.int64)
    starts = np.cumsum(rows) - rows
    leaves = metadata.schema.leaves[:_MOST_COLUMNS]
    return FileMap(
        name=name,
        size=handle.id.size,
        num_rows=metadata.num_rows,
        group_rows=starts,
        columns=tuple(_map_column(handle, leaf.ordinal, offsets) for leaf in leaves),
        others=len(metadata.schema.leaves) - len(leaves),
        names=_NAMES,
    )


def _map_column(handle: FileHandle, leaf: int, offsets: Mapping[tuple[int, int], OffsetIndex]) -> ColumnMap:
    metadata, chunks = handle.metadata, handle.metadata.chunks
    parts = []
    start = 0
    for group, rows in enumerate(metadata.group_rows.tolist()):
        index = offsets.get((group, leaf))
        if index is None or not index.num_pages:
            first = np.zeros(1, np.int64)
            fates = np.array([_NOT_SHOWN], np.uint8)
            nbytes = np.array([max(0, int(chunks.compressed[group, leaf]))], np.int64)
        else:
            first, nbytes = np.asarray(index.first_row, np.int64), np.asarray(index.size, np.int64)
            coded = int(chunks.dictionary_pages[group, leaf])
            fates = (np.arange(index.num_pages) >= max(coded, 0)).astype(np.uint8)
        parts.append((first + start, fates, nbytes))
        start += rows
    return ColumnMap.joined(".".join(metadata.schema.leaves[leaf].path), parts)


def layout_page(files: Sequence[tuple[FileLayout, FileMap]]) -> str:
    """Return the page of some files.

    Parameters
    ----------
    files : sequence of (FileLayout, FileMap)
        What each holds, and where its pages lie.

    Returns
    -------
    str
        HTML that needs no other file.
    """
    names = [redact(layout.url) for layout, _ in files]
    title = names[0] if len(names) == 1 else f"{len(names):,} Parquet files"
    return page(title, *(part for layout, drawn in files for part in _parts(layout, drawn)))


def _parts(layout: FileLayout, drawn: FileMap) -> Iterator[str]:
    yield draw_legend([drawn])
    yield draw_file(drawn)
    advice = advise(layout)
    yield "<h2>What would make it faster</h2>"
    lines = "".join(f"<li>{escape(line)}</li>" for line in advice or ["nothing to advise"])
    yield f'<ul class="accel-advice">{lines}</ul>'
    yield "<h2>Columns</h2>"
    yield facts_table(
        ("column", "type", "encodings", "pages", "compressed", "nulls", "min", "max", "order"),
        (
            (
                column.name,
                column.type,
                ", ".join(column.encodings).lower(),
                "?" if column.pages is None else column.pages,
                byte_count(column.compressed),
                "?" if column.nulls is None else column.nulls,
                column.min or "?",
                column.max or "?",
                column.order,
            )
            for column in layout.columns
        ),
    )
