"""Bounds of tuples never rule out a row that passes: any two columns, pages and conjunction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.arrays import mask, validity
from accel.indexes import ChunkValues, Level, Zonemap
from accel.indexes.question import LeafQuestion, question_of
from accel.predicate.atoms import AllOf, Negation
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.parser import parse

NAN = float("nan")
LONG = "z" * 63
POOLS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "int": (pa.int32(), [-5, 0, 1, 2, 7], ["0", "1", "-6", "7", "1.5"]),
    "double": (pa.float64(), [-0.0, 0.0, 1.5, NAN, float("inf")], ["0.0", "1.5", "2"]),
    "text": (
        pa.string(),
        ["", "a", LONG, LONG + "za", LONG + "zb", "\U0010ffff" * 20],
        ["''", "'a'", f"'{LONG}zaa'", f"'{LONG}zzz'"],
    ),
    "bool": (pa.bool_(), [True, False], ["TRUE", "FALSE"]),
}
TESTS = (
    "{} = {}",
    "{} < {}",
    "{} <= {}",
    "{} > {}",
    "{} >= {}",
    "{} <> {}",
    "{} IN ({}, NULL)",
    "{} IS NULL",
)


@st.composite
def leaves(draw: st.DrawFn, name: str, sort: str) -> str:
    form = draw(st.sampled_from(("{} = {}", "{} IS NULL", "{} <> {}") if sort == "bool" else TESTS))
    text = form.format(name, draw(st.sampled_from(POOLS[sort][2])))
    return f"NOT ({text})" if draw(st.booleans()) else text


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.StructArray, list[int], str, int]:
    sorts = [draw(st.sampled_from(sorted(POOLS))) for _ in range(draw(st.integers(2, 3)))]
    pools = [[*draw(st.lists(st.sampled_from(POOLS[s][1]), min_size=1, max_size=3)), None] for s in sorts]
    rows = draw(st.lists(st.tuples(*(st.sampled_from(pool) for pool in pools)), min_size=1, max_size=12))
    arrays = [pa.array([row[i] for row in rows], POOLS[sort][0]) for i, sort in enumerate(sorts)]
    starts = sorted({0, *draw(st.lists(st.integers(0, len(rows) - 1), max_size=4))})
    names = "abc"[: len(sorts)]
    texts = [draw(leaves(name, sort)) for name, sort in zip(names, sorts, strict=True)]
    texts += [draw(leaves("a", sorts[0]))] if draw(st.booleans()) else []
    return (
        pa.StructArray.from_arrays(arrays, names=list(names)),
        starts,
        " AND ".join(texts),
        draw(st.integers(1, 4)),
    )


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(cases())
def test_no_unit_is_ruled_out_that_has_a_row(case: tuple[pa.StructArray, list[int], str, int]) -> None:
    array, starts, where, every = case
    names = [field.name for field in array.type]
    kind = Zonemap(columns=(f"({', '.join(names)})",))
    first = np.array(starts, np.int64)
    bound = bind(parse(where), pa.schema(list(array.type)))
    columns = {(name,): column for name, column in zip(names, array.flatten(), strict=True)}
    rows = outcome(bound, columns, len(array))
    true = mask(rows) & validity(rows)
    operands = bound.root.operands if isinstance(bound.root, AllOf) else (bound.root,)
    asked: list[tuple[LeafQuestion, bool]] = []
    for operand in operands:
        leaf, truth = (operand.operand, False) if isinstance(operand, Negation) else (operand, True)
        if not hasattr(leaf, "column"):
            continue
        question = question_of(leaf, bound.columns[leaf.column])
        if question is not None:
            asked.append((question, truth))
    stops = [*starts[1:], len(array)]
    cut = starts[::every]
    runs = [
        ChunkValues(array.slice(a, b - a), first[(first >= a) & (first < b)] - a, b - a)
        for a, b in zip(cut, [*cut[1:], len(array)], strict=True)
    ]
    for level, units in (
        (Level.PAGE, list(zip(starts, stops, strict=True))),
        (Level.FILE, [(0, len(array))]),
    ):
        parsed = kind.parse(kind.build(iter(runs), level=level), level=level, units=len(units))
        evidence = parsed.prune_all(asked)
        if evidence is None:
            continue
        assert len(evidence) == len(units)
        for at, (a, b) in enumerate(units):
            assert evidence.may_true[at] or not true[a:b].any(), (where, array.slice(a, b - a).to_pylist())


def test_what_single_bounds_cannot_tell() -> None:
    rows = [(4, 80), (4, 90), (5, 3), (5, 9), (6, 1)]
    array = pa.array([{"a": a, "b": b} for a, b in rows], pa.struct({"a": pa.int64(), "b": pa.int64()}))
    kind = Zonemap(columns=("(a, b)",))
    data = kind.build(iter([ChunkValues(array, np.array([0, 3]), 5)]), level=Level.PAGE)
    parsed = kind.parse(data, level=Level.PAGE, units=2)
    schema = pa.schema(list(array.type))

    def hit(where: str) -> list[bool] | None:
        bound = bind(parse(where), schema)
        asked = []
        for operand in bound.root.operands:  # type: ignore[union-attr]
            leaf, truth = (operand.operand, False) if isinstance(operand, Negation) else (operand, True)
            question = question_of(leaf, bound.columns[leaf.column])
            assert question is not None
            asked.append((question, truth))
        evidence = parsed.prune_all(asked)
        return None if evidence is None else evidence.may_true.tolist()

    assert hit("a = 5 AND b > 7") == [False, True]
    assert hit("a = 4 AND b < 80") == [False, False]
    assert hit("a = 5 AND b <= 3") == [True, False]
    assert hit("b = 5 AND b > 3") is None
