"""Small row groups decoded together: for any file, question and damage what decoding them one by one gives.

Together the columns that a filter does not need are decoded only where rows match. What is wrong with a page
that holds none may so go unnoticed; then the rows are those of the file as it was.
"""

from __future__ import annotations

import datetime
import decimal
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import stack
from accel.testing import DictStore

SEED = 20261123
FILES, QUESTIONS, DAMAGED = 6, 3, 3
"""A file each, a question of it, and the same of it damaged."""

Value = Callable[[random.Random], Any]
_DAY = datetime.date(2020, 1, 1)
KINDS: dict[pa.DataType, Value] = {
    pa.int64(): lambda rng: rng.randrange(-50, 50),
    pa.int32(): lambda rng: rng.randrange(-(1 << 31), 1 << 31),
    pa.uint16(): lambda rng: rng.randrange(9),
    pa.float64(): lambda rng: rng.choice([rng.random(), float("nan"), 0.0, -0.0]),
    pa.float32(): lambda rng: float(rng.randrange(99)),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.string(): lambda rng: "x" * rng.randrange(4) + str(rng.randrange(30)),
    pa.large_string(): lambda rng: "y" * rng.choice([0, 1, 900]),
    pa.binary(): lambda rng: rng.randbytes(rng.randrange(5)),
    pa.binary(5): lambda rng: rng.randbytes(1) * 5,
    pa.decimal128(30, 2): lambda rng: decimal.Decimal(rng.randrange(-999, 999)).scaleb(-2),
    pa.decimal128(9, 2): lambda rng: decimal.Decimal(rng.randrange(-999, 999)).scaleb(-2),
    pa.date32(): lambda rng: _DAY + datetime.timedelta(days=rng.randrange(3000)),
    pa.timestamp("us", "UTC"): lambda rng: rng.randrange(10**12),
    pa.timestamp("ns"): lambda rng: rng.randrange(10**12),
    pa.dictionary(pa.int32(), pa.string()): lambda rng: f"kind {rng.randrange(4)}",
}


def _column(rng: random.Random, rows: int) -> pa.Array:
    kind, value = rng.choice(list(KINDS.items()))
    nulls = rng.choice([0.0, 0.2])
    values = [None if rng.random() < nulls else value(rng) for _ in range(rows)]
    if isinstance(kind, pa.DictionaryType):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def _file(rng: random.Random) -> tuple[pa.Table, bytes]:
    table, written = _layout(rng, rng.choice([40, 500, 1500]))
    return table, written(table)


def _layout(rng: random.Random, rows: int) -> tuple[pa.Table, Callable[[pa.Table], bytes]]:
    """A table, and what writes it or a part of it."""
    columns = {"key": pa.array(range(rows), pa.int64())}
    columns |= {f"c{number}": _column(rng, rows) for number in range(rng.randint(1, 5))}
    if rng.random() < 0.2:
        columns["list"] = pa.array([[row] * (row % 3) for row in range(rows)])
    fields = [
        pa.field(name, array.type, nullable=array.null_count > 0 or rng.random() < 0.6)
        for name, array in columns.items()
    ]
    settings: dict[str, Any] = {
        "row_group_size": rng.choice([7, 25, 100, 300]),
        "compression": rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": rng.choice([True, True, False, ["c0", "c2"]]),
        "dictionary_pagesize_limit": rng.choice([None, None, 40]),
        "data_page_version": rng.choice(["1.0", "1.0", "2.0"]),
        "data_page_size": rng.choice([1 << 20, 64, 500]),
        "write_page_index": rng.random() < 0.3,
        "write_statistics": rng.random() < 0.8,
        "write_page_checksum": rng.random() < 0.3,
        "use_deprecated_int96_timestamps": rng.random() < 0.2,
    }

    def written(part: pa.Table) -> bytes:
        sink = io.BytesIO()
        pq.write_table(part, sink, **settings)
        return sink.getvalue()

    return pa.table(list(columns.values()), schema=pa.schema(fields)), written


def _question(rng: random.Random, table: pa.Table) -> tuple[Any, list[str]]:
    rows = table.num_rows
    columns = rng.sample(table.column_names, rng.randint(1, table.num_columns))
    name = rng.choice([name for name in table.column_names if name.startswith("c")])
    value = table[name][rng.randrange(rows)]
    ways: list[Any] = [
        None,
        f"key >= {rng.randrange(rows)}",
        f"key >= {rng.randrange(rows)} AND key < {rng.randrange(rows)}",
        f"key IN ({', '.join(str(rng.randrange(rows)) for _ in range(6))})",
        f"{name} IS NULL",
        f"{name} IS NOT NULL",
    ]
    if value.is_valid and not pa.types.is_dictionary(value.type):
        column = accel.col(name)
        ways += [column == value, column <= value, column > value, column != value]
    return rng.choice(ways), columns


