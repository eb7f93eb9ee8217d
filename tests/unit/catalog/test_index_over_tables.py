"""An index over a table: it serves all versions, whatever their columns are called, and no row that is gone comes
back."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import inspect_index, verify_index
from accel.testing import DictStore, FaultStore, RecordingStore, Status, TableFile, TableSource, write_file

INDEX = "t/_accel/"
FILES = 12
KINDS: dict[Any, Any] = {
    "key": ["keys", "distinct", "bloom"],
    "text": ["ngram", "zonemap"],
    ("key", "text"): "keys",
    "st.v": "keys",
}


def with_ids(schema: pa.Schema, ids: list[int]) -> pa.Schema:
    """The schema with field ids, in the order of its fields from the top down; a struct comes before its own."""
    numbers = iter(ids)

    def numbered(field: pa.Field) -> pa.Field:
        number = str(next(numbers)).encode()
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([numbered(kind.field(at)) for at in range(kind.num_fields)])
        return field.with_type(kind).with_metadata({"PARQUET:field_id": number})

    return pa.schema([numbered(field) for field in schema])


def rows(number: int) -> pa.Table:
    chance = np.random.default_rng(number)
    keys = chance.integers(0, 400, 60)
    return pa.table(
        {
            "key": pa.array(keys, pa.int64()),
            "text": pa.array([f"text {key % 37:02} of {number}" for key in keys]),
            "st": pa.array([{"v": int(key) % 50, "w": number} for key in keys], pa.struct([("v", pa.int64()), ("w", pa.int64())])),
        }
    )  # fmt: skip


def table(
    store: DictStore, schema: pa.Schema, columns: accel.ColumnMapping | None, files: range, **given: Any
) -> TableSource:
    """A version of the table, over files that keep their bytes."""
    made = TableSource(schema, columns=columns)
    for number in files:
        content = rows(number)
        fields = with_ids(content.schema, [1, 2, 3, 4, 5])
        made.write(
            store,
            f"t/part-{number:02}.parquet",
            content.cast(fields),
            deleted=given.get("deleted", {}).get(number, ()),
            row_group_size=20,
            write_page_index=True,
        )
    return made


def plain(files: range) -> pa.Schema:
    return rows(files[0]).schema


RENAMED = pa.schema(
    [("id", pa.int64()), ("note", pa.string()), ("s", pa.struct([("x", pa.int64()), ("w", pa.int64())]))]
)
BY_NAME = accel.ColumnMapping(
    [
        accel.MappedColumn("id", "key"),
        accel.MappedColumn("note", "text"),
        accel.MappedColumn("s", "st", fields=(accel.MappedColumn("x", "v"), accel.MappedColumn("w", "w"))),
    ]
)
BY_ID = accel.ColumnMapping.by_field_id(with_ids(RENAMED, [1, 2, 3, 4, 5]))
BY_ID_BEFORE = accel.ColumnMapping.by_field_id(with_ids(plain(range(1)), [1, 2, 3, 4, 5]))
QUESTIONS = (
    ("key = 17", "id = 17"),
    ("key IN (3, 399, 1000)", "id IN (3, 399, 1000)"),
    ("text LIKE '%of 7%'", "note LIKE '%of 7%'"),
    ("key = 200 AND text LIKE 'text 15%'", "id = 200 AND note LIKE 'text 15%'"),
    ("st.v = 7 AND key < 100", "s.x = 7 AND id < 100"),
    ("key = -1", "id = -1"),
    ("key = 5 OR st.v = 49", "id = 5 OR s.x = 49"),
    ("NOT key > 10", "NOT id > 10"),
)


@pytest.mark.parametrize("before, after", [(None, BY_NAME), (BY_ID_BEFORE, BY_ID)], ids=["name", "id"])
def test_a_rename_keeps_the_index_and_deleted_rows_stay_away(
    before: accel.ColumnMapping | None, after: accel.ColumnMapping
) -> None:
    store = DictStore()
    first = table(store, plain(range(1)), before, range(FILES))
    report = accel.build_index(first, to=INDEX, indexes=KINDS, store=store)
    assert (report.files, report.added, report.skipped, report.notes) == (FILES, FILES, {}, ())
    assert verify_index(INDEX, source=first, store=store).is_empty
    gone = {number: [at for at in range(60) if at % 7 == number % 7] for number in range(0, FILES, 2)}
    later = table(store, RENAMED, after, range(2, FILES + 2), deleted=gone)
    for old, new in QUESTIONS:
        for source, where in ((first, old), (later, new)):
            expected = accel.scan(source, where, store=store).to_table()
            found = accel.scan(source, where, index=INDEX, store=store)
            assert found.to_table().equals(expected), where
            assert accel.scan(source, where, index=INDEX, store=store).count_rows() == len(expected)
    # Files that the index does not know yet are read; it takes them up, and keeps those of the first version.
    assert accel.build_index(later, to=INDEX, store=store).files == FILES + 2
    for old, new in QUESTIONS:
        for source, where in ((first, old), (later, new)):
            scan = accel.scan(source, where, index=INDEX, store=store)
            assert scan.to_table().equals(accel.scan(source, where, store=store).to_table())
            assert scan.metrics.catalog_stale == 0
            assert scan.metrics.catalog.total == FILES


def test_a_lookup_opens_the_files_that_have_the_key(tmp_path: Any) -> None:
    store = DictStore()
    renamed = table(store, RENAMED, BY_ID, range(FILES))
    with_key = [number for number in range(FILES) if 17 in rows(number)["key"].to_pylist()]
    assert 0 < len(with_key) < FILES / 2
    accel.build_index(renamed, to=INDEX, indexes={"id": "keys"}, store=store)
    recording = RecordingStore(store)
    scan = accel.scan(renamed, "id = 17", index=INDEX, columns=["id"], store=recording, cache=None)
    assert scan.to_table()["id"].to_pylist() == [17] * sum(
        rows(number)["key"].to_pylist().count(17) for number in range(FILES)
    )
    assert sum(one["files"] for one in scan.metrics.catalog_dropped.values()) == FILES - len(with_key)
    assert "keys field 1" in scan.metrics.catalog_dropped
    read = {call.path for call in recording.calls if not call.path.startswith(INDEX)}
    assert read == {f"t/part-{number:02}.parquet" for number in with_key}


@pytest.mark.filterwarnings("ignore:the index .* leaves out:UserWarning")
def test_a_column_that_was_dropped_and_added_again_is_another_one() -> None:
    store = DictStore()
    one = TableSource(
        pa.schema([("v", pa.int64())]),
        columns=accel.ColumnMapping.by_field_id(with_ids(pa.schema([("v", pa.int64())]), [1])),
    )
    old = pa.table({"v": pa.array([1, 2, 3], pa.int64())})
    one.write(store, "t/old.parquet", old.cast(with_ids(old.schema, [1])))
    accel.build_index(one, to=INDEX, indexes={"v": ["keys", "distinct"]}, store=store)
    two = TableSource(
        pa.schema([("v", pa.int64())]),
        one.files,
        columns=accel.ColumnMapping.by_field_id(with_ids(pa.schema([("v", pa.int64())]), [2])),
    )
    two.write(store, "t/new.parquet", old.cast(with_ids(old.schema, [2])))
    accel.build_index(two, to=INDEX, indexes={"v": ["keys", "distinct"]}, store=store)
    for where in ("v = 2", "v IS NULL", "v > 1", "v IS NULL OR v = 3"):
        for source in (one, two):
            expected = accel.scan(source, where, store=store).to_table()
            assert accel.scan(source, where, index=INDEX, store=store).to_table().equals(expected), where
    assert accel.scan(two, "v IS NULL", index=INDEX, store=store).count_rows() == 3


def test_random_versions_and_questions() -> None:
    chance, store = random.Random(5), DictStore()
    mappings = {None: None, "name": BY_NAME, "id": BY_ID}
    built = False
    for step, kind in itertools.product(range(4), mappings):
        files = range(chance.randrange(3), FILES + chance.randrange(3))
        gone = {number: chance.sample(range(60), 9) for number in files if chance.random() < 0.3}
        columns = mappings[kind]
        schema = plain(files) if columns is None else RENAMED
        source = table(store, schema, columns, files, deleted=gone)
        if columns is not BY_ID and (not built or chance.random() < 0.4):
            kinds = {"key": "keys", "text": "ngram"} if columns is None else {"id": "keys", "note": "ngram"}
            accel.build_index(source, to=INDEX, indexes=kinds, store=store)
            built = True
        for _ in range(6):
            key, at = chance.randrange(400), chance.randrange(2)
            names = ("key", "text") if columns is None else ("id", "note")
            where = (f"{names[0]} = {key}", f"{names[1]} LIKE '%{key % 37:02} of {chance.randrange(12)}'")[at]
            expected = accel.scan(source, where, store=store).to_table()
            found = accel.scan(source, where, index=INDEX, store=store, order=True)
            assert found.to_table().equals(expected), (step, kind, where)


def test_what_an_index_of_a_table_is_not_for() -> None:
    store = DictStore()
    source = table(store, RENAMED, BY_NAME, range(3))
    with pytest.raises(ValueError, match="by `to`"):
        accel.build_index(source, store=store)
    with pytest.raises(accel.ColumnNotFoundError, match="nothing"):
        accel.build_index(source, to=INDEX, indexes={"nothing": "keys"}, store=store)
    with pytest.raises(accel.ColumnNotFoundError, match="key"):  # it is called id by now
        accel.build_index(source, to=INDEX, indexes={"key": "keys"}, store=store)
    accel.build_index(source, to=INDEX, indexes={"id": "keys"}, store=store)
    assert inspect_index(INDEX, store=store).table == {"location": "TableSource"}
    with pytest.raises(accel.StoreError, match="is of a table"):
        accel.refresh_index(INDEX, store=store)
    with pytest.raises(accel.AccelError, match="does not list all files"):
        accel.scan("t/", "key = 1", index=INDEX, listing="index", store=store).to_table()
    empty = TableSource(RENAMED)
    with pytest.raises(accel.ObjectNotFoundError, match="names no file"):
        accel.build_index(empty, to="e/_accel/", store=store)


def test_files_without_field_ids_have_their_values_in_the_index() -> None:
    """As those that were added to an Iceberg table from elsewhere, whose columns a name mapping tells."""
    without_ids = accel.ColumnMapping(
        [
            accel.MappedColumn("id", "identity", other_sources=("key",)),
            accel.MappedColumn("note", "text"),
            accel.MappedColumn(
                "s", "st", fields=(accel.MappedColumn("x", "v"), accel.MappedColumn("w", "w"))
            ),
        ]
    )
    mapping = accel.ColumnMapping(BY_ID.columns, without_ids=without_ids)
    store = DictStore()
    made = TableSource(RENAMED, columns=mapping)
    for number in range(FILES):
        content = rows(number)
        content = content if number % 2 else content.cast(with_ids(content.schema, [1, 2, 3, 4, 5]))
        made.write(store, f"t/part-{number:02}.parquet", content, row_group_size=20, write_page_index=True)
    kinds = {"id": ["keys", "distinct", "bloom"], "note": ["ngram"], ("id", "note"): "keys", "s.x": "keys"}
    report = accel.build_index(made, to=INDEX, indexes=kinds, store=store)
    assert (report.files, report.skipped, report.notes) == (FILES, {}, ())
    for _, where in QUESTIONS:
        found = accel.scan(made, where, index=INDEX, store=store, cache=None)
        assert found.to_table().equals(accel.scan(made, where, store=store, cache=None).to_table()), where
        assert found.metrics.catalog_stale == 0
    absent = accel.scan(made, "id = -1", index=INDEX, store=store, cache=None)
    assert (absent.count_rows(), absent.metrics.catalog.kept) == (0, 0)


@pytest.mark.parametrize("is_table", [False, True])
def test_files_that_are_all_denied_are_an_error_of_accel(is_table: bool) -> None:
    """Several fail at once, and one of their errors is raised: no group of them."""
    objects = {f"d/{at}.parquet": write_file(pa.table({"id": [at]})) for at in range(3)}
    store = FaultStore(DictStore(objects), lambda attempt: Status(403) if attempt.path in objects else None)
    files = [TableFile(path=path, size=len(data), num_rows=1) for path, data in objects.items()]
    source = TableSource(pa.schema([("id", pa.int64())]), files) if is_table else "d/"
    with pytest.raises(accel.StoreError, match="403") as denied:
        accel.build_index(source, to="index", indexes={"id": "keys"}, store=store)
    assert denied.value.path in objects
