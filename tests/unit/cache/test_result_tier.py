"""The result tier: which results are stored, found and evicted."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cache.cache_key import CacheKey, Entry
from accel.cache.result_tier import ResultCacheEntry, ResultTier
from accel.planning.pages import Piece
from accel.planning.selection import RowSelection
from accel.ranges import ObjectId
from tests.unit.planning.test_question_keys import Task

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
FILE = ObjectId("f", 10, "e1")


def batch(rows: int = 3, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch({"a": range(rows), "b": [text] * rows}, schema=SCHEMA)


def key(question: str, token: str = "token", file: ObjectId = FILE) -> CacheKey:
    return CacheKey(token, file.path, file, Entry.ROWS, (question.encode(), b"schema"))


def test_what_is_kept_is_what_comes_back() -> None:
    tier = ResultTier(1 << 20)
    assert tier.get(key("one")) is None
    tier.put_rows(key("one"), [batch(), batch(2)])
    tier.put_rows(key("none"), [])
    assert tier.get(key("one")) == (batch(), batch(2))
    assert tier.get(key("none")) == ()
    tier.put_rows(key("one"), [batch(1)])
    assert tier.get(key("one")) == (batch(1),)
    assert len(tier) == 2
    tier.clear()
    assert (tier.get(key("one")), len(tier), tier.nbytes) == (None, 0, 0)


def test_another_version_and_other_credentials_have_their_own() -> None:
    tier = ResultTier(1 << 20)
    tier.put_rows(key("one"), [batch()])
    assert tier.get(key("one", file=ObjectId("f", 10, "e2"))) is None
    assert tier.get(key("one", file=ObjectId("g", 10, "e1"))) is None
    assert tier.get(key("one", token="other")) is None
    assert tier.get(key("one", file=ObjectId("f", 10, "e1"))) == (batch(),)


def test_no_more_is_kept_than_fits() -> None:
    tier = ResultTier(5000)
    for number in range(20):
        tier.put_rows(key(f"{number}"), [batch()])
        assert tier.get(key(f"{number}")) == (batch(),)
        tier.get(key("0"))
    assert 3000 < tier.nbytes <= 5000
    # What was asked for last stays.
    assert [number for number in range(20) if tier.get(key(f"{number}"))] == [0, 19]
    for most in (600, 0):
        small = ResultTier(most)
        small.put_rows(key("one"), [])
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
    tier = ResultTier(1 << 20)
    tier.put_rows(key("one"), batches)
    assert (tier.get(key("one")) is not None) is outcome
    assert (tier.nbytes > 0) is outcome


def test_what_is_kept_lies_by_itself() -> None:
    page = memoryview(bytes(range(256)) * 4096)
    lying = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(page[800:824])])
    texts = pa.array(["x" * 50, None, "long enough to lie elsewhere"] * 500).slice(600, 3)
    nested = pa.array([[{"a": n, "b": "y"}] for n in range(900)]).slice(7, 3)
    some = pa.record_batch({"a": lying, "b": texts, "c": nested, "d": pa.nulls(3)})
    tier = ResultTier(1 << 20)
    tier.put_rows(key("one"), [some])
    (own,) = tier.get(key("one")) or ()
    assert own == some
    assert own.schema == some.schema
    own.validate(full=True)
    assert own.get_total_buffer_size() < 400
    for had, has in zip(some.columns, own.columns, strict=True):
        held = {buffer.address for buffer in had.buffers() if buffer is not None}
        assert held.isdisjoint(buffer.address for buffer in has.buffers() if buffer is not None)


def test_views_are_not_kept() -> None:
    tier = ResultTier(1 << 20)
    texts = pa.array(["a text that is no part of its view", None], pa.string_view())
    tier.put_rows(key("one"), [pa.record_batch({"a": texts})])
    tier.put_rows(
        key("two"),
        [batch(), pa.record_batch({"a": pa.array([["a text like the other"]], pa.list_(pa.string_view()))})],
    )
    assert len(tier) == 0


def test_rows_without_columns_are_kept() -> None:
    tier = ResultTier(1 << 20)
    rows = pa.RecordBatch.from_struct_array(pa.nulls(3, pa.struct([])))
    tier.put_rows(key("one"), [rows])
    found = tier.get(key("one"))
    assert found is not None
    assert [one.num_rows for one in found] == [3]


def test_what_cannot_fit_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "concat_arrays", None)
    tier = ResultTier(1 << 20)
    wide = pa.record_batch({f"c{at}": [1] for at in range(4000)})
    for much in ([batch(1)] * 9, [batch(1025)], [batch(1, "x" * 70_000)], [wide]):
        tier.put_rows(key("one"), much)
    assert len(tier) == 0


def test_batches_and_a_schema_are_counted() -> None:
    empty = pa.RecordBatch.from_struct_array(pa.nulls(1, pa.struct([])))
    tier = ResultTier(1 << 20)
    tier.put_rows(key("one"), [empty] * 8)
    assert tier.nbytes > 8 * 400
    before = tier.nbytes
    tier.put_rows(CacheKey("token", "f", FILE, Entry.ROWS, (b"two", b"s" * 1000)), [batch()])
    assert tier.nbytes - before > 4000


def test_several_threads() -> None:
    """None is given another's rows, and what is held stays within its bounds."""
    tier = ResultTier(20_000)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for at in range(seed, seed + 400):
            number = at * 7 % 23
            found = tier.get(key(f"{number}"))
            if found is not None and found[0].num_rows != number:
                wrong.append(number)
            tier.put_rows(key(f"{number}"), [batch(number)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert 0 < tier.nbytes <= 20_000


def test_what_is_forgotten_is_of_one_version() -> None:
    tier, other = ResultTier(1 << 20), ObjectId("f", 10, "e2")
    for file in (FILE, other):
        tier.put_rows(key("one", file=file), [batch()])
    tier.forget("token", FILE)
    assert tier.get(key("one")) is None
    assert tier.get(key("one", file=other)) is not None
    assert len(tier) == 1


def test_a_question_was_asked_once_it_was_asked() -> None:
    tier = ResultTier(1 << 20)
    assert [tier.is_repeated(7), tier.is_repeated(7), tier.is_repeated(8), tier.is_repeated(7)] == [
        False,
        True,
        False,
        True,
    ]
    tier.clear()
    assert not tier.is_repeated(7)
    # The oldest of thousands are forgotten.
    assert not any(tier.is_repeated(question) for question in range(10, 5000))
    assert tier.is_repeated(4999)
    assert not tier.is_repeated(10)


ROWS = 10
ALL, NONE = RowSelection.all(ROWS), RowSelection.none()
FOUND = [pa.record_batch({"a": [3], "b": ["x"]})]


class Handle:
    """Of a `FileHandle` what is looked at."""

    distrusted = False


def entry(
    cache: accel.Cache, *, where: str = "i = 1", token: str = "t", handle: Any = None, **changed: Any
) -> ResultCacheEntry:
    task: Any = Task(0, where=where)
    task.id, task.num_rows, task.rows, task.certain = ObjectId("f", 100, "e1"), ROWS, ALL, NONE
    for name, value in changed.items():
        setattr(task, name, value)
    return ResultCacheEntry(task, cache.result_tier, token=token, handle=handle or Handle(), batch_rows=100)


def piece(start: int = 0, stop: int = ROWS) -> Piece:
    return Piece(ALL.within(start, stop), NONE, (), start, stop)


def ask(one: ResultCacheEntry) -> Any:
    """What is kept, or is now, if it may be."""
    kept = one.get_piece(piece())
    if kept is None:
        one.put(piece(), FOUND)
    return kept if kept is None else list(kept)


def test_from_the_third_time_on() -> None:
    cache = accel.Cache()
    assert [ask(entry(cache)) for _ in range(4)] == [None, None, FOUND, FOUND]
    cache.clear()
    assert [ask(entry(cache)) for _ in range(3)] == [None, None, FOUND]


def test_it_is_looked_for_once() -> None:
    cache = accel.Cache()
    one = entry(cache)
    assert [one.get() for _ in range(3)] == [None] * 3
    assert ask(entry(cache)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"where": "i = 2"},
        {"token": "u"},
        {"id": ObjectId("f", 100, "e2")},
        {"id": ObjectId("g", 100, "e1")},
        {"row_group": 1},
        {"rows": ALL.within(0, 9)},
        {"certain": ALL.within(0, 1)},
    ],
    ids=["predicate", "credentials", "version", "file", "row group", "rows", "certain"],
)
def test_by_nobody_else(changed: dict[str, Any]) -> None:
    cache = accel.Cache()
    for _ in range(3):
        ask(entry(cache))
    assert ask(entry(cache, **changed)) is None
    assert ask(entry(cache)) == FOUND


def test_a_part_is_neither_kept_nor_found() -> None:
    cache = accel.Cache()
    for _ in range(3):
        one = entry(cache)
        assert one.get_piece(piece(0, 5)) is None
        one.put(piece(0, 5), FOUND)
        one.put(piece(5, ROWS), FOUND)
    assert entry(cache).get() is None
    one = entry(cache)
    assert one.get() is None
    one.put(piece(), FOUND)
    assert entry(cache).get() is not None
    assert entry(cache).get_piece(piece(0, 5)) is None


def test_not_where_an_index_lies() -> None:
    liar = Handle()
    liar.distrusted = True
    cache = accel.Cache()
    for _ in range(3):
        ask(entry(cache))
    assert entry(cache, handle=liar).get() is None
