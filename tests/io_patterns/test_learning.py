"""What a scan that learns for an index sends, before and behind its answer, and what the next scan does
without."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.catalog.building import learning
from accel.testing import DictStore, Layout, RecordingStore, write_file

FILES, ROWS = 5, 400
INDEX = "x/index/"
HEAD = "x/index/head"
WHERE = "k >= 790 AND k < 810"
"""The last rows of the second file, and the first of the third."""


class WritableStore(RecordingStore):
    """Records writes, too."""

    refuses: str | None = None
    """A part of the path of objects that cannot be written."""

    async def write(self, path: str, parts: AsyncIterator[bytes], **given: Any) -> None:
        call = self._begin(f"put {path}", None, given.get("if_match"))
        try:
            if self.refuses is not None and self.refuses in path:
                raise accel.AccessDeniedError("no write access", path=path, status=403)
            await self.inner.write(path, parts, **given)  # type: ignore[attr-defined]
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            self._end(call)

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order; objects of segments by their tables."""
        names = ["list" if c.want is None and not c.path.startswith("put") else c.path for c in self.calls]
        return [n.partition("-2")[0] if ".parquet" in n and "index" in n else n for n in names]


def file(first: int) -> bytes:
    return write_file(
        pa.table({"k": range(first, first + ROWS)}), Layout(group_rows=100, page_rows=20, dictionary=False)
    )


def name(number: int) -> str:
    return f"d/part-{number}.parquet"


@pytest.fixture
def store() -> Iterator[WritableStore]:
    store = WritableStore(DictStore({name(number): file(ROWS * number) for number in range(FILES)}))
    yield store
    assert store.in_flight == 0


def scan(store: WritableStore, where: str | None = WHERE, **given: Any) -> accel.Scan:
    store.clear()
    return accel.scan("d/", where, store=store, **{"index": INDEX, "learn": True, "cache": None} | given)


FOOTERS = [name(number) for number in range(FILES)]
COMMIT = [
    HEAD,  # there is none
    f"put {HEAD}",
    HEAD,
    "put x/index/files",
    "x/index/files",
    "put x/index/bounds",
    "x/index/bounds",
    f"put {HEAD}",
    HEAD,
]


def test_an_index_comes_about_and_the_next_scan_opens_no_footer(store: WritableStore) -> None:
    with scan(store) as first:
        assert first.to_table().num_rows == 20
        assert first.metrics.requests == 2 + FILES
    assert sorted(store.paths[: 2 + FILES]) == [*FOOTERS, "list", HEAD]
    assert store.paths[2 + FILES :] == COMMIT
    assert (first.metrics.catalog_learned, first.metrics.learning_failures) == (FILES, 0)

    with scan(store) as second:
        assert second.to_table().num_rows == 20
    assert sorted(store.paths[:2]) == ["list", HEAD]
    assert sorted(store.paths[2:]) == [name(1), name(2)]
    assert second.metrics.requests_by_kind == {"listing": 1, "catalog": 1, "data page": 2}
    assert (second.metrics.catalog_stale, second.metrics.catalog_learned) == (0, 0)


def test_the_metadata_has_the_page_indexes_though_the_scan_did_not_read_them(store: WritableStore) -> None:
    with scan(store, "k < 0", options=accel.Options(tail_hint=8)) as first:
        assert first.to_table().num_rows == 0
    regions = [call for call in store.calls if call.path == name(3)]
    assert len(regions) == 3  # the end, the rest of the footer, and the page indexes behind the answer
    with scan(store) as second:
        assert second.to_table().num_rows == 20
    assert second.metrics.requests_by_kind == {"listing": 1, "catalog": 1, "data page": 2}


def test_a_count_learns_and_so_does_a_plan(store: WritableStore) -> None:
    with scan(store, None) as counted:
        assert counted.count_rows() == FILES * ROWS
    assert counted.metrics.catalog_learned == FILES
    other = "x/other-index/"
    accel.plan("d/", WHERE, store=store, index=other, learn=True, cache=None)
    accel.scan("d/", store=store, index=other, learn=True).close()
    with accel.scan("d/", WHERE, store=store, index=other, cache=None) as after:
        after.to_table()
    assert after.metrics.catalog.total == FILES


