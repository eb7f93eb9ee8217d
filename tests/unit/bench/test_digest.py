"""The values of an answer, by which systems are compared."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from bench.peers.digest import MOST_ROWS, digest

MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
ANSWER = pa.table(
    {
        "key": pa.array([1, 2], pa.int64()),
        "name": ["a", None],
        "price": pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(15, 2)),
        "at": pa.array([MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        "day": [dt.date(1992, 1, 1)] * 2,
    }
)


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(ANSWER.take(pa.array([1, 0])), id="other order of rows"),
        pytest.param(ANSWER.select(["day", "at", "price", "name", "key"]), id="other order of columns"),
        pytest.param(ANSWER.set_column(0, "key", ANSWER["key"].cast(pa.int32())), id="narrower integers"),
        pytest.param(ANSWER.set_column(1, "name", ANSWER["name"].cast(pa.string_view())), id="string views"),
        pytest.param(
            ANSWER.set_column(2, "price", ANSWER["price"].cast(pa.decimal128(20, 4))), id="more digits"
        ),
        pytest.param(
            ANSWER.set_column(3, "at", pa.array([MOMENT.replace(tzinfo=None)] * 2, pa.timestamp("ms"))),
            id="moments without a zone",
        ),
        pytest.param(ANSWER.to_batches(max_chunksize=1), id="batches"),
        pytest.param([ANSWER.slice(0, 1), ANSWER.slice(1)], id="tables"),
    ],
)
def test_the_same_values_have_the_same_digest(same: object) -> None:
    assert digest(same) == digest(ANSWER) != ""


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(ANSWER.slice(1), id="fewer rows"),
        pytest.param(ANSWER.set_column(0, "key", pa.array([1, 3])), id="another value"),
        pytest.param(ANSWER.set_column(1, "name", pa.array(["a", ""])), id="empty, not null"),
        pytest.param(ANSWER.drop_columns(["day"]), id="fewer columns"),
        pytest.param(ANSWER.set_column(1, "name", pa.array([None, "a"])), id="values of other rows"),
    ],
)
def test_other_values_have_another(other: pa.Table) -> None:
    assert digest(other) != digest(ANSWER)


def test_a_frame_of_polars() -> None:
    polars = pytest.importorskip("polars")
    assert digest(polars.from_arrow(ANSWER)) == digest(ANSWER)


@pytest.mark.parametrize("untold", [None, pa.table({"a": range(MOST_ROWS + 1)})], ids=["nothing", "too long"])
def test_what_is_not_told(untold: object) -> None:
    assert digest(untold) == ""


def test_no_batch_is_no_row() -> None:
    assert digest([]) == digest(ANSWER.slice(0, 0)) == digest(pa.table({"a": pa.array([], pa.int64())}))
