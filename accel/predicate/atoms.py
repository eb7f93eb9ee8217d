"""The bound predicate: a tree of a few kinds of nodes over the native values of columns.

The exact filter and pruning use this one normal form, so they cannot disagree about a literal. In the
integer domains `x < 10.005` on a decimal of scale 2 becomes `x <= 1000`; a comparison with a fixed result
becomes `Fixed`; the other operators are negations, which three-valued logic allows because every domain
is totally ordered (NaN above every number).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy.typing as npt
import pyarrow as pa

from accel.errors import PredicateError
from accel.predicate.kinds import Kind, kind_of

__all__ = [
    "Against",
    "AllOf",
    "Among",
    "AnyOf",
    "Bound",
    "BoundColumn",
    "Fixed",
    "IsTrue",
    "Kernel",
    "Keys",
    "Matches",
    "Negation",
    "Node",
    "Null",
    "Order",
    "Pair",
    "Pattern",
    "Truth",
    "column_atoms",
    "column_tested",
    "compile_pattern",
    "over_first_column",
    "single_column_parts",
    "successor",
]


class Order(enum.Enum):
    """The comparisons that atoms have; all others are negations of these."""

    EQ = "="
    LT = "<"
    LE = "<="


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of the schema: its path of names from the top level, and its Arrow type."""

    path: tuple[str, ...]
    type: pa.DataType
    kind: Kind = field(init=False, repr=False, compare=False)
    """How values of the type compare."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.type))

    def __reduce__(self) -> tuple[type[BoundColumn], tuple[tuple[str, ...], pa.DataType]]:
        return BoundColumn, (self.path, self.type)


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE or NULL for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """`value` for every row, except NULL where the column is null."""

    column: int
    value: bool


@dataclass(frozen=True, slots=True)
class Against:
    """Compares the column's native value with one of its domain; NULL where the column is null.

    Integers use EQ and LE, booleans EQ, floats and bytes all three; NaN is compared by EQ only.
    """

    column: int
    order: Order
    value: bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """Compares one column with another, by exact value."""

    left: int
    right: int
    order: Order


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """A sorted set of native values, without null and NaN."""

    values: pa.Array
    """The values in the column's native type."""
    sorted: npt.NDArray[Any]
    """The values as numpy (bytes and wide decimals as objects)."""
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Among:
    """Tests whether the column's value is one of the keys (or NaN, where `keys.nan`).

    NULL where the column is null, and also for other values where `with_null` is set.
    """

    column: int
    keys: Keys
    with_null: bool


@dataclass(frozen=True, slots=True)
class Pattern:
    """A LIKE pattern, compiled.

    `regex` (RE2, anchored) decides, unless `literal` and the flags allow a plain search. `lower` and
    `upper` (exclusive) bound the bytes of every match; None is no bound.
    """

    regex: str
    ignore_case: bool
    literal: bytes | None
    """The text of a pattern that has no wildcard but a `%` at its ends; None for other patterns."""
    open_start: bool
    """The pattern begins with `%`."""
    open_end: bool
    """The pattern ends with `%`."""
    lower: bytes
    upper: bytes | None
    runs: tuple[str, ...] = ()
    """The literal runs in order: every match contains each (in any case, where case is ignored)."""
    least: int = 0
    """The fewest characters of a match."""

    @property
    def prefix(self) -> bytes | None:
        """The prefix that alone decides a match, if there is one."""
        if self.literal is None or self.open_start or not self.open_end or self.ignore_case:
            return None
        return self.literal


@dataclass(frozen=True, slots=True)
class Matches:
    column: int
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Kernel:
    """A condition of `pyarrow.compute` over columns, which may come to anything, also for null."""

    expression: bytes
    columns: tuple[int, ...]
    types: tuple[pa.DataType, ...]
    """The types of the columns in the data set, in which Arrow compares."""


@dataclass(frozen=True, slots=True)
class Null:
    """IS NULL, which is never NULL itself."""

    column: int


@dataclass(frozen=True, slots=True)
class IsTrue:
    """Turns NULL into FALSE."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    operands: tuple[Node, ...]


Node: TypeAlias = (
    Truth | Fixed | Against | Pair | Among | Matches | Kernel | Null | IsTrue | Negation | AllOf | AnyOf
)


Atom: TypeAlias = Null | Fixed | Against | Among | Matches
"""A node over one column."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate bound to a schema: its distinct columns, and the tree that refers to them by ordinal."""

    columns: tuple[BoundColumn, ...]
    root: Node


def column_atoms(node: Node) -> Iterator[Atom]:
    """Yield the atoms over one column in a bound tree, in order; these are what indexes answer."""
    match node:
        case AllOf() | AnyOf():
            for operand in node.operands:
                yield from column_atoms(operand)
        case Negation() | IsTrue():
            yield from column_atoms(node.operand)
        case Null() | Fixed() | Against() | Among() | Matches():
            yield node
        case _:
            pass


def column_tested(node: Node) -> int | None:
    """Return the column of an atom over one column, or of its negation; None for any other node."""
    while isinstance(node, Negation):
        node = node.operand
    return node.column if isinstance(node, Null | Fixed | Against | Among | Matches) else None


