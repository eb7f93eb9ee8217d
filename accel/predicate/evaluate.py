"""The exact filter: a bound predicate over Arrow arrays, in three-valued logic.

LIKE and ILIKE: see `accel.predicate.like` for what matches. Text compares by its UTF-8 bytes. Numbers,
NaN and moments: see `accel.predicate.coerce`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bools, mask, one, relabel, validity, whole
from accel.format.domain import Domain
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    Fixed,
    IsTrue,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Pattern,
    Truth,
)
from accel.predicate.kinds import kind_of, native

__all__ = ["evaluate", "outcome"]

Columns: TypeAlias = Mapping[tuple[str, ...], Any]

_TRUE, _FALSE = bools(np.array([True]))[0], bools(np.array([False]))[0]
_NULL = bools(np.array([False]), np.array([False]))[0]
# Of a pattern that matches no shorter text: texts are measured before RE2 looks at them.
_MANY_CHARACTERS = 64
# Keys for each value: beyond that making a set of all of them, for every piece anew, costs more than to ask it.
_MANY_KEYS = 64
_KERNELS = {Order.EQ: pc.equal, Order.LT: pc.less, Order.LE: pc.less_equal}


def evaluate(bound: Bound, columns: Columns, num_rows: int) -> npt.NDArray[np.bool_]:
    """Which rows make the predicate true, as a mask of `num_rows`; null is not true.

    Parameters and errors are those of `outcome`.
    """
    return mask(outcome(bound, columns, num_rows))


def outcome(bound: Bound, columns: Columns, num_rows: int) -> pa.BooleanArray:
    """TRUE, FALSE or NULL for every row.

    Parameters
    ----------
    bound : Bound
        The predicate.
    columns : Mapping of tuple of str to pyarrow.Array or ChunkedArray
        The arrays of `bound.columns` by path, or of structs above them; each of `num_rows` values.
    num_rows : int
        Rows; needed because a predicate may name no column.

    Raises
    ------
    KeyError
        A column is not among the arrays.
    ValueError
        An array is not `num_rows` long.
    """
    result = _Run(bound, columns, num_rows).node(bound.root)
    if isinstance(result, pa.Scalar):
        return pa.repeat(result, num_rows) if result.is_valid else pa.nulls(num_rows, pa.bool_())
    return result


class _Run:
    """One evaluation: every column is prepared once, however often it is named."""

    def __init__(self, bound: Bound, columns: Columns, num_rows: int) -> None:
        self.bound = bound
        self.given = columns
        self.num_rows = num_rows
        self._arrays: dict[int, pa.Array] = {}
        self._natives: dict[int, pa.Array] = {}

    def array(self, column: int) -> pa.Array:
        """The column as given, in one chunk and of the bound type (or a dictionary of it)."""
        array = self._arrays.get(column)
        if array is None:
            wanted = self.bound.columns[column]
            array = _found(wanted.path, self.given)
            if len(array) != self.num_rows:
                raise ValueError(
                    f"column {'.'.join(wanted.path)!r} has {len(array)} values for {self.num_rows} rows"
                )
            kind = kind_of(array.type)
            # Bytes compare whatever their layout; numbers and moments must be in the bound type's ticks.
            if kind != wanted.kind and (kind.family, kind.domain) != (wanted.kind.family, Domain.BYTES):
                array = array.cast(wanted.type)
            self._arrays[column] = array
        return array

    def native(self, column: int) -> pa.Array:
        """Its values, or its dictionary's, in the native type."""
        values = self._natives.get(column)
        if values is None:
            array = self.array(column)
            values = native(array.dictionary if self.is_dictionary(column) else array)
            self._natives[column] = values
        return values

    def is_dictionary(self, column: int) -> bool:
        return bool(pa.types.is_dictionary(self.array(column).type))

    def over(self, column: int, test: Callable[[pa.Array], Any]) -> Any:
        """A test of single values: done once for each entry of a dictionary, not for each row."""
        values = self.native(column)
        if not self.is_dictionary(column):
            return test(values)
        indices = self.array(column).indices
        if len(values) > len(indices):
            return test(pc.take(values, indices))
        result = test(values)
        if isinstance(result, pa.Scalar):
            if not indices.null_count or not result.is_valid:
                return result
            result = pa.repeat(result, len(values))
        return pc.take(result, indices)

    def node(self, node: Node) -> Any:
        """A boolean array, or a scalar that stands for every row."""
        match node:
            case AllOf():
                return self.fold(node.operands, pc.and_kleene, dominant=False)
            case AnyOf():
                return self.fold(node.operands, pc.or_kleene, dominant=True)
            case Negation():
                return pc.invert(self.node(node.operand))
            case IsTrue():
                return pc.fill_null(self.node(node.operand), _FALSE)
            case Truth():
                return _NULL if node.value is None else _TRUE if node.value else _FALSE
            case Against():
                return self.over(node.column, lambda values: _test(values, node.order, node.value))
            case Among():
                return self.over(node.column, lambda values: _among(values, node))
            case Matches():
                return self.over(node.column, lambda values: _matches(values, node.pattern))
            case Fixed():
                constant = _TRUE if node.value else _FALSE
                return self.over(node.column, lambda values: _where_valid(values, constant))
            case Null():
                return self.null(node.column)
            case Pair():
                return self.pair(node)
        raise TypeError(f"{type(node).__name__} is no bound predicate")

    def fold(self, operands: tuple[Node, ...], combine: Callable[..., Any], *, dominant: bool) -> Any:
        """AND or OR, stopping once every row has the value that decides."""
        result = self.node(operands[0])
        for operand in operands[1:]:
            if _all_are(result, dominant):
                break
            result = combine(result, self.node(operand))
        return result

    def null(self, column: int) -> Any:
        if self.is_dictionary(column):
            found = self.over(column, lambda values: pc.is_null(values))
            return found if isinstance(found, pa.Scalar) else pc.fill_null(found, _TRUE)
        array = self.array(column)
        return pc.is_null(array) if array.null_count else _FALSE

    def pair(self, node: Pair) -> pa.BooleanArray:
        from accel.predicate.compare import compare_arrays

        left, right = self.bound.columns[node.left], self.bound.columns[node.right]
        return compare_arrays(
            self.decoded(node.left),
            left.kind,
            right=self.decoded(node.right),
            right_kind=right.kind,
            order=node.order,
        )

    def decoded(self, column: int) -> pa.Array:
        values = self.native(column)
        return pc.take(values, self.array(column).indices) if self.is_dictionary(column) else values


