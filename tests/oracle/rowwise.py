"""The second oracle: a predicate over a table, row by row, in the plainest Python.

Slow on purpose. Every value becomes a `Cell` (a family and a key that orders exactly), every
comparison is one of two cells. It shares no code with the evaluator that it judges.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    Ticks,
)

__all__ = ["evaluate"]

Answer = bool | None
DAY = 86_400 * 10**9
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
EPOCH = datetime.date(1970, 1, 1)

# Families that compare with each other share a word here.
ORDERS = {
    "int": "number",
    "decimal": "number",
    "float": "number",
    "bool": "bool",
    "text": "bytes",
    "binary": "bytes",
    "uuid": "bytes",
    "date": "instant",
    "timestamp": "instant",
    "time": "time",
    "duration": "duration",
}


@dataclass(frozen=True)
class Values:
    """One column: its family, and for each row None or a key; `raw` holds text for LIKE.

    `tick` is what 1 means against a duration, in nanoseconds.
    """

    family: str
    keys: list[Any]
    raw: list[Any]
    tick: int


def evaluate(expr: Expr, table: pa.Table) -> list[Answer]:
    """True, False or None (unknown) for each row of the table.

    Raises PredicateError for what cannot be compared, ColumnNotFoundError for what is not there.
    """
    rows = table.num_rows
    match expr:
        case Constant(value):
            return [value] * rows
        case Column():
            values = read(expr, table)
            if values.family == "null":
                return [None] * rows
            if values.family != "bool":
                raise PredicateError(f"{expr.name} is no boolean")
            return list(values.keys)
        case Not(operand):
            return [None if answer is None else not answer for answer in evaluate(operand, table)]
        case And(operands):
            return [
                conjunction(answers) for answers in zip(*(evaluate(o, table) for o in operands), strict=True)
            ]
        case Or(operands):
            return [
                disjunction(answers) for answers in zip(*(evaluate(o, table) for o in operands), strict=True)
            ]
        case IsNull(column):
            return [key is None for key in read(column, table).keys]
        case Like(column, pattern, ignore_case):
            return like_rows(read(column, table), pattern, ignore_case=ignore_case)
        case InList(column, values):
            return in_rows(read(column, table), list(values))
        case InArray(column, array):
            return in_rows(read(column, table), [literal_of(scalar) for scalar in array])
        case Compare():
            return compare_rows(expr, table)
    raise TypeError(expr)


def conjunction(answers: tuple[Answer, ...]) -> Answer:
    if False in answers:
        return False
    return None if None in answers else True


def disjunction(answers: tuple[Answer, ...]) -> Answer:
    if True in answers:
        return True
    return None if None in answers else False


# Columns.


def read(column: Column, table: pa.Table) -> Values:
    array = find(column, table)
    if pa.types.is_run_end_encoded(array.type):
        chunks = [pc.run_end_decode(chunk) for chunk in array.chunks]
        array = pa.chunked_array(chunks, array.type.value_type)
    family = family_of(array.type)
    scalars = [unwrap(scalar) for scalar in array]
    keys = [None if scalar is None else key_of_scalar(family, scalar) for scalar in scalars]
    raw = [None if scalar is None or family != "text" else raw_bytes(scalar).decode() for scalar in scalars]
    return Values(family, keys, raw, UNITS[array.type.unit] if family == "duration" else 0)


def find(column: Column, table: pa.Table) -> pa.ChunkedArray:
    """The column or field of these names, of which the first `head` may also be one with dots in it."""
    readings = [(".".join(column.path[:cut]), *column.path[cut:]) for cut in range(1, column.head + 1)]
    for reading in reversed(readings) if column.whole_first else readings:
        found = walk(reading, table)
        if found is not None:
            return found
    raise ColumnNotFoundError(f"no column {column.name}")


def walk(path: tuple[str, ...], table: pa.Table) -> pa.ChunkedArray | None:
    """What a path leads to through structs, if to anything."""
    if table.schema.names.count(path[0]) != 1:
        return None
    array = table.column(path[0])
    for part in path[1:]:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(part) < 0:
            return None
        index = array.type.get_field_index(part)
        kind = array.type.field(index).type
        # flatten() applies the struct's own nulls to its fields.
        array = pa.chunked_array([chunk.flatten()[index] for chunk in array.chunks], kind)
    return array


def family_of(kind: pa.DataType) -> str:
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return "uuid"
        return "bool" if kind.extension_name == "arrow.bool8" else family_of(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return family_of(kind.value_type)
    for family, test in FAMILY_TESTS.items():
        if test(kind):
            return family
    return "opaque"


FAMILY_TESTS: dict[str, Callable[[pa.DataType], bool]] = {
    "null": pa.types.is_null,
    "bool": pa.types.is_boolean,
    "int": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
    "binary": lambda t: (
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_binary_view(t)
        or pa.types.is_fixed_size_binary(t)
    ),
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "timestamp": pa.types.is_timestamp,
    "duration": pa.types.is_duration,
}


def unwrap(scalar: pa.Scalar) -> pa.Scalar | None:
    """The scalar below dictionaries and extensions; None for a null at any level."""
    while scalar is not None and scalar.is_valid:
        if not isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar):
            return scalar
        scalar = scalar.value
    return None


def raw_bytes(scalar: pa.Scalar) -> bytes:
    return scalar.as_buffer().to_pybytes()


def key_of_scalar(family: str, scalar: pa.Scalar) -> Any:
    """What orders as the value does, exactly."""
    kind = scalar.type
    match family:
        case "bool":
            return bool(scalar.as_py())
        case "int" | "decimal":
            return number_key(scalar.as_py())
        case "float":
            return number_key(float(scalar.as_py()))  # a float16 or float32 widens to a double exactly
        case "text" | "binary" | "uuid":
            return raw_bytes(scalar)
        case "date":
            return scalar.value * (DAY if pa.types.is_date32(kind) else UNITS["ms"])
        case "time" | "timestamp" | "duration":
            return scalar.value * UNITS[kind.unit]
    return "something"  # nested: only whether it is there counts


def number_key(value: float | decimal.Decimal) -> tuple[int, fractions.Fraction]:
    """Minus infinity, the numbers by exact value (both zeros alike), infinity, NaN."""
    if isinstance(value, float) and math.isnan(value):
        return 3, fractions.Fraction(0)
    if isinstance(value, float) and math.isinf(value):
        return (2 if value > 0 else 0), fractions.Fraction(0)
    return 1, fractions.Fraction(value)


# Literals.


def key_of_literal(value: Any, family: str, tick: int) -> Any:
    """A literal's key against a column of this family; PredicateError where they do not compare."""
    refused = PredicateError(f"{value!r} does not compare with a column of {family}")
    match value:
        case bool():
            if family != "bool":
                raise refused
            return value
        case int() if family == "duration":
            return value * tick  # no literal is a duration: a whole number counts the column's unit
        case int() | float() | decimal.Decimal():
            if ORDERS.get(family) != "number":
                raise refused
            return number_key(to_double(value) if family == "float" else value)
        case str():
            return key_of_text(value, family, refused)
        case bytes():
            if family not in ("text", "binary", "uuid"):
                raise refused
            return value
        case ("duration", nanos):
            wanted, key = "duration", nanos
        case Ticks(kind="time", nanos=nanos):
            wanted, key = "time", nanos
        case datetime.time():
            wanted, key = "time", clock_nanos(value)
        case Ticks(nanos=nanos):
            wanted, key = "instant", nanos
        case datetime.datetime():
            wanted, key = "instant", datetime_nanos(value)
        case datetime.date():
            wanted, key = "instant", (value - EPOCH).days * DAY
        case _:
            raise refused
    if ORDERS.get(family) != wanted:
        raise refused
    return key


