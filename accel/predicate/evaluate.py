"""The exact filter: evaluates a bound predicate over Arrow arrays, in three-valued logic.

Text compares by its UTF-8 bytes. `accel.predicate.atoms` defines what LIKE matches, and
`accel.predicate.coerce` how numbers, NaN, dates and times compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bools, integers, mask, one, relabel, validity, whole
from accel.format.domain import Domain
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    Fixed,
    IsTrue,
    Kernel,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Pattern,
    Truth,
    compile_pattern,
)
from accel.predicate.kinds import Kind, kind_of, native
from accel.predicate.membership import keys_between, keys_near

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = [
    "evaluate",
    "matches_like",
    "outcome",
]

Columns: TypeAlias = Mapping[tuple[str, ...], Any]

_TRUE, _FALSE = bools(np.array([True]))[0], bools(np.array([False]))[0]
_NULL = bools(np.array([False]), np.array([False]))[0]
# Least length of a pattern's matches from which on shorter texts are sorted out before RE2 runs.
_MANY_CHARACTERS = 64
# Fewer keys are put in Arrow's hash set, for every batch anew, in about the time that it takes to look at all
# values.
_FEW_KEYS = 1000
# Keys per value above which building that set costs more than to search for the values among the sorted keys;
# bytes are searched for one by one.
_MANY_KEYS = 64
_MANY_NUMBERS = 8
_KERNELS = {Order.EQ: pc.equal, Order.LT: pc.less, Order.LE: pc.less_equal}


def evaluate(bound: Bound, columns: Columns, num_rows: int) -> npt.NDArray[np.bool_]:
    """Return the rows that make the predicate true, as a mask of `num_rows`; null is not true.

    Parameters and errors are those of `outcome`.
    """
    return mask(outcome(bound, columns, num_rows))


def outcome(bound: Bound, columns: Columns, num_rows: int) -> pa.BooleanArray:
    """Return TRUE, FALSE or NULL for every row.

    Parameters
    ----------
    bound : Bound
        The predicate.
    columns : Mapping of tuple of str to pyarrow.Array or ChunkedArray
        The arrays of `bound.columns`, or of structs above them, by path; each has `num_rows` values.
    num_rows : int
        The number of rows, needed because a predicate may name no column.

    Raises
    ------
    KeyError
        A column has no array.
    ValueError
        The length of an array is not `num_rows`.
    """
    result = _Run(bound, columns, num_rows).node(bound.root)
    if isinstance(result, pa.Scalar):
        return pa.repeat(result, num_rows) if result.is_valid else pa.nulls(num_rows, pa.bool_())
    return result


class _Run:
    """One evaluation, which prepares each column once, however often the tree names it."""

    def __init__(self, bound: Bound, columns: Columns, num_rows: int) -> None:
        self.bound = bound
        self.given = columns
        self.num_rows = num_rows
        self._arrays: dict[int, pa.Array] = {}
        self._natives: dict[int, pa.Array] = {}

    def array(self, column: int) -> pa.Array:
        """Return the column in one chunk and in the bound type (or a dictionary of it)."""
        array = self._arrays.get(column)
        if array is None:
            wanted = self.bound.columns[column]
            array = _found(wanted.path, self.given)
            if len(array) != self.num_rows:
                raise ValueError(
                    f"column {'.'.join(wanted.path)!r} has {len(array)} values for {self.num_rows} rows"
                )
            kind = kind_of(array.type)
            # Bytes compare in any layout; numbers, dates and times must be in the bound type's ticks.
            if kind != wanted.kind and (kind.family, kind.domain) != (wanted.kind.family, Domain.BYTES):
                array = array.cast(wanted.type)
            self._arrays[column] = array
        return array

    def native(self, column: int) -> pa.Array:
        """Return its values, or its dictionary's, in the native type."""
        values = self._natives.get(column)
        if values is None:
            array = self.array(column)
            values = native(array.dictionary if self.is_dictionary(column) else array)
            self._natives[column] = values
        return values

    def is_dictionary(self, column: int) -> bool:
        return bool(pa.types.is_dictionary(self.array(column).type))

    def over(self, column: int, test: Callable[[pa.Array], Any]) -> Any:
        """Apply a test of single values, to a dictionary's entries instead of the rows where there is one."""
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
        """Return a boolean array, or a scalar that holds for every row."""
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
            case Kernel():
                return self.kernel(node)
        raise TypeError(f"{type(node).__name__} is no bound predicate")

    def fold(self, operands: tuple[Node, ...], combine: Callable[..., Any], *, dominant: bool) -> Any:
        """Combine by AND or OR, and stop once every row has the value that decides."""
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

    def kernel(self, node: Kernel) -> pa.BooleanArray:
        from accel.predicate.arrow_expression import run_expression

        columns = []
        for column, kind in zip(node.columns, node.types, strict=True):
            array = self.array(column)
            columns.append(
                (self.bound.columns[column].path, array if array.type == kind else array.cast(kind))
            )
        return run_expression(node.expression, columns, self.num_rows)

    def pair(self, node: Pair) -> pa.BooleanArray:
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
    """Return the array of a path, or the child of a struct above it, null where the struct is."""
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
    if len(among.sorted) > _FEW_KEYS:
        among = keys_between(among, values)
        many = _MANY_KEYS if kind_of(values.type).domain is Domain.BYTES else _MANY_NUMBERS
        if len(among.sorted) > many * len(values):
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


