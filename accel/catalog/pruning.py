"""Files of a source pruned by a catalog.

What a catalog says of a file is used for the version that it was said of, and for no other. A file that the catalog does
not know, or knows in another version, is passed on as if there were no catalog: an index that is out of date costs time,
and never a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import column_text
from accel.catalog.head import Segment, Table
from accel.catalog.homes import CatalogHome
from accel.catalog.kind import CatalogQuestion, Hits, evidence_of, rows_of
from accel.catalog.partitions import FilePartitions, bounds_of_segment
from accel.catalog.segments import CatalogSnapshot, FileDirectory, SegmentReader, SegmentTables
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.projection import settle_schemas
from accel.planning.selection import RowSelection
from accel.predicate.expr import columns_of
from accel.predicate.prune import prune
from accel.scanning.file_source import SourceRequest
from accel.store.fetch import same_etag
from accel.store.range_store import ObjectEntry

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.scanning.spec import ScanSpec

__all__ = ["BoundQuestion", "CatalogPruner", "FilePlace", "Verdict"]


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the catalog has a file."""

    tables: SegmentTables
    ordinal: int

    @property
    def directory(self) -> FileDirectory:
        """The files of its segment, which are read."""
        if self.tables.directory is None:
            raise TypeError("the directory of a segment is read first")
        return self.tables.directory

    @property
    def path(self) -> str:
        """The path of the file, relative to the directory that the catalog covers."""
        return self.directory.paths[self.ordinal]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What may match in one segment."""

    dropped_by: Int64s
    """Which of `tables` ruled each file out; -1 where it may match."""
    tables: Sequence[str]
    hits: Mapping[str, Hits]
    """What the indexes say, by table."""
    all_match: Bools | None = None
    """Whether all rows of each file match; None where that was not requested, or is unknown."""

    @classmethod
    def of(cls, hits: Mapping[str, Hits], may_match: Callable[..., Bools]) -> Verdict:
        """Judge a segment by its bounds, and then by one index after the other.

        `may_match` is `SegmentTables.may_match`, and takes `index_evidence`.
        """
        dropped_by = np.where(may_match(), -1, 0)
        so_far: list[Hits] = []
        for number, one in enumerate(hits.values(), 1):
            so_far.append(one)
            may = may_match(index_evidence=partial(evidence_of, so_far))
            own = one.may_match()
            may = may if own is None else may & own
            dropped_by[(dropped_by < 0) & ~may] = number
        return cls(dropped_by, (Table.BOUNDS, *hits), hits)

    @classmethod
    def of_none(cls, segment: Segment) -> Verdict:
        """Return that no file of a segment matches, by the bounds of its partition columns."""
        none = np.zeros(segment.num_files, np.int64)
        return cls(none, (Table.BOUNDS,), {}, all_match=none > 0)

    @property
    def may_match(self) -> Bools:
        """Whether each file may."""
        may: Bools = self.dropped_by < 0
        return may


@dataclass(frozen=True, slots=True, eq=False)
class BoundQuestion:
    """The predicate of a scan, as it is passed to its catalog."""

    question: CatalogQuestion
    constant: frozenset[str]
    """The columns of it that paths spell."""

    def may_hold(self, segment: Segment, partition_schema: pa.Schema) -> bool:
        """Whether a segment may hold files that match, by what its head says of their paths."""
        if not self.constant or segment.spelled is None:
            return True
        bounds = bounds_of_segment(
            segment.spelled, partition_schema, self.question.bound, constant=self.constant
        )
        return bool(prune(self.question.bound, bounds, 1).may_true[0])


class CatalogPruner:
    """Prunes the files of one scan by a catalog.

    Parameters
    ----------
    home : CatalogHome
        Where the catalog is.
    spec : ScanSpec
        What the scan is asked for.
    cache : Cache or None
    may_lack : bool
        Whether there need not be a catalog.
    """

    def __init__(
        self, home: CatalogHome, spec: ScanSpec, *, cache: Cache | None, may_lack: bool = False
    ) -> None:
        self.home = home
        self._spec = spec
        self.cache = cache
        self._may_lack = may_lack
        self.unknown: Sequence[FileEntry] = ()
        """The files of the block that was pruned last that the catalog does not know in their current version."""
        self._first: FileEntry | None = None
        """The first file of the scan, which settles its types."""
        self.has_failed = False
        """Whether there is a catalog that cannot be used."""

    def reader(self, request: SourceRequest) -> SegmentReader:
        """Return what reads the tables of the catalog for a run."""
        return self.home.reader(cache=self.cache, options=self._spec.options, metrics=request.reader.metrics)

    async def load(
        self, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int] | None:
        """Return the catalog and the round trips it took; None where it cannot be used, which the metrics say.

        Raises as `pass_over` does.
        """
        try:
            return await self.home.load(self.cache, metrics, listed=listed)
        except (IndexFormatError, StoreError) as error:
            self.pass_over(error, metrics)
            return None

    def pass_over(self, error: AccelError, metrics: Metrics) -> None:
        """Note that the scan goes on without the catalog.

        Raises
        ------
        AccelError
            Scans are strict.
        """
        self.home.forget(self.cache)
        missing = isinstance(error, ObjectNotFoundError)
        if missing and self._may_lack:
            return
        self.has_failed = True
        self.unknown = ()
        if self._spec.options.strict:
            raise error
        text = (
            f"there is no index at {self.home}"
            if missing
            else f"the index at {self.home} is not used: {error}"
        )
        metrics.add("indexes_ignored")
        metrics.warn(text)
        warnings.warn(text, stacklevel=2)

    async def prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        """Return the block without the files that the catalog rules out, with what it knows of the others.

        The first file stays, as it settles the schema. Where the catalog turns out to be damaged, the block is returned as
        it is.
        """
        try:
            return await self._prune(block, snapshot, reader, request)
        except (IndexFormatError, StoreError) as error:
            self.pass_over(error, request.reader.metrics)
            return block

    async def load_first(
        self, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> None:
        """Load what the question is likely to take, as far as the names of its columns tell."""
        where, names, answers = self._spec.where, frozenset[str](), request.answers
        if where is not None and self._spec.selection is None and not self._spec.embedded:
            names = frozenset(column_text(column.path) for column in columns_of(where))
        asked = None if answers is None else answers.fact_columns()
        if asked is not None:
            from accel.catalog.facts import column_texts

            names |= column_texts(asked)
        await reader.load_first(snapshot, names, counts=asked is not None)

    async def _prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        metrics = request.reader.metrics
        await self.load_first(snapshot, reader, request)
        places = await self._match(block, snapshot, reader)
        metrics.add("catalog_stale", len(block.files) - len(places))
        self.unknown = [file for at, file in enumerate(block.files) if at not in places]
        first = block.files[0]
        if 0 in places:
            (first,) = await self._with_metadata([(first, places[0])], reader)
        asked = await self.ask(first, block.partition_schema, reader, request)
        partitions: dict[str, FilePartitions] = {}
        if asked is not None and asked.constant:
            by_segment: dict[str, list[tuple[int, tuple[object, ...]]]] = {}
            for at, covered in places.items():
                values = covered.ordinal, block.files[at].partition
                by_segment.setdefault(covered.tables.segment.id, []).append(values)
            for one in snapshot.head.segments:
                found = by_segment.get(one.id, ())
                partitions[one.id] = FilePartitions.of_files(block.partition_schema, found, one.num_files)
        verdicts = await self.verdicts(asked, snapshot, partitions, reader, request)
        left: list[tuple[FileEntry, FilePlace | None]] = []
        dropped: dict[str, list[int]] = {}
        for at, file in enumerate(block.files[1:], 1):
            place = places.get(at)
            if (
                place is None
                or verdicts is None
                or verdicts[place.tables.segment.id].may_match[place.ordinal]
            ):
                left.append((file, place))
            else:
                dropped.setdefault(place.tables.segment.id, []).append(place.ordinal)
        files = await self.enrich([(first, places.get(0)), *left], verdicts, reader, request)
        self.count(len(places), dropped, verdicts, metrics)
        return self.finish(block, files, snapshot, reader)

    def count(
        self,
        covered: int,
        dropped: Mapping[str, Sequence[int] | Int64s],
        verdicts: Mapping[str, Verdict] | None,
        metrics: Metrics,
    ) -> None:
        """Count files that the catalog covers, and those of them that it rules out: their ordinals by segment."""
        total = sum(map(len, dropped.values()))
        metrics.catalog.add(total=covered, kept=covered - total)
        metrics.files.add(total=total, kept=0)
        for segment, ordinals in dropped.items():
            verdict = (verdicts or {})[segment]
            numbers, counts = np.unique(verdict.dropped_by[ordinals], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                metrics.count_dropped(verdict.tables[number], files=count)

    async def enrich(
        self,
        files: Sequence[tuple[FileEntry, FilePlace | None]],
        verdicts: Mapping[str, Verdict] | None,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> list[FileEntry]:
        """Return files with the metadata that the catalog has of them, and with the rows that may match; with facts instead
        where these answer the question."""
        files = await self._with_facts(files, verdicts, reader, request)
        entries = await self._with_metadata(files, reader)
        if verdicts is None:
            return entries
        return [
            entry if place is None else await self._with_rows(entry, place, verdicts, request)
            for entry, (_, place) in zip(entries, files, strict=True)
        ]

    def finish(
        self, block: FileBlock, files: Sequence[FileEntry], snapshot: CatalogSnapshot, reader: SegmentReader
    ) -> FileBlock:
        """Return the block with these files, and with the round trips of the reader."""
        self.home.reweigh(self.cache, snapshot)
        trips = reader.round_trips
        return replace(
            block,
            files=tuple(files),
            round_trips=block.round_trips + trips,
            catalog_trips=block.catalog_trips + trips,
        )

    async def _match(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader
    ) -> Mapping[int, FilePlace]:
        """Where the catalog has the current version of each file, by its place in the block."""
        root, base = self.home.base(snapshot.head)
        for tables in snapshot.tables:
            await reader.load_directory(tables)
        ordinals = snapshot.ordinals()
        places: dict[int, FilePlace] = {}
        start = len(base)
        for at, file in enumerate(block.files):
            found = ordinals.get(file.path[start:])
            if found is None or file.root != root or not file.path.startswith(base):
                continue
            tables, ordinal = found
            directory = tables.directory
            if directory is None or file.etag is None or file.size != directory.sizes[ordinal]:
                continue
            if same_etag(file.etag, directory.etags[ordinal]):
                places[at] = FilePlace(tables, ordinal)
        return places

    async def ask(
        self, first: FileEntry, partition_schema: pa.Schema, reader: SegmentReader, request: SourceRequest
    ) -> BoundQuestion | None:
        """Return what the catalog is asked; None where it cannot say what may match.

        Parameters
        ----------
        first : FileEntry
            The first file of the scan, whose schema is the scan's.
        partition_schema : pyarrow.Schema
            The columns that paths spell.
        """
        self._first = first
        where = self._spec.where
        if where is None or self._spec.selection is not None or self._spec.embedded:
            return None
        from accel.predicate.bind import bind

        if self._spec.schema is not None and not len(partition_schema):
            schema = self._spec.schema
            own = frozenset(schema.names)
        else:
            try:
                handle, opening = await request.reader.open(first)
            except AccelError:
                return None  # opened again in its turn, it says what is wrong
            # All that follows waits for it.
            reader.round_trips += opening
            own = frozenset(handle.arrow_schema.names)
            schema = self._spec.schema or request.reader.opener.data_set_schema(handle)
        constant = frozenset(name for name in partition_schema.names if name not in own)
        extra = [f for f in partition_schema if f.name in constant and f.name not in schema.names]
        try:
            data_set, _ = settle_schemas(pa.schema([*schema, *extra]), None, alone=False, folded=True)
            bound = bind(where, data_set)
        except AccelError:
            return None  # the scan itself says what is wrong
        question = CatalogQuestion.of(where, bound, data_set=data_set, constant=constant)
        return BoundQuestion(question, constant & {column.path[0] for column in bound.columns})

    async def verdicts(
        self,
        asked: BoundQuestion | None,
        snapshot: CatalogSnapshot,
        partitions: Mapping[str, FilePartitions],
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Mapping[str, Verdict] | None:
        """Return what may match in each segment; None where that cannot be said.

        Parameters
        ----------
        asked : BoundQuestion or None
            As `ask` returns it.
        partitions : mapping
            By segment, the values that the paths of its files spell.
        """
        if asked is None:
            return None
        bound, constant = asked.question.bound, asked.constant
        spelled = {key: one.bounds(bound, constant) for key, one in partitions.items()}
        verdicts: dict[str, Verdict] = {}
        left: list[SegmentTables] = []
        for tables in snapshot.tables:
            key = tables.segment.id
            if spelled.get(key) and not prune(bound, spelled[key], tables.segment.num_files).may_true.any():
                # No other table of it needs to be read.
                verdicts[key] = Verdict.of_none(tables.segment)
            else:
                left.append(tables)
        looked_up: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = [
            partial(SegmentReader.look_up, tables=one, question=asked.question) for one in left
        ]
        bounded: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = [
            partial(SegmentReader.find_bounds, tables=one, bound=bound, constant=constant) for one in left
        ]
        found = await reader.side_by_side([*looked_up, *bounded])
        n = len(left)
        for tables, hits, matching in zip(left, found[:n], found[n:], strict=True):
            own = spelled.get(tables.segment.id, {})
            may_match = partial(tables.may_match, bound, matching, constant=constant, partition=own)
            verdict = Verdict.of(hits, may_match)
            if request.answers is not None and matching is None:
                all_match = tables.all_match(bound, constant=constant, partition=own)
                verdict = replace(verdict, all_match=all_match)
            verdicts[tables.segment.id] = verdict
        return verdicts

    async def _with_facts(
        self,
        files: Sequence[tuple[FileEntry, FilePlace | None]],
        verdicts: Mapping[str, Verdict] | None,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Sequence[tuple[FileEntry, FilePlace | None]]:
        """The files, with facts where these answer a question about all rows."""
        answers, first = request.answers, self._first
        # The first file has its metadata by now; it need not be looked at.
        places = {
            at: place
            for at, (file, place) in enumerate(files)
            if place is not None and (file.facts is None or file == first)
        }
        matching = {key: one.all_match for key, one in (verdicts or {}).items() if one.all_match is not None}
        filtered = self._spec.where is not None
        if answers is None or first is None or not places or (filtered and not matching):
            return files
        from accel.catalog.facts import answering_facts

        try:
            handle, opening = await request.reader.open(first)
        except AccelError:
            return files  # opened again in its turn, it says what is wrong
        reader.round_trips += opening
        found = await answering_facts(
            answers,
            [(files[at][0], place.tables, place.ordinal) for at, place in places.items()],
            handle,
            all_match=matching if filtered else None,
            reader=reader,
        )
        out = list(files)
        for at, facts in zip(places, found, strict=True):
            file, place = files[at]
            if facts is not None:
                tail = None if file.facts is None else file.facts.tail
                out[at] = replace(file, facts=replace(facts, tail=tail)), place
        return out

    async def _with_metadata(
        self, files: Sequence[tuple[FileEntry, FilePlace | None]], reader: SegmentReader
    ) -> list[FileEntry]:
        """The files with the metadata that the catalog has of them, as far as they come without."""
        by_segment: dict[str, list[tuple[int, FilePlace]]] = {}
        for at, (file, place) in enumerate(files):
            if place is not None and file.facts is None:
                by_segment.setdefault(place.tables.segment.id, []).append((at, place))
        works: list[Callable[[SegmentReader], Coroutine[Any, Any, Mapping[int, bytes]]]] = [
            partial(
                SegmentReader.metadata,
                tables=found[0][1].tables,
                files=sorted(place.ordinal for _, place in found),
            )
            for found in by_segment.values()
        ]
        out = [file for file, _ in files]
        for found, metadata in zip(by_segment.values(), await reader.side_by_side(works), strict=True):
            for at, place in found:
                file = out[at]
                if file.size is not None:
                    facts = FileFacts(size=file.size, etag=file.etag, tail=metadata[place.ordinal])
                    out[at] = replace(file, facts=facts)
        return out

    async def _with_rows(
        self,
        file: FileEntry,
        place: FilePlace,
        verdicts: Mapping[str, Verdict],
        request: SourceRequest,
    ) -> FileEntry:
        """The file with the rows that may match, where the catalog knows them."""
        verdict = verdicts[place.tables.segment.id]
        if file.facts is None or file.facts.all_match:
            return file
        if not verdict.hits and verdict.may_match[place.ordinal]:
            return file
        rows: Mapping[int, RowSelection] | None = {}
        if verdict.may_match[place.ordinal]:
            try:
                handle, _ = await request.reader.open(file)
            except AccelError:
                return file  # opened again in its turn, it says what is wrong
            current = handle.etag is not None and file.etag is not None and same_etag(handle.etag, file.etag)
            metrics = request.reader.metrics
            if current:
                # Which rows a page has is told by the page indexes of the catalog, which the cached handle may lack.
                request.reader.opener.grow_tail(file, handle)
            rows = rows_of(verdict.hits, place.ordinal, handle, metrics=metrics) if current else None
        return file if rows is None else replace(file, facts=replace(file.facts, rows=rows))
