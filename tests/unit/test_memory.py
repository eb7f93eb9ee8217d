"""Where accel's own allocations go, and who may choose otherwise."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel import memory
from accel.arrays import join_buffers

_HAS_JEMALLOC = "jemalloc" in pa.supported_memory_backends()


@pytest.fixture(autouse=True)
def _chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_choice", memory._Choice())


@pytest.mark.skipif(not _HAS_JEMALLOC, reason="this build of Arrow has none")
def test_the_pool_is_arrows_jemalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    own = memory.pool()
    assert own is not None
    assert own.backend_name == "jemalloc"
    before, default = own.bytes_allocated(), pa.total_allocated_bytes()
    held = join_buffers([bytes(1 << 20)])
    assert own.bytes_allocated() - before >= len(held)
    assert pa.total_allocated_bytes() == default


def test_who_names_an_allocator_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")
    assert memory.pool() is None
    before = pa.total_allocated_bytes()
    held = memory.allocate(1 << 20)
    assert pa.total_allocated_bytes() - before >= len(held)


def test_who_sets_a_pool_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one too, and until it is taken away."""
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    own, before = memory.pool(), pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    try:
        memory.choose_pool()
        assert memory.pool() is None
        held = memory.allocate(1 << 20)
        assert counting.bytes_allocated() >= len(held)
        del held
    finally:
        pa.set_memory_pool(before)
    memory.choose_pool()
    assert (memory.pool() is None) == (own is None)


def test_a_build_without_it_uses_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> pa.MemoryPool:
        raise NotImplementedError

    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    monkeypatch.setattr(pa, "jemalloc_memory_pool", missing)
    assert memory.pool() is None


def test_bytes_in_use_are_not_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = memory.unused_of(1 << 40)
    held = memory.allocate(64 << 20), pa.allocate_buffer(64 << 20)
    assert before - memory.unused_of(1 << 40) >= sum(map(len, held)) - (8 << 20)
