from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.arguments import UsageError, column_list, scan_keywords, storage_options
from accel.cli.commands import build_parser
from accel.cli.main import main
from accel.cli.wording import reword
from accel.options import Int96Unit, Options


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (None, None),
        (["a,b"], ["a", "b"]),
        (["a, b", "c"], ["a", "b", "c"]),
        (['"a,b",c.d'], ["a,b", "c.d"]),
        (['"say ""hi"""'], ['say "hi"']),
        (["", "a,"], ["a"]),
        (['"a\nb",c'], ["a\nb", "c"]),
    ],
    ids=str,
)
def test_columns(given: list[str] | None, columns: list[str] | None) -> None:
    assert column_list(given) == columns


@pytest.mark.parametrize("given", [["a\nb"], ['"a', 'b"'], ['"a"b']], ids=str)
def test_columns_that_are_none(given: list[str]) -> None:
    with pytest.raises(UsageError, match="--columns"):
        column_list(given)


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        ([], None),
        (
            ["--storage-option", "region=eu", "--storage-option", "token=a=b"],
            {"region": "eu", "token": "a=b"},
        ),
        (["--endpoint", "http://127.0.0.1:9000"], {"endpoint": "http://127.0.0.1:9000"}),
        (["--anonymous"], {"skip_signature": "true"}),
        (["--header", "X-A: b: c", "--header", "Y:"], {"headers": {"X-A": "b: c", "Y": ""}}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_storage_options(argv: list[str], options: dict[str, Any] | None) -> None:
    assert storage_options(build_parser().parse_args(["inspect", "x", *argv])) == options


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_some_seconds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["scan", "a", "--timeout", seconds])
    assert "not a number of seconds above 0" in capsys.readouterr().err
    assert scan_keywords(build_parser().parse_args(["explain", "a", "--timeout", "2.5"]))["timeout"] == 2.5


def test_what_scan_is_called_with() -> None:
    parsed = build_parser().parse_args(
        ["scan", "a", "b", "-w", "x = 1", "-c", "x", "--partitioning", "none", "--no-glob", "-n", "5"]
    )
    assert (parsed.source, parsed.limit) == (["a", "b"], 5)
    assert scan_keywords(parsed) == {
        "where": "x = 1",
        "columns": ["x"],
        "partitioning": None,
        "glob": False,
        "schema": None,
        "table": "auto",
        "index": "auto",
        "listing": "store",
        "file_path": None,
        "row_number": None,
        "case_sensitive": True,
        "order_by": None,
        "on_error": "raise",
        "timeout": None,
        "storage_options": None,
        "options": Options(),
    }
    assert scan_keywords(build_parser().parse_args(["explain", "a", "--int96-unit", "us"])) == {
        "where": None,
        "columns": None,
        "partitioning": "hive",
        "glob": True,
        "schema": None,
        "table": "auto",
        "index": "auto",
        "listing": "store",
        "file_path": None,
        "row_number": None,
        "case_sensitive": True,
        "order_by": None,
        "on_error": "raise",
        "timeout": None,
        "storage_options": None,
        "options": Options(int96_unit=Int96Unit.US),
    }