def test_files_that_are_never_opened_are_not_learned() -> None:
    store = WritableStore(DictStore({f"d/m={number}/f.parquet": file(ROWS * number) for number in range(4)}))
    with scan(store, "m = 2") as pruned:
        assert pruned.to_table().num_rows == ROWS
    # The first file settles the schema.
    assert pruned.metrics.catalog_learned == 2
    with pytest.raises(accel.AccelError, match=r"does not list all files yet.*refresh"):
        scan(store, learn=False, listing="index").count_rows()
    accel.refresh_index(INDEX, store=store)
    assert scan(store, None, learn=False, listing="index").count_rows() == 4 * ROWS


def test_an_index_that_was_built_learns_what_is_new_and_what_was_replaced(store: WritableStore) -> None:
    inner = store.inner
    assert isinstance(inner, DictStore)
    accel.build_index("d/", to=INDEX, store=inner)
    inner.put(name(1), file(50_000))
    inner.put(name(9), file(90_000))
    with scan(store, "k >= 90000") as first:
        assert first.to_table().num_rows == ROWS
    assert (first.metrics.catalog_stale, first.metrics.catalog_learned) == (2, 2)
    # It stays an index whose list of files can be used.
    found = scan(store, "k >= 50000", learn=False, listing="index")
    assert found.count_rows() == 2 * ROWS
    assert store.paths == [HEAD]
    assert accel.refresh_index(INDEX, store=inner).added == 0


