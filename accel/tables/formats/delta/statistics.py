"""The statistics of a Delta log, as bounds of columns with a value for each file.

They are claims of the writer, by physical name. A bound is widened wherever writers are known to cut values:
timestamps at milliseconds, texts at some length, decimals and floats in JSON at what their numbers hold. What
has another type than its column is no bound.

Source: the Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy, make_scalar, mask
from accel.errors import TableFormatError
from accel.planning.column_bounds import ColumnBounds
from accel.tables.formats.delta.actions import BLOCK_BYTES, parse_lines
from accel.tables.formats.delta.schema import StatisticsLeaf

__all__ = ["FileStatistics", "read_parsed", "read_texts"]

_ABOVE_ALL: Final = "\U0010ffff"
"""The greatest character: a text that was cut, followed by it, is greater than what was cut off it."""
_NOTHING: Final = make_scalar("", pa.string())
_ZERO: Final = make_scalar(0, pa.int64())
_SAFE_DIGITS: Final = 15
"""Decimal digits that a double has, whatever the number."""


@dataclass(frozen=True, slots=True, eq=False)
class FileStatistics:
    """What the statistics of some files say of some columns, an element for each file."""

    num_rows: pa.Array
    bounds: Mapping[tuple[str, ...], ColumnBounds]
    """By the path of the column in the table."""

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        arrays = (array for found in self.bounds.values() for array in found.arrays if array is not None)
        return int(self.num_rows.nbytes + sum(array.nbytes for array in arrays)) + 256

    def take(self, at: pa.Array) -> FileStatistics:
        """Return those of some files."""
        return FileStatistics(
            self.num_rows.take(at), {path: found.take(at) for path, found in self.bounds.items()}
        )

    def slice(self, start: int, stop: int) -> FileStatistics:
        """Return those of files that follow each other."""
        return FileStatistics(
            self.num_rows.slice(start, stop - start),
            {path: found.slice(start, stop) for path, found in self.bounds.items()},
        )

    @classmethod
    def concat(cls, parts: Sequence[FileStatistics]) -> FileStatistics:
        """Return those of several lists of files, one after the other."""
        if len(parts) == 1:
            return parts[0]

        lengths = [len(part.num_rows) for part in parts]
        return cls(
            pa.concat_arrays([part.num_rows for part in parts]),
            {
                path: ColumnBounds.concat([part.bounds[path] for part in parts], lengths)
                for path in parts[0].bounds
            },
        )


def read_texts(texts: pa.Array, leaves: Sequence[StatisticsLeaf]) -> tuple[FileStatistics, int]:
    """Return what statistics in JSON say, and how many of them could not be read.

    Parameters
    ----------
    texts : pyarrow.Array
        Of strings; null where there are none.
    leaves : sequence of StatisticsLeaf
        The columns that are wanted.
    """
    schema = _json_schema(leaves)
    bad = 0
    parts = []
    rows = max(1, len(texts) * BLOCK_BYTES // max(1, texts.nbytes))
    for start in range(0, max(1, len(texts)), rows):
        struct, wrong = _parsed_texts(texts.slice(start, rows), schema)
        parts.append(read_parsed(struct, leaves, json_numbers=True))
        bad += wrong
    return FileStatistics.concat(parts), bad


def _parsed_texts(texts: pa.Array, schema: pa.Schema) -> tuple[pa.StructArray, int]:
    """Return the fields of statistics in JSON, and how many of them could not be read."""
    try:
        data = "\n".join(pc.fill_null(texts, make_scalar("{}", pa.string())).to_pylist()).encode()
        table = parse_lines(data, schema)
        if table.num_rows != len(texts):
            raise TableFormatError("statistics are not a line each")
        rows = [column.combine_chunks() for column in table.columns]
        return pa.StructArray.from_arrays(
            [one.chunk(0) if isinstance(one, pa.ChunkedArray) else one for one in rows], fields=list(schema)
        ), 0
    except (TableFormatError, UnicodeError):
        return _one_by_one(texts, schema)


def read_parsed(
    struct: pa.StructArray, leaves: Sequence[StatisticsLeaf], *, json_numbers: bool = False
) -> FileStatistics:
    """Return what statistics in columns say.

    Parameters
    ----------
    struct : pyarrow.StructArray
        With the fields of statistics; any of them may be missing.
    leaves : sequence of StatisticsLeaf
        The columns that are wanted.
    json_numbers : bool
        Whether decimals were numbers in JSON, which writers round.
    """
    rows = _counts(_field(struct, ("numRecords",)), len(struct))
    tight = _field(struct, ("tightBounds",))
    wide = (
        np.zeros(len(struct), bool)
        if tight is None
        else ~mask(pc.fill_null(tight, make_scalar(True, pa.bool_())))
    )
    bounds = {}
    for leaf in leaves:
        nulls = _counts(_field(struct, ("nullCount", *leaf.physical)), len(struct))
        if wide.any():
            # After rows were deleted the count stands only where none or all are null.
            certain = pc.or_(pc.equal(nulls, _ZERO), pc.equal(nulls, rows))
            nulls = pc.if_else(pc.or_kleene(from_numpy(~wide), certain), nulls, make_scalar(None, pa.int64()))
        lower = upper = None
        if _bounded(leaf.type):
            lower = _bound(_field(struct, ("minValues", *leaf.physical)), leaf, -1, json_numbers)
            upper = _bound(_field(struct, ("maxValues", *leaf.physical)), leaf, 1, json_numbers)
        bounds[leaf.path] = ColumnBounds(lower=lower, upper=upper, null_count=nulls)
    return FileStatistics(rows, bounds)


def _bounded(kind: pa.DataType) -> bool:
    """Return whether columns of a type have bounds in statistics."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _json_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else pa.string()


