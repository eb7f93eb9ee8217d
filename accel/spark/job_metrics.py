"""The counts of accel in Spark jobs: what planning and tasks requested, read and pruned, added up on the
driver."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pyspark.accumulators import AccumulatorParam

from accel.errors import AccelError
from accel.metrics import Metrics

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

__all__ = ["READS_ALL", "collect_metrics", "counts_of"]

READS_ALL: Final = 'format("accel") read all'
"""How the warning begins of a query whose columns and filters nobody knows."""
_MOST_LOGGED: Final = 100
_LOGGER: Final = logging.getLogger("accel.spark")


class _Collector(AccumulatorParam[Metrics]):
    """Adds up counts: in a worker those of its task, on the driver those of all tasks, for whoever collects
    them."""

    def __init__(self, *, on_driver: bool = False) -> None:
        self.listening: list[Metrics] = []
        self._on_driver = on_driver
        self._logged: set[str] = set()

    def __reduce__(self) -> tuple[Callable[[], _Collector], tuple[()]]:
        return _Collector, ()

    def zero(self, value: Metrics) -> Metrics:
        return Metrics()

    def addInPlace(self, value1: Metrics, value2: Metrics) -> Metrics:
        value1.merge(value2)
        for counts in self.listening:
            counts.merge(value2)
        if self._on_driver and value2.warnings:
            self._log_once(value2.warnings)
        return value1

    def _log_once(self, warnings: Iterable[str]) -> None:
        """Write to the log, once each, what queries read in vain; the rest stays with their counts."""
        for text in warnings:
            if text.startswith(READS_ALL) and text not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(text)
                _LOGGER.warning(text)


_accumulators: WeakKeyDictionary[Any, tuple[Accumulator[Metrics], _Collector]] = WeakKeyDictionary()


def counts_of(spark: SparkSession) -> Accumulator[Metrics] | None:
    """Return where the tasks of a session add their counts; None for Spark Connect, which has no
    accumulators."""
    found = _find(spark)
    return None if found is None else found[0]


def _find(spark: SparkSession) -> tuple[Accumulator[Metrics], _Collector] | None:
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    found = _accumulators.get(context)
    if found is None:
        collector = _Collector(on_driver=True)
        found = _accumulators[context] = context.accumulator(Metrics(), collector), collector
    return found


@contextlib.contextmanager
def collect_metrics(spark: SparkSession) -> Iterator[Metrics]:
    """Yield the counts of the tasks that run within the block; see `accel.spark.metrics`."""
    found = _find(spark)
    if found is None:
        raise AccelError(
            "Spark Connect brings no counts of tasks back to its client",
            hint="run the job in a classic session, or look at scan.metrics of the same question",
        )
    counts, (_, collector) = Metrics(), found
    collector.listening.append(counts)
    try:
        yield counts
    finally:
        # By identity: equal counts may be another block's.
        collector.listening[:] = [other for other in collector.listening if other is not counts]
