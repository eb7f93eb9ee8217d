"""Decode damaged pages: a program of its own, because what it looks for would end the process.

    python -m tests.unit.decode.damage SEED COUNT

prints one line of counts: how many damaged inputs were refused, and how many decoded to something.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from accel.decode import dictionary_decode, direct_decoders
from accel.decode.arrow import projected_schema
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.errors import AccelError
from accel.planning.selection import RowSelection
from accel.ranges import Buffer
from tests.support import older_pyarrow
from tests.unit.decode.selected import chosen_pages, open_metadata, random_rows
from tests.unit.decode.typed import FLAT, NESTED, column

older_pyarrow.install(skipping=False)

_ROWS = 120


def _damage(buffer: Buffer, rng: random.Random) -> bytes:
    data = bytearray(buffer)
    for _ in range(rng.choice([1, 1, 2, 5])):
        kind = rng.randrange(4)
        # Half of the damage is to the first header, where lies do most.
        at = rng.randrange(min(len(data), 24 if rng.random() < 0.5 else len(data))) if data else 0
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.randrange(4)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(4))
    return bytes(data)


def _file(rng: random.Random, names: list[str]) -> bytes:
    arrays = [column(*(FLAT | NESTED)[n], _ROWS, rng, nulls=rng.choice([0.0, 0.3])) for n in names]
    table = pa.Table.from_arrays(arrays, names=names)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=rng.choice(["NONE", "NONE", "SNAPPY", "ZSTD", "LZ4", "LZ4_RAW", "GZIP", "BROTLI"]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        use_dictionary=rng.random() < 0.5,
        write_page_index=rng.random() < 0.7,
        max_rows_per_page=rng.choice([17, 50, 1000]),
    )
    return sink.getvalue().to_pybytes()


def run(seed: int, count: int) -> Counter[str]:
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    names = [
        name
        for name, (kind, make) in (FLAT | NESTED).items()
        if older_pyarrow.writes(column(kind, make, _ROWS, random.Random(0), nulls=0.3))
    ]
    while outcomes.total() < count:
        chosen = rng.sample(names, 2)
        data = _file(rng, chosen)
        meta = open_metadata(data)
        leaves = range(len(meta.schema.leaves))
        schema = projected_schema(meta.schema, meta.key_value, leaves=leaves)
        for _ in range(20):
            # Both ways of reading what is dictionary-encoded.
            direct_decoders.MOST_PICKED = rng.choice([0, 1 << 15])
            direct_decoders.SEVERAL, dictionary_decode.FEW_VALUES = rng.choice([1, 4]), rng.choice([0, 4096])
            rows = random_rows(rng, _ROWS)
            if not rows:
                rows = RowSelection.all(_ROWS)
            chunks = {leaf: chosen_pages(data, meta, 0, leaf, rows) for leaf in leaves}
            hit = rng.choice(leaves)
            chunk = chunks[hit]
            if chunk.dictionary is not None and rng.random() < 0.4:
                chunks[hit] = replace(chunk, dictionary=_damage(chunk.dictionary, rng))
            else:
                chunks[hit] = replace(chunk, buffers=tuple(_damage(b, rng) for b in chunk.buffers))
            try:
                arrays = decode_columns(
                    StoredRowGroup("f", 0, meta.schema, meta.key_value),
                    chunks,
                    rows=rows,
                    arrow_schema=schema,
                    memory_limit=64 << 20,
                )
            except AccelError as error:
                assert error.path == "f" and error.place is not None, repr(error)
                outcomes["refused"] += 1
            else:
                # Garbage without a checksum may decode; but to sound arrays of the right size and type.
                for array, field in zip(arrays, schema, strict=True):
                    assert len(array) == rows.count and array.type == field.type
                    array.validate()
                outcomes["decoded"] += 1
    return outcomes


if __name__ == "__main__":
    import faulthandler
    import resource

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    found = run(int(sys.argv[1]), int(sys.argv[2]))
    print(f"refused {found['refused']}, decoded {found['decoded']}")
