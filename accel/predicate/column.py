"""Building predicates in Python: `col("a") > 1`, joined by `&`, `|` and `~`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from accel.errors import PredicateError
from accel.predicate.advice import compared_predicate, name_advice
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Operand,
    Or,
    check_pattern,
    column_named,
    column_of,
    join,
)
from accel.predicate.in_list import member_of
from accel.predicate.literal import literal_value
from accel.predicate.moments import UNITS, Truncated, unit_of
from accel.predicate.sql import name_sql, to_sql

__all__ = ["ColumnExpr", "Condition", "Moment", "col"]


def col(name: str) -> ColumnExpr:
    """Return a column to build a predicate from.

    Parameters
    ----------
    name : str
        The name as the schema has it, or a dotted path into structs; a top-level column of exactly
        this name wins over a path. `col("a")["b"]` is the path of the names a and b.

    Returns
    -------
    ColumnExpr
        The column, to be compared and tested.

    Raises
    ------
    PredicateError
        The name is not a str.

    Examples
    --------
    >>> (col("carrier") == "UA") & (col("dep_delay") > 60)
    <carrier = 'UA' AND dep_delay > 60>
    """
    if not isinstance(name, str):
        raise PredicateError(f"a column's name is a str, not a {type(name).__name__}")
    return ColumnExpr(column_named(name))


class _Compared:
    """What Python's comparisons make a predicate of, so that it is no dictionary key of itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare(Op.NE, other)

    def __lt__(self, other: object) -> Condition:
        return self._compare(Op.LT, other)

    def __le__(self, other: object) -> Condition:
        return self._compare(Op.LE, other)

    def __gt__(self, other: object) -> Condition:
        return self._compare(Op.GT, other)

    def __ge__(self, other: object) -> Condition:
        return self._compare(Op.GE, other)

    def _compare(self, op: Op, other: object) -> Condition:
        raise NotImplementedError


class Condition(_Compared):
    """A predicate: join it by `&` and `|`, negate it by `~`, pass it to `where=`.

    Raises
    ------
    PredicateError
        The predicate is compared: Python reads `(a > 1) & b != 2` as `((a > 1) & b) != 2`.
    """

    __slots__ = ("expr",)

    # By identity; code that compares predicates by value compares their trees.
    __hash__ = object.__hash__

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __and__(self, other: object) -> Condition:
        return _joined(And, self, other)

    def __or__(self, other: object) -> Condition:
        return _joined(Or, self, other)

    def __rand__(self, other: object) -> Condition:
        return _joined(And, _condition(other, "&"), self)

    def __ror__(self, other: object) -> Condition:
        return _joined(Or, _condition(other, "|"), self)

    def __invert__(self) -> Condition:
        return Condition(Not(self.expr))

    def _compare(self, op: Op, other: object) -> Condition:
        """Raise an error: only columns can be compared."""
        raise compared_predicate(self.expr, op, other.expr if isinstance(other, Condition) else other)

    if not TYPE_CHECKING:  # mypy reports missing attributes by itself

        def __getattr__(self, name: str) -> NoReturn:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            # copy, pickle and the like look up the other names.
            if not name.startswith("_") and name != "expr":
                message += f": {name_advice(name, is_column=isinstance(self, ColumnExpr))}"
            raise AttributeError(message, name=name, obj=self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a predicate has no truth of its own: join predicates by & and | and negate them by ~, each in "
            "parentheses, instead of and, or, not, in, or a chained comparison"
        )

    def __repr__(self) -> str:
        return f"<{to_sql(self.expr, max_values=20)}>"


