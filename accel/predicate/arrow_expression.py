"""Expressions of `pyarrow.compute`, read by their own serialization.

That is an Arrow IPC file. The metadata of its schema is the tree, as an ordered list with repeated keys:
`call`, `field_ref`, `nested_field_ref`, `literal`, `options`, `end`; literals and options are the columns of
its one batch. AND, OR and NOT become nodes of the tree. Every condition below them becomes an `Opaque`, which
stays Arrow's: `meaning` says it in nodes of accel's own for columns of those types for which both have the
same rules, and pyarrow's kernels evaluate it for all others.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import AccelError, PredicateError
from accel.predicate.expr import (
    MAX_DEPTH,
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Opaque,
    Or,
    column_of,
    join,
)
from accel.predicate.literal import literal_value

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = [
    "check_expression",
    "expression_of",
    "field_paths",
    "from_arrow",
    "in_sql",
    "meaning",
    "opaque_of",
    "run_expression",
    "shown_expression",
]

# A chain of ANDs is nested as deep as it is long.
_MOST_LEVELS: Final = 10_000
_HINT: Final = "give text, a filter list or accel.col, or an expression of fields by name"


@dataclass(frozen=True, slots=True)
class _Field:
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    scalar: pa.Scalar
    place: int
    """The column of the file that holds it."""


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    operands: tuple[_Node, ...]
    options: pa.Scalar | None
    place: int
    """The column of the file that holds the options; -1 without."""

    def option(self, name: str) -> Any:
        """Return an option as a value of Python; None where there is none of that name."""
        return None if self.options is None or name not in self.options else self.options[name].as_py()


_Node: TypeAlias = "_Field | _Value | _Call"


# -- reading -----------------------------------------------------------------------------------------


def from_arrow(expression: pc.Expression) -> Expr:
    """Convert an expression to the tree.

    Raises PredicateError where pyarrow does not serialize it, or this accel does not know the form.
    """
    root, batch = _read(_serialized(expression))
    return _tree(root, batch)


def _serialized(expression: pc.Expression) -> pa.Buffer:
    try:
        _, (data, *_) = expression.__reduce__()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise PredicateError(f"the Arrow expression does not serialize: {error}", hint=_HINT) from None
    return data


def field_paths(expression: pc.Expression) -> list[tuple[str, ...]]:
    """Return the paths of the fields that an expression names, with repeats. Errors are those of
    `from_arrow`."""
    return _paths(_read(_serialized(expression))[0])


def opaque_of(data: bytes) -> Opaque:
    """Make the node of one serialized condition. Errors are those of `from_arrow`."""
    root, _ = _read(pa.py_buffer(data))
    columns = tuple(dict.fromkeys(column_of(path) for path in _paths(root)))
    return Opaque(data, columns, root)


def _read(data: pa.Buffer) -> tuple[_Node, pa.RecordBatch]:
    try:
        with pa.ipc.open_file(data) as file:
            if file.num_record_batches != 1:
                raise ValueError(f"{file.num_record_batches} batches")
            batch = file.get_batch(0)
            items = _metadata(file.schema)
        batch.validate(full=True)
        return _parsed(items, batch), batch
    except (pa.ArrowException, ValueError, IndexError, KeyError, OSError, MemoryError) as error:
        if isinstance(error, AccelError):
            raise
        raise PredicateError(
            f"the Arrow expression is in a form that this accel does not read: {error}",
            hint="this is for pyarrow 19 to 26; " + _HINT,
        ) from None


class _ArrowSchema(ctypes.Structure):
    """The first members of the C data interface's `ArrowSchema`."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the pairs of a schema's metadata in order; `Schema.metadata` has every key once only."""
    capsule = schema.__arrow_c_schema__()
    at = _ArrowSchema.from_address(_pointer(capsule, b"arrow_schema")).metadata
    if at is None:
        raise ValueError("no tree")
    size = ctypes.sizeof(ctypes.c_int32)
    texts: list[str] = []
    count = 2 * ctypes.c_int32.from_address(at).value
    at += size
    for _ in range(count):
        length = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + size, length).decode())
        at += size + length
    del capsule  # until here it owns the memory
    return list(zip(texts[::2], texts[1::2], strict=True))


def _parsed(items: Sequence[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    """Read the list of pairs, without recursion: chains of ANDs are deep."""
    done: list[_Node] = []
    open_calls: list[tuple[str, list[_Node], int]] = []

    def place_of(text: str) -> int:
        place = int(text)
        if not 0 <= place < batch.num_columns:
            raise ValueError(f"no column {place}")
        return place

    at = 0
    while at < len(items):
        key, text = items[at]
        at += 1
        found: _Node
        if key == "call":
            if len(open_calls) >= _MOST_LEVELS:
                raise ValueError(f"nested deeper than {_MOST_LEVELS} levels")
            open_calls.append((text, [], -1))
            continue
        if key == "options":
            name, operands, _ = open_calls.pop()
            open_calls.append((name, operands, place_of(text)))
            continue
        if key == "field_ref":
            found = _Field((text,))
        elif key == "nested_field_ref":
            count = int(text)
            refs = items[at : at + count]
            if count < 1 or len(refs) < count or any(ref != "field_ref" for ref, _ in refs):
                raise ValueError("a nested field without names")
            found = _Field(tuple(name for _, name in refs))
            at += count
        elif key == "literal":
            place = place_of(text)
            found = _Value(batch.column(place)[0], place)
        elif key == "end":
            name, operands, place = open_calls.pop()
            if name != text:
                raise ValueError(f"{name!r} ends as {text!r}")
            found = _Call(name, tuple(operands), None if place < 0 else batch.column(place)[0], place)
        else:
            raise ValueError(f"{key!r} is no part of an expression")
        (open_calls[-1][1] if open_calls else done).append(found)
    if open_calls or len(done) != 1:
        raise ValueError("the tree is not whole")
    return done[0]


_JOINS: Final[dict[str, type[And | Or]]] = {"and_kleene": And, "or_kleene": Or}


def _tree(root: _Node, batch: pa.RecordBatch) -> Expr:
    """Convert AND, OR and NOT to nodes, and what is below them to `Opaque`."""

    def convert(node: _Node, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise PredicateError(f"the predicate is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, _Call) and node.name in _JOINS:
            return join(_JOINS[node.name], [convert(part, depth + 1) for part in _flat(node)])
        if isinstance(node, _Call) and node.name == "invert":
            return Not(convert(node.operands[0], depth + 1))
        if isinstance(node, _Value) and node.scalar.type in (pa.bool_(), pa.null()):
            return Constant(node.scalar.as_py())
        if isinstance(node, _Call) and node.name in _OPS and any(map(_is_null, node.operands)):
            return Constant(None)
        columns = tuple(dict.fromkeys(column_of(path) for path in _paths(node)))
        return Opaque(_written(node, batch), columns, node)

    return convert(root, 1)


def _is_null(node: _Node) -> bool:
    return isinstance(node, _Value) and not node.scalar.is_valid


def _flat(call: _Call) -> list[_Node]:
    """Return the operands of nested calls of one name, in order."""
    out: list[_Node] = []
    stack: list[_Node] = [call]
    while stack:
        node = stack.pop()
        if isinstance(node, _Call) and node.name == call.name:
            stack += reversed(node.operands)
        else:
            out.append(node)
    return out


def _paths(root: _Node) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, _Field):
            out.append(node.path)
        elif isinstance(node, _Call):
            stack += reversed(node.operands)
    return out


def _written(root: _Node, batch: pa.RecordBatch) -> bytes:
    """Serialize a part of an expression, as pyarrow would."""
    items: list[tuple[str, str]] = []
    columns: list[pa.Array] = []
    stack: list[_Node | tuple[str, str]] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            items.append(node)
        elif isinstance(node, _Field):
            if len(node.path) > 1:
                items.append(("nested_field_ref", str(len(node.path))))
            items += [("field_ref", name) for name in node.path]
        elif isinstance(node, _Value):
            items.append(("literal", str(len(columns))))
            # pyarrow crashes where it casts a null large_string to string.
            crashes = _is_null(node) and node.scalar.type == pa.large_string()
            columns.append(pa.nulls(1, pa.string()) if crashes else batch.column(node.place))
        else:
            items.append(("call", node.name))
            stack.append(("end", node.name))
            if node.place >= 0:
                # Options stand behind the operands, as pyarrow writes them.
                stack.append(("options", str(-1 - node.place)))
            stack += reversed(node.operands)
    for at, (key, text) in enumerate(items):
        if key == "options":
            items[at] = key, str(len(columns))
            columns.append(batch.column(-1 - int(text)))
    # A column that nothing names makes the one row that pyarrow looks for.
    columns = columns or [pa.nulls(1)]
    fields = [pa.field("", column.type) for column in columns]
    schema = pa.schema(fields, metadata=pa.KeyValueMetadata(items))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


# -- meaning -----------------------------------------------------------------------------------------


def meaning(opaque: Opaque, types: Sequence[pa.DataType]) -> Expr | None:
    """Return the condition in nodes that have Arrow's rules over columns of these types; None where there are
    none.

    Parameters
    ----------
    opaque : Opaque
        The condition.
    types : sequence of pyarrow.DataType
        The types of its columns in the data set.
    """
    kinds = tuple(kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types)
    if any(isinstance(kind, pa.BaseExtensionType) for kind in kinds):
        return None
    key = tuple(map(str, kinds))
    if key not in opaque.meanings:
        try:
            opaque.meanings[key] = _meaning(opaque, kinds)
        except AccelError:
            # A value that is no literal, such as a duration.
            opaque.meanings[key] = None
    return opaque.meanings[key]


def _meaning(opaque: Opaque, kinds: Sequence[pa.DataType]) -> Expr | None:
    root = opaque.root
    if isinstance(root, _Field):
        return opaque.columns[0] if pa.types.is_boolean(kinds[0]) else None
    if not isinstance(root, _Call) or len(opaque.columns) != 1:
        return None
    column, kind = opaque.columns[0], kinds[0]
    match root:
        case _Call("is_valid", (_Field(),)):
            return Not(IsNull(column))
        case _Call("is_null", (_Field(),)) if root.option("nan_is_null") is False or root.options is None:
            return IsNull(column)
        case _Call("is_null", (_Field(),)) if _is_double(kind):
            return Or((IsNull(column), Compare(Op.EQ, column, Literal(math.nan))))
        case _Call("is_nan", (_Field(),)) if _is_double(kind):
            return Compare(Op.EQ, column, Literal(math.nan))
        case _Call("is_in", (_Field(),)):
            return _member(column, kind, root)
        case _Call(name, (_Field(), _Value(scalar))) if name in _OPS:
            return _comparison(column, kind, _OPS[name], scalar)
        case _Call(name, (_Value(scalar), _Field())) if name in _OPS:
            return _comparison(column, kind, _OPS[name].mirrored, scalar)
        case _Call(name, (_Field(),)) if name in _PATTERNS and root.option("ignore_case") is False:
            text = root.option("pattern")
            if isinstance(text, str) and kind in (pa.string(), pa.large_string()):
                before, behind = _PATTERNS[name]
                plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
                return Like(column, f"{before}{plain}{behind}")
    return None


_OPS: Final = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_PATTERNS: Final = {"starts_with": ("", "%"), "ends_with": ("%", ""), "match_substring": ("%", "%")}
# Whole numbers up to this one are doubles too.
_EXACT: Final = 1 << 53


def _is_double(kind: pa.DataType) -> bool:
    return kind in (pa.float64(), pa.float32())


def _comparison(column: Column, kind: pa.DataType, op: Op, scalar: pa.Scalar) -> Expr | None:
    if not scalar.is_valid or not _alike(kind, scalar.type):
        return None
    value = literal_value(scalar)
    if _is_double(kind):
        if (
            not isinstance(value, int | float)
            or math.isnan(value)
            or abs(value) > _EXACT > 0
            and isinstance(value, int)
        ):
            return None
        if op in (Op.GT, Op.GE):
            # To Arrow NaN is above nothing.
            return And((Compare(op, column, Literal(value)), Compare(Op.LE, column, Literal(math.inf))))
    return Compare(op, column, Literal(value))


def _member(column: Column, kind: pa.DataType, call: _Call) -> Expr | None:
    matching = call.option("null_matching_behavior")
    options = call.options
    if options is None or matching not in (0, 1) or not isinstance(options["value_set"], pa.ListScalar):
        return None
    values = options["value_set"].values
    if values is None or not _alike(kind, values.type):
        return None
    with_null = matching == 0 and values.null_count > 0
    values = values.drop_null() if values.null_count else values
    if _is_double(kind):
        numbers = values.to_pylist()
        if values.type != kind or any(number == 0 or math.isnan(number) for number in numbers):
            # Arrow tells 0.0 and -0.0 apart here.
            return None
    node = InArray(column, values)
    # To Arrow null is in no list, or in one with a null.
    return Or((node, IsNull(column))) if with_null else And((node, Not(IsNull(column))))


# Arrow compares no views, and accel does.
_TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())
_BYTES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())


def _alike(kind: pa.DataType, literal: pa.DataType) -> bool:
    """Return whether a literal of a type compares with a column of another by the same rules in Arrow and
    accel."""
    types = pa.types
    if types.is_integer(kind):
        # Arrow has no common type of 64 unsigned bits and a sign.
        wide = pa.uint64()
        return bool(types.is_integer(literal)) and (
            kind == literal
            or (kind != wide and literal != wide)
            or (types.is_unsigned_integer(kind) and types.is_unsigned_integer(literal))
        )
    if kind == pa.float64():
        return literal in (pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.int16(), pa.int8())
    if kind == pa.float32():
        return literal in (pa.float32(), pa.float64())
    for family in (_TEXTS, _BYTES):
        if kind in family:
            return literal in family
    plain = (
        types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or types.is_fixed_size_binary(kind)
    )
    return bool(plain) and kind == literal


def in_sql(where: Expr, schema: pa.Schema) -> Expr:
    """Return a condition with the rules of SQL engines in place of Arrow's: NaN equals itself and is above
    every number, both zeros are one, and null is neither in a list nor outside of it.

    Parameters
    ----------
    where : Expr
        A condition, of which some are Arrow's.
    schema : pyarrow.Schema
        The columns that it is put to.
    """
    match where:
        case And(operands) | Or(operands):
            return join(type(where), [in_sql(operand, schema) for operand in operands])
        case Not(operand):
            return Not(in_sql(operand, schema))
        case Opaque(root=_Call() as call):
            return _in_sql(call, schema) or where
    return where


def _in_sql(call: _Call, schema: pa.Schema) -> Expr | None:
    """Return one condition by SQL's rules; None where these are Arrow's."""
    match call:
        case _Call("is_in", (_Field(path),)):
            options, kind = call.options, _type_of(path, schema)
            if options is None or kind is None or not isinstance(options["value_set"], pa.ListScalar):
                return None
            values = options["value_set"].values
            if values is None or not (_alike(kind, values.type) or _is_double(kind)):
                return None
            return InArray(column_of(path), values.drop_null())
        case _Call(name, (_Field(path), _Value(scalar))) if name in _OPS:
            return _above_all(_OPS[name], path, scalar, schema)
        case _Call(name, (_Value(scalar), _Field(path))) if name in _OPS:
            return _above_all(_OPS[name].mirrored, path, scalar, schema)
        case _Call(name, (_Field(path), _Field(other))) if name in _OPS:
            kinds = _type_of(path, schema), _type_of(other, schema)
            if any(kind is None or not _is_double(kind) for kind in kinds):
                return None
            return Compare(_OPS[name], column_of(path), column_of(other))
    return None


def _above_all(op: Op, path: tuple[str, ...], scalar: pa.Scalar, schema: pa.Schema) -> Expr | None:
    """Return a comparison of a column of floats with a number, in which NaN is above all numbers."""
    kind = _type_of(path, schema)
    if kind is None or not _is_double(kind):
        return None
    value = literal_value(scalar)
    return Compare(op, column_of(path), Literal(value)) if isinstance(value, int | float) else None


def _type_of(path: tuple[str, ...], schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field of a struct."""
    fields: Any = schema
    for name in path:
        at = fields.get_field_index(name) if isinstance(fields, pa.Schema | pa.StructType) else -1
        if at < 0:
            return None
        fields = fields.field(at).type
    kind: pa.DataType = fields
    return kind.value_type if pa.types.is_dictionary(kind) else kind


