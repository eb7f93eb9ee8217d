"""The files that a source names, for an index over a table: one version of it is described, and files of
earlier ones stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from accel.cache.cache import Cache
from accel.errors import ObjectNotFoundError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry
from accel.reader.reader import Reader
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.client import Client
from accel.store.clients import Clients
from accel.store.location import url_in

if TYPE_CHECKING:
    from accel.scanning.file_source import SourceMaker

__all__ = ["NamedFiles", "name_files"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedFiles:
    """All files of a source, at one version."""

    files: tuple[FileEntry, ...]
    table: Mapping[str, Any]
    """`format`, `location` and `version` of a table; of another source its text."""

    @property
    def base(self) -> str:
        """The root of the store that the first file lies in."""
        root = self.files[0].root
        return f"{root}/" if "://" in root else url_in(root, "") or "/"


async def name_files(
    source: FileSource | SourceMaker,
    *,
    clients: Clients[Client],
    in_store: bool,
    options: Options,
    metrics: Metrics,
) -> NamedFiles:
    """Ask a source for all of its files.

    Raises
    ------
    ObjectNotFoundError
        It names none.
    AccelError
        As the source does.
    """
    named = source if isinstance(source, FileSource) else source.source()
    reader = Reader(clients, cache=Cache(), options=options, metrics=metrics)
    request = SourceRequest(reader=reader, in_store=in_store)
    request = replace(request, declared=await named.schema(request))
    files: list[FileEntry] = []
    async for block in named.blocks(request):
        files += block.files
    if not files:
        raise ObjectNotFoundError("the source names no file", path=str(source))
    facts = metrics.table
    table: dict[str, Any] = {"location": str(source)}
    if facts is not None:
        table = {"format": facts.format, "location": facts.location, "version": facts.version}
    return NamedFiles(files=tuple(files), table=table)
