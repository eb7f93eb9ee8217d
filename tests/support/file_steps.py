"""Pure steps driven by a plain function, or by the bytes of one file, in place of the network."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from accel.decode.arrow import file_schema
from accel.format.model import PageType
from accel.format.page_header import walk_pages
from accel.planning.handle import FileHandle
from accel.planning.opening import open_file
from accel.planning.projection import project_schema
from accel.planning.query import FileQuery, Question, compile_query
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.predicate.where import to_expr
from accel.ranges import ByteRange, Stash, Want

__all__ = ["Bytes", "drive", "footer_start", "query_of", "ranges", "split_rows"]

T = TypeVar("T")


def drive(steps: Steps[T], answer: Callable[[ReadRequest | TailRequest], Stash | Tail]) -> T:
    """Run a step to its end, with the bytes that `answer` returns for each of its requests."""
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class Bytes:
    """Answers a step's requests from the bytes of one file; `waves` lists the requests in their order."""

    def __init__(self, data: bytes, etag: str | None = '"v1"') -> None:
        self.data, self.etag = data, etag
        self.waves: list[int | tuple[Want, ...]] = []

    def __call__(self, need: ReadRequest | TailRequest) -> Stash | Tail:
        if isinstance(need, TailRequest):
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


def split_rows(chunk: memoryview, *, pages: Collection[int] | None = None) -> bytes:
    """Rewrite a chunk so that its pages begin within a row, as some writers lay them out.

    The chunk holds lists of eight in uncompressed pages. The first four items of each page but the first, or
    of those in `pages`, go to the row before them; as many rows as before begin on every page.
    """
    table = walk_pages(chunk, max_pages=1 << 20)
    data = bytearray(chunk)
    for page, (kind, body) in enumerate(zip(table.type.tolist(), table.body.tolist(), strict=True)):
        if not page or (pages is not None and page not in pages):
            continue
        if kind == PageType.DATA_PAGE_V2:
            start, length = body, int(table.level_bytes[page] - table.definition_bytes[page])
        else:
            start, length = body + 4, int.from_bytes(chunk[body : body + 4], "little")
        # Eight levels a byte, the first the lowest bit: 0 where a row begins.
        levels = data[start : start + length]
        data[start : start + length] = levels.replace(b"\xfe", b"\xef")
    return bytes(data)
