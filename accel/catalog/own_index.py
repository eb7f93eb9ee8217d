"""A caller's own index: an object that says which files, and which rows of them, may match a predicate.

Source: DataFusion's examples `parquet_index.rs` (files by bounds) and `advanced_parquet_index.rs` (rows of files).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.selection import RowSelection
from accel.predicate import expr as e
from accel.predicate.bind import bind
from accel.predicate.prune import Evidence, prune, range_bounds
from accel.predicate.sql import to_sql
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.threads import WORK
from accel.tables.named_source import read_source

if TYPE_CHECKING:
    from accel.format.domain import Bounds
    from accel.predicate.expr import Expr

__all__ = ["Comparison", "FilesIndex", "IndexedFile", "OwnIndexSource", "PredicateView"]

_BLOCK: Final = 1000
_END: Final = object()
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that an index names.

    Examples
    --------
    >>> accel.IndexedFile("part-7.parquet", rows={0: [(100, 200)]})
    IndexedFile(path='part-7.parquet', size=None, etag=None, rows={0: [(100, 200)]})
    """

    path: str
    """Its URL or path; a relative path is taken to be below the source of the scan."""
    size: int | None = None
    """Its size in bytes, where the index knows it."""
    etag: str | None = None
    """The version that the index speaks of: of another one `rows` says nothing. None: whoever made the index vouches for
    it."""
    rows: Mapping[int, Sequence[tuple[int, int]]] | None = None
    """By row group, the half-open ranges of rows that may match; row groups that are not named hold none. None: any row
    may."""


class Comparison(NamedTuple):
    """A comparison of a column with a literal."""

    column: str
    op: str
    """"=", "<>", "<", "<=", ">", ">=", "IN", "LIKE", "ILIKE" or "IS NULL"."""
    value: Any
    """The literal as a Python value; a list for IN, None for IS NULL."""


