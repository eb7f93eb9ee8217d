"""Embedded indexes never change an answer: pruned by them, a scan is the full read filtered row by row."""

from __future__ import annotations

import io
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import accel
from accel.format.embedded import parse_toc
from accel.format.footer import parse_footer
from accel.predicate.sql import to_sql
from accel.testing import DictStore, write_file
from tests.oracle import rowwise
from tests.oracle.cases import STRUCT, Case, cases, plain

KINDS = [
    "distinct",
    "bitmap",
    "bloom",
    "ngram",
    "zonemap",
    "sketch",
    ("bitmap", "row range"),
    ("distinct", "file"),
]
OPTIONS = accel.Options(probe_min_bytes=0, max_gap_bytes=0)


def embedded(data: bytes, indexes: dict[str, object], folder: pathlib.Path) -> bytes:
    """The file with indexes put in."""
    source, target = folder / "a.parquet", folder / "b.parquet"
    source.write_bytes(data)
    accel.embed(str(source), str(target), indexes=indexes)
    return target.read_bytes()


@given(cases(), st.data())
def test_answers_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, case: Case, draw: st.DataObject
) -> None:
    assume(case.where is not None and case.table.num_rows > 0)
    data = write_file(case.table, case.layout)
    full = pq.read_table(io.BytesIO(data)).replace_schema_metadata(None)
    indexes: dict[str, object] = {}
    for field in full.schema:
        nested = pa.types.is_nested(field.type) or pa.types.is_null(field.type)
        if not nested:
            indexes[field.name] = draw.draw(st.sampled_from(KINDS), label=field.name)
        elif field.type == STRUCT.type:
            indexes[f"{field.name}.n"] = draw.draw(st.sampled_from(KINDS), label=field.name)
    assume(indexes)
    try:
        changed = embedded(data, indexes, tmp_path_factory.mktemp("e"))
    except (accel.SchemaMismatchError, ValueError) as error:
        # A kind that is not for the type says so.
        note(str(error))
        assume(False)
    note(f"where {to_sql(case.where)}; {indexes}")
    rows = [r for r, value in enumerate(rowwise.evaluate(case.where, full)) if value is True]
    store = DictStore({"f.parquet": changed})
    cache = accel.Cache()
    for _ in range(2):  # the second time from what was met
        scan = accel.scan("f.parquet", case.where, store=store, cache=cache, options=OPTIONS)
        found = scan.to_table()
        for name in found.schema.names:
            values = full.column(name).to_pylist()
            assert plain(found.column(name).to_pylist()) == plain([values[row] for row in rows]), name
        assert scan.metrics.indexes_ignored == 0, scan.metrics.warnings
    assert accel.scan("f.parquet", case.where, store=store, cache=cache, options=OPTIONS).count_rows() == len(
        rows
    )


@given(cases(), st.randoms(use_true_random=False))
def test_damaged_indexes_never_change_an_answer(
    tmp_path_factory: pytest.TempPathFactory, case: Case, random: object
) -> None:
    columns = [
        f.name for f in case.table.schema if not pa.types.is_nested(f.type) and not pa.types.is_null(f.type)
    ]
    assume(case.where is not None and case.table.num_rows > 0 and columns)
    data = write_file(case.table, case.layout)
    changed = bytearray(embedded(data, dict.fromkeys(columns, "distinct"), tmp_path_factory.mktemp("e")))
    start = len(changed) - 8 - int.from_bytes(changed[-8:-4], "little")
    toc = parse_toc(parse_footer(bytes(changed[start:-8]), file_size=len(changed), footer_start=start))
    assert toc is not None
    for entry in toc.entries:
        at = entry.offset + random.randrange(entry.length)  # type: ignore[attr-defined]
        changed[at] ^= 1 << random.randrange(8)  # type: ignore[attr-defined]
    full = pq.read_table(io.BytesIO(data)).replace_schema_metadata(None)
    rows = [r for r, value in enumerate(rowwise.evaluate(case.where, full)) if value is True]
    store = DictStore({"f.parquet": bytes(changed)})
    scan = accel.scan("f.parquet", case.where, store=store, cache=accel.Cache(), options=OPTIONS)
    assert scan.count_rows() == len(rows)


def test_indexes_of_another_file_are_not_used(tmp_path: pathlib.Path) -> None:
    """A footer's table of contents copied into a file of other data: the fingerprint tells."""
    one = pa.Table.from_arrays([pa.array([f"a{i % 7}" for i in range(100)])], names=["c"])
    two = pa.Table.from_arrays([pa.array([f"b{i % 7}" for i in range(99)])], names=["c"])
    first = embedded(write_file(one), {"c": "distinct"}, tmp_path)
    start = len(first) - 8 - int.from_bytes(first[-8:-4], "little")
    toc = parse_footer(first[start:-8], file_size=len(first), footer_start=start).key_value["accel.indexes"]
    other = two.replace_schema_metadata({"accel.indexes": toc})
    store = DictStore({"f.parquet": write_file(other)})
    scan = accel.scan("f.parquet", "c = 'b3'", store=store, cache=accel.Cache(), options=OPTIONS)
    assert scan.count_rows() == 14
    assert scan.metrics.indexes_ignored == 1
    assert "another file" in scan.metrics.warnings[0]
    strict = accel.Options(strict=True)
    with pytest.raises(accel.IndexFormatError, match="another file"):
        accel.scan("f.parquet", "c = 'b3'", store=store, cache=accel.Cache(), options=strict).count_rows()
