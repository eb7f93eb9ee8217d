"""No index contradicts the exact filter: any kind, level, type, layout of pages and question."""

from __future__ import annotations

import datetime
import decimal
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.arrays import mask, validity
from accel.errors import IndexFormatError
from accel.indexes import Bitmap, Bloom, Distinct, IndexKind, Ngram, Sketch, Zonemap
from accel.indexes.kind import ChunkValues, Level, ParsedIndex, first_rows_of
from accel.indexes.native import signature_of
from accel.indexes.question import question_of
from accel.indexes.registry import ask
from accel.predicate.atoms import column_atoms
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.expr import Column, Compare, Expr, InList, IsNull, Like, Literal, Not, Op
from accel.predicate.prune import Evidence, prune

D = decimal.Decimal
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Sort:
    """A type of column, values as pyarrow takes them, and literals."""

    type: pa.DataType
    values: tuple[Any, ...]
    literals: tuple[Any, ...] = ()
    like: bool = False


def _moments(kind: pa.DataType) -> Sort:
    base = datetime.datetime(2019, 12, 31, 23, 59, 59)
    steps = (0, 1, 3600, 86_400, 40 * 86_400, 400 * 86_400, -60 * 365 * 86_400)
    return Sort(kind, tuple(base + datetime.timedelta(seconds=s) for s in steps))


_TEXTS = ("", "a", "ab", "abc", "ABC", "abcd", "xabcx", "Stra\u00dfe", "STRASSE", "\u1e9e", "\u212aelvin")
_TEXTS += (
    "kelvin",
    "\u017fsa",
    "ssa",
    "\u65e5\u672c\u8a9e",
    "a\nb",
    "z" * 70,
    "z" * 69 + "y",
    "\U0010ffff",
    "100%",
)
_BLOBS = (b"", b"\x00", b"\x00\x00", b"\xff" * 70, b"\xff" * 64, b"a", b"\xfe\xff", b"abc")
_MOMENT_LITERALS = ("2019-12-31 23:59:59", datetime.date(2020, 1, 1), "2021-02-03", "1959-01-01")
SORTS = {
    "int8": Sort(pa.int8(), (-128, -1, 0, 1, 127), (0, 1, 127, 200, -129, 0.5, D("1.0"))),
    "int64": Sort(
        pa.int64(), (-(2**63), -1, 0, 7, 2**53, 2**53 + 1, 2**63 - 1), (0, 7.0, 2**53 + 1, 2**63, 1.5)
    ),
    "uint64": Sort(pa.uint64(), (0, 1, 2**63, 2**64 - 1), (0, 1, -1, 2**63, 2**64 - 1, 2**64)),
    "double": Sort(
        pa.float64(), (0.0, -0.0, 1.5, NAN, INF, -INF, 1e300), (0, -0.0, 1.5, NAN, INF, -INF, D("0.1"))
    ),
    "float": Sort(
        pa.float32(), (0.0, -0.0, 0.10000000149011612, NAN, INF), (0.0, 0.1, NAN, 0.10000000149011612)
    ),
    "halffloat": Sort(pa.float16(), tuple(np.float16(v) for v in (0.0, -0.0, 0.5, NAN)), (0.0, 0.5, NAN)),
    "decimal": Sort(
        pa.decimal128(9, 2), (D("0.00"), D("1.50"), D("-1.50"), D("9999999.99")), (0, 1.5, D("1.505"), -2)
    ),
    "wide": Sort(pa.decimal256(60, 1), (D("0.0"), D(10) ** 50, D("-1.5")), (0, D(10) ** 50, -1.5)),
    "bool": Sort(pa.bool_(), (True, False), (True, False)),
    "text": Sort(pa.string(), _TEXTS, (*_TEXTS, "zz", "z" * 64), like=True),
    "large": Sort(pa.large_string(), _TEXTS, _TEXTS, like=True),
    "coded": Sort(pa.dictionary(pa.int32(), pa.string()), _TEXTS, _TEXTS, like=True),
    "binary": Sort(pa.binary(), _BLOBS, _BLOBS),
    "fixed": Sort(pa.binary(2), (b"\x00\x00", b"ab", b"\xff\xff"), (b"ab", b"a", b"\xff\xff")),
    "date": Sort(
        pa.date32(),
        tuple(datetime.date(2020, m, 1) for m in (1, 2, 12)),
        (datetime.date(2020, 2, 1), "2020-12-01"),
    ),
    "timestamp[us]": Sort(pa.timestamp("us"), _moments(pa.timestamp("us")).values, _MOMENT_LITERALS),
    "timestamp[s, UTC]": Sort(pa.timestamp("s", "UTC"), _moments(pa.timestamp("s")).values, _MOMENT_LITERALS),
    "time": Sort(
        pa.time64("us"), (datetime.time(0), datetime.time(12, 30)), (datetime.time(12, 30), "00:00:00")
    ),
}
PATTERNS: tuple[str, ...] = ("s%", "\u1e9e%", "%\u017f%")
PATTERNS += (
    "%abc%",
    "abc%",
    "%abc",
    "a_c",
    "%",
    "",
    "%ss%",
    "%stra%e",
    "k%",
    "\u212a%",
    "%\u65e5\u672c%",
    "100\\%",
    "_bc%",
    "z%y",
)
KINDS: dict[str, tuple[IndexKind, tuple[str, ...]]] = {
    "distinct": (Distinct(), ()),
    "distinct, few": (Distinct(max_values=3), ()),
    "bitmap": (Bitmap(range_rows=3), ()),
    "bitmap, rows": (Bitmap(range_rows=1), ()),
    "bloom": (Bloom(fpp=0.3), ()),
    "ngram": (Ngram(), ("text", "large", "coded", "binary", "fixed")),
    "zonemap": (Zonemap(), ()),
    "zonemap of lower": (Zonemap(of="lower"), ("text", "large", "coded")),
    **{
        f"zonemap of {part}": (Zonemap(of=part), ("date", "timestamp[us]", "timestamp[s, UTC]"))
        for part in ("year", "month", "day", "hour")
    },
    "sketch": (Sketch(lg_k=4, buckets=4), ()),
}
DAMAGED = [
    (name, level, sort)
    for name, (kind, sorts) in KINDS.items()
    for level in sorted(kind.levels)
    for sort in ("text", "int64", "double", "timestamp[us]")
    if not sorts or sort in sorts
]


