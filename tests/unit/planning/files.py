"""Files in memory, and a reader of them that notes what it is asked for."""

from __future__ import annotations

from typing import Any, TypeVar

from accel.decode.arrow import file_schema
from accel.planning.handle import FileHandle
from accel.planning.need import Need, NeedTail, Steps, Tail
from accel.planning.opening import open_file
from accel.planning.projection import project_schema
from accel.planning.query import FileQuery, Question, compile_query
from accel.predicate.where import to_expr
from accel.ranges import ByteRange, Stash, Want
from accel.testing.steps import drive

T = TypeVar("T")


class Bytes:
    """Answers a step's needs from the bytes of one file. `waves` lists what was asked for together."""

    def __init__(self, data: bytes, etag: str | None = '"v1"') -> None:
        self.data, self.etag = data, etag
        self.waves: list[int | tuple[Want, ...]] = []

    def __call__(self, need: Need | NeedTail) -> Stash | Tail:
        if isinstance(need, NeedTail):
            self.waves.append(need.length)
            start = max(0, len(self.data) - need.length)
            return Tail(memoryview(self.data)[start:], start, len(self.data), self.etag)
        self.waves.append(need.wants)
        return {w.key: memoryview(self.data)[w.range.start : w.range.end] for w in need.wants}

    def run(self, steps: Steps[T]) -> T:
        return drive(steps, self)

    def open(self, hint: int = 1 << 20, *, max_footer_bytes: int = 1 << 20, path: str = "f") -> FileHandle:
        steps = open_file(path, hint, max_footer_bytes=max_footer_bytes, arrow_schema=file_schema)
        return self.run(steps)


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def ranges(wave: Any) -> list[ByteRange]:
    """The byte ranges of one wave."""
    return [want.range for want in wave]


def query_of(handle: FileHandle, where: str) -> FileQuery:
    """A question for all columns of a file."""
    schema = handle.arrow_schema
    return compile_query(
        Question(to_expr(where), schema, project_schema(schema, None), ()),
        file_schema=handle.metadata.schema,
        arrow_schema=schema,
        partition={},
        url="f",
    )
