"""A directory of small files, for what goes through many of them."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from accel.runtime import io_loop
from accel.testing import Layout, table, write_file

__all__ = ["ROWS", "many_files", "opening_tasks"]

ROWS = 4
"""Of each file."""


def many_files(count: int) -> dict[str, bytes]:
    """Files of four ascending keys each, in two row groups."""
    return {
        f"d/{at:04d}.parquet": write_file(
            table(key=pa.array(range(ROWS * at, ROWS * at + ROWS), pa.int64())), Layout(group_rows=2)
        )
        for at in range(count)
    }


def opening_tasks() -> list[str]:
    """The coroutines by which files are being opened ahead, of all tasks on the I/O loop."""

    async def look() -> list[str]:
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        return [name for name in names if name.startswith(("FooterPrefetcher.", "BatchWorker."))]

    return io_loop.run(look())
