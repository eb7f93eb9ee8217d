"""Whether a machine can hold a run."""

import pytest

from bench.network import Store
from bench.room import available_memory, what_is_short

GB = 10**9


@pytest.mark.parametrize(
    ("objects", "store", "memory", "disk", "said"),
    [
        pytest.param(1 * GB, Store.MEMORY, 4 * GB, 26 * GB, None, id="scale 1 on a small machine"),
        pytest.param(8 * GB, Store.MEMORY, 20 * GB, 26 * GB, None, id="scale 10 on a large one"),
        pytest.param(8 * GB, Store.MEMORY, 12 * GB, 26 * GB, "--store minio", id="too little memory"),
        pytest.param(8 * GB, Store.MINIO, 12 * GB, 26 * GB, None, id="from disk"),
        pytest.param(8 * GB, Store.MINIO, 12 * GB, 7 * GB, "TMPDIR", id="too little disk"),
        pytest.param(8 * GB, Store.MEMORY, None, 26 * GB, None, id="a system that does not say"),
    ],
)
def test_what_is_short(objects: int, store: Store, memory: int | None, disk: int, said: str | None) -> None:
    short = what_is_short(objects, store, memory=lambda: memory, free_disk=lambda: disk)
    assert short is None if said is None else said in (short or "")


def test_this_machine_has_some_memory() -> None:
    found = available_memory()
    assert found is None or found > 1 << 20
