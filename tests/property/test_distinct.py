"""`distinct` is pyarrow's unique over the rows that are read: any type, predicate, layout, index and
catalog."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import accel
from accel.testing import DictStore, Layout, write_file

DAY = datetime.date(1999, 12, 30)
MOMENT = datetime.datetime(2001, 12, 31, 22, 58)
LONG = "a long text of which statistics may hold the beginning only: " * 3

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 127, 0, 1, 2]),
    "i32": (pa.int32(), [0, 1, 7, -5, 2**31 - 1]),
    "i64": (pa.int64(), [0, 1, 2**63 - 1, -(2**63), 2**53 + 1]),
    "u8": (pa.uint8(), [0, 1, 255]),
    "u64": (pa.uint64(), [0, 2**64 - 1, 2**63]),
    "f64": (pa.float64(), [0.0, -0.0, math.nan, math.inf, 1.5, -2.25]),
    "f32": (pa.float32(), [0.0, -0.0, math.nan, 0.1, -math.inf]),
    "f16": (pa.float16(), [np.float16(v) for v in (0.0, -0.0, 1.5, math.nan)]),
    "b": (pa.bool_(), [True, False]),
    "s": (pa.string(), ["", "a", "B", "Straße", LONG, LONG + "z", "\U0001f600"]),
    "ls": (pa.large_string(), ["x", "y", LONG]),
    "sv": (pa.string_view(), ["x", "y", LONG]),
    "bin": (pa.binary(), [b"", b"\xff", b"\xff" * 70, b"ab"]),
    "fix": (pa.binary(3), [b"abc", b"\x00\x00\x00", b"\xff\xff\xff"]),
    "d": (pa.date32(), [DAY, DAY + datetime.timedelta(1)]),
    "d64": (pa.date64(), [DAY, DAY + datetime.timedelta(1)]),
    "ts": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT + datetime.timedelta(seconds=1)]),
    "tn": (pa.timestamp("ns"), [MOMENT, MOMENT + datetime.timedelta(days=9)]),
    "t": (pa.time64("us"), [datetime.time(1), datetime.time(23, 59)]),
    "dur": (pa.duration("ms"), [datetime.timedelta(0), datetime.timedelta(1)]),
    "dec": (pa.decimal128(12, 2), [decimal.Decimal("1.25"), decimal.Decimal(-7), decimal.Decimal("1.26")]),
    "wide": (pa.decimal256(50, 3), [decimal.Decimal(10**40), decimal.Decimal("0.001")]),
    "dic": (pa.dictionary(pa.int32(), pa.string()), ["q", "r", "unused", LONG]),
    "id": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes]),
    "n": (pa.null(), [None]),
    "st": (pa.struct([("a", pa.int64()), ("s", pa.string())]), [{"a": 1, "s": "x"}, {"a": 2, "s": None}, {"a": None, "s": "y"}]),
}  # fmt: skip
ASKABLE = [*(name for name in POOLS if name != "st"), "key", "st.a", "st.s", "p"]
LISTED = ("i32", "f64", "s", "bin", "ts", "dec", "st.s")
WHERE = [
    None,
    None,
    *["key >= {a}", "key BETWEEN {a} AND {b}", "key < {a} OR key >= {b}"] * 2,
    "i32 > 0",
    "s >= 'a' AND s < 'b'",
    "s LIKE 'a%'",
    "dic IN ('q', 'unused') OR dic IS NULL",
    "f64 > 0",
    "f64 <> 0",
    "b",
    "st.a = 1",
    "p = 1",
    "p = 1 AND i32 IS NOT NULL",
    "d > '1999-12-30' OR key < {b}",
    "key < 0",
]


def column(name: str, count: int, chance: random.Random) -> pa.Array:
    """Values in runs, so that some pages and row groups hold one; with nulls, without, or nothing else."""
    kind, pool = POOLS[name]
    pool = chance.sample(pool, chance.randint(1, len(pool)))
    nulls = chance.choice([0.0, 0.0, 0.1, 1.0])
    values: list[Any] = []
    while len(values) < count:
        value = None if chance.random() < nulls else chance.choice(pool)
        values += [value] * min(chance.choice([1, 3, 25]), count - len(values))
    if pa.types.is_dictionary(kind):
        entries = pa.array(POOLS[name][1], pa.string())
        places = [None if value is None else POOLS[name][1].index(value) for value in values]
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), entries)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def rows(first: int, count: int, chance: random.Random) -> pa.Table:
    columns = {name: column(name, count, chance) for name in POOLS}
    return pa.table({"key": pa.array(range(first, first + count), pa.int64()), **columns})


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    counts: tuple[int, ...]
    layout: Layout
    ragged: bool
    indexes: tuple[tuple[str, str, str], ...]
    where: str | None
    asked: tuple[str, ...]
    tail: int
    probe: int
    limit: int | None
    selected: bool
    planned: bool
    catalog: str | None


def case_of(seed: int) -> Case:
    chance = random.Random(seed)
    where, (a, b) = chance.choice(WHERE), sorted(chance.sample(range(110), 2))
    layout = Layout(
        group_rows=chance.choice([7, 30, 1000, 1000]),
        page_rows=chance.choice([1, 4, 10]),
        dictionary=chance.random() < 0.6,
        dictionary_bytes=chance.choice([1 << 20, 1 << 20, 40]),
        page_index=chance.random() < 0.8,
        statistics=chance.random() < 0.8,
        arrow_schema=chance.random() < 0.9,
    )
    asked = chance.sample(ASKABLE, 4)
    indexed = [name for name in asked if name not in ("n", "p") and chance.random() < 0.3]
    return Case(
        seed=seed,
        counts=tuple(chance.choices([0, 1, 20, 60], [1, 1, 3, 5], k=chance.choice([1, 2, 3, 7]))),
        layout=layout,
        ragged=chance.random() < 0.3,
        indexes=tuple(
            (name, chance.choice(["distinct", "distinct", "zonemap"]), chance.choice(["page", "row group", "file"]))
            for name in indexed
        ),
        where=None if where is None else where.format(a=a, b=b),
        asked=tuple(asked),
        tail=chance.choice([16, 128 * 1024]),
        probe=chance.choice([0, 0, 1 << 20]),
        limit=chance.choice([*[None] * 9, 0, 5, 33]),
        selected=chance.random() < 0.15,
        planned=chance.random() < 0.1,
        catalog=chance.choice([None, "store", "index"]),
    )  # fmt: skip


def write(data: pa.Table, case: Case) -> bytes:
    if not case.ragged:
        return write_file(data, case.layout)
    out, layout = pa.BufferOutputStream(), case.layout
    pq.write_table(
        data,
        out,
        row_group_size=layout.group_rows,
        use_dictionary=layout.dictionary,
        write_statistics=layout.statistics,
        write_page_index=layout.page_index,
        data_page_size=24 * layout.page_rows,  # type: ignore[operator]
        write_batch_size=1,
    )
    return bytes(out.getvalue())


def scan_of(case: Case, folder: pathlib.Path) -> accel.Scan:
    chance = random.Random(case.seed + 1)
    files, selection = {}, {}
    for at, count in enumerate(case.counts):
        data = write(rows(50 * at, count, chance), case)
        if case.indexes:
            wanted: dict[str, Any] = {name: [(kind, level)] for name, kind, level in case.indexes}
            (folder / "in.parquet").write_bytes(data)
            accel.embed(str(folder / "in.parquet"), str(folder / "out.parquet"), indexes=wanted)
            data = (folder / "out.parquet").read_bytes()
        name = f"t/p={at % 2 + 1}/{at}.parquet"
        files[name] = data
        ends = sorted(chance.choices(range(min(count, int(case.layout.group_rows)) + 1), k=4))  # type: ignore[call-overload]
        selection[name] = {0: [(ends[0], ends[1]), (ends[2], ends[3])]} if count else {}
    options = accel.Options(tail_hint=case.tail, probe_min_bytes=case.probe)
    keywords: dict[str, Any] = {"store": DictStore(files), "cache": accel.Cache(), "options": options}
    if case.planned:
        plan = accel.plan("t/", case.where, **keywords)
        return accel.scan(plan, limit=case.limit, **keywords)
    if case.catalog is not None:
        listed = [name for name in case.asked if name in LISTED]
        accel.build_index("t/", store=keywords["store"], indexes=dict.fromkeys(listed, "distinct"))
        keywords |= {"index": "t/_accel/", "listing": case.catalog}
    if case.selected:
        keywords["selection"] = selection
    return accel.scan("t/", case.where, limit=case.limit, **keywords)


def expected(table: pa.Table, name: str) -> pa.Array:
    """pyarrow's unique, in order; zeros of either sign are equal to accel."""
    top, _, below = name.partition(".")
    values = table.column(top).combine_chunks()
    if below:
        values = pc.struct_field(values, below)
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    if pa.types.is_string_view(kind):
        values = values.cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.add(values.cast(pa.float64()), 0.0)
    if pa.types.is_null(kind):
        return values.slice(0, 1)
    found = pc.unique(values)
    return found.take(pc.array_sort_indices(found))


