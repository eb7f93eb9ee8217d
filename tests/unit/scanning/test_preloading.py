"""What a first scan needs later is loaded while its first bytes are on their way; each in a process of its own."""

from __future__ import annotations

import importlib
import subprocess
import sys
from textwrap import dedent, indent

import pytest

from accel.scanning import preloading
from accel.testing import Layout, bench_table, write_file

KEY = 3 * 20_000
PROGRAM = """
import asyncio, sys
import accel
from accel.scanning import preloading
from accel.testing import DictStore

path, where = sys.argv[1], {where!r}
data = open(path, "rb").read()

def left():
    return [len(preloading._binding), len(preloading._reading), len(preloading._filtering)]

every = left()

def loaded():
    return {{name for name in sys.modules if name.startswith("accel.") or name == "pyarrow._compute"}}

class Slow(DictStore):
    at_last = None

    async def read(self, *args, **keywords):
        while any(left() if where else left()[1:2]):
            await asyncio.sleep(0.001)
        if self.at_last is None:
            self.at_last = loaded()
        return await super().read(*args, **keywords)

slow, quick = Slow({{"x.parquet": data}}), DictStore({{"x.parquet": data}})
{body}
"""


def _run(tmp_path, where: str | None, body: str) -> str:
    path = tmp_path / "x.parquet"
    path.write_bytes(write_file(bench_table(50_000), Layout(group_rows=25_000, page_rows=1_000)))
    program = PROGRAM.format(where=where, body=dedent(body))
    run = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, indent(run.stderr, "    ")
    return run.stdout.strip()


@pytest.mark.parametrize("where", [f"key = {KEY}", None], ids=["condition", "none"])
@pytest.mark.parametrize(
    "source",
    ["'x.parquet'", "accel.plan('x.parquet', where, store=quick)"],
    ids=["file", "plan"],
)
def test_nothing_is_loaded_once_the_first_bytes_have_come(tmp_path, source, where):
    body = f"""
    source = {source}
    planned = isinstance(source, accel.Plan)
    unasked = left() == every
    scan = accel.scan(source, None if planned else where, store=slow)
    print(unasked, scan.to_table().num_rows, sorted(loaded() - slow.at_last))
    """
    assert _run(tmp_path, where, body) == f"True {50_000 if where is None else 1} []"


@pytest.mark.parametrize(
    "asked",
    [
        "accel.scan(path, where).to_table().num_rows",
        "accel.scan('x.parquet', store=quick).count_rows()",
        "len(accel.plan('x.parquet', where, store=quick).tasks)",
    ],
    ids=["local", "count", "plan"],
)
def test_nothing_is_loaded_ahead_in_vain(tmp_path, asked):
    body = f"""
    found = {asked}
    print(found > 0, left() == every)
    """
    assert _run(tmp_path, f"key = {KEY}", body) == "True True"


def test_many_scans_look_no_more_often_than_one(tmp_path):
    """Of a store whose requests are answered at once, which leaves no time to load anything."""
    body = """
    import time

    calls, load_next = 0, preloading._load_next

    def counted(*args):
        global calls
        calls += 1
        load_next(*args)

    preloading._load_next = counted
    started = time.monotonic()
    for _ in range(200):
        accel.scan("x.parquet", where, store=quick).to_table()
    most = (time.monotonic() - started) / preloading._AFTER
    print(0 < calls <= most + 10, preloading._binding)
    """
    assert _run(tmp_path, f"key = {KEY}", body) == "True deque([])"


@pytest.mark.parametrize("name", [*preloading._BINDING, *preloading._READING, *preloading._FILTERING])
def test_what_is_loaded_is_there(name):
    importlib.import_module(name)
