"""What an index is, and whether it is as the files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accel.catalog.describing import BoundsTable, FilesTable
from accel.catalog.head import CatalogHead, Table
from accel.catalog.kinds.registry import index_of_table, indexes_of
from accel.catalog.verbs import IndexCall, Path
from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.options import Options
from accel.runtime import io_loop
from accel.runtime.time_limits import time_limit
from accel.versions import FileVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from accel.catalog.building.builder import CatalogBuilder
    from accel.planning.file_entry import FileEntry
    from accel.planning.handle import FileHandle
    from accel.scanning.file_source import FileSource, SourceMaker

__all__ = [
    "IndexDescription",
    "IndexDifferences",
    "SegmentDescription",
    "TableDescription",
    "check_index_exists",
    "inspect_index",
    "verify_index",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """One segment of an index."""

    id: str
    files: int
    dropped: int
    """Files that were removed or replaced since it was written."""
    nbytes: int
    inline: bool
    """The head holds all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """One table of an index, over all segments."""

    table: str
    """"files", "bounds", or a kind and what it is of."""
    rows: int
    nbytes: int
    uncovered: int
    """Files of which it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDescription:
    """What an index covers, and what it consists of."""

    index: str
    base: str
    """The directory that it covers."""
    table: Mapping[str, Any] | None
    """The `format`, `location` and `version` of the table that it was built over; None for a directory."""
    generation: int
    """The number of commits so far."""
    files: int
    rows: int
    data_nbytes: int
    """Bytes of the files."""
    nbytes: int
    """Bytes of its objects, without the head."""
    columns: tuple[str, ...] | None
    """The columns that have bounds; None for all."""
    indexes: Mapping[str, Sequence[str]]
    """The kinds of index by what they are of."""
    tables: tuple[TableDescription, ...]
    retired: int
    """Objects that `vacuum` is going to remove."""
    segments: tuple[SegmentDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDifferences:
    """How an index and the files differ."""

    index: str
    checked: int
    """Files that were compared."""
    missing: tuple[str, ...] = ()
    """Files that are not in the index."""
    gone: tuple[str, ...] = ()
    """Files that the index has and that are not there."""
    replaced: tuple[str, ...] = ()
    """Files that are there in another version."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Files of which the index says what is not so."""

    @property
    def is_empty(self) -> bool:
        """Whether they do not differ."""
        return not (self.missing or self.gone or self.replaced or self.wrong)


