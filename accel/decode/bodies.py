"""Data pages, and the bytes of their values where none is null.

Sources: parquet-format `Encodings.md` (PLAIN; RLE/bit-packed hybrid), `parquet.thrift` (DataPageHeader,
DataPageHeaderV2); README (nulls, data pages).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.decode.chunks import ChunkPages
from accel.decode.frames import MOST_TOGETHER, decompress_frames
from accel.decode.snappy import fast_snappy
from accel.decode.verify import PageFacts
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Encoding, PageType
from accel.format.runs import find_runs
from accel.format.thrift import encode_varint
from accel.memory import allocate, pool

__all__ = [
    "Bytes",
    "DataPage",
    "check_crc",
    "data_pages",
    "decompress",
    "page_bodies",
    "plain_size",
    "present_levels",
    "value_bytes",
]

Bytes = npt.NDArray[np.uint8]

_CODECS: Final[dict[int, str]] = {
    codec: codec.arrow_name for codec in (Codec.SNAPPY, Codec.ZSTD, Codec.LZ4_RAW, Codec.BROTLI)
}
_SILENT: Final = frozenset({Codec.LZ4_RAW, Codec.BROTLI})
_ANY_WRAPPER: Final = 32 + zlib.MAX_WBITS
"""Of deflate's stream: gzip's, or zlib's, which some writers have."""


class DataPage(NamedTuple):
    """One data page of a flat column."""

    body: memoryview
    """As stored."""
    codec: int
    """Of the values; a v2 page may say that they are stored as they are."""
    is_v2: bool
    uncompressed: int
    """Bytes of the body after decompression."""
    num_values: int
    """Nulls included."""
    num_nulls: int
    """-1 where the header does not tell."""
    encoding: int
    level_bytes: int
    """Of a v2 page's definition levels, which lie uncompressed before its values; -1 where it has others too."""
    level_encoding: int
    crc: int
    """Unsigned; -1 without one, and 0 stands for none, too."""
    ahead: Bytes | None
    """The body of a v1 page, where it was decompressed beforehand."""


def data_pages(chunk: ChunkPages, facts: PageFacts) -> list[DataPage]:
    """The data pages of a chunk, in order."""
    pages: list[DataPage] = []
    ahead = None if chunk.ahead is None else chunk.ahead.body
    for buffer, table in zip(chunk.buffers, facts.tables, strict=True):
        view = memoryview(buffer)
        kinds = table.type.tolist()
        compressed, levels = table.is_compressed.tolist(), table.level_bytes.tolist()
        bodies = zip(table.body.tolist(), table.end.tolist(), strict=True)
        definitions = zip(levels, table.definition_bytes.tolist(), strict=True)
        columns = (
            [view[start:end] for start, end in bodies],
            [chunk.codec if packed else Codec.UNCOMPRESSED for packed in compressed],
            [kind == _V2 for kind in kinds],
            table.uncompressed.tolist(),
            table.num_values.tolist(),
            table.num_nulls.tolist(),
            table.encoding.tolist(),
            [some if some == of_depth else -1 for some, of_depth in definitions],
            table.level_encoding.tolist(),
            table.crc.tolist(),
            repeat(ahead, len(kinds)),
        )
        found = map(DataPage._make, zip(*columns, strict=True))
        if set(kinds) <= _DATA:
            pages.extend(found)
        else:
            pages.extend(page for page, kind in zip(found, kinds, strict=True) if kind in _DATA)
    return pages


_V2: Final = int(PageType.DATA_PAGE_V2)
_DATA: Final = frozenset({int(PageType.DATA_PAGE), _V2})


def plain_size(page: DataPage, *, optional: bool) -> int:
    """Bytes of a page's values, as the header tells; -1 where they are not PLAIN, or nulls among them.

    Of a v1 page of an optional column it does not tell: then, what they come to if none is null.
    """
    if page.encoding != Encoding.PLAIN or page.num_nulls > 0:
        return -1
    if page.is_v2:
        return page.uncompressed - page.level_bytes if page.level_bytes >= 0 else -1
    if not optional:
        return page.uncompressed
    if page.level_encoding != Encoding.RLE:
        return -1
    return page.uncompressed - len(present_levels(page.num_values))


def value_bytes(pages: Iterable[DataPage], *, optional: bool) -> Iterator[Bytes | None]:
    """The bytes of each page's values, whatever their encoding; None where some are null, or it does not decode.

    Whoever reads such a page in the common way will say what is wrong with it. Small ones are decompressed together.

    Raises
    ------
    ParquetFormatError
        The checksum of a page does not match.
    """
    packed = partial(_packed_present, optional=optional)
    for found in _decompressed(pages, packed):
        for page, raw in found:
            yield None if raw is None else _present_only(page, raw, optional=optional)


def page_bodies(pages: Iterable[DataPage], *, optional: bool) -> Iterator[tuple[Bytes | None, Bytes] | None]:
    """The levels of each page, as a v1 page has them, and the bytes of its values; None in place of levels that say of
    no value that it is null, and of both where they are of another form or do not decompress.

    Raises
    ------
    ParquetFormatError
        The checksum of a page does not match.
    """
    for found in _decompressed(pages, _packed):
        for page, raw in found:
            if raw is None or not optional:
                yield None if raw is None else (None, raw)
                continue
            values = None if page.is_v2 else _present_only(page, raw, optional=True)
            yield (None, values) if values is not None else _with_levels(page, raw)


def _with_levels(page: DataPage, raw: Bytes) -> tuple[Bytes | None, Bytes] | None:
    """The levels of a page of an optional column, and its values; None where they are of another form."""
    if page.is_v2:
        levels = page.body[: page.level_bytes]
        if page.num_nulls == 0 and _all_present(levels, page.num_values):
            return None, raw
        return np.frombuffer(len(levels).to_bytes(4, "little") + levels.tobytes(), np.uint8), raw
    stop = 4 + int.from_bytes(raw[:4].tobytes(), "little")
    return (raw[:stop], raw[stop:]) if page.level_encoding == Encoding.RLE and stop <= len(raw) else None


