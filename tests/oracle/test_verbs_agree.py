"""Files of one data set whose types of a column differ: every verb that looks at it gives the same answer, or
refuses it."""

from __future__ import annotations

import datetime
import decimal
import itertools
import pathlib
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import accel
from accel.cli.main import main
from accel.testing import DictStore, Layout, write_file

D = decimal.Decimal
DAY, NOON = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)
ROWS = 20
"""Of each file: two row groups, of which many a predicate excludes one or both."""

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{
        str(kind): (kind, [1, 2, None, 7])
        for kind in [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()]
    },
    **{str(kind): (kind, [1.0, 2.5, None, 7.0]) for kind in [pa.float32(), pa.float64()]},
    **{
        str(kind): (kind, [D("1.00"), D("2.50"), None])
        for kind in [pa.decimal128(9, 2), pa.decimal128(25, 2)]
    },
    **{str(kind): (kind, ["1", "b", None]) for kind in [pa.string(), pa.large_string()]},
    "categories": (pa.dictionary(pa.int32(), pa.string()), ["1", "b", None]),
    **{str(kind): (kind, [b"1234", b"abcd", None]) for kind in [pa.binary(), pa.binary(4)]},
    "uuid": (pa.uuid(), [bytes(16), b"1" * 16, None]),
    "bool": (pa.bool_(), [True, False, None]),
    **{str(kind): (kind, [DAY, DAY.replace(year=1970), None]) for kind in [pa.date32(), pa.date64()]},
    **{
        str(kind): (kind, [NOON, NOON.replace(year=1980), None])
        for kind in [
            pa.timestamp("ms"),
            pa.timestamp("us"),
            pa.timestamp("us", "UTC"),
            pa.timestamp("us", "Asia/Tokyo"),
        ]
    },
    **{
        str(kind): (kind, [datetime.time(1), datetime.time(12), None])
        for kind in [pa.time32("ms"), pa.time64("us")]
    },
    **{str(kind): (kind, [1, 60, None]) for kind in [pa.duration("s"), pa.duration("ms")]},
    "null": (pa.null(), [None]),
    "list of int32": (pa.list_(pa.int32()), [[1], [], None]),
    "list of string": (pa.list_(pa.string()), [["1"], [], None]),
    "struct": (pa.struct([("x", pa.int32())]), [{"x": 1}, {"x": 7}, None]),
    "struct of text": (pa.struct([("x", pa.string())]), [{"x": "1"}, {"x": "b"}, None]),
    "struct of others": (pa.struct([("y", pa.int32())]), [{"y": 1}, None]),
}
WHERE = [
    *(
        "a IS NULL",
        "a IS NOT NULL",
        "a = 1",
        "a <> 2",
        "a > 2.5",
        "a IN (1, 7)",
        "a = 100",
        "a = 'b'",
        "a <> '1'",
    ),
    *(
        "a LIKE '1%'",
        "a > X'31'",
        "a",
        "NOT a",
        "a >= DATE '2024-05-01'",
        "a < TIMESTAMP '1990-01-01 00:00:00'",
    ),
    *(
        "a = TIMESTAMP '2024-05-01 12:00:00Z'",
        "a = TIME '01:00:00'",
        "a.x = 1",
        "a.x = 'b'",
        "a.x IS NULL",
        "a = a",
    ),
    *("b < 3 AND a IS NOT NULL", "b < 3 OR a = 1", "b < 0 AND a IS NULL", "a IS DISTINCT FROM 1"),
]
Outcome: TypeAlias = "tuple[str, Any]"


def outcome(ask: Callable[[], Any]) -> Outcome:
    """What comes of a verb: what it answers, or the kind of error and the file that it names."""
    try:
        return "answers", ask()
    except accel.AccelError as error:
        return type(error).__name__, error.path


