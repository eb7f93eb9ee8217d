"""Build indexes: a kind gets the decoded pages one after the other, or a row group at a time, and gives
bytes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import bytes_of
from accel.errors import AccelError, IndexFormatError, MemoryLimitError, SchemaMismatchError
from accel.format.embedded import encode_idx1
from accel.indexes.kind import ChunkValues, IndexBuilder, IndexKind, Level
from accel.indexes.native import signature_of
from accel.options import MIB
from accel.writing.scratch import Scratch, ScratchBytes
from accel.writing.values import join_parts
from accel.writing.wanted import WantedIndex

__all__ = ["MANY_GROUPS", "BuiltIndex", "IndexSet", "TimedBuilder", "in_wanted_order", "join_groups"]

_MOST_IDX1_BYTES = 64 * MIB


def _streams(kind: IndexKind | None) -> bool:
    """Return whether a kind takes a row group in pieces."""
    return kind is None or kind.builder(level=Level.PAGE) is not None


class TimedBuilder:
    """Builds one index, of a file or of a row group, and counts the processor time; `close` must be called in
    any case."""

    def __init__(
        self, kind: IndexKind | None, level: Level, *, name: str = "", type: pa.DataType = None
    ) -> None:
        streamed = None if kind is None else kind.builder(level=level)
        self._builder: IndexBuilder
        if kind is None:
            self._builder = _TextList(name, type)
        elif streamed is not None:
            self._builder = streamed
        else:
            self._builder = (_ThreadBuilder if level is Level.FILE else _GroupBuilder)(kind, level)
        self.seconds = 0.0

    def add(self, chunk: ChunkValues) -> None:
        """Pass rows to the kind."""
        begun = time.thread_time()
        self._builder.add(chunk)
        self.seconds += time.thread_time() - begun

    def finish(self) -> Any:
        """Return what the kind builds, which should be bytes."""
        begun = time.thread_time()
        data = self._builder.finish()
        self.seconds += time.thread_time() - begun
        if isinstance(self._builder, _ThreadBuilder):
            self.seconds += self._builder.seconds
        return data

    def close(self) -> None:
        """End the thread of the builder, if there is one."""
        if isinstance(self._builder, _ThreadBuilder):
            self._builder.close()


class _GroupBuilder:
    """Builds an index of one row group by a kind without a builder."""

    def __init__(self, kind: IndexKind, level: Level) -> None:
        self.kind = kind
        self.level = level
        self.chunks: list[ChunkValues] = []

    def add(self, chunk: ChunkValues) -> None:
        self.chunks.append(chunk)

    def finish(self) -> bytes:
        return self.kind.build(iter(self.chunks), level=self.level)


class _ThreadBuilder:
    """Builds an index of a whole file by a kind without a builder, in a thread in which the kind pulls its
    chunks.

    One semaphore says that the kind waits for a chunk, the other that a chunk is there: one side runs at a
    time.
    """

    def __init__(self, kind: IndexKind, level: Level) -> None:
        self._kind = kind
        self._level = level
        self._chunk: ChunkValues | None = None
        self._available = threading.Semaphore(0)
        self._wanted = threading.Semaphore(0)
        self._stopped = False
        self._ended = False
        self.seconds = 0.0
        """Processor time of the thread."""
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"accel-index-{kind.name}", daemon=True)
        self._thread.start()
        self._wanted.acquire()

    def add(self, chunk: ChunkValues) -> None:
        """Pass a chunk on and return when the kind is done with it. A kind that stopped early gets no
        more."""
        if not self._ended:
            self._chunk = chunk
            self._available.release()
            self._wanted.acquire()
            self._chunk = None

    def finish(self) -> bytes:
        self.close()
        if self._error is not None:
            raise self._error
        data: bytes = self._result
        return data

    def close(self) -> None:
        self._stopped = True
        self._available.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._result = self._kind.build(self._chunks(), level=self._level)
        except BaseException as error:  # noqa: BLE001 - `finish` raises it
            self._error = error
        finally:
            self.seconds = time.thread_time()
            self._ended = True
            self._wanted.release()

    def _chunks(self) -> Iterator[ChunkValues]:
        while True:
            self._wanted.release()
            self._available.acquire()
            if self._chunk is None or self._stopped:
                return
            yield self._chunk


class _TextList:
    """Collects the distinct texts of a column, for IDX1."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.found: pa.Array | None = None
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise SchemaMismatchError(f"idx1 lists texts, and column {name} is of type {kind}")

    def add(self, chunk: ChunkValues) -> None:
        array = chunk.array
        if pa.types.is_dictionary(array.type):
            # A dictionary may have entries that no row uses.
            array = array.dictionary.take(pc.unique(array.indices).drop_null())
        if array.type != pa.large_string():
            array = array.cast(pa.large_string())
        here = pc.unique(array).drop_null()
        self.found = here if self.found is None else pc.unique(pa.concat_arrays([self.found, here]))
        if self.found.nbytes > _MOST_IDX1_BYTES:
            raise MemoryLimitError(
                f"column {self.name} has more than {_MOST_IDX1_BYTES} bytes of distinct texts",
                hint="idx1 is for columns of few values",
            )

    def finish(self) -> bytes:
        return encode_idx1([] if self.found is None else sorted(self.found.to_pylist()))