# -- evaluation --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def expression_of(data: bytes) -> pc.Expression:
    """Read an expression back. Raises PredicateError where pyarrow does not."""
    import pyarrow.compute as pc

    try:
        return pc.Expression._deserialize(pa.py_buffer(data))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise PredicateError(f"the Arrow expression does not read: {error}") from None


_LONE = "row"


def run_expression(
    data: bytes, columns: Sequence[tuple[tuple[str, ...], pa.Array]], num_rows: int
) -> pa.BooleanArray:
    """Evaluate an expression by pyarrow's kernels.

    Parameters
    ----------
    data : bytes
        The expression, serialized.
    columns : sequence of (path, array)
        The columns that it names.
    num_rows : int
        The length of each.

    Raises
    ------
    PredicateError
        pyarrow cannot evaluate it over columns of these types and values, or the result is not boolean.
    """
    from pyarrow import acero

    table = _table(columns) if columns else _numbered(num_rows)
    try:
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([expression_of(data)], ["truth"]))
        result = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False).column(0)
    except (pa.ArrowException, ValueError, KeyError, NotImplementedError) as error:
        if isinstance(error, AccelError):
            raise
        raise PredicateError(f"pyarrow cannot evaluate the expression {_short(data)}: {error}") from None
    if pa.types.is_null(result.type):
        return pa.nulls(num_rows, pa.bool_())
    if not pa.types.is_boolean(result.type):
        raise PredicateError(
            f"the expression {_short(data)} is {result.type} and is no predicate",
            hint="compare it with something",
        )
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