# What the command line advises is what can be typed there.
ROOT = Path(accel.__file__).parent
# Rooms whose errors nobody meets from the command line, and that itself.
ELSEWHERE = {"cli", "job.py", "spark", "testing"}
# What tells of Python's values, and comes from nothing that a command line can say.
OF_PYTHON = {
    "an `accel.col` expression, or a list": r"accel\.col|isin|is_null",
    "an iterator, a plan or a scan as such": r"accel\.(Plan|plan|scan)|for an iterator|mapInArrow",
    "an argument of the wrong type": r" is an? (accel\.|…)|names? .* by (text|something)|^indexes= (maps|names)|RangeStore",
    "a data set for another engine": r"accel\.dataset|data set|dataset\.scanner",
    "a module's attribute": r"has no attribute",
    "an index that is an object, or none that is named": r"accel\.IndexedFile|index of your own",
    "a scan as it prints itself": r"^selection=… files$",
    "a table as it prints itself": r"^accel\.tables\.hive\(",
    "a table in a catalog, which Python names otherwise": r"in Python the source is accel\.tables",
    "a wrong keyword": r"^store= or storage_options$",
}
KEYWORDS = {*inspect.signature(accel.scan).parameters, *inspect.signature(accel.embed).parameters} - {
    "source",
    "src",
}
PYTHON = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(KEYWORDS))}|skip_signature|allow_http)=|\b[Oo]ptions[.(]|\bstorage_options\b|\baccel\.\w|\bdst\b"
    r"|count_rows\b|\bpass None|\bisin\b"
)
MARKED = re.compile(r"`[^`\n]+`")


def texts_of(tree: ast.AST) -> Iterator[str]:
    """The texts in a module that are no docstrings, with … for what is filled in."""
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            passed.update(map(id, node.values))
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.value


def advice() -> set[str]:
    """All texts of accel that name a keyword of Python and can come from what a command line asks."""
    found = set()
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] in ELSEWHERE:
            continue
        for text in texts_of(ast.parse(path.read_text("utf-8"))):
            if " " in text and PYTHON.search(text):
                found.add(text)
    return {text for text in found if not any(re.search(why, text) for why in OF_PYTHON.values())}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    named = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                named |= options_of(below)
    return named


def test_every_hint_is_in_the_words_of_the_command_line() -> None:
    known = options_of(build_parser())
    settings = {field.name for field in dataclasses.fields(accel.Options)}
    hints = advice()
    assert len(hints) > 30  # they are found at all
    wrong = []
    for hint in sorted(hints):
        shown = reword(hint)
        unmarked = PYTHON.search(MARKED.sub("", hint)) is not None
        left = [marked for marked in MARKED.findall(shown) if PYTHON.search(marked)]
        options = set(re.findall(r"--[a-z0-9-]+", shown))
        named = set(re.findall(r"--option (\w+)", shown))
        if unmarked or left or shown == hint or not options <= known or not named <= settings:
            wrong.append((hint, shown))
    assert wrong == []


