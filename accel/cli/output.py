"""The file or pipe that a command writes to."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["open_output", "standard_output"]


def standard_output() -> BinaryIO:
    """Standard output, for bytes."""
    sys.stdout.flush()
    return sys.stdout.buffer


@contextlib.contextmanager
def open_output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output for None and "-", else a file that gets its name only when all went well.

    What had the name before stays as it was until then, and for good where the command fails. A device
    or a named pipe is written to directly.
    """
    if name is None or name == "-":
        yield standard_output()
        return
    target = os.path.realpath(name)
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "is a directory", name)
        if not stat.S_ISREG(mode):
            with open(target, "wb") as device:
                yield device
            return
    directory, base = os.path.split(target)
    beside = os.path.join(directory, f".{base}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        error.filename = name  # and not the hidden one
        raise
    try:
        with open(handle, "wb") as file:
            yield file
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