@st.composite
def columns(draw: st.DrawFn, sort: Sort) -> list[ChunkValues]:
    """Row groups of one column, each cut into pages."""
    chunks = []
    pool = draw(st.lists(st.sampled_from((*sort.values, None)), min_size=1, max_size=4))
    for _ in range(draw(st.integers(1, 2))):
        values = draw(st.lists(st.sampled_from(pool), max_size=12))
        starts = sorted({0, *draw(st.lists(st.integers(1, max(len(values) - 1, 1)), max_size=4))})
        first = np.array([s for s in starts if s == 0 or s < len(values)], np.int64)
        pad = draw(st.integers(0, 2))
        array = pa.array([pool[0]] * pad + values, sort.type).slice(pad)
        chunks.append(ChunkValues(array, first, len(values)))
    return chunks


@st.composite
def questions(draw: st.DrawFn, sort: Sort) -> Expr:
    column = Column(("c",))
    literal = st.sampled_from(sort.literals)
    ops = st.sampled_from((Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.DISTINCT, Op.NOT_DISTINCT))
    forms = [
        st.just(IsNull(column)),
        st.builds(lambda op, v: Compare(op, column, Literal(v)), ops, literal),
        st.builds(
            lambda vs: InList(column, tuple(vs)),
            st.lists(st.one_of(literal, st.none()), min_size=1, max_size=3),
        ),
    ]
    if sort.like:
        forms.append(st.builds(lambda p, i: Like(column, p, i), st.sampled_from(PATTERNS), st.booleans()))
    found: Expr = draw(st.one_of(forms))
    return Not(found) if draw(st.booleans()) else found


def pieces(parsed: ParsedIndex, chunks: list[ChunkValues], level: Level) -> list[pa.Array]:
    """The rows of every entry of an answer."""
    if level is Level.FILE:
        return [pa.chunked_array([chunk.array for chunk in chunks])]
    first = first_rows_of(parsed)
    if level is Level.ROW_RANGE and first is not None:
        stops = np.append(first[1:], chunks[0].num_rows)[: len(first)]
        return [chunks[0].array.slice(a, b - a) for a, b in zip(first.tolist(), stops.tolist(), strict=True)]
    return list(chunks[0].parts(level))


def runs_of(chunk: ChunkValues, pages: int) -> list[ChunkValues]:
    """The same rows in runs of so many pages."""
    first = chunk.first_rows[::pages]
    stops = np.append(first[1:], chunk.num_rows)
    if not chunk.num_rows:
        return [chunk]
    return [
        ChunkValues(
            chunk.array.slice(a, b - a),
            chunk.first_rows[(chunk.first_rows >= a) & (chunk.first_rows < b)] - a,
            int(b - a),
        )
        for a, b in zip(first.tolist(), stops.tolist(), strict=True)
    ]


def units_of(chunks: list[ChunkValues], level: Level) -> int:
    return 1 if level is Level.FILE else len(chunks[0].starts(level))


@st.composite
def inputs(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Sort, list[ChunkValues], list[Expr]]:
    sort = SORTS[draw(st.sampled_from(names))]
    return sort, draw(columns(sort)), draw(st.lists(questions(sort), min_size=1, max_size=8))


