"""What a new user does first with an installed accel: `python -I installed.py`, without the tests' packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import pyarrow as pa

import accel

__all__: list[str] = []


def main() -> None:
    """Write, scan, index and print a file, and look at what was installed."""
    place = pathlib.Path(accel.__file__).resolve()
    if "site-packages" not in place.parts:
        raise SystemExit(f"accel is not the installed one, but {place}")
    if not (place.parent / "py.typed").exists():
        raise SystemExit("py.typed is missing: the types of accel are not seen")
    extra = [name for name in ("pandas", "pyspark", "pytest") if importlib.util.find_spec(name)]
    if extra:
        raise SystemExit(f"accel brings {', '.join(extra)}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "f.parquet")
        table = pa.table({"a": list(range(1000)), "b": [f"text {i % 7}" for i in range(1000)]})
        accel.write_table(table, path, indexes={"b": "distinct"})
        found = accel.scan(path, "a >= 10 AND b = 'text 3'", columns=["a"]).to_table()
        if found["a"].to_pylist() != [i for i in range(10, 1000) if i % 7 == 3]:
            raise SystemExit("the scan found other rows")
        accel.build_index(folder)
        command = [str(pathlib.Path(sys.executable).with_name("accel")), "scan", path, "--count"]
        counted = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if counted != "1000\n":
            raise SystemExit(f"the command counted {counted!r}")
    version = importlib.metadata.version("accel-parquet")
    if version != accel.__version__:
        raise SystemExit(f"version {version} installed, {accel.__version__} imported")
    sys.stdout.write(f"accel-parquet {version} works\n")


if __name__ == "__main__":
    main()
