"""Random histories of Iceberg tables that pyiceberg writes, read at every snapshot, with and without an index; and
scans beside a writer that commits, expires snapshots and deletes files."""

from __future__ import annotations

import datetime
import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel
import accel.tables
from accel.errors import AccelError, ObjectNotFoundError, TableFormatError

sql = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed")

ROWS = pa.table(
    {
        "id": pa.array(range(600), pa.int64()),
        "name": pa.array([None if i % 9 == 0 else f"n{i % 7}" for i in range(600)]),
        "x": pa.array([i / 3 for i in range(600)]),
    }
)
SECONDS = 6.0
"""How long scans go on beside the writer, at the most."""
_number = itertools.count()


@pytest.fixture(name="lake", scope="module")
def made_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    place = tmp_path_factory.mktemp("lake")
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}")
    catalog.create_namespace("db")
    yield catalog, place
    catalog.close()


class History:
    """A table, and what may be done to it."""

    def __init__(self, catalog: Any) -> None:
        self.table = catalog.create_table(f"db.history{next(_number)}", schema=ROWS.schema)
        self.names = ["id", "name", "x"]
        self.added = 0

    def step(self, kind: str, low: int, count: int) -> None:
        table = self.table
        match kind:
            case "append":
                some = ROWS.slice(low, count)
                table.append(pa.table(dict(zip(self.names, some.columns, strict=True))))
            case "delete":
                table.delete(f"id >= {low} and id < {low + count}")
            case "overwrite":
                some = ROWS.slice(low, count)
                rows = pa.table(dict(zip(self.names, some.columns, strict=True)))
                table.overwrite(rows, f"id < {count}")
            case "rename":
                self.added += 1
                with table.update_schema() as update:
                    update.rename_column(self.names[1], f"name{self.added}")
                self.names[1] = f"name{self.added}"
            case "add":
                self.added += 1
                with table.update_schema() as update:
                    update.add_column(f"more{self.added}", _type(low))
            case "partition" if not table.spec().fields:
                from pyiceberg.transforms import BucketTransform, IdentityTransform

                with table.update_spec() as update:
                    if low % 2:
                        update.add_field(self.names[1], IdentityTransform(), "i")
                    else:
                        update.add_field("id", BucketTransform(4), "b")


def _type(low: int) -> Any:
    from pyiceberg.types import LongType, StringType

    return LongType() if low % 2 else StringType()


KINDS = st.sampled_from(
    ["append", "append", "append", "delete", "delete", "overwrite", "rename", "add", "partition"]
)
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 540), st.integers(1, 60)), min_size=3, max_size=8)


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    return sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@settings(
    deadline=None,
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, indexed_at=st.integers(0, 7), dice=st.randoms(use_true_random=False))
def test_random_histories_of_pyiceberg_are_read_at_every_snapshot(
    lake: tuple[Any, Path], steps: list[tuple[str, int, int]], indexed_at: int, dice: random.Random
) -> None:
    """pyiceberg's own rows are the reference; an index that was built at one version serves all of them."""
    catalog, place = lake
    history = History(catalog)
    history.step("append", 100, 60)
    index = None
    for at, step in enumerate(steps):
        history.step(*step)
        if index is None and at >= min(indexed_at, len(steps) - 1):
            index = str(place / f"index{next(_number)}")
            kinds = {"id": "keys", history.names[1]: "keys"}
            accel.build_index(accel.tables.iceberg(history.table), indexes=kinds, to=index)
    table, name = history.table, history.names[1]
    for entry in table.history():
        chosen = accel.tables.iceberg(table, snapshot_id=entry.snapshot_id)
        expected = table.scan(snapshot_id=entry.snapshot_id).to_arrow()
        plain = accel.scan(chosen)
        assert plain.schema.names == expected.schema.names
        assert same_rows(plain.to_table(), expected)
        number = dice.choice([*expected["id"].to_pylist(), 7])
        kept = table.scan(snapshot_id=entry.snapshot_id, row_filter=f"id = {number}").to_arrow()
        for given_index in (None, index):
            scan = accel.scan(chosen, f"id = {number}", index=given_index)
            assert same_rows(scan.to_table(), kept)
            assert scan.count_rows() == kept.num_rows
    for where in (f"{name} = 'n3'", f"{name} IS NULL", "id IN (5, 250, 599)", "x > 100 AND id <> 400"):
        kept = table.scan(row_filter=where).to_arrow()
        for given_index in (None, index):
            assert same_rows(accel.scan(table, where, index=given_index).to_table(), kept), where


