"""One index in the making, whatever way its kind is built: fed as the pages are decoded, or a row group at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import AccelError, MemoryLimitError, SchemaMismatchError
from accel.indexes.kind import ChunkValues, IndexBuilder, IndexKind, Level
from accel.options import MIB

__all__ = ["Maker", "TextList", "Timed", "checked", "make_maker", "streams"]

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
