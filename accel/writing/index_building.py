"""One index in the making, whatever way its kind is built: fed as the pages are decoded, or a row group at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import AccelError, IndexFormatError, MemoryLimitError, SchemaMismatchError
from accel.indexes.kind import ChunkValues, IndexBuilder, IndexKind, Level
from accel.indexes.native import signature_of
from accel.options import MIB
from accel.writing.scratch import Scratch, ScratchBytes
from accel.writing.values import join_parts
from accel.writing.wanted import WantedIndex

if TYPE_CHECKING:
    from accel.indexes.kind import JoinableKind

__all__ = [
    "MANY_GROUPS",
    "BuiltIndex",
    "IndexSet",
    "Maker",
    "TextList",
    "Timed",
    "checked",
    "in_asked_order",
    "join_groups",
    "make_maker",
    "streams",
]

_MOST_IDX1_BYTES = 64 * MIB


class Maker(Protocol):
    """Takes rows, gives bytes; `close` is to be called in any case."""

    def add(self, chunk: ChunkValues) -> None: ...

    def finish(self) -> bytes: ...

    def close(self) -> None: ...


def streams(kind: IndexKind | None) -> bool:
    """Whether a kind takes a row group in pieces."""
    return kind is None or hasattr(kind, "builder")


def make_maker(kind: IndexKind, level: Level) -> Maker:
    """For a file, or for one row group."""
    begin = getattr(kind, "builder", None)
    if begin is not None:
        return _Pushed(begin(level=level))
    return _Pulled(kind, level) if level is Level.FILE else _Whole(kind, level)


class Timed:
    """A maker, and the processor time that it took."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self.seconds = 0.0

    def add(self, chunk: ChunkValues) -> None:
        begun = time.thread_time()
        self._maker.add(chunk)
        self.seconds += time.thread_time() - begun

    def finish(self) -> bytes:
        begun = time.thread_time()
        data = self._maker.finish()
        self.seconds += time.thread_time() - begun + getattr(self._maker, "seconds", 0.0)
        return data

    def close(self) -> None:
        self._maker.close()


class _Pushed:
    def __init__(self, builder: IndexBuilder) -> None:
        self.add = builder.add
        self.finish = builder.finish

    def close(self) -> None:
        """Nothing is open."""


class _Whole:
    """A kind without a builder, over one row group."""

    def __init__(self, kind: IndexKind, level: Level) -> None:
        self.kind = kind
        self.level = level
        self.chunks: list[ChunkValues] = []

    def add(self, chunk: ChunkValues) -> None:
        self.chunks.append(chunk)

    def finish(self) -> bytes:
        return self.kind.build(iter(self.chunks), level=self.level)

    def close(self) -> None:
        """Nothing is open."""


class _Pulled:
    """A kind without a builder, over the whole file: it asks for row groups, in a thread of its own, one at a time."""

    def __init__(self, kind: IndexKind, level: Level) -> None:
        self._kind = kind
        self._level = level
        self._given: ChunkValues | None = None
        self._turn = threading.Semaphore(0)
        self._asks = threading.Semaphore(0)
        self._stopped = False
        self._ended = False
        self.seconds = 0.0
        """What it took in its own thread."""
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"accel-index-{kind.name}", daemon=True)
        self._thread.start()
        self._asks.acquire()

    def add(self, chunk: ChunkValues) -> None:
        """Returns when the chunk is done with. A kind that stopped early gets no more."""
        if not self._ended:
            self._given = chunk
            self._turn.release()
            self._asks.acquire()
            self._given = None

    def finish(self) -> bytes:
        self.close()
        if self._error is not None:
            raise self._error
        data: bytes = self._result
        return data

    def close(self) -> None:
        self._stopped = True
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._result = self._kind.build(self._chunks(), level=self._level)
        except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
            self._error = error
        finally:
            self.seconds = time.thread_time()
            self._ended = True
            self._asks.release()

    def _chunks(self) -> Iterator[ChunkValues]:
        while True:
            self._asks.release()
            self._turn.acquire()
            if self._given is None or self._stopped:
                return
            yield self._given


class TextList:
    """The distinct texts of a column, for IDX1."""

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
            # A dictionary may hold what no row has.
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
        from accel.format.embedded import encode_idx1

        return encode_idx1([] if self.found is None else sorted(self.found.to_pylist()))

    def close(self) -> None:
        """Nothing is open."""


def checked(data: object, kind: str, place: str) -> bytes:
    """Raises AccelError where a kind built no bytes."""
    if not isinstance(data, bytes):
        raise AccelError(f"index kind {kind} built a {type(data).__name__}, not bytes", place=place)
    return data


@dataclass(frozen=True, slots=True, eq=False)
class BuiltIndex:
    """One index as bytes."""

    wanted: WantedIndex
    row_group: int
    """-1 for one of the whole file."""
    units: int
    signatures: tuple[str, ...]
    """What values of the column, or of each of the columns, are stored as, for whom a type of the same name is not
    enough."""
    data: ScratchBytes
    seconds: float
    """What building it took, decoding not counted."""
    version: int = 1
    """Of its bytes."""
    shortcoming: str | None = None
    """Why it rules nothing out, and what to take instead; None where it does."""


def in_asked_order(built: Sequence[BuiltIndex], wanted: Sequence[WantedIndex]) -> list[BuiltIndex]:
    """Index after index as they were asked for, each by row group."""
    # By identity: a kind of the caller's need not be hashable.
    order = {id(index): turn for turn, index in enumerate(wanted)}
    return sorted(built, key=lambda index: (order[id(index.wanted)], index.row_group))