def _found(path: tuple[str, ...], columns: Columns) -> pa.Array:
    """The array of a path; where only a struct above it is given, its child, null where the struct is."""
    for depth in range(len(path), 0, -1):
        array = columns.get(path[:depth])
        if array is None:
            continue
        array = whole(array)
        for name in path[depth:]:
            while isinstance(array.type, pa.BaseExtensionType):
                array = array.storage
            array = array.flatten()[array.type.get_field_index(name)]
        return array
    raise KeyError(f"no array for column {'.'.join(path)!r}")


def _all_are(result: Any, value: bool) -> bool:
    if isinstance(result, pa.Scalar):
        return bool(result.is_valid) and result.as_py() is value
    if result.null_count:
        return False
    return bool(result.true_count == (len(result) if value else 0))


def _where_valid(values: pa.Array, constant: pa.Scalar) -> Any:
    return pc.if_else(values.is_valid(), constant, _NULL) if values.null_count else constant


def _test(values: pa.Array, order: Order, value: bool | float | bytes) -> Any:
    if isinstance(value, bool):
        return values if value else pc.invert(values)
    if isinstance(value, float) and math.isnan(value):
        return pc.is_nan(values)
    return _KERNELS[order](values, one(value, values.type))


def _among(values: pa.Array, node: Among) -> Any:
    among = node.keys
    if len(among.sorted) > _MANY_KEYS * len(values):
        from accel.predicate.keys import keys_near

        among = keys_near(among, values)
    keys = among.values if among.values.type == values.type else among.values.cast(values.type)
    found = pc.is_in(values, value_set=keys)
    if node.keys.nan:
        found = pc.or_(found, pc.fill_null(pc.is_nan(values), _FALSE))
    if node.with_null:
        return pc.if_else(found, _TRUE, _NULL)
    return bools(mask(found), validity(values)) if values.null_count else found


def _matches(values: pa.Array, pattern: Pattern) -> Any:
    wide = pa.types.is_large_binary(values.type)
    text = relabel(values, pa.large_string() if wide else pa.string())
    if pattern.literal is None or not (pattern.open_start or pattern.open_end):
        if pattern.least > _MANY_CHARACTERS:
            # Texts of fewer bytes cannot match, and RE2 may take long to see it.
            lengths = pc.binary_length(text)
            enough = pc.greater_equal(lengths, one(pattern.least, lengths.type))
            text = pc.if_else(enough, text, one(b"", text.type))
        return pc.match_substring_regex(text, pattern=pattern.regex, ignore_case=pattern.ignore_case)
    plain = pattern.literal.decode()
    search = (
        pc.match_substring
        if pattern.open_start and pattern.open_end
        else pc.ends_with
        if pattern.open_start
        else pc.starts_with
    )
    return search(text, pattern=plain, ignore_case=pattern.ignore_case)
