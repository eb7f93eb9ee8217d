"""What statistics prove of row groups, pages and partitions: verdicts as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.format.bounds import chunk_bounds
from accel.format.domain import Bounds
from accel.format.model import ParquetSchema
from accel.planning import pruning
from accel.planning.handle import FileHandle
from accel.planning.partition_pruning import partition_evidence
from accel.planning.projection import project_schema
from accel.planning.pruning import excluded_files, group_bounds, prune_row_groups
from accel.planning.query import FileQuery, Question, compile_query
from accel.predicate.prune import Verdict
from accel.predicate.where import to_expr
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes

NONE, SOME, ALL = Verdict.NONE, Verdict.SOME, Verdict.ALL
# Groups of four: 0..3, 4..7 with a null, nulls alone.
DATA = write_file(
    table(
        n=pa.array([0, 1, 2, 3, 4, None, 6, 7, None, None, None, None]),
        s=pa.array(["a", "a", "a", "a", "b", "c", "d", "e", "x", "y", "z", None]),
    ),
    Layout(group_rows=4),
)


@pytest.mark.parametrize(
    ("where", "verdicts"),
    [
        (None, [ALL, ALL, ALL]),
        ("n >= 0", [ALL, SOME, NONE]),
        ("n > 3", [NONE, SOME, NONE]),
        ("n = 2", [SOME, NONE, NONE]),
        ("n IS NULL", [NONE, SOME, ALL]),
        ("n IS NOT NULL", [ALL, SOME, NONE]),
        ("NOT (n > 3)", [ALL, NONE, NONE]),
        ("s = 'a'", [ALL, NONE, NONE]),
        ("s = 'a' OR n IS NULL", [ALL, SOME, ALL]),
        ("n > 100", [NONE, NONE, NONE]),
        ("n IN (1, 6)", [SOME, SOME, NONE]),
        ("p = 7", [ALL, ALL, ALL]),
        ("p = 8 OR n = 2", [SOME, NONE, NONE]),
        ("missing IS NULL", [ALL, ALL, ALL]),
        ("missing = 1", [NONE, NONE, NONE]),
    ],
)
def test_row_groups(where: str | None, verdicts: list[Verdict]) -> None:
    handle = Bytes(DATA).open()
    partition = {"p": pa.scalar(7, pa.int64())}
    schema = pa.schema([*handle.arrow_schema, ("missing", pa.int64()), ("p", pa.int64())])
    question = Question(to_expr(where), schema, project_schema(schema, ["n"]), ("p",))
    query = compile_query(
        question,
        file_schema=handle.metadata.schema,
        arrow_schema=handle.arrow_schema,
        partition=partition,
        url="u",
    )
    assert [Verdict(int(v)) for v in prune_row_groups(handle, query)] == verdicts


@pytest.mark.parametrize(
    ("where", "may"),
    [
        ("p = 7", True),
        ("p = 8", False),
        ("p = 8 OR other = 1", True),
        ("p = 7 AND other = 1", True),
        ("p = 8 AND other = 1", False),
        ("q IS NULL", True),
        ("q IS NOT NULL", False),
        ("NOT (p = 7)", False),
        ("NOT (q = 1)", False),
        # Two columns, of which a file may hold one, or both.
        ("p = other", True),
        ("other > p", True),
        ("p = 8 AND p = other", False),
        ("p < q", False),
    ],
)
def test_partitions(where: str, may: bool) -> None:
    values = {"p": pa.scalar(7, pa.int64()), "q": pa.scalar(None, pa.int64())}
    assert bool(partition_evidence(to_expr(where), values).may_true[0]) is may


# -- excluded files ---------------------------------------------------------------------------------


SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def opened(
    numbers: Sequence[int | None], texts: Sequence[str | None], layout: Layout | None = None
) -> FileHandle:
    data = table(n=pa.array(numbers, pa.int64()), s=pa.array(texts, pa.string()))
    return Bytes(write_file(data, layout or Layout(group_rows=2))).open()


def of_schema(handle: FileHandle, schema: ParquetSchema) -> FileHandle:
    """The same file, its schema the very object that others have."""
    metadata = replace(handle.metadata, schema=schema)
    return FileHandle(handle.id, metadata, arrow_schema=handle.arrow_schema, tail_start=handle.tail_start)


HANDLES = [
    opened([0, 1, 2, 3], ["a", "a", "b", "b"]),
    opened([4, 5, 6, 7], ["c", "c", None, None]),
    opened([], []),
    opened([8, 9], ["d", "d"]),
    opened([None, None, 1, 1], ["e", "f", "g", "h"]),
    opened([2, 2, 2, 2], ["z"] * 4, Layout(group_rows=2, statistics=False)),
    opened([2, 2, 2, 2], ["z"] * 4, Layout(group_rows=2, statistics=["n"])),
]


def query_of(where: str | None, partition: dict[str, pa.Scalar] | None = None) -> FileQuery:
    data_set = pa.schema([*SCHEMA, ("lacking", pa.int64()), ("p", pa.int64())])
    question = Question(to_expr(where), data_set, project_schema(data_set, ["n"]), ("p",))
    return compile_query(
        question,
        file_schema=HANDLES[0].metadata.schema,
        arrow_schema=HANDLES[0].arrow_schema,
        partition=partition or {},
        url="u",
    )


PREDICATES = [
    None,
    "n = 5",
    "n > 7",
    "n < 0",
    "n IN (1, 9)",
    "n IS NULL",
    "n IS NOT NULL",
    "s = 'a'",
    "s LIKE 'z%'",
    "s IS NULL OR n = 9",
    "NOT (n > 3) AND s < 'b'",
    "lacking = 1",
    "lacking IS NULL",
    "p = 7",
    "p = 8",
    "p = 8 OR n = 4",
    "p = 7 AND n = 4",
    "FALSE",
]


@pytest.mark.parametrize("where", PREDICATES)
@pytest.mark.parametrize("order", [1, -1])
def test_together_as_alone(where: str | None, order: int) -> None:
    query = query_of(where, {"p": pa.scalar(7, pa.int64())})
    handles = HANDLES[::order]
    alone = [
        query.bound is not None and bool((prune_row_groups(handle, query) == Verdict.NONE).all())
        for handle in handles
    ]
    assert excluded_files(handles, query) == alone


def test_bounds_of_two_forms_stay_apart() -> None:
    """One file's chunks have statistics, the other's have none: their numbers are not of one kind."""
    query = query_of("n = 2 AND s = 'y'")
    assert excluded_files(HANDLES[4:], query) == [True, False, False]


def test_nothing_to_judge() -> None:
    assert excluded_files([], query_of("n = 1")) == []
    assert excluded_files(HANDLES[2:3], query_of("n = 1")) == [True]


@pytest.mark.parametrize("where", ["n = 5", "s = 'c'"])
def test_bounds_found_together_are_those_found_alone(where: str) -> None:
    query = query_of(where)
    ((_, leaf, kind),) = query.prunable
    many = [opened(list(range(i, i + 5)), [f"s{i}", None, "b", "c", "d"]) for i in range(9)]
    many = [of_schema(handle, many[0].shared.schema) for handle in many]
    excluded_files(many, query)
    for handle in many:
        assert handle.statistics is not None
        found = group_bounds(handle, leaf, kind=kind)
        alone = chunk_bounds(handle.metadata, leaf, arrow_type=kind)
        for name in (field.name for field in fields(Bounds) if field.init):
            one, other = getattr(found, name), getattr(alone, name)
            if name == "domain":
                assert one is other
                continue
            if other is None:
                assert one is None, name
                continue
            assert one.dtype == other.dtype, name
            assert one.tolist() == other.tolist(), name


@pytest.mark.parametrize("where", ["s = 'x'", "n = 50 AND s = 'x' OR s > 'x'"])
@pytest.mark.parametrize("unlike", [0, 1, 6, 11])
def test_files_whose_columns_have_no_order_keep_their_rows(where: str, unlike: int) -> None:
    """All are of one schema object; of one file nothing is known of the order that its bounds are of."""
    schema = HANDLES[0].metadata.schema
    many = [of_schema(opened([i, i + 1], ["a", "b"]), schema) for i in range(12)]
    odd = many[unlike].metadata
    odd = replace(odd, column_orders=np.zeros_like(odd.column_orders))
    many[unlike] = FileHandle(
        many[unlike].id, odd, arrow_schema=many[unlike].arrow_schema, tail_start=many[unlike].tail_start
    )
    assert excluded_files(many, query_of(where)) == [place != unlike for place in range(12)]


@pytest.mark.parametrize("where", ["n = 5", "s = 'c'", "n > 3 AND s < 'x'", "n = 5 OR p = 7"])
def test_files_judged_again_in_whatever_company_are_judged_alike(where: str) -> None:
    schema = HANDLES[0].metadata.schema
    many = [opened(list(range(i, i + 5)), [f"s{i}", None, "b", "c", "d"]) for i in range(24)]
    many = [of_schema(handle, schema) for handle in many]
    query = query_of(where, {"p": pa.scalar(8, pa.int64())})
    alone = [not (prune_row_groups(handle, query) != Verdict.NONE).any() for handle in many]
    for handle in many:
        handle.view.chunk_bounds.clear()
    every = list(range(24))
    for chosen in (every, every, every[4:], every[::-1], every[::2], every[:3], every, [5, 5, 6, *every]):
        for other in ("n = 1 AND s = 'x'", where):
            other_query = query_of(other, {"p": pa.scalar(8, pa.int64())})
            found = excluded_files([many[i] for i in chosen], other_query)
            if other == where:
                assert found == [alone[i] for i in chosen], chosen
    assert [not (prune_row_groups(handle, query) != Verdict.NONE).any() for handle in many] == alone


@pytest.mark.parametrize("where", ["n = 5", "s = 'c'", "n > 3 AND s < 'x'", "n = 5 OR p = 7", "p = 8"])
def test_what_was_judged_in_a_block_is_not_judged_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> list[FileHandle]:
        schema = HANDLES[0].metadata.schema
        many = [opened(list(range(i, i + 5)), [f"s{i}", None, "b", "c", "d"]) for i in range(12)]
        return [of_schema(handle, schema) for handle in many]

    constants = {"p": pa.scalar(8, pa.int64())}
    query, other = query_of(where, constants), query_of("n = 1 AND s = 'x'", constants)
    due = [prune_row_groups(handle, query).tolist() for handle in made()]
    due_other = [prune_row_groups(handle, other).tolist() for handle in made()]
    many = made()
    judged: list[int] = []
    prune = pruning.prune

    def counted(bound: Any, bounds: Any, n: int, **more: Any) -> Any:
        judged.append(n)
        return prune(bound, bounds, n, **more)

    monkeypatch.setattr(pruning, "prune", counted)
    excluded_files(many, query)
    units = sum(map(len, due))
    assert judged == [units]
    assert [prune_row_groups(handle, query).tolist() for handle in many] == due
    # Without a bound of any column nothing is shared.
    assert len(judged) == (1 if query.prunable else 13)
    assert [prune_row_groups(handle, other).tolist() for handle in many] == due_other
    excluded_files(many[::-1], other)
    assert [prune_row_groups(handle, query).tolist() for handle in many] == due
    assert [prune_row_groups(handle, other).tolist() for handle in many] == due_other


def test_another_column_is_learned_together_too() -> None:
    """Files on a statistics get it in addition, and none of them is laid out for it."""
    schema = HANDLES[0].shared.schema
    many = [of_schema(opened([i, i + 1], [f"s{i}", f"t{i}"]), schema) for i in range(10)]
    for where, kept in (("n = 3", {2, 3}), ("s = 's3'", {0, 1, 2, 3}), ("s = 's4' AND n = 4", {3, 4})):
        found = excluded_files(many, query_of(where))
        assert {place for place, excluded in enumerate(found) if not excluded} == kept
        statistics = many[0].statistics
        assert statistics is not None and statistics.holds(many)
    assert sorted(statistics.bounds) == [0, 1]
    assert [handle.has_view for handle in many] == [place == 3 for place in range(10)]
