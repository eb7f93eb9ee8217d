"""A small Parquet file taken apart into pages whose bodies are decompressed, and put together with some of
them changed."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from accel.format.thrift import I32, I64, read_struct, write_struct

__all__ = ["Page", "PageId", "Parts"]

PageId = tuple[int, int, int]
"""Row group, leaf, number of the page in its chunk."""
Struct = dict[int, Any]

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


@dataclass
class Page:
    """One page: its header, and its body in sections, none of them compressed."""

    header: Struct
    repetition: bytes
    definition: bytes
    """The levels without the length that a v1 page has before them."""
    values: bytes
    prefixes: dict[str, int] = field(default_factory=dict)
    """The lengths that a v1 page gives of its levels, where they are not the true ones."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Fields of the header that lie: they are added to the true number."""
    cut: int = 0
    """Bytes that are missing at the end of the stored body."""

    @property
    def kind(self) -> int:
        return int(self.header[1][1])

    @property
    def own(self) -> Struct:
        """The header of a page of this type."""
        return self.header[{_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[self.kind]][1]  # type: ignore[no-any-return]

    @property
    def encoding(self) -> int:
        return int(self.own[4 if self.kind == _DATA_V2 else 2][1])


@dataclass
class _Chunk:
    pages: list[Page]
    stored: list[bytes]
    """Each page as it lies in the file."""
    codec: int
    offset_index: bytes | None
    column_index: bytes | None


class Parts:
    """The parts of one file, whose leaves have these (repetition, definition) levels at most."""

    def __init__(self, data: bytes, levels: list[tuple[int, int]]) -> None:
        self.levels = levels
        length = int.from_bytes(data[-8:-4], "little")
        self._footer = data[-8 - length : -8]
        self.chunks: dict[tuple[int, int], _Chunk] = {}
        self.rows: dict[PageId, range] = {}
        """The rows of each data page, counted from the file's first."""
        first = 0
        for g, group in enumerate(read_struct(self._footer)[0][4][1].items):
            for c, chunk in enumerate(group[1][1].items):
                self.chunks[g, c] = taken = _take_apart(data, chunk, levels[c])
                self._place_rows(g, c, taken, first, group[3][1])
            first += group[3][1]

    def _place_rows(self, group: int, leaf: int, chunk: _Chunk, first: int, count: int) -> None:
        data = [number for number, page in enumerate(chunk.pages) if page.kind != _DICTIONARY]
        if chunk.offset_index is not None:
            starts = [place[3][1] for place in read_struct(chunk.offset_index)[0][1][1].items]
            stops = [*starts[1:], count]
        elif self.levels[leaf][0]:
            # Which rows are on which page only their levels tell: all pages are read.
            starts, stops = [0] * len(data), [count] * len(data)
        else:
            stops = np.cumsum([chunk.pages[number].own[1][1] for number in data]).tolist()
            starts = [0, *stops[:-1]]
        for number, start, stop in zip(data, starts, stops, strict=True):
            self.rows[group, leaf, number] = range(first + start, first + stop)

    def assemble(
        self,
        changed: Mapping[PageId, Page],
        *,
        locations: Collection[tuple[int, int, int, int, int]] = (),
        metadata: Collection[tuple[int, int, int, int]] = (),
    ) -> bytes:
        """The file with some pages changed.

        Parameters
        ----------
        locations : collection of (group, leaf, page, field, delta)
            Lies in the offset indexes.
        metadata : collection of (group, leaf, field, delta)
            Lies in the footer's metadata of chunks.
        """
        out = bytearray(b"PAR1")
        footer, _ = read_struct(self._footer)
        places: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for (g, c), chunk in self.chunks.items():
            start, found, dictionary = len(out), [], None
            for number, page in enumerate(chunk.pages):
                at = len(out)
                new = changed.get((g, c, number))
                out += chunk.stored[number] if new is None else _stored(new, chunk.codec)
                if page.kind == _DICTIONARY:
                    dictionary = at
                else:
                    found.append((at, len(out) - at))
            places[g, c] = found
            meta = footer[4][1].items[g][1][1].items[c][3][1]
            meta[7], meta[9] = (I64, len(out) - start), (I64, found[0][0])
            if 11 in meta and dictionary is not None:
                meta[11] = (I64, dictionary)
        for group, leaf, number, delta in metadata:
            meta = footer[4][1].items[group][1][1].items[leaf][3][1]
            meta[number] = (meta[number][0], max(0, meta[number][1] + delta))
        for (g, c), chunk in self.chunks.items():
            holder = footer[4][1].items[g][1][1].items[c]
            if chunk.column_index is not None:
                holder[6], holder[7] = (I64, len(out)), (I32, len(chunk.column_index))
                out += chunk.column_index
            if chunk.offset_index is not None:
                index, _ = read_struct(chunk.offset_index)
                for location, (at, size) in zip(index[1][1].items, places[g, c], strict=True):
                    location[1], location[2] = (I64, at), (I32, size)
                for group, leaf, page, number, delta in locations:
                    if (group, leaf) == (g, c):
                        location = index[1][1].items[page % len(index[1][1].items)]
                        location[number] = (location[number][0], max(0, location[number][1] + delta))
                blob = write_struct(index)
                holder[4], holder[5] = (I64, len(out)), (I32, len(blob))
                out += blob
        blob = write_struct(footer)
        return bytes(out) + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def _take_apart(data: bytes, chunk: Struct, levels: tuple[int, int]) -> _Chunk:
    meta = chunk[3][1]
    codec = int(meta[4][1])
    at = meta[11][1] if 11 in meta and meta[11][1] else meta[9][1]
    end = at + meta[7][1]
    pages, stored = [], []
    while at < end:
        header, body = read_struct(data, at)
        stop = body + header[3][1]
        pages.append(_page(header, data[body:stop], codec, levels))
        stored.append(data[at:stop])
        at = stop
    offset = data[chunk[4][1] : chunk[4][1] + chunk[5][1]] if 4 in chunk else None
    index = data[chunk[6][1] : chunk[6][1] + chunk[7][1]] if 6 in chunk else None
    return _Chunk(pages, stored, codec, offset, index)


def _unpack(body: bytes, codec: int, size: int) -> bytes:
    name = _CODECS[codec]
    if name is None or not size:
        return body
    return bytes(pa.decompress(body, decompressed_size=size, codec=name, asbytes=True))


def _page(header: Struct, body: bytes, codec: int, levels: tuple[int, int]) -> Page:
    size = header[2][1]
    if header[1][1] == _DATA_V2:
        own = header[8][1]
        definition, repetition = own[5][1], own[6][1]
        stop = repetition + definition
        packed = own.get(7, (0, True))[1]
        values = _unpack(body[stop:], codec, size - stop) if packed else body[stop:]
        return Page(header, body[:repetition], body[repetition:stop], values)
    raw = _unpack(body, codec, size)
    found = []
    for most in levels if header[1][1] == _DATA else ():
        length = int.from_bytes(raw[:4], "little") if most else 0
        found.append(raw[4 : 4 + length] if most else b"")
        raw = raw[4 + length :] if most else raw
    repetition, definition = found or (b"", b"")
    own = copy.deepcopy(header)
    own[99] = (I32, sum(1 << place for place, most in enumerate(levels) if most))
    return Page(own, repetition, definition, raw)


def _stored(page: Page, codec: int) -> bytes:
    """A page as it lies in the file."""
    header = copy.deepcopy(page.header)
    has_levels = header.pop(99, (I32, 0))[1]
    name = _CODECS[codec]
    if page.kind == _DATA_V2:
        own = header[8][1]
        own[6], own[5] = (I32, len(page.repetition)), (I32, len(page.definition))
        packed = own.get(7, (0, True))[1] and name is not None
        front, back = page.repetition + page.definition, page.values
        body = front + (bytes(pa.compress(back, codec=name, asbytes=True)) if packed else back)
        size = len(front) + len(back)
    else:
        raw = b""
        for place, (part, levels) in enumerate(
            (("repetition", page.repetition), ("definition", page.definition))
        ):
            if has_levels >> place & 1 and page.kind == _DATA:
                length = (len(levels) + page.prefixes.get(part, 0)) & 0xFFFFFFFF
                raw += length.to_bytes(4, "little") + levels
        raw += page.values
        size = len(raw)
        body = raw if name is None else bytes(pa.compress(raw, codec=name, asbytes=True))
    body = body[: len(body) - page.cut]
    header[2], header[3] = (I32, size), (I32, len(body))
    header.pop(4, None)
    for number, delta in page.sizes.items():
        if number < 10:
            header[number] = (I32, max(0, header[number][1] + delta))
        else:
            own = header[{_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[page.kind]][1]
            if number - 10 in own:
                own[number - 10] = (I32, max(0, own[number - 10][1] + delta))
    return write_struct(header) + body
