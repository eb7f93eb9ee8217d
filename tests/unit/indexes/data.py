"""Columns and questions for this folder's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from accel.indexes.kind import ChunkValues
from accel.indexes.question import LeafQuestion, question_of
from accel.predicate.bind import bind
from accel.predicate.parser import parse
from accel.predicate.prune import Evidence

TRUE, FALSE, NULL = "T", "F", "N"


def pages(*values: Sequence[Any], type: pa.DataType | None = None) -> ChunkValues:
    """A row group whose pages hold these values."""
    array = pa.array([v for page in values for v in page], type)
    first = np.cumsum([0, *(len(page) for page in values[:-1])]).astype(np.int64)
    return ChunkValues(array, first, len(array))


def ask_for(where: str, kind: pa.DataType) -> LeafQuestion:
    """The question that a predicate of one atom over column x is."""
    bound = bind(parse(where), pa.schema([("x", kind)]))
    question = question_of(bound.root, bound.columns[0])
    assert question is not None, where
    return question


def shown(evidence: Evidence | None) -> list[str] | None:
    """For each unit the outcomes that are allowed, as letters of T, F and N."""
    if evidence is None:
        return None
    flags = zip(evidence.may_true, evidence.may_false, evidence.may_null, strict=True)
    return ["".join(c for c, flag in zip("TFN", unit, strict=True) if flag) for unit in flags]