def single_column_parts(node: Node) -> Iterator[tuple[int, Node]]:
    """Yield the largest parts of a tree that are over one column each, with that column, in order."""
    columns = _columns_in(node)
    if len(columns) == 1:
        yield next(iter(columns)), node
    elif isinstance(node, AllOf | AnyOf):
        for operand in node.operands:
            yield from single_column_parts(operand)
    elif isinstance(node, Negation | IsTrue):
        yield from single_column_parts(node.operand)


def _columns_in(node: Node) -> frozenset[int]:
    match node:
        case AllOf() | AnyOf():
            return frozenset().union(*(_columns_in(operand) for operand in node.operands))
        case Negation() | IsTrue():
            return _columns_in(node.operand)
        case Pair():
            return frozenset((node.left, node.right))
        case Truth():
            return frozenset()
        case Kernel():
            # Indexes answer for the values of one column and take it that null comes to null: with two
            # columns that there are not, no part that has a kernel is theirs.
            return frozenset((*node.columns, -1, -2))
        case _:
            return frozenset((node.column,))


def over_first_column(node: Node) -> Node:
    """Return a tree over one column with that column renumbered as the only one."""
    match node:
        case AllOf() | AnyOf():
            return replace(node, operands=tuple(over_first_column(operand) for operand in node.operands))
        case Negation() | IsTrue():
            return replace(node, operand=over_first_column(node.operand))
        case Pair():
            return replace(node, left=0, right=0)
        case Truth() | Kernel():
            return node
        case _:
            return replace(node, column=0)


# ASCII letters that have a non-ASCII case variant, which no range of ASCII bytes covers.
_STRAY = frozenset("kKsS")

_MOST_CHARACTERS = 10_000
"""Most characters of a pattern that RE2 decides; it fails to compile seven times as many wildcards."""
_SHOWN = 40

_ANY = object()
_ONE = object()


def compile_pattern(text: str, *, ignore_case: bool, position: int) -> Pattern:
    """Compile a LIKE pattern.

    Raises PredicateError where the pattern ends in a lone backslash, has a lone surrogate, or is too long.
    """
    parts = _parts(text, position)
    regex = "".join(".*" if part is _ANY else "." if part is _ONE else _escape(str(part)) for part in parts)
    try:
        regex.encode()
    except UnicodeEncodeError:
        raise PredicateError("the pattern has a lone surrogate", position=position) from None
    open_start = bool(parts) and parts[0] is _ANY
    open_end = bool(parts) and parts[-1] is _ANY
    inner = parts[1 if open_start else 0 : len(parts) - 1 if open_end and len(parts) > 1 else len(parts)]
    if parts == [_ANY]:
        inner = []
    plain = len(inner) == 1 and isinstance(inner[0], str) or not inner
    literal = (str(inner[0]) if inner else "").encode() if plain else None
    if len(text) > _MOST_CHARACTERS and (literal is None or ignore_case):
        raise PredicateError(
            f"the pattern {text[:_SHOWN]!r}... has {len(text)} characters, more than {_MOST_CHARACTERS}",
            position=position,
            hint="only of LIKE 'text', 'text%', '%text' and '%text%' the text may be longer",
        )
    lower, upper = _range(str(parts[0]) if parts and isinstance(parts[0], str) else "", ignore_case)
    return Pattern(
        regex=rf"\A(?s:{regex})\z",
        ignore_case=ignore_case,
        literal=literal,
        open_start=open_start,
        open_end=open_end,
        lower=lower,
        upper=upper,
        runs=tuple(part for part in parts if isinstance(part, str)),
        least=sum(len(part) if isinstance(part, str) else part is _ONE for part in parts),
    )


def successor(prefix: bytes) -> bytes | None:
    """Return the least bytes above everything that starts with `prefix`; None where there are none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _parts(text: str, position: int) -> list[object]:
    """Split into literal runs, `_ANY` (never twice in a row) and `_ONE`."""
    parts: list[object] = []
    run: list[str] = []

    def flush() -> None:
        if run:
            parts.append("".join(run))
            run.clear()

    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise PredicateError(
                    "the pattern ends in a lone backslash",
                    position=position,
                    hint="write two backslashes for one",
                )
            run.append(escaped)
        elif character == "%":
            flush()
            if not parts or parts[-1] is not _ANY:
                parts.append(_ANY)
        elif character == "_":
            flush()
            parts.append(_ONE)
        else:
            run.append(character)
    flush()
    return parts


def _escape(run: str) -> str:
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in run)


def _range(run: str, ignore_case: bool) -> tuple[bytes, bytes | None]:
    if not ignore_case:
        prefix = run.encode()
        return prefix, successor(prefix)
    # Upper-case ASCII letters sort before lower-case ones, so the two spellings are the two ends.
    length = next((i for i, c in enumerate(run) if not c.isascii() or c in _STRAY), len(run))
    head = run[:length]
    return head.upper().encode(), successor(head.lower().encode())