def check_expression(data: bytes, paths: Sequence[tuple[str, ...]], types: Sequence[pa.DataType]) -> None:
    """Raise PredicateError where pyarrow cannot evaluate an expression over columns of these types."""
    key = data, tuple(paths), tuple(map(str, types))
    if key in _CHECKED:
        return
    run_expression(data, [(path, pa.nulls(0, kind)) for path, kind in zip(paths, types, strict=True)], 0)
    if len(_CHECKED) >= _MOST_CHECKED:
        _CHECKED.clear()
    _CHECKED.add(key)


_CHECKED: Final[set[Any]] = set()
_MOST_CHECKED: Final = 256


def _table(columns: Sequence[tuple[tuple[str, ...], pa.Array]]) -> pa.Table:
    """Build the top-level columns that hold these paths."""
    tree: dict[str, Any] = {}
    for path, array in sorted(columns, key=lambda one: len(one[0])):
        level = tree
        for name in path[:-1]:
            level = level.setdefault(name, {})
            if not isinstance(level, dict):
                break  # a struct above it is there as a whole
        else:
            level[path[-1]] = array

    def built(node: Any) -> pa.Array:
        if not isinstance(node, dict):
            return node
        return pa.StructArray.from_arrays([built(child) for child in node.values()], list(node))

    return pa.Table.from_arrays([built(node) for node in tree.values()], names=list(tree))


def _numbered(num_rows: int) -> pa.Table:
    import numpy as np

    return pa.Table.from_arrays([from_numpy(np.arange(num_rows, dtype=np.int64))], names=[_LONE])


def shown_expression(data: bytes) -> str:
    """Return the text of an expression in one line; pyarrow abridges long lists."""
    return " ".join(str(expression_of(data)).split())


def _short(data: bytes) -> str:
    text = shown_expression(data)
    return text if len(text) <= 120 else f"{text[:117]}..."
