"""What a run says where it ends early: of a plan whose files changed, of values that Spark cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, table, write_file

PLAN_AGAIN = "(plan again, by accel.plan or a new accel.spark.read: a plan names the versions that it found)"
CHANGES: dict[str, tuple[Callable[[DictStore], object], str]] = {
    "replaced": (lambda store: store.put("f", file_of([4, 5, 6])), "f: the object is another version"),
    "deleted": (
        lambda store: store.objects.pop("f"),
        "f: the object has been deleted since its metadata was read",
    ),
}


def file_of(values: list[int], kind: pa.DataType | None = None) -> bytes:
    return write_file(table(x=pa.array(values, kind or pa.int64())), Layout(dictionary=False))


@pytest.mark.parametrize("verb", ["batches", "table", "count"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_of_a_file_that_changed_is_to_be_made_anew(change: str, verb: str) -> None:
    """Reading it again, as is said of a single read, would find the same."""
    store = DictStore({"f": file_of([1, 2, 3])})
    plan = accel.Plan.from_arrow(accel.plan("f", "x > 1", store=store, cache=None).to_arrow())
    apply, told = CHANGES[change]
    apply(store)
    scan = accel.scan(plan, store=store, cache=None)
    with pytest.raises(accel.ObjectChangedError) as caught:
        {"batches": lambda: list(scan), "table": scan.to_table, "count": scan.count_rows}[verb]()
    assert str(caught.value) == f"{told} {PLAN_AGAIN}"


class Vanishing(DictStore):
    """Deletes its object once rows of it have come out."""

    gone = False

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if self.gone:
            self.objects.pop(path, None)
        return await super().read(path, want, if_match=if_match)


def test_a_file_that_is_deleted_while_it_is_read() -> None:
    layout = Layout(group_rows=1_000, dictionary=False, codec="none")
    store = Vanishing({"f": write_file(table(x=pa.array(range(100_000))), layout)})
    options = accel.Options(tail_hint=8, max_tasks_in_flight=1, piece_bytes=8_000, max_gap_bytes=0)
    rows = 0
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        for batch in accel.scan("f", store=store, cache=None, options=options):
            rows += batch.num_rows
            store.gone = True
    assert isinstance(caught.value, accel.ObjectChangedError)
    assert str(caught.value) == (
        "f: the object has been deleted since its metadata was read (list the files anew: scan or plan again)"
    )
    assert 0 < rows < 100_000


def stream(*paths: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"path": list(paths)})])


def test_a_value_that_spark_cannot_take_is_told_with_its_file() -> None:
    millis = pa.timestamp("ms")
    store = DictStore({"f": file_of([1, 1 << 62], millis), "g": file_of([1], millis)})
    plan = accel.plan("f", store=store, cache=None)
    for source in (stream("f"), iter(plan)):
        scan = accel.scan(source, store=store, cache=None)
        with pytest.raises(accel.SchemaMismatchError) as caught:
            list(scan)
        assert (caught.value.path, caught.value.place) == ("f", "column x")
        assert str(caught.value).startswith("f, column x: a value of type timestamp[ms] does not fit Spark's")
    # Which of several it was is not known there.
    with pytest.raises(accel.SchemaMismatchError) as caught:
        list(accel.scan(stream("g", "f"), store=store, cache=None))
    assert (caught.value.path, caught.value.place) == (None, "column x")
