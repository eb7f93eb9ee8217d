"""How selective a predicate is guessed to be: from sketches, from statistics, from rules of thumb."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.embedded import Sketches
from accel.planning.handle import FileHandle
from accel.planning.projection import project_schema
from accel.planning.pruning import prune_row_groups
from accel.planning.query import FileQuery, Question, compile_query
from accel.planning.selectivity import BELOW, EQUAL, Selectivity, Spread, place_of, spread_of
from accel.predicate.where import to_expr
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes

ROWS = 1000
TABLE = table(
    n=pa.array(range(ROWS)),
    half=pa.array([i if i % 2 else None for i in range(ROWS)]),
    x=pa.array([i / 10 for i in range(ROWS)]),
    s=pa.array([f"{'abcdefghij'[i * 10 // ROWS]}{i:04}" for i in range(ROWS)]),
    few=pa.array([i % 4 for i in range(ROWS)]),
    flag=pa.array([i % 5 == 0 for i in range(ROWS)]),
)
DATA = write_file(TABLE, Layout(group_rows=ROWS))


def ask(handle: FileHandle, where: str) -> FileQuery:
    schema = handle.arrow_schema
    query = compile_query(
        Question(to_expr(where), schema, project_schema(schema, ["n"]), ()),
        file_schema=handle.metadata.schema,
        arrow_schema=schema,
        partition={},
        url="u",
    )
    prune_row_groups(handle, query)
    return query


def guess(where: str, *, doubtful: int = ROWS, data: bytes = DATA) -> float:
    handle = Bytes(data).open()
    query = ask(handle, where)
    sketches = Sketches.of(handle, query, on_bad_index=pytest.fail)
    found = {} if sketches is None else sketches.of_group(0)
    return Selectivity(handle, query).share(0, doubtful=doubtful, sketches=found)


@pytest.mark.parametrize(
    ("where", "share"),
    [
        pytest.param("n = 7", 1 / ROWS, id="one of as many values as rows"),
        pytest.param("few = 1", 1 / 4, id="one of the values that fit between the bounds"),
        pytest.param("n IN (1, 2, 3)", 3 / ROWS, id="a list"),
        pytest.param("n <= 99", 0.1, id="a range from below"),
        pytest.param("n > 900", 0.1, id="a range from above"),
        pytest.param("n BETWEEN 200 AND 299", 0.1, id="a range with two ends"),
        pytest.param("x >= 10 AND x <= 20", 0.1, id="a range of floats"),
        pytest.param("n <= 499 AND x < 50", 0.25, id="two columns are taken to be independent"),
        pytest.param("n <= 499 OR x < 50", 0.75, id="either of two columns"),
        pytest.param("NOT n <= 99", 0.9, id="a negation"),
        pytest.param("half IS NULL", 0.5, id="nulls are counted"),
        pytest.param("half IS NOT NULL", 0.5, id="and their absence"),
        pytest.param("half <= 499", 0.25, id="a null matches nothing"),
        pytest.param("NOT half <= 499", 0.25, id="nor does its negation"),
        pytest.param("half > 200 AND half <= 400", 0.1, id="two ends among nulls"),
        pytest.param("s LIKE 'c%'", 0.1, id="a prefix is a range"),
        pytest.param("s LIKE 'c0277%'", 1 / ROWS, id="a long prefix is a value at least"),
        pytest.param("n = 7 AND n = 9", 1 / ROWS**2, id="nonsense is merely unlikely"),
    ],
)
def test_from_statistics(where: str, share: float) -> None:
    assert guess(where) == pytest.approx(share, rel=0.15)


def test_what_matches_lies_among_the_rows_in_doubt() -> None:
    assert guess("n = 7", doubtful=10) == pytest.approx(1 / 10)
    assert guess("n <= 99", doubtful=50) == 1.0


@pytest.mark.parametrize("where", ["s LIKE '%x%'", "x = 3.5", "n < few", "s = 'q'"])
def test_rules_of_thumb_are_modest(where: str) -> None:
    assert 0.0 < guess(where) < 0.5


def test_a_prefix_of_texts_that_begin_alike_is_not_placed() -> None:
    alike = table(s=pa.array([f"https://{i:06}" for i in range(ROWS)]), n=pa.array(range(ROWS)))
    assert guess("s LIKE 'https://0002%'", data=write_file(alike, Layout(group_rows=ROWS))) == 0.02


def test_a_sketch_knows_what_statistics_do_not(tmp_path: pathlib.Path) -> None:
    """Values that are not spread evenly: nine in ten are 5, the rest far apart."""
    skew = table(n=pa.array([5 if i % 10 else i * 1_000_003 for i in range(ROWS)]))
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source.write_bytes(write_file(skew, Layout(group_rows=ROWS)))
    accel.embed(str(source), str(target), indexes={"n": "sketch"})
    plain, sketched = source.read_bytes(), target.read_bytes()
    assert guess("n = 5", data=plain) < 0.01
    assert guess("n = 5", data=sketched) == pytest.approx(0.9, abs=0.05)
    assert guess("n <= 1000", data=sketched) == pytest.approx(0.9, abs=0.05)


def test_a_broken_sketch_is_told_of_and_passed_over(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source.write_bytes(DATA)
    accel.embed(str(source), str(target), indexes={"n": "sketch"})
    data = bytearray(target.read_bytes())
    handle = Bytes(bytes(data)).open()
    assert handle.toc is not None
    (entry,) = [e for e in handle.toc.entries if e.kind == "sketch"][:1]
    data[entry.offset + 9] ^= 1
    handle = Bytes(bytes(data)).open()
    query = ask(handle, "n = 7")
    told: list[Exception] = []
    sketches = Sketches.of(handle, query, told.append)
    assert sketches is not None
    assert sketches.of_group(0) == {}
    assert sketches.of_group(0) == {}
    assert len(told) == 1
    assert "checksum" in str(told[0])


def test_other_columns_have_no_say(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source.write_bytes(DATA)
    accel.embed(str(source), str(target), indexes={"n": "sketch"})
    handle = Bytes(target.read_bytes()).open()
    assert Sketches.of(handle, ask(handle, "x < 3"), pytest.fail) is None
    assert Sketches.of(Bytes(DATA).open(), ask(Bytes(DATA).open(), "n = 7"), pytest.fail) is None


def test_random_ranges_come_out_about_right() -> None:
    rng = np.random.default_rng(5)
    for low, high in np.sort(rng.integers(0, ROWS, (50, 2)), axis=1).tolist():
        share = guess(f"n >= {low} AND n <= {high}")
        assert share == pytest.approx((high - low + 1) / ROWS, abs=0.01)


# -- spread -----------------------------------------------------------------------------------------


SPREAD_TABLE = table(
    n=pa.array([5, None, 7, 20, 21, 22]),
    x=pa.array([0.5, 1.5, 2.5, None, None, None], pa.float64()),
    s=pa.array(["a", "b", "c", "x", "y", "z"]),
)
SPREAD_DATA = write_file(SPREAD_TABLE, Layout(group_rows=3))
N, X, S = range(3)


def planned() -> FileHandle:
    """A file whose statistics have been read for a question of all columns."""
    handle = Bytes(SPREAD_DATA).open()
    query = compile_query(
        Question(
            to_expr("n > 0 OR x > 0 OR s > ''"),
            handle.arrow_schema,
            project_schema(handle.arrow_schema, ["n"]),
            (),
        ),
        file_schema=handle.metadata.schema,
        arrow_schema=handle.arrow_schema,
        partition={},
        url="u",
    )
    prune_row_groups(handle, query)
    return handle


def test_each_row_group_has_its_own() -> None:
    view = planned().view
    assert spread_of(view, 0, N) == Spread(1 / 3, 2, 5.0, 7.0, True)
    assert spread_of(view, 1, N) == Spread(0.0, 3, 20.0, 22.0, True)
    assert spread_of(view, 0, X) == Spread(0.0, 3, 0.5, 2.5, False)


def test_nulls_alone_have_no_bounds() -> None:
    assert spread_of(planned().view, 1, X) == Spread(1.0, 0, None, None, False)


def test_text_lies_by_what_it_begins_with() -> None:
    spread = spread_of(planned().view, 0, S)
    assert (spread.lower, spread.upper) == (place_of(b"a"), place_of(b"c"))
    assert spread.below(place_of(b"b") or 0.0) == 0.5


@pytest.mark.parametrize("leaf", [None, N], ids=["no leaf", "statistics not read"])
def test_without_statistics_nothing_is_assumed(leaf: int | None) -> None:
    view = Bytes(SPREAD_DATA).open().view
    assert spread_of(view, 0, leaf) == Spread(0.0, 3, None, None, False)


@pytest.mark.parametrize(
    ("spread", "equal"),
    [
        pytest.param(Spread(0.0, 100, 1.0, 4.0, True), 1 / 4, id="as many as fit between the bounds"),
        pytest.param(Spread(0.0, 2, 1.0, 4.0, True), 1 / 2, id="as many as there are"),
        pytest.param(Spread(0.0, 100, 1.0, 4.0, False), EQUAL, id="no whole numbers"),
        pytest.param(Spread(0.0, 100, 1.0, None, True), EQUAL, id="one bound"),
        pytest.param(Spread(1.0, 0, 3.0, 3.0, True), 1.0, id="no value"),
    ],
)
def test_equal(spread: Spread, equal: float) -> None:
    assert spread.equal() == equal


@pytest.mark.parametrize(
    ("lower", "upper", "at", "below"),
    [
        pytest.param(0.0, 10.0, 2.5, 0.25, id="between"),
        pytest.param(0.0, 10.0, -1.0, 0.0, id="before all"),
        pytest.param(0.0, 10.0, 11.0, 1.0, id="behind all"),
        pytest.param(3.0, 3.0, 3.0, 1.0, id="the only value"),
        pytest.param(3.0, 3.0, 2.0, 0.0, id="before the only value"),
        pytest.param(None, 10.0, 2.5, BELOW, id="no lower bound"),
        pytest.param(0.0, None, 2.5, BELOW, id="no upper bound"),
        pytest.param(-math.inf, math.inf, 2.5, BELOW, id="without end"),
        pytest.param(math.nan, 1.0, 0.5, BELOW, id="not a number"),
    ],
)
def test_below(lower: float | None, upper: float | None, at: float, below: float) -> None:
    assert Spread(0.0, 10, lower, upper, False).below(at) == below


def test_places_follow_the_order_of_the_domain() -> None:
    texts = [b"", b"a", b"a\0b", b"ab", b"b", b"\xff" * 9]
    places = [place_of(text) for text in texts]
    assert all(place is not None for place in places) and places == sorted(
        places, key=lambda place: place or 0.0
    )
    assert [place_of(value) for value in (True, 7, -0.5)] == [1.0, 7.0, -0.5]
    assert [place_of(value) for value in (10**400, "text", None)] == [None, None, None]
