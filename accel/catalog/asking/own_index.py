"""A caller's own index: an object that says which files, and which rows of them, may match a predicate.

Source: DataFusion's examples `parquet_index.rs` (files by bounds) and `advanced_parquet_index.rs` (rows of
files).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.selection import RowSelection
from accel.runtime.tasks import ending
from accel.runtime.threads import WORK
from accel.scanning.file_source import FileSource, SourceRequest
from accel.scanning.files_index import FilesIndex, IndexedFile, PredicateView
from accel.tables.named_source import read_source
from accel.versions import FileVersion

__all__ = ["OwnIndexSource"]

_BLOCK: Final = 1000
_END: Final = object()
_NO_COLUMNS = pa.schema([])


class OwnIndexSource(FileSource):
    """The files that a caller's own index names.

    Parameters
    ----------
    index : FilesIndex
    source : str
        The source of the scan: relative paths are below it.
    in_store : bool
        The caller gave a store.
    files : FileSource
        The files of the scan without an index: one of them settles the schema where the index names none.
    """

    def __init__(self, index: FilesIndex, source: str, *, in_store: bool, files: FileSource) -> None:
        self._index = index
        self._source = source
        self._in_store = in_store
        self._files = files

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files that the index names, some at a time; see `FileSource.blocks`."""
        waiting: list[FileEntry] | None = None
        async with ending(self._named(request)) as named:
            async for some in named:
                if not some:
                    continue
                if waiting is not None:
                    yield FileBlock(tuple(waiting), _NO_COLUMNS, 0, more=True)
                waiting = [self._entry(one) for one in some]
        if waiting is not None:
            yield FileBlock(tuple(waiting), _NO_COLUMNS, 0)
            return
        # No file may match: the first of all files settles the schema, and none of its rows is read.
        async with ending(self._files.blocks(request)) as blocks:
            block = await anext(blocks)
        entry = replace(block.files[0], facts=FileFacts(version=FileVersion(immutable=True), may_match={}))
        yield FileBlock((entry,), block.partition_schema, block.round_trips)

    async def _named(self, request: SourceRequest) -> AsyncIterator[Sequence[IndexedFile | str]]:
        predicate = PredicateView(request.where)
        call = self._index.files
        found: Any = await WORK.run(call, predicate, request.columns)
        if hasattr(found, "__await__"):
            found = await found
        if hasattr(found, "__aiter__"):
            async with ending(found) as parts:
                async for some in parts:
                    yield _as_list(some)
            return
        items = iter(found)
        block: list[IndexedFile | str] = []
        while (some := await WORK.run(next, items, _END)) is not _END:
            block += _as_list(some)
            if len(block) >= _BLOCK:
                yield block
                block = []
        yield block

    def _entry(self, one: IndexedFile | str) -> FileEntry:
        file = IndexedFile(one) if isinstance(one, str) else one
        if not isinstance(file, IndexedFile):
            raise TypeError(f"an index names files as text or accel.IndexedFile, not {type(one).__name__}")
        text = file.path
        if "://" not in text and not text.startswith("/"):
            text = f"{self._source.rstrip('/')}/{text}"
        named = read_source(text, glob=False, in_store=self._in_store).as_file()
        rows = None
        if file.rows is not None:
            rows = {int(group): RowSelection.of(ranges) for group, ranges in file.rows.items()}
        facts = (
            None
            if rows is None
            else FileFacts(
                version=FileVersion(file.size, file.etag, immutable=file.etag is None), may_match=rows
            )
        )
        size, etag = (file.size, file.etag) if file.etag is not None else (named.size, named.etag)
        return FileEntry(named.root, named.path, named.url, size, etag, facts=facts)


def _as_list(some: Any) -> list[IndexedFile | str]:
    return [some] if isinstance(some, str | IndexedFile) else list(some)
