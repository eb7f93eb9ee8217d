"""Dictionary-encoded columns of which many rows are wanted, read from pages made bare.

For each page pyarrow makes a context of the codec, decodes levels that say the same of every value, and then copies the
values by runs of what is not null. Here pages are decompressed together, levels that hide nothing are left out, and what
is left is handed to pyarrow as a file of one column of integers that is neither compressed nor, if it can be helped,
optional. Texts and values of fixed length come as indices (`accel.decode.entries`), numbers as what they are.

Source: parquet-format `parquet.thrift` (PageHeader), `Encodings.md` (RLE_DICTIONARY).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from accel.arrays import relabel
from accel.decode.arrow import open_reader
from accel.decode.bodies import (
    Bytes,
    DataPage,
    check_crc,
    decompress,
    page_bodies,
    present_levels,
)
from accel.decode.entries import number_page, pays, read_as_indices
from accel.decode.forms import Form, Shape, put
from accel.decode.indexed import check_indices
from accel.decode.lone_column import lone_column
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.decode.verify import DictionaryFacts
from accel.errors import ParquetFormatError
from accel.format.model import (
    Codec,
    Encoding,
    PageType,
    Physical,
    Repetition,
    SchemaElement,
)
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, STRUCT, Struct, encode_varint, write_struct
from accel.memory import allocate
from accel.ranges import Buffer

__all__ = ["read_coded"]

_NUMBERS: Final = frozenset({Physical.INT32, Physical.INT64, Physical.FLOAT, Physical.DOUBLE})
_NO_METADATA: Final[dict[str, bytes]] = {}


def read_coded(
    pages: Sequence[DataPage],
    *,
    named: DictionaryFacts,
    codec: int,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form | None,
    optional: bool,
) -> pa.ChunkedArray | None:
    """All rows of pages that are all dictionary-encoded; None where they are to be read in the common way.

    Parameters
    ----------
    kind, form
        Of the array, and how its values lie in the dictionary.

    Returns
    -------
    pyarrow.ChunkedArray or None
        Of `kind`; or of dictionary arrays of it, their indices checked.

    Raises
    ------
    ParquetFormatError
        A checksum does not match, or the dictionary does not decode.
    pyarrow.ArrowException, OSError
        The pages do not decode.
    """
    if pays(kind, element, named, codec):
        numbers = number_page(named.entries, Codec.UNCOMPRESSED)
        indices = _read(pages, (numbers,), Physical.INT32, optional)
        if indices is None:
            return None
        found = read_as_indices(indices, named, codec=codec, element=element, kind=kind)
        check_indices(found)
        return found
    if form is None or element.physical not in _NUMBERS:
        return None
    dictionary = _bare_dictionary(named, codec, form.width)
    if dictionary is None:
        return None
    physical = Physical.INT32 if form.width == 4 else Physical.INT64
    values = _read(pages, dictionary, physical, optional)
    return None if values is None else pa.chunked_array([_shaped(part, kind, form) for part in values.chunks])


def _read(
    pages: Sequence[DataPage], dictionary: Sequence[Buffer], physical: Physical, optional: bool
) -> pa.ChunkedArray | None:
    """What the pages name of a dictionary of integers."""
    bodies: list[tuple[Bytes | None, Bytes]] = []
    for body in page_bodies(pages, optional=optional):
        if body is None:
            return None
        bodies.append(body)
    nullable = any(levels is not None for levels, _ in bodies)
    counts = [page.num_values for page in pages]
    parts = [*dictionary, *_bare_pages(counts, bodies, nullable)]
    bodies.clear()
    chunk = SplicedChunk(tuple(parts), Codec.UNCOMPRESSED, sum(counts), sum(map(len, parts)))
    schema = _SCHEMAS[physical, Repetition.OPTIONAL if nullable else Repetition.REQUIRED]
    data = splice(plan_splice(schema, _NO_METADATA, fields=[0]), {0: chunk}, num_rows=sum(counts))
    del parts, chunk
    column = open_reader(data).read_row_groups([0], [0], False).column(0)
    if len(column) != sum(counts):
        raise ParquetFormatError(f"{len(column)} rows were decoded, promised are {sum(counts)}")
    return column


def _bare_pages(
    counts: Sequence[int], bodies: Sequence[tuple[Bytes | None, Bytes]], nullable: bool
) -> Iterable[Buffer]:
    for count, (levels, values) in zip(counts, bodies, strict=True):
        if not nullable:
            yield _header(count, len(values))
        else:
            prefix = present_levels(count) if levels is None else levels.data
            yield _header(count, len(prefix) + len(values))
            yield prefix
        yield values.data


@lru_cache(256)
def _header(count: int, size: int) -> bytes:
    """Of a v1 data page that is not compressed."""
    length = encode_varint(size << 1)
    # type DATA_PAGE, both sizes; then num_values, RLE_DICTIONARY, and RLE for levels of either kind.
    head = b"\x15\x00\x15" + length + b"\x15" + length + b"\x2c\x15" + encode_varint(count << 1)
    return head + b"\x15\x10\x15\x06\x15\x06\x00\x00"


def _bare_dictionary(named: DictionaryFacts, codec: int, width: int) -> tuple[Buffer, Buffer] | None:
    """The header and the body of a dictionary page of numbers, not compressed; None where it has not their size."""
    header = parse_page_header(named.page)
    body = memoryview(named.page)[header.header_length :][: header.compressed_size]
    check_crc(body, header.crc)
    size = header.uncompressed_size
    raw = decompress(body, codec, size=size) if size == width * header.num_values else None
    if raw is None:
        return None
    counts: Struct = {1: (I32, header.num_values), 2: (I32, int(Encoding.PLAIN))}
    fields: Struct = {
        1: (I32, int(PageType.DICTIONARY_PAGE)),
        2: (I32, size),
        3: (I32, size),
        7: (STRUCT, counts),
    }
    return write_struct(fields), raw.data


def _shaped(numbers: pa.Array, kind: pa.DataType, form: Form) -> pa.Array:
    """Integers as they stand in the pages, as values of this type."""
    if form.shape is Shape.COPIED:
        return relabel(numbers, kind)
    validity, stored = numbers.buffers()
    count = numbers.offset + len(numbers)
    out = allocate(count * form.out)
    put(form, np.frombuffer(stored, np.uint8, count * form.width), np.frombuffer(out, np.uint8), 0)
    return pa.Array.from_buffers(kind, len(numbers), [validity, out], numbers.null_count, numbers.offset)


_SCHEMAS: Final = {
    (physical, repetition): lone_column("number", physical, repetition=repetition)
    for physical in (Physical.INT32, Physical.INT64)
    for repetition in (Repetition.REQUIRED, Repetition.OPTIONAL)
}
