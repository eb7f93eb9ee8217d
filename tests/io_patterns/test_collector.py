"""What the garbage collector has to follow of a cached file: it stops every thread, for longer the more there
is."""

from __future__ import annotations

import gc

import accel
from accel.testing import DictStore, Layout, bench_table, write_file

FILES = 400
MOST = 6
"""The handle, its id, its metadata with its chunks; the bounds of the column that was asked for, in their
dictionary."""


def test_a_cached_file_is_few_objects() -> None:
    part = write_file(bench_table(200), Layout())
    cache = accel.Cache()

    def play(directory: str, files: int) -> int:
        store = DictStore({f"{directory}/{number:04}.parquet": part for number in range(files)})
        scan = accel.scan(f"{directory}/", where="key = -1", store=store, cache=cache)
        assert scan.to_table().num_rows == 0
        del scan, store
        gc.collect()
        return len(gc.get_objects())

    before = play("few", 4)
    after = play("many", FILES)
    assert cache.stats().entries >= FILES
    assert (after - before) / FILES <= MOST + 0.25
