"""Equalities in a bound tree: IN lists, many equalities of one column, and ranges that hold one value."""

from __future__ import annotations

import datetime
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bytes_array, integers, integers_array, mask, sort_distinct, validity, whole
from accel.format.domain import Domain
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    BoundColumn,
    Fixed,
    Keys,
    Negation,
    Node,
    Order,
    Truth,
)
from accel.predicate.coerce import fixed, key
from accel.predicate.expr import Ticks, Value
from accel.predicate.kinds import Family, Kind, kind_of, native

__all__ = [
    "MANY",
    "array_keys",
    "joined",
    "keys_between",
    "keys_near",
    "list_keys",
    "membership",
]

_End: TypeAlias = "tuple[int, bool, bool | int | float | bytes]"
"""One end of a range: the column, whether it is the upper end, and the inclusive value."""

MANY = 16
"""Fewest equalities of one column that become a membership test; fewer are as fast one by one."""


def membership(ordinal: int, column: BoundColumn, keys: Keys, *, with_null: bool) -> Node:
    """Return the node that tests whether a column's value is one of the keys."""
    count = len(keys.sorted) + keys.nan
    if count == 0:
        return Truth(None) if with_null else fixed(ordinal, column.kind, value=False)
    if column.kind.family is Family.BOOLEAN:
        if count == 2:
            return Fixed(ordinal, True)
        test = Against(ordinal, Order.EQ, bool(keys.sorted[0]))
        return AnyOf((test, Truth(None))) if with_null else test
    if count == 1 and not with_null:
        value = float("nan") if keys.nan else keys.sorted[0]
        return Against(ordinal, Order.EQ, value.item() if hasattr(value, "item") else value)
    return Among(ordinal, keys, with_null)


def joined(kind: type[AllOf | AnyOf], operands: Sequence[Node], columns: Sequence[BoundColumn]) -> Node:
    """Return the AND (OR) of the operands in a simpler form.

    Many inequalities (equalities) of one column become one membership test, and a range whose two ends are
    one value becomes an equality. Both forms agree on every row: they are null exactly where the column is.
    """
    operands = _with_points(kind, operands, columns)
    tests = [_equality(kind, node) for node in operands]
    counts = Counter(test.column for test in tests if test is not None)
    many = {
        column
        for column, count in counts.items()
        if count >= MANY and columns[column].kind.domain is not Domain.BOOLEAN
    }
    if not many:
        return operands[0] if len(operands) == 1 else kind(tuple(operands))

    out: list[Node] = []
    for column in sorted(many):
        values = {test.value for test in tests if test is not None and test.column == column}
        found = membership(
            column, columns[column], native_keys(values, columns[column].kind), with_null=False
        )
        out.append(found if kind is AnyOf else Negation(found))
    out += [
        node for node, test in zip(operands, tests, strict=True) if test is None or test.column not in many
    ]
    return out[0] if len(out) == 1 else kind(tuple(out))


def _equality(kind: type[AllOf | AnyOf], node: Node) -> Against | None:
    """Return the equality that a node is (in an AND: negates), or None."""
    if kind is AllOf:
        if not isinstance(node, Negation):
            return None
        node = node.operand
    return node if isinstance(node, Against) and node.order is Order.EQ else None


def _with_points(
    kind: type[AllOf | AnyOf], operands: Sequence[Node], columns: Sequence[BoundColumn]
) -> Sequence[Node]:
    """Replace `x >= v` and `x <= v` in an AND by `x = v`, and `x < v` and `x > v` in an OR by its negation.

    So indexes that answer only equality, as bloom filters do, can be used.
    """
    ends: dict[_End, int] = {}
    for at, node in enumerate(operands):
        for end in _ends(kind, node, columns):
            ends.setdefault(end, at)
    out: dict[int, Node] = dict(enumerate(operands))
    taken: set[int] = set()
    for (column, upper, value), at in ends.items():
        other = None if upper else ends.get((column, True, value))
        if other is None or other == at or not taken.isdisjoint((at, other)):
            continue
        taken |= {at, other}
        point = Against(column, Order.EQ, value)
        out[at] = point if kind is AllOf else Negation(point)
        del out[other]
    return list(out.values())


def _ends(kind: type[AllOf | AnyOf], node: Node, columns: Sequence[BoundColumn]) -> Sequence[_End]:
    """Return the ends of the range that a node allows in an AND, or excludes in an OR."""
    negated = isinstance(node, Negation)
    atom = node.operand if isinstance(node, Negation) else node
    if isinstance(atom, Fixed):
        of = columns[atom.column].kind
        # A test that is always true allows the whole range of the type.
        if of.domain is Domain.INTEGER and (atom.value is not negated) is (kind is AllOf):
            return (atom.column, False, of.limits[0]), (atom.column, True, of.limits[1])
        return ()
    if not isinstance(atom, Against) or atom.order is Order.EQ:
        return ()
    upper, value = negated is (kind is AnyOf), atom.value
    if columns[atom.column].kind.domain is Domain.INTEGER:
        return ((atom.column, upper, value if upper else int(value) + 1),)
    # Only an inclusive end can close a range of a single value.
    return ((atom.column, upper, value),) if upper is (atom.order is Order.LE) else ()


