"""`python -m accel.job`: the command that spark-submit and schedulers run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.job import main

ROOT = Path(__file__).resolve().parents[2]


def fill(path: Path) -> None:
    for number in range(3):
        names = [f"n{i % 5}" for i in range(100)]
        pq.write_table(pa.table({"id": range(number, 300, 3), "name": names}), path / f"{number}.parquet")


def test_on_spark_in_a_process_of_its_own(tmp_path: Path) -> None:
    fill(tmp_path)
    settings = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    conf = ("ui.enabled=false", "driver.bindAddress=127.0.0.1", "driver.host=127.0.0.1")
    command = [
        sys.executable, "-m", "accel.job", "optimize", str(tmp_path), "--sort-by", "id:descending",
        "--embed", "name=distinct", "--target-file-size", "1k", "--master", "local[1]", "--json",
        *(word for each in conf for word in ("--conf", f"spark.{each}")),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=170, env={**os.environ, **settings}, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["files_before"], report["finished"]) == (300, 3, False)
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert after.column("id").to_pylist() == list(range(299, -1, -1))


def test_in_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    assert (
        main(["optimize", str(tmp_path), "--here", "--z-order", "id,name", "--preset", "random-access"]) == 0
    )
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path}/: rewritten, 300 rows, 3 files of ")
    assert "accel: write: 300 of 300\n" in err
    assert main(["embed", str(tmp_path), "--here", "--embed", "name=distinct", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path}/: 1 of 1 files got indexes, 0 had them, ")
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["optimize", "nowhere", "--here"], 1, "no such file or directory"),
        (["optimize", ".", "--here", "--sort-by", "a", "--z-order", "b"], 2, "one order"),
        (["embed", "data", "--here", "--embed", "none=distinct"], 2, "none"),
        (["embed", "broken", "--here", "--embed", "id=distinct"], 1, "0.parquet has no indexes"),
    ],
    ids=["nowhere", "two orders", "no such column", "a broken file"],
)
def test_the_status_says_how_it_went(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fill(tmp_path / "data")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/0.parquet").write_bytes(b"PAR1")
    assert main(arguments) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["optimise"],
        ["optimize"],
        ["optimize", "x", "--target-file-size", "12Q"],
        ["embed", "x", "-i", "a"],
    ],
    ids=["no job", "no such job", "no directory", "no size", "no index"],
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_the_help_names_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for word in ("optimize", "embed", "spark-submit", "exit status"):
        assert word in out


def test_an_index_is_built_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    assert main(["build-index", str(tmp_path), "--here", "--index", "name=keys", "--json"]) == 0
    out, err = capsys.readouterr()
    built = json.loads(out)
    assert (built["files"], built["added"], built["segments"]) == (3, 3, 1)
    assert "accel: describe: 3 of 3\n" in err
    index = f"{tmp_path}/_accel/"
    pq.write_table(pa.table({"id": [1], "name": ["n9"]}), tmp_path / "9.parquet")
    assert main(["refresh-index", index, "--here", "--quiet"]) == 0
    assert main(["compact-index", index, "--here", "--json"]) == 0
    out, err = capsys.readouterr()
    compacted = json.loads(out[out.index("{") :])
    assert (compacted["files"], compacted["segments"]) == (4, 1)
    assert err == ""
    scan = accel.scan(str(tmp_path), "name = 'n9'", index=index, cache=None)
    assert (scan.to_table().num_rows, scan.metrics.catalog.total) == (1, 4)
