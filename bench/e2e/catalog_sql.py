"""A point predicate in a catalog of 4,000,000 bounds in a database, in the server and through accel.

The bounds are those of 100,000 files of four row groups and eight columns, with those of the whole files
beside them: 400,000 about files and 1,600,000 about row groups for each four columns. Run it as `python -m
bench.e2e.catalog_sql` (SQLite), or with the URL of a database.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from accel.catalog.describing import BOUNDS_SCHEMA, FILES_SCHEMA
from accel.catalog.head import CatalogHead, Segment
from accel.catalog.homes.home import home_at
from accel.catalog.homes.sql_home import DatabaseHome
from accel.catalog.homes.sql_pages import Layout
from accel.catalog.homes.sql_tables import DatabaseTables
from accel.catalog.intervals import required_intervals
from accel.catalog.kinds.kind import TableRows
from accel.indexes.bound_bytes import End, encode_bounds
from accel.metrics import Metrics
from accel.options import Options
from accel.predicate.bind import bind
from accel.predicate.kinds import kind_of
from accel.predicate.parser import parse
from accel.store.clients import Connector

FILES, GROUPS, COLUMNS, STEP = 100_000, 4, 8, 1000
ROUNDS = 30
"""Questions that are asked; the median is shown."""


def bounds(column: int, shuffled: np.ndarray, groups: int) -> pa.Table:
    """The bounds of one column: `groups` rows of each file, 0 for the file as a whole; of the first column
    files do not overlap, of the others each overlaps a tenth of them."""
    n = FILES * max(groups, 1)
    width = STEP if column == 0 else STEP * FILES // 10
    units = np.repeat(shuffled, max(groups, 1)) * STEP + np.tile(np.arange(max(groups, 1)), FILES)
    order = np.argsort(units, kind="stable")
    has, kind = np.ones(n, bool), kind_of(pa.int64())
    lower = units[order]
    files = np.repeat(np.arange(FILES), max(groups, 1))[order]
    row_groups = np.full(n, -1) if not groups else np.tile(np.arange(groups), FILES)[order]
    arrays = [
        pa.repeat(pa.scalar(f"c{column}"), n),
        pa.repeat(pa.scalar("integer"), n),
        pa.array(row_groups, pa.int32()),
        pa.array(files, pa.int32()),
        encode_bounds(lower, has, kind=kind, end=End.LOWER),
        encode_bounds(lower + width - 1, has, kind=kind, end=End.UPPER),
        pa.array(np.zeros(n, np.int64)),
        pa.array(np.zeros(n, np.int64)),
        pa.array(np.full(n, 1000)),
    ]
    return pa.Table.from_arrays(arrays, schema=BOUNDS_SCHEMA)


async def fill(home: DatabaseHome) -> tuple[CatalogHead, int]:
    """Write the catalog, and return its head and the number of bounds."""
    r = np.random.default_rng(1)
    tables = []
    for column in range(COLUMNS):
        shuffled = r.permutation(FILES)
        tables += [bounds(column, shuffled, groups) for groups in (0, GROUPS)]
    table = pa.concat_tables(tables)
    paths = pa.array([f"day={at // 500:03}/part-{at:06}.parquet" for at in range(FILES)])
    files = pa.Table.from_arrays(
        [
            paths,
            pa.array(np.full(FILES, 1 << 20)),
            pa.array([f'"{at:032x}"' for at in range(FILES)]),
            pa.array(np.full(FILES, 4000)),
            pa.array(np.full(FILES, GROUPS), pa.int32()),
            pa.repeat(pa.scalar("0123456789abcdef"), FILES),
            pa.array([b"footer" * 20] * FILES),
        ],
        schema=FILES_SCHEMA,
    )
    await home.put_head(CatalogHead(base="/nowhere/"), instead_of=None)
    segment: Segment = await home.put_segment(
        {"files": TableRows.of(files), "bounds": TableRows.of(table)}, num_files=FILES
    )
    head = CatalogHead(base="/nowhere/", segments=(segment,), generation=1)
    await home.put_head(head, instead_of=(await home.read_head(Metrics()))[0])
    return head, table.num_rows


def in_server(home: DatabaseHome, head: CatalogHead, where: str) -> Callable[[], int]:
    """Return a call that sends the query of a point predicate and takes its rows, without more."""
    database = home.database
    bound = bind(parse(where), SCHEMA)
    ((_, (interval,)),) = required_intervals(bound).items()
    one = head.segments[0].objects["bounds"]
    parts = Layout.decode(one.tail).parts
    (at,) = (n for n, part in enumerate(parts) if part.keyed and part.column == bound.columns[0].path[0])
    place = int(one.etag or 0), at
    lower, upper, last = interval.lower, interval.upper, parts[at].num_pages - 1
    parameters = (upper, lower, *place, *place, lower, *place, upper, last, -1, 256)
    statement = database.tables.in_range()
    return lambda: len(database.read(lambda session: session.fetch(statement, parameters)))


SCHEMA = pa.schema([(f"c{column}", pa.int64()) for column in range(COLUMNS)])


def shown(title: str, seconds: list[float], more: str) -> None:
    worst = max(seconds)
    print(f"{title:44} {1000 * statistics.median(seconds):7.2f} ms, at most {1000 * worst:7.2f} ms  {more}")


async def measure(url: str) -> None:
    home = home_at(url, Connector(storage_options=None, store=None, options=Options()), in_store=False)
    assert isinstance(home, DatabaseHome)
    begun = time.perf_counter()
    head, rows = await fill(home)
    size = sum(one.size for one in head.segments[0].objects.values())
    print(
        f"{home}: {rows:,} bounds of {FILES:,} files, {size / 1e6:.0f} MB, {time.perf_counter() - begun:.1f} s"
    )
    for column, title in ((0, "apart"), (1, "each overlaps a tenth")):
        server, through, left = [], [], 0
        for point in np.linspace(0, FILES * STEP - 1, ROUNDS).astype(int):
            where = f"c{column} = {point}"
            call = in_server(home, head, where)
            begun = time.perf_counter()
            pages = await asyncio.to_thread(call)
            server.append(time.perf_counter() - begun)
            bound = bind(parse(where), SCHEMA)
            tables = DatabaseTables(home.database, metrics=Metrics())
            begun = time.perf_counter()
            found = await tables.matching(head.segments[0], bound, constant=frozenset())
            through.append(time.perf_counter() - begun)
            assert found is not None
            left = max(left, len(found.files))
        shown(f"files {title}: the query", server, f"{pages} pages")
        shown(f"files {title}: checked, decoded", through, f"{left:,} files at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "url", nargs="?", help="of an index that is not there yet; by default a temporary file of SQLite"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(given.url or f"sqlite:///{directory}/index.db"))


if __name__ == "__main__":
    main()
