"""Arrow memory pools that count what a test allocates."""

from __future__ import annotations

import ctypes

import pyarrow as pa

__all__ = ["counting_pool"]


def counting_pool() -> pa.MemoryPool:
    """A pool that counts from zero, over the default one. It never goes: a buffer knows its pool by address alone, and
    what was made of it while a test ran may be kept until the interpreter has ended."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool
