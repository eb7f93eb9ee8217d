"""Damaged heads and segments of a catalog: the right rows and a warning, or an AccelError; never anything
else."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, write_file

INDEX = "t/_accel"
QUESTIONS = [None, "k = 42", "k >= 995", "k < 0", "s = 'text 7'", "k = 13 OR s IS NULL"]
Damage = Callable[[random.Random, bytes], bytes]


def file(number: int) -> bytes:
    keys = np.arange(100 * number, 100 * number + 20)
    texts = pa.array([f"text {key}" if key % 5 else None for key in keys])
    return write_file(pa.table({"k": keys, "s": texts}), Layout(group_rows=10, page_rows=5))


@pytest.fixture(scope="module")
def inline() -> dict[str, bytes]:
    """A small index: its head holds all of it."""
    store = DictStore({f"t/{number}.parquet": file(number) for number in range(8)})
    accel.build_index("t/", store=store)
    store.put("t/9.parquet", file(9))
    accel.refresh_index(INDEX, store=store)
    return store.objects


@pytest.fixture(scope="module")
def separate() -> dict[str, bytes]:
    """An index in two segments, as large ones are: the head holds the ends of their objects."""
    store = DictStore({f"t/{number}.parquet": file(number) for number in range(6)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 0)
        accel.build_index("t/", store=store)
        for number in range(6, 10):
            store.put(f"t/{number}.parquet", file(number))
        accel.refresh_index(INDEX, store=store)
    assert len(segments(store.objects)) == 4
    return store.objects


def segments(objects: dict[str, bytes]) -> list[str]:
    return sorted(path for path in objects if path.startswith(INDEX) and path.endswith(".parquet"))


def rows(store: DictStore, where: str | None, **given: Any) -> list[tuple[int, str | None]]:
    scan = accel.scan("t/", where, columns=["k", "s"], store=store, **({"cache": None} | given))
    found = [(row["k"], row["s"]) for row in scan.to_table().to_pylist()]
    told.append(scan.metrics)
    return found


told: list[Any] = []


class Expected:
    """The right answers, read without an index."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        store = DictStore(objects)
        self._rows = {where: rows(store, where, index=None) for where in QUESTIONS}

    def check(self, store: DictStore, where: str | None, *, changed: bool = True) -> str:
        """Ask in each way; what is not right must be a refusal. Returns how the plain scan took it."""
        outcome = ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert rows(store, where, index=INDEX) == self._rows[where]
            metrics = told[-1]
            if metrics.indexes_ignored:
                outcome = "passed over"
                assert any(INDEX in text and "not used" in text for text in metrics.warnings)
                assert any("not used" in str(one.message) for one in caught)
            else:
                outcome = "used"
            # The same of one that is found, and where it is cached.
            cache = accel.Cache(max_age=0)
            for _ in range(2):
                assert rows(store, where, cache=cache) == self._rows[where]
            try:
                assert rows(store, where, index=INDEX, listing="index") == self._rows[where]
            except accel.AccelError:
                pass
            try:
                strict = rows(store, where, index=INDEX, options=accel.Options(strict=True))
                assert strict == self._rows[where]
                assert outcome == "used"
            except accel.AccelError:
                assert outcome == "passed over"
        return outcome


@pytest.fixture(scope="module")
def right_inline(inline: dict[str, bytes]) -> Expected:
    return Expected(inline)


@pytest.fixture(scope="module")
def right_separate(separate: dict[str, bytes]) -> Expected:
    return Expected(separate)


def flipped(r: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(r.choice([1, 1, 4])):
        changed[r.randrange(len(data))] ^= r.randrange(1, 256)
    return bytes(changed)


def zeroed(r: random.Random, data: bytes) -> bytes:
    start = r.randrange(len(data))
    end = min(len(data), start + r.choice([1, 16, 4096]))
    return data[:start] + bytes(end - start) + data[end:]


def cut(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def longer(r: random.Random, data: bytes) -> bytes:
    return data + r.randbytes(r.choice([1, 100]))


def shifted(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(1, len(data))
    return data[at:] + data[:at]


def other(r: random.Random, data: bytes) -> bytes:
    return r.choice([b"", b"PAR1", b"ACCELCAT", r.randbytes(len(data)), bytes(len(data))])


DAMAGES: list[Damage] = [flipped, zeroed, cut, longer, shifted, other]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_heads(inline: dict[str, bytes], right_inline: Expected, damage: Damage) -> None:
    r = random.Random(damage.__name__)
    for _ in range(2):
        store = DictStore(inline)
        data = damage(r, inline[f"{INDEX}/head"])
        if data == inline[f"{INDEX}/head"]:
            continue
        store.put(f"{INDEX}/head", data)
        assert right_inline.check(store, r.choice(QUESTIONS)) == "passed over"
        with pytest.raises(accel.AccelError):
            accel.refresh_index(INDEX, store=store)
        with pytest.raises(accel.AccelError):
            accel.build_index("t/", store=store)


def test_a_head_that_is_gone(inline: dict[str, bytes], right_inline: Expected) -> None:
    store = DictStore(inline)
    store.delete(f"{INDEX}/head")
    for where in QUESTIONS:
        with pytest.warns(UserWarning, match="no index"):
            assert rows(store, where, index=INDEX) == rows(store, where, index=None)
    with pytest.raises(accel.ObjectNotFoundError):
        rows(store, None, index=INDEX, options=accel.Options(strict=True))
    assert accel.build_index("t/", store=store).files == 9


@pytest.mark.parametrize("same_etag", [False, True], ids=["another etag", "the same etag"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_segments(
    separate: dict[str, bytes], right_separate: Expected, damage: Damage, same_etag: bool
) -> None:
    """With the same etag it is the disk, or the store, that changed the bytes: no condition tells."""
    r = random.Random(damage.__name__)
    outcomes = set()
    for path in segments(separate):
        store = DictStore(separate)
        etag = store.etags[path]
        store.put(path, damage(r, separate[path]))
        if same_etag:
            store.etags[path] = etag
        outcomes.add(right_separate.check(store, r.choice(QUESTIONS)))
    assert outcomes <= {"passed over", "used"}
    if not same_etag:
        assert "passed over" in outcomes


def test_segments_that_are_gone(separate: dict[str, bytes], right_separate: Expected) -> None:
    for path in segments(separate):
        store = DictStore(separate)
        store.delete(path)
        for where in ("k = 42", None):
            outcome = right_separate.check(store, where)
            assert outcome == "passed over" or ("bounds" in path and where is None)


def test_segments_that_are_swapped(separate: dict[str, bytes], right_separate: Expected) -> None:
    names = segments(separate)
    for path in names:
        for twin in names:
            if path == twin:
                continue
            store = DictStore(separate)
            store.put(path, separate[twin])
            for where in ("k = 42", "k >= 995"):
                outcome = right_separate.check(store, where)
                assert outcome == "passed over"


def test_a_head_of_another_catalog_is_about_no_file(inline: dict[str, bytes]) -> None:
    """Its paths are the same; the versions are not."""
    objects = {f"t/{number}.parquet": file(number + 40) for number in range(8)}
    store = DictStore({**objects, f"{INDEX}/head": inline[f"{INDEX}/head"]})
    for where in QUESTIONS:
        assert rows(store, where, index=INDEX) == rows(store, where, index=None)
        assert told[-2].catalog.total == 0


def test_a_head_that_comes_back_costs_only_time(inline: dict[str, bytes]) -> None:
    """An old head, restored from a backup: what it says counts for the versions of then."""
    store = DictStore({path: data for path, data in inline.items() if "_accel" not in path})
    accel.build_index("t/", store=store)
    old = store.objects[f"{INDEX}/head"]
    for number in (2, 4):
        store.put(f"t/{number}.parquet", file(number + 50))
    store.delete("t/5.parquet")
    accel.refresh_index(INDEX, store=store)
    store.put(f"{INDEX}/head", old)
    for where in QUESTIONS:
        assert rows(store, where, index=INDEX) == rows(store, where, index=None)
    report = accel.refresh_index(INDEX, store=store)
    assert report.files == 8
    for where in QUESTIONS:
        assert rows(store, where, index=INDEX, listing="index") == rows(store, where, index=None)


@pytest.fixture(autouse=True)
def _no_warning_escapes() -> Iterator[None]:
    told.clear()
    yield
