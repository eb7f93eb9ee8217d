"""A Spark session in a process of its own, which runs functions of a test in it.

A JVM has one SparkContext, and the process of pytest may have a local one already. The functions are called
by name, so they stand at the top level of their module; what they return is pickled.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Self

__all__ = ["DriverError", "SparkDriver"]

_ANSWER_SECONDS = 170.0
_END_SECONDS = 20.0


class DriverError(Exception):
    """What a function raised in the driver: the type's name, the text, and the traceback."""


class SparkDriver:
    """A process with a session, as a context manager; it ends with the process that made it.

    Parameters
    ----------
    config : mapping
        The settings of the session, `spark.master` among them: `SparkCluster.config`.
    environment : mapping, optional
        Added to the environment of the process; `SparkCluster.driver_environment`.
    """

    def __init__(self, config: Mapping[str, str], *, environment: Mapping[str, str] | None = None) -> None:
        # Not forked: the process of the tests has threads, and its obstore does not work in a fork.
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, dict(config), dict(environment or {})), daemon=True
        )
        self._theirs = theirs

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.close()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def pid(self) -> int:
        """The process id of the driver; its JVM is a child of that."""
        return self._process.pid or 0

    def start(self, function: Callable[..., Any], *arguments: object, **named: object) -> None:
        """Call `function(spark, *arguments, **named)` in the driver, without waiting for its result."""
        self._end.send((function, arguments, named))

    def result(self, *, timeout: float = _ANSWER_SECONDS) -> Any:
        """Return what the function that was started first, of those not yet asked for, returned.

        Raises
        ------
        DriverError
            The function raised an error, or the driver is dead.
        TimeoutError
            After `timeout` seconds.
        """
        if not self._end.poll(timeout):
            raise TimeoutError(f"the driver gave no answer in {timeout:.0f} seconds")
        try:
            error, value = self._end.recv()
        except EOFError:
            raise DriverError("the driver is dead") from None
        if error is not None:
            raise DriverError(error)
        return value

    def call(self, function: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """Call `function(spark, *arguments, **named)` in the driver, and return its result; raises as
        `result` does."""
        self.start(function, *arguments, **named)
        return self.result()

    def kill(self) -> None:
        """Kill the driver as a crash would; its JVM ends when it notices."""
        self._process.kill()
        self._process.join()


def _serve(questions: Connection, config: Mapping[str, str], environment: Mapping[str, str]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ.update({**python, **environment})
    warnings.simplefilter("ignore", FutureWarning)  # pyspark's own, about the version of pandas
    from pyspark.sql import SparkSession

    spark = None
    try:
        while True:
            function, arguments, named = questions.recv()
            try:
                if spark is None:
                    spark = SparkSession.builder.config(map=dict(config)).getOrCreate()
                    spark.sparkContext.setLogLevel("OFF")
                questions.send((None, function(spark, *arguments, **named)))
            except Exception as error:  # noqa: BLE001 (whatever it is, the test gets it)
                questions.send((f"{type(error).__name__}: {error}\n{traceback.format_exc()}", None))
    except EOFError:
        if spark is not None:
            spark.stop()


def _end_with_parent() -> None:
    """A call that blocks would not notice that nobody waits for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
