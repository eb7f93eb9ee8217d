from __future__ import annotations

from typing import Any

import pytest

from accel.cli.arguments import UsageError, build_parser, column_list, scan_keywords, storage_options
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
        "storage_options": None,
        "options": Options(),
    }
    assert scan_keywords(build_parser().parse_args(["explain", "a", "--int96-unit", "us"])) == {
        "where": None,
        "columns": None,
        "partitioning": "hive",
        "glob": True,
        "storage_options": None,
        "options": Options(int96_unit=Int96Unit.US),
    }
