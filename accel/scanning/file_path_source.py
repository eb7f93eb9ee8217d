"""FilePathSource: the files of another source, with the URL of each as a column; and RowNumberSource, with
the number of each row.

The column is a partition column of one value a file: it prunes, travels in tasks and comes out as these do.
The other source knows nothing of it: what it is asked, and what it answers about all rows, leaves the column
out. A row number has no value for a whole file: null stands in its place until rows are decoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from accel.errors import SchemaMismatchError, redact
from accel.planning.data_set import generated_field, name_clash
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.handle import FileHandle
from accel.predicate.expr import And, Expr, columns_of, join, name_key, quoted_name
from accel.runtime.tasks import ending
from accel.scanning.file_source import FileColumns, FileSource, SourceRequest, WrappingSource
from accel.scanning.spec import ScanSpec

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["FilePathSource", "RowNumberSource"]


class FilePathSource(WrappingSource):
    """All files of a source, with their URLs as the last partition column. Secrets in a URL are redacted.

    Parameters
    ----------
    files : FileSource
    name : str
        The name of the column.
    case_sensitive : bool
        Whether another column may have that name in another case.

    Raises
    ------
    SchemaMismatchError
        From `blocks` and `note_version`: there is a column of that name already.
    """

    _argument: ClassVar[str] = "file_path"
    _kind: ClassVar[pa.DataType] = pa.string()

    def __init__(self, files: FileSource, name: str, *, case_sensitive: bool = True) -> None:
        super().__init__(files)
        self._name = name
        self._key = name_key(case_sensitive=case_sensitive)
        self._field = generated_field(name, self._kind, self._argument)
        self._expected: FileBlock | None = None
        """The block of the source that `expected` returned last."""

    @classmethod
    def over(cls, make: Callable[[ScanSpec], FileSource], spec: ScanSpec) -> FileSource:
        """Return the source that a function makes for a scan, with the columns that the scan names, if
        any."""
        url, number = spec.file_path, spec.row_number
        if number is not None:
            spec = replace(spec, columns=_other_columns(spec.columns, number), row_number=None)
        if url is not None:
            where, columns = _without(spec.where, url), _other_columns(spec.columns, url)
            spec = replace(spec, where=where, columns=columns, file_path=None)
        source = make(spec)
        if url is not None:
            source = FilePathSource(source, url, case_sensitive=spec.case_sensitive)
        if number is None:
            return source
        return RowNumberSource(source, number, case_sensitive=spec.case_sensitive)

    def _value_of(self, file: FileEntry) -> str | None:
        """Return the value of the column in a file."""
        return self._text_of(file.url)

    def _text_of(self, url: str) -> str:
        """Return a URL as a value of the column.

        Raises
        ------
        SchemaMismatchError
            The name of a local file is not UTF-8, and so no text.
        """
        text = redact(url)
        try:
            text.encode()
        except UnicodeEncodeError:  # `os` makes surrogates of other bytes
            raise SchemaMismatchError(
                f"its name is not UTF-8, so that column {self._name!r} cannot have it",
                path=url,
                hint="rename the file, or leave out `file_path=`",
            ) from None
        return text

    def _with_value(self, file: FileEntry, *, partly: bool = False) -> FileEntry:
        """Return a file with its value of the column as the last partition value.

        With `partly` its source was asked about a part of the predicate: that all rows match this is no proof
        for the whole.
        """
        facts = file.facts
        if partly and facts is not None and facts.all_match:
            facts = replace(facts, all_match=False)
        return replace(file, partition=(*file.partition, self._value_of(file)), facts=facts)

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the other source, to which that of the blocks is added."""
        return await self.files.schema(self._inner(request))

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the blocks of the other source."""
        async with ending(self.files.blocks(self._inner(request))) as blocks:
            async for block in blocks:
                yield self._named(block, request)

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return what the other source expects."""
        self._expected = self.files.expected(self._inner(request))
        return None if self._expected is None else self._named(self._expected, request)

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """Have the other source confirm what it expected."""
        if self._expected is None:
            return None
        block = await self.files.confirm(self._inner(request), self._expected)
        return None if block is None else self._named(block, request)

    def note_version(self, file: FileEntry, handle: FileHandle) -> None:
        """Refuse a file that has a column of that name itself."""
        if file.columns is None and self._is_among(handle.arrow_schema.names):
            raise name_clash(self._field).at(path=file.url)
        super().note_version(file, handle)

    def finish(self, request: SourceRequest) -> None:
        """Tell the other source."""
        super().finish(self._inner(request))

    def _is_among(self, names: Sequence[str]) -> bool:
        """Return whether other columns have its name."""
        return self._key(self._name) in map(self._key, names)

    def _inner(self, request: SourceRequest) -> SourceRequest:
        """Return the request as the other source understands it."""
        answers, show = request.answers, request.on_entries
        about = None if answers is None else answers.fact_columns()
        if about is not None and not _spellings(self._name).isdisjoint(about):
            answers = None

        def show_named(files: Iterable[FileEntry]) -> None:
            if show is not None:
                show(map(self._with_value, files))

        return replace(
            request,
            where=_without(request.where, self._name),
            columns=_other_columns(request.columns, self._name),
            answers=answers,
            on_entries=None if show is None else show_named,
        )

    def _named(self, block: FileBlock, request: SourceRequest) -> FileBlock:
        """Return a block with the column."""
        if self._is_among(block.partition_schema.names):
            raise name_clash(self._field).at(path=block.files[0].url if len(block.files) else None)
        asks = _asks(request.where, self._name)
        files = block.files
        if isinstance(files, FileColumns):
            named: Sequence[FileEntry] = _NamedColumns(files, partial(self._with_value, partly=asks))
        else:
            named = tuple(self._with_value(file, partly=asks) for file in files)
        values = dict(block.partition_values)
        if asks and isinstance(files, FileColumns):
            values[self._name] = pa.array(list(map(self._text_of, files.urls)), pa.string())
        return replace(
            block,
            files=named,
            partition_schema=block.partition_schema.append(self._field),
            partition_values=values,
        )


