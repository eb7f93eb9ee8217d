"""`idx1`: the index of DataFusion's example, which lists the distinct texts of a file.

It proves absence only. It never lists NULL, and a text with a line end becomes several texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from accel.errors import SchemaMismatchError
from accel.format.embedded import encode_idx1, parse_idx1
from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.indexes.native import Tag, native_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.predicate.prune import Evidence

__all__ = ["Idx1", "ParsedIdx1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idx1(IndexKind):
    """The distinct texts of a column, as the DataFusion example writes them."""

    name: ClassVar[str] = "idx1"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN})

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        texts: set[bytes] = set()
        for chunk in chunks:
            if tag_of(chunk.array.type) is not Tag.BYTES:
                raise SchemaMismatchError(f"idx1 lists texts, not values of type {chunk.array.type}")
            texts.update(native_values(chunk.array).tolist())
        return encode_idx1(text.decode() for text in texts)

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedIdx1:
        return ParsedIdx1(parse_idx1(data))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedIdx1:
    """A parsed `IDX1` index."""

    texts: frozenset[bytes]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.texts)) + 100 * len(self.texts) + 256

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if question.op not in (LeafOp.EQ, LeafOp.IN) or question.tag is not Tag.BYTES:
            return None
        # Other writers may have added a text with a line end, or an empty one, without a sign of it.
        may = any(v in self.texts or not v or b"\n" in v or v.endswith(b"\r") for v in question.values)
        return Evidence(np.array([may]), np.ones(1, bool), np.ones(1, bool))

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        return {"values": len(self.texts)}
