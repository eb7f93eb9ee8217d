"""`zonemap`: minimum, maximum, null count, sum and count of each unit.

It covers a column, an expression over one, or several columns, and then also tuples of columns. It answers
every question by its bounds. A unit costs about 60 bytes for numbers, and for text twice the length of the
bounds, which are cut at 64 bytes. Unlike Parquet's statistics it counts NaN, marks exact bounds, and has
sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from accel.arrays import validity
from accel.errors import IndexFormatError, SchemaMismatchError
from accel.format.domain import Bounds
from accel.indexes.expressions import (
    Expression,
    Member,
    apply_expression,
    apply_to_value,
    fold_settled,
    inputs_of,
    output_type,
    parse_member,
    split_members,
)
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.native import uniform
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.stored_bounds import StoredBounds
from accel.indexes.tuple_zones import TupleZones, read_tuples, tuple_zones, write_tuples
from accel.indexes.wire import BlobReader, BlobWriter
from accel.indexes.zone_bounds import folded_bounds, read_sums, unit_bounds, write_sums
from accel.predicate.atoms import Against, Bound, BoundColumn, Node, Order, Pattern, successor
from accel.predicate.prune import Evidence, prune

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "ParsedZonemap",
    "ZoneMember",
    "Zonemap",
    "bounds_of_values",
    "expression_type",
    "prune_bounds",
]

_MAGIC = b"AIZ4"
_BOUNDS, _TUPLES = 1, 2
_MAX_PARTS = 1000
"""Limit of the names of a path, the columns of a tuple, and the members of an index."""

Path = tuple[str, ...]


_UNBOUNDED = "no unit's values have bounds; take distinct, bitmap or bloom instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Zonemap(IndexKind):
    """Bounds, counts and sums of units.

    Parameters
    ----------
    of : str
        The expression: "value", "lower", "year", "month", "day" or "hour".
    columns : sequence of str, or of paths as tuples of str
        The members of a zone map of several: columns (`a`, `b.c`), expressions (`lower(s)`) and tuples of
        columns (`(a, b)`). Its units are the pages of one column, and `build` takes structs with a field for
        each of `inputs`. Empty for a zone map of one column.
    paths : sequence of paths
        The paths of the inputs in the file, for names with a dot in them; by default dots separate names.
    """

    name: ClassVar[str] = "zonemap"
    version: ClassVar[int] = 4
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE, Level.ROW_GROUP, Level.PAGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset(LeafOp)

    of: str = "value"
    columns: Sequence[str | Path] = ()
    paths: Sequence[Path] = ()

    def __post_init__(self) -> None:
        try:
            Expression(self.of)
        except ValueError:
            names = ", ".join(Expression)
            raise ValueError(f"a zone map is of one of {names}, not of {self.of!r}") from None
        if isinstance(self.columns, str):
            object.__setattr__(self, "columns", split_members(self.columns))
        if len(self.members) > _MAX_PARTS:
            raise ValueError(f"a zone map is of {_MAX_PARTS} columns at most")

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of a zone map of several; empty for one of a single column."""
        of = Expression(self.of)
        return tuple(
            parse_member(each, default=of) if isinstance(each, str) else Member(of, (each,))
            for each in self.columns
        )

    @property
    def inputs(self) -> tuple[str | Path, ...]:
        """The distinct columns that it is built from."""
        return inputs_of(self.members)

    def over(self, columns: Sequence[str]) -> Zonemap:
        """Return the kind for several columns.

        Parameters
        ----------
        columns : sequence of str
            Columns, expressions and tuples.

        Returns
        -------
        Zonemap
            The same kind over them.
        """
        return replace(self, columns=tuple(columns), paths=())

    def located(self, paths: Sequence[Path]) -> Zonemap:
        """Return the kind with the paths of its inputs.

        Parameters
        ----------
        paths : sequence of paths
            The path of each of `inputs` in the file.

        Returns
        -------
        Zonemap
            The same kind with them.
        """
        return replace(self, paths=tuple(paths))

    def covers(self) -> tuple[tuple[int, str], ...]:
        """List what the index covers.

        Returns
        -------
        tuple of (int, str)
            For each column of each member, the input and the expression over it, or "tuple".
        """
        inputs = self.inputs
        return tuple(
            (inputs.index(column), "tuple" if len(member.columns) > 1 else str(member.of))
            for member in self.members
            for column in member.columns
        )

    def path_of(self, column: str | Path) -> Path:
        """Find the path of an input in the file.

        Parameters
        ----------
        column : str or path
            The input.

        Returns
        -------
        path
            Its names from the top level down.
        """
        if self.paths:
            return tuple(self.paths[self.inputs.index(column)])
        return tuple(column.split(".")) if isinstance(column, str) else column

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(self, level)

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedZonemap:
        """Parse an index; see `IndexKind.parse`."""
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        count = blob.u32()
        if not 1 <= count <= _MAX_PARTS:
            raise IndexFormatError(f"a zone map of {count} members")
        members = tuple(_read_member(blob, units) for _ in range(count))
        blob.end()
        return ParsedZonemap(members, 4 * len(data))

    def shortcoming(self, data: bytes, *, units: int) -> str | None:
        """Return why an index rules nothing out but nulls, or None; see `IndexKind.shortcoming`."""
        parsed = self.parse(data, level=Level.PAGE, units=units)
        return _UNBOUNDED if all(member.unbounded for member in parsed.members) else None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        several = {"columns": [str(member) for member in self.members]} if self.columns else {}
        return {"of": self.of, **several}


