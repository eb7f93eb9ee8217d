"""The parent's side of a system in a process of its own: the same verbs, with time limits and a clean end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Self

from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Measured, PeerError, Unsupported
from bench.queries import Query, to_json

__all__ = ["LIMIT", "Child"]

LIMIT = 300.0
"""Seconds that one call may take before its process is killed."""
_GRACE = 10.0
_TAIL = 2000


class Child:
    """One system, as a context manager or by `open` and `close`.

    Parameters
    ----------
    name : str
        Of the registry.
    limit : float
        Seconds that one call may take.
    command : sequence of str, optional
        What to start instead of the worker.

    Notes
    -----
    After a `PeerError` by a time limit or a death, `open` starts a new process.
    """

    def __init__(self, name: str, *, limit: float = LIMIT, command: Sequence[str] | None = None) -> None:
        self.name = name
        self.limit = limit
        self._command = list(command or (sys.executable, "-m", "bench.peers.worker", name))
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the verbs -------------------------------------------------------------------------------

    def open(self, endpoint: Endpoint) -> Measured:
        """Start the process if none runs, import and connect. `seconds` is what importing and connecting
        took.

        Raises
        ------
        Unsupported, PeerError
            As every verb: the system cannot do this; it failed, took too long or died.
        """
        if self._process is None:
            self._start()
        return self._ask({"open": dataclasses.asdict(endpoint)})

    def run(self, query: Query) -> Measured:
        """Answer one query."""
        return self._ask({"run": to_json(query)})

    def forget(self) -> Measured:
        """Drop what is cached and open, as in a new process."""
        return self._ask({"forget": True})

    def concurrently(self, queries: Sequence[Query]) -> Measured:
        """Answer many queries at once; `each` has the rows of each."""
        return self._ask({"concurrently": [to_json(query) for query in queries]})

    def close(self) -> int | None:
        """End the process: by the end of its input, else by force. Its exit status; None when none ran."""
        process = self._process
        if process is None:
            return None
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        return self._end()

    # -- how ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._pending = b""
        # To be appended to: both ends share one position.
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by _end
        # A session of its own: whatever the system starts can be counted, and ended, with it.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    def _ask(self, request: dict[str, Any]) -> Measured:
        process = self._process
        if process is None or process.stdin is None:
            raise PeerError(f"{self.name} is not open")
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._died() from None
        reply = json.loads(self._read_line(process))
        if "unsupported" in reply:
            raise Unsupported(f"{self.name}: {reply['unsupported']}")
        if "error" in reply:
            raise PeerError(f"{self.name}: {reply['error']}")
        return Measured(**{**reply, "each": tuple(reply["each"])})

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        deadline = time.monotonic() + self.limit
        if process.stdout is None:
            raise PeerError(f"{self.name} has no output")
        while b"\n" not in self._pending:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._end()
                raise PeerError(f"{self.name} took longer than {self.limit:g} s")
            received = os.read(process.stdout.fileno(), 1 << 16)
            if not received:
                raise self._died()
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> PeerError:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        printed = self._printed()
        return PeerError(f"the process of {self.name} ended with status {self._end()}: {printed}")

    def _printed(self) -> str:
        """The end of what it wrote to standard error."""
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        return self._log.read().decode(errors="replace").strip()

    def _end(self) -> int | None:
        """Leave no process of the session behind."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        for pipe in (process.stdin, process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status