def to_double(value: float | decimal.Decimal) -> float:
    try:
        return float(value)  # correctly rounded, half to even
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def clock_nanos(value: datetime.time | datetime.datetime) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.microsecond * 1000


def datetime_nanos(value: datetime.datetime) -> int:
    """A datetime without a zone stands for UTC."""
    nanos = (value.date() - EPOCH).days * DAY + clock_nanos(value)
    offset = value.utcoffset()
    return nanos if offset is None else nanos - offset // datetime.timedelta(microseconds=1) * 1000


def key_of_text(text: str, family: str, refused: PredicateError) -> Any:
    if family in ("text", "binary"):
        return text.encode()
    try:
        if family == "uuid":
            return uuid.UUID(text).bytes
        if family == "time":
            return text_clock(text)
        if family in ("date", "timestamp"):
            return text_instant(text)
    except ValueError:
        raise refused from None
    raise refused


def text_clock(text: str) -> int:
    """`HH:MM[:SS[.fraction]]` to nanoseconds."""
    match = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", text, re.ASCII)
    if match is None:
        raise ValueError(text)
    clock = datetime.time(int(match[1]), int(match[2]), int(match[3] or 0))
    return clock_nanos(clock) + int((match[4] or "").ljust(9, "0"))


def text_instant(text: str) -> int:
    """A date, or a date, a time and perhaps a zone, to nanoseconds in UTC."""
    match = re.fullmatch(
        r"([\d-]{10})(?:[ Tt]([\d:.]+)(?: ?(Z|z|UTC|[+-]\d\d(?::?\d\d)?))?)?", text, re.ASCII
    )
    if match is None:
        raise ValueError(text)
    year, month, day = match[1].split("-")
    nanos = (datetime.date(int(year), int(month), int(day)) - EPOCH).days * DAY
    nanos += text_clock(match[2]) if match[2] else 0
    if match[3] and match[3][0] in "+-":
        digits = match[3][1:].replace(":", "").ljust(4, "0")
        offset = (int(digits[:2]) * 60 + int(digits[2:])) * 60 * 10**9
        nanos -= -offset if match[3][0] == "-" else offset
    return nanos


