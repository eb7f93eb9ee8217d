"""Sample tables are the same in every run, and have the values that tests rely on."""

from __future__ import annotations

import random

from tests.support.arrow import same
from tests.support.sample_table import TYPES, everything, flights_table, predicate


def test_tables_are_repeatable() -> None:
    first, second = everything(200), everything(200)
    assert [name for name in first.column_names if not same(first[name], second[name])] == []
    assert flights_table(1000).equals(flights_table(1000))


def test_everything_has_the_columns_of_random_predicates() -> None:
    assert set(TYPES) <= set(everything(200).column_names)
    assert predicate(random.Random(3)) == predicate(random.Random(3))


def test_flights_look_like_flights() -> None:
    flights = flights_table(5000)
    assert flights.num_rows == 5000
    months = flights["month"].to_pylist()
    assert months == sorted(months)
    assert set(months) == set(range(1, 13))
    assert flights["dep_delay"].null_count == flights["dep_time"].null_count > 0
