"""Measured numbers beside their targets, as one table; and functions that are measured in a process of their
own."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "in_new_process", "peak_memory", "print_figures"]

_LIMIT = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number."""

    case: str
    what: str
    value: float
    unit: str
    target: float | None = None
    """None where the number is there to be compared with others."""
    least: bool = False
    """The target is the least that is wanted, not the most."""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target


def print_figures(figures: Sequence[Figure]) -> None:
    """Print a table."""
    rows = [("case", "what", "measured", "target", "")]
    for one in figures:
        bound = "" if one.target is None else f"{'>=' if one.least else '<='} {_text(one.target)} {one.unit}"
        verdict = {True: "met", False: "MISSED", None: ""}[one.met]
        rows.append((one.case, one.what, f"{_text(one.value)} {one.unit}", bound, verdict))
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    for row in rows:
        case, what, *numbers = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(case, what, *(cell.strip().rjust(len(cell)) for cell in numbers), sep="  ", flush=True)


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def peak_memory() -> int:
    """Return the most bytes that were resident in this process; what it inherited does not count."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def in_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in a new process; its arguments and its result are JSON."""
    command = [sys.executable, "-m", __name__, work.__module__, work.__name__, json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def chunks_of(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut a number into half-open ranges of at most `size`."""
    for start in range(0, total, size):
        yield start, min(start + size, total)


if __name__ == "__main__":
    module, name, given = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(given))))
