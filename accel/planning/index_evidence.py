"""Evidence that indexes give about the atoms of a predicate, brought to the units that pruning judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from accel.predicate.atoms import Node
from accel.predicate.prune import Evidence, IndexEvidence

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["IndexStatements", "Statement", "concatenate"]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """The evidence of one index about one atom in one row group, by stretches of its rows."""

    first_rows: Int64s
    """Where each stretch starts, ascending from 0; [0] for the whole row group."""
    evidence: Evidence
    """One entry a stretch."""
    by: str = "index"
    """What has made it: an "index" embedded in the file, a "bloom filter" or a "dictionary"."""


@dataclass(slots=True)
class IndexStatements:
    """The statements of all indexes that were looked up, by the identity of the atom and by row group."""

    _statements: dict[tuple[int, int], list[Statement]] = field(default_factory=dict)
    _nodes: list[Node] = field(default_factory=list)
    _groups: set[int] = field(default_factory=set)

    def add(self, node: Node, row_group: int, statement: Statement) -> None:
        """Take in the statement of an index, unless every stretch may be TRUE and may be FALSE.

        Whether such an atom may be NULL as well decides about no row: what holds for TRUE and FALSE holds for
        NULL.
        """
        evidence = statement.evidence
        if bool((evidence.may_true & evidence.may_false).all()):
            return
        # An identity is unique only while its node lives.
        self._nodes.append(node)
        self._groups.add(row_group)
        self._statements.setdefault((id(node), row_group), []).append(statement)

    def __bool__(self) -> bool:
        return bool(self._statements)

    def makers(self, row_group: int) -> set[str]:
        """Return what has made the statements about a row group: see `Statement.by`."""
        return {
            statement.by
            for (_, group), statements in self._statements.items()
            if group == row_group
            for statement in statements
        }

    def covers(self, row_group: int) -> bool:
        return row_group in self._groups

    def cuts(self, row_group: int) -> list[Int64s]:
        """Return where the stretches of each statement about a row group start."""
        if row_group not in self._groups:
            return []
        return [
            statement.first_rows
            for (_, group), statements in self._statements.items()
            if group == row_group
            for statement in statements
            if len(statement.first_rows) > 1
        ]

    def of_rows(self, row_group: int, cuts: Int64s) -> IndexEvidence | None:
        """Return the evidence for the stretches of a row group that start at `cuts`, which refine all
        others."""
        if not self.covers(row_group):
            return None

        def evidence_of(node: Node) -> Evidence | None:
            found: Evidence | None = None
            for statement in self._statements.get((id(node), row_group), ()):
                at = np.searchsorted(statement.first_rows, cuts, side="right") - 1
                whole = statement.evidence
                part = Evidence(whole.may_true[at], whole.may_false[at], whole.may_null[at])
                found = part if found is None else found.meet(part)
            return found

        return evidence_of


def concatenate(parts: Sequence[tuple[IndexEvidence | None, int]]) -> IndexEvidence | None:
    """Return the evidence for the units of several row groups, one group's units after the other's."""
    if len(parts) == 1:
        return parts[0][0]
    if all(evidence is None for evidence, _ in parts):
        return None

    def evidence_of(node: Node) -> Evidence | None:
        found = [None if one is None else one(node) for one, _ in parts]
        if all(part is None for part in found):
            return None
        full = [
            Evidence.unknown(size) if part is None else part
            for part, (_, size) in zip(found, parts, strict=True)
        ]
        return Evidence(
            np.concatenate([part.may_true for part in full]),
            np.concatenate([part.may_false for part in full]),
            np.concatenate([part.may_null for part in full]),
        )

    return evidence_of
