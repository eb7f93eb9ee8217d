"""Whether this machine can hold a run: refused before it begins, not in the middle of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.network import Store
from tests.support.object_cache import DEFAULT_CACHE_BYTES

__all__ = ["available_memory", "what_is_short"]

_SYSTEMS = 5 << 30
"""Memory for the systems under test: the hungriest read whole files, and Spark's JVM may grow to 4 GB."""
_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes that can still be had without swapping; None where the system does not say."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return 1024 * int(found["MemAvailable"].split()[0]) if "MemAvailable" in found else None


def what_is_short(
    objects: int,
    store: Store,
    *,
    memory: Callable[[], int | None] = available_memory,
    free_disk: Callable[[], int] = lambda: shutil.disk_usage(tempfile.gettempdir()).free,
) -> str | None:
    """Why objects of so many bytes cannot be measured here, with what to do; None where they can."""
    free, here = free_disk(), memory()
    if objects > free:
        return (
            f"MinIO would need {_gb(objects)} in {tempfile.gettempdir()}, where {_gb(free)} are free: TMPDIR names "
            "another folder; --cases takes fewer objects"
        )
    if (
        store is Store.MEMORY
        and objects > DEFAULT_CACHE_BYTES
        and here is not None
        and objects + _SYSTEMS > here
    ):
        return (
            f"{_gb(objects)} of objects in the memory of the proxy, and {_gb(_SYSTEMS)} for the systems, are more than the "
            f"{_gb(here)} that are free here: --store minio reads them from disk; --cases takes fewer objects"
        )
    return None


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
