"""Dictionary-encoded columns read as the indices that their pages hold.

pyarrow decodes indices several times faster than texts, and ten times faster than decimals of fixed length. A page of
indices does not say what they name: in the spliced file the column is one of INT32, and its dictionary that of
the numbers from 0 on. So pyarrow gives each index as it stands, holds it against the dictionary's size, and the
column's own dictionary is decoded apart, once.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache

from accel.decode.chunks import ChunkPages
from accel.decode.dictionary import dictionary_values
from accel.decode.forms import Form, form_of
from accel.decode.plain import read_entries
from accel.decode.splice import SplicedChunk
from accel.decode.stored import STORABLE, store_bytes
from accel.decode.trim import is_view
from accel.decode.verify import DictionaryFacts, PageFacts
from accel.format.model import Encoding, PageType, Physical, SchemaElement
from accel.format.thrift import I32, STRUCT, write_struct
from accel.ranges import Buffer

__all__ = [
    "FEW_VALUES",
    "number_page",
    "pays",
    "pick_entries",
    "read_as_indices",
    "splice_indices",
    "stays_indexed",
]

_LEAST_NAMED: Final[dict[Physical | None, int]] = {Physical.BYTE_ARRAY: 2, Physical.FIXED_LEN_BYTE_ARRAY: 1}
"""A dictionary whose entries are named fewer times than this on average would cost more than the values. Texts that
seem to be of one length are none the less: they are taken as they lie."""
_FEW_ENTRIES = 4096
FEW_VALUES = 4096
"""So few values are decoded in the time that a small dictionary takes by itself."""


def stays_indexed(kind: pa.DataType, element: SchemaElement, *, facts: PageFacts, codec: int) -> bool:
    """Whether a top-level column of this type is read as indices: all of its pages are dictionary-encoded."""
    named = facts.sole_dictionary
    if named is None:
        return False
    few = named.named <= FEW_VALUES and named.uncompressed <= _SMALL_PAGE
    return not few and pays(kind, element, named, codec)


def pays(kind: pa.DataType, element: SchemaElement, named: DictionaryFacts, codec: int) -> bool:
    """Whether values of a top-level column are decoded slower than indices; numbers are not."""
    least = 1 if _is_even(named) else _LEAST_NAMED.get(element.physical, 0)
    if codec not in STORABLE or named.named < least * named.entries:
        return False
    types = pa.types
    if element.physical is Physical.BYTE_ARRAY:
        narrow = types.is_string(kind) or types.is_binary(kind) or is_view(kind)
        return bool(narrow or types.is_large_string(kind) or types.is_large_binary(kind))
    if element.physical is not Physical.FIXED_LEN_BYTE_ARRAY:
        return False
    decimal = types.is_decimal128(kind) or types.is_decimal256(kind)
    return bool(decimal or types.is_fixed_size_binary(kind))


def _is_even(named: DictionaryFacts) -> bool:
    """Whether the entries of a large dictionary have the size that texts of one length have."""
    return named.entries > _FEW_ENTRIES and named.uncompressed % named.entries == 0


def splice_indices(chunk: ChunkPages, facts: PageFacts, *, named: DictionaryFacts) -> SplicedChunk:
    """The chunk as one of INT32, for a plan that has its leaf among `indexed`."""
    if chunk.dictionary is not None:
        pages = facts.parts[1:]
    else:
        # A whole chunk begins with its dictionary.
        pages = (memoryview(facts.parts[0])[len(named.page) :], *facts.parts[1:])
    numbers = number_page(named.entries, chunk.codec)
    size = facts.uncompressed - named.uncompressed + 4 * named.entries
    return SplicedChunk((numbers, *pages), chunk.codec, facts.num_values, size)


def read_as_indices(
    indices: pa.ChunkedArray, named: DictionaryFacts, *, codec: int, element: SchemaElement, kind: pa.DataType
) -> pa.ChunkedArray:
    """The decoded indices with the dictionary that they point into.

    Raises
    ------
    ParquetFormatError
        The dictionary does not decode.
    """
    dictionary = _dictionary(named, codec, element, kind)
    arrays = [pa.DictionaryArray.from_arrays(chunk, dictionary, safe=False) for chunk in indices.chunks]
    return pa.chunked_array(arrays, type=pa.dictionary(pa.int32(), kind))


def pick_entries(
    named: DictionaryFacts,
    codec: int,
    *,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form,
    indices: npt.NDArray[np.int64],
) -> tuple[pa.Array, npt.NDArray[np.int64] | None]:
    """Values, and the places among them of what the indices name; None for those in their order.

    Raises
    ------
    ParquetFormatError
        The dictionary does not decode.
    """
    if len(indices) * _FEW_NAMED < named.entries and not _is_small(named):
        # Of most dictionaries the entries lie where they are looked for: no other needs to be decoded.
        found = read_entries(named.page, codec, kind=kind, form=form, chosen=indices)
        if found is not None:
            return found, None
    return _dictionary(named, codec, element, kind), indices


_FEW_NAMED = 4


def _is_small(named: DictionaryFacts) -> bool:
    """Whether its entries are kept once they are decoded."""
    small = len(named.page) <= _SMALL_PAGE and named.entries <= _FEW_ENTRIES
    return small and named.uncompressed <= 4 * _SMALL_PAGE


def _dictionary(named: DictionaryFacts, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    """The entries; of a small page they are kept for the next one with the very bytes."""
    key = (bytes(named.page), codec, element.raw, kind) if _is_small(named) else None
    if key is not None:
        with _lock:
            known = _decoded.get(key)
        if known is not None:
            return known
    form = form_of(kind, element)
    found = None if form is None else read_entries(named.page, codec, kind=kind, form=form)
    if found is None:
        found = dictionary_values(named.page, codec, element, arrow_type=kind)
    if key is not None:
        with _lock:
            _decoded[key] = found
    return found


_SMALL_PAGE = 16 << 10
_lock = threading.Lock()
_decoded: LRUCache[Hashable, pa.Array] = LRUCache(128)


def number_page(entries: int, codec: int) -> Buffer:
    """A dictionary page of INT32 (header included): each index names itself."""
    return _few_numbers(entries, codec) if entries <= _FEW_ENTRIES else _number_page(entries, codec)


def _number_page(entries: int, codec: int) -> Buffer:
    body = store_bytes(np.arange(entries, dtype="<i4").tobytes(), codec)
    if body is None:
        raise ValueError(f"pages of codec {codec} cannot be stored")
    header = write_struct(
        {
            1: (I32, int(PageType.DICTIONARY_PAGE)),
            2: (I32, 4 * entries),
            3: (I32, len(body)),
            7: (STRUCT, {1: (I32, entries), 2: (I32, int(Encoding.PLAIN))}),
        }
    )
    return header + body


_few_numbers = lru_cache(64)(_number_page)
