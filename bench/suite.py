"""What is asked: every case of the benchmark, as queries over the data of a scale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count, islice, repeat
from typing import Any

from bench.data.catalog import Catalog
from bench.queries import Query
from bench.sampling import BLOCK, fresh_rows, fresh_slots, row_of_each_group

__all__ = [
    "BY_DELAY",
    "FIVE",
    "FLIGHT",
    "FLIGHTS",
    "OVER_TLS",
    "SYNTHETIC",
    "Axis",
    "Case",
    "Mode",
    "cases",
    "over_tls",
]

SYNTHETIC = "synthetic.parquet"
ACCEL, TPCHGEN, SPARK = "lineitem/accel.parquet", "lineitem/tpchgen.parquet", "lineitem/spark.parquet"
FLIGHTS = "flights.parquet"

FIVE = ("key", "ts", "category", "value", "name")
# No text: pyarrow cannot filter the string views that the generator's file asks for.
NUMBERS = ("l_orderkey", "l_linenumber", "l_extendedprice", "l_shipdate", "l_discount")
LINE = ("l_orderkey", "l_linenumber", "l_extendedprice", "l_shipdate", "l_shipmode")
FLIGHT = ("time_hour", "carrier", "flight", "dest", "dep_delay")

BY_DELAY = "by delay"
"""The case that is asked over networks of other delays: milliseconds are its place on its axis."""

_GROUPS_MET = 4
_SEED = 20


class Mode(StrEnum):
    """What a system knows before it is asked."""

    COLD = "cold"
    """Nothing: no cache, no open table."""
    WARM = "warm"
    """The file, by one query on each of up to four of its row groups; not the ranges that the query needs."""
    REPEATED = "repeated"
    """The same query was asked just before."""


OVER_TLS: Mapping[str, tuple[Mode, ...]] = {
    "point": (Mode.COLD, Mode.WARM, Mode.REPEATED),
    "point bitmap": (Mode.WARM,),
    "range 1%": (Mode.WARM,),
    "weak and weak": (Mode.WARM,),
    "wide filter": (Mode.WARM,),
    "scan all": (Mode.COLD,),
    "many points": (Mode.WARM,),
    "many files": (Mode.COLD,),
    "small groups": (Mode.COLD,),
}
"""The cases that are asked by TLS too, and in which modes."""


class Axis(StrEnum):
    """What a plot sweeps."""

    NONE = ""
    DELAY = "delay ms"
    FILES = "files"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of query.

    `fresh` gives queries of the kind without end, each over ranges that the ones before did not touch, as far
    as the file goes. `met` are the queries by which a system gets to know the file.
    """

    name: str
    what: str
    """For the report's readers."""
    fresh: Iterator[Query]
    met: tuple[Query, ...]
    modes: tuple[Mode, ...] = tuple(Mode)
    at_once: int = 1
    """Queries of one sample, all at the same time."""
    axis: Axis = Axis.NONE
    at: float = 0
    """Where on the axis."""
    heavy: bool = False
    """A sample takes seconds: few are taken."""
    tls: bool = False
    """The store is reached by TLS."""
    overlapping: bool = False
    """Its queries read much of the same: who keeps data must meet the file anew before each warm sample."""

    @property
    def swept(self) -> bool:
        """Whether it is there for a plot along its axis only."""
        return self.name.startswith("by ")

    def take(self) -> tuple[Query, ...]:
        """The queries of the next sample."""
        return tuple(islice(self.fresh, self.at_once))


Asked = tuple[tuple[str, str, Any], ...]


def _case(
    name: str,
    what: str,
    query: Query,
    wheres: Iterator[Asked],
    *,
    met: Sequence[Asked] = (),
    **settings: Any,
) -> Case:
    """The case of one query under changing predicates; by default the first of them meets the file."""
    seen = [replace(query, where=where) for where in (met or [next(wheres)])]
    fresh = (replace(query, where=where) for where in wheres)
    return Case(name=name, what=what, fresh=fresh, met=tuple(seen), **settings)


