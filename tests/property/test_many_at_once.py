"""Many questions at once: to each the answer that it has by itself, and for a damaged file the same error."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore
from tests.property.test_stacks import KINDS, damage, plain

SEED, FILES, DAMAGED, AT_ONCE = 20261125, 4, 3, 30
ROWS = 2000


def file_of(rng: random.Random) -> bytes:
    columns = {"key": pa.array(range(ROWS), pa.int64())}
    for number, (kind, value) in enumerate(rng.sample(list(KINDS.items()), 4)):
        nulls = rng.choice([0.0, 0.0, 0.2])
        values = [None if rng.random() < nulls else value(rng) for _ in range(ROWS)]
        dictionary = isinstance(kind, pa.DictionaryType)
        array = pa.array(values, kind.value_type if dictionary else kind)
        columns[f"c{number}"] = array.dictionary_encode() if dictionary else array
    fields = [
        pa.field(name, a.type, nullable=a.null_count > 0 or rng.random() < 0.6) for name, a in columns.items()
    ]
    sink = io.BytesIO()
    pq.write_table(
        pa.table(list(columns.values()), schema=pa.schema(fields)),
        sink,
        row_group_size=rng.choice([700, ROWS]),
        compression={name: rng.choice(["zstd", "zstd", "snappy", "gzip", "lz4"]) for name in columns},
        use_dictionary=rng.choice([True, False, ["c0", "c2"]]),
        dictionary_pagesize_limit=rng.choice([None, 300]),
        data_page_version=rng.choice(["1.0", "1.0", "1.0", "2.0"]),
        data_page_size=500,
        write_batch_size=rng.choice([50, 100]),
        write_page_index=True,
        write_page_checksum=rng.random() < 0.5,
    )
    return sink.getvalue()


def questions(rng: random.Random) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = []
    for _ in range(AT_ONCE):
        key = rng.randrange(ROWS + 50)
        wheres = [
            f"key = {key}",
            f"key >= {key} AND key < {key + rng.randrange(60)}",
            f"key = {key} OR key = {key + 9}",
        ]
        columns = rng.sample(["key", "c0", "c1", "c2", "c3"], rng.randint(1, 5))
        asked.append({"where": rng.choice(wheres), "columns": columns})
    return asked


async def outcome(scan: accel.Scan) -> tuple[str, Any]:
    try:
        table = await scan.to_table_async()
        return "rows", (table.schema, [plain(column) for column in table.columns])
    except (accel.AccelError, UnicodeDecodeError) as error:
        return "error", str(error)


def answers(data: bytes, asked: Sequence[dict[str, Any]], *, at_once: bool) -> list[tuple[str, Any]]:
    """Each of them asked anew, of a file that is known."""
    store, cache = DictStore({"f": data}), accel.Cache(data=0)
    options = accel.Options(decode_threads=2)

    async def ask() -> list[tuple[str, Any]]:
        scans = [accel.scan("f", store=store, cache=cache, options=options, **one) for one in asked]
        await outcome(scans[0])
        if at_once:
            return list(await asyncio.gather(*map(outcome, scans)))
        return [await outcome(scan) for scan in scans]

    return asyncio.run(ask())


def is_refused(data: bytes) -> bool:
    """Whether pyarrow finds the file damaged."""
    try:
        pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    except (pa.ArrowException, OSError):
        return True
    return False


@pytest.mark.parametrize("part", range(6))
def test_at_once_as_one_by_one(part: int) -> None:
    seen = Counter[str]()
    rng = random.Random(SEED + part)
    for _ in range(FILES):
        data = file_of(rng)
        asked = questions(rng)
        alone = answers(data, asked, at_once=False)
        assert answers(data, asked, at_once=True) == alone
        assert {kind for kind, _ in alone} == {"rows"}
        for _ in range(DAMAGED):
            broken = damage(rng, data)
            one_by_one = answers(broken, asked, at_once=False)
            together = answers(broken, asked, at_once=True)
            for mine, other, due in zip(together, one_by_one, alone, strict=True):
                seen[other[0]] += 1
                # Who reads a whole chunk meets damage that others, who have been told where its pages are, do
                # not.
                if mine != other:
                    assert {mine[0], other[0]} == {"error"} or due in (mine, other)
                    # A value may be damaged where no checksum shows it: whoever reads its page for another's
                    # damage meets it.
                    assert "error" in (mine[0], other[0]) or is_refused(broken)
    assert min(seen["rows"], seen["error"]) > 5


def test_a_damaged_page_is_told_by_who_wants_it() -> None:
    """The checksum of one page of a column that is not asked by: who wants a row of it hears of it, all
    others get theirs."""
    rows, every = 40_000, 1000
    sink = io.BytesIO()
    values = random.Random(SEED).sample(range(1 << 60), rows)
    pq.write_table(
        pa.table({"key": pa.array(range(rows)), "other": pa.array(values)}),
        sink,
        compression="zstd",
        use_dictionary=False,
        data_page_size=1,
        write_batch_size=every,
        write_page_index=True,
        write_page_checksum=True,
    )
    data = bytearray(sink.getvalue())
    start = pq.read_metadata(io.BytesIO(bytes(data))).row_group(0).column(1).data_page_offset
    data[start + 4000] ^= 1  # of the first page
    wanted = range(100, rows, 300)
    found = answers(bytes(data), [{"where": f"key = {row}"} for row in wanted], at_once=True)
    for row, (kind, told) in zip(wanted, found, strict=True):
        assert kind == ("error" if row < every else "rows"), row
        if kind == "rows":
            assert told[1] == [[str(row)], [str(values[row])]]
        else:
            assert "CRC" in told
            assert "column other" in told
