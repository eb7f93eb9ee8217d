"""How the files of a rewritten table are laid out, and the writer that cuts rows into such files."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import bytes_of
from accel.options import KIB, MIB, Options
from accel.predicate.kinds import native
from accel.writing.sort_order import SortKey, sorting_columns
from accel.writing.stored_types import StoredTypes
from accel.writing.survey import report_on
from accel.writing.table_writer import (
    BloomColumns,
    RowGroups,
    bloom_options,
    check_writer_settings,
    file_settings,
)
from accel.writing.wanted import Indexes

__all__ = ["FileCutter", "Layout", "Preset", "RowFacts", "WrittenFile"]

TARGET_FILE_SIZE: Final = 128 * MIB
_LARGEST_FILE: Final = 4096 * MIB
"""S3 copies no object above 5 GB by itself."""
_MANY: Final = 1 << 16
"""Distinct values that are counted one by one; more may be any number."""


class Preset(enum.StrEnum):
    """What the files are read for."""

    SCAN = "scan"
    """Large reads and small ones: the pages that `write_table` makes."""
    RANDOM_ACCESS = "random-access"
    """Single rows: small pages and dictionaries, so that a row costs few bytes of each column; the metadata
    is larger."""


_PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    Preset.SCAN: {"row_group_size": 1 << 20, "page_rows": 10_000},
    Preset.RANDOM_ACCESS: {
        "row_group_size": 1 << 18,
        "page_rows": 1_000,
        "data_page_size": 16 * KIB,
        "dictionary_pagesize_limit": 16 * KIB,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of new files."""

    target_file_size: int
    row_group_size: int
    blooms: BloomColumns
    indexes: Indexes
    writer: Mapping[str, Any] = field(default_factory=dict)
    """Options of pyarrow's writer."""

    @classmethod
    def of(
        cls,
        preset: Preset | str,
        *,
        target_file_size: int | None,
        row_group_size: int | None,
        page_rows: int | None,
        blooms: BloomColumns | None,
        indexes: Indexes | None,
        writer: Mapping[str, Any],
    ) -> Layout:
        """Return the layout of a preset, with what the caller changes in it.

        Raises
        ------
        ValueError, TypeError
            There is no such preset, or a number is out of range.
        """
        if preset not in set(Preset):
            raise ValueError(f"preset is one of {', '.join(Preset)}, not {preset!r:.80}")
        check_writer_settings(page_rows=page_rows, blooms=blooms, pyarrow_options=writer)
        chosen = dict(_PRESETS[Preset(preset)])
        rows = _number("row_group_size", row_group_size, chosen.pop("row_group_size"))
        pages = _number("page_rows", page_rows, chosen.pop("page_rows"))
        size = _number("target_file_size", target_file_size, TARGET_FILE_SIZE)
        if size > _LARGEST_FILE:
            raise ValueError(f"target_file_size is at most {_LARGEST_FILE}, not {size}")
        return cls(
            target_file_size=size,
            row_group_size=rows,
            blooms=[] if blooms is None else blooms,
            indexes={} if indexes is None else indexes,
            writer={**file_settings(page_rows=pages), **chosen, **writer},
        )

    def check(self, schema: pa.Schema) -> None:
        """Raise ValueError or TypeError for bloom filters of columns that cannot have them."""
        bloom_options(schema.empty_table(), self.blooms, row_group_size=1)


def _number(name: str, given: Any, default: int) -> int:
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{name} is a whole number, not {given!r:.80}")
    if not 0 < int(given) < 1 << 62:
        raise ValueError(f"{name} is above 0, not {given!r:.80}")
    return int(given)