@dataclass(frozen=True, slots=True)
class _Lookups:
    """Lookups of the rows of a file by their value of a column."""

    values: Any
    starts: Sequence[int]
    column: str
    block: int

    def where(self, row: int, shift: int = 0) -> Asked:
        """The predicate of a row; shifted by one, of none."""
        return ((self.column, "=", int(self.values[row]) + shift),)

    def fresh(self, shift: int = 0, seed: int = _SEED) -> Iterator[Asked]:
        """Of rows in blocks that were not met."""
        return (self.where(row, shift) for row in fresh_rows(len(self.values), seed, block=self.block))

    def met(self, shift: int = 0) -> list[Asked]:
        """Of a row in each of some row groups."""
        return [self.where(row, shift) for row in row_of_each_group(self.starts, _GROUPS_MET)]


def _lookups(catalog: Catalog, key: str, column: str, *, block: int = BLOCK) -> _Lookups:
    return _Lookups(catalog.column(key, column), catalog.group_starts(key), column, block)


def cases(catalog: Catalog) -> list[Case]:
    """All of them, in the order of the report: the headline cases by TLS at the end."""
    # Made once more: with the same seeds they ask the same queries.
    again = {case.name: case for case in _plain(catalog)}
    secure = [
        replace(again[name], name=over_tls(name), what=f"{again[name].what}, by TLS", modes=modes, tls=True)
        for name, modes in OVER_TLS.items()
    ]
    return [*_plain(catalog), *secure]


def over_tls(name: str) -> str:
    """What a case is called when the store is reached by TLS."""
    return f"{name} over TLS"


def _plain(catalog: Catalog) -> list[Case]:
    return [
        *_points(catalog),
        *_several_rows(catalog),
        *_filters(catalog),
        *_scans(catalog),
        *_many(catalog),
        *_sweeps(catalog),
    ]


def _points(catalog: Catalog) -> Iterator[Case]:
    by_key = _lookups(catalog, SYNTHETIC, "key")
    what = "one row by a sorted key, five columns"
    query = Query("point", (SYNTHETIC,), FIVE)
    yield _case("point", what, query, by_key.fresh(), met=by_key.met(), axis=Axis.DELAY, at=30)
    for writer, key, columns in (
        ("tpchgen", TPCHGEN, NUMBERS),
        ("spark", SPARK, NUMBERS),
        ("accel", ACCEL, LINE),
    ):
        if key in catalog.files:
            # The first two write pages of 20,000 rows.
            lines = _lookups(catalog, key, "l_orderkey", block=2 * BLOCK)
            what = f"the lines of an order by its sorted key, in the file of {writer}"
            query = Query(f"point {writer}", (key,), columns)
            yield _case(query.name, what, query, lines.fresh(), met=lines.met())
    by_uid = _lookups(catalog, ACCEL, "l_uid")
    what = "one row by an unsorted unique key under a bloom filter"
    query = Query("point bloom", (ACCEL,), LINE)
    # These two are met by absent keys, which need the index and no data.
    yield _case(query.name, what, query, by_uid.fresh(), met=by_uid.met(shift=1), overlapping=True)
    by_ref = _lookups(catalog, ACCEL, "l_ref")
    what = "one row by an unsorted unique key under a bitmap"
    query = Query("point bitmap", (ACCEL,), LINE)
    yield _case(query.name, what, query, by_ref.fresh(), met=by_ref.met(shift=1), overlapping=True)
    what = "an absent key between two present ones"
    yield _case("miss", what, Query("miss", (SYNTHETIC,), FIVE), by_key.fresh(shift=1), met=by_key.met())
    what = "an absent unsorted key under a bloom filter"
    query = Query("miss bloom", (ACCEL,), LINE)
    yield _case(query.name, what, query, by_uid.fresh(shift=1), met=by_uid.met(shift=1))


