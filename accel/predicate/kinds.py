"""How columns compare by their Arrow types: family, order and native values."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

import pyarrow as pa

from accel.arrays import relabel
from accel.format.domain import Domain, extension_name, storage_type

__all__ = ["Family", "Kind", "kind_of", "native", "reads_alike"]

_DAY = 86_400_000_000_000
_TICKS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class Family(enum.Enum):
    """The families of types; two columns compare when their families have one group."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BINARY = "binary"
    UUID = "uuid"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    NULL = "null"
    OPAQUE = "opaque"
    """Lists, structs, maps, unions, intervals: only IS [NOT] NULL."""

    @property
    def group(self) -> Family:
        """The group of families that compare with each other."""
        return _GROUPS.get(self, self)


_GROUPS = {
    Family.DECIMAL: Family.INTEGER,
    Family.FLOAT: Family.INTEGER,
    Family.DATE: Family.TIMESTAMP,
    Family.BINARY: Family.TEXT,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of one Arrow type compare.

    A native integer n stands for n * `numerator` / `denominator`: a number, or nanoseconds from
    midnight or from 1970-01-01T00:00:00 UTC.
    """

    family: Family
    domain: Domain
    native: pa.DataType
    """The Arrow type whose kernels compare the values in the family's order."""
    numerator: int = 1
    denominator: int = 1

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest native integer."""
        bits: int = self.native.bit_width
        if pa.types.is_unsigned_integer(self.native):
            return 0, (1 << bits) - 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @property
    def step(self) -> tuple[int, int]:
        return self.numerator, self.denominator


def kind_of(kind: pa.DataType) -> Kind:
    """Return how values of an Arrow type compare."""
    # Extension types written in Python are not hashable.
    return _kind_of(storage_type(kind), extension_name(kind))


@functools.lru_cache(maxsize=512)
def _kind_of(kind: pa.DataType, name: str) -> Kind:
    """Return the kind of a plain type that is the storage of the named extension, if any."""
    if name == "arrow.uuid":
        return Kind(Family.UUID, Domain.BYTES, pa.binary())
    if name == "arrow.bool8":
        return Kind(Family.BOOLEAN, Domain.BOOLEAN, pa.bool_())
    t = pa.types
    if t.is_boolean(kind):
        return Kind(Family.BOOLEAN, Domain.BOOLEAN, pa.bool_())
    if t.is_integer(kind):
        return Kind(Family.INTEGER, Domain.INTEGER, kind)
    if t.is_floating(kind):
        return Kind(Family.FLOAT, Domain.FLOAT, pa.float64())
    if t.is_decimal(kind):
        up, down = 10 ** max(-kind.scale, 0), 10 ** max(kind.scale, 0)
        return Kind(Family.DECIMAL, Domain.INTEGER, _DECIMALS[kind.bit_width], up, down)
    if t.is_string(kind):
        return Kind(Family.TEXT, Domain.BYTES, pa.binary())
    if t.is_large_string(kind) or t.is_string_view(kind):
        return Kind(Family.TEXT, Domain.BYTES, pa.large_binary())
    if t.is_binary(kind) or t.is_fixed_size_binary(kind):
        return Kind(Family.BINARY, Domain.BYTES, pa.binary())
    if t.is_large_binary(kind) or t.is_binary_view(kind):
        return Kind(Family.BINARY, Domain.BYTES, pa.large_binary())
    if t.is_null(kind):
        return Kind(Family.NULL, Domain.NONE, kind)
    return _temporal(kind) or Kind(Family.OPAQUE, Domain.NONE, kind)


def reads_alike(kind: Kind, other: Kind) -> bool:
    """Return whether a literal compares the same with equal values of either kind."""
    families = {kind.family, other.family}
    if families == {Family.DURATION}:
        # A literal counts the column's own ticks.
        return kind.step == other.step
    return len(families) == 1 or Family.NULL in families or families == {Family.INTEGER, Family.DECIMAL}


_DECIMALS = {
    32: pa.int32(),
    64: pa.int64(),
    128: pa.decimal128(38, 0),
    256: pa.decimal256(76, 0),
}


def _temporal(kind: pa.DataType) -> Kind | None:
    t = pa.types
    if t.is_date32(kind):
        return Kind(Family.DATE, Domain.INTEGER, pa.int32(), _DAY)
    if t.is_date64(kind):
        return Kind(Family.DATE, Domain.INTEGER, pa.int64(), _TICKS["ms"])
    if t.is_time(kind):
        width = pa.int32() if t.is_time32(kind) else pa.int64()
        return Kind(Family.TIME, Domain.INTEGER, width, _TICKS[kind.unit])
    if t.is_timestamp(kind):
        return Kind(Family.TIMESTAMP, Domain.INTEGER, pa.int64(), _TICKS[kind.unit])
    if t.is_duration(kind):
        return Kind(Family.DURATION, Domain.INTEGER, pa.int64(), _TICKS[kind.unit])
    return None


def native(array: pa.Array) -> pa.Array:
    """Return the values in `kind_of(array.type).native`, without a copy where the layout is the same.

    A dictionary is decoded, so callers that can work on the dictionary do so first.
    """
    kind = kind_of(array.type)
    is_bool8 = extension_name(array.type) == "arrow.bool8"
    if pa.types.is_dictionary(array.type):
        return native(array.dictionary).take(array.indices)
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    to = kind.native
    if array.type == to:
        return array
    if is_bool8:
        # The storage is int8; its cast to bool tests for nonzero.
        return array.cast(to)
    if kind.domain in (Domain.INTEGER, Domain.NONE):
        return relabel(array, to) if kind.domain is Domain.INTEGER else array
    if (array.type.id, to.id) in _SAME_LAYOUT:
        # A cast would give the same buffers but import pyarrow.compute.
        return relabel(array, to)
    return array.cast(to)


_SAME_LAYOUT = {(pa.string().id, pa.binary().id), (pa.large_string().id, pa.large_binary().id)}
