"""SelectedSource: the files of another source, of which the caller selects rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from accel.errors import redact
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.selection import RowSelection
from accel.scanning.file_source import FileSource, SourceRequest, WrappingSource

__all__ = ["SelectedSource", "match_selection"]


class SelectedSource(WrappingSource):
    """All files of a source as one block, with the rows that are selected of each; none of a file that is not
    named.

    Parameters
    ----------
    files : FileSource
    selection : mapping
        By the URL or path of a file, and by row group, the rows to read.
    """

    def __init__(self, files: FileSource, selection: Mapping[str, Mapping[int, RowSelection]]) -> None:
        super().__init__(files)
        self._selection = selection
        self._expected: FileBlock | None = None
        """The block of the source that `expected` returned last."""

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield one block: the names of a selection are looked for among all files."""
        found = [block async for block in self.files.blocks(request)]
        files = found[0].files if len(found) == 1 else [file for block in found for file in block.files]
        yield self._select(replace(found[0], files=files, more=False))

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return what the source expects, with the rows that are selected."""
        self._expected = self.files.expected(request)
        if self._expected is None:
            return None
        try:
            return self._select(self._expected)
        except ValueError:
            return None  # it names files that were not there: those that are there now decide

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """Have the source confirm what it expected."""
        if self._expected is None:
            return None
        block = await self.files.confirm(request, self._expected)
        return None if block is None else self._select(block)

    def _select(self, block: FileBlock) -> FileBlock:
        rows = match_selection(self._selection, block.files)
        files = tuple(replace(file, selected=rows.get(file.url, {})) for file in block.files)
        # Bounds and counts are of all rows.
        return replace(block, files=files, bounds={}, partition_values={}, num_rows=None)


def match_selection(
    selection: Mapping[str, Mapping[int, RowSelection]], files: Sequence[FileEntry]
) -> dict[str, dict[int, RowSelection]]:
    """Return the caller's own rows by the URLs of the files, which may have been named by their paths.

    Raises
    ------
    ValueError
        A name belongs to no file, or to several.
    """
    urls_by_name: dict[str, set[str]] = {}
    for file in files:
        urls_by_name.setdefault(file.path, set()).add(file.url)
        if file.root == "file://":
            # The whole path will do too, however the source was spelt.
            urls_by_name.setdefault(f"/{file.path.lstrip('/')}", set()).add(file.url)
    # A URL wins over equal paths of other files.
    urls_by_name.update((file.url, {file.url}) for file in files)
    out: dict[str, dict[int, RowSelection]] = {}
    for name, groups in selection.items():
        urls = urls_by_name.get(name) or urls_by_name.get(name.removeprefix("file://"), set())
        if len(urls) > 1:
            raise ValueError(
                f"selection names {redact(name)!r}, which is the path of {len(urls)} files of the scan; "
                f"name them by their URLs, as {redact(min(urls))!r}"
            )
        if not urls:
            import difflib

            close = difflib.get_close_matches(name, urls_by_name, n=1)
            hint = f"; did you mean {redact(close[0])!r}?" if close else ""
            raise ValueError(
                f"selection names {redact(name)!r}, which is not among the files of the scan{hint}"
            )
        (url,) = urls
        rows = out.setdefault(url, {})
        for group, ranges in groups.items():
            rows[group] = rows[group].union(ranges) if group in rows else ranges
    return out
