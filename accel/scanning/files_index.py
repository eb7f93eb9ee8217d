"""What a caller's own index is, and what it is told: `FilesIndex` names files that may match a predicate.

Source: DataFusion's example `parquet_index.rs` (files by bounds).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError
from accel.predicate import expr as e
from accel.predicate.bind import bind
from accel.predicate.prune import Evidence, prune
from accel.predicate.sql import to_sql
from accel.predicate.value_bounds import range_bounds

if TYPE_CHECKING:
    from accel.format.domain import Bounds
    from accel.predicate.expr import Expr

__all__ = ["Comparison", "FilesIndex", "IndexedFile", "PredicateView"]


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
    """The version that the index describes: of another one `rows` says nothing. None: whoever made the index
    vouches for it."""
    rows: Mapping[int, Sequence[tuple[int, int]]] | None = None
    """By row group, the half-open ranges of rows that may match; row groups that are not named hold none.
    None: any row may."""


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
            False only where no row can match, as statistics of Parquet are judged: NaN may occur beside any
            bounds.
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
    """Return the Arrow type that both bounds fit; None where there is none."""
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
        """Yield the files that may hold matching rows, some at a time, in the order in which their rows are
        to come.

        It may be an asynchronous generator, which runs on accel's own event loop, a function, or a generator,
        which runs in a thread. A file that may match must not be left out; too many files cost time only.

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
