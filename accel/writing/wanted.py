"""What `indexes=` asks for: which kinds of index, over which columns, at which level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel.errors import AccelError
from accel.format.model import FileMetadata, Leaf
from accel.indexes.kind import IndexKind, Level
from accel.indexes.registry import make_kind
from accel.writing.values import find_leaf

__all__ = ["IDX1", "Indexes", "WantedIndex", "read_wanted"]

IDX1 = "idx1"
"""The seeds' distinct-value list, found by the footer key `distinct_index_offset`."""

Indexes = Mapping[str, Any]
"""Column -> one index or a list of them; each a kind's name, a kind, or a pair of either and a level."""

_BY_DEFAULT = (Level.PAGE, Level.ROW_RANGE, Level.ROW_GROUP, Level.FILE)


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """One index to build."""

    column: str
    leaf: Leaf
    kind: IndexKind | None
    """None for IDX1."""
    level: Level

    @property
    def kind_name(self) -> str:
        return IDX1 if self.kind is None else self.kind.name


def read_wanted(indexes: Indexes, metadata: FileMetadata) -> tuple[WantedIndex, ...]:
    """Find columns and kinds.

    Raises
    ------
    ColumnNotFoundError, SchemaMismatchError
        A column is not there, or is not one value a row.
    TypeError, ValueError
        This is no mapping; a kind is not known, or has not the level that is asked for; IDX1 twice.
    """
    if not isinstance(indexes, Mapping):
        raise TypeError('indexes= maps columns to kinds: {"category": "distinct"}')
    wanted = []
    for column, asked in indexes.items():
        leaf = find_leaf(metadata, column)
        for kind, level in _each(asked):
            wanted.append(_one(column, leaf, kind, level))
    if sum(index.kind is None for index in wanted) > 1:
        raise ValueError("a file can hold one idx1 index")
    seen = {(index.leaf.ordinal, index.kind_name, index.level) for index in wanted}
    if len(seen) != len(wanted):
        raise ValueError("an index is asked for twice")
    return tuple(wanted)


def _each(asked: Any) -> Iterator[tuple[Any, str | None]]:
    if isinstance(asked, tuple) and len(asked) == 2 and _is_level(asked[1]):
        yield asked[0], asked[1]
    elif isinstance(asked, Sequence) and not isinstance(asked, str):
        for one in asked:
            yield from _each(one)
    else:
        yield asked, None


def _is_level(value: Any) -> bool:
    return isinstance(value, str) and value in {str(level) for level in Level}


def _one(column: str, leaf: Leaf, asked: Any, level: str | None) -> WantedIndex:
    if asked == IDX1:
        if level not in (None, Level.FILE):
            raise ValueError("idx1 is an index of the whole file")
        return WantedIndex(column, leaf, None, Level.FILE)
    kind = _kind(asked)
    if level is None:
        chosen = next((known for known in _BY_DEFAULT if known in kind.levels), None)
        if chosen is None:
            raise AccelError(f"index kind {kind.name} has no level")
        return WantedIndex(column, leaf, kind, chosen)
    if Level(level) not in kind.levels:
        have = ", ".join(sorted(kind.levels))
        raise ValueError(f"index kind {kind.name} has no level {level!r}, only {have}")
    return WantedIndex(column, leaf, kind, Level(level))


def _kind(asked: Any) -> IndexKind:
    if not isinstance(asked, str) and (isinstance(asked, type) or not isinstance(asked, IndexKind)):
        raise TypeError(f"{asked!r} is no index kind: give its name, or an object of its class")
    return make_kind(asked)
