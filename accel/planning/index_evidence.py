"""What indexes say of the atoms of a predicate, brought to the units that pruning judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from accel.predicate.atoms import Node
from accel.predicate.evidence import Evidence
from accel.predicate.prune import Witness

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Statement", "Witnesses", "together"]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """What one index says of one atom in one row group, by stretches of its rows."""

    first_rows: Int64s
    """Where each stretch starts, ascending from 0; [0] for the whole row group."""
    evidence: Evidence
    """One entry a stretch."""


@dataclass(slots=True)
class Witnesses:
    """The statements of all indexes that were asked, by atom (its identity) and row group."""

    _said: dict[tuple[int, int], list[Statement]] = field(default_factory=dict)
    _kept: list[Node] = field(default_factory=list)
    _groups: set[int] = field(default_factory=set)

    def add(self, node: Node, row_group: int, statement: Statement) -> None:
        """Take in what an index says; nothing where every stretch may be TRUE and may be FALSE.

        Whether such an atom may be NULL, too, decides about no row: what holds for both TRUE and FALSE holds for NULL.
        """
        said = statement.evidence
        if bool((said.may_true & said.may_false).all()):
            return
        # An identity is only good as long as the node lives.
        self._kept.append(node)
        self._groups.add(row_group)
        self._said.setdefault((id(node), row_group), []).append(statement)

    def __bool__(self) -> bool:
        return bool(self._said)

    def speaks_of(self, row_group: int) -> bool:
        return row_group in self._groups

    def cuts(self, row_group: int) -> list[Int64s]:
        """Where stretches start, of every statement about a row group."""
        if row_group not in self._groups:
            return []
        return [
            statement.first_rows
            for (_, group), statements in self._said.items()
            if group == row_group
            for statement in statements
            if len(statement.first_rows) > 1
        ]

    def of_rows(self, row_group: int, cuts: Int64s) -> Witness | None:
        """For `prune` over the stretches of a row group that start at `cuts`, which refine all others."""
        if not self.speaks_of(row_group):
            return None

        def witness(node: Node) -> Evidence | None:
            found: Evidence | None = None
            for statement in self._said.get((id(node), row_group), ()):
                at = np.searchsorted(statement.first_rows, cuts, side="right") - 1
                said = statement.evidence
                part = Evidence(said.may_true[at], said.may_false[at], said.may_null[at])
                found = part if found is None else found.meet(part)
            return found

        return witness


def together(parts: Sequence[tuple[Witness | None, int]]) -> Witness | None:
    """One witness for the units of several, of so many units each, one after the other."""
    if len(parts) == 1:
        return parts[0][0]
    if all(witness is None for witness, _ in parts):
        return None

    def witness(node: Node) -> Evidence | None:
        said = [None if one is None else one(node) for one, _ in parts]
        if all(part is None for part in said):
            return None
        full = [
            Evidence.unknown(size) if part is None else part
            for part, (_, size) in zip(said, parts, strict=True)
        ]
        return Evidence(
            np.concatenate([part.may_true for part in full]),
            np.concatenate([part.may_false for part in full]),
            np.concatenate([part.may_null for part in full]),
        )

    return witness
