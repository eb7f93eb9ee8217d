"""A standalone Spark cluster on the loopback: one master and two workers, from the programs of the pyspark
package.

Each program runs under a guard, a small process that kills it and everything that it started, executors and
their Python workers too, when the process of the tests ends or closes the guard's standard input.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

__all__ = ["QUICK_START", "SparkCluster", "executors_of", "find_java"]

_START_SECONDS = 90.0
_END_SECONDS = 20.0
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROC = pathlib.Path("/proc")
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for minutes and computes little: what it compiles well costs more than it saves."""
_EXECUTOR = "CoarseGrainedExecutorBackend"


def find_java() -> str | None:
    """Find the Java that Spark would take; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def executors_of(worker: int) -> list[int]:
    """Return the process ids of the executors that Spark's worker of this process id has started."""
    return [pid for pid in _session(worker) if _EXECUTOR in _command(pid)]


class SparkCluster:
    """A master and its workers, as a context manager; each worker stands for a machine with one core and 1
    GB.

    Parameters
    ----------
    workers : int, default 2
        How many workers are registered when the cluster has started.
    environment : mapping, optional
        Added to the environment of the workers, and so of their executors and Python workers.

    Raises
    ------
    RuntimeError
        When the programs have not started within 90 seconds; the end of their logs is in the message.
    """

    def __init__(self, *, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.url = ""
        """The master: "spark://127.0.0.1:7077"."""
        self.folder = pathlib.Path()
        """A temporary directory with the logs, the work of the executors, and room for scratch files of a
        driver."""
        self._size = workers
        self._environment = dict(environment or {})
        self._page = ""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._master: _Guarded | None = None
        self._workers: list[_Guarded] = []

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="accel-spark-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self._scratch.name)
        try:
            port, page = _free_ports(2)
            self.url, self._page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}/json/"
            places = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
            self._master = self._start("master", "org.apache.spark.deploy.master.Master", places)
            _wait(lambda: self._state() is not None, "the master answers", self._logs)
            for _ in range(self._size):
                self._start_worker()
            self.wait_for_workers(self._size)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        for program in [*self._workers, self._master]:
            if program is not None:
                program.end()
        if self._scratch is not None:
            self._scratch.cleanup()

    def config(self) -> dict[str, str]:
        """Return the settings of a session on this cluster: executors of one core and half a gigabyte."""
        return {
            "spark.master": self.url,
            "spark.cores.max": str(self._size),
            # Otherwise the first tasks may all run on the worker that is ready first.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": QUICK_START,
            "spark.driver.extraJavaOptions": QUICK_START,
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.local.dir": str(self.folder / "driver"),
        }

    def driver_environment(self) -> dict[str, str]:
        """Return the environment of a program whose Spark session is on this cluster."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        return {**inherited, **_python()}

    def add_worker(self) -> int:
        """Start one more worker, wait until it is registered, and return its number."""
        count = self.alive() + 1
        self._start_worker()
        self.wait_for_workers(count)
        return len(self._workers) - 1

    def alive(self) -> int:
        """Return how many workers the master has for alive."""
        state = self._state() or {"workers": []}
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master has `count` workers for alive; RuntimeError after 90 seconds."""
        _wait(lambda: self.alive() == count, f"{count} workers are registered", self._logs)

    def wait_for_executors(self, count: int) -> None:
        """Wait until `count` executors run; RuntimeError after 90 seconds."""
        _wait(
            lambda: sum(len(self.executors(each)) for each in range(len(self._workers))) == count,
            f"{count} executors run",
            self._logs,
        )

    def worker(self, number: int) -> int:
        """Return the process id of a worker."""
        return self._workers[number].pid

    def executors(self, number: int) -> list[int]:
        """Return the process ids of the executors that a worker has started."""
        return executors_of(self.worker(number))

    def python_workers(self, number: int) -> list[int]:
        """Return the process ids of Spark's Python daemons and workers on a worker."""
        return [pid for pid in _session(self.worker(number)) if "pyspark.daemon" in _command(pid)]

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors and all else that runs there, as a machine that is lost."""
        _kill_session(self.worker(number))

    def kill(self, pid: int) -> None:
        """Kill one process, of which `executors` or `python_workers` have told."""
        _kill(pid)

    def kill_executors(self, number: int) -> int:
        """Kill the executors of a worker, which starts them anew, and return how many they were."""
        found = self.executors(number)
        for pid in found:
            _kill(pid)
        return len(found)

    def _start_worker(self) -> None:
        number = len(self._workers)
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"worker{number}")]
        # Each has an address of its own: Spark runs no second attempt of a task on a machine that has the
        # first.
        host = f"127.0.0.{number + 1}"
        places = ["--host", host, "--port", "0", "--webui-port", "0", self.url]
        main = "org.apache.spark.deploy.worker.Worker"
        self._workers.append(self._start(f"worker{number}", main, [*size, *places]))

    def _start(self, name: str, main: str, arguments: Sequence[str]) -> _Guarded:
        import pyspark

        home = pathlib.Path(pyspark.__file__).parent
        settings = {
            **self.driver_environment(),
            **self._environment,
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / f"{name}-local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "SPARK_LAUNCHER_OPTS": QUICK_START,
        }
        return _Guarded(
            [str(home / "bin" / "spark-class"), main, *arguments], settings, self.folder / f"{name}.log"
        )

    def _state(self) -> dict[str, Any] | None:
        """Return what the master tells of itself; None while it does not answer."""
        try:
            with urllib.request.urlopen(self._page, timeout=10) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except OSError:
            return None

    def _logs(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-2000:]}" for file in files)


class _Guarded:
    """A program in a session of its own, under a guard; `pid` is the program's, and names its session."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: pathlib.Path) -> None:
        with log.open("wb") as errors:
            self._guard = subprocess.Popen(
                [sys.executable, "-S", __file__, *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        if self._guard.stdout is None:
            raise RuntimeError("the guard has no output")
        self.pid = int(self._guard.stdout.readline() or b"-1")
        if self.pid < 0:
            raise RuntimeError(f"{command[0]} did not start: {log.read_text(errors='replace')}")

    def end(self) -> None:
        """End the program and everything that it started."""
        self._guard.communicate(timeout=_END_SECONDS)


def _python() -> dict[str, str]:
    """The environment that makes Python workers run this Python, with this checkout."""
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), inherited])),
    }


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _wait(reached: Callable[[], bool], what: str, logs: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not in {_START_SECONDS:.0f} seconds: {what}\n{logs()}")
        time.sleep(0.1)


def _session(leader: int) -> list[int]:
    """Return the live processes of a session: a program and what it started, whatever groups these have
    made."""
    found = []
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # The name of the program, in brackets, may contain spaces; the session is the fourth field after
            # it.
            state, _, _, session = entry.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(entry.parent.name))
    return found


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _kill_session(leader: int) -> None:
    """Kill a session; again, as a process may have started another one meanwhile."""
    deadline = time.monotonic() + _END_SECONDS / 2
    while (found := _session(leader)) and time.monotonic() < deadline:
        for pid in found:
            _kill(pid)
        time.sleep(0.02)


def _guard(command: Sequence[str]) -> None:
    """Run a command in a session of its own, print its process id, and kill the session when standard input
    ends."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    threading.Thread(target=program.wait, daemon=True).start()
    print(program.pid, flush=True)
    sys.stdin.buffer.read()
    _kill_session(program.pid)


if __name__ == "__main__":
    _guard(sys.argv[1:])