@dataclass(frozen=True, slots=True, eq=False)
class BuiltIndex:
    """One index as bytes."""

    wanted: WantedIndex
    row_group: int
    """-1 for an index of the whole file."""
    units: int
    signatures: tuple[str, ...]
    """How the values of each column are stored, for readers to which the name of a type is not enough."""
    data: ScratchBytes
    seconds: float
    """Processor time of building it, without decoding."""
    version: int = 1
    """The version of the byte format."""
    shortcoming: str | None = None
    """Why it rules nothing out, and what to build instead; None if it does rule out."""


def in_wanted_order(built: Sequence[BuiltIndex], wanted: Sequence[WantedIndex]) -> list[BuiltIndex]:
    """Sort indexes by their place in `wanted`, then by row group."""
    # By identity: the caller's kinds need not be hashable.
    order = {id(index): turn for turn, index in enumerate(wanted)}
    return sorted(built, key=lambda index: (order[id(index.wanted)], index.row_group))


class IndexSet:
    """Builds the indexes of one column, or one index of several columns, of a file. A context manager.

    For every row group in order the caller calls `begin`, `add` for each run of pages, and `end`; then
    `finish`. Every failure is an AccelError that names file, column and row group.
    """

    def __init__(
        self,
        wanted: Sequence[WantedIndex],
        types: Sequence[pa.DataType],
        *,
        scratch: Scratch,
        path: str,
        memory_limit: int,
    ) -> None:
        self.wanted = wanted
        self.scratch = scratch
        self.path = path
        self.memory_limit = memory_limit
        self.name = wanted[0].column
        self.signatures = tuple(map(signature_of, types))
        self.type = types[0] if not wanted[0].leaves else _struct(types)
        self.whole_groups = any(not _streams(index.kind) for index in wanted)
        self.built: list[BuiltIndex] = []
        self._group = -1
        self._chunks: list[ChunkValues] = []
        """The row group so far, for kinds that take it as a whole."""
        self._group_builders: dict[int, TimedBuilder] = {}
        self._file_builders: dict[int, TimedBuilder] = {}

    def __enter__(self) -> Self:
        for turn, index in enumerate(self.wanted):
            if index.level is Level.FILE:
                with self._error_context(index):
                    self._file_builders[turn] = self._builder(index)
        return self

    def __exit__(self, *raised: object) -> None:
        for builder in (*self._file_builders.values(), *self._group_builders.values()):
            builder.close()

    def _builder(self, index: WantedIndex) -> TimedBuilder:
        return TimedBuilder(index.kind, index.level, name=self.name, type=self.type)

    def begin(self, group: int, *, paged: bool) -> None:
        """Start a row group. `paged` says that the places of its pages are given."""
        self._group = group
        self._chunks = []
        for turn, index in enumerate(self.wanted):
            if index.level is Level.FILE:
                continue
            with self._error_context(index):
                if index.level is Level.PAGE and not paged:
                    raise AccelError("the pages are not known, so no index can be made of them")
                self._group_builders[turn] = self._builder(index)

    def add(self, chunk: ChunkValues) -> None:
        """Take the next rows of the row group."""
        self._feed(chunk, whole=False)
        if self.whole_groups:
            self._chunks.append(chunk)
            if sum(bytes_of(each.array) for each in self._chunks) > self.memory_limit:
                raise MemoryLimitError(
                    f"the column's values come to more than {self.memory_limit} bytes",
                    path=self.path,
                    place=f"row group {self._group}, column {self.name}",
                    hint="raise `options.memory_limit`, or write smaller row groups",
                )

    def end(self, num_rows: int, *, pages: int) -> None:
        """End a row group, all of whose rows were added."""
        if not num_rows:
            self._feed(self._nothing(), whole=False)
        if self.whole_groups:
            self._feed(_joined(self._chunks) if self._chunks else self._nothing(), whole=True)
            self._chunks = []
        units = {Level.PAGE: pages if num_rows else 0, Level.ROW_GROUP: 1, Level.ROW_RANGE: num_rows}
        for turn, builder in self._group_builders.items():
            self._finish(self.wanted[turn], builder, self._group, units[self.wanted[turn].level])
        self._group_builders = {}

    def finish(self) -> list[BuiltIndex]:
        """Return the indexes of all row groups and of the file."""
        if self._group < 0:
            # Without row groups kinds still see the type.
            for whole in (False, True):
                self._feed(self._nothing(), whole=whole)
        self._group = -1
        for turn, builder in self._file_builders.items():
            self._finish(self.wanted[turn], builder, -1, 1)
        return self.built

    def _nothing(self) -> ChunkValues:
        return ChunkValues(pa.nulls(0, self.type), np.zeros(1, np.int64), 0)

    def _feed(self, chunk: ChunkValues, *, whole: bool) -> None:
        """Give rows to the kinds that take row groups as a whole, or to those that take them in pieces."""
        for turn, builder in (*self._file_builders.items(), *self._group_builders.items()):
            index = self.wanted[turn]
            if _streams(index.kind) is not whole:
                with self._error_context(index):
                    builder.add(chunk)

    def _finish(self, index: WantedIndex, builder: TimedBuilder, group: int, units: int) -> None:
        kind = index.kind
        with self._error_context(index):
            data = builder.finish()
            if not isinstance(data, bytes):
                raise AccelError(f"index kind {index.kind_name} built a {type(data).__name__}, not bytes")
            shortcoming = None if kind is None else kind.shortcoming(data, units=units)
        stored, version = self.scratch.store(data), 1 if kind is None else kind.version
        self.built.append(
            BuiltIndex(index, group, units, self.signatures, stored, builder.seconds, version, shortcoming)
        )

    @property
    def _place(self) -> str:
        return f"column {self.name}" + (f", row group {self._group}" if self._group >= 0 else "")

    @contextlib.contextmanager
    def _error_context(self, index: WantedIndex) -> Iterator[None]:
        try:
            yield
        except AccelError as error:
            raise error.at(path=self.path, place=self._place)
        except Exception as error:
            raise AccelError(
                f"index kind {index.kind_name} failed: {type(error).__name__}: {error}",
                path=self.path,
                place=self._place,
            ) from error


