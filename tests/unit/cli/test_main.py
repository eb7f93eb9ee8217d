from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.main import main
from accel.testing import Layout, table, write_file

ROWS = 1000


def flights() -> pa.Table:
    return pa.Table.from_arrays(
        [
            pa.array(range(ROWS)),
            pa.array([None if i % 7 == 0 else f"carrier {i % 3}" for i in range(ROWS)]),
            pa.array([[i, None] for i in range(ROWS)], pa.list_(pa.int64())),
            pa.array([i * 1_000_003 for i in range(ROWS)], pa.timestamp("us")),
        ],
        names=["id", "carrier", "legs", "at"],
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    path.write_bytes(write_file(flights(), Layout(group_rows=400, page_rows=100)))
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("large") / "large.parquet"
    rows = 400_000
    table = pa.Table.from_arrays(
        [pa.array(range(rows)), pa.array([f"text {i}" for i in range(rows)])], names=["a", "b"]
    )
    path.write_bytes(write_file(table, Layout(group_rows=50_000)))
    return str(path)


def run(*argv: str) -> tuple[int, str]:
    """In a process of its own, into a pipe: the status and standard error."""
    done = subprocess.run(command(*argv), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "accel", *argv]


# -- scan, by format -----------------------------------------------------------------------------


def test_csv_is_what_a_pipe_gets(source: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert (
        main(["scan", source, "--where", "id in (6, 7)", "--columns", "carrier,id", "--columns", "legs,at"])
        == 0
    )
    out, err = capfdbinary.readouterr()
    assert out == (
        b"carrier,id,legs,at\n"
        b'"carrier 0",6,"[6,null]",1970-01-01 00:00:06.000018\n'
        b',7,"[7,null]",1970-01-01 00:00:07.000021\n'
    )
    assert err == b""


def test_json_lines(source: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["scan", source, "-w", "id in (6, 7)", "-c", "id,carrier,legs", "--format", "json"]) == 0
    assert [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()] == [
        {"id": 6, "carrier": "carrier 0", "legs": [6, None]},
        {"id": 7, "carrier": None, "legs": [7, None]},
    ]


def test_a_table(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", source, "-w", "id in (6, 7)", "-c", "id,carrier,legs", "-f", "table"]) == 0
    names, types, rule, *rows = capsys.readouterr().out.splitlines()
    # rich before 14.3 has a space more at both edges.
    assert rule in ("─" * 29, "─" * 31)
    assert [line.rstrip() for line in textwrap.dedent("\n".join([names, types, *rows])).splitlines()] == [
        "   id   carrier     legs",
        "int64   string      list",
        "    6   carrier 0   [6, null]",
        "    7   NULL        [7, null]",
    ]


def test_a_table_without_limit_ends_and_says_so(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", source, "-c", "id", "-f", "table"]) == 0
    out, err = capsys.readouterr()
    assert [line.strip() for line in out.splitlines()[3:]] == [str(i) for i in range(100)]
    assert err == "accel: the first 100 rows; --limit shows more, --format csv or json all\n"
    assert main(["scan", source, "-c", "id", "-f", "table", "-n", "1000"]) == 0
    out, err = capsys.readouterr()
    assert [line.strip() for line in out.splitlines()[3:]] == [str(i) for i in range(ROWS)]
    assert err == ""
    assert main(["scan", source, "-c", "id", "-f", "table", "-n", "9" * 20]) == 0
    assert capsys.readouterr() == (out, "")
    assert main(["scan", source, "-c", "id", "-w", "id < 100", "-f", "table"]) == 0
    assert capsys.readouterr().err == ""


def test_an_arrow_stream(source: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["scan", source, "-w", "id >= 390 and id < 410", "-f", "arrow"]) == 0
    table = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert table.equals(flights().slice(390, 20))


def test_a_parquet_file_replaces_another_at_the_end(source: str, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    target.write_bytes(b"old")
    assert main(["scan", source, "-w", "id >= 500", "-o", str(target)]) == 0
    assert pq.read_table(target).equals(flights().slice(500))
    assert pq.ParquetFile(target).metadata.row_group(0).column(0).has_offset_index
    assert os.listdir(tmp_path) == ["out.parquet"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "arrow", "txt"])
def test_the_format_follows_the_files_name(source: str, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"out.{suffix}"
    assert main(["scan", source, "-n", "3", "-c", "id", "-o", str(target)]) == 0
    data = target.read_bytes()
    if suffix == "arrow":
        assert pa.ipc.open_stream(data).read_all().to_pydict() == {"id": [0, 1, 2]}
    elif suffix == "jsonl":
        assert data == b'{"id":0}\n{"id":1}\n{"id":2}\n'
    else:
        assert [line.strip() for line in data.split(b"\n") if line.strip()][-3:] == [b"0", b"1", b"2"]


def test_no_rows_still_have_a_header(source: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["scan", source, "-w", "id < 0", "-c", "id,at"]) == 0
    assert capfdbinary.readouterr().out == b"id,at\n"
    assert main(["scan", source, "-w", "id < 0", "-c", "id,at", "-f", "arrow"]) == 0
    read = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert (read.num_rows, read.schema.names) == (0, ["id", "at"])


def test_csv_that_csv_readers_read(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    odd = pa.Table.from_arrays([pa.array(['a,"b"\nc', "", None, "é"])], names=['x,"y"'])
    path = tmp_path / "odd.parquet"
    pq.write_table(odd, path)
    assert main(["scan", str(path)]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert list(csv.reader(io.StringIO(out, newline=""))) == [['x,"y"'], ['a,"b"\nc'], [""], [], ["é"]]
    assert main(["scan", str(path), "-c", '"x,""y"""', "-n", "1", "-f", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == {'x,"y"': 'a,"b"\nc'}


def test_int96_that_nanoseconds_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "far.parquet"
    last = pa.array([253_402_300_799_999_999], pa.timestamp("us"))
    pq.write_table(pa.Table.from_arrays([last], names=["at"]), path, use_deprecated_int96_timestamps=True)
    assert main(["scan", str(path)]) == 1
    assert "does not fit in timestamp[ns]" in capsys.readouterr().err
    assert main(["scan", str(path), "--int96-unit", "us", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"at": "9999-12-31T23:59:59.999999"}


def test_counting(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", source, "--count", "-w", "carrier is null"]) == 0
    assert capsys.readouterr().out == "143\n"


def test_aggregates(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = pq.read_table(source).group_by([]).aggregate([("id", "max"), ([], "count_all")]).to_pylist()
    wanted = ",".join(str(value) for value in found[0].values())
    asked = ["scan", source, "--aggregate", "id=max", "-a", "count_all"]
    assert main(asked) == 0
    assert capsys.readouterr().out == f"id_max,count_all\n{wanted}\n"
    assert main([*asked, "-o", str(tmp_path / "x.json"), "-n", "3"]) == 0
    assert json.loads((tmp_path / "x.json").read_text())["count_all"] == 3


def test_several_sources_and_partitions(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for year in (2012, 2013):
        path = tmp_path / f"year={year}" / "x[1].parquet"
        path.parent.mkdir()
        path.write_bytes(Path(source).read_bytes())
    first = ["scan", f"{tmp_path}/", "-w", "id = 1 and year > 2012", "-c", "year,id"]
    assert main(first) == 0
    assert capsys.readouterr().out == "year,id\n2013,1\n"
    assert main([*first, "--partitioning", "none"]) == 2
    assert "no column 'year'" in capsys.readouterr().err
    files = [f"{tmp_path}/year={year}/x[1].parquet" for year in (2012, 2013)]
    assert main(["scan", *files, "--no-glob", "-w", "id = 1", "-c", "id,year"]) == 0
    assert capsys.readouterr().out == "id,year\n1,2012\n1,2013\n"


def test_the_file_of_a_row_as_a_column(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["scan", source, "-w", f"id = 1 and f = '{source}'", "--file-path", "f", "--timeout", "60"]
    assert main([*asked, "-c", "id,f"]) == 0
    assert capsys.readouterr().out == f'id,f\n1,"{source}"\n'
    assert main(["scan", source, "--file-path", "id"]) != 0
    assert "give it another name, such as 'source_id'" in capsys.readouterr().err


def test_columns_in_any_case(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["scan", source, "-w", "ID = 1", "-c", "Id"]
    assert main([*asked, "--ignore-case"]) == 0
    assert capsys.readouterr().out == "id\n1\n"
    assert main(["distinct", source, "ID", "-w", "iD < 3", "--ignore-case"]) == 0
    assert capsys.readouterr().out == "ID\n0\n1\n2\n"
    assert main(["explain", source, "-w", "ID = 1", "--ignore-case"]) == 0
    assert "id = 1" in capsys.readouterr().out
    assert main(asked) == 2
    assert "did you mean 'id'?" in capsys.readouterr().err


def test_columns_that_differ_in_case_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "both.parquet"
    path.write_bytes(write_file(table(id=[1], ID=[2])))
    assert main(["scan", str(path), "--ignore-case"]) == 1
    told = "name other columns in --columns; leaving out --ignore-case takes names as they are written"
    assert told in " ".join(capsys.readouterr().err.split())


def test_verbose_says_what_it_cost(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", source, "-w", "id = 1", "-c", "id", "-v"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("accel: 1 row, ")
    assert re.search(r" in (1 round trip|[02-9] round trips), ", err)


# -- explain -------------------------------------------------------------------------------------


def test_explain(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", source, "--where", "id = 450", "--columns", "carrier", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["columns"], told["row_groups"], told["rows"]) == (["carrier"], [1, 3], [100, ROWS])
    assert main(["explain", source, "-w", "id = 450", "--analyze"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"scan {source}\n")
    assert "rows_out          1\n" in out


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_predicate_that_does_not_parse_is_shown(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", source, "--where", "id << 3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("accel: error: ")
    assert err.endswith("\n  id << 3\n      ^\n")


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["scan", "{tmp}/none.parquet"], 1, "{tmp}/none.parquet: there is no such file or directory"),
        (["scan", "{tmp}/*.none"], 1, "{tmp}/*.none: nothing matches the pattern"),
        (["scan", "{tmp}"], 1, "{tmp}: the directory holds no data file"),
        (["scan", "{source}", "-c", "nope"], 2, "'nope'"),
        (["scan", "{source}", "-w", "nope = 1"], 2, "'nope'"),
        (["scan", "{source}", "-a", "nope=max"], 2, "'nope'"),
        (["explain", "{source}", "-w", "nope = 1"], 2, "'nope'"),
        (["embed", "{source}", "{tmp}/x.parquet", "-i", "nope=distinct"], 2, "nope"),
        (["scan", "{source}", "-w", "id = 'x'"], 2, "accel: error: "),
        (["scan", "ftp://host/x.parquet"], 1, "accel has no store for ftp://"),
        (["scan", "{source}", "-o", "{tmp}/x.unknown"], 2, "which format is"),
        (["scan", "{source}", "-o", "{tmp}/none/x.csv"], 1, "none/x.csv: No such file or directory"),
        (["scan", "{source}", "-o", "s3://b/x.csv"], 2, "-o writes to this machine: 's3://b/x.csv' is a URL"),
        (["scan", "{source}", "-o", "https://me:x@h/x.csv"], 2, "'https://***@h/x.csv' is a URL, not a path"),
        (["scan", "{source}", "-f", "csv", "-o", "{tmp}"], 1, "{tmp}: this is a directory"),
        (["scan", "{source}", "--count", "-n", "3"], 2, "--count goes with no --limit"),
        (["scan", "{source}", "-a", "id=median"], 2, "no aggregate 'median'"),
        (["scan", "{source}", "-a", "id=max", "--count"], 2, "--count goes with no --aggregate"),
        (["inspect", "{tmp}/none.parquet"], 1, "there is no such file"),
        (["scan", "{source}/x"], 1, "(what stands before a slash there is a file, not a directory)"),
        (["optimize", "{source}"], 1, "(this is a file: name the directory that it lies in)"),
        (["scan", "{source}", "--table", "detla"], 2, "no format of tables 'detla' (did you mean 'delta'?)"),
        (["scan", "{source}", "--version", "3"], 2, "it needs --table delta or --table iceberg"),
        (["index", "inspect", "{tmp}/i"], 1, "{tmp}/i/: there is no index (accel index build builds one)"),
        (["index", "refresh", "{tmp}/i"], 1, "{tmp}/i/: there is no index (accel index build builds one)"),
        (["index", "inspect", "sqlite://{tmp}/i.db"], 1, "i.db: there is no such file, and so no index"),
        (["explain", "{source}", "-w", "id ="], 2, "  id =\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors(
    argv: list[str],
    status: int,
    message: str,
    source: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    filled = [a.format(tmp=tmp_path, source=source) for a in argv]
    assert main(filled) == status
    out, err = capsys.readouterr()
    assert err.startswith("accel: error: ")
    assert message.format(tmp=tmp_path) in err
    assert "Traceback" not in err
    assert out == ""
    assert os.listdir(tmp_path) == []


def test_a_warning_of_a_scan_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flights").mkdir()
    for name in ("a", "b"):
        (tmp_path / "flights" / f"{name}.parquet").write_bytes(write_file(flights(), Layout()))
    for command in (["scan", "--count"], ["explain"], ["explain", "--analyze"]):
        assert main([*command, str(tmp_path / "flights"), "--index", str(tmp_path / "none")]) == 0
        assert capsys.readouterr().err == f"accel: warning: there is no index at {tmp_path}/none/\n"


def test_a_warning_is_printed_once_where_no_logging_is_set_up(source: str, tmp_path: Path) -> None:
    told = f"accel: warning: there is no index at {tmp_path}/none/\n"
    assert run("scan", source, "--count", "--index", str(tmp_path / "none")) == (0, told)


def test_what_is_left_out_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.parquet").write_bytes(write_file(flights(), Layout()))
    for name in ("b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(b"no Parquet file, this")
    reason = "{}.parquet: not a Parquet file: it ends with b'this', not b'PAR1'"
    for command in (["scan", "--count"], ["scan", "-f", "json"], ["explain", "--analyze"]):
        assert main([*command, str(tmp_path), "--on-error", "skip"]) == 3
        err = capsys.readouterr().err
        assert [err.count(reason.format(tmp_path / name)) for name in "bc"] == [1, 1]
        assert err.endswith("accel: 2 files are left out\n")
    assert main(["explain", str(tmp_path), "--on-error", "skip"]) == 3
    out = capsys.readouterr().out
    assert [out.count(f"  left out: {reason.format(tmp_path / name)}") for name in "bc"] == [1, 1]


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "none.parquet", "--debug"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    told = f"none.parquet: there is no such file or directory (looked for in {os.getcwd()})"
    assert err.endswith(f"accel: error: {told}\n")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["scan"],
        ["dance", "x"],
        ["scan", "x", "--limit", "-1"],
        ["scan", "x", "--limit", "٣"],
        ["scan", "x", "--format", "xml"],
        ["scan", "x", "--storage-option", "secret"],
        ["scan", "x", "--header", "secret"],
    ],
    ids=" ".join,
)
def test_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("accel: error: ")
    assert err.count("\n") == 1
    assert "secret" not in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"accel {accel.__version__}\n"


def test_a_failed_scan_leaves_the_old_file(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoiled = tmp_path / "spoiled.parquet"
    data = bytearray(Path(source).read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    spoiled.write_bytes(data)
    target = tmp_path / "out.csv"
    target.write_text("old")
    assert main(["scan", str(spoiled), "-o", str(target)]) == 1
    assert "accel: error: " in capsys.readouterr().err
    assert target.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "spoiled.parquet"]


# -- as a process --------------------------------------------------------------------------------


def test_the_status_reaches_the_shell(source: str) -> None:
    assert run("scan", source, "-n", "1") == (0, "")
    assert run("scan", "none.parquet") == (
        1,
        f"accel: error: none.parquet: there is no such file or directory (looked for in {os.getcwd()})\n",
    )
    assert run("scan", source, "-w", "id =")[0] == 2


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet", "table"])
def test_a_reader_that_goes_away_ends_it_quietly(large: str, kind: str) -> None:
    process = subprocess.Popen(
        command("scan", large, "-f", kind, "-n", "400000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert len(process.stdout.read(10)) == 10
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), err) == (141, b"")


def test_an_interrupt_ends_it_and_leaves_nothing(large: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("scan", large, "-f", "csv"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "a,b\n"
    time.sleep(0.2)  # it waits for the pipe to be read
    process.send_signal(signal.SIGINT)
    err = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert (process.wait(60), err) == (130, "\n")


# Runs the command, and stops where a file is half written: in the middle of a block of rows, or of what is
# copied.
_STOPPING = """
import sys, time
from accel.cli import main
from accel.cli import output as sinks
from accel.writing import embedding

def stop(*given, **more):
    print("half", flush=True)
    for _ in range(600):  # a signal that another thread gets does not wake a sleep
        time.sleep(0.1)

sinks.CsvSink.write = embedding.copy_bytes = stop
sys.exit(main.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
@pytest.mark.parametrize(
    "argv",
    [
        ["scan", "{source}", "-o", "{folder}/out.csv"],
        ["embed", "{source}", "{folder}/out.parquet"],
        ["embed", "{folder}/in.parquet"],
    ],
    ids=["scan", "embed", "embed in place"],
)
def test_a_signal_leaves_no_half_written_file(
    argv: list[str], number: signal.Signals, source: str, tmp_path: Path
) -> None:
    shutil.copy(source, tmp_path / "in.parquet")
    asked = [text.format(source=source, folder=tmp_path) for text in argv]
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPPING, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    assert len(os.listdir(tmp_path)) == 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "\n" if number == signal.SIGINT else "")
    assert os.listdir(tmp_path) == ["in.parquet"]
    assert (tmp_path / "in.parquet").read_bytes() == Path(source).read_bytes()


def test_a_signal_that_is_ignored_stays_so(source: str, tmp_path: Path) -> None:
    """As `nohup` has it."""
    asked = [sys.executable, "-c", _STOPPING, "scan", source, "-o", str(tmp_path / "out.csv")]
    process = subprocess.Popen(
        ["bash", "-c", "trap '' HUP; exec \"$@\"", "bash", *asked], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (process.returncode, os.listdir(tmp_path)) == (143, [])


def in_shell(line: str, *argv: str) -> tuple[int, str, str]:
    """In a shell, which puts the command in the place of `$@`: the status, standard output and error."""
    done = subprocess.run(
        ["bash", "-c", line, "bash", *command(*argv)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("argv", "status", "out"),
    [
        (["scan", "{source}", "-n", "2", "-c", "id", "-v"], 0, "id\n0\n1\n"),
        (["scan", "{source}", "--count"], 0, f"{ROWS}\n"),
        (["scan", "none.parquet"], 1, ""),
        (["embed", "{source}", "{tmp}/x.parquet", "--json", "--dry-run"], 0, '{"path": "{tmp}/x.parquet"'),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_without_standard_error(argv: list[str], status: int, out: str, source: str, tmp_path: Path) -> None:
    def filled(text: str) -> str:
        return text.replace("{source}", source).replace("{tmp}", str(tmp_path))

    found = in_shell('"$@" 2>&-', *map(filled, argv))
    assert (found[0], found[1][: len(filled(out))], found[2]) == (status, filled(out), "")


@pytest.mark.parametrize(
    "argv", [["scan"], ["scan", "--count"], ["explain"], ["inspect", "--json"]], ids=" ".join
)
def test_without_standard_output_there_is_no_answer(argv: list[str], source: str) -> None:
    wanted = (1, "", "accel: error: standard output is closed\n")
    assert in_shell('"$@" >&-', *argv, source) == wanted
    assert in_shell('"$@" >&- 2>&-', *argv, source) == (1, "", "")


def test_files_are_written_without_standard_output(source: str, tmp_path: Path) -> None:
    rows, table, whole = (str(tmp_path / name) for name in ("x.csv", "x.txt", "x.parquet"))
    asked = ["scan", source, "-c", "id", "-n", "1", "-o"]
    assert in_shell('"$@" >&- 2>&-', *asked, rows) == (0, "", "")
    assert Path(rows).read_text() == "id\n0\n"
    assert in_shell('"$@" >&-', *asked, table) == (0, "", "")
    assert Path(table).read_text().split() == ["id", "int64", "─────", "0"]
    assert in_shell('"$@" >&-', "embed", source, whole) == (0, "", "")
    assert pq.read_table(whole).equals(flights())


def on_terminal(*argv: str, **environment: str) -> tuple[int, str]:
    """In a process whose standard output is a terminal: the status and what it showed."""
    leader, follower = pty.openpty()
    env = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "COLUMNS": "60",
        "LINES": "40",
        **environment,
    }
    process = subprocess.Popen(
        command(*argv), stdout=follower, stderr=subprocess.PIPE, stdin=follower, env=env
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    return process.wait(60), shown.decode() + err.decode()


def test_a_table_is_what_a_terminal_gets(source: str) -> None:
    status, shown = on_terminal("scan", source, "-w", "id = 7", "-c", "id,carrier")
    assert status == 0
    assert "\x1b[" in shown
    assert "NULL" in shown
    status, shown = on_terminal("scan", source, "-w", "id = 7", "-c", "id,carrier", NO_COLOR="1")
    assert status == 0
    assert "NULL" in shown
    assert "\x1b[3" not in shown.replace("\x1b[3m", "")  # italics are no colour


@pytest.fixture(scope="module")
def worldly(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("worldly") / "worldly.parquet"
    fields = pa.struct([(f"field_{i}", pa.int8()) for i in range(9)])
    columns = [pa.array(["日本", "é", "x" * 80]), pa.array([1, 2, 3]), pa.nulls(3, fields)]
    pq.write_table(pa.Table.from_arrays(columns, names=["s", "größe", "nested"]), path)
    return str(path)


@pytest.mark.parametrize(
    ("encoding", "wanted"),
    [
        ("utf-8", ["s        größe", "string   int64", "─" * 14, "日本         1", "é            2"]),
        (
            "latin-1",
            [
                "s            | größe",
                "string       | int64",
                "-" * 13 + "+" + "-" * 6,
                "\\u65e5\\u672c |     1",
                "é            |     2",
            ],
        ),
        (
            "ascii",
            [
                "s            | gr\\xf6\\xdfe",
                "string       |       int64",
                "-" * 13 + "+" + "-" * 12,
                "\\u65e5\\u672c |           1",
                "\\xe9         |           2",
            ],
        ),
    ],
    ids=["utf-8", "latin-1", "ascii"],
)
def test_a_table_in_another_encoding(
    worldly: str, monkeypatch: pytest.MonkeyPatch, encoding: str, wanted: list[str]
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = subprocess.run(
        command("scan", worldly, "-c", "s,größe", "-w", "größe < 3", "-f", "table"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.rstrip() for line in done.stdout.decode(encoding).splitlines()] == wanted


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["inspect"], ["gr\\xf6\\xdfe", "x" * 31 + "...", "nested.field_8"]),
        (["explain", "-w", "s = '日本'"], ["where    s = '\\u65e5\\u672c'"]),
        (["scan"], ["gr\\xf6\\xdfe", "\\u65e5\\u672c", "x" * 59 + "..."]),
        (["scan", "-c", "s"], ["\\u65e5\\u672c", "x" * 59 + "..."]),
    ],
    ids=["inspect", "explain", "scan", "scan of one column"],
)
def test_a_terminal_of_ascii(worldly: str, argv: list[str], wanted: list[str]) -> None:
    status, shown = on_terminal(
        argv[0], worldly, *argv[1:], PYTHONIOENCODING="ascii", COLUMNS="200", NO_COLOR="1", TERM="dumb"
    )
    assert status == 0
    assert shown.isascii()
    assert [text for text in wanted if text not in shown] == []


def test_what_a_narrow_terminal_of_ascii_has_no_room_for_is_cut(worldly: str) -> None:
    status, shown = on_terminal(
        "scan", worldly, "-c", "s", PYTHONIOENCODING="ascii", COLUMNS="20", NO_COLOR="1", TERM="dumb"
    )
    assert (status, shown.split()) == (0, ["s", "string", "-" * 20, "\\u65e5\\u672c", "\\xe9", "x" * 20])


@pytest.mark.parametrize("argv", [["explain", "-w", "s = '日本'"], ["inspect"]], ids=["explain", "inspect"])
def test_json_is_utf8_whatever_the_encoding(
    worldly: str, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    asked = command(argv[0], worldly, *argv[1:], "--json")
    done = subprocess.run(asked, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "größe" in done.stdout.decode("utf-8")
    assert json.loads(done.stdout.decode("utf-8")) != {}


@pytest.mark.parametrize(
    ("kind", "data"),
    [("csv", 's,größe\n"日本",1\n'), ("json", '{"s":"日本","größe":1}\n')],
    ids=["csv", "json"],
)
def test_rows_are_utf8_whatever_the_encoding(
    worldly: str, monkeypatch: pytest.MonkeyPatch, kind: str, data: str
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    asked = command("scan", worldly, "-c", "s,größe", "-n", "1", "-f", kind)
    done = subprocess.run(asked, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, data.encode(), b"")


def test_columns_that_do_not_fit_a_terminal_are_counted(tmp_path: Path) -> None:
    names = [f"column_{i:02}" for i in range(30)]
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["x" * 100])] * 30, names=names), path)
    status, shown = on_terminal("scan", str(path), NO_COLOR="1", TERM="dumb")
    assert status == 0
    lines = shown.replace("\r", "").splitlines()
    assert all(len(line) <= 60 for line in lines[:-1])
    assert "more columns do not fit: name some with --columns" in lines[-1]


@pytest.mark.parametrize(("width", "headers"), [("180", 1), ("110", 2)])
def test_inspect_fits_a_terminal(source: str, width: str, headers: int) -> None:
    status, shown = on_terminal("inspect", source, NO_COLOR="1", TERM="dumb", COLUMNS=width)
    assert status == 0
    lines = shown.replace("\r", "").splitlines()
    assert sum(line.startswith("column") for line in lines) == headers
    table = [line for line in lines if line.startswith(("column", "carrier", "legs.list"))]
    assert len(table) == 3 * headers
    assert not any("…" in line for line in table)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_binary_is_not_written_to_a_terminal(source: str, kind: str) -> None:
    assert on_terminal("scan", source, "-f", kind) == (
        2,
        f"accel: error: {kind} is binary: not written to a terminal (save it with -o FILE, or pipe it)\n",
    )


def test_progress_shows_on_a_terminal_only(large: str, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    leader, follower = pty.openpty()
    env = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    argv = command("scan", large, "-o", str(target))
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=follower, env=env)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:
        pass
    os.close(leader)
    assert process.wait(60) == 0
    assert b" requests in " in shown
    assert shown.rstrip().endswith(b"\x1b[2K")  # the line is wiped at the end
    assert run("scan", large, "-o", str(target)) == (0, "")
    assert target.read_bytes().count(b"\n") == 400_001


def test_a_file_written_anew_keeps_its_mode(source: str, tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("old")
    target.chmod(0o640)
    assert main(["scan", source, "-n", "3", "-c", "id", "-o", str(target)]) == 0
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("id\n0\n1\n2\n", 0o640)
