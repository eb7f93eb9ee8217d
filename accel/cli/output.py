"""The file or pipe that a command writes to."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from accel.cli.arguments import UsageError
from accel.cli.hints import reword
from accel.errors import redact
from accel.store.local_store import write_beside
from accel.store.location import has_scheme

if TYPE_CHECKING:
    from accel.metrics import Metrics

__all__ = ["open_output", "print_json", "say", "say_warnings", "standard_output"]

_MOST_WARNINGS = 5


def standard_output() -> BinaryIO:
    """Standard output, for bytes."""
    sys.stdout.flush()
    return sys.stdout.buffer


def print_json(value: Any) -> None:
    """Print an object in one line: UTF-8, as JSON has to be, whatever the encoding of standard output."""
    line = json.dumps(value, default=str, ensure_ascii=False) + "\n"
    # A name that is no text holds surrogates: JSON has the same escapes for them.
    standard_output().write(line.encode("utf-8", "backslashreplace"))


def say(text: str) -> None:
    """A line for people, on standard error."""
    print(f"accel: {text}", file=sys.stderr)


def say_warnings(metrics: Metrics) -> None:
    """The first few of what went otherwise than it should."""
    for warning in metrics.warnings[:_MOST_WARNINGS]:
        say(f"warning: {reword(warning)}")


@contextlib.contextmanager
def open_output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output for None and "-", else a file that gets its name only when all went well.

    What had the name before stays as it was until then, and for good where the command fails; its mode and owner are
    taken over. A device or a named pipe is written to directly.

    Raises
    ------
    StoreError
        The file cannot be written.
    UsageError
        The name is a URL.
    """
    if name is None or name == "-":
        yield standard_output()
        return
    if has_scheme(name):
        raise UsageError(f"-o writes to this machine: {redact(name)!r} is a URL, not a path")
    target = os.path.realpath(name)
    found = None
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(target)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            with open(target, "wb") as device:
                yield device
            return
    with write_beside(target, like=found) as file:
        yield file