def list_keys(values: Iterable[Value], kind: Kind, *, where: str, position: int) -> Keys:
    """Convert literals (no None) to the keys that a column of this kind can hold.

    Raises PredicateError where a literal cannot be compared with the column.
    """
    found = {key(value, kind, where=where, position=position) for value in values}
    return native_keys((value for value in found if value is not None), kind)


def native_keys(values: Iterable[bool | int | float | bytes], kind: Kind) -> Keys:
    """Make keys of native values of the column, which are distinct except for NaN."""
    found = list(values)
    if kind.domain is Domain.FLOAT:
        return _keys(np.array(found, np.float64), kind)
    if kind.domain is Domain.BYTES:
        return _bytes_keys(sorted(value for value in found if isinstance(value, bytes)), kind)
    ordered = sorted(value for value in found if isinstance(value, int))
    return _keys(_integer_array(ordered, kind), kind)


def array_keys(values: pa.Array, kind: Kind, *, where: str, position: int) -> Keys:
    """Convert an Arrow array to keys, without its nulls; errors are those of `list_keys`."""
    values = whole(values)
    theirs = kind_of(values.type)
    if theirs.family is Family.NULL:
        return list_keys((), kind, where=where, position=position)
    if theirs.domain is Domain.BYTES and kind.domain is Domain.BYTES and theirs.family is kind.family:
        plain = pc.unique(native(values)).drop_null().cast(kind.native)
        ordered = plain.take(pc.array_sort_indices(plain))
        return Keys(ordered, _objects(ordered.to_pylist()))
    numbers = _same_group(values, theirs, kind)
    if numbers is not None:
        return _keys(numbers, kind)
    return list_keys(_python_values(values, theirs), kind, where=where, position=position)


def keys_near(keys: Keys, values: pa.Array) -> Keys:
    """Return the keys (at least one is given) that any of the values may equal: at most one for each
    value."""
    kind, ordered = kind_of(values.type), keys.sorted
    points: npt.NDArray[Any]
    if kind.domain is Domain.BYTES:
        points = _objects(values.drop_null().to_pylist())
    else:
        points = integers(values)
        if points.dtype == object:
            points = points[(points >= ordered[0]) & (points <= ordered[-1])]
        # A value outside the keys' type equals no key; whatever it wraps to does no harm.
        points = points.astype(ordered.dtype)
    places = sort_distinct(np.searchsorted(ordered, points))
    near = ordered[places[places < len(ordered)]]
    found = _bytes_keys(near.tolist(), kind) if kind.domain is Domain.BYTES else _keys(near, kind)
    return replace(found, nan=keys.nan)


def keys_between(keys: Keys, values: pa.Array) -> Keys:
    """Return the keys (at least one is given) between the least and the greatest of the values, which are
    native.

    Few of many keys lie within the values of one page of a sorted file.
    """
    ordered = keys.sorted
    ends = _extent(values)
    if ends is None:
        return replace(keys, values=keys.values.slice(0, 0), sorted=ordered[:0])
    # Within the limits of the keys' type, which may be narrower than that of the values.
    least, greatest = max(ends[0], _plain(ordered[0])), min(ends[1], _plain(ordered[-1]))
    start, stop = bisect_left(ordered, least), bisect_right(ordered, greatest)
    if stop - start == len(ordered):
        return keys
    if kind_of(values.type).domain is Domain.FLOAT:
        return replace(_keys(ordered[start:stop], kind_of(values.type)), nan=keys.nan)
    length = max(0, stop - start)
    return replace(keys, values=keys.values.slice(start, length), sorted=ordered[start : start + length])