def _json_schema(leaves: Sequence[StatisticsLeaf]) -> pa.Schema:
    bounded = {leaf.physical: _json_type(leaf.type) for leaf in leaves if _bounded(leaf.type)}
    fields = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    if bounded:
        fields += [(name, _tree(bounded)) for name in ("minValues", "maxValues")]
    if leaves:
        fields.append(("nullCount", _tree({leaf.physical: pa.int64() for leaf in leaves})))
    return pa.schema(fields)


def _tree(leaves: Mapping[tuple[str, ...], pa.DataType]) -> pa.DataType:
    """Return the struct that has leaves at paths."""
    below: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for path, kind in leaves.items():
        below.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct([(name, found[()] if () in found else _tree(found)) for name, found in below.items()])


def _one_by_one(texts: pa.Array, schema: pa.Schema) -> tuple[pa.StructArray, int]:
    """Read statistics of which some are damaged; return how many have something else than they should."""
    bad = 0
    out: list[Any] = []
    for data in texts.cast(pa.binary()).to_pylist():
        if data is None:
            out.append(None)
            continue
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):  # UnicodeDecodeError among them
            found = None
        fitting, whole = _fitting(found, pa.struct(list(schema)))
        bad += not whole
        out.append(fitting)
    return pa.array(out, pa.struct(list(schema))), bad


def _fitting(found: Any, kind: pa.DataType) -> tuple[Any, bool]:
    """Return the part of a value that is of a type, and whether that is all of it."""
    if found is None:
        return None, True
    if pa.types.is_struct(kind):
        if not isinstance(found, dict):
            return None, False
        parts = {field.name: _fitting(found.get(field.name), field.type) for field in kind}
        return {name: value for name, (value, _) in parts.items()}, all(whole for _, whole in parts.values())
    if pa.types.is_boolean(kind):
        fits = isinstance(found, bool)
    elif pa.types.is_string(kind):
        # A lone surrogate is no character.
        fits = isinstance(found, str) and not any("\ud800" <= one <= "\udfff" for one in found)
    elif isinstance(found, bool) or not isinstance(found, int | float):
        # NaN and infinities are texts, and no bounds.
        fits = isinstance(found, str) and pa.types.is_floating(kind) and found in _NOT_FINITE
        return None, fits
    elif pa.types.is_integer(kind):
        fits = isinstance(found, int) and -(1 << 63) <= found < 1 << 63
    else:
        try:
            return float(found), True
        except OverflowError:
            fits = False
    return (found if fits else None), fits


_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity", "+Infinity", "Inf", "-Inf")


def _field(struct: pa.StructArray, path: Sequence[str]) -> pa.Array | None:
    """Return a field of a struct, null where one above it is; None where there is none."""
    array: pa.Array = struct
    for name in path:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return None
        array = pc.struct_field(array, name)
    return array


def _counts(array: pa.Array | None, n: int) -> pa.Array:
    """Return counts, null where they are unknown or no counts."""
    if array is None or not pa.types.is_integer(array.type):
        return pa.nulls(n, pa.int64())
    counts = array.cast(pa.int64())
    return pc.if_else(pc.greater_equal(counts, _ZERO), counts, make_scalar(None, pa.int64()))