class _Builder:
    def __init__(self, kind: Zonemap, level: Level) -> None:
        self.kind = kind
        self.level = level
        self.members = kind.members or (Member(Expression(kind.of), ("",)),)
        self.inputs = inputs_of(self.members)
        self.units = 0
        self.parts: list[list[Any]] = [[] for _ in self.members]
        self.types: list[pa.DataType] = [pa.null()] * len(self.members)
        """The types that the bounds of members are of."""

    def add(self, chunk: ChunkValues) -> None:
        starts = chunk.starts(self.level)
        self.units += len(starts)
        columns = dict(zip(self.inputs, self._fields(chunk.array), strict=True))
        for at, (member, parts) in enumerate(zip(self.members, self.parts, strict=True)):
            if len(member.columns) > 1:
                parts.append(tuple_zones([uniform(columns[name]) for name in member.columns], starts))
                continue
            column = columns[member.columns[0]]
            parts.append(bounds_of_values(member.of, column, starts))
            self.types[at] = output_type(member.of, column.type)

    def _fields(self, array: pa.Array) -> list[pa.Array]:
        if not self.kind.columns:
            return [array]
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(self.inputs):
            raise SchemaMismatchError(f"a zone map of {len(self.inputs)} columns cannot be of {array.type}")
        fields: list[pa.Array] = array.flatten()
        return fields

    def finish(self) -> bytes:
        if not self.parts[0]:
            raise ValueError("a zone map of nothing: pass a chunk without rows for a file without row groups")
        whole = self.level is not Level.PAGE
        out = BlobWriter(_MAGIC)
        out.u32(1 if whole else self.units)
        out.u32(len(self.members))
        for member, parts, kind in zip(self.members, self.parts, self.types, strict=True):
            out.u32(_TUPLES if len(member.columns) > 1 else _BOUNDS)
            out.block(member.of.encode())
            paths = [self.kind.path_of(name) for name in member.columns] if self.kind.columns else [()]
            out.u32(len(paths))
            for path in paths:
                _write_path(out, path)
            if len(member.columns) > 1:
                write_tuples(out, TupleZones.merged(parts) if whole else TupleZones.joined(parts))
                continue
            bounds = Bounds.join(parts)
            if whole:
                bounds = bounds.fold(np.array([len(bounds)], np.int64))
            StoredBounds.of(bounds, kind).write(out)
            write_sums(out, bounds.sums)
        return out.bytes()


def bounds_of_values(of: Expression, column: pa.Array, starts: Int64s) -> Bounds:
    """Return the bounds and sums of an expression in runs of rows, in the form of its `output_type`.

    Raises
    ------
    SchemaMismatchError
        The expression has no meaning for the values.
    """
    try:
        values = apply_expression(of, column)
    except UnicodeDecodeError:
        raise SchemaMismatchError(f"{of}() of text that is not UTF-8") from None
    return (folded_bounds if of is Expression.LOWER else unit_bounds)(values, starts)


