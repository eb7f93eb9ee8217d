"""The cases over data of the smallest scale: what they ask exists, is fresh, and survives JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.data.catalog import Catalog, make_catalog
from bench.data.scale import Scale
from bench.queries import from_json, to_json
from bench.suite import ACCEL, OVER_TLS, Axis, Case, Mode, cases, over_tls

TINY = Scale(
    name="tiny",
    lineitem=0.001,
    synthetic_rows=4_000,
    synthetic_groups=2,
    wide_columns=(5, 8),
    wide_groups=2,
    file_counts=(2, 3),
    file_rows=100,
    small_groups=40,
    group_rows=50,
    larger_files=3,
    larger_rows=150,
    at_once=4,
    by_spark=False,
)

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("tpchgen-cli").exists(),
    reason="no tpchgen-cli: pip install '.[bench]'",
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ACCEL_BENCH_DATA", str(folder))
        yield make_catalog(TINY)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(catalog: Catalog) -> list[Case]:
    return cases(catalog)


def test_data_is_made_once(catalog: Catalog) -> None:
    before = {path: path.stat().st_mtime_ns for _, path in catalog.objects()}
    make_catalog(TINY)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(next(iter(before)).parents[1].rglob("*.unfinished*"))


def test_every_writer_has_the_same_lines(catalog: Catalog) -> None:
    first, second = (
        pq.read_table(catalog.files[f"lineitem/{name}.parquet"]) for name in ("tpchgen", "accel")
    )
    assert second.column_names == [*first.column_names, "l_uid", "l_ref"]
    same = second.select(first.column_names).cast(first.schema)
    assert same.equals(first)


def test_cases_stand_once_at_each_place(made: list[Case]) -> None:
    places = [(case.name, case.at) for case in made]
    assert len(set(places)) == len(places)
    assert {case.axis for case in made} == set(Axis)
    assert {case.axis for case in made if case.swept} == set(Axis) - {Axis.NONE}


def test_what_is_asked_is_there(catalog: Catalog, made: list[Case]) -> None:
    for case in made:
        query = case.take()[0]
        for path in query.paths:
            file = catalog.files[path]
            schema = pq.read_schema(file if file.is_file() else next(file.iterdir()))
            names = {*(query.columns or ()), *(column for column, _, _ in query.where)}
            assert names <= set(schema.names), case.name


def test_queries_survive_json(made: list[Case]) -> None:
    for case in made:
        for query in (*case.take(), *case.met):
            assert from_json(to_json(query)) == query


def test_lookups_are_fresh(catalog: Catalog) -> None:
    again = {case.name: case for case in cases(catalog)}
    # One block is all that so small a file has: rows differ, but may be met twice.
    asked = [query.where for query in islice(again["many points"].fresh, 40)]
    assert len(set(asked)) == 40
    assert len(again["many points"].take()) == 4


def test_who_meets_a_file_meets_each_group(made: list[Case]) -> None:
    point = next(case for case in made if case.name == "point")
    assert point.modes == tuple(Mode)
    assert [query.where for query in point.met] == [(("key", "=", 60),), (("key", "=", 6060),)]


def test_ranges_begin_and_end_in_hundredths_of_their_own(catalog: Catalog) -> None:
    """As many as there are warm samples: else a cache of data would answer where none is meant to."""
    keys = catalog.column(ACCEL, "l_orderkey")
    for name, share in (("range 1%", 0.01), ("count", 0.095)):
        (case,) = (case for case in cases(catalog) if case.name == name)
        asked = [query.where for _ in range(80) for query in case.take()]
        ends = [value for where in asked for _, _, value in where]
        assert len({begin for begin, _ in asked}) == len({end for _, end in asked}) == 80
        if name == "count":
            assert len(set(ends)) == 160
        found = [int(((keys >= where[0][2]) & (keys < where[1][2])).sum()) / len(keys) for where in asked]
        assert min(found) > 0.8 * share and max(found) < 1.2 * share


def test_headline_cases_are_asked_over_tls_at_the_end(made: list[Case]) -> None:
    secure = [case for case in made if case.tls]
    assert made[-len(secure) :] == secure
    assert {case.name: case.modes for case in secure} == {over_tls(n): modes for n, modes in OVER_TLS.items()}
    plain = {over_tls(case.name): case for case in made if case.name in OVER_TLS}
    for case in secure:
        other = plain[case.name]
        assert (case.met, case.at_once, case.heavy) == (other.met, other.at_once, other.heavy)
