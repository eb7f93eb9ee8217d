"""The argument `indexes=`: which kinds of index, of which columns, at which level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel.errors import AccelError, ColumnNotFoundError
from accel.format.model import FileMetadata, Leaf
from accel.indexes.expressions import split_members
from accel.indexes.kind import IndexKind, Level
from accel.indexes.registry import find_kind, make_kind
from accel.predicate.expr import quoted_path
from accel.writing.values import find_leaf

__all__ = ["IDX1", "Indexes", "WantedIndex", "read_wanted"]

IDX1 = "idx1"
"""The list of distinct values of DataFusion's example, found by the footer key `distinct_index_offset`."""

Indexes = Mapping[str, Any]
"""Column -> one index or a list of them; each is the name of a kind, a kind, or a pair of either and a level.
In place of a column, a list of columns, expressions and tuples ("a, lower(s), (a, b)") is for kinds of
several columns, and "*" for kinds that name their columns. A level is spelt with a space or, as on the
command line, with a hyphen."""

_BY_DEFAULT = (Level.PAGE, Level.ROW_RANGE, Level.ROW_GROUP, Level.FILE)
_ITSELF = "*"


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """One index to build."""

    column: str
    leaf: Leaf
    """The column; for an index of several columns, the one whose pages are its units."""
    kind: IndexKind | None
    """None for IDX1."""
    level: Level
    leaves: tuple[Leaf, ...] = ()
    """The columns of an index of several, in the order of the kind's `inputs`; empty for others."""

    @property
    def kind_name(self) -> str:
        """The name of the kind, "idx1" for IDX1."""
        return IDX1 if self.kind is None else self.kind.name

    def covers(self) -> tuple[tuple[Leaf, str], ...]:
        """Return the columns that an index of several covers, each with the expression over it; empty for
        others."""
        if self.kind is None or not self.leaves:
            return ()
        return tuple((self.leaves[at], of) for at, of in self.kind.covers())


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of `indexes=`: a column, a list or "*"."""

    text: str
    leaf: Leaf | None
    """The column, if it is one."""
    members: tuple[str, ...] = ()
    """The members, if it is a list."""


def read_wanted(indexes: Indexes, metadata: FileMetadata) -> tuple[WantedIndex, ...]:
    """Find the columns and kinds that `indexes=` names.

    Raises
    ------
    ColumnNotFoundError, SchemaMismatchError
        A column does not exist, or does not have one value per row.
    TypeError, ValueError
        The argument is no mapping; a kind does not exist, lacks the level, or needs a package that is not
        installed; there is an index, or IDX1, twice.
    """
    if not isinstance(indexes, Mapping):
        raise TypeError('indexes= maps columns to kinds: {"category": "distinct"}')
    wanted = []
    for column, given in indexes.items():
        if not isinstance(column, str):
            raise TypeError(f"indexes= names a column by text, not by {column!r:.80}")
        key = _read_key(column, metadata)
        for kind, level in _each(given):
            wanted.append(_one(key, kind, level, metadata))
    if sum(index.kind is None for index in wanted) > 1:
        raise ValueError("a file can hold one idx1 index")
    seen = {
        (index.leaf.ordinal, index.kind_name, index.level, () if index.kind is None else index.kind.members)
        for index in wanted
    }
    if len(seen) != len(wanted):
        raise ValueError("an index is asked for twice")
    return tuple(wanted)


def _read_key(column: str, metadata: FileMetadata) -> _Key:
    try:
        return _Key(column, find_leaf(metadata, column))
    except ColumnNotFoundError:
        if column.strip() == _ITSELF:
            return _Key(column, None)
        if not set(column) & set('(,"') or quoted_path(column) is not None:
            raise
    return _Key(column, None, split_members(column))


def _each(given: Any) -> Iterator[tuple[Any, Level | None]]:
    level = _level_named(given[1]) if isinstance(given, tuple) and len(given) == 2 else None
    if level is not None:
        yield given[0], level
    elif isinstance(given, Sequence) and not isinstance(given, str):
        for one in given:
            yield from _each(one)
    else:
        yield given, None


def _level_named(value: Any) -> Level | None:
    """Return the level that the second of a pair names; None if it names another index."""
    if not isinstance(value, str):
        return None
    spelt = value.replace("-", " ")
    if spelt in set(Level):
        return Level(spelt)
    if find_kind(value) is None:
        raise ValueError(f"{value!r} is no level of an index (there are {', '.join(Level)}), nor a kind")
    return None


def _one(key: _Key, given: Any, level: Level | None, metadata: FileMetadata) -> WantedIndex:
    if given == IDX1:
        if level not in (None, Level.FILE):
            raise ValueError("idx1 is an index of the whole file")
        if key.leaf is None:
            raise ValueError(f"idx1 is of one column, not of {key.text!r}")
        return WantedIndex(key.text, key.leaf, None, Level.FILE)
    kind = _kind(given)
    kind.check_installed()
    chosen = _level(kind, level)
    over = kind.over(key.members) if key.members else kind
    leaves = tuple(find_leaf(metadata, column) for column in over.inputs)
    if not leaves:
        if key.leaf is None:
            raise ValueError(
                f"index kind {kind.name} does not say of which columns it is: name one for {key.text!r}"
            )
        return WantedIndex(key.text, key.leaf, kind, chosen)
    over = over.located([leaf.path for leaf in leaves])
    label = ", ".join(map(str, over.members))
    return WantedIndex(label, leaves[0] if key.leaf is None else key.leaf, over, chosen, leaves)


def _level(kind: IndexKind, level: Level | None) -> Level:
    if level is None:
        chosen = next((each for each in _BY_DEFAULT if each in kind.levels), None)
        if chosen is None:
            raise AccelError(f"index kind {kind.name} has no level")
        return chosen
    if level not in kind.levels:
        have = ", ".join(sorted(kind.levels))
        raise ValueError(f"index kind {kind.name} has no level {str(level)!r}, only {have}")
    return level


def _kind(given: Any) -> IndexKind:
    if not isinstance(given, str) and (isinstance(given, type) or not isinstance(given, IndexKind)):
        raise TypeError(f"{given!r} is no index kind: give its name, or an object of its class")
    return make_kind(given)
