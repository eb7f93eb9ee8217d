"""The jobs of a table on Spark: the driver lists and commits, and the executors do what takes time."""

from __future__ import annotations

import json
import math
import pickle
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from accel.arrays import bytes_of, from_ipc, to_ipc
from accel.maintenance.embedding_files import EmbeddedFile, EmbedFilesJob, EmbedFilesReport
from accel.maintenance.layout import Layout, Preset, WrittenFile
from accel.maintenance.optimizing import OptimizeJob, OptimizeReport
from accel.maintenance.ordering import Ordering, Sample, count_before
from accel.maintenance.progress import Progress
from accel.maintenance.reading import read_rows
from accel.maintenance.rewriting import Rewrite
from accel.maintenance.staging import (
    OutputRecord,
    RestartUnit,
    RewritePlan,
    open_staged,
    record_name,
    staged_name,
)
from accel.options import MIB, Options
from accel.runtime.time_limits import time_limit
from accel.scanning.spec import AUTO
from accel.spark.executing import for_executors
from accel.spark.partitions import parallelism_of, spread
from accel.spark.stages import (
    PIECE_BYTES,
    SHARES,
    Piece,
    collect,
    group_pieces,
    run_shares,
    session_of_pieces,
)
from accel.store.location import Location
from accel.tables.journal import AddedFile
from accel.writing.sort_order import SortBy
from accel.writing.table_writer import BloomColumns
from accel.writing.wanted import Indexes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from accel.maintenance.optimizing import Path

__all__ = ["embed", "optimize"]

_PART_BYTES: Final = 512 * MIB
"""Bytes of files that one task sorts, about."""
_WAITING_BYTES: Final = 64 * MIB
"""Bytes of rows that wait in an executor until the pieces of the parts are large enough."""


def optimize(
    spark: SparkSession,
    source: Path,
    *,
    to: Path | None = None,
    sort_by: SortBy | None = None,
    z_order: Sequence[str] | str | None = None,
    preset: Preset | str = Preset.SCAN,
    target_file_size: int | None = None,
    row_group_size: int | None = None,
    page_rows: int | None = None,
    blooms: BloomColumns | None = None,
    indexes: Indexes | None = None,
    index: Path | None = AUTO,
    parts: int | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
    **pyarrow_options: Any,
) -> OptimizeReport:
    """Rewrite the Parquet files of a directory on Spark, as `accel.optimize` does in one process.

    The rows are cut into parts by their order, each part is sorted and written by one task, and the driver
    commits once, when all are complete. Rows travel between executors as they are, so that no type is
    changed. A task that runs twice leaves a hidden file at worst, which is removed. A job that was killed is
    finished by the next one of the same arguments, which does not write the parts again that are complete.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later.
    source, to, sort_by, z_order, preset, target_file_size, row_group_size, page_rows, blooms, indexes, index
        As for `accel.optimize`. The driver and every executor must be able to reach both directories.
    parts : int, optional
        Parts of the table that are sorted and written by one task each; by default as many as the session
        runs at once, more if one would be of more than 512 MiB, and fewer if files would be smaller than
        `target_file_size`.
    progress : callable, optional
        Called with a `JobProgress` on the driver now and then, from another thread: it counts tasks of Spark.
        On Spark Connect it is not called.
    store, storage_options, options, **pyarrow_options
        As for `accel.optimize`. `storage_options` reach the executors in the pickled function, and only if
        they are given.
    timeout : float, optional
        Seconds after which ScanTimeoutError is raised, unless the job is being committed: the driver ends
        what it waits for, and cancels the job of Spark, whose tasks end within seconds. The next call goes on
        from there.

    Returns
    -------
    OptimizeReport
        Files and bytes before and after.

    Raises
    ------
    ValueError
        `parts` is less than 1.
    AccelError, TypeError, ValueError
        As `accel.optimize` raises them.
    """
    if parts is not None and parts < 1:
        raise ValueError(f"parts is at least 1, not {parts}")
    own = session_of_pieces(spark)
    layout = Layout.of(
        preset, target_file_size=target_file_size, row_group_size=row_group_size, page_rows=page_rows,
        blooms=blooms, indexes=indexes, writer=pyarrow_options,
    )  # fmt: skip
    ordering = Ordering.of(sort_by, z_order)
    reached = {"store": store, "storage_options": storage_options, "options": options}
    job = OptimizeJob(
        source, to, layout=layout, ordering=ordering, index=index, progress=progress, given=reached
    )
    given = for_executors(reached)
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del source, to, store, storage_options, reached
    with time_limit(timeout, job.source):
        finished = job.begin(RestartUnit.PART, f"spark, parts={parts}")
        if finished is not None:
            return finished
        try:
            return job.commit(_Rewriting(own, job, given, parts).run())
        except BaseException:
            job.abandon()
            raise


