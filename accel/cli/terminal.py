"""Output for people: progress of a running scan, counts and tables."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.cli.values import safe_text, shown_values

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from accel.metrics import Metrics
    from accel.scanning.scan import Scan

__all__ = [
    "GAP",
    "TableSink",
    "byte_count",
    "console_for",
    "count_of",
    "print_table",
    "show_progress",
    "summarize",
    "work_progress",
]


@contextlib.contextmanager
def show_progress(scan: Scan, *, shown: bool) -> Iterator[None]:
    """Show a line with a bar and the counts of a scan until it ends, if standard error is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(summarize(scan.metrics))

    with _progress_of(BarColumn(bar_width=20), Counts(), TimeElapsedColumn()) as progress:
        # The total is known only when the last file has been planned, so the bar pulses.
        progress.add_task("scan", total=None)
        yield


@contextlib.contextmanager
def work_progress(text: str, counts: type[ProgressColumn]) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on standard error while work of a known size is done.

    Parameters
    ----------
    text : str
        What is done at first.
    counts : type
        The column of rich that shows how much is done.

    Yields
    ------
    callable
        Shows what is done of how much, and what is being done.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    shown = (TextColumn("{task.description}"), BarColumn(bar_width=30), counts(), TimeElapsedColumn())
    with _progress_of(*shown) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total, now: bar.update(task, description=now, completed=done, total=max(1, total))


def _progress_of(*columns: ProgressColumn) -> Progress:
    """Lines on standard error that vanish when their work ends."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8)


def summarize(metrics: Metrics, *, started: float | None = None) -> str:
    """Return the counts of a run in one line."""
    text = (
        f"{metrics.rows_out:,} rows, {metrics.requests:,} requests in {metrics.round_trips} round trips, "
        f"{byte_count(metrics.bytes)}"
    )
    return text if started is None else f"{text}, {time.perf_counter() - started:.2f} s"


def count_of(number: int, what: str) -> str:
    """Return a number of things as people read it: "1 file", "2,000 files"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def byte_count(number: int) -> str:
    """Return a number of bytes as people read it: 512 B, 1.5 KiB, 20 MiB."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    if unit == "B":
        return f"{number} B"
    return f"{size:.1f} {unit}" if size < 10 else f"{size:,.0f} {unit}"


_BLOCK_ROWS = 1000
_CELL = 60
_LEAST = 6
GAP = 3
"""Cells between two columns of a table."""


def console_for(stream: Any) -> Console:
    """Return a console that colours and crops on a terminal only, and honours NO_COLOR."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1, `main` with 141.
            raise BrokenPipeError

    # Nothing is cropped on the way into a pipe or a file.
    width = None if stream.isatty() else 100_000
    return Quiet(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


class TableSink:
    """Prints a table block by block, so that a long result shows early and in bounded memory.

    The first block sets the widths of the columns. On a terminal, columns that do not fit are left out and counted, and
    long values are cut.
    """

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        self._console = console_for(stream)
        self._stream = stream
        self._crop = bool(stream.isatty())
        self._schema = schema
        self._pending: list[list[str | None]] = [[] for _ in schema]
        self._rows = 0
        self._widths: list[int] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            part = batch.slice(start, _BLOCK_ROWS)
            for texts, column in zip(self._pending, part.columns, strict=True):
                texts += [None if text is None else self._cut(text) for text in shown_values(column)]
            self._rows += part.num_rows
            if self._rows >= _BLOCK_ROWS:
                self._print()

    def _cut(self, text: str) -> str:
        if self._crop and len(text) > _CELL:
            text = text[: _CELL - 1] + "…"
        return _encodable(text, self._console)

    def _print(self) -> None:
        first = self._widths is None
        names = [_encodable(safe_text(name), self._console) for name in self._schema.names]
        if self._widths is None:
            from rich.cells import cell_len

            self._widths = [
                max([cell_len(name), *(4 if v is None else cell_len(v) for v in column)], default=0)
                for name, column in zip(names, self._pending, strict=True)
            ]
            if self._crop:
                self._widths = _fit(self._widths, self._console.width)
        shown = len(self._widths)
        print_table(
            self._console,
            names[:shown],
            list(zip(*self._pending[:shown], strict=True)),
            numeric=[_is_number(field.type) for field in self._schema][:shown],
            widths=self._widths,
            header=first,
        )
        self._pending = [[] for _ in self._schema]
        self._rows = 0

    def close(self) -> None:
        if self._schema.names and (self._rows or self._widths is None):
            self._print()
        hidden = len(self._schema) - len(self._widths or ())
        if hidden and self._schema.names:
            self._console.print(f"({hidden} more columns do not fit: name some with --columns)", style="dim")
        self._stream.flush()


def print_table(
    console: Console,
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    *,
    numeric: Sequence[bool] | None = None,
    widths: Sequence[int] | None = None,
    header: bool = True,
) -> None:
    """Print a table with numbers aligned to the right and NULL dimmed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=header, show_edge=False, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(
            Text(_encodable(name, console)),
            justify="right" if numeric and numeric[i] else "left",
            no_wrap=True,
            overflow="ellipsis" if _takes_any(console) else "crop",
            width=widths[i] if widths else None,
        )
    null = Text("NULL", style="dim italic")
    for row in rows:
        table.add_row(*(null if text is None else Text(_encodable(text, console)) for text in row))
    console.print(table)


def _encodable(text: str, console: Console) -> str:
    """Return the text with characters that the encoding lacks written out, so that widths are counted right."""
    if text.isascii() or _takes_any(console):
        return text
    return text.replace("…", "...").encode(console.encoding, "backslashreplace").decode(console.encoding)


def _takes_any(console: Console) -> bool:
    return console.encoding.startswith("utf")


def _fit(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths of the columns that fit: long columns are narrowed first, then the last are left out."""
    shown = list(widths)
    while shown and sum(max(min(w, _LEAST), 1) + GAP for w in shown) > room + GAP:
        shown.pop()
    cap = max(shown, default=0)
    while cap > _LEAST and sum(min(w, cap) + GAP for w in shown) > room + GAP:
        cap -= 1
    return [min(w, cap) for w in shown]


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
