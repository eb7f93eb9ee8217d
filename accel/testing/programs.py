"""Server programs that tests need: kept in a cache, started on a free port of loopback, waited for, and ended."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Program", "cached"]

_TRIES = 5
_START_SECONDS = 60.0
_END_SECONDS = 10.0


def cached(name: str) -> pathlib.Path:
    """Where an installed program is, or is to be, in the cache that all checkouts share."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "accel-tools" / name


class Program:
    """A running server program; `start` makes one.

    Parameters
    ----------
    process : Popen
        Its process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(
        cls,
        command: Callable[[int], Sequence[str]],
        ready: Callable[[int], object],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Run what `command` says for a port, until `ready` no longer raises OSError for it.

        `environment` is set beside this process's own. RuntimeError where the program ends, or does not answer
        within a minute, on each of five ports.
        """
        name = ""
        for _ in range(_TRIES):
            port = _free_port()
            name, *arguments = command(port)
            quiet = subprocess.DEVNULL
            settings = {**os.environ, **(environment or {})}
            process = subprocess.Popen(
                [name, *arguments], env=settings, stdin=quiet, stdout=quiet, stderr=quiet
            )
            started = cls(process)
            if started._answers(ready, port):
                return started
            # Another process may have taken the port in between.
            started.end()
        raise RuntimeError(f"{name} did not start")

    def end(self) -> None:
        """End it, with force after ten seconds."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self, ready: Callable[[int], object], port: int) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                ready(port)
            except OSError:
                time.sleep(0.05)
            else:
                return True
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
