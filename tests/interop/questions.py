"""Random predicates over the columns of `everything` that other engines see as accel does.

Left out is what TRAPS says that DuckDB sees otherwise: float32 against a literal, an integer against a double literal,
backslash escapes in LIKE.
"""

from __future__ import annotations

import datetime
import decimal
import random

from accel.predicate.expr import And, Column, Compare, Expr, InList, IsNull, Like, Literal, Not, Op, Or

__all__ = ["TYPES", "predicate"]

TYPES = ["i8", "i32", "i64", "u64", "f64", "b", "s", "cat", "d", "ts", "dec"]
_OPS_OF_BOOLS = (Op.EQ, Op.NE, Op.DISTINCT, Op.NOT_DISTINCT)


def literal(name: str, rng: random.Random) -> object:
    at = rng.randrange(-20, 1520)
    match name:
        case "i8":
            return rng.choice([0, 5, -128, 127, 200, -1])
        case "i32" | "i64":
            return rng.choice([at, at, at, 2**40, -5])
        case "u64":
            return 2**64 - 1 - max(at, 0) * 100 + rng.choice([0, 0, 1 if at > 0 else 0])
        case "f64":
            return rng.choice([at / 1000.0, 0.0, -0.0, 1e308, 0.1, at])
        case "b":
            return rng.random() < 0.5
        case "s":
            return rng.choice([f"key {max(at, 0):04d}", "", "key", "日本 ÿ", "zz", "it's"])
        case "cat":
            return f"cat {rng.randrange(11)}"
        case "d":
            return datetime.date(2020, 1, 1) + datetime.timedelta(days=at // 10)
        case "ts":
            return datetime.datetime(2021, 1, 1) + datetime.timedelta(seconds=at)
    return decimal.Decimal(at).scaleb(-2)


def atom(rng: random.Random) -> Expr:
    name = rng.choice(TYPES)
    column = Column(name, parts=(name,))
    choice = rng.randrange(10)
    if choice == 0:
        return IsNull(column)
    if choice <= 2:
        values = [literal(name, rng) for _ in range(rng.randrange(1, 5))]
        return InList(column, tuple([*values, None] if rng.random() < 0.2 else values))
    if name in ("s", "cat") and choice == 3:
        return Like(column, rng.choice(["key 01%", "%9", "%5_", "cat _", "", "%", "k_y 1%0"]))
    ops = [op for op in Op if name != "b" or op in _OPS_OF_BOOLS]
    return Compare(rng.choice(ops), column, Literal(literal(name, rng)))


def predicate(rng: random.Random, depth: int = 3) -> Expr:
    choice = rng.randrange(6) if depth else 0
    if choice <= 1:
        return atom(rng)
    if choice == 2:
        return Not(predicate(rng, depth - 1))
    operands = tuple(predicate(rng, depth - 1) for _ in range(rng.randrange(2, 4)))
    return And(operands) if choice <= 4 else Or(operands)