class IndexSet:
    """The indexes of one column, or one index of several, over a file. A context manager.

    For every row group in order: `begin`, `add` for each run of its pages, `end`; then `finish`. What fails is an
    AccelError that names file, column and row group.
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
        self.whole_groups = any(not streams(index.kind) for index in wanted)
        self.built: list[BuiltIndex] = []
        self._group = -1
        self._held: list[ChunkValues] = []
        self._makers: dict[int, Timed] = {}
        self._files: dict[int, Timed] = {}

    def __enter__(self) -> Self:
        for turn, index in enumerate(self.wanted):
            if index.level is Level.FILE:
                with self._naming(index):
                    self._files[turn] = Timed(
                        TextList(self.name, self.type)
                        if index.kind is None
                        else make_maker(index.kind, Level.FILE)
                    )
        return self

    def __exit__(self, *raised: object) -> None:
        for maker in (*self._files.values(), *self._makers.values()):
            maker.close()

    def begin(self, group: int, *, paged: bool) -> None:
        """Start a row group. `paged` says that its pages are known."""
        self._group = group
        self._held = []
        for turn, index in enumerate(self.wanted):
            if index.kind is None or index.level is Level.FILE:
                continue
            with self._naming(index):
                if index.level is Level.PAGE and not paged:
                    raise AccelError("the pages are not known, so no index can be made of them")
                self._makers[turn] = Timed(make_maker(index.kind, index.level))

    def add(self, chunk: ChunkValues) -> None:
        """The next rows of the row group."""
        self._feed(chunk, whole=False)
        if self.whole_groups:
            self._held.append(chunk)
            if sum(held.array.nbytes for held in self._held) > self.memory_limit:
                raise MemoryLimitError(
                    f"the column's values come to more than {self.memory_limit} bytes",
                    path=self.path,
                    place=f"row group {self._group}, column {self.name}",
                    hint="raise options.memory_limit, or write smaller row groups",
                )

    def end(self, num_rows: int, *, pages: int) -> None:
        """All rows of the row group were given."""
        if not num_rows:
            self._feed(self._nothing(), whole=False)
        if self.whole_groups:
            self._feed(_joined(self._held) if self._held else self._nothing(), whole=True)
            self._held = []
        units = {Level.PAGE: pages if num_rows else 0, Level.ROW_GROUP: 1, Level.ROW_RANGE: num_rows}
        for turn, maker in self._makers.items():
            self._take(self.wanted[turn], maker, self._group, units[self.wanted[turn].level])
        self._makers = {}

    def finish(self) -> list[BuiltIndex]:
        """All indexes of all row groups, and those of the file."""
        if self._group < 0:
            # A file without row groups: kinds still see the type.
            for whole in (False, True):
                self._feed(self._nothing(), whole=whole)
        self._group = -1
        for turn, maker in self._files.items():
            self._take(self.wanted[turn], maker, -1, 1)
        return self.built

    def _nothing(self) -> ChunkValues:
        return ChunkValues(pa.nulls(0, self.type), np.zeros(1, np.int64), 0)

    def _feed(self, chunk: ChunkValues, *, whole: bool) -> None:
        """Give rows to the kinds that take row groups as a whole, or to those that take them in pieces."""
        for turn, maker in (*self._files.items(), *self._makers.items()):
            index = self.wanted[turn]
            if streams(index.kind) is not whole:
                with self._naming(index):
                    maker.add(chunk)

    def _take(self, index: WantedIndex, maker: Timed, group: int, units: int) -> None:
        with self._naming(index):
            data = checked(maker.finish(), index.kind_name, self._place)
            limited = getattr(index.kind, "shortcoming", None)
            shortcoming = None if limited is None else limited(data, units=units)
        kept = self.scratch.keep(data)
        version = 1 if index.kind is None else index.kind.version
        self.built.append(
            BuiltIndex(
                index,
                group,
                units,
                self.signatures,
                kept,
                maker.seconds,
                version=version,
                shortcoming=shortcoming,
            )
        )

    @property
    def _place(self) -> str:
        return f"column {self.name}" + (f", row group {self._group}" if self._group >= 0 else "")

    @contextlib.contextmanager
    def _naming(self, index: WantedIndex) -> Iterator[None]:
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
"""Row groups; of fewer each keeps its own index."""


def join_groups(built: Sequence[BuiltIndex], scratch: Scratch, *, path: str) -> list[BuiltIndex]:
    """The indexes of a file, of which those by page of many row groups are one where their kind has a method `join`.

    `path` is the file's, for messages.
    """
    out: list[BuiltIndex] = []
    runs: dict[int, list[BuiltIndex]] = {}
    for index in built:
        if index.wanted.level is Level.PAGE and hasattr(index.wanted.kind, "join"):
            runs.setdefault(id(index.wanted), []).append(index)
        else:
            out.append(index)
    for run in runs.values():
        ordered = sorted(run, key=lambda index: index.row_group)
        joined = _join(ordered, scratch, path) if len(run) >= MANY_GROUPS else None
        out += ordered if joined is None else [joined]
    return out


def _join(run: Sequence[BuiltIndex], scratch: Scratch, path: str) -> BuiltIndex | None:
    first, kind = run[0], cast("JoinableKind", run[0].wanted.kind)
    parts: list[ScratchBytes] = []
    begun = time.thread_time()
    try:
        head = kind.join(
            [index.data.read for index in run], keep=lambda data: parts.append(scratch.keep(data))
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
