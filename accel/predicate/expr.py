"""The immutable expression tree that every form of `where` becomes.

Nodes are frozen dataclasses, compared and hashed by value. Literals are plain Python values:
None, bool, int, float, str, bytes, decimal.Decimal, datetime.date, datetime.time,
datetime.datetime (naive or aware), and `Ticks` for instants finer than a microsecond.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from accel.errors import PredicateError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MAX_DEPTH",
    "MAX_LIST",
    "And",
    "Column",
    "Compare",
    "Constant",
    "Expr",
    "InArray",
    "InList",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Op",
    "Opaque",
    "Or",
    "Ticks",
    "check_pattern",
    "column_named",
    "column_of",
    "column_tests",
    "columns_of",
    "depth_of",
    "join",
    "name_key",
    "quoted_name",
    "quoted_path",
]

MAX_DEPTH = 200
"""Deepest tree, and most parentheses and NOTs that may be open at one place of a text."""
MAX_LIST = 1000
"""Most values of a list; longer lists of one type become an Arrow array, which binds, travels and matches
faster."""


class Op(enum.StrEnum):
    """Comparison operators; the two DISTINCT ones never yield null."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    DISTINCT = "IS DISTINCT FROM"
    NOT_DISTINCT = "IS NOT DISTINCT FROM"

    @property
    def mirrored(self) -> Op:
        """The operator for exchanged sides."""
        return _MIRRORED.get(self, self)


_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True)
class Ticks:
    """A time (`kind` "time") or timestamp ("timestamp") in nanoseconds, exact.

    `nanos` counts from midnight or from 1970-01-01T00:00:00; `utc` is True when the literal had a zone.
    """

    kind: str
    nanos: int
    utc: bool = False


Value: TypeAlias = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | decimal.Decimal
    | datetime.date
    | datetime.time
    | datetime.datetime
    | Ticks
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column, by name; binding to a schema decides which of the two it
    is."""

    path: tuple[str, ...]
    """The names from the top level down, e.g. `a."b.c"` -> ("a", "b.c")."""
    head: int = 1
    """The number of leading names that may together, joined by dots, be one top-level name: those without
    quotes."""
    whole_first: bool = False
    """Whether the longest such name is tried before a field; in predicate text a field is tried first."""
    position: int = field(default=-1, compare=False)

    @property
    def name(self) -> str:
        """The name for messages; different paths may have the same name."""
        return ".".join(self.path)

    @property
    def top_level(self) -> str | None:
        """The name of the top-level column that this must be where the schema has it; None for a possible
        field."""
        if len(self.path) == 1:
            return self.path[0]
        return self.name if self.whole_first and self.head == len(self.path) else None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    position: int = field(default=-1, compare=False)


Operand: TypeAlias = Column | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`; at least one side is a column after parsing (two literals are folded)."""

    op: Op
    left: Operand
    right: Operand
    position: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class InList:
    """`column IN (values)`; with a null among the values, other values give null, as in SQL."""

    column: Column
    values: tuple[Value, ...]
    position: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class InArray:
    """`column IN array` for large key sets, as an Arrow array (compared by content)."""

    column: Column
    values: pa.Array
    position: int = -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InArray) and self.column == other.column and self.values.equals(other.values)

    def __hash__(self) -> int:
        return hash((self.column, len(self.values), str(self.values.type)))


