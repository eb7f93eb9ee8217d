"""A source of somebody else's: blocks of files that carry metadata, bounds and rows; never believed over the
files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.metrics import Metrics
from accel.planning.column_bounds import ColumnBounds
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.ranges import Kind, Suffix
from accel.reader.reader import Reader
from accel.runtime import io_loop
from accel.scanning.engine import Engine
from accel.scanning.file_source import FileSource, SourceRequest
from accel.scanning.scan import Scan
from accel.scanning.spec import check_arguments
from accel.store.clients import Connector
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from accel.versions import FileVersion

OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)
FILES = 200
ROWS = 1000
LAYOUT = Layout(group_rows=500, page_rows=100, dictionary=False, codec="none")


def data(first: int) -> bytes:
    noise = np.random.default_rng(first).standard_normal(ROWS)
    return write_file(table(k=pa.array(np.arange(first, first + ROWS)), noise=pa.array(noise)), LAYOUT)


class Catalog(FileSource):
    """Yields the entries that it was given, some at a time, and notes what it was asked."""

    def __init__(self, entries: Sequence[FileEntry], per_block: int = 64) -> None:
        self.entries = entries
        self.per_block = per_block
        self.requests: list[SourceRequest] = []
        self.blocks_yielded = 0

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        self.requests.append(request)
        for start in range(0, len(self.entries), self.per_block):
            stop = start + self.per_block
            self.blocks_yielded += 1
            yield FileBlock(tuple(self.entries[start:stop]), pa.schema([]), 0, more=stop < len(self.entries))


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return {f"{at:04d}": data(at * ROWS) for at in range(FILES)}


@pytest.fixture
def store(objects: dict[str, bytes]) -> RecordingStore:
    return RecordingStore(DictStore(objects))


def entries(inner: DictStore, *, etags: bool = True) -> list[FileEntry]:
    return [
        FileEntry("store:", name, name, len(body), inner.etags[name] if etags else None)
        for name, body in inner.objects.items()
    ]


def opened(inner: DictStore) -> dict[str, FileHandle]:
    """The metadata of all files, as a catalog would have it."""

    async def load() -> dict[str, FileHandle]:
        reader = Reader(
            Connector(storage_options=None, store=inner, options=OPTIONS),
            cache=accel.Cache(),
            options=OPTIONS,
            metrics=Metrics(),
        )
        return {file.path: (await reader.open(file))[0] for file in entries(inner)}

    return io_loop.run(load())


def scan(
    store: object, source: FileSource, where: str | None, cache: accel.Cache | None = None, **given: Any
) -> Scan:
    arguments: dict[str, Any] = {
        "columns": ["k"],
        "limit": None,
        "selection": None,
        "schema": None,
        "partitioning": None,
        "glob": False,
        "order": True,
        "options": OPTIONS,
    }
    spec = check_arguments("a catalog", where, **{**arguments, **given})
    engine = Engine(
        spec,
        Connector(storage_options=None, store=store, options=OPTIONS),
        cache=cache,
        make_source=lambda _: source,
    )
    return Scan(engine)


def keys(found: Scan) -> list[int]:
    return found.to_table()["k"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("per_block", [1, 7, 64, 1000])
@pytest.mark.parametrize("order", [True, False])
def test_blocks_are_read_one_after_the_other(store: RecordingStore, per_block: int, order: bool) -> None:
    catalog = Catalog(entries(store.inner), per_block)
    found = scan(store, catalog, "k >= 1500 AND k < 150010 AND noise < 9", order=order)
    assert sorted(keys(found)) == list(range(1500, 150_010))
    assert found.metrics.files.total == FILES
    assert found.metrics.rows.total == FILES * ROWS
    (request,) = catalog.requests
    assert request.columns == ("k",)
    assert request.where is not None


def test_no_more_blocks_are_taken_than_a_limit_needs(store: RecordingStore) -> None:
    catalog = Catalog(entries(store.inner), 2)
    assert keys(scan(store, catalog, None, limit=10)) == list(range(10))
    assert catalog.blocks_yielded <= 2


@pytest.mark.parametrize("last", [0, 1])
def test_files_after_the_last_block_are_an_error(store: RecordingStore, last: int) -> None:
    class Endless(Catalog):
        async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
            number = 0
            async for block in super().blocks(request):
                yield replace(block, more=number < last)
                number += 1

    with pytest.raises(accel.AccelError, match="files after a block that says that it is the last") as caught:
        scan(store, Endless(entries(store.inner)), "k >= 0").to_table()
    assert caught.value.hint == "give all blocks but the last one `more=True`"


def test_a_source_without_a_block_is_an_error(store: RecordingStore) -> None:
    with pytest.raises(accel.ObjectNotFoundError, match="names no files"):
        scan(store, Catalog([]), "k >= 0").to_table()


class Closed(Catalog):
    """Keeps its generators, so that none of them is closed for being dropped, and notes which were closed."""

    def __init__(self, entries: Sequence[FileEntry]) -> None:
        super().__init__(entries)
        self.begun: list[AsyncIterator[FileBlock]] = []
        self.closed = 0

    def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        self.begun.append(self._blocks(super().blocks(request)))
        return self.begun[-1]

    async def _blocks(self, inner: AsyncIterator[FileBlock]) -> AsyncIterator[FileBlock]:
        try:
            async for block in inner:
                yield block
        finally:
            self.closed += 1
            await inner.aclose()  # type: ignore[attr-defined]


def drop(found: accel.Scan) -> None:
    batches = iter(found)
    next(batches)
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda found: found.head(1), id="head"),
        pytest.param(lambda found: found.aggregate([("k", "max")]), id="aggregate"),
        pytest.param(drop, id="close"),
        pytest.param(lambda found: found.schema, id="schema"),
        pytest.param(lambda found: found.explain(), id="explain"),
        pytest.param(lambda found: found.count_rows(), id="count"),
    ],
)
def test_the_source_is_closed_by_the_end_of_each_call(
    store: RecordingStore, ask: Callable[[accel.Scan], object]
) -> None:
    catalog = Closed(entries(store.inner))
    ask(scan(store, catalog, None))
    assert catalog.closed == len(catalog.begun) >= 1


def test_plans_aggregates_and_selections_go_through_all_blocks(store: RecordingStore) -> None:
    of = entries(store.inner)
    assert scan(store, Catalog(of, 7), "k < 100500").count_rows() == 100_500
    explained = scan(store, Catalog(of, 7), "k = 77").explain()
    assert (explained.files, explained.rows[1]) == ((1, FILES), FILES * ROWS)
    selection = {"0150": {1: [(3, 5)]}, "0001": {0: [(0, 1)]}}
    assert keys(scan(store, Catalog(of, 7), None, selection=selection)) == [1000, 150_503, 150_504]


def with_facts(inner: DictStore, made: Any) -> Iterator[FileEntry]:
    for file in entries(inner):
        etag = inner.etags[file.path]
        yield replace(
            file, facts=FileFacts(version=FileVersion(len(inner.objects[file.path]), etag), **made(file))
        )


def test_metadata_that_the_source_has_is_not_requested(store: RecordingStore) -> None:
    handles = opened(store.inner)
    catalog = Catalog(list(with_facts(store.inner, lambda file: {"handle": handles[file.path]})))
    found = scan(store, catalog, "k = 77077", accel.Cache())
    assert keys(found) == [77_077]
    assert not any(isinstance(call.want, Suffix) for call in store.calls)
    assert {kind for kind, count in found.metrics.requests_by_kind.items() if count} <= {
        Kind.PAGE,
        Kind.OFFSET_INDEX,
        Kind.COLUMN_INDEX,
    }
    assert found.metrics.files.kept == 1


def test_metadata_without_a_listing_is_revalidated(store: RecordingStore) -> None:
    handles = opened(store.inner)
    name = "0003"
    version = FileVersion(len(store.inner.objects[name]), store.inner.etags[name])
    facts = FileFacts(version=version, handle=handles[name])
    entry = FileEntry("store:", name, name, facts=facts)
    found = scan(store, Catalog([entry]), "k = 3003", accel.Cache(max_age=0))
    assert keys(found) == [3003]
    assert found.metrics.requests_by_kind[Kind.REVALIDATE] == 1
    store.inner.put(name, data(77_000))
    replaced = scan(store, Catalog([entry]), "k = 77003", accel.Cache(max_age=0))
    assert keys(replaced) == [77_003]


class Bounded(Catalog):
    """A catalog that has the bounds of `k` in each file, whose name says its first value."""

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        async for block in super().blocks(request):
            first = np.array([int(file.path) * ROWS for file in block.files])
            bounds = ColumnBounds(
                lower=pa.array(first), upper=pa.array(first + ROWS - 1), null_count=pa.array(first * 0)
            )
            yield replace(block, bounds={("k",): bounds}, num_rows=pa.array(first * 0 + ROWS))


def test_bounds_exclude_files_before_they_are_opened(store: RecordingStore) -> None:
    catalog = Bounded(entries(store.inner))
    found = scan(store, catalog, "k = 77077", schema=pa.schema([("k", pa.int64()), ("noise", pa.float64())]))
    assert keys(found) == [77_077]
    assert {call.path for call in store.calls} == {"0077"}
    assert (found.metrics.files.total, found.metrics.files.kept) == (FILES, 1)


@pytest.mark.parametrize("where", ["k = 77077", "NOT k = 1", "k IS NULL OR k = 5001", "noise > 2"])
def test_facts_of_another_version_exclude_nothing(store: RecordingStore, where: str) -> None:
    """The files were replaced by others of the same size: what the source knows of their rows says nothing of
    these."""
    stale = list(with_facts(store.inner, lambda file: {"may_match": {0: RowSelection.of([(0, 1)])}}))
    for at in range(FILES):
        store.inner.put(f"{at:04d}", data((at + 50) * ROWS))
    now = {file.path: file for file in entries(store.inner)}
    catalog = Catalog([replace(now[file.path], facts=file.facts) for file in stale])
    expected = Catalog(entries(store.inner))
    assert keys(scan(store, catalog, where)) == keys(scan(store, expected, where))


def test_rows_that_the_source_leaves_out_are_not_read(store: RecordingStore) -> None:
    rows = {"0001": {1: RowSelection.of([(0, 100)])}, "0002": {}}
    catalog = Catalog(
        list(
            with_facts(store.inner, lambda file: {"may_match": rows[file.path]} if file.path in rows else {})
        )
    )
    found = scan(store, catalog, "k < 4000 AND noise < 9")
    assert keys(found) == [*range(1000), *range(1500, 1600), *range(3000, 4000)]
    selection = {"0001": {1: [(50, 200)]}, "0003": {0: [(0, 2)]}}
    found = scan(store, catalog, "k < 4000 AND noise < 9", selection=selection)
    assert keys(found) == [*range(1550, 1600), 3000, 3001]


def test_a_file_replaced_since_the_source_met_it_is_read_as_it_is(store: RecordingStore) -> None:
    """The entries are as old as the facts: reads are pinned, and find out."""
    handles = opened(store.inner)
    catalog = Catalog(list(with_facts(store.inner, lambda file: {"handle": handles[file.path]})))
    store.inner.put("0077", data(500_000))
    found = scan(store, catalog, "k >= 77990 AND noise < 9", accel.Cache())
    assert keys(found) == [*range(500_000, 501_000), *range(78_000, FILES * ROWS)]
    assert found.metrics.replans == 1


@pytest.mark.parametrize("where", ["k = 77077", "k > 198500 AND noise < 9"])
def test_bounds_of_an_unknown_version_exclude_nothing(store: RecordingStore, where: str) -> None:
    """Without an etag, and without a promise that the path never changes, the bounds may be of another
    file."""
    store.inner.put("0003", data(77_000))
    found = scan(store, Bounded(entries(store.inner, etags=False)), where)
    assert keys(found) == keys(scan(store, Catalog(entries(store.inner)), where))
    assert found.metrics.files.total == FILES
