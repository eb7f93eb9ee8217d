"""The `accel` command: what is asked for, and what a shell is told about how it went."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from accel.cli.arguments import UsageError, build_parser

__all__ = ["main"]

_FAILED = 1
_USAGE = 2
# What a shell says of a process that a signal ended.
_SIGNALLED = 128
_INTERRUPTED = _SIGNALLED + signal.SIGINT
_PIPE = _SIGNALLED + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        The exit status: 0 done, 1 failed, 2 a question or arguments that make no sense, 130 interrupted,
        141 the reader of the output went away. argparse itself exits with 2 on what it does not understand, and
        SIGTERM and SIGHUP with 143 and 129.
    """
    given = build_parser().parse_args(argv)
    with _ended_by_signals(), _open_streams() as printing:
        return _run(given, printing=printing)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the command as an interrupt does: unfinished files and uploads are removed.

    The status is what a shell says of a process that the signal ended. A second signal ends the process at once. One that
    the process was started to ignore, by `nohup` say, stays ignored.
    """
    numbers = []
    if threading.current_thread() is threading.main_thread():
        named = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
        numbers = [number for number in named if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        sys.exit(_SIGNALLED + number)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _open_streams() -> Iterator[bool]:
    """Standard output and error that can be written to; whether the first is there, or only stood in for.

    A closed one is None, and its number would go to the next file that is opened. What is text for people, and not
    of the output's encoding, is escaped; data is UTF-8 whatever that is.
    """
    printing = sys.stdout is not None
    with contextlib.ExitStack() as stack:
        for closed, redirect in (
            (not printing, contextlib.redirect_stdout),
            (sys.stderr is None, contextlib.redirect_stderr),
        ):
            if closed:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect(nowhere))
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        yield printing


def _run(given: argparse.Namespace, *, printing: bool) -> int:
    try:
        if not printing and _prints(given):
            raise OSError("standard output is closed")
        status = _dispatch(given)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return _PIPE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        failed = _report(error, debug=given.debug)
        if failed is None:
            raise
        return failed
    return status


def _prints(given: argparse.Namespace) -> bool:
    """Whether what is asked for goes to standard output: `embed` has only a report for it."""
    return given.command != "embed" and getattr(given, "output", None) in (None, "-")


def _dispatch(given: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    # Each imports what it needs: `--help` and a usage error wait for nothing.
    if given.command == "inspect":
        from accel.cli.inspect import run_inspect

        run_inspect(given)
        return 0
    if given.command == "embed":
        from accel.cli.embed import run_embed

        run_embed(given)
        return 0
    if given.command == "index":
        from accel.cli.index import run_index

        return run_index(given)
    from accel.cli.scan import run_explain, run_scan

    (run_scan if given.command == "scan" else run_explain)(given)
    return 0


def _report(error: Exception, *, debug: bool) -> int | None:
    """Say on standard error what went wrong; None for what is a fault of accel's own."""
    from accel.cli.arguments import for_command_line
    from accel.errors import AccelError, ColumnNotFoundError, PredicateError

    known = isinstance(error, AccelError | UsageError | OSError | ValueError | MemoryError)
    of_arrow = type(error).__module__.partition(".")[0] == "pyarrow"
    if not known and not of_arrow:
        return None
    if debug:
        import traceback

        traceback.print_exception(error)
    text = for_command_line(error)
    if isinstance(error, OSError) and not isinstance(error, AccelError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    print(f"accel: error: {_printable(text)}", file=sys.stderr)
    if isinstance(error, PredicateError | ColumnNotFoundError | UsageError):
        return _USAGE
    # A plain ValueError is about the arguments; those of accel and of pyarrow are about the data.
    plain = isinstance(error, ValueError) and not isinstance(error, AccelError) and not of_arrow
    return _USAGE if plain else _FAILED


def _printable(text: str) -> str:
    from accel.cli.values import safe_text

    # The caret of a predicate error stands on a line of its own.
    return "\n".join(safe_text(line) for line in text.split("\n"))


def _drop_output() -> None:
    """Have the interpreter's last flush go nowhere, rather than fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
