"""Pages made bare: their headers, byte by byte, and which chunks are left as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import codecs, rewritten_pages
from accel.decode.rewritten_pages import uncompressed_chunk
from accel.decode.verify import PageFacts, verify_chunk
from accel.format.page_header import parse_page_header, walk_pages
from accel.format.thrift import read_struct
from tests.unit.decode.selected import open_metadata, whole_chunk

_TEXTS = pa.table({"t": [None if i % 9 == 4 else f"{i % 50}" * 40 for i in range(4_000)]})


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "cramjam_library", codecs.CramjamLibrary())
    monkeypatch.setattr(rewritten_pages, "LEAST_PAGE", 0)
    codecs.load_library()


def _chunk(table: pa.Table, **options: Any) -> tuple[Any, PageFacts]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "snappy", "max_rows_per_page": 1_000, **options})
    data = sink.getvalue().to_pybytes()
    meta = open_metadata(data)
    leaf = meta.schema.leaves[0]
    chunk = whole_chunk(data, meta, 0, 0)
    return chunk, verify_chunk(
        chunk, leaf, element=meta.schema.elements[leaf.element], memory_limit=None, place=lambda: ""
    )


def _joined(chunk: Any, facts: PageFacts) -> bytes:
    found = uncompressed_chunk(chunk, facts, indexed=False)
    assert found is not None
    parts = []
    for part in found.parts:
        if isinstance(part, rewritten_pages.CompressedBody):
            out = np.zeros(len(part), np.uint8)
            part.put(out)
            parts.append(out.tobytes())
        else:
            parts.append(bytes(part))
    data = b"".join(parts)
    assert len(data) == found.uncompressed
    return data


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("dictionary", [True, False])
def test_headers_say_the_same_but_for_size_and_checksum(
    version: str, checksums: bool, statistics: bool, dictionary: bool
) -> None:
    chunk, facts = _chunk(
        _TEXTS,
        data_page_version=version,
        write_page_checksum=checksums,
        write_statistics=statistics,
        use_dictionary=dictionary,
    )
    data = _joined(chunk, facts)
    stored = bytes(chunk.buffers[0])
    before = walk_pages(stored, max_pages=100, num_values=4_000)
    after = walk_pages(data, max_pages=100)
    assert after.num_pages == before.num_pages == 4 + dictionary
    for was, now in zip(before.start.tolist(), after.start.tolist(), strict=True):
        fields, _ = read_struct(stored[was:])
        fields[3] = fields[2]
        fields.pop(4, None)
        assert read_struct(data[now:])[0] == fields
    # And they are as short as they can be: what is told is what is there.
    header = parse_page_header(data, int(after.start[-1]))
    assert int(after.start[-1]) + header.header_length + header.uncompressed_size == len(data)


def test_a_page_that_is_not_what_its_checksum_is_of_leaves_the_chunk_as_it_is() -> None:
    chunk, facts = _chunk(_TEXTS, write_page_checksum=True)
    held = bytearray(chunk.buffers[0])
    held[int(facts.tables[0].body[2]) + 3] ^= 1
    damaged = replace(chunk, buffers=(bytes(held),))
    assert uncompressed_chunk(damaged, facts, indexed=False) is None
    assert uncompressed_chunk(chunk, facts, indexed=False) is not None


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip", "brotli", "lz4"])
def test_other_codecs_are_left(codec: str) -> None:
    assert uncompressed_chunk(*_chunk(_TEXTS, compression=codec), indexed=False) is None


@pytest.mark.parametrize(
    ("name", "value"), [("LEAST_PAGE", 1 << 20), ("_MOST_BYTES", 1000)], ids=["small pages", "much"]
)
def test_what_does_not_pay_or_is_too_much_is_left(
    name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewritten_pages, name, value)
    assert uncompressed_chunk(*_chunk(_TEXTS), indexed=False) is None
