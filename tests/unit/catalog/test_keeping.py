"""Building an index and keeping it: what the verbs refuse, what they leave behind, and what scans see of
it."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.catalog.building import describer, merging
from accel.catalog.shares import commit_shares, describe_shares, plan_shares
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.testing import Attempt, DictStore, FaultStore, RecordingStore, Status, write_file
from accel.testing.stores import StoreWrapper


def file(first: int, rows: int = 10) -> bytes:
    return write_file(pa.table({"x": list(range(first, first + rows))}))


def three() -> DictStore:
    return DictStore({f"t/{at}.parquet": file(10 * at) for at in range(3)})


def numbers(source: str, where: str | None = None, **given: Any) -> list[int]:
    return sorted(accel.scan(source, where, **given).to_table().column("x").to_pylist())


# -- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["none/", "t/*.parquet"])
def test_a_source_without_files_gets_no_index(source: str) -> None:
    store = three()
    before = sorted(store.objects)
    with pytest.raises(accel.ObjectNotFoundError):
        accel.build_index(source, store=store)
    assert sorted(store.objects) == before


def test_a_file_gets_no_index(tmp_path: Path) -> None:
    store = three()
    before = sorted(store.objects)
    with pytest.raises(
        accel.StoreError, match=r"t/1\.parquet: this is a file \(name the directory that it lies in\)"
    ):
        accel.build_index("t/1.parquet", store=store)
    assert sorted(store.objects) == before
    (tmp_path / "1.parquet").write_bytes(file(0))
    with pytest.raises(accel.StoreError, match="this is a file"):
        accel.build_index(tmp_path / "1.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["1.parquet"]


def test_a_local_directory_without_files_gets_no_index(tmp_path: Path) -> None:
    with pytest.raises(accel.ObjectNotFoundError):
        accel.build_index(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_of_one_directory() -> None:
    store = three()
    store.put("u/1.parquet", file(0))
    accel.build_index("t/", to="index/", store=store)
    with pytest.raises(accel.StoreError, match="covers t/, not u/"):
        accel.build_index("u/", to="index/", store=store)
    assert accel.build_index("t", to="index", store=store).unchanged == 3


@pytest.mark.parametrize("to", ["t/", "t", "t/index", "t/part=1/index"])
def test_an_index_among_the_files_is_refused(to: str) -> None:
    store = three()
    before = sorted(store.objects)
    with pytest.raises(accel.StoreError, match="share a directory"):
        accel.build_index("t/", to=to, store=store)
    scan = accel.scan("t/", "x = 3", index=to, learn=True, store=store, cache=None)
    with pytest.warns(UserWarning, match="there is no index|did not learn"), scan:
        assert scan.to_table().num_rows == 1
    assert sorted(store.objects) == before
    accel.build_index("t/", to="t/a/_b/index", store=store)
    assert numbers("t/", store=store) == list(range(30))


def test_columns_are_a_sequence_of_names() -> None:
    with pytest.raises(TypeError, match="sequence of names"):
        accel.build_index("t/", columns="x", store=three())


@pytest.mark.parametrize("grace", [-1, float("nan")])
def test_grace_is_a_number_of_seconds(grace: float) -> None:
    store = three()
    accel.build_index("t/", store=store)
    with pytest.raises(ValueError, match="grace"):
        accel.vacuum_index("t/_accel", grace=grace, store=store)


@pytest.mark.parametrize("grace", ["1", None, True])
def test_grace_of_another_type_is_refused(grace: Any) -> None:
    with pytest.raises(TypeError, match="grace is a number of seconds, not"):
        accel.vacuum_index("t/_accel", grace=grace, store=three())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: accel.build_index(d / "data" / "1.parquet"), "{d}/data/1.parquet: this is a file"),
        (lambda d: accel.build_index(d / "data", to=d / "file"), "{d}/file/head: "),
        (lambda d: accel.build_index(d / "data", to=d / "file" / "x"), "{d}/file/x/"),
        (
            lambda d: accel.scan(d, index=d / "data/_accel", listing="index").to_table(),
            "{d}: the index lists files below {d}/data/ only",
        ),
    ],
    ids=["a file", "over a file", "below a file", "beside"],
)
def test_messages_name_local_files_by_their_whole_paths(tmp_path: Path, call: Any, message: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.parquet").write_bytes(file(0))
    (tmp_path / "file").write_bytes(b"")
    accel.build_index(tmp_path / "data")
    with pytest.raises(accel.StoreError) as raised:
        call(tmp_path)
    assert str(raised.value).startswith(message.format(d=tmp_path))


@pytest.mark.parametrize(
    ("source", "given", "error"),
    [
        ("t/", {"listing": "bogus"}, ValueError),
        ("t/", {"listing": "bogus", "index": None}, ValueError),
        ("t/", {"listing": "index", "index": None}, ValueError),
        (["t/1.parquet"], {"listing": "index"}, ValueError),
        ("t/", {"index": 5}, TypeError),
    ],
)
def test_arguments_of_a_scan_are_looked_at_at_once(source: Any, given: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        accel.scan(source, store=three(), **given)


# -- what changes ------------------------------------------------------------------------------------


class BusyHead(DictStore):
    """Each head is replaced while it is read, as often as `replacements` says."""

    replacements = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if path == "t/_accel/head" and self.replacements:
            self.replacements -= 1
            raise accel.ObjectChangedError("the file has changed", path=path)
        return await super().read(path, want, if_match=if_match)


def test_a_commit_while_a_head_is_read_ends_nothing() -> None:
    store = BusyHead(three().objects)
    accel.build_index("t/", store=store)
    given: dict[str, Any] = {"store": store, "index": "t/_accel", "listing": "index", "cache": None}
    store.replacements = 3
    assert numbers("t/", "x > 27", **given) == [28, 29]
    assert store.replacements == 0
    store.replacements = 3
    assert accel.refresh_index("t/_accel", store=store).unchanged == 3
    # There is an end to it.
    store.replacements = 100
    with pytest.raises(accel.ObjectChangedError):
        accel.refresh_index("t/_accel", store=store)
    assert store.replacements == 90


@pytest.mark.parametrize("where", [None, "x >= 0"])
def test_what_this_process_commits_its_scans_see_at_once(where: str | None) -> None:
    store, cache = three(), accel.Cache()
    given: dict[str, Any] = {
        "store": store,
        "index": "t/_accel",
        "listing": "index",
        "cache": cache,
    }
    accel.build_index("t/", store=store)
    assert numbers("t/", where, **given) == list(range(30))
    store.put("t/3.parquet", file(30))
    store.put("t/1.parquet", file(100, 5))
    store.delete("t/2.parquet")
    accel.refresh_index("t/_accel", store=store)
    assert accel.scan("t/", where, **given).count_rows() == 25
    assert numbers("t/", where, **given) == [*range(10), *range(30, 40), *range(100, 105)]


@pytest.mark.parametrize("listing", ["store", "index"])
def test_a_file_replaced_after_it_was_listed_is_read_as_it_is_now(listing: str) -> None:
    """As without an index: it is planned once more, and not from what the index has of it."""
    store = three()
    accel.build_index("t/", store=store)

    class Replacing(RecordingStore):
        async def read(self, path: str, *given: Any, **more: Any) -> Any:
            if path == "t/1.parquet" and not any(call.path == path for call in self.calls):
                store.put(path, file(100, 7))
            return await super().read(path, *given, **more)

    scan = accel.scan("t/", "x >= 0", store=Replacing(store), cache=None, index="t/_accel", listing=listing)
    with pytest.warns(UserWarning, match="t/1.parquet") if listing == "index" else nullcontext():
        found = scan.to_table()
    assert sorted(found.column("x").to_pylist()) == [*range(10), *range(20, 30), *range(100, 107)]


def test_an_index_that_is_out_of_date_lists_what_it_lists() -> None:
    store = three()
    accel.build_index("t/", store=store)
    store.put("t/1.parquet", file(100, 5))
    store.put("t/9.parquet", file(900))
    given: dict[str, Any] = {"store": store, "index": "t/_accel", "listing": "index", "cache": None}
    with pytest.warns(UserWarning, match="a file was replaced since .* t/1.parquet"):
        assert numbers("t/", **given) == [*range(10), *range(20, 30), *range(100, 105)]
    store.delete("t/2.parquet")
    with pytest.warns(UserWarning, match="replaced"), pytest.raises(accel.ObjectNotFoundError, match="t/2"):
        numbers("t/", **given)


def test_a_replaced_file_is_listed_while_its_new_version_is_described() -> None:
    """With listing="index" a file never vanishes for the time in which a refresh is at work."""
    store = three()
    accel.build_index("t/", store=store)
    store.put("t/1.parquet", file(100, 5))
    store.delete("t/2.parquet")
    seen: list[list[int]] = []

    def look(done: int, total: int) -> None:
        seen.append([done, total])

    class Watching(DictStore):
        async def write(self, path: str, *given: Any, **more: Any) -> None:
            await super().write(path, *given, **more)
            if path.endswith("/head"):
                heads.append(self.objects[path])

    heads: list[bytes] = []
    watching = Watching(store.objects)
    accel.refresh_index("t/_accel", progress=look, store=watching)
    assert seen == [[1, 1]]
    # Every head that there was for a while: the file is listed by each.
    assert len(heads) == 2
    for head in heads:
        watching.put("t/_accel/head", head)
        given: dict[str, Any] = {"store": watching, "index": "t/_accel", "listing": "index", "cache": None}
        is_old = head is heads[0]
        with pytest.warns(UserWarning, match="t/1.parquet") if is_old else nullcontext():
            assert numbers("t/", **given) == [*range(10), *range(100, 105)]


def test_a_replaced_file_that_cannot_be_read_is_dropped() -> None:
    store = three()
    accel.build_index("t/", store=store)
    store.put("t/1.parquet", b"PAR1 this is none PAR1")
    report = accel.refresh_index("t/_accel", store=store)
    assert (report.files, report.removed, report.added, report.unchanged) == (2, 1, 0, 2)
    assert list(report.skipped) == ["1.parquet"]
    assert accel.refresh_index("t/_accel", store=store).removed == 0


@pytest.mark.parametrize("read", ["footers", "values"])
def test_a_store_that_refuses_a_read_is_told_by_its_own_error(read: str) -> None:
    def refuse(attempt: Attempt) -> Status | None:
        of_values = isinstance(attempt.want, ByteRange) and attempt.want.start == 4
        return Status(403) if attempt.path == "t/1.parquet" and (read == "footers" or of_values) else None

    # What the first read does not bring is read by ranges.
    options = accel.Options(tail_hint=8)
    store = FaultStore(three(), refuse)
    with pytest.raises(accel.StoreError, match="answered 403"):
        accel.build_index("t/", to=f"memory://{read}", indexes={"x": "keys"}, store=store, options=options)
    assert any(refuse(attempt) for attempt in store.attempts)


def test_files_whose_names_are_no_text_are_read_without_the_index(tmp_path: Path) -> None:
    for at, name in enumerate((b"a.parquet", b"b\xff.parquet", b"c.parquet")):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as target:
            target.write(file(10 * at))
    report = accel.build_index(tmp_path)
    assert report.files == 2
    assert report.skipped == {r"b\udcff.parquet": "its name is no UTF-8"}
    assert numbers(str(tmp_path), "x IN (3, 13, 23)") == [3, 13, 23]
    learning = accel.scan(tmp_path, "x IN (3, 13, 23)", index="memory://names", learn=True)
    assert learning.to_table().num_rows == 3
    learning.close()
    assert (learning.metrics.catalog_learned, learning.metrics.learning_failures) == (2, 0)


@pytest.mark.parametrize("source", ["u/", "u/*/t/0.parquet", "u/**"])
def test_an_index_of_a_part_of_the_source_does_not_list_it(source: str) -> None:
    store = three()
    for path, data in list(store.objects.items()):
        store.put(f"u/{path}", data)
        store.put(f"u/v/{path}", data)
    accel.build_index("u/v/", to="index", store=store)
    given: dict[str, Any] = {"store": store, "index": "index", "cache": None}
    assert numbers(source, **given) == numbers(source, store=store)
    with pytest.raises(accel.StoreError, match="lists files below u/v/ only"):
        numbers(source, listing="index", **given)
    for inside in ("u/v/", "u/v/t/", "u/v/*/0.parquet", "u/v/t/1.parquet"):
        assert numbers(inside, listing="index", **given) == numbers(inside, store=store)


@pytest.mark.parametrize("verb", ["build", "shares", "refresh"])
def test_segments_end_where_they_have_much_metadata(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describer, "BLOCK", 2)
    monkeypatch.setattr(describer, "MOST_TABLE_BYTES", 500)
    store = DictStore({f"t/{at}.parquet": file(10 * at) for at in range(9 if verb != "refresh" else 1)})
    if verb == "shares":
        shares = plan_shares("t/", shares=2, store=store)
        described = pa.Table.from_batches(describe_shares(shares.to_batches(), index="t/_accel", store=store))
        assert set(described["share"].to_pylist()) == {0, 1}
        report = commit_shares("t/_accel", described, store=store)
    else:
        report = accel.build_index("t/", store=store)
        for at in range(9):
            store.put(f"t/{at}.parquet", file(10 * at))
        report = accel.refresh_index("t/_accel", store=store) if verb == "refresh" else report
    assert report.files == 9
    assert report.segments > 2
    given: dict[str, Any] = {"store": store, "index": "t/_accel", "listing": "index", "cache": None}
    assert numbers("t/", "x >= 25", **given) == list(range(25, 90))
    monkeypatch.setattr(merging, "MERGED_BYTES", 6_000)
    assert 1 < accel.compact_index("t/_accel", store=store).segments < report.segments
    assert numbers("t/", "x >= 25", **given) == list(range(25, 90))


def test_reports_add_up() -> None:
    store = three()
    first = accel.build_index("t/", store=store)
    assert (first.files, first.added, first.removed, first.unchanged) == (3, 3, 0, 0)
    store.put("t/1.parquet", file(100, 5))
    store.delete("t/2.parquet")
    store.put("t/3.parquet", file(30))
    second = accel.refresh_index("t/_accel", store=store)
    assert (second.files, second.added, second.removed, second.unchanged) == (3, 2, 2, 1)
    third = accel.refresh_index("t/_accel", store=store)
    assert (third.files, third.added, third.removed, third.unchanged) == (3, 0, 0, 3)
    assert third.generation == second.generation


# -- stores without etags ----------------------------------------------------------------------------


@pytest.mark.parametrize("etag", [None, 'W/"weak"', ""])
def test_files_without_a_strong_etag_are_read_as_if_there_were_no_index(etag: str | None) -> None:
    store = three()
    store.etags["t/1.parquet"] = etag
    report = accel.build_index("t/", store=store)
    assert list(report.skipped) == ["1.parquet"]
    given: dict[str, Any] = {
        "store": store,
        "index": "t/_accel",
        "cache": None,
        "options": accel.Options(allow_unpinned=True),
    }
    assert numbers("t/", **given) == list(range(30))
    store.put("t/1.parquet", file(100))
    store.etags["t/1.parquet"] = etag
    assert numbers("t/", "x >= 100", **given) == list(range(100, 110))


def test_a_home_without_etags_is_read_but_not_written() -> None:
    store = three()
    accel.build_index("t/", store=store)
    for path in store.etags:
        if "_accel" in path:
            store.etags[path] = None
    for cache in (None, accel.Cache(), accel.Cache(max_age=0)):
        for listing in ("store", "index"):
            found = accel.scan("t/", "x = 13", store=store, cache=cache, index="t/_accel", listing=listing)
            assert found.to_table().num_rows == 1
            assert found.metrics.catalog.total == 3
    store.put("t/3.parquet", file(30))
    with pytest.raises(accel.StoreError, match="no etag"):
        accel.refresh_index("t/_accel", store=store)


def _object_name(kind: str, age: float) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - age))
    return f"{kind}-{stamp}-0123456789abcdef.parquet"


def test_vacuum_leaves_what_a_builder_may_be_about_to_name(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    accel.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "t" / "1.parquet")
    accel.build_index(tmp_path / "t")
    index = tmp_path / "t" / "_accel"
    before = {path.name for path in index.iterdir()}
    young, old, older = (_object_name("files", age) for age in (60, 3700, 90_000))
    for name in (young, old, older):
        (index / name).write_bytes(b"whatever")
    assert accel.vacuum_index(index).deleted == (older,)
    assert accel.vacuum_index(index, grace=0).deleted == (old,)
    assert {path.name for path in index.iterdir()} == {*before, young}
    assert accel.scan(tmp_path / "t", "x = 2", index=index, listing="index").to_table().num_rows == 1


def test_what_a_builder_that_was_killed_was_writing_goes(tmp_path: Path) -> None:
    """The head, or an object, in a hidden file beside it: by vacuum after the grace time, by the next builder
    after an hour."""
    (tmp_path / "t").mkdir()
    accel.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "t" / "1.parquet")
    accel.build_index(tmp_path / "t")
    index = tmp_path / "t" / "_accel"
    before = {path.name for path in index.iterdir()}
    ages = {"young": 60, "old": 3700, "older": 90_000}
    parts = {
        f".{name}.{at:016x}.part": age
        for name in ("head", _object_name("files", 0))
        for at, age in enumerate(ages.values())
    }
    others = (".mine.part", ".head.0123456789abcdef.part.txt", "head.0123456789abcdef.part")

    def leave() -> None:
        for name, age in {**parts, **dict.fromkeys(others, 90_000)}.items():
            (index / name).write_bytes(b"whatever")
            os.utime(index / name, (time.time() - age,) * 2)

    def left() -> set[str]:
        return {path.name for path in index.iterdir()} - before - set(others)

    leave()
    assert set(accel.vacuum_index(index).deleted) == {name for name, age in parts.items() if age == 90_000}
    assert left() == {name for name, age in parts.items() if age < 90_000}
    accel.refresh_index(index)
    assert left() == {name for name, age in parts.items() if age == 60}
    leave()
    accel.vacuum_index(index, grace=0)
    assert left() == {name for name, age in parts.items() if age == 60}
    assert all((index / name).exists() for name in others)
    assert accel.scan(tmp_path / "t", "x = 2", index=index, listing="index").to_table().num_rows == 1


class _Hanging(StoreWrapper):
    """Answers no request for files from a number on."""

    def __init__(self, inner: DictStore, first: str) -> None:
        super().__init__(inner)
        self._first = first

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if path >= self._first:
            await asyncio.sleep(60)
        return await self.inner.read(path, want, if_match=if_match)


def test_a_build_that_fails_leaves_no_request_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the next block are being opened when one block fails: that ends with it, and not when
    somebody collects garbage."""
    monkeypatch.setattr("accel.catalog.building.describer.BLOCK", 2)
    files = {f"t/{at}.parquet": file(at) for at in range(6)}
    recorded = RecordingStore(_Hanging(DictStore(files), "t/2.parquet"))
    gc.collect()
    gc.disable()
    try:

        def progress(done: int, total: int) -> None:
            raise RuntimeError(f"{done} of {total}")

        with pytest.raises(RuntimeError, match="2 of 6") as held:
            accel.build_index("t/", to="memory://fails", store=recorded, progress=progress)
        # The error holds the frames, so that nothing is closed because it is collected.
        assert held.value.__traceback__ is not None
        begun = {call.path: call.error for call in recorded.calls if call.path >= "t/2.parquet"}
        assert begun == {"t/2.parquet": "CancelledError", "t/3.parquet": "CancelledError"}
        assert recorded.in_flight == 0
    finally:
        gc.enable()
