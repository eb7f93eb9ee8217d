"""The time that jobs of Spark may take which the driver waits for: they are cancelled when that is up."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from accel.errors import ScanTimeoutError
from accel.runtime.time_limits import check_time, seconds_left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["jobs_in_time"]

_OF_CONTEXT: Final = ("addJobTag", "removeJobTag", "cancelJobsWithTag")
_OF_SESSION: Final = ("addTag", "removeTag", "interruptTag")


@contextlib.contextmanager
def jobs_in_time(spark: SparkSession) -> Iterator[None]:
    """Cancel the jobs of the block when the time of the call is up, as `timeout=` limits it.

    Raises
    ------
    ScanTimeoutError
    """
    left = seconds_left()
    if left is None:
        yield
        return
    check_time()
    context = getattr(spark, "sparkContext", None)
    # A session of Spark Connect has no context.
    names, owner = (_OF_SESSION, spark) if context is None else (_OF_CONTEXT, context)
    add, remove, cancel = (getattr(owner, name) for name in names)
    tag = f"accel-{uuid.uuid4().hex}"
    timer = threading.Timer(left, cancel, (tag,))
    timer.daemon = True
    add(tag)
    timer.start()
    try:
        yield
    except Exception:
        try:
            check_time()
        except ScanTimeoutError as late:
            # The error of Spark says that the job was cancelled.
            raise late from None
        raise
    finally:
        timer.cancel()
        remove(tag)
