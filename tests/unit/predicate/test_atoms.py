"""Bound trees divided by columns, and LIKE patterns."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from accel import kernels
from accel.errors import PredicateError
from accel.predicate.atoms import (
    Against,
    AllOf,
    AnyOf,
    IsTrue,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Truth,
    column_atoms,
    compile_pattern,
    over_first_column,
    single_column_parts,
    successor,
)
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.expr import Column, Like

A, B, C = Against(0, Order.EQ, 5), Null(1), Against(1, Order.LE, 7)
AB = Pair(0, 1, Order.LT)


@pytest.mark.parametrize(
    ("tree", "atoms", "parts"),
    [
        (A, [A], [(0, A)]),
        (Negation(C), [C], [(1, Negation(C))]),
        (AllOf((A, B)), [A, B], [(0, A), (1, B)]),
        (AllOf((A, AnyOf((B, C)))), [A, B, C], [(0, A), (1, AnyOf((B, C)))]),
        (Negation(AnyOf((A, IsTrue(C)))), [A, C], [(0, A), (1, IsTrue(C))]),
        (IsTrue(AllOf((A, B))), [A, B], [(0, A), (1, B)]),
        (AnyOf((Truth(None), C)), [C], [(1, AnyOf((Truth(None), C)))]),
        (AB, [], []),
        (AllOf((AB, C)), [C], [(1, C)]),
        (Pair(1, 1, Order.LT), [], [(1, Pair(1, 1, Order.LT))]),
        (Truth(True), [], []),
    ],
    ids=str,
)
def test_apart(tree: Node, atoms: list[Node], parts: list[tuple[int, Node]]) -> None:
    assert list(column_atoms(tree)) == atoms
    assert list(single_column_parts(tree)) == parts


@pytest.mark.parametrize(
    ("part", "alone"),
    [
        (C, Against(0, Order.LE, 7)),
        (Negation(C), Negation(Against(0, Order.LE, 7))),
        (IsTrue(AllOf((B, C))), IsTrue(AllOf((Null(0), Against(0, Order.LE, 7))))),
        (AnyOf((Truth(None), B)), AnyOf((Truth(None), Null(0)))),
        (Pair(1, 1, Order.LT), Pair(0, 0, Order.LT)),
    ],
    ids=str,
)
def test_as_if_its_column_were_the_only_one(part: Node, alone: Node) -> None:
    assert over_first_column(part) == alone


ROWS = [
    "",
    "a",
    "ab",
    "abc",
    "a%c",
    "a\nc",
    "aéc",
    "A_C",
    "a\\c",
    "ß",
    "ss",
    "K",
    "\u212a",
    "ſ",
    "a\x00c",
    "É",
    None,
]


@pytest.mark.parametrize(
    ("pattern", "fold", "matches"),
    [
        ("", False, [""]),
        ("%", False, ROWS[:-1]),
        ("a%", False, ["a", "ab", "abc", "a%c", "a\nc", "aéc", "a\\c", "a\x00c"]),
        ("%c", False, ["abc", "a%c", "a\nc", "aéc", "a\\c", "a\x00c"]),
        ("%b%", False, ["ab", "abc"]),
        ("a_c", False, ["abc", "a%c", "a\nc", "aéc", "a\\c", "a\x00c"]),
        ("_", False, ["a", "ß", "K", "\u212a", "ſ", "É"]),
        ("__", False, ["ab", "ss"]),
        ("_%_%_", False, ["abc", "a%c", "a\nc", "aéc", "A_C", "a\\c", "a\x00c"]),
        ("a\\%c", False, ["a%c"]),
        ("a\\\\c", False, ["a\\c"]),
        ("\\a\\b", False, ["ab"]),
        ("%\\_%", False, ["A_C"]),
        ("a\x00%", False, ["a\x00c"]),
        ("[a]%", False, []),
        (".*", False, []),
        ("k", True, ["K", "\u212a"]),
        ("\u212a", True, ["K", "\u212a"]),
        ("S", True, ["ſ"]),
        ("ß", True, ["ß"]),
        ("ẞ", True, ["ß"]),
        ("é", True, ["É"]),
        ("aB%", True, ["ab", "abc"]),
        ("%\\_c", True, ["A_C"]),
        ("ABC", True, ["abc"]),
    ],
)
@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())],
    ids=str,
)
def test_matches(pattern: str, fold: bool, matches: list[str], kind: pa.DataType) -> None:
    plain = pa.array(ROWS, pa.string())
    array = plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
    bound = bind(Like(Column(("c",)), pattern, fold), pa.schema([("c", kind)]))
    expected = [None if row is None else row in matches for row in ROWS]
    assert outcome(bound, {("c",): array}, len(ROWS)).to_pylist() == expected


def test_folding_is_casefold_character_by_character() -> None:
    rng = random.Random(5)
    cased = [
        c for c in map(chr, [*range(0xD800), *range(0xE000, 0x1E944)]) if c.casefold() != c or c.lower() != c
    ]
    groups: dict[str, list[str]] = {}
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x1E944)]):
        groups.setdefault(character.casefold(), []).append(character)
    for character in rng.sample(cased, 60) + list("kKsSßẞİıΣσςΐ"):
        rows = groups[character.casefold()] + rng.sample(cased, 20)
        bound = bind(Like(Column(("c",)), character, True), pa.schema([("c", pa.string())]))
        expected = [row.casefold() == character.casefold() for row in rows]
        assert outcome(bound, {("c",): pa.array(rows)}, len(rows)).to_pylist() == expected, character


@pytest.mark.parametrize(
    ("pattern", "fold", "lower", "upper", "prefix"),
    [
        ("abc%", False, b"abc", b"abd", b"abc"),
        ("abc%x", False, b"abc", b"abd", None),
        ("abc_", False, b"abc", b"abd", None),
        ("%abc", False, b"", None, None),
        ("a\\%b%", False, b"a%b", b"a%c", b"a%b"),
        ("é%", False, b"\xc3\xa9", b"\xc3\xaa", "é".encode()),
        ("ÿ%", False, b"\xc3\xbf", b"\xc3\xc0", "ÿ".encode()),
        ("aB-1%", True, b"AB-1", b"ab-2", None),
        ("abkc%", True, b"AB", b"ac", None),
        ("é%", True, b"", None, None),
        ("_a", True, b"", None, None),
    ],
)
def test_byte_ranges(
    pattern: str, fold: bool, lower: bytes, upper: bytes | None, prefix: bytes | None
) -> None:
    compiled = compile_pattern(pattern, ignore_case=fold, position=-1)
    assert (compiled.lower, compiled.upper, compiled.prefix) == (lower, upper, prefix)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"a\x00", b"a\x01")],
    ids=repr,
)
def test_the_successor_of_a_prefix(prefix: bytes, expected: bytes | None) -> None:
    assert successor(prefix) == expected


@pytest.mark.parametrize("pattern", ["\\", "a\\\\\\", "%\\"])
def test_a_lone_backslash_is_refused(pattern: str) -> None:
    with pytest.raises(PredicateError, match="lone backslash") as caught:
        compile_pattern(pattern, ignore_case=False, position=3)
    assert caught.value.position == 3


def test_long_patterns_match() -> None:
    text = "ab" * 4_000
    array = pa.array([text, text + "c"])
    for pattern in ("%" + "_b" * 4_000, "a%" * 1_000 + "b", text):
        bound = bind(Like(Column(("c",)), pattern), pa.schema([("c", pa.string())]))
        assert outcome(bound, {("c",): array}, 2).to_pylist() == [True, False]


_LONG = [
    "_" * 10_000,
    "%" + "_" * 9_999,
    "ab_%" * 2_500,
    "%" + "é\u03b8" * 4_999 + "_",
    "\U00010400k" * 5_000,
]


@pytest.mark.parametrize("fold", [False, True], ids=["LIKE", "ILIKE"])
@pytest.mark.parametrize("pattern", _LONG, ids=range(len(_LONG)))
def test_patterns_are_matched_up_to_a_length_and_refused_beyond(pattern: str, fold: bool) -> None:
    schema = pa.schema([("c", pa.string())])
    text = pattern.replace("%", "")
    bound = bind(Like(Column(("c",)), pattern, fold), schema)
    assert outcome(bound, {("c",): pa.array([text, text[1:], None])}, 3).to_pylist() == [True, False, None]
    with pytest.raises(PredicateError) as caught:
        bind(Like(Column(("c",)), pattern + "_", fold, 7), schema)
    assert caught.value.position == 7
    assert caught.value.message == (
        f"the pattern {pattern[:40]!r}... has {len(pattern) + 1} characters, more than 10000"
    )


def test_texts_shorter_than_the_pattern_are_not_matched_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could take seconds: `_` behind `%` is slow."""
    seen: list[list[str | None]] = []
    match = kernels.match_substring_regex

    def noted(text: pa.Array, **options: Any) -> pa.Array:
        seen.append(text.to_pylist())
        return match(text, **options)

    monkeypatch.setattr(kernels, "match_substring_regex", noted)
    texts = ["a" * 70 + "k" * 30, "a" * 100, "a" * 99, "k", "", None, "é" * 50, "K" * 101, "\u212a" * 100]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        bound = bind(Like(Column(("c",)), "%" + "_" * 99 + "k", True), pa.schema([("c", kind)]))
        found = outcome(bound, {("c",): pa.array(texts, kind)}, len(texts))
        assert found.to_pylist() == [True, False, False, False, False, None, False, True, True]
    long = [texts[0], texts[1], "", "", "", None, texts[6], texts[7], texts[8]]
    assert seen == [long] * 3


@pytest.mark.parametrize("pattern", ["{}", "{}%", "%{}", "%{}%"])
def test_a_text_may_be_longer_where_no_expression_is_needed(pattern: str) -> None:
    text = "ab" * 200_000
    bound = bind(Like(Column(("c",)), pattern.format(text)), pa.schema([("c", pa.string())]))
    assert outcome(bound, {("c",): pa.array([text, text[1:]])}, 2).to_pylist() == [True, False]
    with pytest.raises(PredicateError, match="400000 characters|40000[12] characters"):
        bind(Like(Column(("c",)), pattern.format(text), True), pa.schema([("c", pa.string())]))
