"""Files passed over many at a time: plans, explanations, metrics and rows are those of planning one by
one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel
from accel.errors import AccelError
from accel.planning.pruning import excluded_files
from accel.reader.footer_prefetch import FooterPrefetcher
from accel.scanning.file_stream import FileStream
from accel.testing import DictStore, Layout, table, write_file

NAN = math.nan


def narrow(first: int) -> pa.Table:
    """The usual columns: whole numbers, texts, floats, flags; twelve rows from `first` on."""
    numbers = list(range(first, first + 12))
    return table(
        a=pa.array([None if n % 7 == 3 else n for n in numbers], pa.int32()),
        s=pa.array([None if n % 5 == 0 else f"s{n:02d}" for n in numbers], pa.string()),
        f=pa.array([NAN if n % 4 == 0 else n / 2 for n in numbers], pa.float64()),
        b=pa.array([n % 2 == 0 for n in numbers], pa.bool_()),
    )


def files() -> dict[str, bytes]:
    """Files that agree and files that do not: in types, columns, statistics, row groups."""
    small = Layout(group_rows=4, page_rows=2)
    lone = narrow(40).slice(0, 4)
    wide = narrow(20)
    wide = wide.set_column(0, "a", wide["a"].cast(pa.int64()))
    made = {
        "p=1/a": write_file(narrow(0), small),
        "p=1/b": write_file(narrow(12), small),
        "p=2/c": write_file(narrow(24), small),
        "p=2/wide": write_file(wide, small),
        "p=3/lacking": write_file(narrow(30).select(["a", "b"]), small),
        "p=3/without statistics": write_file(narrow(8), Layout(group_rows=4, page_rows=2, statistics=False)),
        "p=3/without an index": write_file(narrow(16), Layout(group_rows=6, page_index=False)),
        "p=4/nothing": write_file(narrow(0).slice(0, 0), small),
        "p=4/one group": write_file(lone, Layout(group_rows=4)),
        "p=4/all null": write_file(
            table(
                **{name: pa.nulls(4, kind.type) for name, kind in zip("asfb", narrow(0).schema, strict=True)}
            ),
            small,
        ),
        "p=__HIVE_DEFAULT_PARTITION__/a": write_file(narrow(4), small),
        "p=5/text": write_file(table(a=pa.array(["x", "y"])), small),
    }
    return {f"d/{path}.parquet": data for path, data in made.items()}


FILES = files()
SCHEMA = pa.schema(
    [("a", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_()), ("p", pa.int64())]
)

numbers = st.integers(-2, 46)
atoms = st.one_of(
    st.builds("a {} {}".format, st.sampled_from(["=", "<", ">=", "<>", ">"]), numbers),
    st.builds("a IN ({}, {}, {})".format, numbers, numbers, numbers),
    st.builds("s {} 's{:02d}'".format, st.sampled_from(["=", "<=", ">"]), st.integers(0, 45)),
    st.builds("s LIKE 's{}%'".format, st.integers(0, 4)),
    st.builds("f {} {}".format, st.sampled_from(["=", "<", ">"]), st.sampled_from([0.5, 6, 21.5, "'NaN'"])),
    st.builds("p {} {}".format, st.sampled_from(["=", ">", "<>"]), st.integers(0, 6)),
    st.sampled_from(["a IS NULL", "s IS NOT NULL", "f IS NULL", "b", "NOT b", "p IS NULL", "a = 1000"]),
)
predicates = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@contextmanager
def one_by_one() -> Iterator[None]:
    """The plain way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStream, "prune", lambda self, files, question, found: None)
        patch.setattr(FooterPrefetcher, "ask", lambda self, file: None)
        yield


def facts(plan: accel.Plan) -> Any:
    """All that a plan says."""
    tasks = [
        (
            task.file.url,
            task.row_group,
            list(task.rows),
            list(task.certain),
            [(r.leaf, r.for_filter, r.for_output, r.ordinal.tolist(), r.chunk) for r in task.reads],
            {name: value.as_py() for name, value in task.file.query.output_constants.items()},
        )
        for task in plan.tasks
    ]
    return tasks, plan.schema, str(plan.explain())