def test_few_files_wait_for_the_next_commit(store: WritableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = store.inner
    assert isinstance(inner, DictStore)
    with scan(store) as first:
        first.to_table()
    inner.put(name(7), file(70_000))
    with scan(store) as second:
        second.to_table()
    assert (second.metrics.catalog_stale, second.metrics.catalog_learned) == (1, 0)
    assert not any(path.startswith("put") for path in store.paths)
    # So much time has passed, or so many files were met.
    monkeypatch.setattr(learning, "BATCH_FILES", 2)
    inner.put(name(8), file(80_000))
    with scan(store) as third:
        third.to_table()
    assert second.metrics.catalog_learned + third.metrics.catalog_learned == 2
    inner.put(name(9), file(90_000))
    monkeypatch.setattr(learning, "INTERVAL_SECONDS", 0.0)
    with scan(store) as fourth:
        fourth.to_table()
    assert fourth.metrics.catalog_learned == 1
    with scan(store) as fifth:
        assert fifth.to_table().num_rows == 20
    assert fifth.metrics.catalog_stale == 0


class WeakStore(WritableStore):
    """Its etags pin nothing."""

    async def _list_inner(self, prefix: str) -> AsyncIterator[Any]:
        async for entry in super()._list_inner(prefix):
            yield type(entry)(entry.path, entry.size, f"W/{entry.etag}")


def test_files_without_a_strong_etag_are_not_learned() -> None:
    store = WeakStore(DictStore({name(number): file(ROWS * number) for number in range(FILES)}))
    told = "did not learn 5 files: the store gives them no strong etag"
    with pytest.warns(UserWarning, match=told), scan(store) as weak:
        assert weak.to_table().num_rows == 20
    assert (weak.metrics.catalog_learned, weak.metrics.learning_failures) == (0, 1)
    assert [told in text for text in weak.metrics.warnings] == [True]
    assert not any(path.startswith("put") for path in store.paths)


def test_files_that_lie_elsewhere_are_not_learned(store: WritableStore) -> None:
    accel.build_index("d/", to=INDEX, store=store.inner)
    store.inner.put("e/other.parquet", file(0))
    told = pytest.warns(UserWarning, match="did not learn 1 file: .*covers d/, not e/")
    with told, accel.scan("e/", index=INDEX, learn=True, store=store, cache=None) as other:
        assert other.to_table().num_rows == ROWS
    assert (other.metrics.catalog_learned, other.metrics.learning_failures) == (0, 1)


@pytest.mark.parametrize("refused", ["head", "bounds"])
def test_a_commit_that_fails_is_a_metric_and_one_warning(store: WritableStore, refused: str) -> None:
    store.refuses = refused
    learning_fails = pytest.warns(UserWarning, match=r"did not learn 5 files.*no write access")
    with learning_fails, scan(store, options=accel.Options(strict=True)) as first:
        assert first.to_table().num_rows == 20
    assert (first.metrics.catalog_learned, first.metrics.learning_failures) == (0, 1)
    assert "no write access" in first.metrics.warnings[-1]
    store.refuses = None
    # The next commit of this process is half a minute away.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with scan(store) as second:
            assert second.to_table().num_rows == 20
    assert second.metrics.learning_failures == 0


def test_kinds_of_index_that_take_values_are_not_learned(store: WritableStore) -> None:
    inner = store.inner
    assert isinstance(inner, DictStore)
    accel.build_index("d/", to=INDEX, indexes={"k": "keys"}, store=inner)
    inner.put(name(7), file(70_000))
    with pytest.warns(UserWarning, match="refresh the index"), scan(store, "k = 70001") as first:
        assert first.to_table().num_rows == 1
    assert first.metrics.learning_failures == 1
    assert accel.refresh_index(INDEX, store=inner).added == 1


def test_several_learn_at_once(store: WritableStore) -> None:
    """Each process has a learner of its own: here, a store object of its own."""
    inner = store.inner
    assert isinstance(inner, DictStore)
    stores = [WritableStore(inner) for _ in range(4)]

    def learn(number: int) -> None:
        with scan(stores[number], f"k >= {ROWS * number}") as one:
            assert one.to_table().num_rows == ROWS * (FILES - number)

    threads = [threading.Thread(target=learn, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    found = accel.scan("d/", None, store=store, index=INDEX, cache=None)
    assert found.count_rows() == FILES * ROWS
    assert (found.metrics.catalog.total, found.metrics.catalog_stale) == (FILES, 0)
    report = accel.refresh_index(INDEX, store=inner)
    assert (report.files, report.added) == (FILES, 0)


@pytest.mark.parametrize(
    ("source", "given", "error"),
    [
        ("d/", {"index": None}, ValueError),
        ("d/", {"listing": "index"}, ValueError),
        (["d/"], {"index": "auto"}, ValueError),
        ("d/", {"learn": 1}, TypeError),
    ],
)
def test_arguments_that_contradict_learning(
    store: WritableStore, source: Any, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="learn"):
        accel.scan(source, store=store, **{"index": INDEX, "learn": True} | given)


def test_a_pattern_makes_no_index(store: WritableStore) -> None:
    given: dict[str, Any] = {"store": store, "index": INDEX, "learn": True, "cache": None}
    with (
        pytest.warns(UserWarning, match="did not learn"),
        accel.scan("d/*.parquet", WHERE, **given) as listed,
    ):
        assert listed.to_table().num_rows == 20
    assert listed.metrics.learning_failures == 1


def test_the_end_of_the_process_commits_what_is_left(tmp_path: Path) -> None:
    """Nobody closes the scan, and a second one is too soon for a commit of its own."""
    for number in range(2):
        (tmp_path / f"{number}.parquet").write_bytes(file(ROWS * number))
    program = textwrap.dedent(
        """
        import shutil, sys, accel
        source = sys.argv[1]
        scan = accel.scan(source, "k = 7", learn=True)
        assert scan.to_table().num_rows == 1
        scan.close()
        shutil.copy(f"{source}/0.parquet", f"{source}/2.parquet")
        assert accel.scan(source, "k = 7", learn=True, cache=None).to_table().num_rows == 2
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    after = accel.scan(str(tmp_path), "k = 7", cache=None)
    assert after.to_table().num_rows == 2
    assert (after.metrics.catalog.total, after.metrics.catalog_stale) == (3, 0)
