from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.indexes.expressions import Expression, Member, inputs_of, parse_member, split_members

V, L, Y = Expression.VALUE, Expression.LOWER, Expression.YEAR


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        (" a , b.c ", ("a", "b.c")),
        ("lower(s), (a, b), c", ("lower(s)", "(a, b)", "c")),
        ('"a, b", c', ('"a, b"', "c")),
        ('"say ""a, b"""', ('"say ""a, b"""',)),
    ],
)
def test_a_list(text: str, parts: tuple[str, ...]) -> None:
    assert split_members(text) == parts


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("a", Member(V, ("a",))),
        ("b.c", Member(V, ("b.c",))),
        ("größe-2", Member(V, ("größe-2",))),
        ('"a (b), ""c"""', Member(V, ('a (b), "c"',))),
        ("lower(s)", Member(L, ("s",))),
        (" year ( t.at ) ", Member(Y, ("t.at",))),
        ("value(s)", Member(V, ("s",))),
        ('lower("odd name")', Member(L, ("odd name",))),
        ("(a, b.c)", Member(V, ("a", "b.c"))),
        ('("x, y", z)', Member(V, ("x, y", "z"))),
    ],
)
def test_a_member(text: str, member: Member) -> None:
    assert parse_member(text) == member
    assert parse_member(str(member)) == member


def test_what_a_bare_column_means() -> None:
    assert parse_member("s", default=L) == Member(L, ("s",))
    assert parse_member("value(s)", default=L) == Member(V, ("s",))


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "a,,b", "(a", "a)", 'a"b', '"a', "(a)", "(a, a)", "()", "lower(a, b)", "upper(a)", "lower()",
             "lower((a, b))", "a b"]
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no list of|a tuple is of|an index is of"):
        for part in split_members(text):
            parse_member(part)


@given(
    st.lists(st.text(min_size=1).filter(lambda name: "\0" not in name), min_size=2, max_size=4, unique=True)
)
def test_any_names_there_and_back(names: list[str]) -> None:
    members = (Member(V, tuple(names)), Member(L, (names[0],)), Member(V, (names[1],)))
    text = ", ".join(map(str, members))
    assert tuple(parse_member(part) for part in split_members(text)) == members
    assert inputs_of(members) == tuple(names)
