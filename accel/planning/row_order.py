"""The order of the rows of a result: `order_by`, how its keys compare, and the first rows of it.

Numbers, dates and texts compare as in a predicate: texts by their UTF-8 bytes, -0.0 as 0.0. NaN comes after
the numbers in either direction, and null after NaN; with NULLS FIRST both come before, null first. Rows that
compare equal stay in the order of the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.arrays import integers, mask, validity, whole
from accel.format.domain import Bounds, Domain
from accel.predicate.kinds import kind_of, native

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["ANY", "Rank", "SortKey", "best_ranks", "order_rows", "parse_order", "rank_of", "worst_ranks"]

T = TypeVar("T")

_ITEM: Final = re.compile(
    r"\s*(?P<name>(?:\"(?:[^\"]|\"\")*\"|[^\s,\"])+)(?:\s+(?P<way>asc|desc|ascending|descending))?"
    r"(?:\s+nulls\s+(?P<nulls>first|last))?\s*(?:,|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of an order."""

    column: str
    """As the caller wrote it: a name, or a dotted path into structs."""
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        way = f"{self.column} {'DESC' if self.descending else 'ASC'}"
        return f"{way} NULLS FIRST" if self.nulls_first else way

    def is_before(self, one: Rank, other: Rank) -> bool:
        """Return whether a value of one rank comes before one of the other."""
        if one[0] != other[0]:
            return one[0] < other[0]
        if one[0] != _class_of_values(self):
            return False
        return bool(one[1] > other[1] if self.descending else one[1] < other[1])

    def sort(self, items: Sequence[T], rank: Callable[[T], Rank]) -> list[T]:
        """Return items in the order of their ranks; those of equal rank stay in their order."""
        classes: dict[int, list[T]] = {}
        for item in items:
            classes.setdefault(rank(item)[0], []).append(item)
        values = classes.get(_class_of_values(self))
        if values is not None:
            values.sort(key=lambda item: rank(item)[1], reverse=self.descending)
        return [item for place in sorted(classes) for item in classes[place]]


Rank = tuple[int, Any]
"""The place of a value: the class, of which a lower one comes first, and within the class of values a native
value, as `predicate.kinds` has it."""
ANY: Final[Rank] = (-1, None)
"""Comes before all values: that of rows of which nothing is known."""


def parse_order(order: Any) -> tuple[SortKey, ...]:
    """Read what a caller gives as `order_by`.

    Parameters
    ----------
    order : str, or sequence of str or of (str, str)
        "ts desc, id"; or the columns one by one, as texts or as pyarrow's pairs of a name and "ascending" or
        "descending".

    Raises
    ------
    TypeError, ValueError
        It is none of these.
    """
    if isinstance(order, str):
        keys = _parse(order)
    elif isinstance(order, list | tuple) and order:
        keys = [key for one in order for key in _parse_one(one)]
    else:
        raise TypeError(f'order_by is text such as "ts desc, id", or a list of such, not {order!r:.80}')
    names = [key.column for key in keys]
    if len(set(names)) < len(names):
        raise ValueError(f"order_by names a column twice: {', '.join(names)}")
    return tuple(keys)


def _parse_one(one: Any) -> list[SortKey]:
    if isinstance(one, str):
        return _parse(one)
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str):
        ways = {"ascending": False, "asc": False, "descending": True, "desc": True}
        if one[1] in ways:
            return [SortKey(one[0], descending=ways[one[1]])]
    raise ValueError(
        f'order_by takes texts such as "ts desc", and pairs such as ("ts", "descending"): {one!r:.80}'
    )


def _parse(text: str) -> list[SortKey]:
    keys, at = [], 0
    while True:
        found = _ITEM.match(text, at)
        if found is None:
            raise ValueError(
                f"order_by {text!r:.80} is not understood at {text[at:]!r:.40}: write a column, ASC or DESC, "
                "and NULLS FIRST or LAST; a name with spaces goes in double quotes"
            )
        way, nulls = (found["way"] or "").lower(), (found["nulls"] or "").lower()
        keys.append(SortKey(found["name"], descending=way.startswith("desc"), nulls_first=nulls == "first"))
        at = found.end()
        if not text[found.start() : at].rstrip().endswith(","):
            return keys


# -- ranks ---------------------------------------------------------------------------------------------


def _class_of_values(key: SortKey) -> int:
    return 2 if key.nulls_first else 0


def _class_of_nulls(key: SortKey) -> int:
    return 0 if key.nulls_first else 2


_CLASS_OF_NANS: Final = 1


