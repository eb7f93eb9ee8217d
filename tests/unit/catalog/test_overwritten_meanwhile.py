"""A file that is overwritten while an index is built: the values of one version are never booked under
another."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import verify_index
from accel.catalog.shares import commit_shares, describe_shares, plan_shares
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.testing import DictStore, Layout, write_file

INDEX = "t/_accel"
CHANGED = "t/1.parquet"
OPTIONS = accel.Options(tail_hint=2048)
"""The footer of a file, and not its values."""
KINDS = ("keys", "distinct", "bloom", "ngram", "zonemap")


def file(tag: str, rows: int = 400) -> bytes:
    # Without statistics: only the index can rule the file out.
    text = [f"{tag}{at:06d}" for at in range(rows)]
    return write_file(pa.table({"k": text}), Layout(page_rows=20, statistics=False, dictionary=False))


OLD = file("a")
OTHERS = {"t/0.parquet": file("b"), "t/2.parquet": file("d")}


class Overwritten(DictStore):
    """Replaces an object, or removes it, before the answer to a given read of it."""

    def __init__(self, *, at: int, later: bytes | None) -> None:
        super().__init__({CHANGED: OLD, **OTHERS})
        self.at, self.later, self.reads = at, later, 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if path == CHANGED:
            self.reads += 1
            if self.reads == self.at and self.later is None:
                self.delete(path)
            elif self.reads == self.at and self.later is not None:
                self.put(path, self.later)
        return await super().read(path, want, if_match=if_match)


def build(store: DictStore, kind: str) -> accel.IndexReport:
    return accel.build_index("t/", to=INDEX, indexes={"k": kind}, store=store, options=OPTIONS)


def build_by_shares(store: DictStore, kind: str) -> accel.IndexReport:
    shares = plan_shares("t/", to=INDEX, shares=2, indexes={"k": kind}, store=store)
    batches = describe_shares(shares.to_batches(), index=INDEX, store=store, options=OPTIONS)
    described = pa.Table.from_batches(batches)
    return commit_shares(INDEX, described, store=store)


def check(store: DictStore) -> None:
    """Rows with the index are those without it."""
    for where in (
        "k = 'a000007'",
        "k = 'c000007'",
        "k = 'd000007'",
        "k LIKE '%b000399%'",
        "k IN ('c000399')",
    ):
        one, other = (
            accel.scan("t/", where, index=index, store=store, cache=None).to_table()
            for index in (INDEX, None)
        )
        assert one.equals(other), where


@pytest.mark.parametrize("later", [file("c"), file("c", 380)], ids=["same rows", "fewer"])
@pytest.mark.parametrize(
    ("how", "kind", "at"),
    [
        *((build, kind, 2) for kind in KINDS),
        (build, "keys", 1),
        (build, "keys", 3),
        (build_by_shares, "keys", 2),
    ],
)
def test_no_value_of_another_version_is_booked(
    how: Callable[[DictStore, str], accel.IndexReport], kind: str, later: bytes, at: int
) -> None:
    store = Overwritten(at=at, later=later)
    report = how(store, kind)
    store.at = 0
    left_out = set(report.skipped)
    assert left_out <= {CHANGED.removeprefix("t/")}
    assert report.files == 3 - len(left_out)
    check(store)
    store.put(CHANGED, OLD)  # the version from before is restored
    check(store)
    assert verify_index(INDEX, store=store).wrong == {}
    assert accel.refresh_index(INDEX, store=store, options=OPTIONS).files == 3
    check(store)
    assert verify_index(INDEX, store=store).wrong == {}


@pytest.mark.parametrize("how", [build, build_by_shares])
@pytest.mark.parametrize("later", [file("c"), None], ids=["replaced", "removed"])
def test_the_report_says_that_a_file_is_left_out(
    how: Callable[[DictStore, str], accel.IndexReport], later: bytes | None
) -> None:
    # The first read opens it, and the second one is of its values.
    report = how(Overwritten(at=2, later=later), "keys")
    assert report.files == 2
    assert list(report.skipped) == ["1.parquet"]
    assert "replaced while its values were read" in report.skipped["1.parquet"]


def test_a_refresh_drops_the_older_version() -> None:
    store = Overwritten(at=0, later=None)
    build(store, "keys")
    store.put(CHANGED, file("c"))
    store.reads, store.at, store.later = 0, 2, file("e")
    report = accel.refresh_index(INDEX, store=store, options=OPTIONS)
    assert (report.files, list(report.skipped)) == (2, ["1.parquet"])
    check(store)
    again = accel.refresh_index(INDEX, store=store, options=OPTIONS)
    assert (again.files, dict(again.skipped), again.added) == (3, {}, 1)
    check(store)


def test_a_file_replaced_while_it_is_verified_is_told_apart_from_a_wrong_one() -> None:
    store = Overwritten(at=0, later=None)
    build(store, "keys")
    store.reads, store.at, store.later = 0, 2, file("c")
    found = verify_index(INDEX, store=store, options=OPTIONS)
    assert (found.checked, found.replaced, found.wrong) == (2, ("1.parquet",), {})
