"""What a zone map of several columns lists: columns, expressions of them, and tuples, as text.

`a`, `b.c`, `"any name"`, `lower(s)`, `year(t)`, `(a, b)`; a list has commas between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from accel.indexes.expressions import Expression

__all__ = ["Member", "inputs_of", "parse_member", "split_members"]

_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([(),])|([^\s"(),]+))\s*')
_CALL = re.compile(r"\s*([a-z]*)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Member:
    """One of the things that a zone map is of."""

    of: Expression
    columns: tuple[str | tuple[str, ...], ...]
    """One, by its name or dotted path, or by the names of its path; more for a tuple of them, which is of their values."""

    def __str__(self) -> str:
        inner = ", ".join(_quoted(each if isinstance(each, str) else ".".join(each)) for each in self.columns)
        if len(self.columns) > 1:
            return f"({inner})"
        return inner if self.of is Expression.VALUE else f"{self.of}({inner})"


def split_members(text: str) -> tuple[str, ...]:
    """The members of a list, as texts.

    Raises
    ------
    ValueError
        Parentheses or quotes do not match.
    """
    found, depth, begun, at = [], 0, 0, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _unreadable(text)
        at = token.end()
        depth += {"(": 1, ")": -1}.get(token[2] or "", 0)
        if depth < 0:
            raise _unreadable(text)
        if token[2] == "," and not depth:
            found.append(text[begun : token.start(2)].strip())
            begun = at
    found.append(text[begun:].strip())
    if depth or not all(found):
        raise _unreadable(text)
    return tuple(found)


def parse_member(text: str, *, default: Expression = Expression.VALUE) -> Member:
    """Read one member.

    Parameters
    ----------
    text : str
        As above.
    default : Expression
        What a bare column means.

    Raises
    ------
    ValueError
        It is none, or of an expression that there is not.
    """
    call = _CALL.fullmatch(text)
    if call is None or text.lstrip().startswith('"'):
        return Member(default, (_name(text),))
    columns = tuple(_name(part) for part in split_members(call[2]))
    if not call[1]:
        if len(columns) < 2 or len(set(columns)) < len(columns):
            raise ValueError(f"a tuple is of two columns or more, not {text!r}")
        return Member(Expression.VALUE, columns)
    known = [str(each) for each in Expression]
    if call[1] not in known or len(columns) != 1:
        raise ValueError(f"an index is of one of {', '.join(known)} of a column, not of {text!r}")
    return Member(Expression(call[1]), columns)


def inputs_of(members: Iterable[Member]) -> tuple[str | tuple[str, ...], ...]:
    """The columns of all members, each once, as they come."""
    return tuple(dict.fromkeys(column for member in members for column in member.columns))


def _name(text: str) -> str:
    token = _TOKEN.fullmatch(text)
    if token is None or token[2] is not None:
        raise _unreadable(text)
    return token[3] if token[1] is None else token[1].replace('""', '"')


def _quoted(name: str) -> str:
    token = _TOKEN.fullmatch(name)
    return name if token is not None and token[3] == name else '"' + name.replace('"', '""') + '"'


def _unreadable(text: str) -> ValueError:
    return ValueError(f"{text!r} is no list of columns, expressions like lower(s), and tuples like (a, b)")
