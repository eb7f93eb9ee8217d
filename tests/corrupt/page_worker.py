"""Reads files with changed pages by accel and by pyarrow, in a process of its own: either may end the
process.

Arguments: the first seed, and the one after the last. Before each case its seed is written to standard
output, then who is about to read, and what came of it, each a line of JSON.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import random
import resource
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
import accel.reader.reader
from accel.decode import dictionary_decode, direct_decoders, rewritten_pages
from accel.testing import DictStore
from tests.corrupt.page_changes import INDEXED, change_page
from tests.corrupt.page_parts import Page, PageId, Parts
from tests.support import older_pyarrow
from tests.support.arrow import as_text

older_pyarrow.install(skipping=False)

PATH = "dir/changed.parquet"
BASES = 240
"""So many files are changed, time and again."""
SECONDS = 30.0
"""A case that takes longer is a hang."""
_MEMORY = 8 << 30
_LIMIT = 64 << 20
_WHOLE = accel.Options(memory_limit=_LIMIT)
_PIECES = accel.Options(tail_hint=8, piece_bytes=1, max_gap_bytes=0, memory_limit=_LIMIT)


def _texts(rng: random.Random, rows: int) -> pa.Array:
    entries = rng.choice([1, 2, 9, 40, rows])
    even = rng.random() < 0.5
    few = [f"{n:06d}" if even else "é" * (n % 4) + str(n) for n in range(entries)]
    return pa.array(
        [rng.choice(few) for _ in range(rows)], rng.choice([pa.string(), pa.binary(), pa.large_string()])
    )


def _integers(rng: random.Random, rows: int) -> pa.Array:
    few = rng.choice([1, 3, 17, 200])
    kind = rng.choice([pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.timestamp("us"), pa.date32()])
    return (
        pa.array([rng.randrange(min(few, 100)) for _ in range(rows)], pa.int64())
        .cast(pa.int32() if kind == pa.date32() else kind)
        .cast(kind)
    )


def _floats(rng: random.Random, rows: int) -> pa.Array:
    few = rng.choice([2, 30, 1000])
    return pa.array([rng.randrange(few) / 4 for _ in range(rows)], rng.choice([pa.float32(), pa.float64()]))


def _fixed(rng: random.Random, rows: int) -> pa.Array:
    width, few = rng.choice([1, 5, 16]), rng.choice([2, 11, 300])
    return pa.array(
        [bytes([n % 256] * width) for n in (rng.randrange(few) for _ in range(rows))], pa.binary(width)
    )


def _decimals(rng: random.Random, rows: int) -> pa.Array:
    few = rng.choice([2, 30, 300])
    kind = pa.decimal128(rng.choice([5, 12, 30]), 2)
    return (
        pa.array([rng.randrange(few) for _ in range(rows)], pa.int32()).cast(pa.decimal128(38, 2)).cast(kind)
    )


def _booleans(rng: random.Random, rows: int) -> pa.Array:
    return pa.array([rng.random() < 0.5 for _ in range(rows)])


_FLAT: list[Callable[[random.Random, int], pa.Array]] = [
    _texts,
    _texts,
    _integers,
    _integers,
    _floats,
    _fixed,
    _decimals,
    _booleans,
]


def _with_nulls(rng: random.Random, array: pa.Array, share: float) -> pa.Array:
    if not share:
        return array
    # Some pages have none.
    empty = [n >= len(array) // 3 and rng.random() < share for n in range(len(array))]
    places = pa.array([None if gone else n for n, gone in enumerate(empty)], pa.int32())
    return array.take(places)


def _column(rng: random.Random, rows: int) -> pa.Array:
    shape = rng.choice(["flat"] * 5 + ["list", "struct", "list of struct"])
    share = rng.choice([0.0, 0.0, 0.2, 1.0])
    make = rng.choice(_FLAT)
    if shape == "flat":
        return _with_nulls(rng, make(rng, rows), share)
    if shape == "struct":
        fields = [_with_nulls(rng, make(rng, rows), share), rng.choice(_FLAT)(rng, rows)]
        return pa.StructArray.from_arrays(
            fields, ["x", "y"], mask=pa.array([rng.random() < 0.1 for _ in range(rows)])
        )
    sizes = [rng.choice([0, 1, 1, 2, 5]) for _ in range(rows)]
    offsets = [0, *np.cumsum(sizes).tolist()]
    values = _with_nulls(rng, make(rng, offsets[-1]), share)
    if shape == "list of struct":
        values = pa.StructArray.from_arrays([values, rng.choice(_FLAT)(rng, offsets[-1])], ["x", "y"])
    places = pa.array(offsets, pa.int32())
    if share:
        places = pa.array(
            [None if n < rows and rng.random() < 0.1 else at for n, at in enumerate(offsets)], pa.int32()
        )
    return pa.ListArray.from_arrays(places, values)


@lru_cache(BASES)
def _base(number: int) -> tuple[bytes, Parts, int]:
    """A file of a column of numbers that stays as it is, and of one to be changed; its parts, and its
    rows."""
    rng = random.Random(number)
    rows = rng.choice([12, 60, 60, 150, 400])
    column = _column(rng, rows)
    nullable = bool(column.null_count) or rng.random() < 0.5
    schema = pa.schema([pa.field("n", pa.int64(), False), pa.field("c", column.type, nullable)])
    table = pa.Table.from_arrays([pa.array(range(rows), pa.int64()), column], schema=schema)
    leaves = _leaves(schema.field("c"))
    encodings = ["PLAIN", "PLAIN", "dictionary", "dictionary", "dictionary", "dictionary", "delta"]
    encoding = rng.choice(encodings)
    chosen = {path: _delta(kind) for path, kind in leaves} if encoding == "delta" else None
    if chosen is not None and not all(chosen.values()):
        encoding, chosen = "dictionary", None
    page_rows = rng.choice([4, 20, 20, 100])
    options: dict[str, Any] = {
        "compression": rng.choice(["none", "none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": [path for path, _ in leaves] if encoding == "dictionary" else False,
        "dictionary_pagesize_limit": rng.choice([40, 1 << 20, 1 << 20]),
        "write_page_index": rng.random() < 0.75,
        "write_page_checksum": False,
        "max_rows_per_page": page_rows,
        "write_batch_size": page_rows,
        "row_group_size": rng.choice([rows, rows, 1 + rows // 2]),
        "store_schema": rng.random() < 0.7,
    }
    if chosen is not None:
        options["column_encoding"] = {path: kind for path, kind in chosen.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data = sink.getvalue().to_pybytes()
    stored = pq.ParquetFile(pa.BufferReader(data)).schema
    levels = [
        (stored.column(n).max_repetition_level, stored.column(n).max_definition_level)
        for n in range(len(stored))
    ]
    return data, Parts(data, levels), rows


def _leaves(field: pa.Field, path: str = "") -> list[tuple[str, pa.DataType]]:
    path = f"{path}.{field.name}" if path else field.name
    if pa.types.is_list(field.type):
        return _leaves(field.type.value_field.with_name("element"), f"{path}.list")
    if pa.types.is_struct(field.type):
        return [leaf for child in field.type for leaf in _leaves(child, path)]
    return [(path, field.type)]


def _delta(kind: pa.DataType) -> str | None:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_BYTE_ARRAY" if len(str(kind)) == 6 else "DELTA_LENGTH_BYTE_ARRAY"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    return "RLE" if pa.types.is_boolean(kind) else None


class Case:
    """The change of one seed: which pages, and the rows that are looked for."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"pages {seed}")
        self.rng = rng
        self.intact, self.parts, self.num_rows = _base(rng.randrange(BASES))
        pages = [
            (g, c, n) for (g, c), chunk in self.parts.chunks.items() if c for n in range(len(chunk.pages))
        ]
        self.changed: dict[PageId, Page] = {}
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            page = rng.choice(pages)
            old = self.changed.get(page) or self.parts.chunks[page[:2]].pages[page[2]]
            self.changed[page] = change_page(old, rng)
        self.locations: list[tuple[int, int, int, int, int]] = []
        self.metadata: list[tuple[int, int, int, int]] = []
        self._files: dict[Any, bytes] = {}
        lie = rng.random()
        if lie < 0.05:
            group, leaf, number = rng.choice(pages)
            if self.parts.chunks[group, leaf].offset_index is not None:
                self.locations = [
                    (group, leaf, number, rng.choice([1, 2, 3]), rng.choice([-1, 1, 7, 1 << 20]))
                ]
        elif lie < 0.1:
            group, leaf, _ = rng.choice(pages)
            self.metadata = [(group, leaf, rng.choice([5, 6, 7]), rng.choice([-1, 1, 5, 1 << 20]))]
        start = rng.randrange(self.num_rows)
        self.stretch = start, rng.randrange(start, self.num_rows) + 1
        self.row = rng.randrange(self.num_rows)

    @property
    def names_fewer(self) -> bool:
        """Whether a dictionary is changed, so that pages which are not may name what is no entry."""
        return any(place not in self.parts.rows for place in self.changed)

    def file(self, start: int, stop: int) -> bytes:
        """The file with just those of the changes that a reader of these rows meets."""
        kept = {place: page for place, page in self.changed.items() if self._is_read(place, start, stop)}
        told = [lie for lie in self.metadata if self._overlaps(lie[:2], start, stop)]
        key = frozenset(kept), bool(told)
        if key not in self._files:
            self._files[key] = self.parts.assemble(kept, locations=self.locations, metadata=told)
        return self._files[key]

    def _is_read(self, place: PageId, start: int, stop: int) -> bool:
        rows = self.parts.rows.get(place)
        if rows is not None:
            return rows.start < stop and start < rows.stop
        # Of a dictionary: where a page that is read names its entries, as it was or as it is said to.
        data = [
            other for other in self.parts.rows if other[:2] == place[:2] and self._is_read(other, start, stop)
        ]
        both = [[self.parts.chunks[other[:2]].pages[other[2]], self.changed.get(other)] for other in data]
        return any(page is not None and page.encoding in INDEXED for pages in both for page in pages)

    def _overlaps(self, chunk: tuple[int, ...], start: int, stop: int) -> bool:
        return any(
            rows.start < stop and start < rows.stop
            for (g, c, _), rows in self.parts.rows.items()
            if (g, c) == chunk
        )


