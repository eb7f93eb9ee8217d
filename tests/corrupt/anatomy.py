"""A Parquet file taken apart into Thrift structs and page bodies, and put together again with one lie told.

What is put together is honest but for the lie: offsets and lengths are computed anew, so that a lie in a
page header that makes it longer does not damage anything else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accel.format.thrift import I8, I16, I32, I64, LIST, STRUCT, ThriftList, read_struct, write_struct

__all__ = ["Anatomy", "Lie"]

Path = tuple[int, ...]
"""Field ids, and places in lists, from a struct down to a number."""

_INTEGERS = (I8, I16, I32, I64)


@dataclass(frozen=True)
class Lie:
    """One number that is not what it should be."""

    part: tuple[Any, ...]
    """("footer",), ("offset", group, column), ("index", group, column), ("page", group, column, page)."""
    path: Path
    value: int

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.part))} {'.'.join(map(str, self.path))} = {self.value}"


@dataclass
class _Chunk:
    pages: list[tuple[dict[int, Any], bytes]]
    offset: dict[int, Any] | None
    index: dict[int, Any] | None


class Anatomy:
    """The parts of one file."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[-8:-4], "little")
        self.footer, _ = read_struct(data[-8 - length : -8])
        self.chunks: dict[tuple[int, int], _Chunk] = {}
        for g, group in enumerate(self.footer[4][1].items):
            for c, chunk in enumerate(group[1][1].items):
                self.chunks[g, c] = _take_apart(data, chunk)

    def parts(self) -> Iterator[tuple[tuple[Any, ...], dict[int, Any]]]:
        """Every struct, by its name as a `Lie` has it."""
        yield ("footer",), self.footer
        for (g, c), chunk in self.chunks.items():
            if chunk.offset is not None:
                yield ("offset", g, c), chunk.offset
            if chunk.index is not None:
                yield ("index", g, c), chunk.index
            for p, (header, _) in enumerate(chunk.pages):
                yield ("page", g, c, p), header

    def lies(self, kind: str) -> Iterator[Lie]:
        """Every number of every part of a kind, with everything that it could claim."""
        size = len(self.assemble(None))
        for part, struct in self.parts():
            if part[0] != kind:
                continue
            for path, value, ctype in _numbers(struct, ()):
                top = (1 << ({I8: 8, I16: 16, I32: 32, I64: 64}[ctype] - 1)) - 1
                claims = (0, 1, -1, value - 1, value + 1, 2 * value + 7, size, 2**24, 2**31 - 1, 2**40, 2**62)
                for claim in sorted({*claims, top, -top - 1} - {value}):
                    if -top - 1 <= claim <= top:
                        yield Lie(part, path, claim)

    def assemble(self, lie: Lie | None) -> bytes:
        """The file, honest but for the lie."""
        out = bytearray(b"PAR1")
        footer = copy.deepcopy(self.footer)
        offsets: dict[tuple[int, int], dict[int, Any]] = {}
        for (g, c), chunk in self.chunks.items():
            start = len(out)
            places = []
            dictionary = None
            for p, (header, body) in enumerate(chunk.pages):
                at = len(out)
                out += write_struct(_with(header, lie, ("page", g, c, p))) + body
                if header[1][1] == 2:
                    dictionary = at
                else:
                    places.append((at, len(out) - at))
            meta = footer[4][1].items[g][1][1].items[c][3][1]
            meta[7] = (I64, len(out) - start)
            meta[9] = (I64, places[0][0])
            if 11 in meta and dictionary is not None:
                meta[11] = (I64, dictionary)
            if chunk.offset is not None:
                told = copy.deepcopy(chunk.offset)
                for location, (at, size) in zip(told[1][1].items, places, strict=True):
                    location[1], location[2] = (I64, at), (I32, size)
                offsets[g, c] = told
        for (g, c), chunk in self.chunks.items():
            holder = footer[4][1].items[g][1][1].items[c]
            index = None if chunk.index is None else _with(chunk.index, lie, ("index", g, c))
            offset = None if chunk.offset is None else _with(offsets[g, c], lie, ("offset", g, c))
            for struct, field in ((index, 6), (offset, 4)):
                if struct is not None:
                    blob = write_struct(struct)
                    holder[field], holder[field + 1] = (I64, len(out)), (I32, len(blob))
                    out += blob
        blob = write_struct(_with(footer, lie, ("footer",)))
        return bytes(out) + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def _take_apart(data: bytes, chunk: dict[int, Any]) -> _Chunk:
    meta = chunk[3][1]
    at = meta[11][1] if 11 in meta and meta[11][1] else meta[9][1]
    end = at + meta[7][1]
    pages = []
    while at < end:
        header, body = read_struct(data, at)
        at = body + header[3][1]
        pages.append((header, data[body:at]))
    offset = read_struct(data, chunk[4][1])[0] if 4 in chunk else None
    index = read_struct(data, chunk[6][1])[0] if 6 in chunk else None
    return _Chunk(pages, offset, index)


def _numbers(value: Any, path: Path) -> Iterator[tuple[Path, int, int]]:
    for field, (ctype, inner) in value.items():
        yield from _numbers_of(ctype, inner, (*path, field))


def _numbers_of(ctype: int, value: Any, path: Path) -> Iterator[tuple[Path, int, int]]:
    if ctype in _INTEGERS:
        yield path, value, ctype
    elif ctype == STRUCT:
        yield from _numbers(value, path)
    elif ctype == LIST:
        for at, item in enumerate(value.items):
            yield from _numbers_of(value.etype, item, (*path, at))


def _with(struct: dict[int, Any], lie: Lie | None, part: tuple[Any, ...]) -> dict[int, Any]:
    """The struct, with the lie in it if it is told here."""
    if lie is None or lie.part != part:
        return struct
    told = copy.deepcopy(struct)
    holder: Any = told
    for step in lie.path[:-1]:
        holder = holder.items[step] if isinstance(holder, ThriftList) else holder[step][1]
    if isinstance(holder, ThriftList):
        holder.items[lie.path[-1]] = lie.value
    else:
        holder[lie.path[-1]] = (holder[lie.path[-1]][0], lie.value)
    return told
