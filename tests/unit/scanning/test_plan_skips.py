"""accel.plan(on_error="skip"): files that are missing or broken are left out and named, wherever they
stand."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import accel
from accel.testing import DictStore
from accel.testing.stores import StoreWrapper

ROWS = 50
_BROKEN = b"PAR1 this is no file PAR1"


def _write(folder: Path, good: str, *, of: str) -> list[str]:
    """A file for each letter of `of`: of rows if it is among `good`, broken otherwise; each has its own
    rows."""
    paths = [folder / f"{name}.parquet" for name in of]
    for number, (name, path) in enumerate(zip(of, paths, strict=True)):
        if name in good:
            ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
            pq.write_table(pa.table({"id": ids}), path, row_group_size=20)
        else:
            path.write_bytes(_BROKEN)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    "good", ["".join(some) for size in (1, 2, 3) for some in itertools.combinations("abcd", size)]
)
def test_the_others_are_planned_once(tmp_path: Path, good: str) -> None:
    """Also where the first one is broken, which would have settled the schema."""
    _write(tmp_path, good, of="abcd")
    plan = accel.plan(str(tmp_path), on_error="skip", cache=accel.Cache())
    expected = [
        n for at, name in enumerate("abcd") if name in good for n in range(at * ROWS, (at + 1) * ROWS)
    ]
    assert accel.scan(plan).to_table()["id"].to_pylist() == expected
    told = sorted(name for name in "abcd" for text in plan.metrics.warnings if f"{name}.parquet" in text)
    assert told == [name for name in "abcd" if name not in good]
    assert (plan.metrics.files.kept, plan.metrics.files.total) == (len(good), 4)


def test_a_missing_file(tmp_path: Path) -> None:
    store = MemoryStore()
    for path in _write(tmp_path, "ab", of="ab"):
        store.put(Path(path).name, Path(path).read_bytes())
    given = ["gone.parquet", "a.parquet", "b.parquet"]
    plan = accel.plan(given, on_error="skip", store=store, cache=accel.Cache())
    assert accel.scan(plan, store=store).count_rows() == 2 * ROWS
    assert len(plan.metrics.warnings) == 1
    with pytest.raises(accel.ObjectNotFoundError, match=r"gone\.parquet"):
        accel.plan(given, store=store, cache=accel.Cache())


def test_without_any_good_file_there_is_no_schema(tmp_path: Path) -> None:
    _write(tmp_path, "", of="ab")
    with pytest.raises(accel.ParquetFormatError, match=r"a\.parquet"):
        accel.plan(str(tmp_path), on_error="skip", cache=accel.Cache())


class _FirstIsLast(StoreWrapper):
    """Answers for a.parquet and b.parquet after other files."""

    def __init__(self, inner: DictStore) -> None:
        super().__init__(inner)
        self._other = asyncio.Event()

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        if path in ("a.parquet", "b.parquet"):
            await self._other.wait()
            await asyncio.sleep(0.02)  # the errors of the others would be raised meanwhile
            return await self.inner.read(path, want, if_match=if_match)
        try:
            return await self.inner.read(path, want, if_match=if_match)
        finally:
            self._other.set()


@pytest.mark.parametrize(("good", "named"), [("", "a"), ("b", "a"), ("a", "b"), ("ab", "c"), ("abc", "d")])
@pytest.mark.parametrize("fewer", [True, False], ids=["one by one", "opened ahead"])
def test_the_error_names_the_first_file(tmp_path: Path, good: str, named: str, fewer: bool) -> None:
    """Whichever answers first."""
    files = {Path(path).name: Path(path).read_bytes() for path in _write(tmp_path, good, of="abcd")}
    if not fewer:
        files |= {f"e{number}.parquet": files["d.parquet"] for number in range(5)}
    store = _FirstIsLast(DictStore(files))
    with pytest.raises(accel.ParquetFormatError, match=rf"\b{named}\.parquet"):
        accel.plan(sorted(files), store=store, schema=pa.schema({"id": pa.int64()}), cache=None)


def test_a_wrong_argument_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, "a", of="a")
    with pytest.raises(ValueError, match='on_error is "raise" or "skip", not .ignore.'):
        accel.plan(str(tmp_path), on_error="ignore")  # type: ignore[arg-type]