def damage(rng: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 3])):
        broken[rng.randrange(4, len(data) - 8)] ^= 1 << rng.randrange(8)
    return bytes(broken)


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Has row groups decoded together, or one by one."""
    kind = stack.stack_kind

    def settle(together: bool) -> None:
        monkeypatch.setattr(stack, "stack_kind", kind if together else lambda *_: None)

    return settle


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be compared, whether they are text or are only said to be."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pa.chunked_array([chunk.view(pa.large_binary() if "large" in str(chunk.type) else pa.binary()) for chunk in column.chunks], pa.large_binary() if "large" in str(column.type) else pa.binary())  # fmt: skip
    try:
        return [repr(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        # A damaged moment that Python has none of.
        return [value.value for value in column]


def _outcomes(data: bytes, where: Any, columns: list[str], options: accel.Options) -> list[tuple[str, Any]]:
    """Of two scans: the second knows where the pages are that the first has met."""
    return _outcomes_of({"f": data}, where, columns, options)


def _outcomes_of(
    files: dict[str, bytes], where: Any, columns: list[str], options: accel.Options
) -> list[tuple[str, Any]]:
    store, cache = DictStore(files), accel.Cache()
    settings: dict[str, Any] = {"columns": columns, "store": store, "cache": cache, "options": options}
    return [_outcome(accel.scan(list(files), where, **settings)) for _ in range(2)]


def _outcome(scan: accel.Scan) -> tuple[str, Any]:
    try:
        table = scan.to_table()
        return "rows", (table.schema, [plain(column) for column in table.columns])
    except (accel.AccelError, UnicodeDecodeError) as error:
        return "error", str(error)


@pytest.mark.parametrize("part", range(8))
def test_together_as_one_by_one(
    part: int, settle: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Counter[str]()
    decode = stack.decode_stack

    def look(layers: Any, **settings: Any) -> Any:
        batches = decode(layers, **settings)
        seen["left" if batches is None else "together"] += 1
        return batches

    monkeypatch.setattr(stack, "decode_stack", look)
    monkeypatch.setattr("accel.reader.task_reads.LEAST_TAUGHT", 0)
    rng = random.Random(SEED + part)
    for _ in range(FILES):
        table, data = _file(rng)
        for _ in range(QUESTIONS):
            where, columns = _question(rng, table)
            limit = rng.choice([1 << 30, 1 << 30, 300_000])
            options = accel.Options(batch_rows=rng.choice([131_072, 30]), memory_limit=limit)
            settle(True)
            found = _outcomes(data, where, columns, options)
            settle(False)
            assert found == _outcomes(data, where, columns, options), (where, columns)
            assert found[0] == found[1]
            for _ in range(DAMAGED):
                broken = damage(rng, data)
                settle(True)
                together = _outcomes(broken, where, columns, options)
                settle(False)
                alone = _outcomes(broken, where, columns, options)
                for one, other in zip(together, alone, strict=True):
                    seen[other[0]] += 1
                    if "rows" in (one[0], other[0]):
                        assert one in (other, found[0]), (where, columns)
    assert seen["together"] > 10
    assert min(seen["rows"], seen["error"]) > 5


@pytest.mark.parametrize("part", range(4))
def test_files_together_as_one_by_one(
    part: int, settle: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of one schema, of which each has a row group or a few; one of them is damaged."""
    seen = Counter[str]()
    split = stack.split_stack
    monkeypatch.setattr(stack, "split_stack", lambda *a, **k: (seen.update(["together"]), split(*a, **k))[1])
    rng = random.Random(SEED - 1 - part)
    for _ in range(FILES):
        rows, each = 400, rng.choice([20, 90])
        table, written = _layout(rng, rows)
        files = {f"{at:03}": written(table.slice(at, each)) for at in range(0, rows, each)}
        for _ in range(QUESTIONS):
            where, columns = _question(rng, table)
            options = accel.Options(batch_rows=rng.choice([131_072, 7]))
            damaged = files | {(name := rng.choice(list(files))): damage(rng, files[name])}
            settle(True)
            found, together = (_outcomes_of(some, where, columns, options) for some in (files, damaged))
            settle(False)
            assert found == _outcomes_of(files, where, columns, options), (where, columns)
            assert found[0] == found[1]
            for one, other in zip(together, _outcomes_of(damaged, where, columns, options), strict=True):
                seen[other[0]] += 1
                if "rows" in (one[0], other[0]):
                    assert one in (other, found[0]), (where, columns)
    assert seen["together"] > 5
    assert min(seen["rows"], seen["error"]) > 5
