"""Queries of the benchmark go through JSON and come back the same."""

import datetime as dt

import pytest

from bench.queries import Query, from_json, to_json


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(Query("all", ("a.parquet",)), id="all"),
        pytest.param(Query("count", ("many/",), (), (("k", "=", 5),), count=True), id="count"),
        pytest.param(
            Query(
                "everything",
                ("a.parquet", "b.parquet"),
                ("x", "y"),
                (
                    ("d", ">=", dt.date(1994, 1, 1)),
                    ("t", "<", dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)),
                    ("n", "prefix", "ab"),
                    ("v", "<=", 0.05),
                    ("k", "in", (1, 2, 3)),
                    ("e", "in", (dt.date(1994, 1, 1), dt.date(1995, 1, 1))),
                ),
                row_groups=(3,),
            ),
            id="every kind of value",
        ),
    ],
)
def test_json_gives_the_same_query_back(query: Query) -> None:
    assert from_json(to_json(query)) == query


def test_json_is_one_line() -> None:
    assert "\n" not in to_json(Query("a", ("b",), where=(("s", "=", "x\ny"),)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"paths": ()}, "names no object"),
        ({"paths": ("a",), "where": (("k", "!=", 1),)}, "unknown operator '!='"),
    ],
)
def test_what_no_query_is(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Query("q", **fields)  # type: ignore[arg-type]


def test_values_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="no value"):
        to_json(Query("q", ("a",), where=(("k", "=", b"x"),)))
