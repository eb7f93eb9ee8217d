"""The tables of segments that are Parquet objects, read by accel's own scan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.head import REBUILD, Segment, SegmentObject
from accel.catalog.segments import MatchingFiles
from accel.errors import AccelError, IndexFormatError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options, Phases
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound
from accel.predicate.expr import Expr
from accel.ranges import ByteRange, Suffix
from accel.scanning.engine import Engine, read_all
from accel.scanning.file_source import FileSource, SourceRequest
from accel.scanning.spec import ScanSpec
from accel.store.client import Client
from accel.store.clients import Clients, Connector
from accel.store.range_store import Payload
from accel.versions import FileVersion

__all__ = ["ObjectTables", "read_file"]

_NO_COLUMNS = pa.schema([])


class ObjectTables:
    """The `TableReader` of a catalog whose segments are Parquet objects.

    Parameters
    ----------
    client : Client
        Of the store that the catalog lies in.
    directory : str
        The path of the catalog in that store, with a slash at its end where it has a name.
    cache : Cache or None
        Where bytes of segments are cached.
    options : Options
    metrics : Metrics
        Counts the requests.
    """

    def __init__(
        self, client: Client, directory: str, *, cache: Cache | None, options: Options, metrics: Metrics
    ) -> None:
        self._client = client
        self._directory = directory
        self._cache = cache
        # A second trip would save few bytes: a lookup wants a page of each column.
        self._options = replace(options, phases=Phases.ONE)
        self._metrics = metrics

    def schema(self, segment: Segment, table: str) -> pa.Schema:
        """Return the columns of a table; see `TableReader.schema`."""
        return segment.objects[table].schema

    def inline_bytes(self, segment: Segment, table: str, column: str) -> int | None:
        """Return the bytes of a column that takes no request to read; see `TableReader.inline_bytes`."""
        one = segment.objects[table]
        if one.content is None:
            return None
        metadata = one.footer
        leaf = metadata.schema.names.index(column)
        return int(metadata.chunks.uncompressed[:, leaf].sum())

    def compares(self, segment: Segment, column: str) -> bool:
        """Return False, as a store compares nothing; see `TableReader.compares`."""
        return False

    async def matching(
        self, segment: Segment, bound: Bound, *, constant: frozenset[str]
    ) -> MatchingFiles | None:
        """Return the files that the home itself finds left; see `TableReader.matching`."""
        return None

    async def read(
        self,
        segment: Segment,
        table: str,
        columns: Sequence[str],
        *,
        where: Expr | None = None,
        rows: RowSelection | None = None,
    ) -> tuple[pa.Table, int]:
        """Read columns of the rows that match; see `TableReader.read`."""
        one = segment.objects[table]
        clients, entry = self._place(one)
        selection = None
        if rows is not None:
            selection = {entry.url: _by_group(rows, one)}
        metrics = Metrics()
        try:
            _ = one.footer  # refuses other rows than the head tells of
            found = await read_file(
                entry,
                clients,
                columns=columns,
                where=where,
                selection=selection,
                cache=self._cache,
                options=self._options,
                metrics=metrics,
            )
        except (ObjectChangedError, ObjectNotFoundError) as error:
            raise IndexFormatError(
                f"the object {one.name} of the catalog is not there any more, or not as its head says",
                hint="refresh the index",
            ) from error
        except StoreError:
            raise
        except AccelError as error:
            raise IndexFormatError(
                f"the object {one.name} of the catalog is damaged: {error}",
                hint=REBUILD,
            ) from error
        finally:
            if one.content is None:
                self._metrics.absorb(metrics)
        if found.schema.names != list(columns):
            raise IndexFormatError(f"the table {table} of the catalog lacks columns")
        expected = one.num_rows if rows is None else rows.count
        if where is None and found.num_rows != expected:
            raise IndexFormatError(
                f"{found.num_rows} rows of the object {one.name} came where there are {expected}"
            )
        return found, metrics.round_trips if one.content is None else 0

    def _place(self, one: SegmentObject) -> tuple[Clients[Client], FileEntry]:
        if one.content is not None:
            store = _Content(one.content)
            connector = Connector(storage_options=None, store=store, options=self._options)
            etag = store.etag
            clients: Clients[Client] = connector
            root = "store:"
        else:
            if one.etag is None:
                raise IndexFormatError(f"the catalog does not tell the version of its object {one.name}")
            etag, root = one.etag, self._client.root
            clients = _OneClient(self._client)
        path = one.name if one.content is not None else self._directory + one.name
        facts = FileFacts(version=FileVersion(one.size, etag), tail=one.tail)
        return clients, FileEntry(root, path, path, one.size, etag, facts=facts, pinned=True)


class _OneClient:
    """The client of the store of an index, whatever store is meant."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def client(self, root: str, /) -> Client:
        return self._client


def _by_group(rows: RowSelection, one: SegmentObject) -> dict[int, RowSelection]:
    """Return rows of a table by the row groups of its footer."""
    out: dict[int, RowSelection] = {}
    start = 0
    for group, size in enumerate(one.footer.group_rows.tolist()):
        inside = rows.intersect(RowSelection.of([(start, start + size)]))
        if inside:
            out[group] = RowSelection.of([(a - start, b - start) for a, b in inside])
        start += size
    return out


async def read_file(
    entry: FileEntry,
    clients: Clients[Client],
    *,
    columns: Sequence[str],
    where: Expr | None = None,
    selection: Mapping[str, Mapping[int, RowSelection]] | None = None,
    cache: Cache | None,
    options: Options,
    metrics: Metrics,
) -> pa.Table:
    """Scan one file whose version is known, on the I/O loop."""
    spec = ScanSpec(
        source=entry.url,
        where=where,
        columns=tuple(columns),
        selection=selection,
        partitioning=None,
        options=options,
    )
    engine = Engine(spec, clients, cache=cache, make_source=lambda _: _OneObject(entry))
    return await read_all(engine.start(metrics))


class _OneObject(FileSource):
    """A single object whose version and metadata are known."""

    def __init__(self, entry: FileEntry) -> None:
        self._entry = entry

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        yield FileBlock((self._entry,), _NO_COLUMNS, 0)


class _Content:
    """A RangeStore of one object in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.etag = '"inline"'

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        size = len(self._content)
        if isinstance(want, Suffix):
            want = ByteRange(max(0, size - want.length), size)
        data = memoryview(self._content)[want.start : want.end]
        return Payload(data, ByteRange(want.start, want.start + len(data)), size, self.etag)
