"""A table: a log, manifests or a catalog say which files count, what columns mean and which rows are gone.

Each format gives the same value, a `Snapshot`, and blocks of files in columns. What comes after, pruning,
deleted rows, renamed columns and cached metadata, is one code for all of them, and for sources of the
caller's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from accel.errors import redact
from accel.metrics import TableFacts
from accel.planning.evolution import NO_EVOLUTION, Evolution
from accel.planning.file_entry import FileBlock
from accel.runtime.tasks import ending
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.identity import StorageOptions

__all__ = ["Snapshot", "Table", "TableSource"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One version of a table, before its files."""

    version: int
    """The number of the version, or the id of the snapshot."""
    schema: pa.Schema
    """The columns under their names in that version, partition columns among them."""
    evolution: Evolution = NO_EVOLUTION
    """How the columns of files may differ from it."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What `accel inspect` shows besides: features, partition columns, properties of the table."""


class Table(ABC):
    """A table as the user names it. Each run of a scan gets a source of its own, which stays at one version.

    It pickles, without credentials that were not given to it.
    """

    format: ClassVar[str]
    """"Delta", "Iceberg", "DuckLake" or "Hive"."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the table is, as the user named it."""
        raise NotImplementedError

    @property
    def storage_options(self) -> StorageOptions | None:
        """The storage options of its files, where the scan is given none; None for those of the
        environment."""
        return None

    @property
    def vended_options(self) -> StorageOptions | None:
        """The storage options that a catalog has sent with the table, where neither the scan nor the table is
        given any; they are known once the run has opened it."""
        return None

    @property
    def directory(self) -> str | None:
        """The directory in which the table has its files, and an index of it by default; None where there is
        none."""
        return None

    def with_columns(self, columns: Sequence[str]) -> tuple[Table, str | None]:
        """Return the table as it is read where columns of the result are named, and the name among them that
        gives numbers of rows, as `row_number=` does; None where none does."""
        return self, None

    @abstractmethod
    def source(self) -> TableSource:
        """Return a source that serves one run."""
        raise NotImplementedError

    def __str__(self) -> str:
        return redact(self.location)


class TableSource(FileSource):
    """The files of a table in one version, which is found when the source is first asked.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._snapshot: Snapshot | None = None

    def __str__(self) -> str:
        return str(self.table)

    @abstractmethod
    async def open(self, request: SourceRequest) -> Snapshot:
        """Find the version and return what is known of it. Awaited once."""
        raise NotImplementedError

    @abstractmethod
    def files(self, request: SourceRequest, snapshot: Snapshot) -> AsyncIterator[FileBlock]:
        """Yield the files of the version, in blocks, as `FileSource.blocks` does."""
        raise NotImplementedError

    async def snapshot(self, request: SourceRequest) -> Snapshot:
        """Return the version that the run reads; its number is in the metrics from then on."""
        metrics = request.reader.metrics
        if self._snapshot is None:
            # Requests for the log are counted from here on.
            metrics.table = TableFacts(
                format=self.table.format, location=redact(self.table.location), version=-1
            )
            self._snapshot = await self.open(request)
            metrics.table.version = self._snapshot.version
        return self._snapshot

    async def schema(self, request: SourceRequest) -> pa.Schema:
        """Return the columns of the version."""
        return (await self.snapshot(request)).schema

    @property
    def evolution(self) -> Evolution:
        """How the columns of files may differ from those of the version."""
        return NO_EVOLUTION if self._snapshot is None else self._snapshot.evolution

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files of the version."""
        facts = request.reader.metrics.table
        async with ending(self.files(request, await self.snapshot(request))) as blocks:
            async for block in blocks:
                if facts is not None:
                    facts.files += len(block.files)
                yield block
