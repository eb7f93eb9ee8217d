"""A directory as a store at one change of which a machine is lost: the executors there, and in one of them the
Python worker that was about to make the change, or has just made it.

Before it goes, a reader asks for all rows, so that a test can tell what others see at that moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import accel
from tests.support.spark_cluster import executors_of
from tests.support.step_store import ChangeStore

__all__ = ["LosingStore"]


class LosingStore(ChangeStore):
    """The files below `root`. It pickles; it loses executors once.

    Parameters
    ----------
    root : Path
    mark : Path
        Is written at the change: which it was, by which process, and the ids that a reader found.
    change : str
        A regular expression for the change, as "write t/0[.]parquet".
    made : bool
        The change is made before the machine is lost.
    workers : tuple of int
        The process ids of Spark's workers. The driver kills the executors of them all; a Python worker those of
        its own, and itself.
    """

    def __init__(self, root: Path, mark: Path, *, change: str, made: bool, workers: tuple[int, ...]) -> None:
        super().__init__(str(root))
        self._folder = root
        self._mark = mark
        self._pattern = change
        self._made = made
        self._workers = workers

    async def _change(self, what: str, make: Callable[[], Awaitable[None]]) -> None:
        chosen = re.search(self._pattern, what) is not None and self._is_first()
        if not chosen or self._made:
            await make()
        if not chosen:
            return
        where = os.getsid(0)
        ids = await asyncio.to_thread(self._ids)
        in_worker = where in self._workers
        self._mark.write_text(json.dumps({"change": what, "in_worker": in_worker, "ids": ids}))
        for worker in [where] if in_worker else self._workers:
            for pid in executors_of(worker):
                os.kill(pid, signal.SIGKILL)
        if in_worker:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self._made:
            await make()

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _ids(self) -> list[int]:
        table = accel.scan(f"{self._folder}/t/", columns=["id"], cache=None).to_table()
        return sorted(table["id"].to_pylist())
