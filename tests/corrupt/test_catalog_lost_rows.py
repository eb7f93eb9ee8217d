"""Tables of a catalog that were written without some of their rows, and that are consistent otherwise: each
object has its footer, size and etag, and the head names them. The right rows, by the catalog or with a
warning, or an AccelError; never a row less."""

from __future__ import annotations

import functools
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.catalog.describing import WHOLE_FILE
from accel.catalog.head import CatalogHead
from accel.catalog.homes import sql_home, sql_pages
from accel.catalog.homes.table_files import tail_of_file, write_table_file
from accel.catalog.kinds.kind import TableRows
from accel.catalog.kinds.registry import index_of_table
from accel.store.memory_store import content_etag
from accel.testing import DictStore
from tests.corrupt.test_catalog_kinds_damage import INDEX, INDEXES, file

FILES, LOST = 6, 3
"""The files, and the one whose rows are lost."""
QUESTIONS = {
    "files": "k = 65",
    "bounds": "k = 65",
    "keys k": "k = 65",
    "keys s, k": "s = 'text 66' AND k = 66",
    "bloom k": "k IN (65, 13)",
    "distinct k": "k IN (65, 200)",
    "zonemap k": "k BETWEEN 65 AND 66",
    "ngram s": "s LIKE '%text 66%'",
    "distinct s": "s = 'text 66'",
    "zonemap lower(s)": "s ILIKE 'TEXT 66'",
}


OBJECTS = {f"t/{number}.parquet": file(number) for number in range(FILES)}
RIGHT = {
    where: accel.scan("t/", where, store=DictStore(OBJECTS), index=None).to_table().to_pylist()
    for where in QUESTIONS.values()
}


def without_a_file(name: str, table: pa.Table) -> pa.Table:
    """The rows of a table that say nothing of one file; of trigrams those that are not in it alone."""
    if name == "files":
        return pa.concat_tables([table.slice(0, LOST), table.slice(LOST + 1)])
    index = index_of_table(name)
    if name.startswith("ngram"):
        assert index is not None
        inside = set(index.by_file(table, FILES)[LOST].column("gram").to_pylist())
        outside = {
            gram
            for at, one in enumerate(index.by_file(table, FILES))
            if at != LOST
            for gram in one.column("gram").to_pylist()
        }
        kept = [row for row in table.to_pylist() if row["gram"] not in inside - outside]
    elif name.startswith("keys"):
        kept = [row for row in table.to_pylist() if row["place"] >> 32 != LOST]
    else:
        kept = [row for row in table.to_pylist() if row["file"] != LOST]
    assert len(kept) < len(table)
    return pa.Table.from_pylist(kept, schema=table.schema)


def test_whole_tables_are_used() -> None:
    for table, where in QUESTIONS.items():
        for inline in (True, False):
            store = DictStore(built(with_bounds=table == "bounds", inline=inline))
            scan = accel.scan("t/", where, store=store, index=INDEX, cache=None)
            assert scan.to_table().to_pylist() == RIGHT[where]
            assert scan.metrics.warnings == []


def check(store: DictStore, where: str, index: str) -> bool:
    """Ask in each way; returns whether the index was passed over, or refused."""
    passed = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in ({}, {"listing": "index"}, {"options": accel.Options(strict=True)}):
            scan = accel.scan("t/", where, store=store, index=index, cache=None, **given)
            try:
                assert scan.to_table().to_pylist() == RIGHT[where], (where, given)
            except accel.AccelError:
                assert given
                passed = True
            counted = accel.scan("t/", where, store=store, index=index, cache=None, **given)
            try:
                assert counted.count_rows() == len(RIGHT[where]), (where, given)
            except accel.AccelError:
                assert passed
            passed = passed or scan.metrics.indexes_ignored > 0
    return passed


@functools.cache
def built(*, with_bounds: bool, inline: bool) -> dict[str, bytes]:
    """The objects of an index; without bounds nothing is ruled out beside its kinds."""
    with pytest.MonkeyPatch.context() as patch:
        if not inline:
            patch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 0)
        store = DictStore(OBJECTS)
        accel.build_index("t/", indexes=INDEXES, columns=None if with_bounds else [], store=store)
    return dict(store.objects)


