"""`accel inspect`: show the layout of files, and what would make them faster."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from accel.cache.cache import Cache
from accel.cli.arguments import UsageError, accel_options, storage_options
from accel.cli.inspected_table import InspectedTable, described, inspect_table, print_table_facts
from accel.cli.layout import EmbeddedLayout, FileLayout, Indexes, advise, describe_layout
from accel.cli.layout_page import layout_page, map_layout
from accel.cli.output import print_json, say, say_warnings, write_page
from accel.cli.terminal import GAP, console_for, count_of, print_table
from accel.cli.values import safe_text
from accel.errors import IndexFormatError, redact
from accel.format.embedded import verify_blob, verify_head
from accel.indexes.registry import find_kind, guarded
from accel.metrics import Metrics
from accel.options import MIB
from accel.pictures.document import byte_count
from accel.pictures.file_map import FileMap
from accel.planning.file_entry import FileBlock
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.reader.reader import Reader
from accel.runtime import io_loop
from accel.store.client import Client
from accel.store.clients import Connector
from accel.tables.foreign_tables import ForeignTableError, is_all_of
from accel.tables.path_source import PathRules, discover
from accel.tables.table import Table
from accel.tables.table_formats import format_titled, settle_source, table_at
from accel.writing.report import idle_warnings

__all__ = ["run_inspect"]

# Larger page indexes are not read just to be described.
_MOST_INDEX_BYTES = 64 * MIB
_MOST_FILES = 20
_NO_FILES = FileBlock((), pa.schema([]), 0)
_LONGEST_IDLE = 64 * 1024
"""Bytes of an index or its head; an index that rules nothing out has no more."""


def run_inspect(given: argparse.Namespace) -> None:
    """Print the layout of each file, or of the first few files of a directory."""
    metrics = Metrics()
    table, listing, found = io_loop.run(_inspect(given, metrics))
    layouts = [layout for layout, _ in found]
    if table is not None:
        if given.html is not None:
            raise UsageError("--html draws files: this is a table (see what it says without --html)")
        if given.json:
            print_json(described(table))
        else:
            print_table_facts(table)
        say_warnings(metrics)
        if given.verbose:
            say(f"{count_of(metrics.requests, 'request')}, {byte_count(metrics.bytes)}")
        return
    if given.html is not None:
        write_page(given.html, layout_page(found))
    for layout in layouts if given.html is None else ():
        if given.json:
            shown = {**dataclasses.asdict(layout), "url": redact(layout.url), "advice": advise(layout)}
            print_json(shown)
        else:
            _print(layout, row_groups=given.row_groups)
    left = len(listing.files) - len(layouts)
    if left:
        say(f"{left:,} more files are not shown: name the one to inspect")
    say_warnings(metrics)
    if given.verbose:
        say(f"{count_of(metrics.requests, 'request')}, {byte_count(metrics.bytes)}")


async def _inspect(
    given: argparse.Namespace, metrics: Metrics
) -> tuple[InspectedTable | None, FileBlock, list[tuple[FileLayout, FileMap]]]:
    options = accel_options(given)
    clients = Connector(storage_options=storage_options(given), store=None, options=options)
    reader = Reader(clients, cache=Cache(), options=options, metrics=metrics)
    named: Any = given.source[0] if len(given.source) == 1 else given.source
    arguments = {"table": None if given.table == "none" else given.table}
    settled, _ = settle_source(
        named, arguments, catalog=given.catalog, version=given.version, timestamp=given.timestamp
    )
    if isinstance(settled, Table):
        clients.otherwise(lambda: settled.storage_options or settled.vended_options)
        return await inspect_table(settled, reader), _NO_FILES, []
    rules = PathRules(partitioning=None, glob=not given.no_glob, as_files=given.table == "none")
    list_files = partial(discover, given.source, clients=clients, metrics=metrics)
    try:
        listing = await list_files(rules=rules)
    except ForeignTableError as error:
        found = format_titled(error.table.format)
        if found is not None and isinstance(named, str) and is_all_of(error.table, named):
            return await inspect_table(table_at(found.name, named), reader), _NO_FILES, []
        # What the files hold is meant, not the rows of a table.
        listing = await list_files(rules=dataclasses.replace(rules, as_files=True))
    layouts = []
    for file in listing.files[:_MOST_FILES]:
        handle, _ = await reader.open(file)
        if handle.bad_toc is not None:
            metrics.warn(str(handle.bad_toc.at(path=redact(file.url))))
        indexes = await _read_indexes(reader.client(file.root), handle, metrics)
        short = await _shortcomings(reader.client(file.root), handle, metrics)
        layout = describe_layout(file.url, handle, indexes=indexes, shortcomings=short)
        layouts.append((layout, map_layout(redact(file.url), handle, indexes.offset)))
    return None, listing, layouts


async def _read_indexes(client: Client, handle: FileHandle, metrics: Metrics) -> Indexes:
    """Read all page indexes of a file in one wave; one that does not verify counts as absent, with a
    warning."""
    chunks = handle.metadata.chunks
    wants: list[Want] = []
    for kind, lengths in (
        (Kind.OFFSET_INDEX, chunks.offset_index_length),
        (Kind.COLUMN_INDEX, chunks.column_index_length),
    ):
        for group, leaf in np.argwhere(lengths > 0).tolist():
            wants += index_want(chunks, kind, group, leaf)
    if sum(want.range.length for want in wants) > _MOST_INDEX_BYTES:
        return Indexes(offset={}, column={}, read=False)
    data = {want.key: part for want in wants if (part := handle.in_tail(want.range)) is not None}
    missing = [want for want in wants if want.key not in data]
    data.update(await client.read(handle.id.path, missing, pin=handle.id, metrics=metrics))
    take_page_indexes(handle, wants, stash=data, on_bad_index=lambda error: metrics.warn(str(error)))
    return Indexes(
        offset={at: index for at, index in handle.view.offset_indexes.items() if index is not None},
        column={at: index for at, index in handle.view.column_indexes.items() if index is not None},
        read=True,
    )


async def _shortcomings(client: Client, handle: FileHandle, metrics: Metrics) -> dict[int, str]:
    """Return why embedded indexes rule nothing out, by their place in the table. Only short ones can be
    idle."""
    wants: dict[int, Want] = {}
    for at, entry in enumerate(handle.toc.entries if handle.toc is not None else ()):
        length = entry.head or entry.length
        kind = find_kind(entry.kind, entry.version)
        if length <= _LONGEST_IDLE and kind is not None:
            where = ByteRange(entry.offset, entry.offset + length)
            wants[at] = Want(ReadKey(Kind.INDEX, entry.row_group, at), where)
    if handle.toc is None or sum(want.range.length for want in wants.values()) > _MOST_INDEX_BYTES:
        return {}
    data = await client.read(handle.id.path, list(wants.values()), pin=handle.id, metrics=metrics)
    found: dict[int, str] = {}
    for at, want in wants.items():
        entry = handle.toc.entries[at]
        kind = find_kind(entry.kind, entry.version)
        if kind is None:
            continue
        try:
            (verify_head if entry.head else verify_blob)(entry, data[want.key])
            shortcoming = guarded(kind.shortcoming, bytes(data[want.key]), units=entry.units)
        except IndexFormatError as error:
            metrics.warn(str(error.at(path=redact(handle.id.path))))
        else:
            if shortcoming is not None:
                found[at] = shortcoming
    return found


def _print(file: FileLayout, *, row_groups: bool) -> None:
    console = console_for(sys.stdout)

    def show(name: str, text: str) -> None:
        console.print(f"  {name:<11}{safe_text(text)}", no_wrap=True, crop=False, overflow="ignore")

    console.print(safe_text(redact(file.url)), style="bold", no_wrap=True, crop=False, overflow="ignore")
    show("size", f"{byte_count(file.size)} ({file.size:,} bytes)")
    show("written by", f"{file.created_by or 'unknown'}, format version {file.version}")
    groups = len(file.row_groups)
    show("rows", f"{file.rows:,} in {groups:,} row group{'' if groups == 1 else 's'}")
    show("footer", _footer(file))
    if file.sorting:
        show("sorted by", f"{', '.join(file.sorting)} (declared)")
    if file.key_value:
        show("metadata", ", ".join(f"{name} ({byte_count(n)})" for name, n in file.key_value.items()))
    for index in file.embedded:
        show("index", _index(index))
        for warning in idle_warnings([index]):
            show("note", warning)
    if not file.indexes_read:
        show("note", "the page indexes were not read for their size: pages are counted by the footer")
    console.print()
    _print_columns(console, file)
    if row_groups:
        console.print()
        rows = [
            [f"{i}", f"{g.rows:,}", byte_count(g.compressed), byte_count(g.uncompressed)]
            for i, g in enumerate(file.row_groups)
        ]
        print_table(console, ["row group", "rows", "compressed", "uncompressed"], rows, numeric=[True] * 4)
    advice = advise(file)
    console.print()
    if advice:
        console.print("what would make it faster", style="bold")
    for line in advice or ["nothing to advise"]:
        console.print(f"  - {line}" if advice else f"  {line}", soft_wrap=not sys.stdout.isatty())


def _index(index: EmbeddedLayout) -> str:
    took = "" if index.seconds is None else f", {index.seconds:.3f} s to build"
    over = f" ({index.units:,})" if index.units > 1 else ""
    return f"{index.kind} of {index.column} by {index.level}{over}, {byte_count(index.bytes)}{took}"


def _footer(file: FileLayout) -> str:
    parts = [byte_count(file.footer_bytes)]
    parts.append(f"page indexes {byte_count(file.index_bytes)}" if file.index_bytes else "no page index")
    if file.bloom_bytes:
        parts.append(f"bloom filters {byte_count(file.bloom_bytes)}")
    parts.append(f"one read of {byte_count(file.tail_bytes)} opens it")
    return ", ".join(parts)


_HEADERS = (
    "column",
    "type",
    "codec",
    "encodings",
    "pages",
    "compressed",
    "raw",
    "nulls",
    "min",
    "max",
    "order",
)
_VALUES = _HEADERS.index("nulls")
_NUMBERS = ("pages", "compressed", "raw", "nulls")


def _print_columns(console: Any, file: FileLayout) -> None:
    groups = len(file.row_groups)
    rows: list[list[str | None]] = []
    for c in file.columns:
        extras = [c.order if c.overlap is not None else "-"]
        if c.blooms:
            extras.append("bloom" if c.blooms == groups else f"bloom {c.blooms}/{groups}")
        if c.offset_indexes < groups and file.index_bytes:
            extras.append(f"index {c.offset_indexes}/{groups}")
        rows.append(
            [
                c.name,
                c.type if len(c.type) <= 24 else c.type[:23] + "…",
                ",".join(c.codecs).lower(),
                ",".join(_short(e) for e in c.encodings) + (" (fallback)" if c.dictionary_fallbacks else ""),
                "?" if c.pages is None else f"{c.pages:,}",
                byte_count(c.compressed),
                byte_count(c.uncompressed),
                "?" if c.nulls is None else f"{c.nulls:,}",
                "?" if c.min is None else c.min,
                "?" if c.max is None else c.max,
                ", ".join(extras),
            ]
        )
    widths = [max(len(name), *(len(row[i] or "") for row in rows), 0) for i, name in enumerate(_HEADERS)]
    if sum(widths) + GAP * (len(widths) - 1) <= console.width:
        parts = [list(range(len(_HEADERS)))]
    else:
        # Two tables, each half as wide: sizes, then values.
        parts = [list(range(_VALUES)), [0, *range(_VALUES, len(_HEADERS))]]
    for n, part in enumerate(parts):
        if n:
            console.print()
        print_table(
            console,
            [_HEADERS[i] for i in part],
            [[row[i] for i in part] for row in rows],
            numeric=[_HEADERS[i] in _NUMBERS for i in part],
        )


def _short(encoding: str) -> str:
    names = {"PLAIN_DICTIONARY": "dict", "RLE_DICTIONARY": "dict", "DELTA_BINARY_PACKED": "delta"}
    return names.get(encoding, encoding.lower())
