"""FileSource: the seam that everything outside a file plugs into. Stage 1 of the pipeline.

In: what the scan asks. Out: the schema of a data set, where the source knows it, and blocks of files in
columns, in the order in which rows are to come out. A block bounds what is in memory of a source at a time: a
directory is one block, as its partition types are settled over all of its files; a catalog of a million files
yields many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa

from accel.arrays import validity, whole
from accel.errors import TableFormatError
from accel.planning.column_bounds import ColumnBounds
from accel.planning.column_mapping import ColumnMapping
from accel.planning.deleted_rows import DeletedRows
from accel.planning.evolution import NO_EVOLUTION, Evolution
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.predicate.expr import Expr
from accel.reader.reader import Reader
from accel.store.location import parse_url
from accel.versions import FileVersion

__all__ = ["FactAnswers", "FileColumns", "FileSource", "SourceMaker", "SourceRequest", "WrappingSource"]


class FactAnswers(Protocol):
    """Answers a question about all rows of a file from the facts of its source, which need no metadata of it
    then."""

    def fact_columns(self) -> tuple[str, ...] | None:
        """Return the columns whose bounds and counts it takes, as the caller wrote them; None where facts
        answer nothing."""
        ...

    @property
    def takes_values(self) -> bool:
        """Whether it takes the distinct values of these columns, where the source has them."""
        ...

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether facts answer for a file.

        Parameters
        ----------
        facts : FileFacts
        paths : mapping
            By the names of `fact_columns`, the paths of the columns that the file has.
        """
        ...