def best_ranks(key: SortKey, bounds: Bounds) -> list[Rank]:
    """Return for each unit a rank that no row of it comes before; ANY where nothing is known."""
    has, ends = (bounds.has_upper, bounds.upper) if key.descending else (bounds.has_lower, bounds.lower)
    values, nulls, nans = bounds.num_values, bounds.null_count, bounds.nan_count
    may_null = nulls != 0
    may_nan = (nans != 0) & (bounds.domain is Domain.FLOAT)
    only_null = (nulls == values) & (values >= 0)
    only_none = only_null | ((nulls >= 0) & (nans >= 0) & (nulls + nans == values) & (values >= 0))
    out: list[Rank] = []
    of_values, of_nulls = _class_of_values(key), _class_of_nulls(key)
    flags = zip(*(one.tolist() for one in (ends, has, may_null, may_nan, only_null, only_none)), strict=True)
    for value, known, null, nan, only, every in flags:
        if key.nulls_first and null:
            out.append((of_nulls, None))
        elif key.nulls_first and nan:
            out.append((_CLASS_OF_NANS, None))
        elif only:
            out.append((of_nulls, None))
        elif every:
            out.append((_CLASS_OF_NANS, None))
        elif known:
            out.append((of_values, value))
        else:
            out.append(ANY)
    return out


def worst_ranks(key: SortKey, bounds: Bounds) -> list[tuple[int, Rank | None]]:
    """Return for each unit a number of its rows, and a rank that none of these comes after; None where there
    is no such row for certain."""
    has, ends = (bounds.has_lower, bounds.lower) if key.descending else (bounds.has_upper, bounds.upper)
    out: list[tuple[int, Rank | None]] = []
    of_values = _class_of_values(key)
    columns = bounds.num_values, bounds.null_count, bounds.nan_count, has, ends
    counts = zip(*(one.tolist() for one in columns), strict=True)
    for rows, nulls, nans, known, value in counts:
        if key.nulls_first:
            # Null and NaN come before all values.
            out.append((rows, (of_values, value)) if known and rows > 0 else (0, None))
        elif known and rows >= 0 and nulls >= 0 and nans >= 0 and rows > nulls + nans:
            out.append((rows - nulls - nans, (of_values, value)))
        else:
            out.append((0, None))
    return out


# -- rows ----------------------------------------------------------------------------------------------


def order_rows(
    keys: Sequence[SortKey], columns: Sequence[pa.Array | pa.ChunkedArray], places: Sequence[Int64s]
) -> Int64s:
    """Return the places of rows in their order.

    Parameters
    ----------
    keys : sequence of SortKey
    columns : sequence of arrays
        The values of each key.
    places : sequence of arrays
        What decides among rows that compare equal, the most important one first.
    """
    by: list[Any] = []
    for key, column in zip(keys, columns, strict=True):
        by += _codes(key, whole(column))
    by += places
    order: Int64s = np.lexsort(tuple(reversed(by)))
    return order


def rank_of(key: SortKey, column: pa.Array | pa.ChunkedArray, row: int) -> Rank:
    """Return the rank of one value of a column."""
    array = whole(column).slice(row, 1)
    values, valid, nan = _natives(array)
    if not valid[0]:
        return _class_of_nulls(key), None
    if nan[0]:
        return _CLASS_OF_NANS, None
    value = values[0]
    return _class_of_values(key), value.item() if hasattr(value, "item") else value


def _natives(array: pa.Array) -> tuple[Any, Any, Any]:
    """Return native values, which of them there are, and which are NaN."""
    domain = kind_of(array.type).domain
    valid = validity(array)
    plain = native(array)
    nan = np.zeros(len(array), bool)
    if domain is Domain.BYTES:
        values = np.empty(len(array), object)
        values[:] = [value or b"" for value in plain.to_pylist()]
    elif domain is Domain.BOOLEAN:
        values = mask(plain)
    elif domain is Domain.NONE:
        values = np.zeros(len(array), np.int64)
    else:
        values = integers(plain)
        if domain is Domain.FLOAT:
            nan = np.isnan(values) & valid
            values = np.where(nan, 0.0, values) + 0.0
    return values, valid, nan


def _codes(key: SortKey, array: pa.Array) -> list[Any]:
    """Return what rows are compared by: their classes, and the places of their values among all."""
    values, valid, nan = _natives(array)
    classes = np.full(len(array), _class_of_values(key), np.int8)
    classes[nan] = _CLASS_OF_NANS
    classes[~valid] = _class_of_nulls(key)
    codes = np.zeros(len(array), np.int64)
    real = valid & ~nan
    if real.any():
        _, inverse = np.unique(values[real], return_inverse=True)
        codes[real] = -inverse if key.descending else inverse
    return [classes, codes]