@pytest.mark.parametrize(
    ("python", "shown"),
    [
        ("`partitioning=None` leaves the paths alone", "--partitioning none leaves the paths alone"),
        ("is named with `glob=False`", "is named with --no-glob"),
        ("name others in `columns=` and `where=`", "name others in --columns and --where"),
        ('let the store list the files: `listing="store"`', "let the store list the files: --listing store"),
        (
            "raise `options.memory_limit`, or write smaller pages",
            "raise --option memory_limit, or write smaller pages",
        ),
        (
            "`options.allow_unpinned` reads it without that protection",
            "--option allow_unpinned=true reads it without that protection",
        ),
        ("read on with `Options(strict=False)`", "read on with --option strict=false"),
        ('read INT96 by `Options(int96_unit="us")`', "read INT96 by --int96-unit us"),
        ("`options.int96_unit` says what INT96 is read to", "--int96-unit says what INT96 is read to"),
        (
            "give credentials by `storage_options={'headers': {'Authorization': ...}}`",
            "give credentials by --header 'Authorization: ...'",
        ),
        ("`skip_signature=True` reads public buckets", "--anonymous reads public buckets"),
        ("write to another name by `dst`", "write to another name by DST"),
        ("name others in `indexes=`", "name others in --index"),
        ("`count_rows` answers how many there are", "--count answers how many there are"),
        ('`schema="union"` takes those of all', "--schema union takes those of all"),
        ("give `schema=` with a type that holds both", "give schema= in Python with a type that holds both"),
        (
            "'month' is in the path: `partitioning=pyarrow.schema([('month', ...)])` makes it a column",
            "'month' is in the path: --partitioning hive makes it a column",
        ),
        # What is no argument, and names of the user's, stay as they are.
        ("raise the limit (`ulimit -n`)", "raise the limit (`ulimit -n`)"),
        ("check `region`, and `month=3`", "check `region`, and `month=3`"),
        ("did you mean 'options.strict' or 'columns='?", "did you mean 'options.strict' or 'columns='?"),
    ],
    ids=lambda text: text[:30],
)
def test_a_hint_reworded(python: str, shown: str) -> None:
    assert reword(python) == shown


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = pa.Table.from_arrays([pa.array([1, 2])], names=["a"])
    for place in ("x=1/y=1", "x=1/z=1"):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(table, tmp_path / place / "f.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "status", "end"),
    [
        (["scan", "n*.parquet"], 1, "is named with --no-glob; looked for in {}"),
        (["scan", "x=1"], 1, "(--partitioning none reads the files without partition columns)"),
        (
            ["scan", "x=1", "--partitioning", "none", "-w", "x = 1"],
            2,
            "or a pattern, x=1/*, and give --partitioning hive",
        ),
        (
            ["scan", "x=1/y=1/f.parquet", "-w", "a = $1"],
            2,
            "parameters are not supported: write the value itself, or build the condition with accel.col in Python",
        ),
        (["scan", "x=1/y=1/f.parquet", "-w", ""], 2, "(leave out --where to keep every row)"),
        (["scan", "x=1/y=1/f.parquet", "-w", "a = 1 LIMIT 3"], 2, "--limit is an argument of its own"),
        (
            ["scan", "x=1/y=1/f.parquet", "--columns", ""],
            2,
            "--columns names no column (leave it out for all)",
        ),
        (
            ["explain", "x=1/y=1/f.parquet", "--columns", " , "],
            2,
            "--columns names no column (leave it out for all)",
        ),
        (["scan", "memory://x", "-n", "1"], 1, "(give the MemoryStore by store= in Python)"),
        (
            ["scan", "x=1/y=1/f.parquet", "--option", "memory_limit=0"],
            2,
            "option memory_limit: 0 is too small",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_advised(
    argv: list[str], status: int, end: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert end.format(folder) in err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["-a", "distance"], "expected COLUMN=FUNCTION, or count_all: 'distance'"),
        (["-a", "distance="], "expected COLUMN=FUNCTION, or count_all: 'distance='"),
        (["-a", "=sum"], "expected COLUMN=FUNCTION, or count_all: '=sum'"),
        (["-a", ""], "expected COLUMN=FUNCTION, or count_all: ''"),
        (["-o", ""], "argument --output/-o: names no file (- is standard output)"),
        (["--option", "memory_limit"], "expected NAME=VALUE"),
        (["--option", "memory=1"], "there is no option 'memory'"),
        (["--option", "memory_limit=1GB"], "memory_limit is a whole number, not '1GB'"),
        (["--option", "read_timeout=soon"], "read_timeout is a number, not 'soon'"),
        (["--option", "strict=yes"], "strict is true or false, not 'yes'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_no_argument(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        build_parser().parse_args(["scan", "f.parquet", *argv])
    assert told in capsys.readouterr().err


def test_every_option_can_be_set() -> None:
    from accel.cli.arguments import scan_keywords

    given = {
        field.name: str(field.default).lower() if isinstance(field.default, bool) else "7"
        for field in dataclasses.fields(accel.Options)
        if not isinstance(field.default, str) and field.name != "on_event"
    }
    argv = [word for name, value in given.items() for word in ("--option", f"{name}={value}")]
    parsed = build_parser().parse_args(["scan", "f", *argv, "--option", "phases=two", "--int96-unit", "us"])
    wanted = {name: value == "true" if value in ("true", "false") else 7 for name, value in given.items()}
    assert scan_keywords(parsed)["options"] == accel.Options(**wanted, phases="two", int96_unit="us")