def _references(data: bytes) -> list[pa.Table]:
    """What pyarrow reads: of all row groups at once, and of one after the other, as then none begins where
    the last has left off too late; none where it refuses that."""
    tables: list[pa.Table] = []
    with contextlib.suppress(Exception):
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        groups = range(file.num_row_groups)
        with contextlib.suppress(Exception):
            tables.append(file.read(use_threads=False))
        if len(groups) > 1:
            tables.append(
                pa.concat_tables([file.read_row_group(group, use_threads=False) for group in groups])
            )
    return tables


def _read(data: bytes, options: accel.Options, **asked: Any) -> tuple[str, Any]:
    store = DictStore({PATH: data})
    try:
        return "rows", accel.scan(PATH, store=store, cache=accel.Cache(), options=options, **asked).to_table()
    except accel.AccelError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - what comes out is the finding
        return "escaped", f"{type(error).__name__}: {error}"


def _judge(case: Case, found: tuple[str, Any], start: int, stop: int) -> tuple[str, str]:
    """What came of a read of some rows, held against pyarrow's read of a file that is changed where these
    rows are."""
    kind, rows = found
    if kind == "escaped":
        return "ESCAPED", rows
    say(reader="pyarrow")
    tables = _references(case.file(start, stop))
    if kind == "refused":
        return ("only accel refuses" if tables else "both refuse"), rows
    here = as_text(rows)
    if not tables:
        part = stop - start < case.num_rows
        if part and (
            case.names_fewer or (case.metadata and here == as_text(_slice(case.intact, start, stop)))
        ):
            # What pyarrow refuses may be an index on a page that is not read, or what the footer says of all
            # pages.
            return "not judged", ""
        return "ONLY PYARROW REFUSES", here[:400]
    wanted = [as_text(table.slice(start, stop - start)) for table in tables]
    same = here in wanted
    return ("same rows", "") if same else ("OTHER ROWS", f"pyarrow {wanted[0][:600]}; accel {here[:600]}")


