"""Commits of a store that fails for a moment: of the journal of a rewrite, and of the head of an index."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

import accel
from accel.errors import ObjectChangedError, StoreError
from accel.ranges import Suffix
from accel.testing import Attempt, DictStore, Fault, FaultStore, Status, write_file

OPTIONS = accel.Options(max_attempts=4, backoff_base=0.001)


class BusyStore(DictStore):
    """Conditional writes fail `fails` times each; those of `lost` are made, and their answer is lost."""

    def __init__(self, fails: int, *, lost: bool) -> None:
        super().__init__()
        self._fails, self._lost = fails, lost
        self._failed: dict[str | None, int] = {}
        self.theirs: bytes | None = None
        """What somebody else puts before the second attempt."""

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        failed = self._failed.get(if_match, 0)
        if (if_match is None and not if_absent) or failed >= self._fails:
            await super().write(path, parts, size=size, if_match=if_match, if_absent=if_absent)
            return
        self._failed[if_match] = failed + 1
        if self._lost:
            await super().write(path, parts, size=size, if_match=if_match, if_absent=if_absent)
        if self.theirs is not None and path.endswith("optimize.json"):
            self.put(path, self.theirs)
        raise StoreError("the store answered with status 503", path=path, status=503, transient=True)


def filled(fails: int, *, lost: bool) -> BusyStore:
    store = BusyStore(fails, lost=lost)
    for number in range(2):
        store.put(f"t/{number}.parquet", write_file(pa.table({"id": [number, 9 - number]})))
    return store


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "made, and the answer lost"])
def test_a_store_that_fails_for_a_moment(lost: bool) -> None:
    store = filled(3, lost=lost)
    index = accel.build_index("t", store=store, options=OPTIONS).index
    report = accel.optimize("t", sort_by="id", store=store, options=OPTIONS)
    assert (report.rows, report.index) == (4, index)
    for given in ({}, {"index": index, "listing": "index"}):
        scan = accel.scan("t/", store=store, cache=None, **given)
        assert scan.to_table().column("id").to_pylist() == [0, 1, 8, 9]
    assert [path for path in store.objects if "optimize" in path] == ["t/_accel/optimize.json"]


def test_a_store_that_fails_for_good() -> None:
    store = filled(4, lost=False)
    with pytest.raises(StoreError, match=r"t/_accel/optimize.json: .* 503, 4 times .*max_attempts"):
        accel.optimize("t", sort_by="id", store=store, options=OPTIONS)
    with pytest.raises(StoreError, match=r"t/_accel/head: .* 503, 4 times"):
        accel.build_index("t", store=store, options=OPTIONS)


def test_somebody_else_was_sooner() -> None:
    store = filled(1, lost=True)
    store.theirs = b'{"version": 1}'
    with pytest.raises(ObjectChangedError, match="another job began"):
        accel.optimize("t", sort_by="id", store=store, options=OPTIONS)
    assert store.objects["t/_accel/optimize.json"] == store.theirs


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "made, and the answer lost"])
def test_a_file_that_is_replaced_by_itself(lost: bool) -> None:
    store = filled(2, lost=lost)
    before = accel.scan("t/", store=store, cache=None).to_table()
    report = accel.embed_files("t", indexes={"id": "distinct"}, store=store, options=OPTIONS)
    assert (report.embedded, report.skipped, report.failed) == (2, 0, {})
    assert accel.embed_files("t", indexes={"id": "distinct"}, store=store, options=OPTIONS).skipped == 2
    assert accel.scan("t/", store=store, cache=None).to_table().equals(before)


@pytest.mark.parametrize("where", ["footer", "data"])
def test_an_index_of_files_that_cannot_be_read_now(where: str) -> None:
    """One error of one file, and no group of them."""
    store = filled(0, lost=False)
    store.put("t/1.parquet", write_file(pa.table({"id": list(range(20_000))})))

    def script(attempt: Attempt) -> Fault | None:
        is_tail = isinstance(attempt.want, Suffix)
        return Status(503) if attempt.path == "t/1.parquet" and is_tail == (where == "footer") else None

    options = accel.Options(max_attempts=2, backoff_base=0.001, tail_hint=4_096)
    with pytest.raises(StoreError, match=r"t/1\.parquet: .* 503, 2 times"):
        accel.build_index(
            "t", store=FaultStore(store, script), to="memory://swaps", indexes={"id": "keys"}, options=options
        )
