"""What every command has: options in full, examples in its help, a time limit, completions; and the commands
over directories."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pathlib
import pty
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

import accel
from accel.cli.command_parser import EXAMPLES
from accel.cli.commands import build_parser
from accel.cli.completions import SHELLS, completions, walk_commands
from accel.cli.main import main
from accel.cli.terminal import cut_names, short_type

COMMANDS = {
    " ".join(path): parser for path, parser, below in walk_commands(build_parser()) if path and not below
}


def test_every_command_has_examples_that_parse_and_are_in_its_help() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for command, lines in EXAMPLES.items():
        for line in lines:
            words = list(itertools.takewhile(lambda word: word != ">", shlex.split(line)))
            assert words[0] == "accel"
            build_parser().parse_args(words[1:])
            assert line in COMMANDS[command].format_help()


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["scan", "f", "--wher", "a = 1"], "there is no option --wher: did you mean --where?"),
        (["scan", "f", "--column=a"], "there is no option --column: did you mean --columns?"),
        (["scan", "f", "--limt", "1"], "there is no option --limt: did you mean --limit?"),
        (["index", "build", "f", "--colums", "a"], "there is no option --colums: did you mean --columns?"),
        (["scan", "f", "--frobnicate"], "there is no option --frobnicate"),
        (["embed", "f", "g", "h"], "unrecognized arguments: h"),
        (["scna", "f"], "argument COMMAND: there is no 'scna': did you mean scan?"),
        (["index", "bild", "f"], "argument VERB: there is no 'bild': did you mean build?"),
        (["scan", "f", "-f", "jsonl"], "argument --format/-f: there is no 'jsonl': did you mean json?"),
        (["completions", "tcsh"], "argument shell: there is no 'tcsh': there are bash, zsh, fish"),
        (["scan", "f", "--listing", "x"], "argument --listing: there is no 'x': there are store, index"),
        (["scan", "f", "--version", "x"], "argument --version: not a version of a table: 'x'"),
        (["index", "vacuum", "i", "--grace", "-1"], "argument --grace: not a number of hours: '-1'"),
        (["index", "vacuum", "i", "--grace", "nan"], "argument --grace: not a number of hours: 'nan'"),
    ],
)
def test_an_option_is_spelt_in_full(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"accel: error: {told} (see accel ")
    assert err.endswith("--help)\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_name_every_command_and_option(shell: str) -> None:
    script = completions(build_parser(), shell)
    for path, parser, _ in walk_commands(build_parser()):
        assert all(word in script for word in path)
        for action in parser._actions:
            for option in action.option_strings:
                assert (
                    f"-l {option[2:]}" if shell == "fish" and option.startswith("--") else option[1:]
                ) in script


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sca"], {"scan"}),
        (["scan", "f", "--col"], {"--columns"}),
        (["scan", "--format", "m"], {"markdown"}),
        (["index", "ver"], {"verify"}),
        (["optimize", "d", "--preset", "r"], {"random-access"}),
        (["completions", ""], {"-h", "--help"}),
    ],
    ids=lambda value: " ".join(sorted(value)),  # a set has no order that two processes share
)
def test_bash_completes(words: list[str], offered: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    line = " ".join(shlex.quote(word) for word in ["accel", *words])
    script = f"{completions(build_parser(), 'bash')}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}\n_accel\n"
    said = subprocess.run(
        [bash, "-c", script + 'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True
    )
    assert set(said.stdout.split()) == offered


def test_a_shell_that_completes_is_named_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completions", "fish"]) == 0
    assert capsys.readouterr().out.startswith("complete -c accel -n 'not __fish_seen_subcommand_from")


@pytest.fixture
def flights(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "flights"
    folder.mkdir()
    for part, carriers in enumerate((["UA", "HA", None], ["AA", "UA", "a|b"])):
        table = pa.table({"carrier": carriers, "delay": [part, 10 + part, 20 + part]})
        pq.write_table(table, folder / f"{part}.parquet")
    return folder


def test_distinct(flights: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distinct", str(flights), "carrier", "--where", "delay >= 10", "-f", "json", "-v"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {"carrier": "HA"},
        {"carrier": "UA"},
        {"carrier": "a|b"},
        {"carrier": None},
    ]
    assert "rows" not in said.err and "requests" in said.err
    assert main(["distinct", str(flights), "carier"]) == 2
    assert "did you mean 'carrier'" in capsys.readouterr().err


def test_the_columns_of_all_files(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "2024.parquet")
    pq.write_table(pa.table({"id": [3], "note": ["late"]}), tmp_path / "2025.parquet")
    assert main(["scan", str(tmp_path), "--where", "note = 'late'"]) == 2
    assert "--schema union takes those of all" in capsys.readouterr().err
    assert main(["scan", str(tmp_path), "--where", "note = 'late'", "--schema", "union"]) == 0
    assert capsys.readouterr().out == 'id,note\n3,"late"\n'
    assert main(["distinct", str(tmp_path), "note", "--schema", "union"]) == 0
    assert capsys.readouterr().out == 'note\n"late"\n\n'


def test_distinct_goes_on_without_files(flights: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (flights / "0.parquet").write_bytes(b"no Parquet file, this")
    assert main(["distinct", str(flights), "carrier", "--on-error", "skip"]) == 3
    said = capsys.readouterr()
    assert said.out == 'carrier\n"AA"\n"UA"\n"a|b"\n'
    assert said.err.count("0.parquet: not a Parquet file") == 1


def test_optimize(flights: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(flights), "--sort-by", "delay:descending", "-i", "carrier=distinct"]) == 0
    assert "rewritten, 6 rows, 2 files" in capsys.readouterr().out
    (written,) = flights.glob("*.parquet")
    assert pq.read_table(written)["delay"].to_pylist() == [21, 20, 11, 10, 1, 0]
    assert main(["optimize", str(flights), "--sort-by", "nowhere"]) == 2
    assert main(["optimize", str(flights), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 6


@pytest.mark.parametrize("slash", ["", "/"])
def test_embed_of_a_directory(flights: pathlib.Path, slash: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", f"{flights}{slash}", "--index", "carrier=distinct"]) == 0
    assert "2 of 2 files got indexes" in capsys.readouterr().out
    assert main(["embed", f"{flights}{slash}", "--index", "carrier=distinct", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 2
    assert main(["embed", f"{flights}{slash}", "--dry-run"]) == 2


def test_embed_says_which_files_could_not(flights: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (flights / "2.parquet").write_bytes(b"none")
    assert main(["embed", str(flights), "--index", "carrier=distinct"]) == 1
    assert "2.parquet has no indexes" in capsys.readouterr().err


def test_tsv_and_markdown(tmp_path: pathlib.Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"a": ["x\ty", "p|q", None], "n": [1, 2, None]}), path)
    assert main(["scan", path, "--format", "tsv"]) == 0
    assert capsysbinary.readouterr().out == b"a\tn\nx\\ty\t1\np|q\t2\n\t\n"
    assert main(["scan", path, "--format", "markdown"]) == 0
    told = capsysbinary.readouterr().out.decode().splitlines()
    assert told == ["| a | n |", "| --- | ---: |", r"| x\\ty | 1 |", r"| p\|q | 2 |", "|  |  |"]
    for name in ("f.tsv", "f.md"):
        assert main(["scan", path, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "f.md").read_text().startswith("| a | n |")
    assert (tmp_path / "f.tsv").read_text().startswith("a\tn\n")


def test_tsv_of_any_value(tmp_path: pathlib.Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = str(tmp_path / "f.parquet")
    odd = pa.array(["a\nb\r", 'say "hi"', "back\\slash", ""])
    broken = pa.array([b"\xff", b"", None, b"x"]).cast(pa.string(), safe=False)
    rows = pa.table(
        {
            "odd": odd,
            "broken": broken,
            "when": pa.array([0, 1, None, 3], pa.timestamp("s", "UTC")),
            "price": pa.array([1, None, -2, 3], pa.decimal128(5, 1)),
            "pair": [{"x": 1}, None, {"x": None}, {"x": 4}],
            "flag": [True, False, None, True],
            "none": pa.nulls(4),
        }
    )
    pq.write_table(rows, path)
    assert main(["scan", path, "--format", "tsv"]) == 0
    assert capsysbinary.readouterr().out.split(b"\n") == [
        b"odd\tbroken\twhen\tprice\tpair\tflag\tnone",
        b'a\\nb\\r\t\xff\t1970-01-01 00:00:00.000Z\t1.0\t{"x":1}\ttrue\t',
        b'say "hi"\t\t1970-01-01 00:00:01.000Z\t\t\tfalse\t',
        b'back\\\\slash\t\t\t-2.0\t{"x":null}\t\t',
        b'\tx\t1970-01-01 00:00:03.000Z\t3.0\t{"x":4}\ttrue\t',
        b"",
    ]
    assert main(["scan", path, "--format", "tsv", "--columns", "odd", "--limit", "1"]) == 0
    assert capsysbinary.readouterr().out == b"odd\na\\nb\\r\n"


@pytest.mark.parametrize("asked", [["--count"], ["--aggregate", "delay=max"]])
def test_what_comes_without_rows_counts_none(
    flights: pathlib.Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", str(flights), *asked, "-v"]) == 0
    assert "rows" not in capsys.readouterr().err


def test_types_stand_under_the_headings(flights: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(flights), "--format", "table"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert (first.split(), second.split()) == (["carrier", "delay"], ["string", "int64"])


@pytest.mark.parametrize(
    ("kind", "short"),
    [
        (pa.large_string(), "string"),
        (pa.timestamp("us", "UTC"), "timestamp[us, UTC]"),
        (pa.timestamp("ns"), "timestamp[ns]"),
        (pa.decimal128(10, 2), "decimal(10, 2)"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.list_(pa.struct([("a", pa.int64())])), "list"),
        (pa.struct([("a", pa.int64())]), "struct"),
        (pa.map_(pa.string(), pa.int64()), "map"),
        (pa.date32(), "date32"),
        (pa.uuid(), "uuid"),
        (pa.binary(16), "fixed_size_binary"),
    ],
    ids=str,
)
def test_types_are_short(kind: pa.DataType, short: str) -> None:
    assert short_type(kind) == short


@pytest.mark.parametrize("mark", ["…", ""])
@pytest.mark.parametrize(
    "names",
    [
        ["departure_delay_minutes", "departure_delay_hours"],
        ["a_long_common_beginning_1_and_end", "a_long_common_beginning_2_and_end", "short"],
        [f"a_long_beginning_{i}" for i in range(30)],
        ["same_name_twice", "same_name_twice"],
    ],
    ids=len,
)
@pytest.mark.parametrize("width", [6, 9, 14])
def test_headings_that_are_cut_differ(names: list[str], width: int, mark: str) -> None:
    cut = cut_names(names, [width] * len(names), mark=mark)
    assert len(set(cut)) == len(names)
    assert all(cell_len(name) <= width for name in cut)


def test_a_heading_may_be_empty() -> None:
    assert cut_names(["", "name"], [4, 4], mark="…") == ["", "name"]


# -- waiting -----------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    for each in held:
        each.close()


COMMANDS_THAT_WAIT = {
    "scan": ["scan", "{}/f.parquet"],
    "count": ["scan", "{}/f.parquet", "--count"],
    "explain": ["explain", "{}/f.parquet"],
    "distinct": ["distinct", "{}/f.parquet", "a"],
    "inspect": ["inspect", "{}/f.parquet"],
    "embed": ["embed", "{}/f.parquet", "g.parquet"],
    "optimize": ["optimize", "s3://b/d/", "--endpoint", "{}", *["--storage-option", "allow_http=true"]],
    "index build": [
        "index",
        "build",
        "s3://b/d/",
        "--endpoint",
        "{}",
        *["--storage-option", "allow_http=true"],
    ],
}


@pytest.mark.parametrize("argv", COMMANDS_THAT_WAIT.values(), ids=COMMANDS_THAT_WAIT.keys())
def test_every_command_ends_in_time(
    argv: list[str],
    silent: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert main([each.format(silent) for each in argv] + ["--timeout", "0.3"]) == 1
    assert "was not done within 0.3 seconds" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("argv", [["scan"], ["scan", "--count"], ["explain"]], ids=" ".join)
def test_a_terminal_is_told_whom_the_command_waits_for(argv: list[str], silent: str) -> None:
    leader, follower = pty.openpty()
    url = f"{silent}/f.parquet"
    command = [sys.executable, "-m", "accel.cli.main", argv[0], url, *argv[1:], "--timeout", "30"]
    waiting = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(follower)
    said, until = b"", time.monotonic() + 60
    try:
        while b"waiting for 127.0.0.1" not in said and time.monotonic() < until:
            said += os.read(leader, 4096)
    except OSError:  # the process has ended
        pass
    finally:
        waiting.kill()
        waiting.wait()
        os.close(leader)
    assert f"waiting for {silent.removeprefix('http://')}".encode() in said


def test_nothing_is_in_flight_after_a_time_limit(silent: str) -> None:
    with pytest.raises(TimeoutError, match=r"s3://b/d/: .* within 0\.2 seconds"):
        accel.build_index("s3://b/d/", timeout=0.2, storage_options=s3_at(silent))

    async def index() -> None:
        await accel.refresh_index_async("s3://b/d/_accel/", timeout=0.2, storage_options=s3_at(silent))

    with pytest.raises(accel.ScanTimeoutError):
        asyncio.run(index())
    from accel.runtime import io_loop

    async def others() -> set[asyncio.Task[object]]:
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[operator]

    until = time.monotonic() + 5
    while io_loop.run(others()) and time.monotonic() < until:
        time.sleep(0.01)
    assert io_loop.run(others()) == set()


def s3_at(url: str) -> dict[str, str]:
    keys = {"access_key_id": "KEY", "secret_access_key": "SECRET", "region": "us-east-1"}
    return {**keys, "endpoint": url, "allow_http": "true"}
