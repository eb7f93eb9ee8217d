"""What statistics prove of row groups, pages and partitions: verdicts as tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.planning.partition_pruning import partition_evidence
from accel.planning.projection import project_schema
from accel.planning.pruning import prune_row_groups
from accel.planning.query import Question, compile_query
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
