"""Every example of docs/predicates.md, by the parser, the exact filter and the row-by-row oracle."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from accel.errors import AccelError, ColumnNotFoundError, PredicateError
from accel.predicate.bind import bind
from accel.predicate.column import col
from accel.predicate.evaluate import evaluate, outcome
from accel.predicate.expr import Expr
from accel.predicate.parser import parse
from accel.predicate.sql import to_sql
from accel.predicate.where import to_expr
from tests.docs.fences import read_fences
from tests.oracle import rowwise
from tests.unit.predicate.trees import typed

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
ROWS = range(6)
NAMES = {"col": col, "Decimal": Decimal, "datetime": datetime}


@dataclass(frozen=True)
class Example:
    """A row of a table of the page: its first cell, the rows it says are true or unknown, or the refusal."""

    where: Any
    text: str
    true: list[int]
    unknown: list[int] | None
    refusal: str | None


def read_examples() -> list[Example]:
    found: list[Example] = []
    header = ""
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            header = ""
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = cells[0]
        elif not set(cells[0]) <= {"-"}:
            found.append(read_example(header, cells))
    return found


def read_example(header: str, cells: list[str]) -> Example:
    text = cells[0].removeprefix("`").removesuffix("`")
    # Text is tried as it stands; the other two kinds are Python.
    where = text if header == "Example" else lambda: eval(text, dict(NAMES))
    refusal = cells[1].removeprefix("refused: ") if cells[1].startswith("refused: ") else None
    true = [] if refusal else read_rows(cells[1])
    unknown = read_rows(cells[2]) if header == "Example" else None
    return Example(where, text, true, unknown, refusal)


def read_rows(cell: str) -> list[int]:
    return [int(row) for row in cell.split(", ")] if cell else []


EXAMPLES = read_examples()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    (code,) = [fence.code for fence in read_fences(PAGE) if "table = pa.Table" in fence.code]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    made: pa.Table = names["table"]
    return made


def read_column(table: pa.Table, path: tuple[str, ...]) -> pa.Array:
    array = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def by_filter(expr: Expr, table: pa.Table) -> list[bool | None]:
    """The exact filter's three-valued answer, after a look at whether its mask says the same."""
    bound = bind(expr, table.schema)
    columns = {column.path: read_column(table, column.path) for column in bound.columns}
    answers: list[bool | None] = outcome(bound, columns, table.num_rows).to_pylist()
    assert evaluate(bound, columns, table.num_rows).tolist() == [answer is True for answer in answers]
    return answers


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) > 140
    assert sum(example.refusal is not None for example in EXAMPLES) > 20


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.text)
@pytest.mark.parametrize("judge", [by_filter, rowwise.evaluate], ids=["filter", "oracle"])
def test_examples(example: Example, judge: Any, table: pa.Table) -> None:
    def answers() -> list[bool | None]:
        where = example.where() if callable(example.where) else example.where
        expr = to_expr(where)
        assert expr is not None
        found: list[bool | None] = judge(expr, table)
        return found

    if example.refusal is not None:
        with pytest.raises((PredicateError, ColumnNotFoundError)) as caught:
            answers()
        # The oracle refuses too, in words of its own.
        if judge is by_filter:
            assert example.refusal in str(caught.value)
        return
    found = answers()
    assert [row for row in ROWS if found[row] is True] == example.true
    if example.unknown is not None:
        assert [row for row in ROWS if found[row] is None] == example.unknown


@pytest.mark.parametrize(
    "example",
    [example for example in EXAMPLES if isinstance(example.where, str)],
    ids=lambda example: example.text,
)
def test_examples_survive_being_written(example: Example) -> None:
    try:
        expr = parse(example.where)
    except AccelError as error:
        assert example.refusal is not None
        assert isinstance(error, PredicateError)
        assert error.position is not None
        return
    assert typed(parse(to_sql(expr))) == typed(expr)


def test_the_grammar_names_every_word() -> None:
    grammar = next(fence.code for fence in read_fences(PAGE) if fence.language == "ebnf")
    words = set(re.findall(r'"([A-Z]+)"', grammar))
    assert words == {
        *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "DISTINCT", "FROM"),
        *("TRUE", "FALSE", "NULL", "DATE", "TIME", "TIMESTAMP", "DOUBLE", "X", "E"),
        *("EXTRACT", "YEAR", "CAST", "AS", "INTERVAL"),
    }
    assert set(re.findall(r'"([<>=!]+)"', grammar)) == {"=", "==", "<>", "!=", "<", "<=", ">", ">="}