@dataclass(frozen=True, slots=True)
class Like:
    """`column [I]LIKE pattern`: `%` any run, `_` any one character, backslash escapes."""

    column: Column
    pattern: str
    ignore_case: bool = False
    position: int = field(default=-1, compare=False)


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a LIKE pattern that ends within an escape."""
    if pattern.endswith("\\") and (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError("the pattern ends with a backslash that escapes nothing; write two")


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column
    position: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition of `pyarrow.compute`, which pyarrow's kernels evaluate where accel has no equal rules."""

    expression: bytes
    """The condition as pyarrow serializes it."""
    columns: tuple[Column, ...]
    """The columns that it names, once each."""
    root: Any = field(compare=False, repr=False)
    """The condition as `accel.predicate.arrow_expression` reads it."""
    meanings: dict[Any, Expr | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The nodes that say the same, by the types of the columns; filled when they are first asked for."""


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL (None) as a predicate."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr


@dataclass(frozen=True, slots=True)
class And:
    """Two or more operands."""

    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more operands."""

    operands: tuple[Expr, ...]


# `Column` alone is a predicate too: a boolean column.
Expr: TypeAlias = Compare | InList | InArray | Like | IsNull | Opaque | Constant | Not | And | Or | Column


def columns_of(expr: Expr) -> Iterator[Column]:
    """Yield every column that the tree names, in order of appearance, with repeats."""
    stack: list[Expr | Operand] = [expr]
    while stack:
        node = stack.pop()
        match node:
            case Column():
                yield node
            case Compare():
                stack += [node.right, node.left]
            case InList() | InArray() | Like() | IsNull():
                yield node.column
            case Opaque():
                yield from node.columns
            case Not():
                stack.append(node.operand)
            case And() | Or():
                stack += reversed(node.operands)
            case _:
                pass


def column_tests(where: Expr) -> Iterator[tuple[Column, Expr]]:
    """Yield the tests of one column, with that column, that every matching row passes: operands of the
    outermost AND.

    A literal stands on the right of its comparison.
    """
    stack: list[Expr] = [where]
    while stack:
        node = stack.pop()
        match node:
            case And():
                stack += reversed(node.operands)
            case Compare(left=Column() as column, right=Literal()):
                yield column, node
            case Compare(left=Literal() as literal, right=Column() as column):
                yield column, replace(node, op=node.op.mirrored, left=column, right=literal)
            case InList() | InArray() | Like() | IsNull():
                yield node.column, node
            case _:
                pass


def column_of(path: Sequence[str], *, head: int = 1, whole_first: bool = False, position: int = -1) -> Column:
    """Make a column of these names; parser, builder and filter lists all use this.

    Raises PredicateError where a name has a lone surrogate.
    """
    column = Column(tuple(path), head, whole_first and head > 1, position)
    try:
        column.name.encode()
    except UnicodeEncodeError:
        raise PredicateError(
            f"the column name {column.name!r} holds a lone surrogate, which is no character"
        ) from None
    return column


def column_named(name: str) -> Column:
    """Make a column of a name given as a Python value, as in `columns=`: a top-level name wins over a path.

    Raises as `column_of` does.
    """
    path = name.split(".")
    return column_of(path, head=len(path), whole_first=True) if all(path) else column_of([name])


_QUOTED_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')


def quoted_path(name: str) -> tuple[str, ...] | None:
    """Return the path of a name that is written with double quotes, as in a predicate: `"a"."x"`, `a."y.z"`.

    None for a name without quotes, and for one that holds quotes otherwise, which is the name itself.
    """
    if '"' not in name:
        return None
    parts: list[str] = []
    at = 0
    while True:
        part = _QUOTED_PART.match(name, at)
        if part is None:
            return None
        parts.append(part[2] or part[1].replace('""', '"'))
        at = part.end()
        if at == len(name):
            return tuple(parts)
        if name[at] != ".":
            return None
        at += 1


def quoted_name(name: str) -> str:
    """Return a name in double quotes, as `quoted_path` reads each name of a path."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def name_key(*, case_sensitive: bool) -> Callable[[str], str]:
    """Return what names of columns are compared by: by themselves or, as Spark and Hive compare them, in
    lower case."""
    return str if case_sensitive else str.lower


def depth_of(expr: Expr) -> int:
    """Return the levels of NOT, AND and OR above the deepest condition, plus one; without recursion."""
    deepest = 1
    stack: list[tuple[Expr, int]] = [(expr, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, Not):
            stack.append((node.operand, depth + 1))
        elif isinstance(node, And | Or):
            stack += [(operand, depth + 1) for operand in node.operands]
        elif depth > deepest:
            deepest = depth
    return deepest


def join(kind: type[And | Or], operands: Sequence[Expr]) -> Expr:
    """Return one AND (OR) of the operands, with nested ones of the same kind merged; a single operand is
    returned itself."""
    if len(operands) == 1:
        return operands[0]
    flat: list[Expr] = []
    for operand in operands:
        if isinstance(operand, kind):
            flat += operand.operands
        else:
            flat.append(operand)
    return kind(tuple(flat))