def _write_path(out: BlobWriter, path: tuple[str, ...]) -> None:
    """Write a u32 and as many blocks."""
    out.u32(len(path))
    for part in path:
        out.block(part.encode())


def _read_path(blob: BlobReader) -> tuple[str, ...]:
    """Read a path; raises IndexFormatError for other bytes."""
    parts = blob.u32()
    if parts > _MAX_PARTS:
        raise IndexFormatError(f"a zone map has a path of {parts} parts")
    return tuple(_read_text(blob) for _ in range(parts))


def _read_text(blob: BlobReader) -> str:
    """Read a block of text; raises IndexFormatError for other bytes."""
    try:
        return bytes(blob.block()).decode()
    except UnicodeDecodeError as error:
        raise IndexFormatError(f"a zone map has a text that is none: {error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class ZoneMember:
    """One parsed member of a zone map."""

    of: Expression
    paths: tuple[Path, ...]
    """One path, empty for an index of one column; those of the columns for a tuple."""
    content: StoredBounds | TupleZones
    sums: tuple[int | float, ...] | None
    _decoded: list[tuple[pa.DataType, Bounds]] = field(default_factory=list)
    """The bounds for the type that was needed last."""

    @property
    def unbounded(self) -> bool:
        """Whether some units have values other than NaN, and none of those units has a bound."""
        stored = self.content
        if not isinstance(stored, StoredBounds):
            return False
        filled = stored.num_values - stored.null_count > stored.nan_count
        return bool(filled.any()) and not bool(
            (filled & (validity(stored.lower) | validity(stored.upper))).any()
        )

    def bounds(self, kind: pa.DataType) -> Bounds | None:
        """Return the bounds and sums in the form of a type; None for tuples."""
        if not isinstance(self.content, StoredBounds):
            return None
        if not self._decoded or self._decoded[0][0] != kind:
            self._decoded[:] = [(kind, replace(self.content.decode(kind), sums=self.sums))]
        return self._decoded[0][1]

    def prune(self, question: LeafQuestion) -> Evidence | None:
        """Return the evidence of this member's bounds; None where it does not cover the question's column."""
        stored = self.content
        if not isinstance(stored, StoredBounds) or self.paths[0] not in (question.path, ()):
            return None
        presence = Presence(stored.null_count > 0, stored.num_values > stored.null_count)
        if question.op is LeafOp.IS_NULL:
            return presence.nulls()
        kind = expression_type(self.of, question)
        if kind is None or not stored.compares_with(kind):
            return None
        bounds = self.bounds(kind)
        return None if bounds is None else prune_bounds(self.of, bounds, presence, question=question)


def _read_member(blob: BlobReader, units: int) -> ZoneMember:
    form, of = blob.u32(), _expression(_read_text(blob))
    count = blob.u32()
    if form not in (_BOUNDS, _TUPLES) or not 1 <= count <= _MAX_PARTS or (form == _BOUNDS and count > 1):
        raise IndexFormatError("a zone map has a member that is none")
    paths = tuple(_read_path(blob) for _ in range(count))
    if form == _TUPLES:
        return ZoneMember(of, paths, read_tuples(blob, count, units=units), None)
    return ZoneMember(of, paths, StoredBounds.read(blob, units), read_sums(blob, units))


def _expression(text: str) -> Expression:
    try:
        return Expression(text)
    except ValueError:
        raise IndexFormatError(f"a zone map of {text[:40]!r}") from None


@dataclass(frozen=True, slots=True, eq=False)
class ParsedZonemap:
    """A parsed zone map."""

    members: tuple[ZoneMember, ...]
    nbytes: int

    @property
    def of(self) -> Expression:
        """The expression of a map of one member."""
        return self.members[0].of if len(self.members) == 1 else Expression.VALUE

    def bounds(self, path: Path, kind: pa.DataType, of: Expression | None = None) -> Bounds | None:
        """Return the bounds and sums of a column, or of an expression over it (by default the map's own), in
        the form of a type; None where it has none. They answer `count`, `min`, `max` and `sum` of units."""
        of = self.of if of is None else of
        for member in self.members:
            if member.of is of and member.paths[0] in (path, ()) and isinstance(member.content, StoredBounds):
                return member.bounds(kind)
        return None

    def prune(self, question: LeafQuestion) -> Evidence | None:
        found: Evidence | None = None
        for member in self.members:
            found = _both(found, member.prune(question))
        return _both(found, self.prune_all([(question, True)]))

    def prune_all(self, questions: Sequence[tuple[LeafQuestion, bool]]) -> Evidence | None:
        """Return the evidence that one row gives all questions their answers, each true or false; None where
        no tuple has their columns."""
        found: Evidence | None = None
        for member in self.members:
            if not isinstance(member.content, TupleZones):
                continue
            hit = member.content.hit(member.paths, questions)
            if hit is not None:
                found = _both(found, Evidence(hit, hit | True, hit | True))
        return found

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        return {
            "of": str(self.of),
            "columns": len(self.members),
            "units": len(self.members[0].content.lower),
        }


def _both(a: Evidence | None, b: Evidence | None) -> Evidence | None:
    if a is None or b is None:
        return b if a is None else a
    return a.meet(b)


_PATH = ("value",)


def expression_type(of: Expression, question: LeafQuestion) -> pa.DataType | None:
    """Return the type of an expression over a question's column; None where it has no meaning."""
    try:
        return output_type(of, question.arrow_type)
    except ValueError:
        return None


def prune_bounds(
    of: Expression, bounds: Bounds, presence: Presence, *, question: LeafQuestion
) -> Evidence | None:
    """Return the evidence of units by bounds of an expression over the question's column, in the form of its
    `expression_type`; None where these do not tell."""
    if question.op is LeafOp.IS_NULL:
        return presence.nulls()
    kind = expression_type(of, question)
    if kind is None:
        return None
    if of is Expression.VALUE:
        return _prune(bounds, kind, question.atom)
    hit = _expression_hit(of, bounds, kind, question)
    # Values of equal expressions may differ, so any value may fail.
    return None if hit is None else presence.evidence(hit)


def _prune(bounds: Bounds, kind: pa.DataType, atom: Node) -> Evidence:
    return prune(Bound((BoundColumn(_PATH, kind),), atom), {_PATH: bounds}, len(bounds))


def _expression_hit(
    of: Expression, bounds: Bounds, kind: pa.DataType, question: LeafQuestion
) -> Bools | None:
    """Return the units with values of the expression that a passing value may have."""
    if question.op is LeafOp.LIKE and question.pattern is not None:
        prefix = _folded_prefix(question.pattern) if of is Expression.LOWER else b""
        return _starting(bounds, kind, prefix) if prefix else None
    values = [
        apply_to_value(of, value, kind=question.arrow_type) for value in question.values[: MANY_KEYS + 1]
    ]
    if None in values or len(values) > MANY_KEYS:
        return None
    if question.op in (LeafOp.LE, LeafOp.LT):
        # A lesser value may have an equal expression.
        return _prune(bounds, kind, Against(0, Order.LE, values[0])).may_true if of.monotone else None
    hit = np.zeros(len(bounds), bool)
    for value in set(values):
        hit |= _prune(bounds, kind, Against(0, Order.EQ, value)).may_true
    return hit


def _folded_prefix(pattern: Pattern) -> bytes:
    # A literal dot is escaped, so an unescaped one at the start is `_` or begins `%`.
    if not pattern.runs or pattern.regex.startswith(r"\A(?s:."):
        return b""
    return fold_settled(pattern.runs[0].encode()) or b""


def _starting(bounds: Bounds, kind: pa.DataType, prefix: bytes) -> Bools:
    """Return the units with a value that may start with the prefix."""
    below = _prune(bounds, kind, Against(0, Order.LT, prefix)).may_false
    above = successor(prefix)
    return below if above is None else below & _prune(bounds, kind, Against(0, Order.LT, above)).may_true