@dataclass(frozen=True, slots=True)
class _Share:
    """Files that one task reads."""

    number: int
    folder: int
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Executors:
    """What the tasks of a rewrite have in common. It pickles."""

    rewrite: Rewrite
    given: Mapping[str, Any] = field(repr=False)
    target: Location
    id: str
    num_rows: int
    limits: pa.Table | None = None
    """The keys between the parts."""
    firsts: tuple[int, ...] = ()
    """The number of the first part of each folder, and in the end of all parts."""
    complete: frozenset[int] = frozenset()
    """Parts that an attempt before has written."""

    # -- in the executors ------------------------------------------------------------------------

    def sample(self, number: int, pieces: Iterator[bytes]) -> Iterator[Piece]:
        """Return some rows of the columns that the order depends on."""
        names = self.rewrite.ordering.names
        narrow = self.rewrite.of_columns(names)
        for piece in pieces:
            share: _Share = pickle.loads(piece)
            sample = Sample(self.num_rows)
            tables = read_rows(share.urls, narrow, self.given)
            yield number, to_ipc(sample.of(tables, narrow.plain_schema()))

    def cut(self, number: int, pieces: Iterator[bytes]) -> Iterator[Piece]:
        """Read files, and cut their rows into parts."""
        for piece in pieces:
            share: _Share = pickle.loads(piece)
            waiting: dict[int, list[pa.Table]] = {}
            nbytes: dict[int, int] = {}
            for table in read_rows(share.urls, self.rewrite, self.given):
                for part, rows in self._parts_of(share.folder, table):
                    waiting.setdefault(part, []).append(rows)
                    nbytes[part] = nbytes.get(part, 0) + bytes_of(rows)
                full = sum(nbytes.values()) > _WAITING_BYTES
                for part in [part for part, size in nbytes.items() if full or size >= PIECE_BYTES]:
                    yield from _pieces(part, waiting.pop(part))
                    del nbytes[part]
            for part, tables in waiting.items():
                yield from _pieces(part, tables)

    def _parts_of(self, folder: int, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        first, after = self.firsts[folder : folder + 2]
        if after - first == 1 or self.limits is None or not len(table):
            if first not in self.complete:
                yield first, table
            return
        ordering = self.rewrite.ordering
        keys, _ = ordering.keys(table)
        parts = count_before(self.limits, keys, ordering.directions)
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(len(self.limits) + 1), side="right")
        together = table.take(pa.array(order))
        start = 0
        for part, end in enumerate(ends.tolist()):
            if end > start and first + part not in self.complete:
                yield first + part, together.slice(start, end - start)
            start = end

    def write(self, number: int, pieces: Iterator[bytes]) -> Iterator[Piece]:
        """Sort the rows of a part, and write them."""
        yield number, self._written(number, (from_ipc(piece) for piece in pieces))

    def copy(self, number: int, pieces: Iterator[bytes]) -> Iterator[Piece]:
        """Write the rows of files in their order."""
        for piece in pieces:
            share: _Share = pickle.loads(piece)
            tables = read_rows(share.urls, self.rewrite, self.given)
            yield share.number, self._written(share.number, tables)

    def _written(self, number: int, tables: Iterator[pa.Table]) -> bytes:
        def open_new(name: str) -> AbstractContextManager[BinaryIO]:
            return open_staged(self.target, self.id, name, self.given)

        files = self.rewrite.write(
            tables,
            open_new,
            name=lambda at: staged_name(number, at),
            note=lambda stage, rows: None,
        )
        record = OutputRecord(start=0, files=tuple(files)).encode()
        with open_new(record_name(number, 0)) as file:
            file.write(record)
        return record