def inspect_index(
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexDescription:
    """Return what an index covers, and what it consists of.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    store, storage_options, options, timeout
        As of `accel.build_index`.

    Returns
    -------
    IndexDescription

    Raises
    ------
    StoreError, IndexFormatError
        As `accel.refresh_index` does.
    """
    with time_limit(timeout, index):
        call = _inspect(IndexCall(store, storage_options, options), index)
        del index, store, storage_options  # so that no traceback shows what they hold
        return io_loop.run(call)


def check_index_exists(
    index: Path, *, storage_options: Mapping[str, Any] | None = None, options: Options | None = None
) -> None:
    """Raise ObjectNotFoundError where there is no index; one that is damaged, or cannot be reached, is
    there."""
    work = IndexCall(None, storage_options, options)
    del storage_options  # so that no traceback shows what it holds
    try:
        io_loop.run(work.home(index).read_head(Metrics()))
    except ObjectNotFoundError as error:
        error.hint = "build it, or leave the option `index` out"
        raise
    except AccelError:
        return


async def _inspect(work: IndexCall, index: Path) -> IndexDescription:
    metrics, home = Metrics(), work.home(index)
    del index
    snapshot, _ = await home.read_head(metrics)
    head = snapshot.head
    rows = size = 0
    for tables in snapshot.tables:
        reader = home.reader(cache=None, options=work.options, metrics=metrics)
        files = await reader.read_columns(tables, Table.FILES, ["size", "num_rows"])
        live = tables.live().tolist()
        for is_live, one_size, one_rows in zip(
            live, files.column(0).to_pylist(), files.column(1).to_pylist(), strict=True
        ):
            if is_live:
                size, rows = size + one_size, rows + one_rows
    segments = tuple(
        SegmentDescription(
            id=segment.id,
            files=segment.num_live,
            dropped=len(segment.dropped),
            nbytes=segment.object_bytes,
            inline=all(one.content is not None for one in segment.objects.values()),
        )
        for segment in head.segments
    )
    return IndexDescription(
        index=str(home),
        base=home.base_url(head),
        table=head.table,
        generation=head.generation,
        files=head.num_files,
        rows=rows,
        data_nbytes=size,
        nbytes=sum(one.nbytes for one in segments),
        columns=head.columns,
        indexes=head.indexes,
        tables=_tables(head),
        retired=len(head.retired),
        segments=segments,
    )


def _tables(head: CatalogHead) -> tuple[TableDescription, ...]:
    names = [Table.FILES, Table.BOUNDS, *(index.table for index in indexes_of(head.indexes))]
    found = []
    for name in names:
        objects = [segment.objects[name] for segment in head.segments if name in segment.objects]
        outside = 0
        for segment in head.segments:
            covered = segment.covered_by(name)
            covered[list(segment.dropped)] = True
            outside += int((~covered).sum())
        found.append(
            TableDescription(
                table=name,
                rows=sum(one.num_rows for one in objects),
                nbytes=sum(one.size for one in objects),
                uncovered=outside,
            )
        )
    return tuple(found)


def verify_index(
    index: Path,
    *,
    source: FileSource | SourceMaker | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexDifferences:
    """Compare an index with the files: the list of them, and, for each file, all that the index says of it.

    It opens every file, and reads the columns that have an index.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    source : table or FileSource, optional
        What the index was built over, where it is no directory. Files of other versions are passed over.
    store, storage_options, options, timeout
        As of `accel.build_index`.

    Returns
    -------
    IndexDifferences

    Raises
    ------
    StoreError, IndexFormatError
        As `accel.refresh_index` does.
    """
    with time_limit(timeout, index):
        call = _verify(IndexCall(store, storage_options, options), index, source)
        del index, store, storage_options  # so that no traceback shows what they hold
        return io_loop.run(call)


async def _verify(work: IndexCall, index: Path, source: FileSource | SourceMaker | None) -> IndexDifferences:
    metrics, home = Metrics(), work.home(index)
    builder = work.builder(index) if source is None else await work.builder_over(source, home)
    del index
    snapshot, _ = await home.read_head(metrics)
    current, _ = await builder.list_files(snapshot.head)
    seen: set[str] = set()
    gone: list[str] = []
    replaced: list[str] = []
    wrong: dict[str, str] = {}
    for tables in snapshot.tables:
        reader = home.reader(cache=None, options=work.options, metrics=metrics)
        directory = await reader.load_directory(tables)
        files = await reader.whole_table(tables, Table.FILES)
        bounds = await reader.whole_table(tables, Table.BOUNDS)
        num_files = tables.segment.num_files
        stored = {
            one.table: one.by_file(await reader.whole_table(tables, one.table), num_files)
            for one in indexes_of(snapshot.head.indexes)
            if one.table in tables.segment.objects
        }
        live = tables.live().tolist()
        for ordinal, path in enumerate(directory.paths):
            if not live[ordinal]:
                continue
            file = current.get(path)
            if file is None and source is not None:
                continue  # of another version
            seen.add(path)
            if file is None:
                gone.append(path)
                continue
            covered_version = FileVersion(directory.sizes[ordinal], directory.etags[ordinal])
            if not file.version.is_same(covered_version):
                replaced.append(path)
                continue
            handle = await builder.describer.open(file)
            if isinstance(handle, AccelError):
                wrong[path] = str(handle)
                continue
            if not covered_version.is_same(handle.version):
                replaced.append(path)  # since it was listed
                continue
            rows, expected = FilesTable(), BoundsTable(snapshot.head.columns)
            rows.add(path, handle)
            expected.add([(ordinal, handle)])
            if rows.finish() != files.slice(ordinal, 1).combine_chunks():
                wrong[path] = "the index has other metadata of it"
            elif expected.finish() != bounds.filter(_are(bounds, ordinal)).combine_chunks():
                wrong[path] = "the index has other bounds of it"
            else:
                for table, by_file in stored.items():
                    covered = bool(tables.segment.covered_by(table)[ordinal])
                    try:
                        same = not covered or await _is_of(by_file, table, ordinal, file, handle, builder)
                    except (ObjectChangedError, ObjectNotFoundError):
                        replaced.append(path)  # while it was read
                        break
                    if not same:
                        wrong[path] = f"the index has other {table} of it"
    return IndexDifferences(
        index=str(home),
        checked=len(seen) - len(gone) - len(replaced),
        missing=tuple(sorted(current.keys() - seen)),
        gone=tuple(gone),
        replaced=tuple(replaced),
        wrong=wrong,
    )


async def _is_of(
    by_file: Sequence[pa.Table],
    table: str,
    ordinal: int,
    file: FileEntry,
    handle: FileHandle,
    builder: CatalogBuilder,
) -> bool:
    """Return whether the rows of a table about a file are those that it has when it is read anew."""
    index = index_of_table(table)
    if index is None:
        return True
    fresh = index.builder()
    await builder.describer.add_values([(index, fresh)], ordinal, file, handle)
    found = fresh.finish()
    own = by_file[ordinal]
    rows = None if found is None else found.in_memory()
    fresh.close()
    again = own.slice(0, 0) if rows is None else index.by_file(rows, len(by_file))[ordinal]
    return ordinal not in fresh.uncovered and _are_same(again, own)


def _are_same(one: pa.Table, other: pa.Table) -> bool:
    if one.equals(other):
        return True
    # NaN is not equal to itself there, and zeros of either sign are one value, of which a merge leaves any.
    rows = [{_as_text(row) for row in table.to_pylist()} for table in (one, other)]
    return bool(one.schema.equals(other.schema)) and rows[0] == rows[1]


def _as_text(row: Mapping[str, Any]) -> str:
    return repr([0.0 if isinstance(value, float) and value == 0 else value for value in row.values()])


def _are(bounds: Any, ordinal: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(bounds.column("file"), ordinal)
