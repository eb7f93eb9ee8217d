"""An aggregate says what reading all rows and adding them up says: any data, predicate, index and layout."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import random
from collections.abc import Mapping
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

SPECIAL = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1e308, -1e308, 0.5, -2.25]
LONG = "a very long text that is cut where bounds are kept: " * 2
SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        ("i8", pa.int8()),
        ("i64", pa.int64()),
        ("u64", pa.uint64()),
        ("f64", pa.float64()),
        ("f32", pa.float32()),
        ("f16", pa.float16()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("fix", pa.binary(3)),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("t", pa.time64("us")),
        ("dec", pa.decimal128(12, 2)),
        ("wide", pa.decimal256(50, 3)),
        ("dic", pa.dictionary(pa.int32(), pa.string())),
        ("st", pa.struct([("a", pa.int64()), ("s", pa.string())])),
        ("list", pa.list_(pa.int32())),
    ]
)
NUMBERS = ["key", "i8", "i64", "u64", "f64", "f32", "f16", "b", "dec", "wide", "st.a"]
ORDERED = [*NUMBERS, "s", "bin", "fix", "d", "ts", "t", "dic", "st.s"]
EXPRESSIONS = ["lower(s)", "year(d)", "month(ts)", "day(d)", "hour(ts)", "lower(st.s)"]
ASKABLE = [(column, "sum") for column in [*NUMBERS, "year(d)"]]
ASKABLE += [(column, function) for column in [*ORDERED, *EXPRESSIONS] for function in ("min", "max", "count")]
ASKABLE += [("list", "count"), ("st", "count"), ("p", "sum"), ("p", "max"), ("p", "count"), ([], "count_all")]
WHERE = [
    None,
    *["key >= {a}", "key BETWEEN {a} AND {b}", "key < {a} OR key >= {b}"] * 4,
    "i8 > 0",
    "key > 10 AND f64 > 0",
    "s IS NULL",
    "p = 1",
    "p = 1 OR key < 25",
    "key < 0",
]
SEVERAL = ["i64", "f64", "lower(s)", "year(d)", "st.a", "(key, i8)"]
ZONEMAPS = ["i8", "i64", "u64", "f64", "f32", "b", "s", "d", "ts", "dec", "wide", "dic", "st.a", "key"]


def rows(rng: np.random.Generator, first: int, count: int) -> pa.Table:
    """So many rows, `key` ascending from `first`; a column is without nulls, or has some, or nothing else."""

    def some(make: Any) -> list[Any]:
        share = rng.choice([0.0, 0.2, 1.0], p=[0.4, 0.5, 0.1])
        return [None if rng.random() < share else make() for _ in range(count)]

    def number(bits: int, *, signed: bool = True) -> int:
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        near = [low, high, 0, 1, 7]
        return int(rng.choice([0, 1])) * int(rng.integers(0, 100)) or near[int(rng.integers(0, len(near)))]

    def real() -> float:
        return SPECIAL[int(rng.integers(0, len(SPECIAL)))] if rng.random() < odd else float(rng.normal())

    def text() -> str:
        return str(
            rng.choice(
                ["", "a", "B", "b", "Straße", LONG, LONG + "z", "\U0001f600", f"t{rng.integers(0, 9)}"]
            )
        )

    odd = rng.choice([0.0, 0.3])
    day = datetime.date(1999, 12, 30)
    moment = datetime.datetime(2001, 12, 31, 22, 58, tzinfo=datetime.UTC)
    columns: Mapping[str, list[Any]] = {
        "key": list(range(first, first + count)),
        "i8": some(lambda: number(8)),
        "i64": some(lambda: number(64)),
        "u64": some(lambda: number(64, signed=False)),
        "f64": some(real),
        "f32": some(lambda: float(np.float32(rng.normal())) if rng.random() < 0.8 else math.nan),
        "f16": some(lambda: np.float16(rng.normal())),
        "b": some(lambda: bool(rng.integers(0, 2))),
        "s": some(text),
        "bin": some(lambda: rng.bytes(int(rng.integers(0, 70)))),
        "fix": some(lambda: rng.bytes(3)),
        "d": some(lambda: day + datetime.timedelta(int(rng.integers(0, 99)))),
        "ts": some(lambda: moment + datetime.timedelta(seconds=int(rng.integers(0, 9000)))),
        "t": some(lambda: datetime.time(int(rng.integers(0, 24)), 1)),
        "dec": some(lambda: decimal.Decimal(int(rng.integers(-(10**6), 10**6))).scaleb(-2)),
        "wide": some(lambda: decimal.Decimal(int(rng.integers(-(10**6), 10**6)) * 10**30).scaleb(-3)),
        "dic": some(text),
        "st": some(lambda: {"a": None if rng.random() < 0.2 else int(rng.integers(0, 9)), "s": text()}),
        "list": some(lambda: [1] * int(rng.integers(0, 3))),
    }
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    counts: tuple[int, ...]
    layout: Layout
    ragged: bool
    """Pages end by their bytes: those of different columns at different rows."""
    zonemaps: tuple[tuple[str, str], ...]
    several: str | None
    """The level of one more, of several things."""
    where: str | None
    asked: tuple[Any, ...]
    tail: int
    probe: int
    limit: int | None
    selected: bool
    planned: bool


def case_of(seed: int) -> Case:
    """One case, every choice as likely as it says: hypothesis itself would mostly try the first of each."""
    chance = random.Random(seed)
    layout = Layout(
        group_rows=chance.choice([7, 30, 1000, 1000]),
        page_rows=chance.choice([1, 4, 10]),
        dictionary=chance.random() < 0.5,
        page_index=chance.random() < 0.8,
        statistics=chance.random() < 0.8,
    )
    asked = chance.sample(ASKABLE, chance.choice([1, 1, 2, 3, 8]))
    asked += [(column, function) for column, function in ASKABLE if column == asked[0][0]]
    indexed = {str(column) for column, _ in asked if column in ZONEMAPS and chance.random() < 0.8}
    levels = ["page", "page", "page", "row group", "file"]
    where, (a, b) = chance.choice(WHERE), sorted(chance.sample(range(110), 2))
    return Case(
        seed=seed,
        counts=tuple(chance.choices([0, 1, 20, 60], [1, 1, 3, 5], k=chance.choice([1, 1, 2, 3]))),
        layout=layout,
        ragged=chance.random() < 0.5,
        zonemaps=tuple((column, chance.choice(levels)) for column in sorted(indexed)),
        several=chance.choice([None, None, None, *levels]),
        where=None if where is None else where.format(a=a, b=b),
        asked=tuple(asked),
        tail=chance.choice([16, 128 * 1024]),
        probe=chance.choice([0, 0, 1 << 20]),
        limit=chance.choice([*[None] * 9, 0, 5, 33]),
        selected=chance.random() < 0.25,
        planned=chance.random() < 0.1,
    )


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


def make_scan(case: Case, folder: pathlib.Path) -> tuple[accel.Scan, dict[str, Any]]:
    rng = np.random.default_rng(case.seed)
    files, selection = {}, {}
    for at, count in enumerate(case.counts):
        data = write(rows(rng, 50 * at, count), case)
        if case.zonemaps or case.several:
            indexes: dict[str, list[Any]] = {}
            if case.several is not None:
                indexes["bin"] = [(accel.indexes.Zonemap(columns=SEVERAL), case.several)]
            for column, level in case.zonemaps:
                indexes.setdefault(column, []).append(("zonemap", level))
            (folder / "in.parquet").write_bytes(data)
            accel.embed(str(folder / "in.parquet"), str(folder / "out.parquet"), indexes=indexes)
            data = (folder / "out.parquet").read_bytes()
        name = f"t/p={at % 2 + 1}/{at}.parquet"
        files[name] = data
        ends = np.sort(rng.integers(0, min(count, case.layout.group_rows) + 1, 4)).tolist()  # type: ignore[type-var]
        selection[name] = {0: [(ends[0], ends[1]), (ends[2], ends[3])]} if count else {}
    options = accel.Options(tail_hint=case.tail, probe_min_bytes=case.probe)
    keywords: dict[str, Any] = {"store": DictStore(files), "cache": accel.Cache(), "options": options}
    source: Any = "t/"
    if case.planned:
        source = accel.plan(source, case.where, **keywords)
        return accel.scan(source, limit=case.limit, **keywords), files
    if case.selected:
        keywords["selection"] = selection
    return accel.scan(source, case.where, limit=case.limit, **keywords), files


def values_of(table: pa.Table, column: str) -> list[Any]:
    """The values of a column, path or expression that are not null."""
    if "(" in column:
        function, name = column[:-1].split("(")
        part = {
            "lower": str.casefold,
            "year": lambda v: v.year,
            "month": lambda v: v.month,
            "day": lambda v: v.day,
            "hour": lambda v: v.hour,
        }[function]
        return [part(value) for value in values_of(table, name)]
    top, _, below = column.partition(".")
    found = table.column(top).to_pylist()
    if below:
        found = [None if value is None else value[below] for value in found]
    return [value for value in found if value is not None]


def expected(table: pa.Table, column: Any, function: str) -> Any:
    if function == "count_all":
        return table.num_rows
    values = values_of(table, column)
    if function == "count":
        return len(values)
    if not values:
        return None
    if function == "sum":
        with decimal.localcontext(prec=90):
            return sum(values)
    numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    if not numbers:
        return math.nan
    return min(numbers) if function == "min" else max(numbers)


def agree(found: Any, wanted: Any, function: str, values: list[Any], kind: pa.DataType) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if function == "sum" and pa.types.is_integer(kind):
        return (found - wanted) % (1 << 64) == 0
    if isinstance(wanted, float):
        if function == "sum" and not math.isfinite(
            math.fsum(abs(v) / 1e10 for v in values if math.isfinite(v)) * 1e10
        ):
            return True  # whether it overflows depends on the order
        if math.isnan(wanted):
            return math.isnan(found)
        spread = sum(abs(value) for value in values) if function == "sum" else 0.0
        return found == wanted or abs(found - wanted) <= 1e-12 * spread
    return bool(found == wanted)


@given(seed=st.integers(0, 2**40))
def test_an_aggregate_is_what_the_rows_add_up_to(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    case = case_of(seed)
    note(str(case))
    scan, _ = make_scan(case, tmp_path_factory.mktemp("aggregates"))
    found = scan.aggregate(case.asked)
    table = scan.to_table()
    assert found.num_rows == 1
    assert found.schema.names == [
        function if column == [] else f"{column}_{function}" for column, function in case.asked
    ]
    for at, (column, function) in enumerate(case.asked):
        got = found.column(at)
        wanted = expected(table, column, function)
        values = [] if column == [] else values_of(table, column)
        assert agree(got[0].as_py(), wanted, function, values, got.type), (column, function, got, wanted)
        plain = isinstance(column, str) and column in table.schema.names and column not in ("f16", "dic")
        if plain and function != "count":
            assert got.type == getattr(pc, function)(table.column(column)).type
    assert scan.count_rows() == table.num_rows
