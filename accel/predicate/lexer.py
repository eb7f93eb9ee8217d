"""Predicate text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from accel.errors import PredicateError

__all__ = ["MAX_LENGTH", "Token", "tokenize"]

MAX_LENGTH = 1 << 24
"""Longest predicate text, in characters."""

# A name is letters, digits and what is beyond ASCII: said by what it is not, which compiles fifty times faster.
# Possessive, so that a literal that is not closed does not match as a shorter one.
_TOKEN = re.compile(
    r"""[ \t\r\n\f\v]*+(?:
      (?P<name>[^\x00-@\[-^`{-\x7f][^\x00-\#%-/:-@\[-^`{-\x7f]*+)
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<text>'[^']*+(?:''[^']*+)*+')
    | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    | (?P<op><>|<=|>=|<|>|!=|==|=)
    | (?P<mark>--|/\*|[(),.+-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_GAP = " \t\r\n\f\v"
_LETTERS = frozenset("LMN")

_HINTS = {
    "`": 'names are quoted with double quotes: "a name"',
    "[": 'a field of a struct is written a.b; a list stands in parentheses, as in IN (1, 2); names are quoted with double quotes: "a name"',
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or <> for not equal",
    "~": "write NOT, or LIKE",
    ":": "casts and parameters are not supported; write a typed literal such as DATE '2013-01-31'",
    ";": "one condition, with nothing after it",
    "%": "neither arithmetic nor parameters are supported; LIKE takes 'a%' in quotes",
    "*": "arithmetic is not supported",
    "/": "arithmetic is not supported",
    "?": "parameters are not supported; build the condition with accel.col",
    "$": "parameters are not supported; build the condition with accel.col",
    "@": "parameters are not supported; build the condition with accel.col",
    "{": "a list stands in parentheses, as in IN (1, 2)",
}


class Token(NamedTuple):
    """One token of a predicate.

    `kind` is "name", "quoted" (a name in double quotes), "number", "text", "op", "mark" or "end".
    `value` is the text that it stands for, with the quoting taken off. `word` is what the grammar
    compares: an unquoted name in upper case, the characters of an operator or mark, else empty.
    """

    kind: str
    value: str
    position: int
    word: str


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, the last of kind "end"; a `PredicateError` points at what is none."""
    if len(text) > MAX_LENGTH:
        raise PredicateError(
            f"the predicate has {len(text):,} characters, more than {MAX_LENGTH:,}",
            hint="pass long key lists as accel.col(name).isin(array)",
        )
    if not text.isascii():
        _check_encodable(text)
    out: list[Token] = []
    match = _TOKEN.match
    position = 0
    while True:
        found = match(text, position)
        if found is None:
            raise _fault(text, position)
        kind = found.lastgroup or ""
        value = found[kind]
        position = found.end()
        start = position - len(value)
        if kind == "name":
            if value.isascii():
                out.append(Token(kind, value, start, value.upper()))
            else:
                _check_name(text, value, start)
                out.append(Token(kind, value, start, ""))
        elif kind == "op":
            out.append(Token(kind, value, start, value))
        elif kind == "text":
            out.append(Token(kind, value[1:-1].replace("''", "'"), start, ""))
        elif kind == "number":
            _check_number_end(text, position)
            out.append(Token(kind, value, start, ""))
        elif kind == "mark":
            if len(value) > 1:
                raise PredicateError("comments are not supported", text=text, position=start)
            out.append(Token(kind, value, start, value))
        elif kind == "quoted":
            out.append(Token(kind, value[1:-1].replace('""', '"'), start, ""))
        else:
            out.append(Token("end", "", start, ""))
            return out


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # What is shown must be printable itself: "?" for each surrogate, so places stay.
        shown = text.encode("utf-8", "replace").decode()
        raise PredicateError("a lone surrogate is no character", text=shown, position=error.start) from None


def _check_name(text: str, name: str, start: int) -> None:
    import unicodedata

    for index, char in enumerate(name):
        category = unicodedata.category(char)
        if category[0] not in _LETTERS and char not in "_$" and category != "Pc":
            raise PredicateError(
                f"unexpected character {char!r} (U+{ord(char):04X})",
                text=text,
                position=start + index,
                hint="write a name with such characters in straight double quotes, text in straight single ones",
            )


def _check_number_end(text: str, end: int) -> None:
    if end < len(text) and (text[end].isalnum() or text[end] in "_$."):
        raise PredicateError(f"unexpected {text[end]!r} after a number", text=text, position=end)


def _fault(text: str, position: int) -> PredicateError:
    position = len(text) - len(text[position:].lstrip(_GAP))
    char = text[position]
    if char == "'":
        return PredicateError(
            "this text is not closed",
            text=text,
            position=position,
            hint="a quote inside text is doubled: 'it''s'",
        )
    if char == '"':
        return PredicateError("this quoted name is not closed", text=text, position=position)
    return PredicateError(
        f"unexpected character {char!r}", text=text, position=position, hint=_HINTS.get(char)
    )