def test_a_scan_beside_a_writer_that_deletes_files_gives_one_version_or_names_the_file(
    lake: tuple[Any, Path],
) -> None:
    """Snapshots are expired and their files deleted at once, which no table should do."""
    catalog, place = lake
    catalog.create_table("db.busy", schema=ROWS.schema).append(ROWS.slice(0, 100))
    states = {(100, sum(range(100)))}
    below = place / "db" / "busy"
    removed: set[str] = set()

    def commit(turn: int, ids: list[int]) -> list[int]:
        table = catalog.load_table("db.busy")
        start = 100 * (turn % 5)
        more = [*ids, *range(start, start + 100)]
        states.add((len(more), sum(more)))
        table.append(ROWS.slice(start, 100))
        # A delete and an append, each a commit of its own.
        left = [number for number in more if number >= 300]
        states.add((len(left), sum(left)))
        done = [*left, *range(50)]
        states.add((len(done), sum(done)))
        table.overwrite(ROWS.slice(0, 50), "id < 300")
        return done

    def vacuum() -> None:
        """Expire all snapshots but the current one, and delete what it does not name."""
        table = catalog.load_table("db.busy")
        table.maintenance.expire_snapshots().older_than(datetime.datetime.now(datetime.UTC)).commit()
        table = catalog.load_table("db.busy")
        named = {task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files()}
        snapshot = table.current_snapshot()
        named.add(snapshot.manifest_list.rpartition("/")[2])
        named |= {each.manifest_path.rpartition("/")[2] for each in snapshot.manifests(table.io)}
        for path in [*(below / "data").iterdir(), *(below / "metadata").glob("*.avro")]:
            if path.name not in named:
                removed.add(path.name)
                path.unlink()

    def write() -> None:
        ids = list(range(100))
        for turn in range(6):
            ids = commit(turn, ids)
            vacuum()

    named = accel.tables.iceberg("db.busy", catalog=catalog)
    old = catalog.load_table("db.busy").current_snapshot().snapshot_id
    found, errors, until = set(), [], time.monotonic() + SECONDS
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done() and time.monotonic() < until:
            try:
                rows = accel.scan(named, cache=accel.Cache(max_age=0)).to_table()
            except AccelError as error:
                errors.append(error)
            else:
                found.add((rows.num_rows, sum(rows["id"].to_pylist())))
        writing.result()
    assert found <= states and found
    for error in errors:
        assert isinstance(error, ObjectNotFoundError), error
        assert (error.path or "").rpartition("/")[2] in removed, error
    with pytest.raises(TableFormatError, match=f"no snapshot {old}.*expired"):
        accel.scan(accel.tables.iceberg("db.busy", catalog=catalog, snapshot_id=old)).to_table()


def test_a_scan_of_a_snapshot_whose_files_are_gone_names_the_first_of_them(lake: tuple[Any, Path]) -> None:
    catalog, _ = lake
    table = catalog.create_table("db.vacuumed", schema=ROWS.schema)
    table.append(ROWS.slice(0, 100))
    first = accel.tables.iceberg(table)
    scan = accel.scan(first, "id >= 0", cache=accel.Cache())
    assert scan.to_table().num_rows == 100
    gone = next(iter(table.scan().plan_files())).file.file_path
    Path(gone.removeprefix("file://")).unlink()
    with pytest.raises(ObjectNotFoundError) as caught:
        accel.scan(first, "id >= 0", cache=accel.Cache()).to_table()
    assert gone.rpartition("/")[2] in str(caught.value)