LEVELS = [(name, level) for name, (kind, _) in KINDS.items() for level in sorted(kind.levels)]


@pytest.mark.parametrize(("name", "level"), LEVELS, ids=[f"{n}-{v}" for n, v in LEVELS])
def test_the_outcomes_of_every_row_are_allowed(name: str, level: Level) -> None:
    kind, names = KINDS[name]

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(inputs(names or tuple(SORTS)), st.integers(1, 5))
    def check(given_: tuple[Sort, list[ChunkValues], list[Expr]], every: int) -> None:
        sort, chunks, asked = given_
        chunks = chunks if level is Level.FILE else chunks[:1]
        data = kind.build(iter(chunks), level=level)
        parsed = kind.parse(data, level=level, units=units_of(chunks, level))
        assert parsed.nbytes > 0
        units = pieces(parsed, chunks, level)
        run_by_run = kind.build((run for chunk in chunks for run in runs_of(chunk, every)), level=level)
        parsed = kind.parse(run_by_run, level=level, units=units_of(chunks, level))
        for expr in asked:
            bound = bind(expr, pa.schema([("c", sort.type)]))

            def witness(node: Any, bound: Any = bound) -> Evidence | None:
                if node not in tuple(column_atoms(bound.root)):
                    return None
                question = question_of(node, bound.columns[0])
                if question is None:
                    return None
                return ask(parsed, question, units=len(units), signature=signature_of(sort.type))

            evidence = prune(bound, {}, len(units), index_evidence=witness)
            for at, rows in enumerate(units):
                found = set(outcome(bound, {("c",): rows}, len(rows)).to_pylist())
                allowed = {
                    value
                    for value, flags in zip(
                        (True, False, None),
                        (evidence.may_true, evidence.may_false, evidence.may_null),
                        strict=True,
                    )
                    if flags[at]
                }
                assert found <= allowed, (expr, at, rows, found, allowed)

    check()


PAGED = [
    (name, of) for name, (kind, sorts) in KINDS.items() if Level.PAGE in kind.levels for of in sorts or SORTS
]


@pytest.mark.parametrize(("name", "of"), PAGED, ids=[f"{n}-{s}" for n, s in PAGED])
def test_pages_of_one_value_and_of_two_against_every_literal(name: str, of: str) -> None:
    """All of them: each value alone on a page, each pair on a page, each with every operator and literal."""
    kind, sort = KINDS[name][0], SORTS[of]
    pool = (*sort.values, None)
    pages = [[v] for v in pool] + [[v, w] for i, v in enumerate(pool) for w in pool[i + 1 :]]
    array = pa.array([v for page in pages for v in page], sort.type)
    first = np.cumsum([0, *(len(page) for page in pages[:-1])])
    chunk = ChunkValues(array, first, len(array))
    parsed = kind.parse(kind.build(iter((chunk,)), level=Level.PAGE), level=Level.PAGE, units=len(pages))
    column = Column(("c",))
    asked: list[Expr] = [IsNull(column)]
    asked += [Compare(op, column, Literal(v)) for op in (Op.EQ, Op.LT, Op.LE) for v in sort.literals]
    asked += [InList(column, (v, *more)) for v in sort.literals for more in ((), (None,), sort.literals[:2])]
    asked += [Like(column, p, i) for p in PATTERNS for i in (True, False)] if sort.like else []
    for expr in asked:
        if sort.type == pa.bool_() and isinstance(expr, Compare) and expr.op is not Op.EQ:
            continue
        bound = bind(expr, pa.schema([("c", sort.type)]))
        question = question_of(bound.root, bound.columns[0])
        if question is None:
            continue
        evidence = ask(parsed, question, units=len(pages), signature=signature_of(sort.type))
        if evidence is None:
            continue
        rows = outcome(bound, {("c",): array}, len(array))
        true, valid = mask(rows), validity(rows)
        for flags, rows_with in (
            (evidence.may_true, true),
            (evidence.may_false, valid & ~true),
            (evidence.may_null, ~valid),
        ):
            lost = np.logical_or.reduceat(rows_with, first) & ~flags
            assert not lost.any(), (expr, [pages[i] for i in np.flatnonzero(lost)[:3]])


