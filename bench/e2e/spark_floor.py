"""What Spark itself takes to get rows from Python: a data source whose rows are in memory, and which reads and
plans nothing.

It bounds from below whatever a Python data source can reach in this Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

__all__ = ["FLOOR", "AtHand", "put_at_hand"]

FLOOR = "a Python source, rows in memory"
_BATCH_ROWS = 10_000
"""Spark's own default of the rows of a batch."""


def put_at_hand(folder: Path, tables: Sequence[pa.Table]) -> None:
    """Write each table as what one partition has in memory."""
    folder.mkdir()
    for number, table in enumerate(tables):
        with pa.ipc.new_stream(folder / f"{number}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=_BATCH_ROWS)


class AtHand(DataSource):
    """Arrow streams in the folder that the option `path` names, one a partition."""

    @classmethod
    def name(cls) -> str:
        return "at_hand"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(pa.ipc.open_stream(self._files()[0]).schema)

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self._files())

    def _files(self) -> list[str]:
        return [str(path) for path in sorted(Path(self.options["path"]).iterdir())]


class _Reader(DataSourceReader):
    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source:
            yield from pa.ipc.open_stream(source)