def file_of(name: str, start: int) -> bytes:
    kind, values = TYPES[name]
    cells = list(itertools.islice(itertools.cycle(values), ROWS))
    column = pa.array(cells, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, column)
    table = pa.table({"a": column, "b": pa.array(range(start, start + ROWS), pa.int64())})
    return write_file(table, Layout(group_rows=ROWS // 2, page_rows=4))


def answers_of(files: dict[str, bytes], where: str, cache: accel.Cache | None) -> dict[str, Outcome]:
    """By verb: the values of `b` that match, or as much as the verb tells of them; or the refusal."""

    def scan(columns: list[str] | None = None) -> accel.Scan:
        return accel.scan(list(files), where, columns=columns, store=store, cache=cache)

    def of(table: pa.Table) -> list[int]:
        return table["b"].to_pylist()

    def planned() -> pa.Table:
        plan = accel.plan(list(files), where, columns=["b"], store=store, cache=cache)
        return accel.scan(pickle.loads(pickle.dumps(plan)), store=store, cache=cache).to_table()

    def batches() -> pa.Table:
        return pa.Table.from_batches(list(scan(["b"]).to_batches()), pa.schema([("b", pa.int64())]))

    store = DictStore(files)
    return {
        "to_table": outcome(lambda: of(scan().to_table())),
        "a column": outcome(lambda: of(scan(["b"]).to_table())),
        "to_batches": outcome(lambda: of(batches())),
        "head": outcome(lambda: of(scan(["b"]).head(10 * ROWS))),
        "tasks": outcome(lambda: of(planned())),
        "aggregate": outcome(lambda: scan().aggregate([("b", "sum")])["b_sum"][0].as_py()),
        "aggregate of a": outcome(lambda: scan().aggregate([("a", "count")]) and None),
        "no columns": outcome(lambda: scan([]).to_table().num_rows),
        "count_rows": outcome(lambda: scan().count_rows()),
        "explain": outcome(lambda: scan(["b"]).explain() and None),
    }


def expected(rows: Outcome) -> dict[str, Outcome]:
    """What every verb comes to where `to_table` comes to these values of `b`, or to this refusal."""
    kind, values = rows
    answers = {
        **dict.fromkeys(["to_table", "a column", "to_batches", "head", "tasks"], values),
        "aggregate": (sum(values) if values else None) if kind == "answers" else None,
        **dict.fromkeys(["aggregate of a", "explain"]),
        **dict.fromkeys(["no columns", "count_rows"], len(values or ())),
    }
    return {verb: ("answers", answer) if kind == "answers" else rows for verb, answer in answers.items()}


def questions(large: bool) -> Iterator[tuple[str, str, str]]:
    """The types of two files, in both orders, and what is asked of them."""
    pairs = list(itertools.permutations(TYPES, 2))
    every = [(first, second, where) for first, second in pairs for where in WHERE]
    yield from random.Random(9).sample(every, 2500 if large else 150)


def test_all_verbs_answer_alike_or_refuse_alike(large: bool) -> None:
    made = {name: file_of(name, 0) for name in TYPES}, {name: file_of(name, ROWS) for name in TYPES}
    found, wanted = {}, {}
    for first, second, where in questions(large):
        files = {"f0": made[0][first], "f1": made[1][second]}
        cache = accel.Cache()
        # Nothing is cached, then everything is; pruning and what is remembered of it change no verdict.
        for times in range(2):
            case = first, second, where, times
            found[case] = answers_of(files, where, None if times == 0 else cache)
            wanted[case] = expected(found[case]["to_table"])
    differing = {case: answers for case, answers in found.items() if answers != wanted[case]}
    assert differing == {}
    kinds = {answers["to_table"][0] for answers in found.values()}
    assert (
        {"answers", "SchemaMismatchError", "PredicateError"}
        <= kinds
        <= {
            "answers",
            "SchemaMismatchError",
            "PredicateError",
            "ColumnNotFoundError",
        }
    )
    # What the first file can be asked is no fault of the predicate in a later one.
    assert {
        answers["to_table"][1] for answers in found.values() if answers["to_table"][0] == "PredicateError"
    } == {"f0"}


MISMATCH = "SchemaMismatchError", "f1"
TABLE: dict[str, tuple[str, str, str, Outcome]] = {
    # Types of the first and of the second file, what is asked, and what every verb comes to.
    "double after int32": ("int32", "double", "a = 1", MISMATCH),
    "int32 after double": ("double", "int32", "a = 7", ("answers", [*range(3, 20, 4), *range(23, 40, 4)])),
    "text after int32": ("int32", "string", "a = 1", MISMATCH),
    "int32 after text": ("string", "int32", "a = '1'", MISMATCH),
    "null or not": ("int32", "string", "a IS NULL", MISMATCH),
    "another zone": (
        "timestamp[us, tz=UTC]",
        "timestamp[us, tz=Asia/Tokyo]",
        "a IS NOT NULL",
        ("answers", [i for i in range(40) if i % 20 % 3 < 2]),
    ),
    "no zone": ("timestamp[us, tz=UTC]", "timestamp[us]", "a > TIMESTAMP '1990-01-01 00:00:00Z'", MISMATCH),
    "excluded by statistics": ("int32", "double", "a = 1 AND b < 10", MISMATCH),
    "excluded, whatever it holds": ("int32", "string", "b < 0 AND a = 1", MISMATCH),
    "a field": ("struct", "struct of text", "a.x = 1", MISMATCH),
    "a field of no struct": ("struct", "int32", "a.x IS NULL", MISMATCH),
    "a field that is missing": ("struct", "struct of others", "a.x = 7", ("answers", list(range(1, 20, 3)))),
    "a field of nothing": ("struct", "null", "a.x IS NULL", ("answers", [*range(2, 20, 3), *range(20, 40)])),
    "a struct or nothing": ("struct", "null", "a IS NULL", ("answers", [*range(2, 20, 3), *range(20, 40)])),
    "lists": ("list of int32", "list of string", "a IS NULL", MISMATCH),
    "UUIDs after bytes": ("fixed_size_binary[4]", "uuid", "a IS NULL", MISMATCH),
    "wider": ("int64", "int32", "a = 2", ("answers", [*range(1, 20, 4), *range(21, 40, 4)])),
    "narrower": ("int32", "int64", "a = 2", MISMATCH),
}


@pytest.mark.parametrize(("first", "second", "where", "comes_to"), TABLE.values(), ids=TABLE)
def test_what_it_is(first: str, second: str, where: str, comes_to: Outcome) -> None:
    files = {"f0": file_of(first, 0), "f1": file_of(second, ROWS)}
    assert answers_of(files, where, accel.Cache()) == expected(comes_to)


@pytest.mark.parametrize(
    ("given", "before"),
    [
        ("--count", ""),
        ("-a b=sum", ""),
        ("--columns b --limit 9", "b\n0\n4\n8\n12\n16\n"),
        ("--columns b", "b\n0\n4\n8\n12\n16\n"),  # rows are printed as they come
    ],
)
def test_on_the_command_line(
    given: str, before: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, kind in ("f0", "int32"), ("f1", "string"):
        (tmp_path / f"{name}.parquet").write_bytes(file_of(kind, 0))
    status = main(["scan", str(tmp_path), "--where", "a = 1", *given.split()])
    printed = capsys.readouterr()
    assert (status, printed.out) == (1, before)
    assert "column 'a' is string here and int32 in the scan's schema" in printed.err


def test_what_is_not_looked_at_or_never_opened_is_not_checked() -> None:
    files = {"f0": file_of("int32", 0), "f1": file_of("string", ROWS)}
    store = DictStore(files)
    assert accel.scan(list(files), "b >= 19", columns=["b"], store=store, cache=None).count_rows() == 21
    scan = accel.scan(list(files), "a = 1", limit=2, store=store, cache=None)
    assert (scan.to_table()["b"].to_pylist(), scan.count_rows()) == ([0, 4], 2)
