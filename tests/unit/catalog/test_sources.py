"""A scan with an index is the scan without it, whatever the source is called and however its paths are
read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, write_file


def file(first: int, **more: list[Any]) -> bytes:
    return write_file(pa.table({"x": list(range(first, first + 10)), **more}))


def outcome(source: Any, where: str | None, **given: Any) -> Any:
    """Columns and rows; or which error it is."""
    try:
        found = accel.scan(source, where, **({"cache": None} | given)).to_table()
    except accel.AccelError as error:
        return type(error)
    return found.schema, found.to_pylist()


def same(source: Any, where: str | None, *, index: str, **given: Any) -> Any:
    """What the scan comes to, which is the same in each way."""
    expected = outcome(source, where, index=None, **given)
    for way in ({"index": index}, {"index": index, "listing": "index"}, {}):
        assert outcome(source, where, **way, **given) == expected, (source, where, way)
    return expected


HIVE = {
    "t/e=1/f=a/1.parquet": file(0),
    "t/e=1/f=b/1.parquet": file(10),
    "t/e=2/f=a/1.parquet": file(20),
    "t/e=2/f=__HIVE_DEFAULT_PARTITION__/1.parquet": file(30),
    "t/e=3/f=a%20b/1.parquet": file(40),
}


@pytest.mark.parametrize("source", ["t/", "t/e=2/", "t/*/f=a/*.parquet", "t/e=1/f=a/1.parquet"])
@pytest.mark.parametrize(
    "where", [None, "x = 33", "e = 2 AND x > 25", "f IS NULL OR x < 3", "f = 'a b'", "e = '2'", "NOT e = 1"]
)
def test_paths_that_spell_columns(source: str, where: str | None) -> None:
    store = DictStore(HIVE)
    accel.build_index("t/", store=store)
    given: dict[str, Any] = {"store": store, "index": "t/_accel"}
    same(source, where, **given)
    same(source, where, partitioning=None, **given)
    same(source, where, partitioning=pa.schema([("e", pa.string()), ("f", pa.string())]), **given)
    schema = pa.schema([("x", pa.int64()), ("e", pa.string()), ("f", pa.string())])
    same(source, where, schema=schema, **given)


@pytest.mark.parametrize("first", [{}, {"e": [1] * 10}], ids=["the first file lacks it", "all hold it"])
@pytest.mark.parametrize("where", ["e = 2", "e = 7", "e = 1", "e IS NULL", "x >= 10 AND e > 0"])
def test_a_column_of_the_path_that_files_hold_too(first: dict[str, list[int]], where: str) -> None:
    files = {
        "t/e=1/1.parquet": file(0, **first),
        "t/e=2/1.parquet": file(10, e=[7] * 10),
        "t/e=3/1.parquet": file(20, e=[None, *[2] * 9]),
    }
    store = DictStore(files)
    accel.build_index("t/", store=store)
    for partitioning in ("auto", None):
        same("t/", where, store=store, index="t/_accel", partitioning=partitioning)
        schema = pa.schema([("x", pa.int64()), ("e", pa.int64())])
        same("t/", where, store=store, index="t/_accel", partitioning=partitioning, schema=schema)


ODD = [
    "a b.parquet",
    "c%20d.parquet",
    "e#f.parquet",
    "g'h\".parquet",
    "日本.parquet",
    "\u00e9.parquet",
    "e\u0301.parquet",
    "k?l.parquet",
    "m[1].parquet",
    "n*o.parquet",
    "p;q=r/s.parquet",
    "t u/v%2Fw.parquet",
    "+x&y.parquet",
    "\\z.parquet",
]


@pytest.mark.parametrize("where", [None, "x = 33", "x >= 100"])
def test_names_with_odd_characters_in_a_store(where: str | None) -> None:
    store = DictStore({f"o dd%#/{name}": file(10 * at) for at, name in enumerate(ODD)})
    assert not accel.build_index("o dd%#/", store=store).skipped
    assert accel.build_index("o dd%#/", to="i x%/", store=store).files == len(ODD)
    for index in ("o dd%#/_accel", "i x%"):
        _, rows = same("o dd%#/", where, index=index, store=store, partitioning=None)
        assert len(rows) == {None: 140, "x = 33": 1, "x >= 100": 40}[where]


@pytest.mark.parametrize("where", [None, "x = 33"])
def test_names_with_odd_characters_in_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    directory = tmp_path / "o dd%#"
    for at, name in enumerate(ODD):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file(10 * at))
    elsewhere = str(tmp_path / "i x%#")
    assert accel.build_index(directory).files == accel.build_index(directory, to=elsewhere).files == len(ODD)
    given: dict[str, Any] = {"partitioning": None}
    for index in (f"{directory}/_accel", elsewhere):
        same(str(directory), where, index=index, **given)
        same(f"{directory}/", where, index=index, **given)
        same(directory, where, index=index, **given)
        same(f"{directory}/t u", where, index=index, **given)
        same(f"{directory}/*.parquet", where, index=index, **given)
    monkeypatch.chdir(tmp_path)
    same("o dd%#", where, index="o dd%#/_accel", **given)
    same("./o dd%#/../o dd%#", where, index="./i x%#/", **given)
    os.symlink(directory, tmp_path / "link")
    same("link", where, index="link/_accel", **given)


def test_files_of_other_schemas() -> None:
    files = {
        "t/a.parquet": file(0),
        "t/b.parquet": write_file(pa.table({"x": pa.array([12, 13], pa.int32()), "y": ["p", "q"]})),
        "t/c.parquet": write_file(pa.table({"y": ["r"]})),
        "t/d.parquet": write_file(pa.table({"x": pa.array([], pa.int64())})),
    }
    store = DictStore(files)
    assert accel.build_index("t/", store=store).files == 4
    wide = pa.schema([("x", pa.int64()), ("y", pa.string())])
    for where in ("x = 13", "x IS NULL", "x < 0", "y = 'r'", "y IS NULL AND x > 7", "NOT y = 'p'"):
        same("t/", where, store=store, index="t/_accel", schema=wide)
    same("t/", "x = 13", store=store, index="t/_accel")


def test_questions_other_than_rows() -> None:
    store = DictStore({f"t/{at}.parquet": file(10 * at) for at in range(5)})
    accel.build_index("t/", store=store)
    given: dict[str, Any] = {"store": store, "cache": None}
    ways: list[dict[str, Any]] = [{"index": None}, {}, {"index": "t/_accel", "listing": "index"}]
    for where in ("x >= 25", "x < 0", "x = 33", "x <> 7"):
        found = []
        for way in ways:
            scan = accel.scan("t/", where, **way, **given)
            planned = accel.plan("t/", where, **way, **given)
            found.append(
                (
                    scan.count_rows(),
                    scan.aggregate([([], "count_all"), ("x", "min"), ("x", "max")]).to_pylist(),
                    accel.scan("t/", where, limit=3, **way, **given).to_table().to_pylist(),
                    accel.scan("t/", where, columns=[], **way, **given).to_table().num_rows,
                    accel.scan(planned, store=store, cache=None).to_table().to_pylist(),
                    accel.scan("t/", where, selection={"t/3.parquet": {0: [(2, 5)]}}, **way, **given)
                    .to_table()
                    .to_pylist(),
                )
            )
        assert found[0] == found[1] == found[2], where


def test_lists_of_files_are_read_as_named() -> None:
    store = DictStore({f"t/{at}.parquet": file(10 * at) for at in range(5)})
    accel.build_index("t/", store=store)
    names = ["t/3.parquet", "t/1.parquet", "t/3.parquet"]
    for given in ({"index": None}, {"index": "t/_accel"}, {"index": "t/_accel", "listing": "index"}):
        found = accel.scan(names, "x >= 12", store=store, cache=None, **given).to_table()
        assert found.column("x").to_pylist() == [*range(30, 40), *range(12, 20), *range(30, 40)]


def test_an_index_lists_no_files_of_another_store(tmp_path: Path) -> None:
    (tmp_path / "1.parquet").write_bytes(file(0))
    accel.build_index(tmp_path)
    scan = accel.scan(f"s3://bucket{tmp_path}/", index=tmp_path / "_accel", listing="index", cache=None)
    with pytest.raises(accel.StoreError, match="lists no files of that store"):
        scan.to_table()


def test_other_files_beside_are_skipped_with_the_reason() -> None:
    store = DictStore({f"t/{at}.parquet": file(10 * at) for at in range(3)})
    for name, data in {"readme.txt": b"hello", "bad.parquet": b"PAR1 no PAR1", "empty.parquet": b""}.items():
        store.put(f"t/{name}", data)
    store.put("t/_SUCCESS", b"")
    report = accel.build_index("t/", store=store)
    assert sorted(report.skipped) == ["bad.parquet", "empty.parquet", "readme.txt"]
    assert report.files == 3
    for given in ({"index": None}, {"index": "t/_accel"}, {}):
        assert outcome("t/", "x = 3", store=store, **given) is accel.ParquetFormatError
        assert outcome("t/[0-9].parquet", "x = 3", store=store, **given)[1] == [{"x": 3}]


def test_threads_share_an_index_and_a_cache() -> None:
    store, cache = DictStore({f"t/{at}.parquet": file(10 * at) for at in range(8)}), accel.Cache(max_age=0)
    accel.build_index("t/", store=store)
    failures: list[object] = []

    def look(start: int) -> None:
        for x in range(start, 80, 7):
            found = accel.scan("t/", f"x = {x}", store=store, cache=cache).to_table().to_pylist()
            if found != [{"x": x}]:
                failures.append((x, found))

    threads = [threading.Thread(target=look, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_a_directory_that_has_become_empty_is_refreshed() -> None:
    store = DictStore({"t/1.parquet": file(0)})
    accel.build_index("t/", store=store)
    store.delete("t/1.parquet")
    assert accel.refresh_index("t/_accel", store=store).files == 0


def test_a_question_imports_neither_pandas_nor_all_of_arrow_compute(tmp_path: Path) -> None:
    """They would take a new process longer than its requests."""
    for number in range(3):
        keys = pa.array(np.arange(100 * number, 100 * number + 100))
        accel.write_table(
            pa.table({"k": keys, "name": keys.cast(pa.string())}), tmp_path / f"{number}.parquet"
        )
    accel.build_index(tmp_path, indexes={"name": "keys"})
    program = (
        "import sys, accel\n"
        "found = [accel.scan(sys.argv[1], where, listing=listing).to_table().num_rows\n"
        "         for where in ('k = 120', \"name = '250'\") for listing in ('store', 'index')]\n"
        "print(found, [name for name in ('pandas', 'pyarrow.compute') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"{tmp_path}/"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "[1, 1, 1, 1] []"


@pytest.mark.filterwarnings("ignore:the index .* leaves out 1 of 2 files:UserWarning")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 1", accel.SchemaMismatchError),
        ("x = 11", accel.SchemaMismatchError),
        ("x > 0", accel.SchemaMismatchError),
        # A file that its path rules out is not looked at.
        ("k = 1 AND x < 3", [1, 2]),
        ("k = 2", accel.SchemaMismatchError),
        ("s = 1", accel.SchemaMismatchError),
        ("s = 1 AND x < 5", accel.SchemaMismatchError),
        ("s IS NULL", accel.SchemaMismatchError),
    ],
)
def test_types_that_do_not_fit_are_an_error_as_without_the_index(
    tmp_path: Path, where: str, expected: Any
) -> None:
    """Whatever the index says of a file whose types the scan refuses, it does not rule that file out."""
    for name, columns in (
        ("k=1", {"x": [1, 2, 3], "s": [1, 2, 3]}),
        ("k=2", {"x": [11, 12], "s": ["a", "b"]}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.parquet").write_bytes(write_file(pa.table(columns)))

    def found(index: str | None, listing: str = "store") -> Any:
        scan = accel.scan(tmp_path, where, cache=None, index=index, listing=listing)
        try:
            return scan.to_table().column("x").to_pylist()
        except accel.AccelError as error:
            return type(error)

    index = str(tmp_path / "_accel")
    accel.build_index(tmp_path, indexes={"s": ["keys", "bloom", "distinct", "zonemap"], "x": "keys"})
    assert found(None) == found(index) == found(index, "index") == expected
