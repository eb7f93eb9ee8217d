"""A cache that lives long: thousands of questions of files that come, go, change places and columns are
answered by what is there, or was there no longer ago than `max_age`; and the cache holds what it says, and no
more than it may.

`test_asked_again` asks of files that are seldom replaced, by others of the same columns, and compares with a
scan that caches nothing; here pyarrow and the row-by-row evaluator say what is right.
"""

from __future__ import annotations

import io
import itertools
import pickle
import random
from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.planning.handle import FileHandle
from accel.predicate.where import to_expr
from accel.testing import DictStore, Layout, table, write_file
from tests.oracle import rowwise
from tests.support.arrow import as_text

SEED, STEPS, ROWS = 20261124, 300, 240
PATHS = ("a.parquet", "b.parquet", "c.parquet")
TEXTS = ["", "a", "A", "id-1", "id-2", "id-10", "é"]
col = accel.col
# Those of a line differ in a literal's type, or in next to nothing.
WHERES: list[list[Any]] = [
    [col("n") == 1, col("n") == 1.0, col("n") == True, "n = 1", [("n", "=", 1)], col("n").isin([1, None])],
    [col("x") == 0.0, col("x") == -0.0, "x = -0.0", "x = 'NaN'", col("x").isin([float("nan")]), "x > 1e300"],
    [col("s") == "a", col("s") == b"a", col("s") == "A", "s LIKE 'id-1%'", "s ILIKE 'A'", "s < 'id-10'"],
    [
        "key = 77",
        "key = 77.0",
        "key = 77.5",
        "key IN (77, 78)",
        "key BETWEEN 70 AND 77 AND n > 0",
        "key = 9000",
    ],
    ["key < 40 AND s = 'a'", "key < 40 OR s = 'a'", "NOT key < 40 AND s = 'a'", "n IS NULL AND key > 200"],
    ["s IS NULL", "NOT (s = 'a' OR n > 0)", "key = n", "key >= 0", None],
]
COLUMNS = (None, ["key"], ["s", "key"], ["key", "s"], ["x", "n"])
# Most of them leave the data to be read by itself.
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"batch_rows": 7, "tail_hint": 8}, *[{"tail_hint": 8}] * 3, {"tail_hint": 8, "probe_min_bytes": 1},
    *({"tail_hint": 8, "phases": "two", "piece_bytes": most} for most in (1, 200, 1 << 20)),
    {"tail_hint": 8, "piece_bytes": 1}, {"tail_hint": 8, "probe_min_bytes": 1, "max_gap_bytes": 0},
)  # fmt: skip


class Writable(DictStore):
    async def write(self, path: str, parts: Any, *, size: int, if_match: str | None = None) -> None:
        self.put(path, b"".join([bytes(part) async for part in parts]))


class Version:
    """A file, and what it says of any question."""

    def __init__(self, number: int) -> None:
        rng = random.Random(number)
        rows, self.answers = rng.choice([0, 1, ROWS, ROWS]), dict[Any, Any]()
        keys = list(range(rows))
        if rng.random() < 0.4:
            rng.shuffle(keys)
        columns: dict[str, Any] = {
            "key": pa.array(keys, pa.int64()),
            "s": pa.array(_drawn(rng, [*TEXTS, None], rows), pa.string()),
            "n": pa.array(_drawn(rng, [0, 1, 2, None], rows), rng.choice([pa.int8(), pa.int64()])),
            "x": pa.array(_drawn(rng, [0.0, -0.0, 1.0, float("nan"), None], rows), pa.float64()),
        }
        if number % 5 == 0:  # another file altogether
            del columns["s"]
            columns = {"x": columns["x"], "n": columns["n"].cast(pa.float64()), "key": columns["key"]}
        self.data = _written(rng, table(**columns))
        self.table = pq.read_table(io.BytesIO(self.data), page_checksum_verification=True)

    def rows(self, where: Any) -> pa.Table | type[Exception]:
        """Those that match, or what a predicate fails with that it has no answer to."""
        key = id(where)
        if key not in self.answers:
            try:
                expr = to_expr(where)
                told = [True] * self.table.num_rows if expr is None else rowwise.evaluate(expr, self.table)
            except accel.AccelError as error:
                self.answers[key] = type(error)
            else:
                kept = [row for row, answer in enumerate(told) if answer is True]
                self.answers[key] = self.table.take(pa.array(kept, pa.int64()))
        return self.answers[key]


def _drawn(rng: random.Random, pool: list[Any], rows: int) -> list[Any]:
    chosen = [rng.choice(pool) for _ in range(rows)]
    return sorted(chosen, key=lambda v: (v is None, repr(v))) if rng.random() < 0.4 else chosen


def _written(rng: random.Random, columns: pa.Table) -> bytes:
    if rng.random() < 0.35:
        store, indexes = Writable(), {"key": rng.choice(["zonemap", "bitmap", "bloom"])}
        if "s" in columns.column_names:
            indexes["s"] = rng.choice(["distinct", "ngram", "sketch"])
        accel.write_table(columns, "f", store=store, indexes=indexes, page_rows=20, row_group_size=100)
        return store.objects["f"]
    layout = Layout(
        group_rows=rng.choice([60, 1000]),
        page_rows=rng.choice([7, 40]),
        codec=rng.choice(["none", "snappy", "zstd"]),
        dictionary=rng.random() < 0.5,
        page_index=rng.random() < 0.6,
        statistics=rng.random() < 0.8,
        data_page=rng.choice(["1.0", "2.0"]),
        more={"bloom_filter_options": {"key": {"ndv": ROWS, "fpp": 0.01}}} if rng.random() < 0.3 else None,
    )
    return write_file(columns, layout)