def matches_like(text: str, pattern: str, *, ignore_case: bool) -> bool:
    """Return whether one text matches a LIKE pattern, by the rules for columns.

    Raises PredicateError for an invalid pattern.
    """
    compiled = compile_pattern(pattern, ignore_case=ignore_case, position=-1)
    return bool(mask(_matches(pa.array([text.encode()], pa.binary()), compiled))[0])


Signs = npt.NDArray[np.int8]

_INT64 = np.iinfo(np.int64)


def compare_arrays(
    left: pa.Array, left_kind: Kind, *, right: pa.Array, right_kind: Kind, order: Order
) -> pa.BooleanArray:
    """Compute `left order right` for each row of two native arrays; null where either is null."""
    if left_kind.domain is Domain.BYTES:
        if left.type != right.type:
            left, right = left.cast(pa.large_binary()), right.cast(pa.large_binary())
        return _KERNELS[order](left, right)
    valid = validity(left) & validity(right)
    a, b = integers(left), integers(right)
    # The values under nulls may be anything, even NaN.
    a, b = np.where(valid, a, 0).astype(a.dtype), np.where(valid, b, 0).astype(b.dtype)
    signs = _signs(a, left_kind, b, right_kind)
    return bools(holds(signs, order), valid)


def holds(signs: Signs, order: Order) -> Bools:
    """Convert the signs -1, 0 and 1 to the truth of an order."""
    if order is Order.EQ:
        return np.equal(signs, 0)
    return np.less(signs, 0) if order is Order.LT else np.less_equal(signs, 0)


def _signs(a: npt.NDArray[Any], left: Kind, b: npt.NDArray[Any], right: Kind) -> Signs:
    """Return -1, 0 or 1 where a is below, equal to or above b."""
    floats = (left.domain is Domain.FLOAT, right.domain is Domain.FLOAT)
    if floats == (True, True):
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        return np.where(nan_a | nan_b, _cmp(nan_a, nan_b), _cmp(a, b))
    if floats == (False, True):
        return _integers_floats(a, left, b)
    if floats == (True, False):
        return -_integers_floats(b, right, a)
    up = left.numerator * right.denominator
    down = right.numerator * left.denominator
    shared = math.gcd(up, down)
    return _cmp(_times(a, up // shared), _times(b, down // shared))


def _times(values: npt.NDArray[Any], factor: int) -> npt.NDArray[Any]:
    """Multiply exactly, with Python ints where int64 may overflow."""
    if factor == 1 or not len(values):
        return values
    if values.dtype != object:
        largest = max(abs(int(values.min())), abs(int(values.max())))
        # Check the factor too: a product of 0 fits even where the factor does not.
        if factor <= _INT64.max and largest * factor <= _INT64.max:
            return values.astype(np.int64) * factor
    return np.asarray(values.astype(object) * factor, object)


def _cmp(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Signs:
    if a.dtype != b.dtype and "u" in (a.dtype.kind, b.dtype.kind) and object not in (a.dtype, b.dtype):
        # A signed and an unsigned 64-bit array have no common numpy integer.
        if a.dtype.itemsize == 8 and a.dtype.kind == "u":
            return -_cmp(b, a)
        if b.dtype == np.uint64:
            below = np.less(a, 0) if a.dtype.kind != "u" else np.zeros(len(a), bool)
            signs = _cmp(np.where(below, 0, a).astype(np.uint64), b)
            return np.where(below, np.int8(-1), signs)
    above, below = np.greater(a, b).astype(bool), np.less(a, b).astype(bool)
    difference: Signs = np.subtract(above, below, dtype=np.int8)
    return difference


def _integers_floats(a: npt.NDArray[Any], kind: Kind, b: npt.NDArray[Any]) -> Signs:
    """Compare integers with floats exactly, without rounding the integers to doubles."""
    if a.dtype == object or kind.step != (1, 1):
        return _fractions_floats(a, kind, b)
    unsigned = a.dtype == np.uint64
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    above, below = (b >= high) | np.isnan(b), b < low
    inside = ~(above | below)
    whole = np.floor(np.where(inside, b, 0.0))
    signs = _cmp(
        a.astype(np.uint64 if unsigned else np.int64), whole.astype(np.uint64 if unsigned else np.int64)
    )
    signs = np.where((signs == 0) & inside & (b > whole), np.int8(-1), signs)
    return np.where(above, np.int8(-1), np.where(below, np.int8(1), signs)).astype(np.int8)


def _fractions_floats(a: npt.NDArray[Any], kind: Kind, b: npt.NDArray[Any]) -> Signs:
    from fractions import Fraction

    out = np.empty(len(a), np.int8)
    for i, (integer, number) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if math.isfinite(number):
            exact, other = Fraction(integer * kind.numerator, kind.denominator), Fraction(number)
            out[i] = (exact > other) - (exact < other)
        else:
            out[i] = 1 if number < 0 else -1
    return out