class ColumnExpr(Condition):
    """A column: compare it, or use it alone where it is boolean.

    Raises
    ------
    PredicateError
        A comparison (`==`, `<`, `is_distinct_from`, `between` and so on) is with a predicate, or with a value
        that no column can hold.
    """

    __slots__ = ()

    expr: Column

    def __init__(self, column: Column) -> None:
        super().__init__(column)

    def __getitem__(self, name: str) -> ColumnExpr:
        """Return the field of this name in a struct column.

        Raises
        ------
        PredicateError
            The name is not a str.
        """
        if not isinstance(name, str):
            raise PredicateError(f"a field's name is a str, not a {type(name).__name__}")
        column = self.expr
        return ColumnExpr(column_of([*column.path, name], head=column.head, whole_first=column.whole_first))

    __iter__ = None
    __contains__ = None
    # == builds a predicate, so a column cannot be a dictionary key.
    __hash__ = None  # type: ignore[assignment]

    def is_distinct_from(self, other: object) -> Condition:
        """Test for inequality, where null counts as a value."""
        return self._compare(Op.DISTINCT, other)

    def is_not_distinct_from(self, other: object) -> Condition:
        """Test for equality, where null counts as a value."""
        return self._compare(Op.NOT_DISTINCT, other)

    def is_null(self) -> Condition:
        """Test for null; NaN is not null."""
        return Condition(IsNull(self.expr))

    def is_not_null(self) -> Condition:
        """Test for a value that is not null; NaN is one."""
        return Condition(Not(IsNull(self.expr)))

    def isin(self, values: Any) -> Condition:
        """Test for one of the values: a list, tuple, set, numpy array, pandas Series or Arrow array.

        With a null among the values, other values give null, as in SQL.

        Raises
        ------
        PredicateError
            `values` is no collection, or no column can hold one of them.
        """
        return Condition(member_of(self.expr, values))

    def between(self, low: object, high: object) -> Condition:
        """Test for at least `low` and at most `high`."""
        return (self >= low) & (self <= high)

    def like(self, pattern: str) -> Condition:
        """Test for a pattern: `%` matches any run of characters, `_` any one; a backslash escapes.

        Raises
        ------
        PredicateError
            The pattern is not a str, or ends with a backslash that escapes nothing.
        """
        return self._like(pattern, ignore_case=False)

    def ilike(self, pattern: str) -> Condition:
        """Test for a pattern as `like` does, ignoring case.

        Raises
        ------
        PredicateError
            As for `like`.
        """
        return self._like(pattern, ignore_case=True)

    def starts_with(self, prefix: str) -> Condition:
        """Test for text with this prefix.

        Raises
        ------
        PredicateError
            The prefix is not a str.
        """
        if not isinstance(prefix, str):
            raise PredicateError(f"a prefix is a str, not a {type(prefix).__name__}")
        for special in "\\%_":
            prefix = prefix.replace(special, "\\" + special)
        return self._like(f"{prefix}%", ignore_case=False)

    def year(self) -> Moment:
        """Return the year of a date or a timestamp, to be compared with whole numbers.

        A timestamp with a zone is taken in UTC, here as in `date` and `date_trunc`.

        Examples
        --------
        >>> col("at").year() == 2024
        <at >= DATE '2024-01-01' AND at < DATE '2025-01-01'>
        """
        return Moment(Truncated(self.expr, "year", True, -1))

    def date(self) -> Moment:
        """Return the day of a timestamp, to be compared with dates."""
        return Moment(Truncated(self.expr, "day", False, -1))

    def date_trunc(self, unit: str) -> Moment:
        """Return the beginning of the year, quarter, month, week (from Monday), day, hour, minute or second
        that a date or a timestamp lies in, to be compared with dates and timestamps.

        Raises
        ------
        PredicateError
            There is no such unit.
        """
        found = unit_of(unit) if isinstance(unit, str) else None
        if found is None:
            raise PredicateError(f"a unit is one of {', '.join(map(repr, UNITS))}, not {unit!r:.80}")
        return Moment(Truncated(self.expr, found, False, -1))

    def _compare(self, op: Op, other: object) -> Condition:
        right: Operand
        if isinstance(other, And | Or | Not | Compare):
            other = Condition(other)
        if isinstance(other, ColumnExpr):
            right = other.expr
        elif isinstance(other, Condition):
            # Python calls the column's method first, on whichever side it is.
            return other._compare(op.mirrored, self)
        elif isinstance(other, Moment):
            raise PredicateError(_ONLY_VALUES)
        else:
            right = Literal(literal_value(other))
        return Condition(Compare(op, self.expr, right))

    def _like(self, pattern: str, *, ignore_case: bool) -> Condition:
        if not isinstance(pattern, str):
            raise PredicateError(f"a pattern is a str, not a {type(pattern).__name__}")
        value = literal_value(pattern)
        try:
            check_pattern(str(value))
        except ValueError as error:
            raise PredicateError(str(error)) from None
        return Condition(Like(self.expr, str(value), ignore_case))


_ONLY_VALUES: Final = "a function of a column is compared with values, not with another column"


class Moment(_Compared):
    """What `ColumnExpr.year`, `date` and `date_trunc` give: compare it.

    A comparison becomes one or two of the column itself, by which bounds and indexes rule out.

    Raises
    ------
    PredicateError
        A comparison is with a column, or with a value of another kind: a year is compared with whole numbers,
        everything else with dates and timestamps, or their text.
    """

    __slots__ = ("_cut",)

    def __init__(self, cut: Truncated) -> None:
        self._cut = cut

    def is_distinct_from(self, other: object) -> Condition:
        """Test for inequality, where null counts as a value."""
        return self._compare(Op.DISTINCT, other)

    def is_not_distinct_from(self, other: object) -> Condition:
        """Test for equality, where null counts as a value."""
        return self._compare(Op.NOT_DISTINCT, other)

    def between(self, low: object, high: object) -> Condition:
        """Test for at least `low` and at most `high`."""
        return (self >= low) & (self <= high)

    def isin(self, values: Any) -> Condition:
        """Test for one of the values: a list, a tuple, or another collection of Python values.

        Raises
        ------
        PredicateError
            `values` is no collection, or the comparison with one of them would raise it.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise PredicateError(f"isin takes a list of values, not {values!r:.80}")
        tests = [(self == value).expr for value in values]
        return Condition(join(Or, tests) if tests else Constant(False))

    def __bool__(self) -> NoReturn:
        raise TypeError("a function of a column has no truth of its own: compare it with a value")

    def __repr__(self) -> str:
        cut, name = self._cut, name_sql(self._cut.column)
        return f"<year({name})>" if cut.is_number else f"<date_trunc('{cut.unit}', {name})>"

    def _compare(self, op: Op, other: object) -> Condition:
        if isinstance(other, Condition | Moment):
            raise PredicateError(_ONLY_VALUES)
        try:
            return Condition(self._cut.compared(op, literal_value(other)))
        except ValueError as error:
            raise PredicateError(str(error)) from None


def _condition(value: object, operator: str) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, bool):
        return Condition(Constant(value))
    raise TypeError(
        f"{operator} joins predicates, not a {type(value).__name__}: put each comparison in parentheses, "
        f'as in (col("a") > 1) {operator} (col("b") < 2)'
    )


def _joined(kind: type[And | Or], left: Condition, right: object) -> Condition:
    return Condition(join(kind, (left.expr, _condition(right, "&" if kind is And else "|").expr)))