def _decompressed(
    pages: Iterable[DataPage], packed: Callable[[DataPage], tuple[memoryview, int]]
) -> Iterator[Iterable[tuple[DataPage, Bytes | None]]]:
    """The pages, some at a time, each with what of it is decompressed, which `packed` tells of v2: small ones are
    decompressed together."""
    group: list[DataPage] = []
    bodies: list[memoryview] = []
    sizes: list[int] = []
    held = 0
    for page in pages:
        body, size = (page.body, page.uncompressed) if not page.is_v2 else packed(page)
        check_crc(page.body, page.crc)
        together = page.codec == _ZSTD and size >= 0 and page.ahead is None
        if group and (not together or held + size > MOST_TOGETHER):
            yield zip(group, _unpack(bodies, sizes), strict=True)
            group, bodies, sizes, held = [], [], [], 0
        if together:
            group.append(page)
            bodies.append(body)
            sizes.append(size)
            held += size
        elif page.ahead is not None:
            yield ((page, page.ahead),)
        else:
            yield ((page, None if size < 0 else decompress(body, page.codec, size=size)),)
    if group:
        yield zip(group, _unpack(bodies, sizes), strict=True)


_ZSTD: Final = int(Codec.ZSTD)


def _packed(page: DataPage) -> tuple[memoryview, int]:
    """What of a page is decompressed, and to how many bytes; -1 where its levels are of no flat column."""
    if not page.is_v2:
        return page.body, page.uncompressed
    stop = page.level_bytes
    return (page.body[stop:], page.uncompressed - stop) if stop >= 0 else (page.body, -1)


def _packed_present(page: DataPage, *, optional: bool) -> tuple[memoryview, int]:
    """As `_packed`, and -1 where it can be told now that some values are null."""
    stop = page.level_bytes
    if page.is_v2 and (
        page.num_nulls > 0 or (optional and stop >= 0 and not _all_present(page.body[:stop], page.num_values))
    ):
        return page.body, -1
    return _packed(page)


def _unpack(bodies: Sequence[memoryview], sizes: Sequence[int]) -> Sequence[Bytes | None]:
    """Bodies that Zstandard compressed, together."""
    found = decompress_frames(bodies, sizes) if len(bodies) > 1 else None
    if found is not None:
        return found
    return [decompress(body, _ZSTD, size=size) for body, size in zip(bodies, sizes, strict=True)]


def _present_only(page: DataPage, raw: Bytes, *, optional: bool) -> Bytes | None:
    """The values behind the levels of a v1 page, if these say that none is null."""
    if page.is_v2 or not optional:
        return raw
    if page.level_encoding != _RLE:
        return None
    levels = present_levels(page.num_values)
    return raw[len(levels) :] if raw[: len(levels)].tobytes() == levels else None


_RLE: Final = int(Encoding.RLE)


def check_crc(page: memoryview, crc: int | None) -> None:
    """Hold the stored body of a page against its checksum; one of 0 stands for none.

    Raises
    ------
    ParquetFormatError
        It is not that of these bytes.
    """
    if crc is not None and crc > 0 and zlib.crc32(page) != crc:
        raise ParquetFormatError("the CRC checksum of a page is not that of its bytes")


def decompress(body: memoryview, codec: int, *, size: int) -> Bytes | None:
    """A page's body of `size` bytes; None where it does not decompress to that, or the codec is not known here."""
    if codec == Codec.UNCOMPRESSED:
        return np.frombuffer(body, np.uint8) if len(body) == size else None
    if codec == Codec.GZIP:
        return _inflate(body, size)
    name = _CODECS.get(codec)
    if name is None or (codec == Codec.SNAPPY and not body[:5].tobytes().startswith(encode_varint(size))):
        return None
    fast = fast_snappy(size) if codec == Codec.SNAPPY else None
    if fast is not None:
        out = allocate(size)
        return np.frombuffer(out, np.uint8) if fast(body, out) else None
    unpack = partial(pa.Codec(name).decompress, pa.py_buffer(body), memory_pool=pool())
    try:
        data = unpack(decompressed_size=size)
    except (pa.ArrowException, OSError, ValueError):
        # pyarrow's reader will say what is wrong with it.
        return None
    if codec in _SILENT and size:
        # Where less came out pyarrow does not tell, and the rest is whatever lay there; zstd and snappy do.
        with suppress(pa.ArrowException, OSError):
            unpack(decompressed_size=size - 1)
            return None
    return np.frombuffer(data, np.uint8)


def _inflate(body: memoryview, size: int) -> Bytes | None:
    stream = zlib.decompressobj(_ANY_WRAPPER)
    try:
        data = stream.decompress(body, size + 1)
    except zlib.error:
        return None
    return np.frombuffer(data, np.uint8) if stream.eof and len(data) == size else None


@lru_cache(64)
def present_levels(count: int) -> bytes:
    """Levels of a v1 page without nulls, as writers have them: their length, then one run of ones."""
    run = encode_varint(count << 1) + b"\x01"
    return len(run).to_bytes(4, "little") + run


def _all_present(levels: memoryview, count: int) -> bool:
    """Whether definition levels of one bit, in RLE runs, say of just so many values that none is null."""
    runs = find_runs(levels.tobytes(), start=0, width=1, count=count, most_runs=_MOST_RUNS)
    # Packed ones have nulls more often than not.
    return runs is not None and min(runs.values, default=1) == 1


_MOST_RUNS: Final = 64
