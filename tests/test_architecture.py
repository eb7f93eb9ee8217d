"""The house rules that a machine can hold: what is loaded, who imports whom, how long and how named modules
are."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accel.testing import Layout, bench_table, write_file

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "accel").rglob("*.py"))
# Loading any of these costs more than a selective query does.
HEAVY = {"aiohttp", "pandas", "pyarrow.acero", "pyarrow.dataset", "pyspark", "rich"}
MAX_LINES, MAX_FUNCTION_LINES = 700, 70


def loaded_by(code: str, *arguments: str) -> set[str]:
    """The modules that a fresh process has loaded after `code`, which may set `result`."""
    tail = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code + tail, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A function's length without its docstring, which is a contract and as long as it has to be."""
    first = node.body[0]
    documented = ast.get_docstring(node) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


SCANS = {
    "import": "import accel, accel.stores; accel.scan, accel.col, accel.Options",
    "blocking": (
        "import sys, accel\n"
        "found = accel.scan(sys.argv[1], 'key = 300', columns=['name', 'value', 'ts']).to_table()\n"
        "assert found.num_rows == 1"
    ),
    "async": (
        "import asyncio, sys, accel\n"
        "async def main():\n"
        "    scan = accel.scan(sys.argv[1], \"category LIKE 'category 00%' AND amount IS NOT NULL\")\n"
        "    return sum([batch.num_rows async for batch in scan])\n"
        "assert asyncio.run(main()) > 0"
    ),
    "through obstore": (
        "import sys, accel\n"
        "from obstore.store import LocalStore\n"
        "store = LocalStore(sys.argv[1].rpartition('/')[0])\n"
        "assert accel.scan('bench.parquet', accel.col('key') == 300, store=store).count_rows() == 1"
    ),
    "plan": "import sys, accel\nassert len(accel.plan(sys.argv[1], [('key', '>', 30)]).tasks) == 2",
}


