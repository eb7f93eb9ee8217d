"""Damaged tables of the kinds of a catalog: the right rows, by them or with a warning, or an AccelError;
never anything else."""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, write_file

INDEX = "t/_accel"
INDEXES: dict[Any, Any] = {
    "k": ["keys", "bloom", "zonemap", "distinct"],
    ("s", "k"): "keys",
    "s": ["ngram", "distinct"],
    "lower(s)": "zonemap",
}
QUESTIONS = {
    "keys k": "k = 42",
    "keys s, k": "s = 'text 42' AND k = 42",
    "bloom k": "k IN (42, 13)",
    "distinct k": "NOT k < 40",
    "zonemap k": "k >= 95",
    "ngram s": "s LIKE '%ext 4%'",
    "distinct s": "s <> 'text 3'",
    "zonemap lower(s)": "s ILIKE 'TEXT 4%'",
}


def file(number: int) -> bytes:
    keys = list(range(20 * number, 20 * number + 20))
    texts = [f"text {key}" if key % 5 else None for key in keys]
    return write_file(pa.table({"k": keys, "s": texts}), Layout(group_rows=10, page_rows=5))


FILES = {f"t/{number}.parquet": file(number) for number in range(5)}


@pytest.fixture(autouse=True)
def separate() -> Iterator[None]:
    """Every table is an object of its own, and without bounds nothing is ruled out beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 0)
        yield


def answer(store: DictStore, where: str | None, **given: Any) -> tuple[list[dict[str, Any]], Any]:
    scan = accel.scan("t/", where, store=store, **({"cache": None} | given))
    return scan.to_table().to_pylist(), scan.metrics


RIGHT = {where: answer(DictStore(FILES), where, index=None)[0] for where in QUESTIONS.values()}


def check(store: DictStore, where: str) -> bool:
    """Ask in each way; returns whether the index was passed over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, metrics = answer(store, where, index=INDEX)
        assert found == RIGHT[where], where
        cache = accel.Cache(max_age=0)
        for _ in range(2):
            assert answer(store, where, index=INDEX, cache=cache)[0] == RIGHT[where]
        for given in ({"listing": "index"}, {"options": accel.Options(strict=True)}):
            try:
                assert answer(store, where, index=INDEX, **given)[0] == RIGHT[where]
            except accel.AccelError as error:
                assert metrics.indexes_ignored, error
    return bool(metrics.indexes_ignored)


