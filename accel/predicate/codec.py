"""Predicates as bytes, in which form plans carry them to other processes.

Layout, little-endian: magic `AXPR`, u8 version, u32 checksum, u32 length of the JSON, the JSON (UTF-8), then
the arrays of large key lists, each a u64 length and an Arrow IPC stream of one batch of one column. The
checksum is the CRC-32 of everything after the length, with the length as its start value, so it covers both.
The JSON is a flat list of nodes in postfix order, so nesting cannot exhaust a parser's stack. Unlike a
pickle, the bytes cannot run code when they are read.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
import zlib
from typing import Any

from accel.errors import PredicateError
from accel.predicate.expr import (
    MAX_DEPTH,
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
    Opaque,
    Operand,
    Or,
    Ticks,
    Value,
    check_pattern,
    depth_of,
)
from accel.predicate.literal import (
    date_from_text,
    literal_value,
    number_from_text,
    text_from_moment,
    time_from_text,
    timestamp_from_text,
)

__all__ = ["decode", "encode"]

_MAGIC = b"AXPR"
_VERSION = 2
_HEADER = struct.Struct("<4sBII")
_LENGTH = struct.Struct("<Q")


def encode(expr: Expr) -> bytes:
    """Encode a predicate, without the positions in its text."""
    arrays: list[Any] = []
    try:
        nodes = [_node_json(node, arrays) for node in _postfix(expr)]
        text = json.dumps(nodes, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise error if isinstance(error, PredicateError) else PredicateError(str(error)) from None
    pieces = [text]
    for array in arrays:
        data = _ipc(array)
        pieces += [_LENGTH.pack(len(data)), data]
    body = b"".join(pieces)
    checksum = zlib.crc32(body, len(text))
    return _HEADER.pack(_MAGIC, _VERSION, checksum, len(text)) + body


def decode(data: bytes) -> Expr:
    """Decode a predicate that `encode` wrote.

    Raises PredicateError where the bytes are damaged, of another version, or describe no predicate.
    """
    view = memoryview(data)
    if len(view) < _HEADER.size or bytes(view[:4]) != _MAGIC:
        raise PredicateError("these bytes hold no predicate")
    _, version, checksum, length = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise PredicateError(
            f"the predicate is of version {version}, this accel reads {_VERSION}",
            hint="plan and read with the same version of accel",
        )
    body = view[_HEADER.size :]
    if length > len(body) or zlib.crc32(body, length) != checksum:
        raise PredicateError("the bytes of the predicate are damaged")
    try:
        nodes = json.loads(bytes(body[:length]), parse_float=_refused, parse_constant=_refused)
        return _tree(nodes, _arrays(body[length:]))
    except PredicateError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise PredicateError(f"the bytes of the predicate are not understood: {error}") from None


def _refused(text: str) -> None:
    raise ValueError(f"{text} is not written so")


def _postfix(expr: Expr) -> list[Expr]:
    """Return all nodes, each after its operands."""
    found: list[Expr] = []
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        found.append(node)
        if isinstance(node, Not):
            stack.append(node.operand)
        elif isinstance(node, And | Or):
            stack += node.operands
    found.reverse()
    return found


def _node_json(node: Expr, arrays: list[Any]) -> list[Any]:
    match node:
        case Column():
            return ["column", _column_json(node)]
        case Compare(op, left, right):
            return ["compare", op.value, _operand_json(left), _operand_json(right)]
        case InList(column, values):
            return ["in", _column_json(column), [_value_json(value) for value in values]]
        case InArray(column, array):
            arrays.append(array)
            return ["in_array", _column_json(column), len(arrays) - 1]
        case Like(column, pattern, ignore_case):
            return ["like", _column_json(column), pattern, ignore_case]
        case IsNull(column):
            return ["null", _column_json(column)]
        case Opaque(expression):
            return ["arrow", base64.b64encode(expression).decode()]
        case Constant(value):
            return ["constant", value]
        case Not():
            return ["not"]
        case And(operands):
            return ["and", len(operands)]
        case Or(operands):
            return ["or", len(operands)]
        case _:
            raise PredicateError(f"a {type(node).__name__} is no part of a predicate")


def _column_json(column: Column) -> list[Any]:
    return [list(column.path), column.head, column.whole_first]


def _operand_json(operand: Operand) -> Any:
    return ["c", *_column_json(operand)] if isinstance(operand, Column) else ["l", _value_json(operand.value)]


def _value_json(value: Value) -> Any:
    """Return null, booleans, integers and strings as JSON has them, and other values as [tag, text]."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return ["double", value.hex()]
        case bytes():
            return ["bytes", value.hex()]
        case decimal.Decimal():
            return ["decimal", str(value)]
        case datetime.datetime():
            return ["timestamp", text_from_moment(value)]
        case datetime.date():
            return ["date", text_from_moment(value)]
        case datetime.time():
            return ["time", text_from_moment(value)]
        case Ticks(kind, nanos, utc):
            return ["ticks", kind, nanos, utc]
    raise PredicateError(f"a {type(value).__name__} is no literal")


