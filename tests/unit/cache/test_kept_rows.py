"""Rows kept as they were decoded: little, by themselves, and of one version."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from accel.cache.kept_rows import KeptRows, RowsKey
from accel.planning.file import ObjectId

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
FILE = ObjectId("f", 10, "e1")


def batch(rows: int = 3, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch({"a": range(rows), "b": [text] * rows}, schema=SCHEMA)


def key(said: str) -> RowsKey:
    return "token", FILE, (said.encode(), b"schema")


def test_what_is_kept_is_what_comes_back() -> None:
    kept = KeptRows(1 << 20)
    assert kept.get(key("one")) is None
    kept.keep(key("one"), [batch(), batch(2)])
    kept.keep(key("none"), [])
    assert kept.get(key("one")) == (batch(), batch(2))
    assert kept.get(key("none")) == ()
    kept.keep(key("one"), [batch(1)])
    assert kept.get(key("one")) == (batch(1),)
    assert len(kept) == 2
    kept.clear()
    assert (kept.get(key("one")), len(kept), kept.nbytes) == (None, 0, 0)


def test_another_version_and_other_credentials_have_their_own() -> None:
    kept = KeptRows(1 << 20)
    kept.keep(key("one"), [batch()])
    assert kept.get(("token", ObjectId("f", 10, "e2"), (b"one", b"schema"))) is None
    assert kept.get(("token", ObjectId("g", 10, "e1"), (b"one", b"schema"))) is None
    assert kept.get(("other", FILE, (b"one", b"schema"))) is None
    assert kept.get(("token", ObjectId("f", 10, "e1"), (b"one", b"schema"))) == (batch(),)


def test_no_more_is_kept_than_fits() -> None:
    kept = KeptRows(5000)
    for number in range(20):
        kept.keep(key(f"{number}"), [batch()])
        assert kept.get(key(f"{number}")) == (batch(),)
        kept.get(key("0"))
    assert 3000 < kept.nbytes <= 5000
    # What was asked for last stays.
    assert [number for number in range(20) if kept.get(key(f"{number}"))] == [0, 19]
    for most in (600, 0):
        small = KeptRows(most)
        small.keep(key("one"), [])
        assert len(small) == 0


@pytest.mark.parametrize(
    ("batches", "outcome"),
    [
        ([batch(1024)], True),
        ([batch(2), batch(1022)], True),
        ([batch(1)] * 8, True),
        ([batch(1)] * 9, False),
        ([batch(2), batch(1023)], False),
        ([batch(1, "x" * 65_000)], True),
        ([batch(1, "x" * 66_000)], False),
        ([batch(10_000).slice(3, 1)], True),
    ],
)
def test_only_little_is_kept(batches: list[pa.RecordBatch], outcome: bool) -> None:
    kept = KeptRows(1 << 20)
    kept.keep(key("one"), batches)
    assert (kept.get(key("one")) is not None) is outcome
    assert (kept.nbytes > 0) is outcome


def test_what_is_kept_lies_by_itself() -> None:
    page = memoryview(bytes(range(256)) * 4096)
    lying = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(page[800:824])])
    texts = pa.array(["x" * 50, None, "long enough to lie elsewhere"] * 500).slice(600, 3)
    nested = pa.array([[{"a": n, "b": "y"}] for n in range(900)]).slice(7, 3)
    some = pa.record_batch({"a": lying, "b": texts, "c": nested, "d": pa.nulls(3)})
    kept = KeptRows(1 << 20)
    kept.keep(key("one"), [some])
    (own,) = kept.get(key("one")) or ()
    assert own == some
    assert own.schema == some.schema
    own.validate(full=True)
    assert own.get_total_buffer_size() < 400
    for had, has in zip(some.columns, own.columns, strict=True):
        held = {buffer.address for buffer in had.buffers() if buffer is not None}
        assert held.isdisjoint(buffer.address for buffer in has.buffers() if buffer is not None)


def test_views_are_not_kept() -> None:
    kept = KeptRows(1 << 20)
    texts = pa.array(["a text that is no part of its view", None], pa.string_view())
    kept.keep(key("one"), [pa.record_batch({"a": texts})])
    kept.keep(
        key("two"),
        [batch(), pa.record_batch({"a": pa.array([["a text like the other"]], pa.list_(pa.string_view()))})],
    )
    assert len(kept) == 0


def test_rows_without_columns_are_kept() -> None:
    kept = KeptRows(1 << 20)
    rows = pa.RecordBatch.from_struct_array(pa.nulls(3, pa.struct([])))
    kept.keep(key("one"), [rows])
    found = kept.get(key("one"))
    assert found is not None
    assert [one.num_rows for one in found] == [3]


def test_what_cannot_fit_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "concat_arrays", None)
    kept = KeptRows(1 << 20)
    wide = pa.record_batch({f"c{at}": [1] for at in range(4000)})
    for much in ([batch(1)] * 9, [batch(1025)], [batch(1, "x" * 70_000)], [wide]):
        kept.keep(key("one"), much)
    assert len(kept) == 0


def test_batches_and_a_schema_are_counted() -> None:
    empty = pa.RecordBatch.from_struct_array(pa.nulls(1, pa.struct([])))
    kept = KeptRows(1 << 20)
    kept.keep(key("one"), [empty] * 8)
    assert kept.nbytes > 8 * 400
    before = kept.nbytes
    kept.keep(("token", FILE, (b"two", b"s" * 1000)), [batch()])
    assert kept.nbytes - before > 4000


def test_several_threads() -> None:
    """None is given another's rows, and what is held stays within its bounds."""
    kept = KeptRows(20_000)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for at in range(seed, seed + 400):
            number = at * 7 % 23
            found = kept.get(key(f"{number}"))
            if found is not None and found[0].num_rows != number:
                wrong.append(number)
            kept.keep(key(f"{number}"), [batch(number)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert 0 < kept.nbytes <= 20_000
