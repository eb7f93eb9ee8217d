"""Output for people: progress of a running scan, counts and tables."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from accel.arrays import zone_of
from accel.cli.values import is_number, safe_text, shown_values
from accel.pictures.document import byte_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from accel.metrics import Metrics
    from accel.scanning.scan import Scan

__all__ = [
    "GAP",
    "TableSink",
    "Waiting",
    "console_for",
    "count_of",
    "cut_names",
    "print_table",
    "short_type",
    "show_progress",
    "summarize",
    "work_progress",
]

_SILENT_SECONDS: Final = 2.0
"""Seconds without a byte after which a command says whom it waits for."""


class Waiting:
    """Says on standard error, if that is a terminal, whom a command waits for when nothing has come for two
    seconds.

    Parameters
    ----------
    whom : str
        The server or directory.
    came : callable
        Returns the bytes that have come so far.
    """

    def __init__(self, whom: str, came: Callable[[], int] = int) -> None:
        self._text = f"waiting for {safe_text(whom)}"
        self._came = came
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer = threading.Timer(_SILENT_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Take the line away: what was waited for has come."""
        with self._lock:
            timer, self._timer = self._timer, None
            shown, self._shown = self._shown, None
        if timer is not None:
            timer.cancel()
        if shown is not None:
            shown.stop()

    def _show(self) -> None:
        from rich.progress import TextColumn, TimeElapsedColumn

        with self._lock:
            if self._timer is None or self._came():
                return
            self._shown = _progress_of(TextColumn("accel: {task.description}"), TimeElapsedColumn())
            self._shown.add_task(self._text, total=None)
            self._shown.start()


@contextlib.contextmanager
def show_progress(scan: Scan, *, whom: str, shown: bool) -> Iterator[None]:
    """Show a line with a bar and the counts of a scan until it ends, if standard error is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            if not scan.metrics.bytes and (task.elapsed or 0.0) >= _SILENT_SECONDS:
                return Text(f"waiting for {safe_text(whom)}")
            return Text(summarize(scan.metrics))

    with _progress_of(BarColumn(bar_width=20), Counts(), TimeElapsedColumn()) as progress:
        # The total is known only when the last file has been planned, so the bar pulses.
        progress.add_task("scan", total=None)
        yield


@contextlib.contextmanager
def work_progress(
    text: str, *, stages: Mapping[str, str] | None = None, in_bytes: bool = False
) -> Iterator[Callable[[Any], None] | None]:
    """Show a bar on standard error, if that is a terminal, while work of a known size is done.

    Parameters
    ----------
    text : str
        What is done at first.
    stages : mapping, optional
        What is done in each stage, where texts differ from the names of the stages.
    in_bytes : bool
        Whether bytes are counted.

    Yields
    ------
    callable or None
        Takes how far the work is: the argument `progress` of a verb.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    counts = DownloadColumn() if in_bytes else MofNCompleteColumn()
    shown = (TextColumn("{task.description}"), BarColumn(bar_width=30), counts, TimeElapsedColumn())
    with _progress_of(*shown) as bar:
        task = bar.add_task(text, total=None)

        def show(now: Any) -> None:
            stage = (stages or {}).get(now.stage, now.stage)
            bar.update(task, description=stage, completed=now.done, total=max(1, now.total))

        yield show