@pytest.mark.parametrize("name", list(SCANS))
def test_a_first_scan_loads_nothing_heavy(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.parquet"
    path.write_bytes(write_file(bench_table(2_000), Layout(group_rows=1_000, page_rows=100)))
    modules = loaded_by(SCANS[name], str(path))
    assert "accel" in modules
    assert HEAVY & modules == set()
    if name == "import":
        # Names are looked up when they are used: the import itself brings no Arrow.
        assert "pyarrow.parquet" not in modules


def test_plain_numbers_without_a_condition_load_no_functions_of_arrow(tmp_path: Path) -> None:
    path = tmp_path / "bench.parquet"
    path.write_bytes(
        write_file(bench_table(2_000), Layout(group_rows=1_000, page_rows=100, dictionary=False))
    )
    code = "import sys, accel\nassert accel.scan(sys.argv[1], columns=['key']).to_table().num_rows == 2_000"
    assert "pyarrow._compute" not in loaded_by(code, str(path))


@pytest.mark.parametrize(
    "where",
    [
        "key = 300",
        "category = 'category 0030'",
        "category LIKE 'category 00%'",
        "key IN (3, 300) OR name < 'b'",
    ],
)
def test_a_lookup_leaves_arrows_own_memory_and_functions_alone(where: str, tmp_path: Path) -> None:
    """mimalloc's first byte may have huge pages cleared, for 6 ms; pyarrow.compute takes 25."""
    path = tmp_path / "bench.parquet"
    path.write_bytes(write_file(bench_table(2_000), Layout(group_rows=1_000, page_rows=100)))
    code = (
        "import sys, accel, pyarrow as pa\n"
        "assert accel.scan(sys.argv[1], sys.argv[2], columns=['key', 'category']).to_table().num_rows > 0\n"
        "pool = pa.default_memory_pool()\n"
        "assert pool.backend_name != 'mimalloc' or pool.total_bytes_allocated() == 0, pool.total_bytes_allocated()"
    )
    assert "pyarrow.compute" not in loaded_by(code, str(path), where)


def test_the_check_for_heavy_modules_sees_them() -> None:
    assert {"aiohttp", "pyarrow.dataset"} <= loaded_by("import aiohttp, pyarrow.dataset")


def test_the_import_contract() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("needs import-linter, of the extra `lint`")
    done = subprocess.run(
        [program, "--no-cache"], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_small_named_and_explained(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_LINES
    assert path.stem not in {"utils", "util", "helpers", "common", "misc", "manager"}
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says in a sentence what it holds"
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {
        f"{node.name}: {lines} lines"
        for node in functions
        if (lines := code_lines(node)) > MAX_FUNCTION_LINES
    }
    assert long == set()
    unfinished = [line for line in text.splitlines() if "TODO" in line or "FIXME" in line]
    assert unfinished == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_rests_on_an_assert(path: Path) -> None:
    """`python -O` leaves asserts out."""
    asserts = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)]
    assert asserts == []


def test_the_random_numbers_of_the_program_are_left_to_it() -> None:
    """A program may have seeded them, and its forks begin with the same ones."""
    shared = re.compile(r"\brandom\.(?!SystemRandom\b)\w+|from random import")
    found = {
        f"{path.relative_to(ROOT)}: {match}"
        for path in MODULES
        if re.search(r"^ *(import random$|from random import)", text := path.read_text(), re.MULTILINE)
        for match in shared.findall(text)
    }
    assert found == set()
    assert shared.search("random.uniform(0, 1)") and not shared.search("random.SystemRandom()")


# Python's own, and those of pyarrow and pyspark, where these have no other way.
PRIVATE_OF_OTHERS = {"_call", "_jvm", "_run"}


def private_names(tree: ast.AST) -> set[str]:
    """The private names that code defines: functions, classes, variables and attributes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return {name for name in found if name.startswith("_") and not name.endswith("_")}


def touched_names(tree: ast.AST) -> set[str]:
    """The names that a test imports, takes from something else than itself, or has pytest replace."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(name.name for name in node.names)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
        ):
            texts = [
                a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            found.update(text.rpartition(".")[2] for text in texts)
    return found


def test_tests_touch_nothing_private() -> None:
    """What a test has to reach or replace is a public name of its module or class."""
    private = {name for path in MODULES for name in private_names(ast.parse(path.read_text()))}
    assert len(private) > 1000
    touched = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if not private.intersection(re.findall(r"(?<!\w)_\w+", text)):
            continue
        tree = ast.parse(text)
        names = touched_names(tree) & private - private_names(tree) - PRIVATE_OF_OTHERS
        if names and path.parent.name != "peers":  # those are about programs beside accel
            touched[str(path.relative_to(ROOT))] = sorted(names)
    assert touched == {}


def test_what_is_private_and_touched_is_found() -> None:
    tree = ast.parse(
        "from accel.a import _b\nx._c\nself._d\npatch.setattr(x, '_e', 1)\npatch.setattr('accel.x._f', 1)\nx.g = 1"
    )
    assert touched_names(tree) >= {"_b", "_c", "_e", "_f", "g"}
    assert "_d" not in touched_names(tree)
    assert private_names(ast.parse("_a = 1\ndef _b(): self._c = 2\ndef __d__(): pass")) == {"_a", "_b", "_c"}


def test_lines_are_counted_without_the_docstring() -> None:
    [node] = ast.parse('def f(x):\n    """One.\n\n    Two.\n    """\n    return x\n').body
    assert isinstance(node, ast.FunctionDef)
    assert code_lines(node) == 2


def test_no_module_bears_the_name_of_a_public_function() -> None:
    import accel

    functions = {name for name in accel.__all__ if callable(getattr(accel, name)) and name.islower()}
    assert {"plan", "scan"} <= functions
    taken = {path.stem for path in (ROOT / "accel").iterdir()}
    assert functions & taken == set()


def test_all_names_exist_and_are_explained() -> None:
    import accel

    for name in accel.__all__:
        assert getattr(accel, name).__doc__, name
    assert len(accel.__all__) == len(set(accel.__all__))
