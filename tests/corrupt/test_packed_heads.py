"""Damaged heads of embedded indexes beside the footer, where they stand packed: an index of no use, never
another row."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.format.embedded import Entry, parse_toc
from accel.testing import DictStore, Layout, write_file
from accel.writing import embed
from tests.unit.writing.files import metadata_of

ROWS = 16_000
NAME = "f.parquet"
SEED = 20_261_121


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Entry]]:
    keys = [(n * 7919 + 13) % ROWS * 3 for n in range(ROWS)]
    columns = [pa.array(keys, pa.int64()), pa.array([f"text {n % 900}" for n in range(ROWS)])]
    rows = pa.Table.from_arrays([*columns, pa.array(range(ROWS))], names=["key", "text", "place"])
    file = tmp_path_factory.mktemp("heads") / NAME
    file.write_bytes(write_file(rows, Layout(group_rows=ROWS // 2, page_rows=500)))
    embed(file, indexes={"key": ["bitmap", "bloom"], "text": ["bitmap", "ngram"]})
    toc = parse_toc(metadata_of(str(file)))
    assert toc is not None
    return Path(file).read_bytes(), [entry for entry in toc.entries if entry.head_again is not None]


def harmed(data: bytes, entries: list[Entry], rng: random.Random) -> bytes:
    """One or two of the packed heads with bytes flipped, zeroed, or those of another head."""
    out = bytearray(data)
    for entry in rng.sample(entries, rng.choice([1, 1, 2])):
        assert entry.head_again is not None
        start, length = entry.head_again
        how = rng.choice(["bit", "byte", "zeros", "other", "length", "shifted"])
        at = start + rng.choice([rng.randrange(length), rng.randrange(min(16, length))])
        if how == "bit":
            out[at] ^= 1 << rng.randrange(8)
        elif how == "byte":
            out[at] = rng.randrange(256)
        elif how == "zeros":
            out[at : start + length] = bytes(start + length - at)
        elif how == "other":
            other = rng.choice(entries)
            assert other.head_again is not None
            blob = data[other.head_again[0] :][: min(length, other.head_again[1])]
            out[start : start + len(blob)] = blob
        elif how == "length":
            # Of the frame: what it says that it unpacks to.
            out[start + 4 : start + 9] = bytes(rng.randrange(256) for _ in range(5))
        else:
            out[start : start + length] = data[start + 1 : start + length] + data[start : start + 1]
    return bytes(out)


def read(data: bytes, where: str, tail: int) -> tuple[list[dict[str, object]], int]:
    options = accel.Options(
        probe_min_bytes=0, tail_hint=tail, max_tail_hint=max(tail, 1024), memory_limit=64 << 20
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = accel.scan(NAME, where, store=DictStore({NAME: data}), cache=accel.Cache(), options=options)
        return scan.to_table().to_pylist(), scan.metrics.indexes_ignored


@pytest.mark.timeout(300)
def test_damaged_heads_cost_no_row(indexed: tuple[bytes, list[Entry]], large: bool) -> None:
    data, entries = indexed
    assert len(entries) >= 2
    whole_tail = len(data) - min(entry.head_again[0] for entry in entries if entry.head_again)
    rng = random.Random(SEED)
    questions = [
        "key = 39",
        "key IN (3, 23760, 47997, 5)",
        "text = 'text 77'",
        "text LIKE '%xt 45%'",
        "key = 4",
    ]
    truth = {where: read(data, where, whole_tail) for where in questions}
    assert all(ignored == 0 for _, ignored in truth.values())
    ignored = 0
    for _ in range(600 if large else 60):
        where = rng.choice(questions)
        found, passed_over = read(harmed(data, entries, rng), where, rng.choice([whole_tail, 1024, 1 << 17]))
        assert found == truth[where][0], where
        ignored += passed_over
    assert ignored > 10
