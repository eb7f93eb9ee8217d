"""What a running scan is doing, on standard error, for as long as that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel.metrics import Metrics
    from accel.scanning.scan import Scan

__all__ = ["byte_count", "show_progress", "summarize"]


@contextlib.contextmanager
def show_progress(scan: Scan, *, shown: bool) -> Iterator[None]:
    """Keep one line with a bar and the scan's counts up to date; it is gone when the scan ends."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(summarize(scan.metrics))

    console = Console(stderr=True)
    columns = (BarColumn(bar_width=20), Counts(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=8) as progress:
        # How much there is to read is known only when the last file was planned: the bar pulses.
        progress.add_task("scan", total=None)
        yield


def summarize(metrics: Metrics, *, started: float | None = None) -> str:
    """The counts of a run in one line."""
    text = (
        f"{metrics.rows_out:,} rows, {metrics.requests:,} requests in {metrics.round_trips} round trips, "
        f"{byte_count(metrics.bytes)}"
    )
    return text if started is None else f"{text}, {time.perf_counter() - started:.2f} s"


def byte_count(number: int) -> str:
    """Bytes as people read them: 512 B, 1.5 KiB, 20 MiB."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    if unit == "B":
        return f"{number} B"
    return f"{size:.1f} {unit}" if size < 10 else f"{size:,.0f} {unit}"
