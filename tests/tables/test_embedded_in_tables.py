"""Files with embedded indexes that are copied into tables, where columns may be called otherwise: the indexes
stay valid, go by the columns of the file, and rule out no row of another column."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.planning.column_mapping import ColumnMapping
from accel.planning.file_entry import FileBlock
from accel.scanning.file_source import SourceRequest
from tests.support.ducklake import Lake
from tests.tables.iceberg_writer import IcebergWriter

KINDS = ["bitmap", "bloom", "distinct", "ngram", "sketch", "zonemap"]
EXACT = {"bitmap", "bloom", "distinct", "ngram"}
"""Kinds that tell of a value within the bounds that it is not there."""
ROWS, VALUES = 4000, 200


def rows(ids: bool = False) -> pa.Table:
    """Two columns whose values are between each other's, and none of them in both."""
    fields = [
        pa.field(name, pa.string(), metadata={"PARQUET:field_id": str(at)} if ids else None)
        for at, name in enumerate(("a", "b"), 1)
    ]
    values = [[f"k{(at * 7919) % VALUES * 4 + shift:04d}" for at in range(ROWS)] for shift in (0, 2)]
    return pa.table([pa.array(column) for column in values], schema=pa.schema(fields))


A, B, NEITHER = "k0400", "k0402", "k0401"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def embedded(folder: pathlib.Path, kind: str, *columns: str, ids: bool = False) -> pathlib.Path:
    """Return a file with an index of some columns, in a folder where it was not made."""
    (folder / "made").mkdir()
    (folder / "copied").mkdir()
    source, target = folder / "made" / "plain.parquet", folder / "made" / "indexed.parquet"
    pq.write_table(rows(ids), source, row_group_size=1000, write_page_index=True)
    accel.embed(str(source), str(target), indexes=dict.fromkeys(columns, kind))
    return target.rename(folder / "copied" / "of another name.parquet")


def found(table: Any, where: str, **given: Any) -> tuple[int, int]:
    """Return the rows that match, and the row groups that the metadata left."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan = accel.scan(table, where, **given)
        count = scan.to_table().num_rows
    assert accel.scan(table, where, **given).count_rows() == count
    return count, scan.metrics.row_groups.kept


def test_a_copied_file_is_used_with_its_index(tmp_path: pathlib.Path, kind: str) -> None:
    path = str(embedded(tmp_path, kind, "a"))
    assert found(path, f"a = '{A}'")[0] == ROWS // VALUES
    assert found(path, f"b = '{B}'")[0] == ROWS // VALUES
    count, kept = found(path, f"a = '{NEITHER}'")
    assert count == 0
    assert (kept == 0) == (kind in EXACT)


def test_a_lake_that_takes_a_file_and_renames_its_columns(tmp_path: pathlib.Path, kind: str) -> None:
    path = embedded(tmp_path, kind, "a")
    with Lake(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "data") as lake:
        lake.run(
            "CREATE TABLE events (a VARCHAR, b VARCHAR)",
            f"CALL ducklake_add_data_files('lake', 'events', '{path}')",
        )
        before = lake.version()
        lake.run(
            "ALTER TABLE events DROP COLUMN a",
            "ALTER TABLE events RENAME COLUMN b TO a",
            "ALTER TABLE events ADD COLUMN b VARCHAR",
        )
    old = accel.tables.ducklake(lake.catalog, "events", version=before)
    new = accel.tables.ducklake(lake.catalog, "events")
    cache = accel.Cache()
    assert found(old, f"a = '{A}'", cache=cache)[0] == ROWS // VALUES
    assert (found(old, f"a = '{NEITHER}'", cache=cache)[1] == 0) == (kind in EXACT)
    assert found(new, f"a = '{B}'", cache=cache)[0] == ROWS // VALUES
    assert found(new, f"a LIKE '%{B[2:]}'", cache=cache)[0] == ROWS // VALUES
    assert found(new, f"a > '{B}'", cache=cache)[0] == ROWS - ROWS // VALUES * 101
    assert found(new, f"a = '{A}'", cache=cache)[0] == 0
    assert found(new, f"b = '{B}'", cache=cache)[0] == 0
    distinct = accel.distinct(new, "a", cache=cache).to_pylist()
    assert sorted(distinct) == sorted(set(rows()["b"].to_pylist()))
    least = accel.scan(new, cache=cache).aggregate([("a", "min"), ("a", "max")]).to_pydict()
    assert least == {"a_min": ["k0002"], "a_max": ["k0798"]}


def test_field_ids_that_swap_two_indexed_columns(tmp_path: pathlib.Path, kind: str) -> None:
    path = embedded(tmp_path, kind, "a", "b", ids=True)
    writer = IcebergWriter([(2, "a", "string"), (1, "b", "string")])
    writer.manifest([writer.file("data/x.parquet", path.read_bytes(), ROWS)])
    table, cache = accel.tables.iceberg(writer.save()), accel.Cache()
    for name, value, other in (("a", B, A), ("b", A, B)):
        assert found(table, f"{name} = '{value}'", store=writer.store, cache=cache)[0] == ROWS // VALUES
        for absent in (other, NEITHER):
            count, kept = found(table, f"{name} = '{absent}'", store=writer.store, cache=cache)
            assert count == 0
            assert (kept == 0) == (kind in EXACT)


def test_one_file_under_two_names_in_one_cache(tmp_path: pathlib.Path, kind: str) -> None:
    path = str(embedded(tmp_path, kind, "a"))

    class Source(accel.FileSource):
        def __init__(self, mapping: ColumnMapping) -> None:
            self._mapping = mapping

        async def schema(self, request: SourceRequest) -> pa.Schema:
            return pa.schema([("x", pa.string())])

        async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
            yield request.block([path], columns=self._mapping)

    cache = accel.Cache()
    for name, value, other in (("a", A, B), ("b", B, A), ("a", A, B)):
        source = Source(ColumnMapping.by_name({"x": name}))
        assert found(source, f"x = '{value}'", cache=cache)[0] == ROWS // VALUES
        assert found(source, f"x = '{other}'", cache=cache)[0] == 0


def test_a_file_that_was_rewritten_with_the_footer_of_another_passes_its_index_over(
    tmp_path: pathlib.Path, kind: str
) -> None:
    path = embedded(tmp_path, kind, "a")
    footer = {b"accel.indexes": pq.read_metadata(path).metadata[b"accel.indexes"]}
    other = str(tmp_path / "copied" / "rewritten.parquet")
    fewer = rows().slice(0, ROWS - 1).replace_schema_metadata(footer)
    pq.write_table(fewer, other, row_group_size=1000, write_page_index=True)
    scan = accel.scan(other, f"a = '{A}'")
    assert scan.to_table().num_rows == ROWS // VALUES
    assert "made for another file" in "".join(scan.metrics.warnings)


def test_a_footer_in_which_columns_were_renamed_passes_its_index_over(
    tmp_path: pathlib.Path, kind: str
) -> None:
    data = embedded(tmp_path, kind, "a").read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:].replace(b"\x01a", b"\x01?").replace(b"\x01b", b"\x01a").replace(b"\x01?", b"\x01b")
    other = tmp_path / "copied" / "renamed.parquet"
    other.write_bytes(data[:start] + footer)
    assert pq.read_table(other).rename_columns(["a", "b"]).equals(rows())
    scan = accel.scan(str(other), f"a = '{B}'")
    assert scan.to_table().num_rows == ROWS // VALUES
    assert "columns of other names" in "".join(scan.metrics.warnings)