def literal_of(scalar: pa.Scalar) -> Any:
    """One value of the array of an IN, as a literal."""
    found = unwrap(scalar)
    if found is None:
        return None
    family, kind = family_of(found.type), found.type
    match family:
        case "text":
            return raw_bytes(found).decode()
        case "binary" | "uuid":
            return raw_bytes(found)
        case "float":
            return float(found.as_py())
        case "date":
            # Its midnight: datetime.date ends at the year 9999, a column does not.
            return Ticks("timestamp", found.value * (DAY if pa.types.is_date32(kind) else UNITS["ms"]))
        case "timestamp":
            return Ticks("timestamp", found.value * UNITS[kind.unit], kind.tz is not None)
        case "time":
            return Ticks("time", found.value * UNITS[kind.unit])
        case "duration":
            return "duration", found.value * UNITS[kind.unit]
        case "bool" | "int" | "decimal":
            return found.as_py()
    raise PredicateError(f"{kind} has no literals")


# Conditions.


def compare_rows(node: Compare, table: pa.Table) -> list[Answer]:
    left, right = node.left, node.right
    if isinstance(left, Column) and isinstance(right, Column):
        a, b = read(left, table), read(right, table)
        if not comparable(a.family, b.family):
            raise PredicateError(f"{left.name} ({a.family}) does not compare with {right.name} ({b.family})")
        pairs: Iterator[tuple[Any, Any]] = zip(a.keys, b.keys, strict=True)
    elif isinstance(left, Column) and isinstance(right, Literal):
        a = read(left, table)
        key = literal_key(right.value, a)
        pairs = ((value, key) for value in a.keys)
    elif isinstance(left, Literal) and isinstance(right, Column):
        b = read(right, table)
        key = literal_key(left.value, b)
        pairs = ((key, value) for value in b.keys)
    else:
        raise PredicateError("a comparison without a column")
    return [compare(node.op, x, y) for x, y in pairs]


def comparable(a: str, b: str) -> bool:
    if "opaque" in (a, b) or {a, b} == {"text", "uuid"}:
        return False
    return "null" in (a, b) or ORDERS[a] == ORDERS[b]


def literal_key(value: Any, column: Values) -> Any:
    if column.family == "opaque":
        raise PredicateError("a nested column does not compare")  # not even with null
    if value is None:
        return None
    return "not null" if column.family == "null" else key_of_literal(value, column.family, column.tick)


def compare(op: Op, x: Any, y: Any) -> Answer:
    if op is Op.DISTINCT:
        return x != y
    if op is Op.NOT_DISTINCT:
        return bool(x == y)
    if x is None or y is None:
        return None
    answers = {Op.EQ: x == y, Op.NE: x != y, Op.LT: x < y, Op.LE: x <= y, Op.GT: x > y, Op.GE: x >= y}
    return bool(answers[op])


def in_rows(column: Values, literals: list[Any]) -> list[Answer]:
    """`x IN (a, b)` is `x = a OR x = b`; of no values it is FALSE."""
    literal_key(None, column)
    keys = [literal_key(value, column) for value in literals]
    return [disjunction(tuple(compare(Op.EQ, x, key) for key in keys)) for x in column.keys]


def like_rows(column: Values, pattern: str, *, ignore_case: bool) -> list[Answer]:
    if column.family not in ("text", "null"):
        raise PredicateError("LIKE is for text")
    tokens = pattern_tokens(pattern)
    return [None if text is None else like(text, tokens, ignore_case=ignore_case) for text in column.raw]


def pattern_tokens(pattern: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    rest = iter(pattern)
    for char in rest:
        if char == "\\":
            escaped = next(rest, None)
            if escaped is None:
                raise PredicateError("the pattern ends within an escape")
            tokens.append(("is", escaped))
        elif char in "%_":
            tokens.append(({"%": "run", "_": "any"}[char], ""))
        else:
            tokens.append(("is", char))
    return tokens


def like(text: str, tokens: list[tuple[str, str]], *, ignore_case: bool) -> bool:
    """Keep the set of places in the text that the tokens so far can have reached."""
    reached = {0}
    for kind, wanted in tokens:
        if kind == "run":
            reached = set(range(min(reached), len(text) + 1)) if reached else reached
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(text) and (kind == "any" or same(text[place], wanted, ignore_case=ignore_case))
            }
    return len(text) in reached


def same(a: str, b: str, *, ignore_case: bool) -> bool:
    return a == b or (ignore_case and simple_fold(a) == simple_fold(b))


def simple_fold(char: str) -> str:
    """Unicode's simple case folding, which never makes two characters of one."""
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1:
            return folded
    return char
