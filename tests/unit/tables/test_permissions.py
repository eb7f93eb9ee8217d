"""What the file system does not let this process see is named by its own path, and is a PermissionError."""

from __future__ import annotations

import json
import subprocess
import sys
from errno import EACCES
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# Root may read everything, unless it gives up the capabilities for that, and does so before its program
# begins. Nobody else has them.
_WITHOUT_CAPABILITIES = """
import ctypes, os, sys
CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
if os.geteuid() == 0:
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        if ctypes.CDLL(None).prctl(CAPBSET_DROP, capability, 0, 0, 0):
            sys.exit("a capability cannot be given up here")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
_CASES = """
import json, os, sys
from obstore.store import LocalStore
import accel

folder = sys.argv[1]
os.chdir(folder)
for path in (f"{folder}/b/deep", f"{folder}/a/f.parquet"):  # what all this is about
    assert not os.access(path, os.R_OK), path
cases = {
    "directory": lambda: accel.scan(folder).to_table(),
    "plan": lambda: accel.plan(folder),
    "relative": lambda: accel.scan("b").to_table(),
    "itself": lambda: accel.scan(f"{folder}/b/deep").to_table(),
    "pattern": lambda: accel.scan(f"{folder}/**/*.parquet").to_table(),
    "below": lambda: accel.scan(f"{folder}/b/deep/f.parquet").to_table(),
    "file": lambda: accel.scan(f"{folder}/a/f.parquet").to_table(),
    "embed": lambda: accel.embed(f"{folder}/a/f.parquet", indexes={}),
    "write": lambda: accel.embed(f"{folder}/c/f.parquet", indexes={}),
    "obstore": lambda: accel.scan("a/f.parquet", store=LocalStore(folder)).to_table(),
    "obstore lists": lambda: accel.scan("b/", store=LocalStore(folder)).to_table(),
}
told = {}
for name, ask in cases.items():
    try:
        told[name] = repr(ask())
    except accel.AccessDeniedError as error:
        told[name] = [isinstance(error, PermissionError), error.errno, error.filename, error.hint]
    except Exception as error:
        told[name] = repr(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("permissions")
    for name in ("a", "b/deep", "c"):
        (folder / name).mkdir(parents=True)
        table = pa.Table.from_arrays([pa.array([1])], names=["x"])
        pq.write_table(table, folder / name / "f.parquet")
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    shut = [folder / "b" / "deep", folder / "a" / "f.parquet"]
    for path in shut:
        path.chmod(0)
    (folder / "c").chmod(0o500)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT_CAPABILITIES, _CASES, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        for path in (*shut, folder / "c"):
            path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("case", "path", "hint"),
    [
        ("directory", "{}/b/deep", "check its permissions"),
        ("plan", "{}/b/deep", "check its permissions"),
        ("relative", "{}/b/deep", "check its permissions"),
        ("itself", "{}/b/deep", "check its permissions"),
        ("pattern", "{}/b/deep", "check its permissions"),
        ("below", "{}/b/deep/f.parquet", "check the permissions of the directories above it"),
        ("file", "{}/a/f.parquet", "check its permissions"),
        ("embed", "{}/a/f.parquet", "check its permissions"),
        ("write", "{}/c/f.parquet", "check its permissions"),
        ("obstore", "a/f.parquet", "check its permissions"),
        ("obstore lists", "b", "check its permissions"),
    ],
    ids=lambda value: value if isinstance(value, str) and "{" not in value else "",
)
def test_what_may_not_be_seen(case: str, path: str, hint: str, told: dict[str, Any], folder: Path) -> None:
    assert told[case] == [True, EACCES, path.format(folder), hint]
