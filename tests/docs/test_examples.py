"""Every example of the documentation runs as it is printed, page by page, and prints what the page says."""

from __future__ import annotations

import codeop
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.data import write_flights
from tests.docs.fences import PYTHON, SHELL, Fence, read_fences

if TYPE_CHECKING:
    from tests.support.s3 import S3Admin

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_page.py")
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("README.md")])
FENCES = {str(page.relative_to(ROOT)): read_fences(page.read_text(encoding="utf-8")) for page in PAGES}
WITH_CODE = [name for name, fences in FENCES.items() if any(fence.runs for fence in fences)]


@pytest.fixture
def folder(tmp_path: Path, name: str) -> Path:
    """A directory to run in, with the data set that the page's examples read: the README's is the whole
    one."""
    if name == "README.md":
        make = [sys.executable, "-m", "demo.flights", str(tmp_path / "demo-data")]
        subprocess.run(make, cwd=ROOT, timeout=120, check=True)
    else:
        write_flights(tmp_path / "flights")
    return tmp_path


@pytest.fixture(scope="module")
def bucket_environment(s3: S3Admin, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What reaches `s3://bucket/flights/`: the variables that obstore knows, and those that a page spells
    out."""
    folder = tmp_path_factory.mktemp("bucket")
    write_flights(folder / "flights")
    s3.create_bucket("bucket")
    for path in sorted(folder.glob("flights/**/*.parquet")):
        s3.put("bucket", path.relative_to(folder).as_posix(), path.read_bytes())
    return {
        "AWS_ENDPOINT": s3.url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "EXAMPLE_ENDPOINT": s3.url,
        "EXAMPLE_KEY": s3.access_key,
        "EXAMPLE_SECRET": s3.secret_key,
    }


@pytest.fixture
def environment(request: pytest.FixtureRequest, name: str) -> Mapping[str, str]:
    """This process's own, with accel's command on the path; and the way to the bucket, for a page that reads
    it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    if any("s3://bucket/" in fence.code for fence in FENCES[name] if fence.runs):
        found |= request.getfixturevalue("bucket_environment")
    return found


def test_the_pages_are_found() -> None:
    assert "docs/index.md" in WITH_CODE
    assert "docs/spark.md" in WITH_CODE


@pytest.mark.parametrize("name", FENCES, ids=str)
def test_what_is_not_run_says_why(name: str) -> None:
    """A block of code in any language is run or carries its reason; a language that is neither code nor text
    is an oversight."""
    plain = {"", "text", "sql", "toml", "yaml", "json", "xml", "ini", "make", "ebnf"}
    unknown = [
        f"line {f.line}: {f.language}"
        for f in FENCES[name]
        if not f.runs and f.reason is None and f.language not in plain
    ]
    assert unknown == []


@pytest.mark.parametrize("name", FENCES, ids=str)
def test_what_stands_below_code_is_marked_as_its_output(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line.strip()]
    below = [
        text for text, above in zip(lines[1:], lines, strict=False) if above == "```" and text == "```text"
    ]
    assert below == []


_FROM_A_FILE = "run this from a file or a notebook.)"


@pytest.mark.parametrize("name", FENCES, ids=str)
def test_python_can_be_pasted_at_a_prompt_or_the_page_says_not(name: str) -> None:
    """There a class ends at its first empty line, and what follows a block without one is an error."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    refused = [
        fence.line for fence in FENCES[name] if fence.language in PYTHON and not _can_be_pasted(fence.code)
    ]
    told = [number + 4 for number, line in enumerate(lines) if line.endswith(_FROM_A_FILE)]
    assert refused == told


def _can_be_pasted(code: str) -> bool:
    typed: list[str] = []
    for line in [*code.splitlines(), ""]:
        typed.append(line)
        try:
            complete = codeop.compile_command("\n".join(typed) + "\n" * (not line), "<prompt>", "single")
        except SyntaxError:
            return False
        if complete is not None or not any(typed):
            typed = []
    return not any(typed)


@pytest.mark.parametrize("name", WITH_CODE, ids=str)
def test_examples(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    fences = [fence for fence in FENCES[name] if fence.runs]
    printed = _run(name, fences, folder, environment)
    expected = [
        out if fence.prints is None else with_bytes_of(out, fence.prints)
        for fence, out in zip(fences, printed, strict=True)
    ]
    assert printed == expected


_PREDICTED = re.compile(r" *([\d,]+)(?=  \(predicted\)$)", re.MULTILINE)


def with_bytes_of(printed: str, shown: str) -> str:
    """What a page shows, with the bytes that were predicted where they are about the same.

    How large a page is depends on the version of the library that compresses it.
    """
    found = iter(_PREDICTED.findall(printed))

    def about(match: re.Match[str]) -> str:
        here, there = (int(text.replace(",", "")) for text in (match[1], next(found, "0")))
        return f"{there:,}".rjust(len(match[0])) if abs(here - there) * 10 <= here else match[0]

    return _PREDICTED.sub(about, shown)


def test_only_predicted_bytes_may_differ_and_only_a_little() -> None:
    shown = "data  4  1     64,864  (predicted)\n64,864 bytes\n"
    near, far = shown.replace("64,864  (", "61,000  ("), shown.replace("64,864  (", "51,000  (")
    assert with_bytes_of(near, shown) == near
    assert with_bytes_of(far, shown) == shown
    assert with_bytes_of(shown.replace("64,864 bytes", "1 byte"), shown) == shown
    assert with_bytes_of("nothing\n", shown) == shown


def _run(name: str, fences: list[Fence], folder: Path, environment: Mapping[str, str]) -> list[str]:
    blocks = [{"shell": f.language in SHELL, "code": f.code, "line": f.line} for f in fences]
    page, out = folder / ".page.json", folder / ".printed.json"
    page.write_text(json.dumps({"name": name, "blocks": blocks}))
    started = time.monotonic()
    ran = subprocess.run(
        [sys.executable, str(RUNNER), str(page), str(out)],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, (
        f"{name} failed after {time.monotonic() - started:.1f} s\n{ran.stderr[-4000:]}"
    )
    printed: list[str] = json.loads(out.read_text())
    return printed