def _struct(types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(str(i), kind) for i, kind in enumerate(types)])


def _joined(chunks: Sequence[ChunkValues]) -> ChunkValues:
    if len(chunks) == 1:
        return chunks[0]
    rows = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
    first = [chunk.first_rows + start for chunk, start in zip(chunks, rows[:-1].tolist(), strict=True)]
    return ChunkValues(join_parts([chunk.array for chunk in chunks]), np.concatenate(first), int(rows[-1]))


MANY_GROUPS: Final = 4
"""Fewer row groups have an index each."""


def join_groups(built: Sequence[BuiltIndex], scratch: Scratch, *, path: str) -> list[BuiltIndex]:
    """Join the indexes by page of many row groups to one, for kinds with a method `join`; `path` is for
    messages."""
    out: list[BuiltIndex] = []
    runs: dict[int, list[BuiltIndex]] = {}
    for index in built:
        kind = index.wanted.kind
        if index.wanted.level is Level.PAGE and kind is not None and kind.joined_version is not None:
            runs.setdefault(id(index.wanted), []).append(index)
        else:
            out.append(index)
    for run in runs.values():
        ordered = sorted(run, key=lambda index: index.row_group)
        joined = _join(ordered, scratch, path) if len(run) >= MANY_GROUPS else None
        out += ordered if joined is None else [joined]
    return out


def _join(run: Sequence[BuiltIndex], scratch: Scratch, path: str) -> BuiltIndex | None:
    first, kind = run[0], run[0].wanted.kind
    if kind is None or kind.joined_version is None:
        return None
    parts: list[ScratchBytes] = []
    begun = time.thread_time()
    try:
        head = kind.join(
            [index.data.read for index in run], keep=lambda data: parts.append(scratch.store(data))
        )
    except IndexFormatError as error:
        raise AccelError(
            f"indexes of kind {kind.name} do not join: {error.message}",
            path=path,
            place=f"column {first.wanted.column}",
        ) from error
    if head is None:
        return None
    return BuiltIndex(
        first.wanted,
        -1,
        sum(index.units for index in run),
        first.signatures,
        ScratchBytes.joined([ScratchBytes(len(head), data=head), *parts]),
        sum(index.seconds for index in run) + time.thread_time() - begun,
        version=kind.joined_version,
    )
