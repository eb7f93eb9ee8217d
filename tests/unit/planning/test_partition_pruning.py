"""What partition values of paths exclude, and that each combination is worked out once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from accel.errors import SchemaMismatchError
from accel.planning import partition_pruning as module
from accel.planning.file_entry import FileEntry
from accel.planning.partition_pruning import PartitionValues
from accel.planning.query import Question
from accel.predicate.where import to_expr

LISTED = pa.schema([("year", pa.int64()), ("code", pa.int64())])
DATA_SET = pa.schema([("id", pa.int64()), *LISTED])


def file(*values: object) -> FileEntry:
    return FileEntry("s3://b", "x", "x", partition=values)


def question(where: str | None, *names: str, schema: pa.Schema = DATA_SET) -> Question:
    return Question(to_expr(where), schema, schema, names or ("year", "code"))


@pytest.mark.parametrize(
    ("where", "excluded"),
    [
        (None, False),
        ("year = 2023", False),
        ("year = 2024", True),
        ("year = 2024 OR id = 1", False),
        ("year = 2024 AND id = 1", True),
        ("code IS NULL", False),
        ("code IS NOT NULL", True),
        ("code = 5", True),
        ("NOT (code = 5)", True),
    ],
)
def test_values_that_exclude(where: str | None, excluded: bool) -> None:
    paths = PartitionValues(to_expr(where), LISTED)
    assert paths.exclude_as_listed(file(2023, None)) is excluded
    assert paths.exclude(file(2023, None), question(where)) is excluded
    assert paths.exclude(file(), question(where)) is False


def test_a_column_of_the_files_is_no_partition_column() -> None:
    paths = PartitionValues(to_expr("year = 2024"), LISTED)
    assert paths.exclude_as_listed(file(2023, 1))
    assert not paths.exclude(file(2023, 1), question("year = 2024", "code"))
    assert paths.of(file(2023, 1), question("year = 2024", "code")) == {"code": pa.scalar(1, pa.int64())}


def test_the_data_set_types_decide() -> None:
    text = pa.schema([("id", pa.int64()), ("year", pa.int64()), ("code", pa.string())])
    asked = question("code = '7'", schema=text)
    paths = PartitionValues(to_expr("code = '7'"), pa.schema([("year", pa.int64()), ("code", pa.string())]))
    assert not paths.exclude(file(2023, "7"), asked)
    assert paths.exclude(file(2023, "007"), asked)


def test_what_cannot_be_compared_excludes_nothing() -> None:
    paths = PartitionValues(to_expr("year = 'spring'"), LISTED)
    assert not paths.exclude_as_listed(file(2023, 1))


def test_a_value_that_does_not_fit_is_told_of_every_time() -> None:
    small = pa.schema([("id", pa.int64()), ("year", pa.int8()), ("code", pa.int64())])
    paths = PartitionValues(to_expr("year = 1"), LISTED)
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match="does not fit the scan's schema"):
            paths.of(file(2023, 1), question("year = 1", schema=small))


def test_each_combination_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    evidence = module.partition_evidence

    def counting(where: Any, values: Any, **given: Any) -> Any:
        asked.append({name: value.as_py() for name, value in values.items()})
        return evidence(where, values, **given)

    monkeypatch.setattr(module, "partition_evidence", counting)
    where = "year = 2024"
    paths, put = PartitionValues(to_expr(where), LISTED), question(where)
    for _ in range(100):
        assert paths.exclude(file(2023, 1), put)
        assert not paths.exclude(file(2024, 1), put)
    # The data set's types are those listed: there is nothing to find out again.
    assert asked == [{"year": 2023, "code": 1}, {"year": 2024, "code": 1}]
    assert paths.of(file(2023, 1), put) is paths.of(file(2023, 1), put)


def test_the_data_set_types_are_asked_where_they_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    other = pa.schema([("id", pa.int64()), ("year", pa.int32()), ("code", pa.int64())])
    paths, put = PartitionValues(to_expr("year = 2024"), LISTED), question("year = 2024", schema=other)
    asked: list[Any] = []
    evidence = module.partition_evidence
    monkeypatch.setattr(
        module,
        "partition_evidence",
        lambda where, values, **given: (
            asked.append(values["year"].type) or evidence(where, values, **given)  # type: ignore[func-returns-value]
        ),
    )
    assert paths.exclude(file(2023, 1), put)
    assert asked == [pa.int64(), pa.int32()]


def test_each_term_is_judged_once_for_each_value_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Any] = []
    prune = module.prune

    def counting(bound: Any, bounds: Any, n: int) -> Any:
        judged.append(list(bounds))
        return prune(bound, bounds, n)

    monkeypatch.setattr(module, "prune", counting)
    paths = PartitionValues(to_expr("year = 2003 AND (code = 4 OR code > year)"), LISTED)
    kept = [(y, c) for y in range(2000, 2010) for c in range(10) if not paths.exclude_as_listed(file(y, c))]
    assert kept == [(2003, 4)]
    assert (judged.count([("year",)]), judged.count([("code",)]), len(judged)) == (10, 10, 120)


def test_each_value_is_of_the_data_set_type() -> None:
    paths, put = PartitionValues(None, LISTED), question(None, "code")
    for year in (2001, 2002):
        for code in (1, None):
            expected = {"code": pa.scalar(code, pa.int64())}
            assert paths.of(file(year, code), put) == expected