@pytest.mark.parametrize("inline", [True, False], ids=["in the head", "objects"])
@pytest.mark.parametrize("table", list(QUESTIONS))
def test_rows_of_a_file_that_objects_lack(table: str, inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 0)
    store = DictStore(built(with_bounds=table == "bounds", inline=inline))
    head = CatalogHead.decode(store.objects[f"{INDEX}/head"])
    (segment,) = head.segments
    one = segment.objects[table]
    name = f"{INDEX}/{one.name}"
    rows = without_a_file(table, pq.read_table(pa.BufferReader(store.objects[name])))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "table.parquet"
        count = write_table_file(table, rows, path)
        data, tail = path.read_bytes(), tail_of_file(path)
    store.put(name, data)
    changed = replace(
        one,
        size=len(data),
        etag=content_etag(data),
        num_rows=count,
        tail=tail,
        content=data if inline else None,
    )
    segment = replace(segment, objects={**segment.objects, table: changed})
    store.put(f"{INDEX}/head", replace(head, segments=(segment,)).encode())
    assert check(store, QUESTIONS[table], INDEX)
    # An object that says that it has the rows that it lacks is no better.
    segment = replace(segment, objects={**segment.objects, table: replace(changed, num_rows=one.num_rows)})
    store.put(f"{INDEX}/head", replace(head, segments=(segment,)).encode())
    assert check(store, QUESTIONS[table], INDEX)
    # The next builder does not build on it.
    with pytest.raises(accel.AccelError):
        accel.compact_index(INDEX, store=store)
        store.put("t/9.parquet", file(9))
        accel.refresh_index(INDEX, store=store)
        accel.compact_index(INDEX, store=store)


@pytest.mark.parametrize("table", list(QUESTIONS))
def test_rows_of_a_file_that_a_builder_loses(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is counted by whoever made the rows."""
    from accel.catalog.homes import objects

    write = objects.write_table_file

    def losing(name: str, rows: Any, path: Path) -> int:
        if name == table:
            rows = without_a_file(name, TableRows(rows, 0).in_memory())
        return write(name, rows, path)

    monkeypatch.setattr(objects, "write_table_file", losing)
    store = DictStore(OBJECTS)
    with pytest.raises(accel.AccelError, match="rows of the table"):
        accel.build_index("t/", indexes=INDEXES, store=store)


@pytest.mark.parametrize("table", list(QUESTIONS))
def test_rows_of_a_file_that_a_database_lacks(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages are cut anew without them, with keys and seals of their own."""
    for name, value in (("BOUNDS_ROWS", 1), ("PAGE_ROWS", 3), ("FEW_PAGES", 0)):
        monkeypatch.setattr(sql_pages, name, value)
    cut = sql_home.cut_table

    def losing(name: str, object_name: str, rows: TableRows, **given: Any) -> Any:
        if name == table:
            rows = TableRows.of(without_a_file(name, rows.in_memory()))
        return cut(name, object_name, rows, **given)

    monkeypatch.setattr(sql_home, "cut_table", losing)
    store, index = DictStore(OBJECTS), f"sqlite:///{tmp_path}/i.db"
    columns = None if table == "bounds" else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            accel.build_index("t/", to=index, indexes=INDEXES, columns=columns, store=store)
        except accel.AccelError:
            return
    assert check(store, QUESTIONS[table], index)


def test_bounds_of_a_file_that_a_database_says_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that lacks the row of a file, and does not say so."""
    for name, value in (("BOUNDS_ROWS", 1), ("FEW_PAGES", 0)):
        monkeypatch.setattr(sql_pages, name, value)
    cut = sql_home.cut_table

    def losing(name: str, object_name: str, rows: TableRows, **given: Any) -> Any:
        if name == "bounds":
            table = rows.in_memory()
            kept = [row for row in table.to_pylist() if (row["file"], row["row_group"]) != (LOST, WHOLE_FILE)]
            rows = TableRows.of(pa.Table.from_pylist(kept, schema=table.schema))
        found = cut(name, object_name, rows, **given)
        parts = tuple(replace(part, absent=None) for part in found.layout.parts)
        return replace(found, layout=replace(found.layout, parts=parts))

    monkeypatch.setattr(sql_home, "cut_table", losing)
    monkeypatch.setattr(TableRows, "check_written", lambda *_: None)
    store, index = DictStore(OBJECTS), f"sqlite:///{tmp_path}/i.db"
    accel.build_index("t/", to=index, store=store)
    for where in ("k = 65", "k > 64 AND k < 67"):
        found = accel.scan("t/", where, store=store, index=index, cache=None)
        with pytest.warns(UserWarning, match="lacks"):
            assert len(found.to_table()) == len(RIGHT.get(where, range(2)))