class PredicateView:
    """A predicate, as it is passed to an index of one's own.

    Parameters
    ----------
    where : Expr or None
        None matches every row.
    """

    def __init__(self, where: Expr | None) -> None:
        self._where = where

    def __str__(self) -> str:
        return "TRUE" if self._where is None else to_sql(self._where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, once each."""
        if self._where is None:
            return ()
        return tuple(dict.fromkeys(column.name for column in e.columns_of(self._where)))

    def tests(self, column: str | None = None) -> list[Comparison]:
        """Return the comparisons that every matching row passes.

        Parameters
        ----------
        column : str, optional
            The column of the comparisons; by default all columns.

        Returns
        -------
        list of Comparison
            The operands of the outermost AND that compare a column with a literal.
        """
        found = [] if self._where is None else list(_tests(self._where))
        return [test for test in found if column is None or test.column == column]

    def values(self, column: str) -> list[Any] | None:
        """Return the only values that a column has in rows that match, by `=` and `IN`.

        Parameters
        ----------
        column : str
            The name of the column.

        Returns
        -------
        list or None
            Python values; None where any may occur.
        """
        found: list[Any] | None = None
        for test in self.tests(column):
            if test.op in ("=", "IN"):
                some = test.value if test.op == "IN" else [test.value]
                found = some if found is None else [value for value in found if value in some]
        return found

    def range(self, column: str) -> tuple[Any, Any]:
        """Return the least and the greatest value that a column may have in rows that match.

        Parameters
        ----------
        column : str
            The name of the column.

        Returns
        -------
        least, greatest : tuple
            Python values; None where there is no limit.
        """
        lower = upper = None
        for test in self.tests(column):
            if test.op in ("=", ">", ">=") and (lower is None or test.value > lower):
                lower = test.value
            if test.op in ("=", "<", "<=") and (upper is None or test.value < upper):
                upper = test.value
        return lower, upper

    def may_match(self, bounds: Mapping[str, tuple[Any, Any]], *, nulls: bool = True) -> bool:
        """Return whether a file (or row group, or page) with these bounds may hold a row that matches.

        Parameters
        ----------
        bounds : mapping of str to (least, greatest)
            The bounds of some columns; either end may be None where it is unknown.
        nulls : bool
            Whether these columns may be null.

        Returns
        -------
        bool
            False only where no row can match, as statistics of Parquet are judged: NaN may occur beside any bounds.
        """
        return self._where is None or bool(_judge(self._where, bounds, nulls=nulls).may_true[0])


def _tests(where: Expr) -> Iterable[Comparison]:
    for column, test in e.column_tests(where):
        match test:
            case e.Compare(right=e.Literal(value=value)):
                if test.op in _OPERATORS and value is not None:
                    yield Comparison(column.name, test.op.value, value)
            case e.InList():
                yield Comparison(column.name, "IN", [value for value in test.values if value is not None])
            case e.InArray():
                yield Comparison(column.name, "IN", [v for v in test.values.to_pylist() if v is not None])
            case e.Like():
                yield Comparison(column.name, "ILIKE" if test.ignore_case else "LIKE", test.pattern)
            case e.IsNull():
                yield Comparison(column.name, "IS NULL", None)


_OPERATORS: Final = frozenset({e.Op.EQ, e.Op.NE, e.Op.LT, e.Op.LE, e.Op.GT, e.Op.GE})


def _judge(where: Expr, bounds: Mapping[str, tuple[Any, Any]], *, nulls: bool) -> Evidence:
    match where:
        case e.Not():
            return ~_judge(where.operand, bounds, nulls=nulls)
        case e.And() | e.Or():
            parts = [_judge(operand, bounds, nulls=nulls) for operand in where.operands]
            total = parts[0]
            for part in parts[1:]:
                total = total & part if isinstance(where, e.And) else total | part
            return total
    names = dict.fromkeys(column.name for column in e.columns_of(where))
    known = {name: bounds[name] for name in names if name in bounds}
    if len(known) < len(names) or any("." in name for name in names):
        return Evidence.unknown(1)
    types = {name: _type_of(ends) for name, ends in known.items()}
    schema = pa.schema([pa.field(name, kind) for name, kind in types.items() if kind is not None])
    try:
        bound = bind(where, schema)
        found: dict[tuple[str, ...], Bounds] = {
            (name,): range_bounds(
                _scalar(known[name][0], schema.field(name).type),
                _scalar(known[name][1], schema.field(name).type),
                kind=schema.field(name).type,
                num_values=-1,
                null_count=None if nulls else 0,
                nan_count=None,
            )
            for name in names
        }
    except (AccelError, KeyError, pa.ArrowException):
        return Evidence.unknown(1)
    return prune(bound, found, 1)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    return None if value is None else make_scalar(value, kind)


def _type_of(ends: tuple[Any, Any]) -> pa.DataType | None:
    """The Arrow type that both bounds fit; None where there is none."""
    given = [value for value in ends if value is not None]
    if not given:
        return None
    first = given[0]
    for kind, arrow in _TYPES:
        if isinstance(first, kind):
            if isinstance(first, int) and any(isinstance(value, float) for value in given):
                return pa.float64()
            return arrow
    if isinstance(first, datetime.datetime):
        return pa.timestamp("us", None if first.tzinfo is None else "UTC")
    if isinstance(first, datetime.date):
        return pa.date32()
    if isinstance(first, decimal.Decimal):
        scale = max(-int(value.as_tuple().exponent) for value in given)
        return pa.decimal128(38, max(0, scale))
    return None


_TYPES: Final = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
)


class FilesIndex(Protocol):
    """What `index=` takes besides the URL of a catalog."""

    def files(
        self, predicate: PredicateView, columns: Sequence[str] | None
    ) -> AsyncIterator[Sequence[IndexedFile | str]] | Iterable[Any] | Awaitable[Iterable[Any]]:
        """Yield the files that may hold matching rows, some at a time, in the order in which their rows are to come.

        It may be an asynchronous generator, which runs on accel's own event loop, a function, or a generator, which runs
        in a thread. A file that may match must not be left out; too many files cost time only.

        Parameters
        ----------
        predicate : PredicateView
            The predicate of the scan.
        columns : sequence of str or None
            The columns of the result; None for all.

        Returns
        -------
        iterable or asynchronous iterator
            Files, as paths or `IndexedFile`, one by one or in lists.
        """
        ...


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
        """See `FileSource.blocks`."""
        waiting: list[FileEntry] | None = None
        async for some in self._named(request):
            if not some:
                continue
            if waiting is not None:
                yield FileBlock(tuple(waiting), _NO_COLUMNS, 0, more=True)
            waiting = [self._entry(one) for one in some]
        if waiting is not None:
            yield FileBlock(tuple(waiting), _NO_COLUMNS, 0)
            return
        # No file may match: the first of all files settles the schema, and none of its rows is read.
        block = await anext(self._files.blocks(request))
        entry = replace(block.files[0], facts=FileFacts(size=None, etag=None, rows={}))
        yield FileBlock((entry,), block.partition_schema, block.round_trips)

    async def _named(self, request: SourceRequest) -> AsyncIterator[Sequence[IndexedFile | str]]:
        predicate = PredicateView(request.where)
        call = self._index.files
        found: Any = await WORK.run(call, predicate, request.columns)
        if hasattr(found, "__await__"):
            found = await found
        if hasattr(found, "__aiter__"):
            async for some in found:
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
        facts = None if rows is None else FileFacts(size=file.size, etag=file.etag, rows=rows)
        size, etag = (file.size, file.etag) if file.etag is not None else (named.size, named.etag)
        return FileEntry(named.root, named.path, named.url, size, etag, facts=facts)


def _as_list(some: Any) -> list[IndexedFile | str]:
    return [some] if isinstance(some, str | IndexedFile) else list(some)
