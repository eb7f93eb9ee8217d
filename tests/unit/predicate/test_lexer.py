"""Tokens: what each character run becomes, and where the faults are."""

from __future__ import annotations

import pytest

from accel.errors import PredicateError
from accel.predicate import parser as lexer
from accel.predicate.parser import Token, tokenize


def short(text: str) -> list[tuple[str, str, int]]:
    return [(token.kind, token.value, token.position) for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [("end", "", 0)], id="empty"),
        pytest.param(" \t\r\n\f\v", [("end", "", 6)], id="blank"),
        pytest.param("a", [("name", "a", 0), ("end", "", 1)], id="name"),
        pytest.param("_a$1", [("name", "_a$1", 0), ("end", "", 4)], id="name-marks"),
        pytest.param("größe名", [("name", "größe名", 0), ("end", "", 6)], id="name-letters"),
        pytest.param("कि", [("name", "कि", 0), ("end", "", 2)], id="name-combining-mark"),
        pytest.param('"a ""b"""', [("quoted", 'a "b"', 0), ("end", "", 9)], id="quoted"),
        pytest.param('""', [("quoted", "", 0), ("end", "", 2)], id="quoted-empty"),
        pytest.param("'it''s'", [("text", "it's", 0), ("end", "", 7)], id="text"),
        pytest.param("''", [("text", "", 0), ("end", "", 2)], id="text-empty"),
        pytest.param("'a\\n--\n'", [("text", "a\\n--\n", 0), ("end", "", 8)], id="text-raw"),
        pytest.param("12", [("number", "12", 0), ("end", "", 2)], id="int"),
        pytest.param("1.", [("number", "1.", 0), ("end", "", 2)], id="point-last"),
        pytest.param(".5", [("number", ".5", 0), ("end", "", 2)], id="point-first"),
        pytest.param("1.5E-3", [("number", "1.5E-3", 0), ("end", "", 6)], id="exponent"),
        pytest.param(
            "a>=-1",
            [("name", "a", 0), ("op", ">=", 1), ("mark", "-", 3), ("number", "1", 4), ("end", "", 5)],
            id="glued",
        ),
        pytest.param(
            "a<>b!=c==d",
            [
                ("name", "a", 0),
                ("op", "<>", 1),
                ("name", "b", 3),
                ("op", "!=", 4),
                ("name", "c", 6),
                ("op", "==", 7),
                ("name", "d", 9),
                ("end", "", 10),
            ],
            id="operators",
        ),
        pytest.param(
            'a."b"',
            [("name", "a", 0), ("mark", ".", 1), ("quoted", "b", 2), ("end", "", 5)],
            id="path",
        ),
    ],
)
def test_tokens(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert short(text) == expected


def test_only_plain_unquoted_names_are_words() -> None:
    # U+017F and U+0131 become S and I in upper case, but `iſ` is no IS and `lıke` no LIKE.
    assert [token.word for token in tokenize("is \"IS\" 'IS' iſ lıke")] == ["IS", "", "", "", "", ""]
    assert tokenize("<=")[0] == Token("op", "<=", 0, "<=")


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        pytest.param("a = 'x", 4, "this text is not closed", id="open-text"),
        pytest.param("a = 'x''", 4, "this text is not closed", id="open-text-after-pair"),
        pytest.param('"a = 1', 0, "this quoted name is not closed", id="open-name"),
        pytest.param("a = 5x", 5, "unexpected 'x' after a number", id="number-then-letter"),
        pytest.param("a = 1.2.3", 7, "unexpected '.' after a number", id="two-points"),
        pytest.param("a = 1_000", 5, "unexpected '_' after a number", id="underscore"),
        pytest.param("a = 1e", 5, "unexpected 'e' after a number", id="bare-exponent"),
        pytest.param("a = 1 -- c", 6, "comments are not supported", id="dash-comment"),
        pytest.param("a = /* c */ 1", 4, "comments are not supported", id="star-comment"),
        pytest.param("a = `b`", 4, "unexpected character '`'", id="backtick"),
        pytest.param("a\x00", 1, "unexpected character '\\x00'", id="nul"),
        pytest.param("a = “b”", 4, "unexpected character '“' (U+201C)", id="smart-quotes"),
        pytest.param("a\u00a0= 1", 1, "unexpected character '\\xa0' (U+00A0)", id="no-break-space"),
        pytest.param("a = '\ud800'", 5, "a lone surrogate is no character", id="surrogate"),
    ],
)
def test_faults_point_at_the_character(text: str, position: int, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        tokenize(text)
    assert (caught.value.position, caught.value.message, caught.value.text is not None) == (
        position,
        message,
        True,
    )
    assert str(caught.value).endswith("^")


def test_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MAX_LENGTH", 5)
    assert short("a = 1")[-1] == ("end", "", 5)
    with pytest.raises(PredicateError, match="6 characters, more than 5"):
        tokenize("a = 12")
