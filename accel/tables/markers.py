"""Empty objects that are listed as files and may be none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from accel.errors import ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.store.range_store import ObjectEntry

__all__ = ["HeadClient", "find_markers"]

_AT_ONCE: Final = 16


class HeadClient(Protocol):
    """What this needs of `store.client.Client`."""

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        """Size and etag of one object."""
        ...


async def find_markers(files: Iterable[FileEntry], client: HeadClient, *, metrics: Metrics) -> set[str]:
    """The paths, of some files that a store listed, which no object has.

    The marker `x.parquet/` is listed as `x.parquet` by obstore, as an empty file of that name is; only the store can
    tell them apart. It is asked for 16 at a time, as long as one of them is a marker: an empty file ends the scan.
    """
    doubtful = [file.path for file in files if file.size == 0]
    found: set[str] = set()
    for start in range(0, len(doubtful), _AT_ONCE):
        async with asyncio.TaskGroup() as group:
            paths = doubtful[start : start + _AT_ONCE]
            asked = {path: group.create_task(_is_missing(path, client, metrics)) for path in paths}
        missing = {path for path, task in asked.items() if task.result()}
        if not missing:
            break
        found |= missing
    return found


async def _is_missing(path: str, client: HeadClient, metrics: Metrics) -> bool:
    try:
        await client.head(path, metrics=metrics)
    except ObjectNotFoundError:
        return True
    except StoreError:
        pass  # it cannot be asked, or does not say: whoever reads the file will be told
    return False