def _progress_of(*columns: ProgressColumn) -> Progress:
    """Return a display of lines on standard error that vanish when their work ends."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8)


def summarize(metrics: Metrics, *, started: float | None = None, rows: bool = True) -> str:
    """Return the counts of a run in one line; without those of rows where none come out of it."""
    trips = count_of(metrics.round_trips, "round trip")
    text = f"{count_of(metrics.requests, 'request')} in {trips}, {byte_count(metrics.bytes)}"
    if rows:
        text = f"{count_of(metrics.rows_out, 'row')}, {text}"
    return text if started is None else f"{text}, {time.perf_counter() - started:.2f} s"


def count_of(number: int, what: str) -> str:
    """Return a number of things as people read it: "1 file", "2,000 files"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


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

    The first block sets the widths of the columns. On a terminal, columns that do not fit are left out and
    counted, and long values are cut.
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
        types = [short_type(field.type) for field in self._schema]
        if self._widths is None:
            from rich.cells import cell_len

            self._widths = [
                max(
                    [cell_len(name), len(kind), *(4 if v is None else cell_len(v) for v in column)], default=0
                )
                for name, kind, column in zip(names, types, self._pending, strict=True)
            ]
            if self._crop:
                self._widths = _fit(self._widths, self._console.width)
        shown = len(self._widths)
        print_table(
            self._console,
            names[:shown],
            list(zip(*self._pending[:shown], strict=True)),
            numeric=[is_number(field.type) for field in self._schema][:shown],
            widths=self._widths,
            types=types[:shown],
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
    types: Sequence[str] | None = None,
    header: bool = True,
) -> None:
    """Print a table with numbers aligned to the right and NULL dimmed; `types` are a second line of the
    heading."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=header, show_edge=False, pad_edge=False)
    shown = [_encodable(name, console) for name in names]
    if widths is not None:
        shown = cut_names(shown, widths, mark="…" if _takes_any(console) else "")
    for i, name in enumerate(shown):
        heading = Text(name)
        if types is not None:
            heading.append(f"\n{types[i]}", style="dim not bold")
        table.add_column(
            heading,
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
    """Return the text with characters that the encoding lacks written out, so that widths are counted
    right."""
    if text.isascii() or _takes_any(console):
        return text
    return text.replace("…", "...").encode(console.encoding, "backslashreplace").decode(console.encoding)


def _takes_any(console: Console) -> bool:
    return console.encoding.startswith("utf")


def _fit(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths of the columns that fit: long columns are narrowed first, then the last are left
    out."""
    shown = list(widths)
    while shown and sum(max(min(w, _LEAST), 1) + GAP for w in shown) > room + GAP:
        shown.pop()
    cap = max(shown, default=0)
    while cap > _LEAST and sum(min(w, cap) + GAP for w in shown) > room + GAP:
        cap -= 1
    return [min(w, cap) for w in shown]


def cut_names(names: Sequence[str], widths: Sequence[int], *, mark: str) -> list[str]:
    """Return headings that fit and differ, as far as the names do: those whose beginnings are the same are
    cut in the middle, or at their beginning, and the last resort is their number."""
    cut = [len(name) > width for name, width in zip(names, widths, strict=True)]
    fitting = ["" if long else name for name, long in zip(names, cut, strict=True)]
    taken = set(fitting)
    for at, (name, width) in enumerate(zip(names, widths, strict=True)):
        if not cut[at]:
            continue
        room = max(1, width - len(mark))
        start = room - room // 2
        ways = (
            name[:room] + mark,
            name[:start] + mark + name[len(name) - room + start :],
            mark + name[len(name) - room :],
            f"{name[: max(0, width - len(str(at + 1)) - 1)]}#{at + 1}",
        )
        alike = sum(other[:room] == name[:room] for other in names) > 1
        fitting[at] = next((way for way in ways[1 if alike else 0 :] if way not in taken), ways[-1])
        taken.add(fitting[at])
    return fitting


def short_type(kind: pa.DataType) -> str:
    """Return the name of a type in a few letters: of a nested one, which kind of nest it is."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return str(kind.extension_name).rpartition(".")[2]
    if types.is_dictionary(kind):
        return short_type(kind.value_type)
    if types.is_struct(kind) or types.is_map(kind):
        return "struct" if types.is_struct(kind) else "map"
    if types.is_nested(kind):
        return "list"
    if types.is_timestamp(kind):
        zone = zone_of(kind)
        return f"timestamp[{kind.unit}]" if zone is None else f"timestamp[{kind.unit}, {zone}]"
    if types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return str(kind).removeprefix("large_").partition("[")[0]