def _extent(values: pa.Array) -> tuple[Any, Any] | None:
    """Return about the least and the greatest value, not counting NaN; None where there is none."""
    if values.null_count == len(values):
        return None
    if kind_of(values.type).domain is Domain.BYTES:
        ends = pc.min_max(values)
        return ends["min"].as_py(), ends["max"].as_py()
    numbers = integers(values)
    if numbers.dtype.kind != "f":
        return _plain(numbers.min()), _plain(numbers.max())
    least, greatest = np.fmin.reduce(numbers), np.fmax.reduce(numbers)
    return None if np.isnan(least) else (least.item(), greatest.item())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _same_group(values: pa.Array, theirs: Kind, kind: Kind) -> npt.NDArray[Any] | None:
    """Convert to native numbers of `kind`, unsorted, without impossible ones; None where numpy cannot do it
    exactly."""
    if Family.DURATION in (theirs.family, kind.family) and theirs.family is not kind.family:
        return None
    if theirs.family.group is not kind.family.group or not {theirs.domain, kind.domain} <= {
        Domain.INTEGER,
        Domain.FLOAT,
    }:
        return None
    plain = native(values)
    raw = integers(plain)[validity(plain)]
    if raw.dtype == object:
        return None
    if kind.domain is Domain.FLOAT:
        return raw.astype(np.float64) if theirs.denominator == 1 == theirs.numerator else None
    if theirs.domain is Domain.FLOAT:
        return _whole_floats(raw, kind) if kind.step == (1, 1) else None
    # v * theirs.step = n * kind.step, in lowest terms n = v * up / down.
    up, down = theirs.numerator * kind.denominator, theirs.denominator * kind.numerator
    shared = math.gcd(up, down)
    up, down = up // shared, down // shared
    if down > 1:
        if down > np.iinfo(np.int64).max:
            return None
        raw = raw.astype(np.int64, copy=False) if raw.dtype != np.uint64 else raw
        raw = raw[raw % down == 0] // down
    low, high = kind.limits
    low, high = -(-low // up), high // up
    info = np.iinfo(raw.dtype)
    if low > info.min:
        raw = raw[raw >= low]
    if high < info.max:
        raw = raw[raw <= high]
    width = np.uint64 if low == 0 or raw.dtype == np.uint64 else np.int64
    if up == 1:
        return raw
    if up > np.iinfo(np.int64).max:
        return None
    product = max((abs(int(raw.min())), abs(int(raw.max()))), default=0) * up if len(raw) else 0
    return raw.astype(width) * up if product <= np.iinfo(np.int64).max else None


def _whole_floats(raw: npt.NDArray[Any], kind: Kind) -> npt.NDArray[Any]:
    low, high = kind.limits
    # The limits as doubles: the upper one rounds up to a power of two, hence the strict test.
    fits = (raw >= float(low)) & (raw < float(high + 1)) & (raw == np.floor(raw))
    numbers = raw[fits]
    if len(numbers) and float(np.abs(numbers).max()) >= 1 << 63:
        # Decimals can hold these numbers, int64 cannot.
        return _integer_array(sorted({int(number) for number in numbers.tolist()}), kind)
    found: npt.NDArray[Any] = numbers.astype(np.uint64 if low == 0 else np.int64)
    return found


def _python_values(values: pa.Array, theirs: Kind) -> Iterable[Value]:
    if theirs.family in (Family.DATE, Family.TIMESTAMP, Family.TIME):
        plain = native(values)
        name = "time" if theirs.family is Family.TIME else "timestamp"
        for tick in integers(plain)[validity(plain)].tolist():
            yield Ticks(name, tick * theirs.numerator)
        return
    if theirs.family is Family.BOOLEAN:
        plain = native(values)
        yield from mask(plain)[validity(plain)].tolist()
        return
    if theirs.domain is Domain.BYTES and theirs.family is not Family.TEXT:
        plain = native(values)
        yield from plain.drop_null().to_pylist()
        return
    if theirs.family is Family.DURATION:
        # Durations of the column's own type were converted above; any duration makes `key` refuse the others.
        refused: Any = datetime.timedelta(0)
        yield from [refused] if values.null_count < len(values) else []
        return
    yield from (value for value in values.to_pylist() if value is not None)


def _integer_array(ordered: list[int], kind: Kind) -> npt.NDArray[Any]:
    if kind.native.bit_width > 64:
        return _objects(ordered)
    return np.array(ordered, np.uint64 if kind.limits[0] == 0 else np.int64)


def _keys(numbers: npt.NDArray[Any], kind: Kind) -> Keys:
    nan = False
    if kind.domain is Domain.FLOAT:
        without = numbers[~np.isnan(numbers)]
        nan = len(without) < len(numbers)
        numbers = sort_distinct(without + 0.0)
        # Arrow's hashing distinguishes the two zeros, so both become keys.
        hashed = np.append(numbers, -0.0) if bool((numbers == 0).any()) else numbers
        return Keys(integers_array(hashed, kind.native), numbers, nan)
    if kind.domain is Domain.BOOLEAN:
        return Keys(pa.nulls(0, pa.bool_()), numbers.astype(bool), False)
    if numbers.dtype != object:
        numbers = sort_distinct(numbers)
    return Keys(integers_array(numbers, kind.native), numbers, nan)


def _bytes_keys(ordered: list[bytes], kind: Kind) -> Keys:
    return Keys(bytes_array(ordered, kind.native), _objects(ordered))


def _objects(values: list[Any]) -> npt.NDArray[Any]:
    out = np.empty(len(values), object)
    out[:] = values
    return out