def _bound(array: pa.Array | None, leaf: StatisticsLeaf, side: int, json_numbers: bool) -> pa.Array | None:
    """Return bounds of one side in the type of their column, wide enough; None where there are none."""
    if array is None:
        return None
    kind = leaf.type
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    try:
        if pa.types.is_timestamp(kind):
            return _instants(array, kind, side)
        if pa.types.is_decimal(kind) and pa.types.is_floating(array.type):
            return _decimals(array, kind, side)
        if pa.types.is_string(kind):
            if not pa.types.is_string(array.type):
                return None
            # However short: nothing says at which length writers cut.
            return (
                array
                if side < 0
                else pc.binary_join_element_wise(array, make_scalar(_ABOVE_ALL, pa.string()), _NOTHING)
            )
        if pa.types.is_floating(kind):
            return _floats(array, kind, side, rounded=json_numbers and leaf.widened)
        if pa.types.is_integer(kind) and pa.types.is_integer(array.type):
            return _integers(array, kind)
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _integers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    bits = kind.bit_width
    limit = 1 << (bits - 1)
    fits = pc.and_(
        pc.greater_equal(array, make_scalar(-limit, pa.int64())),
        pc.less_equal(array, make_scalar(limit - 1, pa.int64())),
    )
    return pc.if_else(fits, array, make_scalar(None, array.type)).cast(kind)


def _floats(array: pa.Array, kind: pa.DataType, side: int, *, rounded: bool) -> pa.Array:
    if not rounded:
        if pa.types.is_float32(kind) and pa.types.is_float64(array.type):
            finite = pc.less_equal(pc.abs(array), make_scalar(float(np.finfo(np.float32).max), pa.float64()))
            return pc.if_else(finite, array, make_scalar(None, pa.float64())).cast(kind)
        return array.cast(kind)
    # The texts were of floats, of which the shortest is not the number itself.
    values = np.nan_to_num(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
    with np.errstate(over="ignore"):
        nearest = np.nextafter(values.astype(np.float32), np.float32(side * np.inf)).astype(np.float64)
    wide = np.minimum(values, nearest) if side < 0 else np.maximum(values, nearest)
    return pc.if_else(array.is_valid(), from_numpy(wide), make_scalar(None, pa.float64())).cast(kind)


def _decimals(array: pa.Array, kind: pa.Decimal128Type, side: int) -> pa.Array:
    """Return decimals of which a writer, or the reading of JSON, has made doubles."""
    values = array
    if kind.precision > _SAFE_DIGITS:
        numbers = np.nan_to_num(array.to_numpy(zero_copy_only=False))
        for _ in range(4):
            numbers = np.nextafter(numbers, side * np.inf)
        values = pc.if_else(
            array.is_valid(),
            from_numpy(numbers + side * 10.0**-kind.scale),
            make_scalar(None, pa.float64()),
        )
    # What lies beyond the type bounds nothing that is in it.
    most = 10.0 ** (kind.precision - kind.scale)
    fits = pc.less(pc.abs(values), make_scalar(most * (1 - 1e-15), pa.float64()))
    values = pc.if_else(fits, values, make_scalar(None, pa.float64()))
    return values.cast(kind, safe=False) if hasattr(kind, "precision") else values


def _instants(array: pa.Array, kind: pa.TimestampType, side: int) -> pa.Array:
    """Return times, whose upper bounds were cut at milliseconds."""
    if pa.types.is_string(array.type):
        zoned = pc.match_substring_regex(array, r"(?:Z|[+-]\d\d:?\d\d)$")
        whole = pc.if_else(
            zoned, array, pc.binary_join_element_wise(array, make_scalar("Z", pa.string()), _NOTHING)
        )
        found = whole.cast(pa.timestamp("us", "UTC"))
    else:
        found = array.cast(pa.timestamp("us", "UTC" if getattr(array.type, "tz", None) else None))
    numbers = found.cast(pa.int64())
    if side > 0:
        # A bound near the end of time is none.
        ahead = pc.less(numbers, make_scalar(1 << 62, pa.int64()))
        numbers = pc.add(
            pc.if_else(ahead, numbers, make_scalar(None, pa.int64())), make_scalar(999, pa.int64())
        )
    return numbers.cast(kind)