def _slice(intact: bytes, start: int, stop: int) -> pa.Table:
    return pq.read_table(pa.BufferReader(intact)).slice(start, stop - start)


def _settings(rng: random.Random) -> None:
    """Sizes from which on ways of decoding are taken, so that small pages take each."""
    direct_decoders.MOST_PICKED = rng.choice([0, 1 << 15, 1 << 15])
    direct_decoders.SEVERAL = rng.choice([1, 4])
    direct_decoders.RARE = rng.choice([1, 64])
    dictionary_decode.FEW_VALUES = rng.choice([0, 4096])
    rewritten_pages.LEAST_PAGE = rng.choice([0, 16 << 10])


def run(seed: int, tell: Callable[[str, str, str], None], *, alone: bool = False) -> None:
    """Read a case by accel in full, in part, or for one row, and tell what came of it; each of them if it is
    `alone`."""
    case = Case(seed)
    rng = case.rng
    # Of their own, so that a seed stays the same case when a way of decoding comes or goes.
    _settings(random.Random(f"settings {seed}"))
    first, last = case.stretch
    asked: list[tuple[str, int, int, dict[str, Any]]] = [
        ("full", 0, case.num_rows, {}),
        ("part", first, last, {"where": f"n >= {first} AND n < {last}"}),
        ("row", case.row, case.row + 1, {"where": f"n = {case.row}"}),
    ]
    chosen = rng.choice(asked)
    for name, start, stop, keywords in asked if alone else [chosen]:
        say(reader="accel")
        found = _read(case.file(0, case.num_rows), rng.choice([_WHOLE, _WHOLE, _PIECES]), **keywords)
        tell(name, *_judge(case, found, start, stop))


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(start: int, stop: int) -> None:
    # However small these files are, their page indexes are to be met. Here, as it is for the whole process.
    accel.reader.reader.WHOLE_BYTES = 0
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    alone = stop - start == 1
    for seed in range(start, stop):
        say(seed=seed)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        run(seed, lambda name, outcome, words: say(read=name, outcome=outcome, words=words), alone=alone)
        faulthandler.cancel_dump_traceback_later()
    say(done=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
