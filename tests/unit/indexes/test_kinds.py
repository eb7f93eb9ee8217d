"""What each kind proves, as tables; what its bytes cost; and which optional protocols it implements."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import IndexFormatError, SchemaMismatchError
from accel.indexes import (
    Bitmap,
    Bloom,
    ChunkValues,
    Distinct,
    IndexKind,
    Level,
    Ngram,
    Sketch,
    Zonemap,
    kinds,
)
from accel.indexes.bitmap import ParsedBitmap
from accel.indexes.expressions import output_type
from accel.indexes.idx1 import Idx1
from accel.indexes.kind import first_rows_of
from accel.indexes.native import bits_of_rows
from accel.indexes.zonemap import ParsedZonemap
from tests.unit.indexes.data import ask_for, pages, shown

TEXT = pages(["a", "a"], ["a", "b"], ["b", None], [None, None], ["Stra\u00dfe 12"])
FLAGS = pages([True, True], [True, False], [False, None], [None], type=pa.bool_())
NUMBERS = pages([1, 1], [1, 2], [2, None], [None, None], [100], type=pa.int64())


def built(kind: IndexKind, chunk: ChunkValues, level: Level = Level.PAGE) -> Any:
    data = kind.build(iter([chunk]), level=level)
    return kind.parse(data, level=level, units=1 if level is Level.FILE else len(chunk.starts(level)))


PROOFS: list[tuple[IndexKind, ChunkValues, str, list[str] | None]] = [
    (Distinct(), TEXT, "x = 'a'", ["T", "TF", "FN", "N", "F"]),
    (Distinct(), TEXT, "x IN ('a', 'b')", ["T", "T", "TN", "N", "F"]),
    (Distinct(), TEXT, "x IS NULL", ["F", "F", "TF", "T", "F"]),
    (Distinct(), TEXT, "x < 'b'", ["T", "TF", "FN", "N", "T"]),
    (Distinct(), TEXT, "x ILIKE '%RASSE%'", ["F", "F", "FN", "N", "F"]),
    (Distinct(), TEXT, "x ILIKE '%RA\u1e9ee%'", ["F", "F", "FN", "N", "T"]),
    (Distinct(max_values=2), TEXT, "x = 'a'", None),
    (Distinct(max_values=2), TEXT, "x IS NULL", ["F", "F", "TF", "T", "F"]),
    (Bitmap(), NUMBERS, "x = 1", ["T", "TF", "FN", "N", "F"]),
    (Bitmap(), NUMBERS, "x IN (1, 2)", ["T", "T", "TN", "N", "F"]),
    (Bitmap(), NUMBERS, "x <= 1", None),
    (Bitmap(), TEXT, "x = 'a'", ["TF", "TF", "FN", "N", "F"]),
    (Bloom(fpp=1e-6), NUMBERS, "x = 2", ["F", "TF", "TFN", "N", "F"]),
    (Bloom(fpp=1e-6), NUMBERS, "x IN (7, 100)", ["F", "F", "FN", "N", "TF"]),
    (Bloom(fpp=1e-6), NUMBERS, "x <= 2", None),
    (Ngram(), TEXT, "x LIKE '%traß%'", ["F", "F", "FN", "N", "TF"]),
    (Ngram(), TEXT, "x ILIKE 'STRA_e%'", ["F", "F", "FN", "N", "TF"]),
    (Ngram(), TEXT, "x LIKE '%ab%'", ["TF", "TF", "TFN", "N", "TF"]),
    (Ngram(), TEXT, "x = 'abc'", ["F", "F", "FN", "N", "F"]),
    (Ngram(), TEXT, "x < 'abc'", None),
    (Zonemap(), NUMBERS, "x = 1", ["T", "TF", "FN", "N", "F"]),
    (Zonemap(), NUMBERS, "x <= 1", ["T", "TF", "FN", "N", "F"]),
    (Zonemap(), TEXT, "x LIKE 'S%'", ["F", "F", "FN", "N", "T"]),
    (Zonemap(of="lower"), TEXT, "x ILIKE 'sTRAs%'", ["F", "F", "FN", "N", "TF"]),
    (Zonemap(of="lower"), TEXT, "x = 'B'", ["F", "TF", "TFN", "N", "F"]),
    (Sketch(), NUMBERS, "x = 1", None),
    (Distinct(), FLAGS, "x = TRUE", ["T", "TF", "FN", "N"]),
    (Distinct(), FLAGS, "x = FALSE", ["F", "TF", "TN", "N"]),
    (Bitmap(), FLAGS, "x = TRUE", ["T", "TF", "FN", "N"]),
    (Zonemap(), FLAGS, "x = FALSE", ["F", "TF", "TN", "N"]),
]


@pytest.mark.parametrize(
    ("kind", "chunk", "where", "expected"), PROOFS, ids=[f"{k.name}: {w}" for k, _, w, _ in PROOFS]
)
def test_what_is_proved(kind: IndexKind, chunk: ChunkValues, where: str, expected: list[str] | None) -> None:
    level = Level.PAGE if Level.PAGE in kind.levels else Level.ROW_GROUP
    assert shown(built(kind, chunk, level).prune(ask_for(where, chunk.array.type))) == expected


def test_a_file_is_built_from_row_groups_that_are_not_kept() -> None:
    seen: list[int] = []

    def stream() -> Any:
        for group in range(3):
            seen.append(group)
            yield pages([group, group + 1, None], type=pa.int32())

    for kind in (Distinct(), Zonemap()):
        parsed = kind.parse(kind.build(stream(), level=Level.FILE), level=Level.FILE, units=1)
        found = [
            shown(parsed.prune(ask_for(w, pa.int32()))) for w in ("x = 3", "x = 4", "x <= 3", "x IS NULL")
        ]
        assert found == [["TFN"], ["FN"], ["TN"], ["TF"]]
    assert seen == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("groups", "where", "expected"),
    [
        ([["apple"], ["berry"], ["cherry"]], "x LIKE '%err%'", "TF"),
        ([["apple"], ["berry"], ["cherry"]], "x LIKE '%app%'", "TF"),
        ([["apple"], ["berry"], ["cherry"]], "x LIKE '%erc%'", "F"),
        ([["apple"], ["berry", None], ["cherry"]], "x LIKE '%err%'", "TFN"),
        ([["apple"], ["berry", None], ["cherry"]], "x LIKE '%erc%'", "FN"),
        ([["apple"], ["berry"], ["cherry", None]], "x IS NULL", "TF"),
        ([["apple"], ["berry"], ["cherry"]], "x IS NULL", "F"),
        ([[None], ["berry"]], "x LIKE '%err%'", "TFN"),
        ([[None], [None]], "x LIKE '%err%'", "N"),
    ],
)
def test_the_ngrams_of_a_file_are_those_of_all_its_row_groups(
    groups: list[list[str | None]], where: str, expected: str
) -> None:
    chunks = [pages(values, type=pa.string()) for values in groups]
    data = Ngram().build(iter(chunks), level=Level.FILE)
    found = Ngram().parse(data, level=Level.FILE, units=1).prune(ask_for(where, pa.string()))
    assert shown(found) == [expected]


@pytest.mark.parametrize(("kind", "text"), [(Bitmap(), "x = 1"), (Distinct(), "x = 1"), (Zonemap(), "x = 1")])
def test_an_index_of_numbers_is_not_asked_for_text(kind: IndexKind, text: str) -> None:
    assert built(kind, NUMBERS).prune(ask_for("x = '1'", pa.string())) is None


def test_units_that_are_not_the_files_are_refused() -> None:
    for kind in (Distinct(), Bitmap(), Bloom(), Zonemap()):
        data = kind.build(iter([NUMBERS]), level=Level.PAGE)
        with pytest.raises(IndexFormatError, match="of 5 units where 4 are"):
            kind.parse(data, level=Level.PAGE, units=4)


@pytest.mark.parametrize("kind", [Distinct(), Bitmap(), Bloom(), Ngram()], ids=lambda kind: kind.name)
def test_a_null_may_stand_in_a_dictionary(kind: IndexKind) -> None:
    entries = pa.array(["a", None, "b"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 2, 1, None], pa.int32()), entries)
    found = built(kind, ChunkValues(array, np.array([0, 2, 4]), 6))
    assert shown(found.prune(ask_for("x IS NULL", pa.string()))) == ["TF", "F", "T"]


def test_an_ngram_index_is_of_text() -> None:
    with pytest.raises(SchemaMismatchError, match="not of int64"):
        Ngram().build(iter([NUMBERS]), level=Level.PAGE)


def test_text_that_is_not_utf8_may_match_anything() -> None:
    broken = pa.array([b"\xff\xfe", b"abc"]).cast(pa.binary())
    chunk = ChunkValues(broken, np.array([0, 1]), 2)
    parsed = built(Ngram(), chunk)
    assert shown(parsed.prune(ask_for("x LIKE '%zzz%'", pa.string()))) == ["TF", "F"]


# U+DFFFD is assigned in no Unicode yet; U+FFFF never will be.
UNASSIGNED = pages(["abc\U000dfffd", None], ["abc\n\xe9"], ["zzz\uffff"])


@pytest.mark.parametrize(
    ("kind", "where", "expected"),
    [
        (Ngram(), "x ILIKE '%zzz%'", ["TFN", "F", "TF"]),
        (Ngram(), "x = 'abc\n\xe9'", ["TFN", "TF", "F"]),
        (Ngram(), "x ILIKE '%\U000dfffd\U000dfffd%'", ["TFN", "TF", "TF"]),
        (Ngram(), "x LIKE '%zzz%\U000dfffd'", ["TFN", "F", "TF"]),
        (Ngram(), "x IN ('abc\U000dfffd', 'zzz\uffff')", ["TFN", "TF", "TF"]),
        (Ngram(), "x IS NULL", ["TF", "F", "F"]),
        (Zonemap(of="lower"), "x ILIKE 'zzz%'", ["TFN", "F", "TF"]),
        (Zonemap(of="lower"), "x = 'abc\n\xe9'", ["TFN", "TF", "F"]),
        (Zonemap(of="lower"), "x ILIKE '\U000dfffd%'", None),
        (Zonemap(of="lower"), "x = '\U000dfffd'", None),
        (Zonemap(of="lower"), "x IS NULL", ["TF", "F", "F"]),
    ],
    ids=lambda each: each.name if isinstance(each, IndexKind) else ascii(each),
)
def test_what_a_later_unicode_may_fold_may_match(
    kind: IndexKind, where: str, expected: list[str] | None
) -> None:
    assert shown(built(kind, UNASSIGNED).prune(ask_for(where, pa.string()))) == expected


def test_lower_of_what_a_later_unicode_may_fold_has_no_bounds() -> None:
    for level, lower, exact in (
        (Level.PAGE, (None, b"abc\n\xc3\xa9", b"zzz\xef\xbf\xbf"), [False, True, True]),
        (Level.ROW_GROUP, (None,), [False]),
    ):
        kind = Zonemap(of="lower")
        data = kind.build(iter([UNASSIGNED]), level=level)
        stats = figures(kind.parse(data, level=level, units=len(lower)), pa.string())
        assert (stats.lower, stats.exact) == (lower, exact)
        assert sum(stats.nulls) == 1


# --- bitmap ---


def test_row_ranges() -> None:
    chunk = pages([5] * 4 + [6] * 4 + [None] + [5] * 2, type=pa.int32())
    kind = Bitmap(range_rows=3)
    parsed = built(kind, chunk, Level.ROW_RANGE)
    question = ask_for("x = 5", pa.int32())
    assert first_rows_of(parsed).tolist() == [0, 3, 6, 9]
    assert shown(parsed.prune(question)) == ["T", "TF", "FN", "T"]
    for rows_of_group in (9, 13):
        with pytest.raises(IndexFormatError, match="not of the row group's rows"):
            kind.parse(
                kind.build(iter([chunk]), level=Level.ROW_RANGE), level=Level.ROW_RANGE, units=rows_of_group
            )


def test_one_value_is_looked_up_by_the_head_and_one_part() -> None:
    values = np.random.default_rng(7).permutation(200_000)
    chunk = ChunkValues(pa.array(values), np.arange(0, 200_000, 2000), 200_000)
    kind = Bitmap()
    data = kind.build(iter([chunk]), level=Level.PAGE)
    head = kind.parse_head(data[: kind.head_bytes(data)], level=Level.PAGE, units=100)
    for value in (0, 77_777, 199_999):
        question = ask_for(f"x = {value}", pa.int64())
        spans = head.wants(question)
        assert head.prune(question) is None
        assert len(spans) == 1
        found = head.with_parts({(a, b): memoryview(data)[a:b] for a, b in spans})
        evidence = found.prune(question)
        assert evidence is not None
        assert np.flatnonzero(evidence.may_true).tolist() == [int(np.flatnonzero(values == value)[0]) // 2000]
        assert found.wants(question) == []
        assert sum(b - a for a, b in spans) + kind.head_bytes(data) < len(data) / 50
    absent = ask_for("x = -1", pa.int64())
    with_part = head.with_parts({span: memoryview(data)[slice(*span)] for span in head.wants(absent)})
    assert not with_part.prune(absent).may_true.any()  # type: ignore[union-attr]


def test_a_part_that_is_not_the_heads_is_refused() -> None:
    kind = Bitmap()
    data = kind.build(iter([pages(list(range(500)), type=pa.int64())]), level=Level.PAGE)
    head = kind.parse_head(data[: kind.head_bytes(data)], level=Level.PAGE, units=1)
    first, second = head.head.spans()[:2]
    with pytest.raises(IndexFormatError, match="wrong checksum"):
        head.with_parts({first: memoryview(data)[slice(*second)]})


def test_hashes_that_collide_never_prove_that_all_rows_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.indexes.bitmap.hash_values", lambda values: np.zeros(len(values), np.uint64))
    monkeypatch.setattr("accel.indexes.bitmap.hash_natives", lambda v, tag: np.zeros(len(v), np.uint64))
    parsed: ParsedBitmap = built(Bitmap(), pages(["a"], ["b"]))
    assert shown(parsed.prune(ask_for("x = 'a'", pa.string()))) == ["TF", "TF"]


# --- bloom ---


@pytest.mark.parametrize("fpp", [0.1, 0.01, 0.001])
def test_false_positives_stay_near_the_chance_that_was_asked_for(fpp: float) -> None:
    values = np.arange(20_000) * 3
    chunk = ChunkValues(pa.array(values), np.arange(0, 20_000, 1000), 20_000)
    parsed = built(Bloom(fpp=fpp), chunk)
    passed = sum(
        int(parsed.prune(ask_for(f"x = {3 * i + 1}", pa.int64())).may_true.sum()) for i in range(1000)
    )
    assert passed / (1000 * 20) < 1.3 * fpp + 1e-4


@pytest.mark.parametrize("fpp", [0, 1, -0.5, 2])
def test_a_chance_is_between_0_and_1(fpp: float) -> None:
    with pytest.raises(ValueError, match="fpp is a probability"):
        Bloom(fpp=fpp)


# --- zone maps ---


def stats_of(chunk: ChunkValues, kind: Zonemap | None = None, level: Level = Level.PAGE) -> SimpleNamespace:
    parsed: ParsedZonemap = built(kind or Zonemap(), chunk, level)
    return figures(parsed, output_type(parsed.of, chunk.array.type))


def figures(parsed: ParsedZonemap, type: pa.DataType, path: tuple[str, ...] = ()) -> SimpleNamespace:
    """What a zone map has of a column, None where it has no bound."""
    found = parsed.bounds(path, type)
    assert found is not None
    assert found.lower_exact is not None
    assert found.upper_exact is not None
    ends = [
        tuple(value if there else None for value, there in zip(values.tolist(), has.tolist(), strict=True))
        for values, has in ((found.lower, found.has_lower), (found.upper, found.has_upper))
    ]
    return SimpleNamespace(
        lower=ends[0],
        upper=ends[1],
        exact=(found.lower_exact & found.upper_exact).tolist(),
        counts=(found.num_values - found.null_count).tolist(),
        nulls=found.null_count.tolist(),
        nans=found.nan_count.tolist(),
        sums=found.sums,
    )


def test_figures_of_integers() -> None:
    stats = stats_of(pages([3, -1, None], [None], [2**62, 2**62, 2**62], type=pa.int64()))
    assert (stats.lower, stats.upper) == ((-1, None, 2**62), (3, None, 2**62))
    assert (stats.counts, stats.nulls) == ([2, 0, 3], [1, 1, 0])
    assert stats.sums == (2, 0, 3 * 2**62)


def test_figures_of_floats() -> None:
    nan = float("nan")
    stats = stats_of(pages([0.5, nan, None], [nan], [-0.0, 2.0], type=pa.float64()))
    assert (stats.lower, stats.upper) == ((0.5, None, 0.0), (0.5, None, 2.0))
    assert stats.nans == [1, 1, 0]
    assert str(stats.sums) == "(nan, nan, 2.0)"


def test_figures_of_long_text_are_cut_and_say_so() -> None:
    stats = stats_of(pages(["a" * 64, "b"], ["a" * 65], ["\U0010ffff" * 30]))
    assert stats.exact == [True, False, False]
    assert stats.lower == (b"a" * 64, b"a" * 64, ("\U0010ffff" * 16).encode())
    assert stats.upper == (b"b", b"a" * 63 + b"b", ("\U0010ffff" * 16).encode()[:-1] + b"\xc0")
    assert stats.sums is None


def test_figures_of_decimals_are_unscaled() -> None:
    d = decimal.Decimal
    stats = stats_of(pages([d("1.50"), d("-2.25")], type=pa.decimal128(9, 2)))
    assert (stats.lower, stats.upper, stats.sums) == ((-225,), (150,), (-75,))
    long = stats_of(pages([d(10) ** 30, d(-1)], [None, d("0.01")], type=pa.decimal128(38, 2)))
    # An end of more than 62 bits is rounded outward, and is none of the values.
    assert (long.lower, long.sums, long.exact) == ((-100, 1), (10**32 - 100, 1), [False, True])
    assert 0 < long.upper[0] - 10**32 < 10**14
    wide = stats_of(pages([d(10) ** 50, d(10) ** 50], type=pa.decimal256(60, 0)))
    assert (0 < 10**50 - wide.lower[0] < 10**32, wide.sums, wide.exact) == (True, None, [False])


@pytest.mark.parametrize(
    ("groups", "type", "expected"),
    [
        ([[3, None], [], [-1, 9]], pa.int64(), ((-1,), (9,), (11,), [3], [1], [0])),
        ([[None], [None, None]], pa.int64(), ((None,), (None,), (0,), [0], [3], [0])),
        ([[0.5, 0.25], [float("nan")], [None]], pa.float64(), ((0.25,), (0.5,), "(nan,)", [3], [1], [1])),
        ([[1.5, 2.5], [-3.0]], pa.float64(), ((-3.0,), (2.5,), (1.0,), [3], [0], [0])),
        ([["b", None], ["a"]], pa.string(), ((b"a",), (b"b",), None, [2], [1], [0])),
    ],
    ids=["integers", "nulls", "NaN", "floats", "text"],
)
def test_figures_of_a_file_are_those_of_all_its_row_groups(
    groups: list[list[Any]], type: pa.DataType, expected: tuple[Any, ...]
) -> None:
    chunks = [pages(values, type=type) for values in groups]
    data = Zonemap().build(iter(chunks), level=Level.FILE)
    stats = figures(Zonemap().parse(data, level=Level.FILE, units=1), type)
    sums = str(stats.sums) if isinstance(expected[2], str) else stats.sums
    assert (stats.lower, stats.upper, sums, stats.counts, stats.nulls, stats.nans) == expected


def test_sums_of_unsigned_integers_do_not_overflow() -> None:
    assert stats_of(pages([2**64 - 1] * 3, type=pa.uint64())).sums == (3 * (2**64 - 1),)


@pytest.mark.parametrize("seed", range(20))
def test_calendar_parts_are_pythons_own(seed: int) -> None:
    chance = random.Random(seed)
    moments = [
        datetime.datetime(1, 1, 1) + datetime.timedelta(seconds=chance.randrange(86_400 * 3_650_000))
        for _ in range(50)
    ]
    chunk = pages(*([m] for m in moments), type=pa.timestamp("us"))
    for part in ("year", "month", "day", "hour"):
        assert stats_of(chunk, Zonemap(of=part)).lower == tuple(getattr(m, part) for m in moments)


def test_several_columns_in_one() -> None:
    array = pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None])
    kind = Zonemap(columns=(("a",), ("s", "b")))
    parsed: Any = built(kind, ChunkValues(array, np.array([0, 1]), 3))
    assert figures(parsed, pa.int64(), ("a",)).upper == (1, 2)
    assert figures(parsed, pa.string(), ("s", "b")).lower == (b"x", None)
    assert parsed.bounds(("s",), pa.string()) is None
    assert kind.params == {"of": "value", "columns": ["a", "s.b"]}


@pytest.mark.parametrize(
    ("kind", "chunk", "message"),
    [
        (Zonemap(of="year"), TEXT, r"year\(\) has no meaning for string"),
        (Zonemap(of="lower"), NUMBERS, r"lower\(\) has no meaning for int64"),
        (Zonemap(columns=(("a",),)), NUMBERS, "a zone map of 1 columns"),
    ],
)
def test_expressions_that_do_not_fit_are_refused(kind: Zonemap, chunk: ChunkValues, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        kind.build(iter([chunk]), level=Level.PAGE)


def test_an_unknown_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="not of 'upper'"):
        Zonemap(of="upper")


# --- sketch ---


def test_guesses() -> None:
    rows = 100_000
    values = np.random.default_rng(3).integers(0, 1000, rows)
    array = pa.array(values, pa.int64(), mask=np.arange(rows) % 10 == 0)
    sketch = built(Sketch(), ChunkValues(array, np.array([0]), rows), Level.ROW_GROUP)
    guess = {
        w: sketch.selectivity(ask_for(w, pa.int64())) for w in ("x = 7", "x <= 249", "x IS NULL", "x = -1")
    }
    assert abs(sketch.distinct / 1000 - 1) < 0.05
    assert abs(guess["x = 7"] / 0.0009 - 1) < 0.1
    assert abs(guess["x <= 249"] - 0.9 * 0.25) < 0.02
    assert guess["x IS NULL"] == 0.1
    assert guess["x = -1"] == 0.0


def test_a_frequent_value_is_guessed_as_frequent() -> None:
    array = pa.array(["common"] * 900 + [f"v{i}" for i in range(100)])
    sketch = built(Sketch(), ChunkValues(array, np.array([0]), 1000), Level.ROW_GROUP)
    assert sketch.selectivity(ask_for("x = 'common'", pa.string())) > 0.8


# --- the DataFusion example's list as a kind ---


def test_idx1_proves_only_absence() -> None:
    parsed = Idx1().parse(b"IDX1" + (3).to_bytes(8, "little") + b"a\nb", level=Level.FILE, units=1)
    asked = ("x = 'a'", "x = 'c'", "x IN ('c', 'b')", "x = 'a\nb'", "x = ''", "x IS NULL", "x < 'b'")
    found = [shown(parsed.prune(ask_for(where, pa.string()))) for where in asked]
    assert found == [["TFN"], ["FN"], ["TFN"], ["TFN"], ["TFN"], None, None]
    assert parsed.prune(ask_for("x = 1", pa.int64())) is None


# --- costs, as docs/indexes.md states them ---


@pytest.mark.parametrize(
    ("kind", "chunk", "most"),
    [
        (
            Distinct(),
            ChunkValues(pa.array([f"v{i % 50}" for i in range(10_000)]), np.arange(0, 10_000, 100), 10_000),
            8192,
        ),
        (Bloom(), ChunkValues(pa.array(np.arange(10_000)), np.arange(0, 10_000, 1000), 10_000), 14_000),
        (Zonemap(), ChunkValues(pa.array(np.arange(10_000)), np.arange(0, 10_000, 100), 10_000), 6200),
        (Bitmap(), ChunkValues(pa.array(np.arange(10_000)), np.arange(0, 10_000, 1000), 10_000), 110_000),
    ],
    ids=["distinct", "bloom", "zonemap", "bitmap"],
)
def test_sizes(kind: IndexKind, chunk: ChunkValues, most: int) -> None:
    assert len(kind.build(iter([chunk]), level=Level.PAGE)) < most


@pytest.mark.parametrize(
    "kind", [Bitmap(), Bitmap(range_rows=100), Bloom()], ids=["bitmap", "ranges", "bloom"]
)
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("of", [pa.int32(), pa.uint64(), pa.float64(), pa.timestamp("us")], ids=str)
def test_values_that_seldom_repeat_are_not_looked_for_twice_and_that_changes_no_byte(
    kind: Any, repeats: int, of: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(repeats)
    numbers = rng.integers(0, 6_000 // repeats, 6_000)
    values: list[Any] = [None if i % 50 == 0 else int(v) for i, v in enumerate(numbers)]
    if of == pa.float64():
        values = [v if v is None or v > 3 else (-0.0, 0.0, float("nan"), float("nan"))[v] for v in values]
    array = pa.array(values, of)
    chunk = ChunkValues(array, np.arange(0, 6_000, 500), 6_000)
    level = Level.ROW_RANGE if kind == Bitmap(range_rows=100) else Level.PAGE
    data = kind.build(iter([chunk]), level=level)
    assert bits_of_rows(array) is not None
    assert bits_of_rows(array.slice(0, 500)) is None
    monkeypatch.setattr("accel.indexes.native.SAMPLE", 1 << 40)
    assert bits_of_rows(array) is None
    assert kind.build(iter([chunk]), level=level) == data


HAVE: dict[str, tuple[Callable[[IndexKind], object], set[str]]] = {
    "streamed": (
        lambda kind: kind.builder(level=Level.PAGE),
        {"bitmap", "bloom", "distinct", "ngram", "sketch", "zonemap"},
    ),
    "parted": (lambda kind: kind.head_bytes(bytes(8)) is not None, {"bitmap", "bloom", "ngram"}),
    "joined": (lambda kind: kind.joined_version, {"bitmap"}),
}


@pytest.mark.parametrize("capability", HAVE)
def test_kinds_that_have_it(capability: str) -> None:
    has, expected = HAVE[capability]
    assert {name for name, kind in kinds().items() if has(kind)} == expected


def test_a_kind_of_one_column_is_not_of_several() -> None:
    with pytest.raises(ValueError, match="index kind bloom is of one column, not of 'a, b'"):
        Bloom().over(["a", "b"])
