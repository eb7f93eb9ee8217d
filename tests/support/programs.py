"""Server programs for the tests and the benchmark: found or built, started on a free port of the loopback,
and ended."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

__all__ = ["DirectoryProgram", "Program", "build_with_go", "cached_path", "find_program", "free_port"]

_TRIES = 5
_START_SECONDS = 60.0
_END_SECONDS = 10.0


def cached_path(name: str) -> pathlib.Path:
    """Return the path of an installed program in the cache that all checkouts share, whether it exists or
    not."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "accel-tools" / name


def find_program(name: str, cached: pathlib.Path) -> pathlib.Path | None:
    """Find a program on PATH, else in the cache of tools; None where there is none."""
    on_path = shutil.which(name)
    if on_path:
        return pathlib.Path(on_path)
    return cached if cached.exists() else None


def build_with_go(
    module: str, version: str, *, target: pathlib.Path, takes: str, timeout: float | None = None
) -> pathlib.Path:
    """Build a Go program of a pinned version into the cache of tools; the message says that it `takes` so
    long.

    Raises
    ------
    FileNotFoundError
        There is no Go, the build fails, or it takes more than `timeout` seconds.
    """
    name = module.rpartition("/")[2]
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError(f"no {name} on PATH, and no go to build it with")
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {name} {version} once ({takes}) into {target.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [go, "install", f"{module}@{version}"]
        shown = " ".join(["go", *command[1:]])
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "GOBIN": scratch},
                stdout=sys.stderr,
                check=False,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise FileNotFoundError(f"{shown} takes too long") from None
        if done.returncode:
            raise FileNotFoundError(f"{shown} ended with status {done.returncode}")
        # A rename, so that two builds at once do not see half of each other's file.
        os.replace(pathlib.Path(scratch) / name, target)
    return target


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
        seconds: float = _START_SECONDS,
    ) -> Program:
        """Run the command that `command` returns for a port, and wait until `ready` no longer raises OSError
        for it.

        `environment` is added to this process's own. RuntimeError where the program ends, or does not answer
        within `seconds`, on each of five ports.
        """
        name = ""
        for _ in range(_TRIES):
            port = free_port()
            name, *arguments = command(port)
            quiet = subprocess.DEVNULL
            settings = {**os.environ, **(environment or {})}
            process = subprocess.Popen(
                [name, *arguments], env=settings, stdin=quiet, stdout=quiet, stderr=quiet
            )
            started = cls(process)
            if started._answers(ready, port, seconds):
                return started
            # Another process may have taken the port in between.
            started.end()
        raise RuntimeError(f"{name} did not start")

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Terminate the program, and kill it after ten seconds."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self, ready: Callable[[int], object], port: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                ready(port)
            except OSError:
                time.sleep(0.05)
            else:
                return True
        return False


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DirectoryProgram(ABC):
    """A program with a temporary directory, for the time of a `with`."""

    name: ClassVar[str]
    """Names the directory."""
    start_seconds: ClassVar[float]
    """How long it may take to start."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self.directory = pathlib.Path()
        self.port = 0

    def __enter__(self) -> Self:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"accel-{self.name}-"))
        try:
            self._program = Program.start(self.command, self.ready, seconds=self.start_seconds)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        if self._program is not None:
            self._program.end()
            self._program = None
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """Return the command that starts it on a port."""

    @abstractmethod
    def ready(self, port: int) -> None:
        """Raise OSError until it answers on the port."""
