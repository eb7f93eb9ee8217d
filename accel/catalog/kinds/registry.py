"""The kinds of index that a catalog may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from accel.catalog.kinds.blooms import Blooms
from accel.catalog.kinds.distincts import Distincts
from accel.catalog.kinds.keys import Keys
from accel.catalog.kinds.kind import CatalogIndex
from accel.catalog.kinds.ngrams import Ngrams
from accel.catalog.kinds.zonemaps import Zonemaps

__all__ = ["KINDS", "index_of_table", "indexes_of", "spelled_indexes"]

KINDS: Final[Mapping[str, type[CatalogIndex]]] = {
    one.kind: one for one in (Keys, Ngrams, Distincts, Blooms, Zonemaps)
}
"""By name."""

Spelled = Mapping[str, Sequence[str]]


def spelled_indexes(given: Mapping[str | tuple[str, ...], str | Sequence[str]]) -> Spelled:
    """Return the indexes that a caller asks for, as heads have them: kinds by columns.

    Raises
    ------
    ValueError
        There is no such kind, or it is not of such columns.
    TypeError
        They are no mapping; a column, or a kind, is no text.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f'indexes maps columns to kinds, as {{"user_id": "keys"}}, and is not {given!r:.80}')
    out: dict[str, list[str]] = {}
    for columns, kinds in given.items():
        if not isinstance(columns, str | tuple) or not all(isinstance(name, str) for name in columns):
            raise TypeError(
                f"indexes names columns by a text, or by a tuple of texts, not by {columns!r:.80}"
            )
        if not isinstance(kinds, str | Sequence):
            raise TypeError(f"kinds of index are given by name, not as {type(kinds).__name__}")
        for name in [kinds] if isinstance(kinds, str) else kinds:
            kind = KINDS.get(name) if isinstance(name, str) else None
            if kind is None:
                known = ", ".join(map(repr, KINDS))
                raise ValueError(f"there is no index of kind {name!r} outside the files: there are {known}")
            of = kind.spelled(columns)
            kind(of)  # raises where it is not of such columns
            if name not in out.setdefault(of, []):
                out[of].append(name)
    return out


def indexes_of(spelled: Spelled) -> list[CatalogIndex]:
    """Return the indexes that a head asks for; those of kinds that are not known here are left out."""
    found = [index_of_table(f"{kind} {of}") for of, kinds in spelled.items() for kind in kinds]
    return [index for index in found if index is not None]


def index_of_table(table: str) -> CatalogIndex | None:
    """Return the index that a table of a segment belongs to; None for other tables, and where its kind is not
    known here."""
    name, _, of = table.partition(" ")
    kind = KINDS.get(name)
    if kind is None:
        return None
    try:
        return kind(of)
    except ValueError:
        return None
