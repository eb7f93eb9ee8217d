"""`readStream.format("accel")`: every file of a growing directory once.

An offset is the set of files that have been read (`stream_offsets`). So it needs no clock, no order of names
and no state of its own: a restarted query has it from its checkpoint, and the files of a batch are those of
its end without those of its start.

`optimize` replaces files by others with the same rows. Its records say which: a new file whose rows have all
been read counts as read, and one of which some rows have been read and others have not cannot be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from accel.api import plan, scan
from accel.errors import AccelError, ObjectNotFoundError, redact
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.runtime import io_loop
from accel.scanning.spec import OnError
from accel.spark.credentials import with_credentials
from accel.spark.executing import one_line_errors
from accel.spark.file_names import name_matcher
from accel.spark.partition_reading import check_columns, make_partitions, read_partition
from accel.spark.read_records import name_of_source
from accel.spark.source_options import SourceOptions
from accel.spark.stream_lineage import Lineage, Share, SharesOf
from accel.spark.stream_offsets import FileNames, Offset, SeenFiles
from accel.store.clients import Connector
from accel.tables.replacements import Replacements

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = ["AccelStreamReader"]

_START_AGAIN = "start the query again: it goes on from its checkpoint, with the files as they are then"


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files that are there."""

    files: Mapping[int, FileEntry]
    """By the hashes of their canonical URLs, in the order of the listing."""
    spellings: Mapping[int, Sequence[int]]
    """The hashes that an earlier version gave them; none where no offset has any of these."""
    partition_schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Found:
    """The files that an offset does not hold."""

    fresh: Sequence[int]
    """Those to read."""
    carried: Sequence[int]
    """Those whose rows have been read, from the files that they replace."""


class AccelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lists the files on the driver, plans the new ones of a batch, and reads them on the executors.

    Parameters
    ----------
    settings : SourceOptions
    schema : StructType
        The columns that Spark expects.
    columns : pyarrow.Schema
        The same in Arrow's types.
    parallelism : int
    counts : Accumulator or None
    """

    def __init__(
        self,
        settings: SourceOptions,
        schema: StructType,
        columns: pa.Schema,
        *,
        parallelism: int,
        counts: Accumulator[Metrics] | None,
    ) -> None:
        if settings.limit is not None:
            raise ValueError("a stream has no limit: leave the option limit out")
        if settings.modified_after is not None or settings.modified_before is not None:
            raise ValueError(
                "a stream reads each file once, whatever its time, as Spark's own does: leave modifiedAfter "
                "and modifiedBefore out"
            )
        if settings.merge_schema:
            raise ValueError(
                "a stream does not know the files to come: leave mergeSchema out, and give .schema(…)"
            )
        self._settings = settings
        self._schema = schema
        self._columns = columns
        self._parallelism = parallelism
        self._counts = counts
        self._target: frozenset[int] | None = None
        """The files that a query with `availableNow` is to read."""
        self._followed: Lineage | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors need neither; and a lineage holds clients.
        return self.__dict__ | {"_followed": None, "_target": None}

    # -- on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return the offset before the first file."""
        return SeenFiles().encode()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the option `maxFilesPerTrigger` says."""
        most = self._settings.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the files that are there now: a query with `availableNow` ends with them."""
        with one_line_errors():
            self._target = frozenset(io_loop.run(self._list(spelled=False)).files)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset after the next batch; `start` itself where there is no new file."""
        with one_line_errors():
            seen = SeenFiles.decode(start)
            listing, found = io_loop.run(self._find(seen))
            fresh = [each for each in found.fresh if self._target is None or each in self._target]
            fresh = self._of_one_batch([(name, listing.files[name]) for name in fresh], limit)
            if not fresh:
                return start
            after = seen.after(
                {name: listing.spellings.get(name, ()) for name in listing.files},
                read=fresh,
                carried=found.carried,
                scope=self._lineage.names.scope(self._settings.source, listing=self._settings.listing),
            )
            return after.encode()

    def _of_one_batch(self, fresh: list[tuple[int, FileEntry]], limit: ReadLimit) -> list[int]:
        """Return the names of the files of the next batch: in their order, or the latest first."""
        settings = self._settings
        if settings.latest_first:
            unknown = next((file for _, file in fresh if file.modified is None), None)
            if unknown is not None:
                raise ValueError(
                    f"latestFirst needs the times of files, and none is known of {redact(unknown.url)}"
                )
            fresh = sorted(fresh, key=lambda each: -(each[1].modified or 0.0))
        most = getattr(limit, "max_files", None)
        fresh = fresh if most is None else fresh[:most]
        if settings.max_bytes is not None:
            ends = list(accumulate(file.size or 0 for _, file in fresh))
            fresh = fresh[: max(1, bisect_right(ends, settings.max_bytes))]
        return [name for name, _ in fresh]

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the files of one batch."""
        with one_line_errors():
            wanted = SeenFiles.decode(end).without(SeenFiles.decode(start))
            if not wanted:
                return []
            settings = self._settings
            listing, files = io_loop.run(self._files_of(wanted))
            if not files:
                return []
            keywords = with_credentials(settings.planning(), settings.credentials)
            keywords |= {
                "index": None,
                "listing": "store",
                "glob": False,
                "on_error": settings.on_error.value,
            }
            keys = listing.partition_schema
            keywords["partitioning"] = keys if len(keys) else None
            keywords["schema"] = settings.of_files(self._columns)
            planned = plan(
                [file.url for file in files], settings.where, columns=self._schema.names, **keywords
            )
            check_columns(planned.schema, self._schema, settings, "their types do not widen to those")
            return make_partitions(planned, settings, self._parallelism)

    @property
    def _lineage(self) -> Lineage:
        if self._followed is None:
            keywords = with_credentials(self._settings.planning(), self._settings.credentials)
            given = {name: keywords[name] for name in ("storage_options", "options")}
            self._followed = Lineage(
                FileNames(keywords["storage_options"]),
                Replacements(Connector(store=None, **given)),
            )
        return self._followed

    async def _list(self, *, spelled: bool) -> _Listing:
        """List all files; with `spelled`, note what an earlier version called them, too."""
        keywords = with_credentials(self._settings.planning(), self._settings.credentials)
        found = scan(self._settings.source, **keywords).engine.resolve(Metrics())
        names = self._lineage.names
        files: dict[int, FileEntry] = {}
        spellings: dict[int, Sequence[int]] = {}
        async with aclosing(found):
            try:
                first = await found.first_block()
            except ObjectNotFoundError:
                return _Listing(files, spellings, pa.schema([]))  # the first file is still to come
            block = first
            matches = name_matcher(self._settings.file_names or "*")
            while True:
                for file in block.files:
                    if not matches(file.path):
                        continue
                    name = names.of(file.root, file.path)
                    files.setdefault(name, file)
                    if spelled:
                        spellings[name] = names.spellings(file.root, file.path, file.url)
                following = await found.next_block()
                if following is None:
                    return _Listing(files, spellings, first.partition_schema)
                block = following

    async def _find(self, seen: SeenFiles) -> tuple[_Listing, _Found]:
        """List the files, and tell those to read from those that only hold rows of files that were read."""
        listing = await self._list(spelled=bool(seen.spelled))
        fresh, carried = [], []
        shares = SharesOf(seen, self._lineage)
        for name, file in listing.files.items():
            if seen.holds(name, listing.spellings.get(name, ())):
                continue
            if await self._lineage.is_early(file, listing.files):
                continue
            # Where nothing was read, no row has been.
            share = (await shares.of(file))[0] if seen else Share.NONE
            if share is Share.NONE:
                fresh.append(name)
            elif share is Share.ALL:
                carried.append(name)
            else:
                raise AccelError(
                    "optimize wrote the file of several, of which the stream has read some and has not read "
                    "others",
                    path=file.url,
                    hint="their rows cannot be told apart: begin with a new checkpoint, and have a stream "
                    "read all files before they are optimized",
                )
        if len(fresh) == len(listing.files) > 0 and seen.outdated and seen:
            # They may be the files that it names, spelled in another way.
            raise AccelError(
                "the checkpoint was written by an earlier version of accel, and none of the files that it "
                "names is there",
                path=name_of_source(self._settings.source),
                hint=(
                    "load the place as it was spelled then; or, if those files are gone, begin with a new "
                    "checkpoint"
                ),
            )
        return listing, _Found(fresh, carried)

    async def _files_of(self, wanted: SeenFiles) -> tuple[_Listing, list[FileEntry]]:
        """Return the files of a batch; where `optimize` has replaced files of it and no others, those that it
        wrote."""
        listing = await self._list(spelled=bool(wanted.spelled))
        names = [name for name in listing.files if wanted.holds(name, listing.spellings.get(name, ()))]
        files = [listing.files[name] for name in names]
        missing = len(wanted) - len(files)
        if missing:
            shares = SharesOf(wanted, self._lineage)
            reached: set[int] = set()
            for name, file in listing.files.items():
                share, sources = await shares.of(file)
                early = await self._lineage.is_early(file, listing.files)
                if share is Share.ALL and name not in names and not early:
                    files.append(file)
                    reached |= sources
            missing -= len(reached)
        if missing > 0 and self._settings.on_error is OnError.RAISE:
            raise ObjectNotFoundError(
                f"{missing} of {len(wanted)} files of a batch have been deleted since it began",
                path=name_of_source(self._settings.source),
                hint="the option onError=skip goes on without them",
            )
        return listing, files

    # -- on an executor --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a partition."""
        return read_partition(
            partition, self._settings, self._schema, counts=self._counts, changed=_START_AGAIN
        )
