"""A directory with dates in one file and timestamps in another answers as if all were timestamps."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import Layout, write_file

ROWS = 400
FIRST = datetime.date(2024, 1, 1)
DAYS = [None if row % 17 == 3 else FIRST + datetime.timedelta(days=row * 7 % 60 - 10) for row in range(ROWS)]
WIDER = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
PREDICATES = [
    None,
    "d = '2024-01-05'",
    "d = DATE '2024-01-05'",
    "d = '2024-01-05 12:00:00'",
    "d > '2024-01-05 12:00:00'",
    "d >= TIMESTAMP '2024-01-05 00:00:00'",
    "d < TIMESTAMP '2024-01-05 00:00:01'",
    "d BETWEEN '2024-01-03' AND '2024-01-04 23:59:59'",
    "d IN ('2024-01-05', '2024-01-06 01:00:00')",
    "NOT d IN ('2024-01-05')",
    "NOT d > '2024-01-05'",
    "d IS NULL",
    "d IS DISTINCT FROM '2024-01-05'",
    "d < other",
    "d > '2031-01-01'",
]


Alike = Callable[[pa.DataType, str | None], list[list[Any]]]


def table(kind: pa.DataType) -> pa.Table:
    days = pa.array(DAYS, pa.date32())
    others = pa.array([FIRST + datetime.timedelta(days=row % 9) for row in range(ROWS)], pa.date32())
    return pa.Table.from_arrays([pa.array(range(ROWS)), days.cast(kind), others], names=["n", "d", "other"])


def folder(path: Path, *kinds: pa.DataType, index: str | None = None) -> str:
    """Rows cut in as many files as there are types."""
    step = ROWS // len(kinds)
    path.mkdir()
    for at, kind in enumerate(kinds):
        file = path / f"{at}.parquet"
        file.write_bytes(write_file(table(kind).slice(at * step, step), Layout(group_rows=100, page_rows=20)))
        if index is not None:
            accel.embed(file, indexes={"d": index})
    return str(path)


def answers(url: str, where: str | None, **more: Any) -> list[Any]:
    options = accel.Options(probe_min_bytes=0)
    scan = accel.scan(url, where, cache=accel.Cache(), options=options, **more)
    bounds = scan.aggregate([("d", "min"), ("d", "max"), ("d", "count")])
    return [scan.to_table().to_pydict(), scan.count_rows(), bounds.to_pydict(), scan.schema]


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Alike:
    """The answers of files that both have timestamps, whichever dates they are compared with."""

    @cache
    def found(to: pa.DataType, index: str | None) -> list[list[Any]]:
        url = folder(tmp_path_factory.mktemp("alike") / "files", to, to, index=index)
        return [answers(url, where) for where in PREDICATES]

    return found


@pytest.mark.parametrize("index", [None, "distinct", "bitmap", "zonemap"])
@pytest.mark.parametrize("to", WIDER, ids=str)
@pytest.mark.parametrize("have", [pa.date32(), pa.date64()], ids=str)
def test_every_answer_is_that_of_timestamps(
    tmp_path: Path, alike: Alike, to: pa.DataType, have: pa.DataType, index: str | None
) -> None:
    mixed = folder(tmp_path / "mixed", to, have, index=index)
    for where, expected in zip(PREDICATES, alike(to, index), strict=True):
        assert answers(mixed, where) == expected, where


@pytest.mark.parametrize("to", WIDER[1:], ids=str)  # Parquet has no seconds
def test_a_schema_given_widens_both(tmp_path: Path, to: pa.DataType) -> None:
    dates = folder(tmp_path / "dates", pa.date32(), pa.date64())
    alike = folder(tmp_path / "alike", to, to)
    schema = table(to).schema
    for where in PREDICATES:
        assert answers(dates, where, schema=schema) == answers(alike, where, schema=schema), where


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.date32()),
        (pa.date32(), pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_what_would_lose_or_guess_is_refused(tmp_path: Path, kinds: tuple[pa.DataType, ...]) -> None:
    url = folder(tmp_path / "mixed", *kinds)
    with pytest.raises(accel.SchemaMismatchError, match=r"1\.parquet: column 'd' is .* \(give `schema="):
        accel.scan(url).to_table()