def shown(values: pa.Array) -> str:
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
    return repr(values.to_pylist())


@given(seed=st.integers(0, 2**40))
def test_distinct_values_are_those_of_the_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    case = case_of(seed)
    note(str(case))
    scan = scan_of(case, tmp_path_factory.mktemp("distinct"))
    table = scan.to_table()
    for name in case.asked:
        if name.partition(".")[0] not in table.schema.names:
            continue
        found = scan.distinct(name)
        assert shown(found) == shown(expected(table, name)), (name, scan.metrics.distinct_units)
        kind = table.schema.field(name).type if "." not in name else None
        if kind is not None:
            assert found.type == (kind.value_type if pa.types.is_dictionary(kind) else kind)


def test_the_cases_take_every_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the property says would be little if all rows were read."""
    ways: set[str] = set()
    folder: Callable[[str], pathlib.Path] = tmp_path_factory.mktemp
    for seed in range(60):
        scan = scan_of(case_of(seed), folder("ways"))
        for name in case_of(seed).asked:
            scan.distinct(name)
            ways |= scan.metrics.distinct_units.keys()
    assert ways >= {
        "files by path",
        "files by index",
        "row groups by bounds",
        "row groups by dictionary",
        "row groups by index",
        "row groups read",
        "pages by bounds",
    }
