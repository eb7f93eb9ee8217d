"""Indexes built over a column, or over several at once, as their pages are decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from accel.errors import AccelError, MemoryLimitError
from accel.indexes.kind import ChunkValues, Level
from accel.indexes.native import signature_of
from accel.writing.makers import TextList, Timed, checked, make_maker, streams
from accel.writing.scratch import Scratch, ScratchBytes
from accel.writing.values import join_parts
from accel.writing.wanted import WantedIndex

__all__ = ["BuiltIndex", "IndexSet", "in_asked_order"]


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
