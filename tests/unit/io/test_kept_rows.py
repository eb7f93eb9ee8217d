"""Rows kept as they were decoded: little, by themselves, and of one version."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from accel.io.kept_rows import KeptRows, RowsKey
from accel.planning.file import ObjectId

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
FILE = ObjectId("f", 10, "e1")


def batch(rows: int = 3, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch({"a": range(rows), "b": [text] * rows}, schema=SCHEMA)


def key(said: str) -> RowsKey:
    return "token", FILE, said.encode()


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
    assert kept.get(("token", ObjectId("f", 10, "e2"), b"one")) is None
    assert kept.get(("token", ObjectId("g", 10, "e1"), b"one")) is None
    assert kept.get(("other", FILE, b"one")) is None
    assert kept.get(("token", ObjectId("f", 10, "e1"), b"one")) == (batch(),)


def test_no_more_is_kept_than_fits() -> None:
    kept = KeptRows(5000)
    for number in range(20):
        kept.keep(key(f"{number}"), [batch()])
        assert kept.get(key(f"{number}")) == (batch(),)
        kept.get(key("0"))
    assert 3000 < kept.nbytes <= 5000
    # What was asked for last stays.
    assert [number for number in range(20) if kept.get(key(f"{number}"))] == [0, 17, 18, 19]
    for most in (600, 0):
        small = KeptRows(most)
        small.keep(key("one"), [])
        assert len(small) == 0


@pytest.mark.parametrize(
    ("batches", "outcome"),
    [
        ([batch(1024)], True),
        ([batch(2), batch(1022)], True),
        ([batch(2), batch(1023)], False),
        ([batch(1, "x" * 65_000)], True),
        ([batch(1, "x" * 66_000)], False),
        # It would hold all that it is a part of.
        ([batch(10_000).slice(3, 1)], False),
    ],
)
def test_neither_much_nor_a_part_of_much(batches: list[pa.RecordBatch], outcome: bool) -> None:
    kept = KeptRows(1 << 20)
    kept.keep(key("one"), batches)
    assert (kept.get(key("one")) is not None) is outcome
    assert (kept.nbytes > 0) is outcome


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
