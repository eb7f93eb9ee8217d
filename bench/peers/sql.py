"""A query of the benchmark as SQL, for the systems that speak it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from bench.queries import Query

__all__ = ["condition", "literal", "name", "select", "where"]


def select(query: Query, table: str, *, quote: str = '"') -> str:
    """The whole statement over something that stands after FROM."""
    if query.count:
        wanted = "count(*)"
    elif query.columns is None:
        wanted = "*"
    else:
        wanted = ", ".join(name(column, quote=quote) for column in query.columns)
    asked = where(query, quote=quote)
    return f"SELECT {wanted} FROM {table}" + (f" WHERE {asked}" if asked else "")


def where(query: Query, *, quote: str = '"') -> str:
    """The conditions, joined by AND; empty where there are none."""
    return " AND ".join(condition(*each, quote=quote) for each in query.where)


def condition(column: str, op: str, value: Any, *, quote: str = '"') -> str:
    """One condition. A prefix is a LIKE, which every one of the systems prunes by."""
    left = name(column, quote=quote)
    if op == "in":
        return f"{left} IN ({', '.join(map(literal, value))})"
    if op == "prefix":
        if set("%_\\") & set(value):
            # The systems differ in how they escape.
            raise ValueError(f"no prefix of the benchmark holds a wildcard: {value!r}")
        return f"{left} LIKE {literal(value + '%')}"
    return f"{left} {op} {literal(value)}"


def name(column: str, *, quote: str = '"') -> str:
    """A quoted name: columns keep their case."""
    return quote + column.replace(quote, quote + quote) + quote


def literal(value: Any) -> str:
    """A typed literal. A float is written in digits, so that it compares exactly with a decimal."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        moment = value.isoformat(sep=" ")
        return f"TIMESTAMP '{moment}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return repr(value)
