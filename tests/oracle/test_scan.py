"""scan(file, columns, where) is pyarrow's full read, projected, and filtered row by row."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import accel
from accel.options import Phases
from accel.planning.projection import project_schema
from accel.predicate.sql import to_sql
from accel.testing import DictStore, write_file
from tests.oracle import rowwise
from tests.oracle.cases import Case, cases, plain


def expected_rows(case: Case, full: pa.Table) -> list[int]:
    if case.where is None:
        return list(range(full.num_rows))
    return [row for row, value in enumerate(rowwise.evaluate(case.where, full)) if value is True]


def project(full: pa.Table, columns: list[str] | None) -> pa.Table:
    schema = project_schema(full.schema, columns)

    def prune(values: list[object], kind: pa.DataType, to: pa.DataType) -> list[object]:
        if kind == to:
            return values
        names = [f.name for f in to]
        return [
            v if v is None else {n: prune([v[n]], kind.field(n).type, to.field(n).type)[0] for n in names}  # type: ignore[index]
            for v in values
        ]

    arrays = []
    for field in schema:
        array = full.column(field.name)
        if array.type != field.type:
            array = pa.chunked_array([pa.array(prune(array.to_pylist(), array.type, field.type), field.type)])
        arrays.append(array)
    if not arrays:
        return full.select([])
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.fixture(params=[True, False], ids=["decoded apart", "decoded at once"])
def apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether what the filter does not need is decoded after it, however little it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.decode.piece.LEAST_LATE_BYTES", -1 if request.param else 1 << 60)
        yield


@pytest.mark.usefixtures("apart")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases(), st.sampled_from(list(Phases)))
def test_scan_equals_the_full_read_filtered(case: Case, phases: Phases) -> None:
    data = write_file(case.table, case.layout)
    note(f"where {None if case.where is None else to_sql(case.where)}")
    full = pq.read_table(io.BytesIO(data), page_checksum_verification=True).replace_schema_metadata(None)
    rows = expected_rows(case, full)
    options = accel.Options(
        tail_hint=case.tail_hint,
        piece_bytes=case.piece_bytes,
        batch_rows=case.batch_rows,
        max_gap_bytes=0,
        phases=phases,
    )
    store = DictStore({"f.parquet": data})
    scan = accel.scan(
        "f.parquet", case.where, columns=case.columns, store=store, cache=accel.Cache(), options=options
    )
    found = scan.to_table()
    wanted = project(full, case.columns)
    assert found.schema == wanted.schema
    assert scan.schema == wanted.schema
    assert found.num_rows == len(rows)
    for name in found.schema.names:
        values = wanted.column(name).to_pylist()
        assert plain(found.column(name).to_pylist()) == plain([values[row] for row in rows]), name
    found.validate(full=True)
    assert scan.count_rows() == len(rows)
    assert all(
        0 < batch.num_rows <= max(case.batch_rows, 1) for batch in scan.to_batches() if found.num_columns
    )
    first = scan.head(3)
    assert first.num_rows == min(3, len(rows))
    for name in found.schema.names:
        assert plain(first.column(name).to_pylist()) == plain(found.column(name).slice(0, 3).to_pylist())


@given(cases())
def test_a_plan_travels_and_reads_the_same(case: Case) -> None:
    store = DictStore({"f.parquet": write_file(case.table, case.layout)})
    options = accel.Options(piece_bytes=case.piece_bytes, max_gap_bytes=0)
    scan = accel.scan(
        "f.parquet", case.where, columns=case.columns, store=store, cache=accel.Cache(), options=options
    )
    plan = accel.plan(
        "f.parquet", case.where, columns=case.columns, store=store, cache=accel.Cache(), options=options
    )
    travelled = accel.Plan.from_arrow(plan.to_arrow())
    again = accel.scan(travelled, store=store, cache=None, options=options)
    assert again.schema == scan.schema
    assert plain(again.to_table().to_pylist()) == plain(scan.to_table().to_pylist())
    assert again.count_rows() == scan.count_rows()


def test_examples_are_not_vacuous() -> None:
    """The generator really makes files with several row groups and predicates that keep some rows."""
    from hypothesis import find

    def telling(case: Case) -> bool:
        if case.where is None or case.table.num_rows < 40:
            return False
        matched = len(expected_rows(case, case.table))
        return case.layout.page_index and case.layout.group_rows == 13 and 0 < matched < case.table.num_rows

    case = find(cases(), telling)
    assert case.table.num_rows >= 40
