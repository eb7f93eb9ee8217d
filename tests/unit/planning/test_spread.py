"""How a column's values lie in a row group: from statistics, and where there are none."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from accel.planning.handle import FileHandle
from accel.planning.projection import project_schema
from accel.planning.pruning import prune_row_groups
from accel.planning.query import Question, compile_query
from accel.planning.selectivity import BELOW, EQUAL, Spread, place_of, spread_of
from accel.predicate.where import to_expr
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes

TABLE = table(
    n=pa.array([5, None, 7, 20, 21, 22]),
    x=pa.array([0.5, 1.5, 2.5, None, None, None], pa.float64()),
    s=pa.array(["a", "b", "c", "x", "y", "z"]),
)
DATA = write_file(TABLE, Layout(group_rows=3))
N, X, S = range(3)


def planned() -> FileHandle:
    """A file whose statistics have been read for a question of all columns."""
    handle = Bytes(DATA).open()
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
    view = Bytes(DATA).open().view
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