def _pieces(part: int, tables: Sequence[pa.Table]) -> Iterator[Piece]:
    table = pa.concat_tables(tables)
    count = max(1, bytes_of(table) // (2 * PIECE_BYTES))
    rows = -(-len(table) // count) or 1
    for start in range(0, len(table), rows):
        yield part, to_ipc(table.slice(start, rows))


class _Rewriting:
    """The driver's side of one rewrite."""

    def __init__(
        self, spark: SparkSession, job: OptimizeJob, given: Mapping[str, Any], parts: int | None
    ) -> None:
        self._spark = spark
        self._job = job
        self._folders = list(job.table.folders().items())
        self._at_once = parallelism_of(spark)
        self._parts = parts
        self._complete = job.outputs
        self._executors = _Executors(
            rewrite=Rewrite(
                stored=job.table.stored, ordering=job.ordering, layout=job.layout, options=job.options
            ),
            given=given,
            target=job.target,
            id=job.directory.id,
            num_rows=sum(job.table.num_rows.values()),
        )

    def run(self) -> list[AddedFile]:
        """Have all rows written that are not in files already, and return the new files with their names."""
        if not self._executors.rewrite.ordering:
            return self._copy()
        self._settle_parts()
        executors, firsts = self._executors, self._executors.firsts
        shares = [share for share in self._shares(self._at_once * SHARES) if self._is_left(share.folder)]
        found = dict(self._complete)
        if shares:
            cut = run_shares(self._spark, _pickled(shares), executors.cut)
            found |= self._collect(group_pieces(cut, firsts[-1], executors.write))
        of_folders = [(bisect_right(firsts, number) - 1, files) for number, files in sorted(found.items())]
        return self._named(of_folders) + self._empty({folder for folder, _ in of_folders})

    def _copy(self) -> list[AddedFile]:
        """Write the rows in the order that they have."""
        if self._job.plan is None:
            self._job.record_plan()
        shares = self._shares(self._file_shares())
        left = [share for share in shares if share.number not in self._complete]
        found = dict(self._complete)
        if left:
            found |= self._collect(run_shares(self._spark, _pickled(left), self._executors.copy))
        return self._named([(shares[number].folder, files) for number, files in sorted(found.items())])

    def _is_left(self, folder: int) -> bool:
        """Return whether a folder has parts that are not written."""
        first, after = self._executors.firsts[folder : folder + 2]
        return any(part not in self._complete for part in range(first, after))

    def _settle_parts(self) -> None:
        """Choose the parts of the table, and the ranks along a Z curve: as the plan has them, or by a sample
        of the rows."""
        plan = self._job.plan or self._plan_parts()
        executors = self._executors
        ordering = replace(executors.rewrite.ordering, limits=plan.curve)
        self._executors = replace(
            executors,
            rewrite=replace(executors.rewrite, ordering=ordering),
            limits=plan.limits,
            firsts=plan.firsts,
            complete=frozenset(self._complete),
        )

    def _plan_parts(self) -> RewritePlan:
        sizes = [self._size(members) for _, members in self._folders]
        parts = self._parts or self._default_parts(max(sizes))
        executors, ordering, limits = self._executors, self._executors.rewrite.ordering, None
        if parts > 1 or ordering.z_order:
            shares = self._shares(self._at_once * SHARES)
            frame = run_shares(self._spark, _pickled(shares), executors.sample)
            sample = pa.concat_tables([from_ipc(row.piece) for row in self._rows_of(frame, "sample")])
            ordering = ordering.with_limits(sample)
            limits = ordering.split(sample, parts) if len(sample) else None
        parts = 1 if limits is None else len(limits) + 1
        # With many folders most are small, and one task sorts each of these.
        small = _PART_BYTES // 2 if self._parts is None and len(sizes) > 1 else 0
        own = [1 if size <= small else parts for size in sizes]
        return self._job.record_plan(curve=ordering.limits, limits=limits, firsts=(0, *accumulate(own)))

    def _default_parts(self, nbytes: int) -> int:
        most = math.ceil(nbytes / self._job.layout.target_file_size)
        return max(1, min(most, max(self._at_once, math.ceil(nbytes / _PART_BYTES))))

    def _file_shares(self) -> int:
        total = self._job.table.size
        return max(1, math.ceil(total / max(1, self._job.layout.target_file_size)))

    def _size(self, members: Sequence[int]) -> int:
        return sum(self._job.table.files[at].size or 0 for at in members)

    def _shares(self, count: int) -> list[_Share]:
        """Cut the files into about so many runs of about equal bytes, none of them of two folders."""
        table = self._job.table
        total = max(1, table.size)
        shares: list[_Share] = []
        for folder, (_, members) in enumerate(self._folders):
            sizes = np.array([table.files[at].size or 0 for at in members], np.int64)
            own = max(1, round(count * int(sizes.sum()) / total))
            places = spread(sizes, min(own, len(members)))
            for place in np.unique(places).tolist():
                urls = [table.files[members[at]].url for at in np.flatnonzero(places == place).tolist()]
                shares.append(_Share(len(shares), folder, tuple(urls)))
        return shares

    def _collect(self, frame: DataFrame) -> dict[int, Sequence[WrittenFile]]:
        """Run the job, and return the files of each share or part."""
        return {row.number: OutputRecord.decode(row.piece).files for row in self._rows_of(frame, "write")}

    def _rows_of(self, frame: DataFrame, stage: str) -> list[Any]:
        return collect(self._spark, frame, self._job.progress, stage=stage)

    def _named(self, found: Sequence[tuple[int, Sequence[WrittenFile]]]) -> list[AddedFile]:
        numbers: dict[int, int] = {}
        added = []
        for folder, files in found:
            self._job.warnings += [warning for file in files for warning in file.warnings]
            for file in files:
                at = numbers.get(folder, 0)
                numbers[folder] = at + 1
                added.append(self._job.added(self._folders[folder][0], at, file))
        return added

    def _empty(self, filled: set[int]) -> list[AddedFile]:
        """Write a file without rows for each folder that has none, so that its columns stay."""
        added = []
        rewrite = self._executors.rewrite
        for folder, (name, _) in enumerate(self._folders):
            if folder in filled:
                continue
            files = rewrite.write(
                [],
                self._job.open_new,
                name=lambda at, folder=folder: staged_name(folder, at),  # type: ignore[misc]
                note=lambda stage, rows: None,
            )
            added += [self._job.added(name, at, file) for at, file in enumerate(files)]
        return added


def _pickled(shares: Sequence[_Share]) -> list[bytes]:
    return [pickle.dumps(share) for share in shares]


def embed(
    spark: SparkSession,
    source: Path,
    *,
    to: Path | None = None,
    indexes: Indexes,
    index: Path | None = AUTO,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> EmbedFilesReport:
    """Put indexes into all Parquet files of a directory on Spark, as `accel.embed_files` does in one process.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later.
    source, to, indexes, index
        As for `accel.embed_files`. Every executor must be able to reach both directories.
    progress : callable, optional
        As for `optimize`.
    store, storage_options, options
        As for `accel.embed_files`. `storage_options` reach the executors in the pickled function, and only if
        they are given.
    timeout : float, optional
        As for `optimize`. Files that have their indexes by then keep them.

    Returns
    -------
    EmbedFilesReport
        How many files got indexes, and which could not.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `accel.embed_files` raises them. An executor that fails raises Spark's error, which has the text of
        accel's.
    """
    own = session_of_pieces(spark)
    given = for_executors({"store": store, "storage_options": storage_options, "options": options})
    job = EmbedFilesJob(
        source, to, indexes=indexes, index=index, progress=progress, store=store,
        storage_options=storage_options, options=options,
    )  # fmt: skip
    work = partial(_embed_share, source=source, to=to, indexes=indexes, given=given)
    del source, to, store, storage_options
    with time_limit(timeout, job.source):
        paths = job.paths()
        count = min(len(paths), parallelism_of(own) * SHARES)
        shares = [json.dumps(paths[at::count]).encode() for at in range(count)]
        rows = collect(own, run_shares(own, shares, work), progress, stage="embed")
        files = [
            EmbeddedFile(**{**each, "warnings": tuple(each["warnings"])})
            for row in rows
            for each in json.loads(row.piece)
        ]
        return job.report(paths, sorted(files, key=lambda file: file.path))


def _embed_share(
    number: int,
    pieces: Iterator[bytes],
    *,
    source: Path,
    to: Path | None,
    indexes: Indexes,
    given: Mapping[str, Any],
) -> Iterator[Piece]:
    """Put indexes into the files of one share, in an executor."""
    whole: dict[str, Any] = {"store": None, "storage_options": None, "options": None, **given}
    job = EmbedFilesJob(source, to, indexes=indexes, index=None, progress=None, **whole)
    for piece in pieces:
        files = list(job.embed(json.loads(piece)))
        yield number, json.dumps([asdict(file) for file in files]).encode()