@pytest.mark.parametrize(("name", "level", "of"), DAMAGED, ids=[f"{n}-{v}-{s}" for n, v, s in DAMAGED])
def test_bytes_that_are_cut_or_changed_are_refused_or_answer_without_harm(
    name: str, level: Level, of: str
) -> None:
    """Every truncation is refused; a flipped bit is refused, or gives an index that still answers in form."""
    kind, sort = KINDS[name][0], SORTS[of]
    array = pa.array([*sort.values, None] * 3, sort.type)
    chunk = ChunkValues(array, np.arange(0, len(array), 5, dtype=np.int64), len(array))
    data = kind.build(iter((chunk,)), level=level)
    units = units_of([chunk], level)
    for length in range(0, len(data), max(1, len(data) // 200)):
        with pytest.raises(IndexFormatError):
            kind.parse(data[:length], level=level, units=units)
    with pytest.raises(IndexFormatError):
        kind.parse(data + b"\0", level=level, units=units)
    bound = bind(Compare(Op.EQ, Column(("c",)), Literal(sort.literals[0])), pa.schema([("c", sort.type)]))
    question = question_of(bound.root, bound.columns[0])
    assert question is not None
    chance = np.random.default_rng(zlib.crc32(f"{name} {level} {of}".encode()))
    refused = 0
    for _ in range(300):
        harmed = bytearray(data)
        harmed[int(chance.integers(len(data)))] ^= 1 << int(chance.integers(8))
        try:
            parsed = kind.parse(bytes(harmed), level=level, units=units)
        except IndexFormatError:
            refused += 1
            continue
        first = first_rows_of(parsed)
        entries = units if first is None else len(first)
        found = ask(parsed, question, units=entries, signature=signature_of(sort.type))
        assert found is None or len(found) == entries
    assert refused > 0


IN_PARTS = [
    (name, level, of)
    for name, level, of in DAMAGED
    if type(KINDS[name][0]).head_bytes is not IndexKind.head_bytes
]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of few keys, so that little data has several."""
    monkeypatch.setattr("accel.indexes.ngram.PART_KEYS", 2)
    monkeypatch.setattr("accel.indexes.bitmap.LEAST_PART", 1)
    monkeypatch.setattr("accel.indexes.bitmap.MOST_PART", 2)
    monkeypatch.setattr("accel.indexes.bloom.part_count", lambda counts: 4)


def asked_of(sort: Sort) -> list[Any]:
    """Questions of every operator."""
    column = Column(("c",))
    found: list[Expr] = [IsNull(column), InList(column, sort.literals[:3])]
    found += [Compare(Op.EQ, column, Literal(v)) for v in sort.literals]
    found += [Like(column, p, i) for p in PATTERNS for i in (True, False)] if sort.like else []
    bounds = [bind(expr, pa.schema([("c", sort.type)])) for expr in found]
    return [q for b in bounds if (q := question_of(b.root, b.columns[0])) is not None]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("name", "level", "of"), IN_PARTS, ids=[f"{n}-{v}-{s}" for n, v, s in IN_PARTS])
def test_the_parts_that_a_question_wants_answer_as_the_whole(name: str, level: Level, of: str) -> None:
    """And every one of them that is cut, changed, or another's, is refused."""
    kind: Any = KINDS[name][0]
    sort = SORTS[of]
    array = pa.array([*sort.values, None] * 3, sort.type)
    chunk = ChunkValues(array, np.arange(0, len(array), 5, dtype=np.int64), len(array))
    data = kind.build(iter((chunk,)), level=level)
    units = units_of([chunk], level)
    whole = kind.parse(data, level=level, units=units)
    head = kind.parse_head(data[: kind.head_bytes(data)], level=level, units=units)
    read: set[tuple[int, int]] = set()
    for question in asked_of(sort):
        wanted = head.wants(question)
        read |= set(wanted)
        partly = head.with_parts({(a, b): memoryview(data)[a:b] for a, b in wanted})
        assert partly.wants(question) == []
        a, b = partly.prune(question), whole.prune(question)
        assert (a is None) == (b is None)
        if a is not None:
            for left, right in (
                (a.may_true, b.may_true),
                (a.may_false, b.may_false),
                (a.may_null, b.may_null),
            ):
                assert left.tolist() == right.tolist()
        if wanted:
            assert head.prune(question) is None
    assert len(read) > 1
    spans = sorted(read)
    for turn, (start, end) in enumerate(spans):
        piece = data[start:end]
        other = spans[turn - 1]
        harmed = [piece[:-1], b"", piece + b"\0", bytes(len(piece))]
        harmed += [
            bytes((*piece[:at], piece[at] ^ 1 << at % 8, *piece[at + 1 :])) for at in range(0, len(piece), 7)
        ]
        if data[other[0] : other[1]] != piece:
            harmed.append(data[other[0] : other[1]])
        for each in harmed:
            if each != piece:
                with pytest.raises(IndexFormatError):
                    head.with_parts({(start, end): memoryview(each)})
    for at in range(kind.head_bytes(data)):
        with pytest.raises(IndexFormatError):
            kind.parse_head(
                bytes((*data[:at], data[at] ^ 1, *data[at + 1 : kind.head_bytes(data)])),
                level=level,
                units=units,
            )
