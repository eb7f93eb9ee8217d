from __future__ import annotations

import glob
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.tables.named_source import Glob, has_hidden_name, is_hidden, split_glob


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        pytest.param("s3://bucket/a/*.parquet", ("s3://bucket/a/", "*.parquet"), id="star"),
        pytest.param("s3://bucket/a*/b/c", ("s3://bucket/", "a*/b/c"), id="directory"),
        pytest.param("s3://bucket/a/b?c", ("s3://bucket/a/", "b?c"), id="question mark in a key"),
        pytest.param("a/[ab]/x", ("a/", "[ab]/x"), id="brackets"),
        pytest.param("*.parquet", ("", "*.parquet"), id="no directory"),
        pytest.param("/a/**/x", ("/a/", "**/x"), id="deep"),
        pytest.param("s3://buck*et/a", None, id="a bucket is no pattern"),
        pytest.param("s3://bucket/a[b", None, id="bracket left open"),
        pytest.param("s3://bucket/a[/]b", None, id="brackets over two segments"),
        pytest.param("https://host/a?x=*", None, id="query"),
        pytest.param("HTTP://host/a*", None, id="http"),
        pytest.param("a/b.parquet", None, id="plain"),
    ],
)
def test_a_text_is_cut_before_its_first_wildcard(text: str, cut: tuple[str, str] | None) -> None:
    assert split_glob(text) == cut


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            "*.parquet",
            ["a.parquet", "é b.parquet"],
            ["a/b.parquet", "a.parquet.crc", "_a.parquet", ".a.parquet"],
        ),
        ("?.parquet", ["a.parquet"], ["ab.parquet", ".parquet", "_.parquet"]),
        ("a[0-9].p", ["a1.p"], ["aa.p", "a12.p", "A1.p"]),
        ("a[!0-9].p", ["ab.p"], ["a1.p"]),
        ("**/x", ["x", "a/x", "a/b/x"], ["xx", "_a/x", "a/.b/x", "x/y"]),
        ("a/**", ["a/x", "a/b/x"], ["a", "b/x", "a/_x", "a/_b/x"]),
        ("**", ["x", "a/b"], ["_x", "a/_b"]),
        ("**/b/**/d", ["b/d", "a/b/c/d", "b/b/d/d"], ["b", "d", "a/d"]),
        ("**/_d/*", ["_d/x", "a/_d/x"], ["_e/x", "a/_d/_x"]),
        ("_*", ["_x"], ["x"]),
        ("year=*/m=?/*", ["year=1/m=2/x"], ["year=1/m=22/x", "year=1/x"]),
        ("a+(b).*", ["a+(b).c"], ["aa(b).c", "a+b.c"]),
        ("a*b*c", ["abc", "aXbYc", "abbcc"], ["acb", "ab/c"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_pattern_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Glob.compile(pattern)
    assert [path for path in yes + no if compiled.match(path)] == yes


def test_directories_above_a_path() -> None:
    pattern = Glob.compile("year=*/")
    paths = ["year=1/x", "year=1/m=2/x", "year=1/_tmp/x", "other/x", "year=1"]
    assert pattern.directories
    assert [path for path in paths if pattern.match_above(path)] == ["year=1/x", "year=1/m=2/x"]


def test_many_stars_take_no_long_time() -> None:
    pattern = Glob.compile("**/*a*a*a*a*a*a*b/**/*a*a*a*b")
    started = time.perf_counter()
    assert not pattern.match("/".join(["a" * 250] * 4))
    assert time.perf_counter() - started < 2.0


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for first in ("a", "b", "ab", "ba"):
        for second in ("a", "b", "aa"):
            (root / first / second).mkdir(parents=True)
            for name in ("a", "b", "ab"):
                (root / first / second / f"{name}.p").touch()
        (root / first / "b.p").touch()
    (root / "a.p").touch()
    return root


@given(
    parts=st.lists(
        st.one_of(
            st.just("**"),
            st.text("ab*?.p", min_size=1, max_size=4),
            st.sampled_from(["[ab]", "[!a]*", "*.p"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_files_match_as_they_do_for_pythons_glob(tree: Path, parts: list[str]) -> None:
    if any(set(part) <= {"."} or ("**" in part and part != "**") for part in parts):
        return
    files = sorted(
        os.path.relpath(os.path.join(folder, name), tree)
        for folder, _, names in os.walk(tree)
        for name in names
    )
    pattern = "/".join(parts)
    expected = {path for path in glob.glob(pattern, root_dir=tree, recursive=True) if (tree / path).is_file()}
    compiled = Glob.compile(pattern)
    assert [path for path in files if compiled.match(path)] == sorted(map(os.path.normpath, expected))


@given(st.text("a_./", min_size=1, max_size=12))
def test_a_path_has_a_hidden_name_where_one_of_its_names_is_hidden(relative: str) -> None:
    assert has_hidden_name(relative) == any(map(is_hidden, relative.split("/")))
