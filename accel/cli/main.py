"""The `accel` command: its entry point, signals, streams and exit status."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from accel.cli.arguments import UsageError
from accel.cli.commands import build_parser
from accel.cli.wording import for_command_line

__all__ = ["main", "run_command"]

_FAILED = 1
_USAGE = 2
# A shell reports a process that a signal ended as 128 plus the number of the signal.
_SIGNALLED = 128
_INTERRUPTED = _SIGNALLED + signal.SIGINT
_PIPE = _SIGNALLED + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        The exit status: 0 done, 1 failed, 2 invalid arguments or an invalid predicate, 3 done
        without the files that `--on-error skip` left out, 130 interrupted, 141 the reader of the output went
        away. argparse exits with 2 itself; SIGTERM and SIGHUP exit with 143 and
        129.
    """
    given = build_parser().parse_args(argv)
    return run_command(given, _dispatch, prints=_prints(given))


def run_command(
    given: argparse.Namespace, dispatch: Callable[[argparse.Namespace], int], *, prints: bool = False
) -> int:
    """Run a command, and return the exit status that `main` describes: errors are printed, and signals end it
    in order.

    Parameters
    ----------
    given : argparse.Namespace
        Its arguments, `debug` among them.
    dispatch : callable
        Runs it, and returns the exit status where it does not fail.
    prints : bool
        Whether there is no sense in it when standard output is closed.
    """
    with _ended_by_signals(), _quiet_log(), _open_streams() as printing:
        return _run(given, dispatch, refused=prints and not printing)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as an interrupt does, which removes unfinished files and
    uploads.

    A second signal ends the process at once. A signal that the process was started to ignore, as by `nohup`,
    stays ignored.
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
def _quiet_log() -> Iterator[None]:
    """Keep the log off standard error, where Python would print it: the command prints the warnings of a
    run."""
    logger, nowhere = logging.getLogger("accel"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


@contextlib.contextmanager
def _open_streams() -> Iterator[bool]:
    """Replace closed standard streams by the null device; yield whether standard output is open.

    The descriptor of a closed stream would go to the next file that is opened. Text that the encoding of the
    output does not have is escaped; data is UTF-8 whatever the encoding.
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


def _run(given: argparse.Namespace, dispatch: Callable[[argparse.Namespace], int], *, refused: bool) -> int:
    try:
        if refused:
            raise OSError("standard output is closed")
        status = dispatch(given)
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
    """Return whether the result goes to standard output; some print only a report."""
    return given.command not in ("embed", "optimize") and getattr(given, "output", None) in (None, "-")


def _dispatch(given: argparse.Namespace) -> int:
    """Run the command in the time that it has, and return the exit status."""
    # The others have a time limit of their own, which tells what they waited for.
    if given.timeout is None or given.command in ("scan", "explain", "distinct"):
        return _run_command(given)
    from accel.runtime.time_limits import time_limit

    about = given.target if given.command == "index" else given.source
    with time_limit(given.timeout, about if isinstance(about, str) else ", ".join(about)):
        return _run_command(given)


def _run_command(given: argparse.Namespace) -> int:
    # Imported here, so that `--help` and a usage error load nothing.
    if given.command == "inspect":
        from accel.cli.inspect import run_inspect

        run_inspect(given)
        return 0
    if given.command == "embed":
        from accel.cli.embed import run_embed

        return run_embed(given)
    if given.command == "optimize":
        from accel.cli.jobs import run_optimize

        return run_optimize(given)
    if given.command == "completions":
        from accel.cli.completions import completions

        print(completions(build_parser(), given.shell), end="")
        return 0
    if given.command == "index":
        from accel.cli.index import run_index

        return run_index(given)
    from accel.cli.scan import run_distinct, run_explain, run_scan

    return {"scan": run_scan, "explain": run_explain, "distinct": run_distinct}[given.command](given)


def _report(error: Exception, *, debug: bool) -> int | None:
    """Print an error and return the exit status; None for an error that is a bug of accel."""
    from accel.errors import AccelError, ColumnNotFoundError, PredicateError

    expected = isinstance(error, AccelError | UsageError | OSError | ValueError | MemoryError)
    of_arrow = type(error).__module__.partition(".")[0] == "pyarrow"
    if not expected and not of_arrow:
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
    # A plain ValueError is about the arguments; an error of accel or pyarrow is about the data.
    plain = isinstance(error, ValueError) and not isinstance(error, AccelError) and not of_arrow
    return _USAGE if plain else _FAILED


def _printable(text: str) -> str:
    from accel.cli.values import safe_text

    # The caret of a predicate error stands on a line of its own.
    return "\n".join(safe_text(line) for line in text.split("\n"))


def _drop_output() -> None:
    """Send the interpreter's last flush to the null device, where it cannot fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
