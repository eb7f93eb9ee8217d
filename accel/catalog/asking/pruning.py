"""Files of a source pruned by a catalog.

What a catalog says of a file is used for the version that it was said of, and for no other. A file that the
catalog does not know, or knows in another version, is passed on as if there were no catalog: an index that is
out of date costs time, and never a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.asking.file_types import TypeCheck
from accel.catalog.asking.partitions import FilePartitions, bounds_of_segment
from accel.catalog.describing import column_text, schema_fingerprint
from accel.catalog.head import Segment, Table
from accel.catalog.homes.home import CatalogHome
from accel.catalog.kinds.kind import CatalogQuestion, Hits, evidence_of, rows_of
from accel.catalog.segments import CatalogSnapshot, FileDirectory, SegmentReader, SegmentTables
from accel.catalog.stored_names import StoredNames, bound_to_stored, mappings_of
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.column_mapping import ColumnMapping
from accel.planning.data_set import DataSet
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.projection import settle_schemas
from accel.planning.selection import RowSelection
from accel.predicate.expr import columns_of
from accel.predicate.prune import prune
from accel.scanning.file_source import SourceRequest
from accel.scanning.questions import spelled
from accel.store.range_store import ObjectEntry
from accel.versions import FileVersion

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.scanning.spec import ScanSpec

__all__ = ["BoundQuestion", "CatalogPruner", "FilePlace", "Verdict"]


_MOST_MAPPINGS: Final = 16
"""Ways of having columns that files of one block may have, beyond which the catalog is not asked."""


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
    refused: Bools | None = None
    """The files that the scan refuses for their types; None where there are none."""

    def with_refused(self, refused: Bools | None) -> Verdict:
        """Return the verdict by which these files are opened, whatever is known of their values."""
        if refused is None:
            return self
        all_match = None if self.all_match is None else self.all_match & ~refused
        dropped_by = np.where(refused, -1, self.dropped_by)
        return replace(self, dropped_by=dropped_by, all_match=all_match, refused=refused)

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
    types: TypeCheck

    def may_hold(self, segment: Segment, partition_schema: pa.Schema) -> bool:
        """Return whether a segment may hold files that match, by what its head says of their paths."""
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
        What the scan is to return.
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
        """The files of the block that was pruned last that the catalog does not know in their current
        version."""
        self._partition_schema = pa.schema([])
        self._first: FileEntry | None = None
        """The first file of the scan, which settles its types."""
        self._names = StoredNames()
        self.has_failed = False
        """Whether there is a catalog that cannot be used."""

    def reader(self, request: SourceRequest) -> SegmentReader:
        """Return what reads the tables of the catalog for a run."""
        return self.home.reader(cache=self.cache, options=self._spec.options, metrics=request.reader.metrics)

    async def load(
        self, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int] | None:
        """Return the catalog and the round trips it took; None where it cannot be used, which the metrics
        say.

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
        metrics.warn(text, is_shown=True)
        warnings.warn(text, stacklevel=2)

    async def prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        """Return the block without the files that the catalog rules out, with what it knows of the others.

        The first file stays, as it settles the schema. Where the catalog turns out to be damaged, the block
        is returned as it is.
        """
        metrics = request.reader.metrics
        try:
            try:
                return await self._prune(block, snapshot, reader, request)
            except (IndexFormatError, ObjectNotFoundError):
                # Its objects may have been removed, and its file replaced, since the head was read.
                newer = await self.newer(snapshot, metrics)
                if newer is None:
                    raise
            snapshot, trips = newer
            block = replace(
                block, round_trips=block.round_trips + trips, catalog_trips=block.catalog_trips + trips
            )
            return await self._prune(block, snapshot, self.reader(request), request)
        except (IndexFormatError, StoreError) as error:
            self.pass_over(error, metrics)
            return block

    async def newer(self, snapshot: CatalogSnapshot, metrics: Metrics) -> tuple[CatalogSnapshot, int] | None:
        """Return the catalog as its head is now, and the round trips; None where the head is that of the
        snapshot."""
        self.home.forget(self.cache)
        try:
            found, trips = await self.home.load(self.cache, metrics)
        except (IndexFormatError, StoreError):
            return None
        return None if found.etag == snapshot.etag else (found, trips)

    async def load_first(
        self, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> None:
        """Load what the question is likely to take, as far as the names of its columns tell."""
        where, names, answers = self._spec.where, frozenset[str](), request.answers
        if where is not None and self._spec.selection is None and not self._spec.embedded:
            names = frozenset(column_text(column.path) for column in columns_of(where))
        fact_columns = None if answers is None else answers.fact_columns()
        if fact_columns is not None:
            from accel.catalog.asking.facts import column_texts

            names |= column_texts(fact_columns)
        await reader.load_first(snapshot, names, counts=fact_columns is not None)

    async def _prune(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        metrics = request.reader.metrics
        await self.load_first(snapshot, reader, request)
        places = await self._match(block, snapshot, reader)
        self.unknown = [*self.unknown, *(file for at, file in enumerate(block.files) if at not in places)]
        mappings = mappings_of(block.files)
        if not 0 < len(mappings) <= _MOST_MAPPINGS:
            return block
        first = block.files[0] if len(block.files) and request.declared is None else None
        if first is not None and 0 in places:
            (first,) = await self._with_metadata([(first, places[0])], reader)
        bound_question = await self.ask(first, block.partition_schema, reader, request, mappings=mappings)
        partitions: dict[str, FilePartitions] = {}
        if bound_question is not None and bound_question.constant:
            by_segment: dict[str, list[tuple[int, tuple[object, ...]]]] = {}
            for at, covered in places.items():
                values = covered.ordinal, block.files[at].partition
                by_segment.setdefault(covered.tables.segment.id, []).append(values)
            for one in snapshot.head.segments:
                found = by_segment.get(one.id, ())
                partitions[one.id] = FilePartitions.of_files(block.partition_schema, found, one.num_files)
        verdicts = await self.verdicts(bound_question, snapshot, partitions, reader, request)
        left: list[tuple[FileEntry, FilePlace | None]] = []
        left_at: list[int] = []
        dropped: dict[str, list[int]] = {}
        for at, file in enumerate(block.files):
            place = places.get(at)
            if (
                (at == 0 and first is not None)
                or place is None
                or verdicts is None
                or verdicts[place.tables.segment.id].may_match[place.ordinal]
            ):
                left.append((first if at == 0 and first is not None else file, place))
                left_at.append(at)
            else:
                dropped.setdefault(place.tables.segment.id, []).append(place.ordinal)
        files = await self.enrich(left, verdicts, reader, request)
        metrics.add("catalog_stale", len(block.files) - len(places))
        self.count(len(places), dropped, verdicts, metrics)
        return self.finish(block.with_files(files, left_at), files, snapshot, reader)

    def count(
        self,
        covered: int,
        dropped: Mapping[str, Sequence[int] | Int64s],
        verdicts: Mapping[str, Verdict] | None,
        metrics: Metrics,
    ) -> None:
        """Count files that the catalog covers, and those of them that it rules out: their ordinals by
        segment."""
        total = sum(map(len, dropped.values()))
        metrics.catalog.add(total=covered, kept=covered - total)
        metrics.files.add(total=total, kept=0)
        for segment, ordinals in dropped.items():
            verdict = (verdicts or {})[segment]
            numbers, counts = np.unique(verdict.dropped_by[ordinals], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                metrics.count_dropped(verdict.tables[number], files=count)

    def count_segments(self, segments: Sequence[Segment], metrics: Metrics) -> None:
        """Count segments that the catalog rules out as a whole, by the bounds of partition columns."""
        total = sum(one.num_live for one in segments)
        metrics.catalog.add(total=total, kept=0)
        metrics.files.add(total=total, kept=0)
        if total:
            metrics.count_dropped(Table.BOUNDS, files=total)

    async def enrich(
        self,
        files: Sequence[tuple[FileEntry, FilePlace | None]],
        verdicts: Mapping[str, Verdict] | None,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> list[FileEntry]:
        """Return files with the metadata that the catalog has of them, and with the rows that may match; with
        facts instead where these answer the question."""
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
        """Return where the catalog has the current version of each file, by its place in the block."""
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
            if directory is None or file.size is None:
                continue
            if file.version.is_same(FileVersion(directory.sizes[ordinal], directory.etags[ordinal])):
                places[at] = FilePlace(tables, ordinal)
        return places

    async def ask(
        self,
        first: FileEntry | None,
        partition_schema: pa.Schema,
        reader: SegmentReader,
        request: SourceRequest,
        *,
        mappings: Sequence[ColumnMapping | None] = (None,),
    ) -> BoundQuestion | None:
        """Return the question for the catalog; None where it cannot say what may match.

        Parameters
        ----------
        first : FileEntry or None
            The first file of the scan, whose schema is the scan's; None where the source declares one.
        partition_schema : pyarrow.Schema
            The columns that paths spell.
        mappings : sequence of ColumnMapping or None
            Those of all files that are asked about.
        """
        self._first = first
        self._partition_schema = partition_schema
        where = self._spec.where
        if where is None or self._spec.selection is not None or self._spec.embedded:
            return None
        from accel.predicate.bind import bind

        fingerprint: str | None = None
        schema = self._spec.schema or request.declared
        own: Collection[str] = ()
        if self._spec.unites and schema is None:
            return None  # the types of files that are not opened may decide
        if first is not None and (schema is None or len(partition_schema)):
            try:
                handle, opening = await request.reader.open(first)
            except AccelError:
                return None  # opened again in its turn, it says what is wrong
            # All that follows waits for it.
            reader.round_trips += opening
            own = frozenset(handle.arrow_schema.names)
            if schema is None:
                fingerprint = schema_fingerprint(handle.arrow_schema)
            schema = schema or request.reader.opener.schemas.of_rows(handle)
        try:
            columns = DataSet.of(
                schema or pa.schema([]), partition_schema, own=own, case_sensitive=self._spec.case_sensitive
            )
            constant = frozenset(columns.partition_names)
            data_set, _ = settle_schemas(columns.schema, None, alone=False, folded=True)
            where = spelled(self._spec, data_set).where or where
            bound = bind(where, data_set)
            types = self._type_check(data_set, constant, fingerprint, request, mappings=mappings)
        except AccelError:
            return None  # the scan itself says what is wrong
        names = tuple(column.path for column in bound.columns)
        stored = bound_to_stored(bound, mappings, constant=constant)
        if stored is None:
            return None
        bound = stored
        question = CatalogQuestion.of(where, bound, data_set=data_set, constant=constant, names=names)
        return BoundQuestion(question, constant & {column.path[0] for column in bound.columns}, types)

    def _type_check(
        self,
        data_set: pa.Schema,
        constant: frozenset[str],
        fingerprint: str | None,
        request: SourceRequest,
        *,
        mappings: Sequence[ColumnMapping | None] = (None,),
    ) -> TypeCheck:
        spec = spelled(self._spec, data_set)
        return TypeCheck.of(
            data_set,
            where=spec.where,
            columns=spec.columns,
            facts_of=None if request.answers is None else request.answers.fact_columns(),
            partition_names=sorted(constant),
            int96_unit=request.reader.opener.schemas.int96_unit,
            fingerprint=fingerprint,
            mappings=mappings,
            case_sensitive=spec.case_sensitive,
        )

    async def verdicts(
        self,
        bound_question: BoundQuestion | None,
        snapshot: CatalogSnapshot,
        partitions: Mapping[str, FilePartitions],
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Mapping[str, Verdict] | None:
        """Return what may match in each segment; None where that cannot be said.

        Parameters
        ----------
        bound_question : BoundQuestion or None
            As `ask` returns it.
        partitions : mapping
            By segment, the values that the paths of its files spell.
        """
        if bound_question is None:
            return None
        bound, constant = bound_question.question.bound, bound_question.constant
        of_paths = {key: one.bounds(bound, constant) for key, one in partitions.items()}
        verdicts: dict[str, Verdict] = {}
        left: list[SegmentTables] = []
        for tables in snapshot.tables:
            key = tables.segment.id
            if of_paths.get(key) and not prune(bound, of_paths[key], tables.segment.num_files).may_true.any():
                # No other table of it needs to be read.
                verdicts[key] = Verdict.of_none(tables.segment)
            else:
                left.append(tables)
        looked_up: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = [
            partial(SegmentReader.look_up, tables=one, question=bound_question.question) for one in left
        ]
        bounded: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = [
            partial(SegmentReader.find_bounds, tables=one, bound=bound, constant=constant) for one in left
        ]
        typed: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = [
            partial(bound_question.types.refused, one) for one in left
        ]
        found = await reader.side_by_side([*looked_up, *bounded, *typed])
        n = len(left)
        for tables, hits, matching, refused in zip(
            left, found[:n], found[n : 2 * n], found[2 * n :], strict=True
        ):
            own = of_paths.get(tables.segment.id, {})
            may_match = partial(tables.may_match, bound, matching, constant=constant, partition=own)
            verdict = Verdict.of(hits, may_match)
            if request.answers is not None and matching is None:
                all_match = tables.all_match(bound, constant=constant, partition=own)
                verdict = replace(verdict, all_match=all_match)
            verdicts[tables.segment.id] = verdict.with_refused(refused)
        return verdicts

    async def _with_facts(
        self,
        files: Sequence[tuple[FileEntry, FilePlace | None]],
        verdicts: Mapping[str, Verdict] | None,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Sequence[tuple[FileEntry, FilePlace | None]]:
        """Return the files, with facts where these answer a question about all rows."""
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
        from accel.catalog.asking.facts import answering_facts

        try:
            handle, opening = await request.reader.open(first)
        except AccelError:
            return files  # opened again in its turn, it says what is wrong
        reader.round_trips += opening
        if self._spec.schema is not None and not self._fits_given(handle, request):
            return files  # the scan itself says what is wrong
        found = await answering_facts(
            answers,
            [(files[at][0], place.tables, place.ordinal) for at, place in places.items()],
            handle,
            all_match=matching if filtered else None,
            case_sensitive=self._spec.case_sensitive,
            reader=reader,
        )
        out = list(files)
        for at, facts in zip(places, found, strict=True):
            file, place = files[at]
            if facts is not None:
                tail = None if file.facts is None else file.facts.tail
                out[at] = replace(file, facts=replace(facts, tail=tail)), place
        return out

    def _fits_given(self, first: FileHandle, request: SourceRequest) -> bool:
        """Return whether the columns of the first file widen to the schema that the caller gave.

        The types of the first file are those of the facts.
        """
        given, opener = self._spec.schema, request.reader.opener
        if given is None:
            return True
        from_paths = self._partition_schema
        extra = [f for f in from_paths if f.name not in given.names]
        constant = frozenset(from_paths.names) - frozenset(first.arrow_schema.names)
        try:
            data_set, _ = settle_schemas(pa.schema([*given, *extra]), None, alone=False, folded=True)
            types = self._type_check(data_set, constant, None, request)
        except AccelError:
            return False
        return types.fits(first.shared.schema, opener.schemas.of(first))

    async def _with_metadata(
        self, files: Sequence[tuple[FileEntry, FilePlace | None]], reader: SegmentReader
    ) -> list[FileEntry]:
        """Return the files with the metadata that the catalog has, where they come without facts."""
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
                    etag = place.directory.etags[place.ordinal]
                    facts = FileFacts(version=FileVersion(file.size, etag), tail=metadata[place.ordinal])
                    out[at] = replace(file, facts=facts)
        return out

    async def _with_rows(
        self,
        file: FileEntry,
        place: FilePlace,
        verdicts: Mapping[str, Verdict],
        request: SourceRequest,
    ) -> FileEntry:
        """Return the file with the rows that may match, where the catalog knows them."""
        verdict = verdicts[place.tables.segment.id]
        if file.facts is None or file.facts.all_match:
            return file
        if verdict.refused is not None and verdict.refused[place.ordinal]:
            return file
        if not verdict.hits and verdict.may_match[place.ordinal]:
            return file
        rows: Mapping[int, RowSelection] | None = {}
        if verdict.may_match[place.ordinal]:
            try:
                handle, _ = await request.reader.open(file)
            except AccelError:
                return file  # opened again in its turn, it says what is wrong
            current = file.facts.version.is_same(handle.version)
            metrics = request.reader.metrics
            if current:
                # Page indexes, which the cached handle may lack, say which rows a page has.
                request.reader.opener.grow_tail(file, handle)
            handle = self._names.view(handle, file.stored_columns)
            rows = rows_of(verdict.hits, place.ordinal, handle, metrics=metrics) if current else None
        return file if rows is None else replace(file, facts=replace(file.facts, may_match=rows))
