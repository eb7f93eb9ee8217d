"""Files that are odd and all right, and one that is damaged: they are read as pyarrow reads them.

`writers/odd_files.json` holds the questions and their answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import accel

FOLDER = Path(__file__).parent / "writers"
QUESTIONS: list[dict[str, Any]] = json.loads((FOLDER / "odd_files.json").read_text())
READ = sorted(
    {
        question["file"]
        for question in QUESTIONS
        if question["rows" if "rows" in question else "value"] != "refused"
    }
)
MISPLACED = {
    "bloom_length_outside.parquet": "bloom filter",
    "bloom_offset_outside.parquet": "bloom filter",
    "column_index_outside.parquet": "column index",
    "offset_index_outside.parquet": "offset index",
}


def _name(question: dict[str, Any]) -> str:
    asked = " ".join(question.get("aggregate", ())) or question.get("where") or "all"
    return f"{question['file'].removesuffix('.parquet')}: {asked}"


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.get("rows") != "refused"], ids=_name)
def test_questions_have_their_answers(question: dict[str, Any]) -> None:
    path = str(FOLDER / question["file"])
    if "aggregate" in question:
        column, function = question["aggregate"]
        table = accel.scan(path, cache=None).aggregate([(column, function)])
        assert table.column(0).to_pylist() == [question["value"]]
        return
    scan = accel.scan(path, where=question["where"], cache=None)
    assert scan.to_table().num_rows == question["rows"]
    assert scan.count_rows() == question["rows"]


@pytest.mark.parametrize("file", READ)
def test_all_rows_are_those_of_pyarrow(file: str) -> None:
    path = FOLDER / file
    found = accel.scan(str(path), cache=None)
    wanted = pq.ParquetFile(path).read()
    assert found.schema.names == wanted.schema.names
    assert found.to_table().to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(("file", "words"), MISPLACED.items())
def test_an_index_outside_the_file_is_passed_over_and_told_of(file: str, words: str) -> None:
    path = str(FOLDER / file)
    scan = accel.scan(path, where="a >= 5", cache=None)
    assert scan.to_table().num_rows == 5
    assert scan.metrics.indexes_ignored == 1
    (warning,) = scan.metrics.warnings
    assert f"{path}, row group 0, column a: the footer places the {words} outside the file" in warning
    with pytest.raises(
        accel.IndexFormatError, match=f"column a: the footer places the {words} outside the file"
    ):
        accel.scan(path, cache=None, options=accel.Options(strict=True)).to_table()


def test_a_run_of_2e31_indices_is_refused() -> None:
    path = str(FOLDER / "run_of_2e31_indices.parquet")
    for keywords in ({}, {"columns": ["s"]}, {"selection": {path: {0: [(19, 20)]}}}):
        with pytest.raises(accel.ParquetFormatError, match="row group 0, column s"):
            accel.scan(path, cache=None, **keywords).to_table()


@pytest.mark.parametrize(
    "options", [accel.Options(), accel.Options(verify_checksums=False)], ids=["", "not verified"]
)
def test_a_checksum_of_0_is_none(options: accel.Options) -> None:
    path = str(FOLDER / "crc_zero.parquet")
    scan = accel.scan(path, cache=None, options=options)
    assert scan.to_table().to_pydict() == {"a": [1, 2, 3]}
    assert accel.scan(path, where="a = 2", cache=None, options=options).to_table().to_pydict() == {"a": [2]}


@pytest.mark.parametrize("file", ["empty_group.parquet", "empty_group_nested.parquet"])
def test_a_group_without_fields_is_left_out(file: str) -> None:
    path = str(FOLDER / file)
    assert accel.scan(path, cache=None).schema.names == ["id", "n"]
    gone = {"empty_group.parquet": "e", "empty_group_nested.parquet": "s"}[file]
    with pytest.raises(accel.ColumnNotFoundError):
        accel.scan(path, columns=[gone], cache=None).to_table()
    with pytest.raises(accel.AccelError):
        accel.scan(path, where=f'"{gone}" IS NULL', cache=None).to_table()