def outcome(chosen: list[str], where: str, cached: list[str], **keywords: Any) -> Any:
    """What planning and scanning come to, some of the files being cached."""
    store, cache = DictStore(FILES), accel.Cache(data=0)
    named = {"store": store, "cache": cache, "schema": SCHEMA, "partitioning": "hive", **keywords}
    for path in cached:
        accel.plan([path], columns=[], store=store, cache=cache)
    out: list[Any] = []
    try:
        out.append(facts(accel.plan(chosen, where, **named)))
    except AccelError as error:
        out.append((type(error), str(error)))
    scan = accel.scan(chosen, where, **named)
    try:
        out.append(scan.to_table().to_pylist())
        out.append({k: v for k, v in scan.metrics.as_dict().items() if "bytes" not in k})
    except AccelError as error:
        out.append((type(error), str(error)))
    return repr(out)  # NaN is not itself, but is spelt alike


sound = [path for path in FILES if not path.endswith("text.parquet")]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(sound), min_size=2, max_size=9),
    predicates,
    st.sets(st.sampled_from(sound)),
)
def test_passing_over_is_planning_one_by_one(chosen: list[str], where: str, cold: set[str]) -> None:
    # Files that are not cached are planned one by one among those that are.
    cached = [path for path in dict.fromkeys(chosen) if path not in cold] if len(cold) < 4 else chosen
    fast = outcome(chosen, where, cached)
    with one_by_one():
        assert outcome(chosen, where, cached) == fast


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(predicates, st.integers(1, 8))
def test_the_same_under_a_limit_and_without_order(where: str, limit: int) -> None:
    def rows(**keywords: Any) -> Any:
        store, cache = DictStore(FILES), accel.Cache(data=0)
        accel.plan(sound, columns=[], store=store, cache=cache)
        scan = accel.scan(sound, where, schema=SCHEMA, store=store, cache=cache, **keywords)
        found = [repr(row) for row in scan.to_table().to_pylist()]
        return found if keywords.get("order", True) else sorted(found), scan.count_rows()

    fast = rows(limit=limit), rows(order=False)
    with one_by_one():
        assert (rows(limit=limit), rows(order=False)) == fast


@pytest.mark.parametrize("where", ["a = 5", "a = 1000", "p = 5", "p = 1 AND a = 5", "s = 'x'"])
@pytest.mark.parametrize("place", [0, 3, len(FILES) - 1])
def test_a_file_that_does_not_fit_is_told_of_alike(where: str, place: int) -> None:
    """A column of texts where the data set has numbers; no screening keeps that from being told, or tells it
    twice."""
    chosen = sound[:place] + ["d/p=5/text.parquet"] + sound[place:]
    fast = outcome(chosen, where, chosen)
    assert ("SchemaMismatchError" in fast) is (where != "p = 1 AND a = 5")
    with one_by_one():
        assert outcome(chosen, where, chosen) == fast


def test_files_are_passed_over_at_all() -> None:
    """Or the tests above compare the plain way with itself."""
    judged: list[tuple[int, int]] = []

    def spy(handles: Any, query: Any) -> list[bool]:
        found = excluded_files(handles, query)
        judged.append((len(found), sum(found)))
        return found

    store, cache = DictStore(FILES), accel.Cache()
    chosen = sound[:3]
    accel.plan(chosen, columns=[], store=store, cache=cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.scanning.block_pruning.excluded_files", spy)
        plan = accel.plan(chosen, "a = 5", store=store, cache=cache)
    # The first file is the question's.
    assert judged == [(2, 2)]
    assert [task.row_group for task in plan.tasks] == [1]
    assert plan.explain().files == (1, 3)
    assert plan.explain().row_groups == (1, 9)
