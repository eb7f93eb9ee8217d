from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from accel.cli.main import main
from tests.unit.writing.files import read_all, sample, write


def test_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.parquet")
    assert main(["embed", path, "--index", "category=distinct", "--index", "id=bitmap"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:2] == ["wrote", f"{path}:"]
    assert lines[1] == [
        "page",
        "index",
        "added",
        "to",
        "30",
        "column",
        "chunks,",
        "bounds",
        "of",
        "pages",
        "to",
        "27",
    ]
    assert lines[2] == ["column", "kind", "level", "units", "bytes", "seconds"]
    assert [line[:4] for line in lines[4:]] == [
        ["category", "distinct", "page", "24"],
        ["id", "bitmap", "page", "24"],
    ]
    assert err == ""
    assert read_all(path).equals(sample())
    assert b"accel.indexes" in pq.read_metadata(path).metadata


def test_a_list_of_columns_and_what_inspect_says_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.parquet")
    assert main(["embed", path, "-i", "id, lower(category), (category, id)=zonemap:row-group", "--json"]) == 0
    [index] = json.loads(capsys.readouterr().out)["indexes"]
    assert (index["column"], index["units"]) == ("id, lower(category), (category, id)", 3)
    assert index["nbytes"] > 0
    assert index["seconds"] > 0
    assert main(["inspect", path, "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["embedded"]
    assert told.pop("seconds") == pytest.approx(index["seconds"], abs=0.002)
    assert told == {
        "kind": "zonemap",
        "column": "id, lower(category), (category, id)",
        "level": "row group",
        "count": 3,
        "units": 3,
        "bytes": index["nbytes"],
        "idle": 0,
        "shortcoming": None,
    }
    assert main(["inspect", path]) == 0
    out = capsys.readouterr().out
    assert "  index      zonemap of id, lower(category), (category, id) by row group (3), " in out
    assert " s to build" in out


def test_a_dry_run_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    arguments = [
        "--index",
        "category=distinct:file",
        "-i",
        "category=distinct:row-group",
        "--dry-run",
        "--json",
    ]
    assert main(["embed", path, *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["written"], report["size_before"]) == (False, len(before))
    assert [(i["level"], i["count"]) for i in report["indexes"]] == [("file", 1), ("row group", 3)]
    assert Path(path).read_bytes() == before


def test_to_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    assert main(["embed", path, str(tmp_path / "b.parquet")]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/b.parquet: ")
    assert Path(path).read_bytes() == before
    assert read_all(tmp_path / "b.parquet").equals(sample())


@pytest.mark.parametrize(
    ("index", "status", "message"),
    [
        pytest.param("nope=distinct", 2, "no column nope", id="no column"),
        pytest.param("id=nope", 2, "no index kind 'nope'", id="no kind"),
        pytest.param("id=distinct:row-range", 2, "no level", id="no such level of it"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], index: str, status: int, message: str
) -> None:
    path = write(tmp_path / "a.parquet")
    assert main(["embed", path, "--index", index]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("accel: error: ")
    assert message in err


@pytest.mark.parametrize("index", ["id", "=distinct", "id=", "id=distinct:pages", "id=:page"])
def test_what_is_no_index(capsys: pytest.CaptureFixture[str], index: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["embed", "a.parquet", "--index", index])
    assert caught.value.code == 2
    assert "expected COLUMN=KIND" in capsys.readouterr().err


def test_a_column_with_an_equals_sign() -> None:
    from accel.cli.commands import build_parser

    given = build_parser().parse_args(["embed", "a", "-i", "a=b=distinct:page"])
    assert given.index == [("a=b", "distinct", "page")]


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "accel.cli.main", "embed", path],
        stdout=subprocess.PIPE, stderr=follower, timeout=60, check=False, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    shown = os.read(leader, 1 << 16)
    os.close(leader)
    assert done.returncode == 0
    assert done.stdout.startswith(b"wrote ")
    assert b"copying" in shown or b"reading" in shown