@cache
def versions() -> list[Version]:
    return [Version(number) for number in range(20)]


class World:
    """Files, and all that they were."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.store = chance, DictStore()
        self.was: dict[str, list[Version | None]] = {path: [] for path in PATHS}
        for path in PATHS:
            self.put(path, chance.choice(versions()))

    def put(self, path: str, version: Version | None) -> None:
        self.was[path].append(version)
        if version is not None:
            self.store.put(path, version.data)
        elif path in self.store.objects:
            self.store.delete(path)

    def change(self) -> None:
        path, other = self.chance.sample(PATHS, 2)
        turn = self.chance.random()
        if turn < 0.5:
            self.put(path, self.chance.choice(versions()))
        elif turn < 0.7:
            here, there = self.was[path][-1], self.was[other][-1]
            self.put(path, there)
            self.put(other, here)
        elif turn < 0.8:
            self.put(path, None)
        else:
            self.put(path, self.chance.choice(self.was[path]))

    def possible(self, path: str, *, old: bool) -> list[Version | None]:
        return list(dict.fromkeys(self.was[path])) if old else self.was[path][-1:]


def expected(of: tuple[Version | None, ...], where: Any, columns: list[str] | None, verb: str) -> Any:
    """What those versions say, as the text of rows; or the kind of error. None where that is not for here to
    say."""
    there = [version for version in of if version is not None]
    if len(there) < len(of):
        return accel.ObjectNotFoundError
    if len({str(version.table.schema) for version in there}) > 1:
        return None
    parts = [version.rows(where) for version in there]
    asked = set(columns or ())
    if any(isinstance(part, type) or not asked <= set(part.column_names) for part in parts):
        return accel.PredicateError
    whole = pa.concat_tables(parts)
    return whole.num_rows if verb == "count" else as_text(whole if columns is None else whole.select(columns))


def found(source: Any, asked: dict[str, Any], verb: str) -> Any:
    try:
        if verb == "plan":
            planned = pickle.loads(pickle.dumps(accel.plan(source, **asked)))
            keywords = {name: asked[name] for name in ("store", "cache", "options")}
            return as_text(accel.scan(planned, **keywords).to_table())
        scan = accel.scan(source, **asked)
        if verb == "count":
            return scan.count_rows()
        if verb == "left":
            batches = scan.to_batches()
            next(batches, None)
            return batches.close()
        return as_text(scan.to_reader().read_all() if verb == "stream" else scan.to_table())
    except (accel.PredicateError, accel.ColumnNotFoundError):
        return accel.PredicateError
    except accel.AccelError as error:
        return type(error)


def unsaid(cache: accel.Cache) -> int:
    """Bytes that the handles hold and the cache was not told of."""
    entries = cache.metadata_tier
    held = [
        (one.nbytes, entries._Cache__size[key]) for key, one in entries.items() if isinstance(one, FileHandle)
    ]
    return max((weighs - said for weighs, said in held), default=0)


@pytest.mark.parametrize("max_age", [0.0, 1e9], ids=["always asked", "trusted"])
@pytest.mark.parametrize("limits", [(256 << 20, 256 << 20), (60_000, 400_000), (20_000, 64_000)], ids=str)
def test_a_cache_grows_old(max_age: float, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0)
    monkeypatch.setattr("accel.reader.task_reads.LEAST_TAUGHT", 0)
    chance = random.Random(f"{SEED} {max_age} {limits}")
    world, caches = (
        World(chance),
        [accel.Cache(memory=limits[0], data=limits[1], max_age=max_age) for _ in "12"],
    )
    pool = [
        (chance.choice([*PATHS, list(PATHS[:2])]), where, chance.choice(COLUMNS), chance.choice(OPTIONS))
        for where in itertools.chain.from_iterable(WHERES)
    ]
    met = Counter[str]()
    for step in range(STEPS):
        if chance.random() < 0.06:
            world.change()
        # Of late ones again and again.
        source, where, columns, options = pool[(step // 9 + chance.randrange(4)) % len(pool)]
        verb, cache = (
            chance.choice(["table"] * 4 + ["stream", "count", "plan", "left"]),
            chance.choice(caches),
        )
        keywords = {"where": where, "columns": columns, "options": accel.Options(**options), "cache": cache}
        answer = found(source, {**keywords, "store": world.store}, verb)
        paths = source if isinstance(source, list) else [source]
        of = itertools.product(*(world.possible(path, old=max_age > 0) for path in paths))
        right = [expected(one, where, columns, verb) for one in of]
        if verb != "left" and None not in right:
            # Of two files either may be told of; one that is trusted may be another by the time that it is
            # read.
            kind = answer if isinstance(answer, type) else None
            told = kind and (len(paths) > 1 or max_age > 0 and issubclass(kind, accel.ObjectChangedError))
            said = step, source, where, columns, options, verb
            assert answer in right or told, said
            met["rows" if kind is None else kind.__name__] += 1
        stats = cache.stats()
        assert stats.nbytes <= limits[0] and stats.data_nbytes <= limits[1]
        # A scan that was left may still be planning: what it found of four leaves by then is told at its end.
        assert unsaid(cache) < 1000
        met["by data"] += stats.data_hits
    assert met["rows"] > STEPS / 4
    # The least one may have let go of all that is asked for again.
    assert met["by data"] > 0 or limits[1] < 100_000