class RowNumberSource(FilePathSource):
    """All files of a source, with the number of each row in its file as the last column, the first row being
    0. No predicate names it."""

    _argument = "row_number"
    _kind = pa.int64()

    def _value_of(self, file: FileEntry) -> str | None:
        """Return null: each row has a number of its own, which decoding adds."""
        return None


class _NamedColumns(FileColumns):
    """The files of a block in columns, whose entries get their value when they are made."""

    def __init__(self, files: FileColumns, name: Callable[[FileEntry], FileEntry]) -> None:
        super().__init__(files.urls, immutable=files.immutable)
        self._files = files
        self._name = name

    def _make(self, at: int) -> FileEntry:
        return self._name(self._files[at])

    @property
    def known(self) -> Bools:
        """See `FileColumns.known`."""
        return self._files.known


def _names(term: Expr, name: str) -> bool:
    return any(column.top_level == name or column.name == name for column in columns_of(term))


def _asks(where: Expr | None, name: str) -> bool:
    return where is not None and _names(where, name)


def _without(where: Expr | None, name: str) -> Expr | None:
    """Return the terms of the outermost AND that do not name a column: whatever matches all terms matches
    these."""
    if where is None or not _names(where, name):
        return where
    terms = where.operands if isinstance(where, And) else (where,)
    left = [term for term in terms if not _names(term, name)]
    return join(And, left) if left else None


def _other_columns(columns: tuple[str, ...] | None, name: str) -> tuple[str, ...] | None:
    own = _spellings(name)
    return None if columns is None else tuple(column for column in columns if column not in own)


def _spellings(name: str) -> set[str]:
    """Return a name as it may stand among columns: by itself, or quoted."""
    return {name, quoted_name(name)}
