"""How long the texts of a dictionary page are, without trusting it.

A dictionary page of BYTE_ARRAY has the very bytes of a plain data page of a required column, so
pyarrow decodes it as one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from accel.decode.arrow import open_reader, translate_errors
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.errors import ParquetFormatError
from accel.format.model import (
    Encoding,
    Leaf,
    PageType,
    ParquetSchema,
    Physical,
    Repetition,
    SchemaElement,
)
from accel.format.page_header import parse_page_header
from accel.format.thrift import BINARY, I32, STRUCT, Struct, write_struct
from accel.ranges import Buffer

__all__ = ["longest_text"]


def longest_text(page: Buffer, codec: int) -> int:
    """The bytes of the longest entry of a BYTE_ARRAY dictionary page (header included), verified before.

    Raises
    ------
    ParquetFormatError
        It does not decode.
    """
    header = parse_page_header(page)
    if header.num_values == 0:
        return 0
    levels: Struct = {
        1: (I32, header.num_values),
        2: (I32, int(Encoding.PLAIN)),
        3: (I32, int(Encoding.RLE)),
        4: (I32, int(Encoding.RLE)),
    }
    as_data = write_struct(
        {
            1: (I32, int(PageType.DATA_PAGE)),
            2: (I32, header.uncompressed_size),
            3: (I32, header.compressed_size),
            5: (STRUCT, levels),
        }
    )
    parts = (as_data, memoryview(page)[header.header_length :])
    chunk = SplicedChunk(parts, codec, header.num_values, header.uncompressed_size)
    plan = plan_splice(_SCHEMA, _NO_METADATA, [0])
    with translate_errors(place="dictionary page"):
        reader = open_reader(splice(plan, {0: chunk}, num_rows=header.num_values))
        chunks = reader.read_row_groups([0], [0], False).column(0).chunks
    if sum(map(len, chunks)) != header.num_values:
        raise ParquetFormatError("it has not the entries that its header says", place="dictionary page")
    return max(
        int(np.diff(np.frombuffer(c.buffers()[1], np.int32, len(c) + 1, 4 * c.offset)).max()) for c in chunks
    )


def _element(name: str, physical: Physical | None, fields: Struct) -> SchemaElement:
    return SchemaElement(
        name=name,
        physical=physical,
        type_length=0,
        repetition=Repetition.REQUIRED,
        num_children=0 if physical is not None else 1,
        converted_type=None,
        logical_type=None,
        logical_params={},
        scale=0,
        precision=0,
        field_id=None,
        raw=write_struct(fields),
    )


_NO_METADATA: Final[dict[str, bytes]] = {}
_SCHEMA: Final = ParquetSchema(
    elements=(
        _element("schema", None, {4: (BINARY, b"schema"), 5: (I32, 1)}),
        _element(
            "text",
            Physical.BYTE_ARRAY,
            {1: (I32, int(Physical.BYTE_ARRAY)), 3: (I32, int(Repetition.REQUIRED)), 4: (BINARY, b"text")},
        ),
    ),
    leaves=(Leaf(ordinal=0, path=("text",), element=1, ancestors=(), max_definition=0, max_repetition=0),),
    fields=(1,),
    subtree_ends=(2, 2),
    field_leaves=((0, 1),),
)