class RowFacts:
    """The facts about the rows that are needed before the first file is begun. Without rows nothing is
    assumed about them.

    Parameters
    ----------
    blooms : sequence or mapping
        The columns that get bloom filters.
    """

    def __init__(self, blooms: BloomColumns) -> None:
        names = [blooms] if isinstance(blooms, str) else blooms
        self._values: dict[str, pa.Array | None] = dict.fromkeys(names)
        self._countable = set(names)
        self._keys: list[SortKey] = []
        self.num_rows = 0

    def add(self, rows: pa.Table, keys: Sequence[SortKey]) -> None:
        """Note some rows, and their columns to sort by."""
        self.num_rows += len(rows)
        before = self._keys or keys
        empty = pa.chunked_array([], pa.null())
        self._keys = [
            replace(key, settled=key.settled and old.settled, values=empty)
            for key, old in zip(keys, before, strict=True)
        ]
        for name in sorted(self._countable):
            # pyarrow has no distinct values of dictionaries and extensions.
            parts = [native(chunk) for chunk in rows.column(name).chunks]
            seen = self._values[name]
            if seen is not None:
                parts.append(seen)
            if not parts:
                continue
            values = pc.unique(pa.chunked_array(parts))
            self._values[name] = values
            if len(values) > _MANY:
                self._countable.discard(name)
                self._values[name] = None

    def most_distinct(self, name: str, rows: int) -> int:
        """Return how many values of a column a row group may have at most."""
        seen = self._values[name]
        return rows if seen is None else max(1, min(rows, len(seen)))

    @property
    def keys(self) -> Sequence[SortKey]:
        """The columns that the rows are sorted by, as far as files may declare it."""
        return self._keys


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A new file."""

    name: str
    rows: int
    size: int
    warnings: tuple[str, ...] = ()


OpenFile = Callable[[str], contextlib.AbstractContextManager[BinaryIO]]
"""Opens a local file that becomes the new file of a name when the context ends well."""


class FileCutter:
    """Writes rows that come in order as files of about one size. A context manager; an error leaves no file
    half written.

    Parameters
    ----------
    layout : Layout
    open_file : callable
    name : callable
        The name of the file of a number.
    facts : RowFacts
        About all rows, or about none.
    stored : StoredTypes
        How the rows are stored, and what readers of Arrow find in the files.
    options : Options
    written : sequence of WrittenFile
        Files of the same rows that are complete; only rows behind theirs come.
    complete : callable, optional
        Called with each file that is complete.
    """

    def __init__(
        self,
        layout: Layout,
        open_file: OpenFile,
        *,
        name: Callable[[int], str],
        facts: RowFacts,
        stored: StoredTypes,
        options: Options,
        written: Sequence[WrittenFile] = (),
        complete: Callable[[WrittenFile], None] | None = None,
    ) -> None:
        self._layout = layout
        self._open_file = open_file
        self._name = name
        self._path = ""
        self._facts = facts
        self._stored = stored
        self._options = options
        self._stack = contextlib.ExitStack()
        self._rows: RowGroups | None = None
        self._count = 0
        self._group_rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._complete = complete
        self.files: list[WrittenFile] = list(written)
        """The files that are complete."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rows is not None:
            self._rows.close()
        self._stack.__exit__(kind, error, trace)

    def add(self, rows: pa.Table) -> None:
        """Write rows."""
        if not self._group_rows and len(rows):
            row = max(1, bytes_of(rows) // len(rows))
            # Decoded rows take more bytes than encoded ones, so a file has several groups, and ends near its
            # size.
            self._group_rows = max(1, min(self._layout.row_group_size, self._layout.target_file_size // row))
        while len(rows):
            fitting = rows.slice(0, self._group_rows - self._waiting_rows)
            self._waiting.append(fitting)
            self._waiting_rows += len(fitting)
            rows = rows.slice(len(fitting))
            if self._waiting_rows == self._group_rows:
                self._write_group()

    def finish(self, schema: pa.Schema) -> list[WrittenFile]:
        """Complete the last file, and return all of them; rows that never came make one file without rows.

        Parameters
        ----------
        schema : pyarrow.Schema
            Of the rows.
        """
        if self._waiting_rows:
            self._write_group()
        if not self.files and self._rows is None:
            self._begin(schema)
        if self._rows is not None:
            self._end()
        return self.files

    def _write_group(self) -> None:
        group = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        if self._rows is None:
            self._begin(group.schema)
        rows = self._rows
        if rows is None:
            raise TypeError("a file is open")
        before = rows.size()
        rows.write(group, row_group_size=self._group_rows)
        self._count += len(group)
        size = rows.size()
        if size + (size - before) // 2 >= self._layout.target_file_size:
            self._end()

    def _begin(self, schema: pa.Schema) -> None:
        settings = dict(self._layout.writer)
        if declared := sorting_columns(self._facts.keys, settings):
            settings.setdefault("sorting_columns", declared)
        group_rows = self._group_rows or 1
        filters = bloom_options(schema.empty_table(), self._layout.blooms, row_group_size=1)
        for name, each in filters.items():
            each["ndv"] = self._facts.most_distinct(name, group_rows)
        if filters:
            settings["bloom_filter_options"] = filters
        self._path = self._name(len(self.files))
        file = self._stack.enter_context(self._open_file(self._path))
        self._rows = RowGroups(file, schema, settings, original=self._stored.original, stored=self._stored)

    def _end(self) -> None:
        rows, self._rows = self._rows, None
        if rows is None:
            return
        name = self._path
        prepared = rows.finish(self._layout.indexes, name=name, options=self._options)
        report = report_on(prepared, path=name, written=True)
        self._stack.close()
        written = WrittenFile(
            name=name, rows=self._count, size=report.size_after, warnings=tuple(report.warnings)
        )
        self.files.append(written)
        self._count = 0
        if self._complete is not None:
            self._complete(written)