def _tree(nodes: Any, arrays: list[Any]) -> Expr:
    stack: list[Expr] = []
    for node in _typed(nodes, list):
        kind, *fields = node
        if kind == "not":
            stack.append(Not(stack.pop()))
        elif kind in ("and", "or"):
            count = _typed(fields[0], int)
            if not 2 <= count <= len(stack):
                raise ValueError(f"{kind} of {count} operands")
            operands = tuple(stack[-count:])
            del stack[-count:]
            stack.append(And(operands) if kind == "and" else Or(operands))
        else:
            stack.append(_leaf(kind, fields, arrays))
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} predicates where one was expected")
    if depth_of(stack[0]) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return stack[0]


def _leaf(kind: Any, fields: list[Any], arrays: list[Any]) -> Expr:
    if kind == "constant":
        return Constant(None if fields[0] is None else _typed(fields[0], bool))
    if kind == "arrow":
        from accel.predicate.arrow_expression import opaque_of

        return opaque_of(base64.b64decode(_text(fields[0]), validate=True))
    if kind == "compare":
        op, left, right = fields
        sides = _operand(left), _operand(right)
        if isinstance(sides[0], Literal) and isinstance(sides[1], Literal):
            raise ValueError("a comparison without a column")
        return Compare(Op(op), *sides)
    column = _column(fields[0])
    if kind == "column":
        return column
    if kind == "null":
        return IsNull(column)
    if kind == "in":
        return InList(column, tuple(_value(value) for value in _typed(fields[1], list)))
    if kind == "in_array":
        index = _typed(fields[1], int)
        if index < 0:
            raise ValueError("a negative array number")
        return InArray(column, arrays[index])
    if kind == "like":
        pattern = _text(fields[1])
        check_pattern(pattern)
        return Like(column, pattern, _typed(fields[2], bool))
    raise ValueError(f"{kind!r} is no node")


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{kind.__name__} expected, {type(value).__name__} found")
    return value


def _text(value: Any) -> str:
    text: str = _typed(value, str)
    text.encode()
    return text


def _column(fields: Any) -> Column:
    path, head, whole_first = fields
    names = tuple(_text(name) for name in _typed(path, list))
    if not 1 <= _typed(head, int) <= len(names):
        raise ValueError(f"{head} of {len(names)} names")
    return Column(names, head, _typed(whole_first, bool))


def _operand(fields: Any) -> Operand:
    tag, *rest = fields
    if tag == "c":
        return _column(rest)
    if tag == "l":
        return Literal(_value(rest[0]))
    raise ValueError(f"{tag!r} is no operand")


def _value(item: Any) -> Value:
    if not isinstance(item, list):
        return literal_value(item)
    tag, *fields = item
    if tag == "ticks":
        kind, nanos, utc = fields
        return Ticks(_typed(kind, str), _typed(nanos, int), _typed(utc, bool))
    (text,) = fields
    value: Value = _READERS[tag](_text(text))
    return value


def _decimal(text: str) -> decimal.Decimal:
    number = number_from_text(text.removeprefix("-"))
    value = decimal.Decimal(number) if isinstance(number, int) else number
    return value.copy_negate() if text.startswith("-") else value


_READERS: dict[str, Any] = {
    "double": float.fromhex,
    "bytes": bytes.fromhex,
    "decimal": _decimal,
    "timestamp": timestamp_from_text,
    "date": date_from_text,
    "time": time_from_text,
}


def _ipc(array: Any) -> Any:
    import pyarrow as pa

    batch = pa.RecordBatch.from_arrays([array], names=["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _arrays(view: memoryview) -> list[Any]:
    found: list[Any] = []
    while len(view):
        if len(view) < _LENGTH.size:
            raise ValueError("an array is cut short")
        (length,) = _LENGTH.unpack_from(view)
        if length > len(view) - _LENGTH.size:
            raise ValueError("an array is cut short")
        found.append(_array(view[_LENGTH.size : _LENGTH.size + length]))
        view = view[_LENGTH.size + length :]
    return found


def _array(data: memoryview) -> Any:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            batches = list(stream)
        if len(batches) != 1 or batches[0].num_columns != 1:
            raise ValueError("one batch of one column was expected")
        array = batches[0].column(0)
        array.validate(full=True)
    except (pa.ArrowException, MemoryError, OSError) as error:
        raise ValueError(f"an array of keys does not read: {error}") from None
    return array
