"""A catalog of 20,000 files in hive directories: what is in memory of it at a time, and what a question reads
of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.asking.pruning import CatalogPruner
from accel.catalog.asking.source import CatalogSource, Listing
from accel.catalog.describing import BOUNDS_ORDER
from accel.catalog.head import CatalogHead, Table
from accel.catalog.homes.objects import ObjectHome, directory_at
from accel.catalog.kinds.kind import TableRows
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileBlock
from accel.predicate.where import to_expr
from accel.runtime import io_loop
from accel.scanning.engine import Engine, read_all
from accel.scanning.file_source import SourceRequest
from accel.scanning.spec import ScanSpec
from accel.store.clients import Connector
from accel.tables.path_source import PathSource
from accel.testing import DictStore, RecordingStore, write_file

DAYS, FILES_OF_DAY, SEGMENT_DAYS = 200, 100, 20
FILES = DAYS * FILES_OF_DAY
ROWS = 10


def path(number: int) -> str:
    day, of_day = divmod(number, FILES_OF_DAY)
    return f"day={np.datetime64('2024-01-01') + day}/part={of_day:03}/0.parquet"


class Blocks(CatalogSource):
    """Notes the files of each block."""

    sizes: list[int]

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        self.sizes = []
        async for block in super().blocks(request):
            self.sizes.append(len(block.files))
            yield block


class Generated:
    """20,000 files of the same bytes, and a catalog of them in ten segments that is made of the rows of one
    file."""

    def __init__(self) -> None:
        file = write_file(pa.table({"x": list(range(ROWS))}))
        inner = DictStore({f"t/{path(number)}": file for number in range(FILES)})
        accel.build_index("t/day=2024-01-01/part=000/", to="one/", store=inner)
        self.store = RecordingStore(inner)
        io_loop.run(self._generate(self._home(inner, "one/"), self._home(inner, "i/")))

    def _home(self, store: Any, name: str) -> ObjectHome:
        location = directory_at(name, in_store=True)
        connector = Connector(storage_options=None, store=store, options=Options())
        return ObjectHome(connector.client(location), location, in_store=True, head_bytes=0)

    async def _generate(self, one: ObjectHome, home: ObjectHome) -> None:
        snapshot, _ = await one.read_head(Metrics())
        reader = one.reader(cache=None, options=Options(), metrics=Metrics())
        names = (Table.FILES, Table.BOUNDS)
        row, bounds = [await reader.whole_table(snapshot.tables[0], name) for name in names]
        step = SEGMENT_DAYS * FILES_OF_DAY
        files = row.take(pa.array(np.zeros(step, np.int64)))
        places = [pa.array([number] * len(bounds), pa.int32()) for number in range(step)]
        at = bounds.schema.get_field_index("file")
        parts = [bounds.set_column(at, bounds.schema.field(at), one) for one in places]
        tables = {Table.BOUNDS: TableRows.of(pa.concat_tables(parts).sort_by(BOUNDS_ORDER))}
        segments = []
        for begin in range(0, FILES, step):
            paths = [path(number) for number in range(begin, begin + step)]
            own = files.set_column(0, row.schema.field(0), pa.array(paths))
            tables[Table.FILES] = TableRows.of(own)
            segments.append(
                (await home.put_segment(tables, num_files=step)).with_files(
                    paths, row.column("schema_fingerprint").to_pylist()
                )
            )
        base = directory_at("t/", in_store=True).url
        await home.put_head(CatalogHead(base=base, segments=tuple(segments)), instead_of=None)

    def scan(self, where: str, *, page_files: int) -> tuple[pa.Table, Blocks, Metrics]:
        """Scan by the list of the catalog, of which so many files are in memory at a time."""
        spec = ScanSpec(
            source="t/", where=to_expr(where), partitioning="hive", options=Options(), in_store=True
        )
        connector = Connector(storage_options=None, store=self.store, options=Options())
        pruner = CatalogPruner(self._home(self.store, "i/"), spec, cache=None)
        paths = PathSource("t/", in_store=True)
        given: dict[str, Any] = {"listing": Listing.INDEX, "page_files": page_files}
        source, metrics = Blocks(paths, pruner, spec, **given), Metrics()
        engine = Engine(spec, connector, cache=None, make_source=lambda _: source)
        self.store.clear()
        return io_loop.run(read_all(engine.start(metrics))), source, metrics


@pytest.fixture(scope="module")
def generated() -> Generated:
    return Generated()


PAGE = SEGMENT_DAYS * FILES_OF_DAY
CASES: dict[str, tuple[str, list[int], int, int]] = {
    "one day": ("day = '2024-05-05'", [1, 100], 1000, 2),
    "one file": ("day = '2024-05-05' AND part = 7", [1, 1], 10, 2),
    "days of two segments": ("day BETWEEN '2024-01-20' AND '2024-01-21'", [101, 100], 2000, 2),
    "one of each day": ("part = 99 AND x = 3", [21, *[20] * 9], 200, 10),
    "none": ("day = '2023-01-01'", [1], 0, 1),
}
"""By name: the predicate, the files of each block, rows, and the segments that are read."""


@pytest.mark.parametrize(("where", "sizes", "rows", "segments"), CASES.values(), ids=CASES.keys())
def test_blocks_are_pages_of_files_that_may_match(
    generated: Generated, where: str, sizes: list[int], rows: int, segments: int
) -> None:
    found, source, metrics = generated.scan(where, page_files=PAGE)
    assert source.sizes == sizes
    assert (found.num_rows, metrics.catalog.total, metrics.catalog.kept) == (rows, FILES, sum(sizes))
    if "day" in where:
        days = {str(day) for day in found.column("day").unique().to_pylist()}
        assert all(day in where for day in days)
    # The head tells of the other segments that no file of theirs matches.
    read = {call.path for call in generated.store.calls if call.path.startswith("i/files-")}
    assert len(read) == segments
    whole, one_block, _ = generated.scan(where, page_files=FILES)
    assert one_block.sizes == [sum(sizes)]
    assert whole.equals(found)


def test_memory_is_that_of_a_page(generated: Generated) -> None:
    peaks = {}
    for page_files in (PAGE, FILES):
        tracemalloc.start()
        generated.scan("part = 99 AND x < 0", page_files=page_files)
        peaks[page_files] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # The head, and about a kilobyte of each file that is in memory.
    assert peaks[PAGE] < 5e6
    assert peaks[PAGE] < peaks[FILES] / 2.5, peaks
