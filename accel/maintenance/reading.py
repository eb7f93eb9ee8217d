"""Read the rows of files that are rewritten, in the types in which they are stored."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from accel.api import scan
from accel.cache.cache import Cache
from accel.decode.arrow import arrow_schema, shared_schema
from accel.errors import AccelError, ParquetFormatError
from accel.format.footer import ARROW_SCHEMA_KEY
from accel.format.model import ParquetSchema
from accel.maintenance.rewriting import Rewrite
from accel.metrics import Metrics
from accel.options import MIB, Options, check_options
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.reader.reader import Reader
from accel.runtime.tasks import ending
from accel.scanning.engine import Engine
from accel.scanning.file_source import FileSource, SourceRequest
from accel.scanning.scan import Scan
from accel.scanning.spec import check_arguments
from accel.store.clients import Connector
from accel.tables.path_source import PathSource
from accel.writing.stored_types import StoredTypes

__all__ = ["read_rows"]

_BLOCK: Final = 64
"""Files that are opened at once."""
_CACHE_BYTES: Final = 64 * MIB


def read_rows(urls: Sequence[str], rewrite: Rewrite, given: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Yield the rows of some files, in the types in which they are sorted and written.

    Parameters
    ----------
    urls : sequence of str
    rewrite : Rewrite
    given : mapping
        The store, its options, and accel's, as far as they are given.
    """
    schema = rewrite.stored.schema
    with contextlib.closing(_scan(urls, schema, rewrite.stored, given).to_batches()) as batches:
        for batch in batches:
            yield rewrite.plain(batch)


def _scan(urls: Sequence[str], schema: pa.Schema, stored: StoredTypes, given: Mapping[str, Any]) -> Scan:
    question: dict[str, Any] = {
        "columns": schema.names,
        "schema": schema,
        "partitioning": None,
        "glob": False,
    }
    if stored.is_plain:
        return scan(list(urls), index=None, cache=None, **question, **given)
    # Each file comes opened, and no other handle of it may be used.
    options = replace(check_options(given.get("options")), max_files_in_flight=1)
    store = given.get("store")
    connector = Connector(storage_options=given.get("storage_options"), store=store, options=options)
    spec = check_arguments(list(urls), options=options, **question)

    def make_source(spec: Any) -> FileSource:
        paths = PathSource(spec.source, partitioning=None, glob=False, in_store=store is not None)
        return _StoredFiles(paths, stored, options)

    return Scan(Engine(spec, connector, cache=None, make_source=make_source))


@dataclass(slots=True)
class _Stripped:
    """The schemas of the last file, which the next ones mostly have too."""

    schema: ParquetSchema | None = None
    key_value: Mapping[str, bytes] | None = None
    result: tuple[ParquetSchema, Mapping[str, bytes], pa.Schema] | None = None


class _StoredFiles(FileSource):
    """Files whose columns are read without the annotations that they get back when they are written."""

    def __init__(self, paths: PathSource, stored: StoredTypes, options: Options) -> None:
        self._paths = paths
        self._stored = stored
        self._options = options
        self._last = _Stripped()

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files in blocks; see `FileSource.blocks`."""
        async with ending(self._paths.blocks(request)) as blocks:
            async for block in blocks:
                for start in range(0, len(block.files), _BLOCK):
                    files = block.files[start : start + _BLOCK]
                    more = block.more or start + _BLOCK < len(block.files)
                    yield replace(block, files=tuple(await self._opened(request.reader, files)), more=more)

    async def _opened(self, reader: Reader, files: Sequence[FileEntry]) -> list[FileEntry]:
        # A cache of its own: the run must not find the handles in which nothing is stripped.
        cache = Cache(memory=_CACHE_BYTES, data=0)
        opener = Reader(reader.clients, cache=cache, options=self._options, metrics=Metrics())
        return [
            self._with_facts(file, handle)
            for file, handle in zip(files, await opener.open_all(files), strict=True)
        ]

    def _with_facts(self, file: FileEntry, handle: FileHandle) -> FileEntry:
        try:
            stripped = self._strip(handle)
        except AccelError as error:
            raise error.at(path=file.url) from error.__cause__
        facts = FileFacts(version=handle.version, handle=stripped, round_trips=0)
        return replace(file, size=handle.size, etag=handle.etag, facts=facts, pinned=True)

    def _strip(self, handle: FileHandle) -> FileHandle:
        schema, key_value, last = handle.shared.schema, handle.shared.key_value, self._last
        if last.schema is not schema or last.key_value != key_value:
            found = self._stored.strip(schema, handle.arrow_schema)
            result = None
            if found is not None:
                shared = shared_schema(found)
                pairs = _pairs(shared, schema, key_value)
                result = shared, pairs, arrow_schema(shared, pairs)
            last = self._last = _Stripped(schema, key_value, result)
        if last.result is None:
            return handle
        new, pairs, arrow = last.result
        metadata = replace(handle.metadata, schema=new, key_value=pairs)
        stripped = FileHandle(handle.id, metadata, arrow_schema=arrow, tail_start=handle.tail_start)
        stripped.set_tail(handle.tail, handle.tail_start)
        return stripped


def _pairs(
    stripped: ParquetSchema, schema: ParquetSchema, key_value: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Return the key-value pairs, of whose Arrow schema the columns stay that nothing is stripped of."""
    encoded = key_value.get(ARROW_SCHEMA_KEY)
    if encoded is None:
        return key_value
    changed = [one.raw != other.raw for one, other in zip(schema.elements, stripped.elements, strict=True)]
    columns = [at for at, top in enumerate(schema.fields) if any(changed[top : schema.subtree_ends[top]])]
    try:
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded, validate=True)))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise ParquetFormatError(
            f"the stored Arrow schema cannot be read: {error}", place="footer"
        ) from error
    if len(arrow) != len(schema.fields):
        return key_value  # pyarrow ignores it
    plain = arrow_schema(stripped, {})
    for at in columns:
        arrow = arrow.set(at, plain.field(at))
    return {**key_value, ARROW_SCHEMA_KEY: base64.b64encode(arrow.serialize().to_pybytes())}
