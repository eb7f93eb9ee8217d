"""What a lookup by a catalog sends whose head has room for footers alone, and what is in memory of catalogs
that are larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.catalog.asking.pruning import CatalogPruner
from accel.catalog.asking.source import CatalogSource, Listing
from accel.catalog.building.builder import CatalogBuilder
from accel.catalog.head import CatalogHead
from accel.catalog.homes.home import home_at
from accel.catalog.homes.objects import ObjectHome, directory_at
from accel.catalog.shares import commit_shares, describe_shares, plan_shares
from accel.metrics import Metrics
from accel.options import Options
from accel.predicate.where import to_expr
from accel.runtime import io_loop
from accel.scanning.engine import Engine, read_all
from accel.scanning.spec import ScanSpec
from accel.store.clients import Connector
from accel.tables.path_source import PathSource
from accel.testing import DictStore, Layout, RecordingStore, write_file

INDEX = "x/index"
FILES, ROWS = 30, 4000


def name(number: int) -> str:
    return f"d/part-{number:02}.parquet"


def build(store: DictStore, *, head_bytes: int, memory: int = 64 << 20, **given: Any) -> accel.IndexReport:
    """An index whose head holds so many bytes beside footers."""
    options = Options(memory_limit=memory)
    connector = Connector(storage_options=None, store=store, options=options)
    location = directory_at(INDEX, in_store=True)
    home = ObjectHome(connector.client(location), location, in_store=True, head_bytes=head_bytes)
    head = CatalogHead(base=directory_at("d/", in_store=True).url, **given)
    return io_loop.run(CatalogBuilder(home, connector, options=options).refresh(make=head))


@pytest.fixture(scope="module")
def files() -> DictStore:
    """Ids in no order, each there once."""
    ids = np.random.default_rng(8).permutation(FILES * ROWS)
    layout = Layout(page_rows=200, dictionary=False)
    return DictStore(
        {
            name(number): write_file(pa.table({"id": ids[number * ROWS : (number + 1) * ROWS]}), layout)
            for number in range(FILES)
        }
    )


class Lookup:
    """One lookup, and the kinds of objects that each wave asked for."""

    def __init__(self, recorded: RecordingStore, key: int, cache: accel.Cache) -> None:
        recorded.clear()
        given: dict[str, Any] = {"store": recorded, "cache": cache, "index": INDEX, "listing": "index"}
        scan = accel.scan("d/", f"id = {key}", **given)
        self.rows = scan.to_table().to_pylist()
        self.bytes, self.requests = recorded.bytes, recorded.requests
        waves: list[set[str]] = [set() for _ in range(recorded.depth)]
        for call in recorded.calls:
            waves[call.wave - 1].add(call.path.rpartition("/")[2].partition("-")[0])
        self.waves = [sorted(wave) for wave in waves]
        assert scan.metrics.round_trips == recorded.depth


@pytest.mark.parametrize(
    ("head_bytes", "cold", "warm"),
    [
        (1 << 20, [["head"], ["part"]], [["part"]]),
        (100_000, [["head"], ["keys"], ["part"]], [["keys"], ["part"]]),
        (
            0,
            # The page index of the row group, then the page.
            [["head"], ["bounds", "files"], ["keys"], ["keys"], ["files"], ["part"]],
            [["keys"], ["files"], ["part"]],
        ),
    ],
    ids=["all in the head", "the page index of the keys in the head", "footers alone"],
)
def test_lookups(files: DictStore, head_bytes: int, cold: list[list[str]], warm: list[list[str]]) -> None:
    store = DictStore(files.objects)
    build(store, head_bytes=head_bytes, indexes={"id": ("keys",)})
    # Beside what it may hold there are the footers of three tables.
    assert len(store.objects[f"{INDEX}/head"]) < head_bytes + 10_000
    recorded, cache = RecordingStore(store), accel.Cache(data=0)
    first = Lookup(recorded, 77_777, cache)
    assert first.rows == [{"id": 77_777}]
    assert first.waves == cold
    later = Lookup(recorded, 11_111, cache)
    assert later.rows == [{"id": 11_111}]
    assert later.waves == warm
    assert later.bytes < 30_000
    absent = Lookup(recorded, FILES * ROWS, cache)
    assert absent.rows == []
    assert absent.waves == []


def test_a_table_of_keys_larger_than_memory_is_the_same(files: DictStore) -> None:
    """1.9 MB of rows, of which 64 KB are sorted at once; merged again from several segments."""
    small, large = DictStore(files.objects), DictStore(files.objects)
    build(large, head_bytes=0, indexes={"id": ("keys",)})
    build(small, head_bytes=0, memory=1 << 20, indexes={"id": ("keys",)})

    def keys(store: DictStore) -> pa.Table:
        (path,) = (path for path in store.objects if "/keys-" in path)
        return pq.read_table(pa.BufferReader(store.objects[path]))

    whole = keys(large)
    assert whole.column("value").to_pylist() == list(range(FILES * ROWS))
    assert keys(small).equals(whole)


def in_pages(
    store: DictStore, where: str | None, *, page_files: int, cache: accel.Cache
) -> tuple[pa.Table, Metrics]:
    """A scan that has the files of so many at a time."""
    connector = Connector(storage_options=None, store=store, options=Options())
    spec = ScanSpec(source="d/", where=to_expr(where), partitioning="hive", in_store=True, options=Options())

    def source(_: Any) -> CatalogSource:
        home = home_at(INDEX, connector, in_store=True)
        pruner = CatalogPruner(home, spec, cache=cache)
        return CatalogSource(
            PathSource("d/", in_store=True),
            pruner,
            spec,
            listing=Listing.INDEX,
            page_files=page_files,
        )

    engine, metrics = Engine(spec, connector, cache=cache, make_source=source), Metrics()
    return io_loop.run(read_all(engine.start(metrics))), metrics


@pytest.fixture(scope="module")
def several(files: DictStore) -> DictStore:
    """An index of seven segments, one of which lies between the files of another."""
    store = DictStore({path: data for path, data in files.objects.items() if path != name(11)})
    shares = plan_shares("d/", to=INDEX, shares=6, indexes={"id": "keys"}, store=store)
    commit_shares(INDEX, describe_shares(shares.to_batches(), index=INDEX, store=store), store=store)
    store.put(name(11), files.objects[name(11)])
    accel.refresh_index(INDEX, store=store)
    return store


@pytest.mark.parametrize("where", [None, "id = 77777", "id < 40", "id = -1", "id BETWEEN 100 AND 100000"])
@pytest.mark.parametrize("page_files", [1, 10, 1000])
def test_pages_are_the_whole(several: DictStore, where: str | None, page_files: int) -> None:
    store, cache = several, accel.Cache(data=0)
    found, metrics = in_pages(store, where, page_files=page_files, cache=cache)
    assert found.equals(accel.scan("d/", where, store=store, cache=None, index=None).to_table())
    assert metrics.catalog.total == FILES
    # What is read of several pages is dropped; of one it is cached.
    connector = Connector(storage_options=None, store=store, options=Options())
    snapshot = home_at(INDEX, connector, in_store=True).cached(cache)
    assert snapshot is not None
    assert len(snapshot.tables) == 7
    assert {one.directory is None for one in snapshot.tables} == {page_files < 1000}