def _several_rows(catalog: Catalog) -> Iterator[Case]:
    keys = catalog.column(ACCEL, "l_orderkey")
    rows = fresh_rows(len(keys), _SEED + 1, block=max(1, len(keys) // 500))
    hundreds = ((("l_orderkey", "in", tuple(int(keys[r]) for r in islice(rows, 100))),) for _ in count())
    met = _lookups(catalog, ACCEL, "l_orderkey").met()
    query = Query("in 100", (ACCEL,), LINE)
    yield _case("in 100", "IN of 100 sorted keys", query, hundreds, met=met, overlapping=True)

    def part(halves: int, seed: int) -> Iterator[Asked]:
        """So many halves of a hundredth of the file, each from another hundredth on."""
        size = len(keys) // 200
        for slot in fresh_slots(100 - halves // 2, seed):
            begin, end = int(keys[2 * slot * size]), int(keys[(2 * slot + halves) * size])
            yield (("l_orderkey", ">=", begin), ("l_orderkey", "<", end))

    what = "1 % of the rows, a range of the sorted key"
    yield _case("range 1%", what, Query("range 1%", (ACCEL,), LINE), part(2, 3), met=met)
    what = "how many rows a range of the sorted key has: about a tenth of the file"
    query = Query("count", (ACCEL,), ("l_orderkey",), count=True)
    # What lies between its ends is counted unread: they are in pages where no other begins or ends.
    yield _case("count", what, query, part(19, 4), met=met)


def _filters(catalog: Catalog) -> Iterator[Case]:
    def months() -> Iterator[Asked]:
        for slot in fresh_slots(80, 5):
            begin = dt.date(1992 + slot // 12, slot % 12 + 1, 1)
            yield (("l_linenumber", "=", 7), ("l_shipdate", ">=", begin), ("l_shipdate", "<", _next(begin)))

    lines = _lookups(catalog, ACCEL, "l_orderkey").met()
    what = "two weak predicates that only together select"
    query = Query("weak and weak", (ACCEL,), LINE)
    yield _case("weak and weak", what, query, months(), met=lines, overlapping=True)

    def delays() -> Iterator[Asked]:
        for slot in fresh_slots(200, 6):
            yield (("carrier", "=", ("AS", "HA", "YV", "OO")[slot % 4]), ("dep_delay", ">", 60 + slot // 4))

    what = "late departures of a small carrier: two unsorted columns"
    met: list[Asked] = [(("time_hour", "<", dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)),)]
    yield _case("flights", what, Query("flights", (FLIGHTS,), FLIGHT), delays(), met=met, overlapping=True)

    def prefixes() -> Iterator[Asked]:
        names = catalog.column(SYNTHETIC, "name")
        return ((("name", "prefix", str(names[row])[:6]),) for row in fresh_rows(len(names), 7))

    what = "a prefix of an unsorted unique text"
    keys = _lookups(catalog, SYNTHETIC, "key").met()
    query = Query("prefix", (SYNTHETIC,), FIVE)
    yield _case("prefix", what, query, prefixes(), met=keys, overlapping=True)
    parts = catalog.column(ACCEL, "l_partkey")
    some = ((("l_partkey", "=", int(parts[row])),) for row in fresh_rows(len(parts), 8))
    what = "an unsorted filter that selects some 30 rows, every column of them"
    yield _case("wide filter", what, Query("wide filter", (ACCEL,)), some, met=lines, overlapping=True)


def _next(month: dt.date) -> dt.date:
    return (month + dt.timedelta(days=32)).replace(day=1)


def _scans(catalog: Catalog) -> Iterator[Case]:
    groups = len(catalog.group_starts(SYNTHETIC)) - 1
    top = Query("top group", (SYNTHETIC,), FIVE[:4])
    fresh = (replace(top, row_groups=(group,)) for group in fresh_slots(groups, 9))
    what = "one row group as a whole, four columns"
    yield Case(name=top.name, what=what, fresh=fresh, met=_by_key(catalog, top), overlapping=True)
    for name, what, query in (
        (
            "scan few",
            "every row, two columns",
            Query("scan few", (TPCHGEN,), ("l_orderkey", "l_extendedprice")),
        ),
        ("scan all", "every row, every column", Query("scan all", (SYNTHETIC,))),
    ):
        met = _by_key(catalog, query)
        yield Case(name=name, what=what, fresh=repeat(query), met=met, heavy=True, overlapping=True)


def _by_key(catalog: Catalog, query: Query) -> tuple[Query, ...]:
    """Lookups by which a system meets the file of a query that has no predicate."""
    (key,) = query.paths
    met = _lookups(catalog, key, "key" if key == SYNTHETIC else "l_orderkey").met()
    return tuple(replace(query, where=where) for where in met)


def _many(catalog: Catalog) -> Iterator[Case]:
    by_key = _lookups(catalog, SYNTHETIC, "key", block=100)
    at_once = catalog.scale.at_once
    what = f"{at_once} lookups by a sorted key, all at once in one process"
    query = Query("many points", (SYNTHETIC,), FIVE)
    yield _case(
        "many points", what, query, by_key.fresh(), met=by_key.met(), at_once=at_once, overlapping=True
    )
    files = catalog.scale.file_counts[-1]
    what = f"one row of a directory of {files} small files"
    yield _in_files(catalog, files, "many files", what, axis=Axis.FILES, heavy=True)
    files, rows = catalog.scale.larger_files, catalog.scale.larger_rows
    what = f"one row of a directory of {files} files, each larger than what is first read of it"
    wheres = ((("key", "=", 3 * row),) for row in fresh_rows(files * rows, 15, block=rows))
    yield _case("larger files", what, Query("larger files", ("larger-files/",), FIVE), wheres, heavy=True)
    groups, rows = catalog.scale.small_groups, catalog.scale.group_rows
    part = groups * rows // 20
    slots = fresh_slots(20, 16)
    ranges = ((("key", ">=", 3 * part * slot), ("key", "<", 3 * part * (slot + 1))) for slot in slots)
    what = f"a twentieth of the rows, by a range of the sorted key, of {groups} row groups of {rows} rows"
    query = Query("small groups", ("small-groups.parquet",), FIVE)
    yield _case("small groups", what, query, ranges, heavy=True)
    columns, groups = catalog.scale.wide_columns[-1], catalog.scale.wide_groups
    what = f"one row, five of {columns} columns, {groups} row groups"
    yield _in_wide(columns, groups, "wide table", what, axis=Axis.COLUMNS)


def _in_files(catalog: Catalog, files: int, name: str, what: str, **settings: Any) -> Case:
    rows = files * catalog.scale.file_rows
    block = catalog.scale.file_rows
    wheres = ((("key", "=", 3 * row),) for row in fresh_rows(rows, 11, block=block))
    query = Query(name, (f"files-{files}/",), FIVE)
    return _case(name, what, query, wheres, at=files, **settings)


def _in_wide(columns: int, groups: int, name: str, what: str, **settings: Any) -> Case:
    wheres = ((("key", "=", 3 * row),) for row in fresh_rows(200 * groups, 12, block=200))
    some = tuple(f"c{1 + i * (columns - 1) // 4 - (i == 4):04d}" for i in range(1, 5))
    query = Query(name, (f"wide-{columns}.parquet",), ("key", *some))
    return _case(name, what, query, wheres, at=columns, **settings)


def _sweeps(catalog: Catalog) -> Iterator[Case]:
    for delay in (0, 10, 100):
        by_key = _lookups(catalog, SYNTHETIC, "key")
        query = Query(BY_DELAY, (SYNTHETIC,), FIVE)
        what = "a point lookup against the injected delay"
        swept = {"modes": (Mode.COLD, Mode.WARM), "axis": Axis.DELAY, "at": delay}
        yield _case(BY_DELAY, what, query, by_key.fresh(), met=by_key.met(), **swept)
    for files in catalog.scale.file_counts[:-1]:
        what = "one row of a directory, against the number of its files"
        yield _in_files(catalog, files, "by files", what, modes=(Mode.COLD,), axis=Axis.FILES, heavy=True)
    groups = catalog.scale.wide_groups
    for columns in catalog.scale.wide_columns[:-1]:
        what = "one row, five columns, against the number of columns of the file"
        yield _in_wide(columns, groups, "by columns", what, modes=(Mode.COLD,), axis=Axis.COLUMNS)
