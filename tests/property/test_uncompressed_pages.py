"""Chunks spliced with their pages decompressed: what comes out is what pyarrow's own reading of the file
gives.

Random columns of every type, flat and nested: every codec, both kinds of page, dictionaries that run full
midway, checksums, whole chunks and chosen pages; and pages that are damaged.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import codecs, columns, rewritten_pages
from accel.decode.dictionary_arrays import Values
from accel.decode.splice import SplicedChunk
from accel.errors import AccelError
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import assert_same, decode, open_metadata, random_rows, truth
from tests.unit.decode.typed import FLAT, NESTED, column

Seen = list[SplicedChunk | None]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The chunks that are decompressed, or None for those that are not; pages of any size qualify."""
    found: Seen = []
    made = rewritten_pages.uncompressed_chunk

    def recorded(*given: Any, **named: Any) -> SplicedChunk | None:
        found.append(made(*given, **named))
        return found[-1]

    monkeypatch.setattr(columns, "uncompressed_chunk", recorded)
    monkeypatch.setattr(rewritten_pages, "LEAST_PAGE", 0)
    monkeypatch.setattr(codecs, "cramjam_library", codecs.CramjamLibrary())
    codecs.load_library()
    return found


def _write(arrays: dict[str, pa.Array], rng: random.Random, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    pq.write_table(
        table,
        sink,
        compression=codec,
        data_page_version=rng.choice(["1.0", "2.0"]),
        use_dictionary=rng.random() < 0.6,
        dictionary_pagesize_limit=rng.choice([100, 1 << 20]),
        write_page_index=rng.random() < 0.6,
        write_page_checksum=rng.random() < 0.5,
        write_statistics=rng.random() < 0.5,
        max_rows_per_page=rng.choice([17, 60, 1000]),
        write_batch_size=16,
    )
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("codec", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("name", [*FLAT, *NESTED])
def test_every_type_comes_as_pyarrow_reads_it(
    name: str, codec: str, seen: Seen, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(request.node.name)
    rows = rng.choice([1, 70, 400])
    other = rng.choice([*FLAT, *NESTED])
    arrays = {
        "a": column(*(FLAT | NESTED)[name], rows, rng, nulls=rng.choice([0.0, 0.3, 1.0])),
        "b": column(*(FLAT | NESTED)[other], rows, rng, nulls=rng.choice([0.0, 0.3])),
    }
    data = _write(arrays, rng, codec)
    monkeypatch.setattr(columns, "MOST_DECOMPRESSED", rng.choice([1, 8 << 20]))
    for _ in range(4):
        chosen, whole = random_rows(rng, rows), rng.random() < 0.3
        expected = truth(data, chosen)
        for values in Values:
            assert_same(decode(data, chosen, whole=whole, values=values), expected)
    assert all(chunk is not None for chunk in seen) and bool(seen) <= (codec == "snappy")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_these_are_read_so(version: str, dictionary: bool, checksums: bool, seen: Seen) -> None:
    texts = pa.array([None if i % 5 == 1 else f"{i % 40:05}" * (1 + i % 3) for i in range(900)])
    lists = pa.array([[i, None] if i % 4 else None for i in range(900)], pa.list_(pa.int64()))
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"t": texts, "l": lists}),
        sink,
        compression="snappy",
        data_page_version=version,
        use_dictionary=dictionary,
        write_page_checksum=checksums,
        max_rows_per_page=300,
        write_page_index=True,
    )
    data = sink.getvalue().to_pybytes()
    rows = RowSelection.all(900)
    assert_same(decode(data, rows), truth(data, rows))
    assert len(seen) == 2 and None not in seen


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_met_as_it_is_without_it(seed: int, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    names = rng.sample([*FLAT, *NESTED], 2)
    arrays = {n: column(*(FLAT | NESTED)[n], 300, rng, nulls=rng.choice([0.0, 0.3])) for n in names}
    data = bytearray(_write(arrays, rng, "snappy"))
    meta = open_metadata(bytes(data))
    starts, ends = meta.chunks.start[0].tolist(), meta.chunks.end[0].tolist()
    for _ in range(12):
        leaf = rng.randrange(len(starts))
        at = rng.randrange(starts[leaf], ends[leaf])
        before = data[at]
        data[at] ^= 1 << rng.randrange(8)
        damaged = bytes(data)
        data[at] = before
        codecs.load_library()
        bare_found = _outcome(damaged)
        monkeypatch.setattr(codecs.cramjam_library, "decompress", None)
        monkeypatch.setattr(codecs.cramjam_library, "missing", True)
        assert bare_found == _outcome(damaged)


def _outcome(data: bytes) -> bytes | str:
    """What is decoded, or what is said instead."""
    try:
        table = decode(data, RowSelection.all(300), whole=True, memory_limit=64 << 20)
    except AccelError as error:
        assert error.place is not None and error.path == "file.parquet"
        return str(error)
    # As bytes: damaged text need not be text.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
