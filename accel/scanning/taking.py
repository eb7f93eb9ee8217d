"""One run under way, and its batches as its caller takes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from accel.errors import AccelError, ObjectChangedError
from accel.store import io_loop

if TYPE_CHECKING:
    from accel.planning.query import Question
    from accel.scanning.early_run import EarlyRun
    from accel.scanning.run import Run

__all__ = ["AnyRun", "Running", "converted_schema"]

AnyRun: TypeAlias = "Run | EarlyRun"
Convert = Callable[[pa.RecordBatch], pa.RecordBatch]

_PLAN_AGAIN = "plan again, by accel.plan or a new accel.spark.read: a plan is of the versions that it found"


class SchemaSource(Protocol):
    """What knows the schema of a run."""

    async def question(self) -> Question:
        """What is asked, with the schema settled."""
        ...


class Running:
    """One run under way: batches by `take`, then `close`. One that is dropped is stopped, and nobody waits for that.

    Parameters
    ----------
    run : Run or EarlyRun
    session : SchemaSource or None
        None for a plan, whose tasks are fixed.
    schema : pyarrow.Schema or None
        Of the batches, where it is known without the session.
    for_spark : bool
        Whether the batches are for Spark.
    url : str, optional
        The file, where it is the only one.
    """

    def __init__(
        self,
        run: AnyRun,
        session: SchemaSource | None,
        *,
        schema: pa.Schema | None,
        for_spark: bool,
        url: str | None = None,
    ) -> None:
        self._run = run
        self._session = session
        self._schema = schema
        self._for_spark = for_spark
        self._url = url
        self._converter: Convert | None = None
        self._under_way: set[AnyRun] = set()
        self.ended = False

    async def schema(self) -> pa.Schema:
        """The schema of the batches."""
        if self._schema is None and self._session is not None:
            self._schema = (await self._session.question()).output
        schema = self._schema if self._schema is not None else pa.schema([])
        return converted_schema(schema) if self._for_spark else schema

    async def take(self) -> pa.RecordBatch | None:
        """The next batch, or None; whatever is raised, the run has ended then."""
        try:
            batch = await self._run.take()
            if batch is not None and self._for_spark:
                batch = self._converted(batch)
        except BaseException as error:
            if self._session is None and isinstance(error, ObjectChangedError):
                # What the layers below advise, to read it again, would find the same.
                error.hint = _PLAN_AGAIN
            await self.close()
            raise
        if batch is None:
            await self.close()
        return batch

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            if self._converter is None:
                self._converter = _conversion(batch.schema)
            return self._converter(batch)
        except AccelError as error:
            raise error.at(path=self._url)

    def enlist(self, under_way: set[AnyRun]) -> None:
        """Have the run in that set until it has been stopped."""
        under_way.add(self._run)
        self._under_way = under_way

    async def close(self) -> None:
        """Stop; nothing of the run is under way afterwards."""
        self.ended = True
        await _stop(self._run, self._under_way)

    def __del__(self) -> None:
        # By the garbage collector this is called on any thread, which may hold what the I/O loop waits for.
        main = self._run.main
        if main is None or main.done():
            self._under_way.discard(self._run)
        elif not self.ended:
            io_loop.start_to_end(partial(_stop, self._run, self._under_way), main.get_loop())


async def _stop(run: AnyRun, under_way: set[AnyRun]) -> None:
    try:
        await run.close()
    finally:
        under_way.discard(run)


def _conversion(schema: pa.Schema) -> Convert:
    """To what mapInArrow takes."""
    from accel.decode.spark_types import spark_conversion

    return spark_conversion(schema) or (lambda same: same)


def converted_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that mapInArrow takes batches of this one in."""
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return _conversion(schema)(empty).schema