@dataclass(kw_only=True, eq=False)
class FileColumns(Sequence[FileEntry]):
    """The files of a block as columns; an entry is made when it is looked at, and stays the same object."""

    names: Sequence[str] | pa.Array = field(kw_only=False)
    """The URLs."""
    sizes: Sequence[int | None] | pa.Array | None = None
    """Bytes; None among them where unknown."""
    etags: Sequence[str | None] | pa.Array | None = None
    """None among them where unknown."""
    immutable: bool = False
    """Whether the paths never hold other versions."""
    partition: Sequence[pa.Array] = ()
    """The values of each partition column."""
    deleted: Mapping[int, DeletedRows] | Callable[[int], DeletedRows | None] | None = None
    """By the place of a file. A callable is asked for the files that are looked at."""
    columns: ColumnMapping | Sequence[ColumnMapping] | None = None
    """One for all files, or one for each."""
    footers: Sequence[int | None] | pa.Array | None = None
    """The bytes of the end of each file that hold its footer; None where unknown."""
    first_rows: pa.Array | None = None
    """The number of the first row of each file, where the source numbers rows; null where it has none."""
    in_store: bool = False
    """Whether the URLs are paths of a store that the caller gave."""
    matching_rows: pa.Array | None = None
    """The rows of each file, the deleted ones included, where the scan asks for all of them."""
    _made: dict[int, FileEntry] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        mappings = None if isinstance(self.columns, ColumnMapping) else self.columns
        given = (
            ("sizes", self.sizes),
            ("etags", self.etags),
            ("footers", self.footers),
            ("first rows", self.first_rows),
            ("column mappings", mappings),
            *(("values", one) for one in self.partition),
        )
        for what, column in given:
            if column is not None and len(column) != len(self.names):
                raise TableFormatError(f"{len(column)} {what} are given for {len(self.names)} files")

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> FileEntry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FileEntry]: ...
    def __getitem__(self, at: int | slice) -> FileEntry | Sequence[FileEntry]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        found = self._made.get(at)
        if found is None:
            found = self._made[at] = self._make(at)
        return found

    def _make(self, at: int) -> FileEntry:
        url = _value(self.names, at)
        location = parse_url(url, in_store=self.in_store)
        size = _value(self.sizes, at)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise TableFormatError(f"{size!r} is no size of a file", path=url)
        etag, rows = _value(self.etags, at), _value(self.matching_rows, at)
        facts = None
        if rows is not None and rows >= 0 and (self.immutable or etag is not None):
            facts = FileFacts(version=FileVersion(size, etag, self.immutable), num_rows=rows, all_match=True)
        footer, columns = _value(self.footers, at), self.columns
        first_row = 0 if self.first_rows is None else _value(self.first_rows, at)
        if first_row is None:
            raise TableFormatError("the rows of the file have no numbers that the source knows", path=url)
        return FileEntry(
            location.root,
            location.path,
            url,
            size,
            etag,
            tuple(_value(column, at) for column in self.partition),
            facts=facts,
            immutable=self.immutable,
            deleted=self._deleted_of(at),
            columns=columns if columns is None or isinstance(columns, ColumnMapping) else columns[at],
            footer_bytes=footer if isinstance(footer, int) and footer > 0 else None,
            first_row=first_row,
        )

    def _deleted_of(self, at: int) -> DeletedRows | None:
        if self.deleted is None:
            return None
        return self.deleted(at) if callable(self.deleted) else self.deleted.get(at)

    @property
    def urls(self) -> Sequence[str]:
        """The URLs of all files, without an entry for each."""
        return self.names.to_pylist() if isinstance(self.names, pa.Array | pa.ChunkedArray) else self.names

    @property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which files are of a known version, so that facts about it count."""
        if self.immutable:
            return np.ones(len(self), bool)
        if self.etags is None:
            return np.zeros(len(self), bool)
        if isinstance(self.etags, pa.Array | pa.ChunkedArray):
            return validity(whole(self.etags))
        return np.fromiter((etag is not None for etag in self.etags), bool, len(self))


def _value(column: Any, at: int) -> Any:
    if column is None:
        return None
    value = column[at]
    return (
        value.as_py() if isinstance(value, pa.Scalar) else value.item() if hasattr(value, "item") else value
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceRequest:
    """What a scan asks of a source, and the means to answer."""

    reader: Reader
    """Reaches the stores, opens files and counts requests."""
    where: Expr | None = None
    """A source may leave out files that cannot match, and no others."""
    columns: tuple[str, ...] | None = None
    """The columns of the result; None for all."""
    answers: FactAnswers | None = None
    """What answers from facts, where the scan asks about all rows; None where it reads rows."""
    on_entries: Callable[[Iterable[FileEntry]], None] | None = None
    """Is shown the first entries of a block while the source still waits for the others. The entries are
    certain to be in the block."""
    in_store: bool = False
    """Whether the caller gave a store, in which paths lie."""
    declared: pa.Schema | None = None
    """What the source has answered to `schema`."""

    def block(
        self,
        urls: Sequence[str] | pa.Array,
        *,
        sizes: Sequence[int | None] | pa.Array | None = None,
        etags: Sequence[str | None] | pa.Array | None = None,
        immutable: bool = False,
        num_rows: pa.Array | None = None,
        partition: Mapping[str, pa.Array] | None = None,
        bounds: Mapping[str | tuple[str, ...], ColumnBounds] | None = None,
        deleted: Mapping[int, DeletedRows | Any] | Callable[[int], DeletedRows | None] | None = None,
        columns: ColumnMapping | Sequence[ColumnMapping] | None = None,
        footers: Sequence[int | None] | pa.Array | None = None,
        first_rows: pa.Array | None = None,
        round_trips: int = 0,
        more: bool = False,
    ) -> FileBlock:
        """Make a block of files from columns: sequences or Arrow arrays with a value for each file.

        Parameters
        ----------
        urls : sequence of str
            URLs or paths; paths of the store, if the caller of the scan gave one.
        sizes : sequence of int, optional
            Bytes; None where unknown.
        etags : sequence of str, optional
            The version of each file; None where unknown. It is read in this version, or not at all once its
            rows come out.
        immutable : bool
            Whether a path never holds another version, as the log of a table promises. Cached metadata of the
            path is used then without asking the store.
        num_rows : pyarrow.Array, optional
            The rows of each file, the deleted ones included.
        partition : mapping of str to pyarrow.Array, optional
            The columns that are not in the files, with the value of each file.
        bounds : mapping of str to ColumnBounds, optional
            By column (a tuple of names for one in a struct). They rule files out before these are opened,
            where the version is known: with an etag, or immutable.
        deleted : mapping of int to DeletedRows, or callable, optional
            By the place of a file, its rows that are gone; row numbers in any form that `DeletedRows.of`
            takes. A callable is asked for the files that are looked at, and returns DeletedRows or None.
        columns : ColumnMapping, or sequence of ColumnMapping, optional
            Which columns of the files are meant, of all files or of each. The source says its schema then,
            and keeps the objects: files that are mapped alike share one.
        footers : sequence of int, optional
            The bytes of the end of each file that hold its footer, the last 8 of the file among them; None
            where unknown. They are read first.
        first_rows : pyarrow.Array, optional
            The number of the first row of each file, where the source numbers the rows of all files for
            `row_number=`; null where a file has none.
        round_trips : int
            Dependent requests that finding the files took.
        more : bool
            Whether another block follows.

        Returns
        -------
        FileBlock
            The files, to be yielded by `FileSource.blocks`.

        Raises
        ------
        TableFormatError
            The columns have different lengths, or a value cannot be.
        """
        values = dict(partition or {})
        gone = None if callable(deleted) else _gone(deleted or {}, len(urls))
        by_path = {
            (path,) if isinstance(path, str) else path: found for path, found in (bounds or {}).items()
        }
        lengths = {len(one) for found in by_path.values() for one in found.arrays if one is not None}
        if lengths - {len(urls)}:
            raise TableFormatError(f"bounds of {sorted(lengths)} files are given for {len(urls)}")
        return FileBlock(
            FileColumns(
                urls,
                sizes=sizes,
                etags=etags,
                immutable=immutable,
                partition=tuple(values.values()),
                deleted=deleted if callable(deleted) else gone,
                columns=columns,
                footers=footers,
                first_rows=first_rows,
                in_store=self.in_store,
                matching_rows=None if self.answers is None or self.where is not None else num_rows,
            ),
            pa.schema([pa.field(name, array.type) for name, array in values.items()]),
            round_trips,
            more=more,
            bounds=by_path,
            partition_values=values,
            num_rows=num_rows,
        )


def _gone(deleted: Mapping[int, DeletedRows | Any], n: int) -> dict[int, DeletedRows]:
    gone = {
        place: rows if isinstance(rows, DeletedRows) else DeletedRows.of(rows)
        for place, rows in deleted.items()
    }
    if gone and not 0 <= min(gone) <= max(gone) < n:
        raise TableFormatError(f"deleted rows are given for file {max(gone)} of {n}")
    return gone


class SourceMaker(Protocol):
    """An object that makes a source for each run, as a table does, which is read in one version from then
    on."""

    def source(self) -> FileSource:
        """Return a source that serves one run."""
        ...


class FileSource(ABC):
    """All that is known of a data set before a file is looked at: its schema, and which files may hold rows
    for a scan.

    A source may be wrong in one direction only: too many files, and too many rows that may match. What it
    does not know is read from the files. It is used on the I/O loop. One that is passed to `accel.scan` may
    serve several runs, also at the same time; an object with a method `source()`, which returns one, gives
    each run its own.

    Examples
    --------
    >>> class Newest(accel.FileSource):
    ...     async def blocks(self, request):
    ...         yield request.block(["s3://bucket/2026-11-28.parquet"])
    >>> accel.scan(Newest(), "id = 7").to_table()
    """

    def __str__(self) -> str:
        return type(self).__name__

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the columns of the data set, partition columns among them; None where the files settle that.

        Called once a run, before `blocks`.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks, and the means to answer.

        Returns
        -------
        pyarrow.Schema or None
            The columns, in the order in which they come out.
        """
        return None

    @abstractmethod
    def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Find the files. All blocks but the last have `more` set; none is empty, unless the source says a
        schema.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks, and the means to answer.

        Yields
        ------
        FileBlock
            Files, in the order in which their rows are to come; `request.block` makes one.

        Raises
        ------
        ObjectNotFoundError
            The source names no file.
        StoreError
            The store did not answer, or refused.
        """
        raise NotImplementedError

    @property
    def evolution(self) -> Evolution:
        """What has become of the columns since older files were written: tables of accel's own say it, once
        they were asked for their schema."""
        return NO_EVOLUTION

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return the only block that the source is likely to yield, without a request; None where none is.

        A run reads by it while `confirm` asks the store, and hands out no row before that.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks, and the means to answer.

        Returns
        -------
        FileBlock or None
            The files, with the round trips that it will take to confirm them.
        """
        return None

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """Ask the store whether the source still holds the versions of the files that `expected` returned.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks, and the means to answer.
        expected : FileBlock
            What `expected` has returned.

        Returns
        -------
        FileBlock or None
            The same files, with the round trips that it took. Where a single file was expected and its
            metadata is cached, its facts have the handle that the store has confirmed. None where the source
            holds something else, which `blocks` yields.
        """
        return None

    def note_version(self, file: FileEntry, handle: FileHandle) -> None:
        """Take notice of the version in which a file is read. Called on the I/O loop before its rows are
        planned.

        Parameters
        ----------
        file : FileEntry
            The file, as the source has named it.
        handle : FileHandle
            The version that was opened.

        Raises
        ------
        ObjectChangedError
            The file cannot be read in that version.
        """

    def finish(self, request: SourceRequest) -> None:
        """Take notice that the run opens no more files. Called on the I/O loop, and nothing is awaited.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks, and the means to answer.
        """

    def hint_for(self, column: str, url: str) -> str | None:
        """Return what to do where a file lacks a column that its URL seems to spell.

        None where the source knows nothing.

        Parameters
        ----------
        column : str
            The name that was not found.
        url : str
            The file.

        Returns
        -------
        str or None
            What to do.
        """
        return None


class WrappingSource(FileSource):
    """A source that changes the blocks of another one: an index that rules files out, rows that the caller
    selects.

    Parameters
    ----------
    files : FileSource
        The other source.
    """

    def __init__(self, files: FileSource) -> None:
        self.files = files

    def __str__(self) -> str:
        return str(self.files)

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the other source."""
        return await self.files.schema(request)

    @property
    def evolution(self) -> Evolution:
        """That of the other source."""
        return self.files.evolution

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return what the other source expects."""
        return self.files.expected(request)

    def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Return the blocks of the other source."""
        return self.files.blocks(request)

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """Have the other source confirm what it expected."""
        return await self.files.confirm(request, expected)

    def note_version(self, file: FileEntry, handle: FileHandle) -> None:
        """Tell the other source."""
        self.files.note_version(file, handle)

    def finish(self, request: SourceRequest) -> None:
        """Tell the other source."""
        self.files.finish(request)

    def hint_for(self, column: str, url: str) -> str | None:
        """Return the hint of the other source."""
        return self.files.hint_for(column, url)