# -- bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", list(QUESTIONS))
def test_changed_bytes_of_a_table(table: str) -> None:
    store = DictStore(FILES)
    accel.build_index("t/", indexes=INDEXES, columns=[], store=store)
    where = QUESTIONS[table]
    assert not check(store, where)
    name = next(path for path in objects_of(store) if path.startswith(f"{INDEX}/{table.partition(' ')[0]}-"))
    whole, r = store.objects[name], random.Random(table)
    for _ in range(6):
        data = bytearray(whole)
        for _ in range(r.choice([1, 8])):
            data[r.randrange(4, len(data))] ^= r.randrange(1, 256)
        store.objects[name] = bytes(data)
        check(store, where)
    store.objects[name] = whole[: len(whole) // 2]
    check(store, where)


def objects_of(store: DictStore) -> list[str]:
    return sorted(path for path in store.objects if path.startswith(INDEX) and path.endswith(".parquet"))


# -- rows --------------------------------------------------------------------------------------------


def setting(
    column: str, change: Callable[[Any], Any], only: Callable[[dict[str, Any]], bool] | None = None
) -> Any:
    """What changes the values of a column, in all rows or some."""

    def damage(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        for row in rows:
            if only is None or only(row):
                row[column] = change(row[column])
        return pa.Table.from_pylist(rows, schema=table.schema)

    return damage


def without(gone: Callable[[dict[str, Any]], bool]) -> Any:
    """What leaves rows out."""
    return lambda table: pa.Table.from_pylist(
        [row for row in table.to_pylist() if not gone(row)], schema=table.schema
    )


FAR = 1 << 37
DAMAGES: dict[str, tuple[str, Any]] = {
    "keys of a file that is not there": ("keys k", setting("place", lambda place: place + FAR)),
    "keys of a negative file": ("keys s, k", setting("place", lambda place: place - FAR)),
    "keys of a page that is not there": ("keys k", setting("place", lambda place: place + 4000)),
    "values of a file that is not there": ("distinct k", setting("file", lambda file: 5)),
    "values of a negative file": ("distinct s", setting("file", lambda file: -1)),
    "filters of a file that is not there": ("bloom k", setting("file", lambda file: file + 5)),
    "filters of half a block": ("bloom k", setting("blocks", lambda blocks: blocks[:-1])),
    "filters of nothing": ("bloom k", setting("blocks", lambda blocks: b"")),
    "bounds of a file that is not there": ("zonemap k", setting("file", lambda file: 99)),
    "bounds of a row group that is not there": (
        "zonemap k",
        setting("row_group", lambda group: group + 7, lambda row: row["file"] == 4),
    ),
    "bounds of another length": ("zonemap k", setting("lower", lambda lower: lower[:3])),
    "bounds that lack a row group": (
        "zonemap k",
        without(lambda row: row["file"] == 4 and row["row_group"] == 0),
    ),
    "trigrams without their files": ("ngram s", without(lambda row: row["gram"] == -2)),
    "trigrams without what is unclear": ("ngram s", without(lambda row: row["gram"] == -1)),
    "trigrams of no bitmap": (
        "ngram s",
        setting("units", lambda units: b"nonsense", lambda row: row["gram"] >= -1),
    ),
    "trigrams of units that are not there": (
        "ngram s",
        setting("units", lambda units: bitmap(7000), lambda row: row["gram"] >= 0),
    ),
    "trigrams of fewer files": (
        "ngram s",
        setting("units", lambda units: units[8:], lambda row: row["gram"] == -2),
    ),
    "trigrams of half a file": (
        "ngram s",
        setting("units", lambda units: units[:-3], lambda row: row["gram"] == -2),
    ),
    "trigrams of a file that is not there": (
        "ngram s",
        setting("units", lambda units: struct.pack("<i", 77) + units[4:], lambda row: row["gram"] == -2),
    ),
    "trigrams of very many pages": (
        "ngram s",
        setting("units", lambda units: struct.pack("<ii", 0, 2**31 - 1) * 5, lambda row: row["gram"] == -2),
    ),
    "trigrams of a negative number of pages": (
        "ngram s",
        setting("units", lambda units: struct.pack("<ii", 0, -4) + units[8:], lambda row: row["gram"] == -2),
    ),
}


def bitmap(*members: int) -> bytes:
    from pyroaring import BitMap

    return bytes(BitMap(members).serialize())


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_rows_that_make_no_sense_are_passed_over(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, change = DAMAGES[damage]
    from accel.catalog.homes import objects

    write = objects.write_table_file

    def damaged(name: str, rows: Any, path: Any) -> int:
        if name != table:
            return write(name, rows, path)
        whole = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
        write(name, change(whole), path)
        return len(whole)

    monkeypatch.setattr(objects, "write_table_file", damaged)
    store = DictStore(FILES)
    kinds = {
        of: kinds for of, kinds in INDEXES.items() if of == table.partition(" ")[2] or isinstance(of, tuple)
    }
    accel.build_index("t/", indexes=kinds, columns=[], store=store)
    assert check(store, QUESTIONS[table]), damage
    # A merge refuses the table, or makes one that is as good as it.
    monkeypatch.setattr(objects, "write_table_file", write)
    store.put("t/0.parquet", FILES["t/0.parquet"])
    try:
        accel.refresh_index(INDEX, store=store)
        accel.compact_index(INDEX, store=store)
    except accel.AccelError:
        pass
    check(store, QUESTIONS[table])
