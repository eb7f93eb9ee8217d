"""Where accel's own allocations go, and who may choose otherwise."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from accel import memory
from accel.arrays import join_buffers
from tests.support.arrow import counting_pool

_HAS_JEMALLOC = "jemalloc" in pa.supported_memory_backends()


@pytest.fixture(autouse=True)
def _chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "choice", memory.Choice())


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


_PROBE = """
import mmap, resource, threading
from accel import memory

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def touch(nbytes):
    data, before = memoryview(memory.allocate(nbytes)).cast("B"), faults()
    data[:: mmap.PAGESIZE] = bytes(-(-nbytes // mmap.PAGESIZE))
    return faults() - before

def work(found):
    first = touch(16 << 20)
    found.append((first, touch(16 << 20)))

def begin(found):
    memory.choose_pool()  # as each scan does, on the loop that reads
    work(found)

for target in (begin, work, work, work):
    found = []
    thread = threading.Thread(target=target, args=(found,))
    thread.start()
    thread.join()
    print(*found[0])
"""


@pytest.mark.skipif(not _HAS_JEMALLOC, reason="this build of Arrow has none")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no thread counts its faults")
@pytest.mark.parametrize("fork", [False, True], ids=["", "after a fork"])
def test_large_blocks_are_met_again(fork: bool) -> None:
    """The system gives each page of them once: jemalloc's first arena would give 8 MiB back at once."""
    first = "import os\nfrom accel import memory\nmemory.choose_pool()\nif os.fork(): os._exit(os.wait()[1] >> 8)\n"
    code = (first if fork else "") + _PROBE
    env = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    pages = (16 << 20) // mmap.PAGESIZE
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(lines) == 4
    assert lines[0][0] > pages // 2
    assert all(again < pages // 16 for _, again in lines), lines


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
    counting = counting_pool()
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
