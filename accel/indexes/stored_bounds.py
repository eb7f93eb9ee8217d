"""Bounds as they are stored, in a file or outside of the files: their ends are bytes (`bound_bytes`), decoded
for the type that a question compares them with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import bools, from_numpy, integers, mask, one, pack_bits, validity
from accel.errors import IndexFormatError
from accel.format.domain import Bounds, Domain
from accel.indexes.bound_bytes import End, decode_bounds, encode_bounds, encoded_whole
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.kinds import Family, Kind, kind_of

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["BOUND_FIELDS", "StoredBounds"]

BOUND_FIELDS: Final = (
    pa.field("family", pa.string(), nullable=False),
    pa.field("lower", pa.binary()),
    pa.field("upper", pa.binary()),
    pa.field("lower_exact", pa.bool_(), nullable=False),
    pa.field("upper_exact", pa.bool_(), nullable=False),
    pa.field("null_count", pa.int64()),
    pa.field("nan_count", pa.int64()),
    pa.field("num_rows", pa.int64(), nullable=False),
)
"""The columns of stored bounds in a table. `family` tells what values compare with."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredBounds:
    """The bounds of one column, or of an expression over it, in n units of rows."""

    families: str | Sequence[str]
    """What the values compare with, of all units or of each: the text of a `Family` that is a group."""
    lower: pa.Array
    """Binary, null where there is no bound."""
    upper: pa.Array
    lower_exact: Bools
    """Where the bound occurs, in the type that it was encoded from."""
    upper_exact: Bools
    num_values: Int64s
    """Values of each unit, nulls included; -1 unknown."""
    null_count: Int64s
    nan_count: Int64s

    def __len__(self) -> int:
        return len(self.num_values)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return int(self.lower.nbytes + self.upper.nbytes) + 40 * len(self)

    @classmethod
    def of(cls, bounds: Bounds, kind: pa.DataType) -> StoredBounds:
        """Encode bounds of values of a type.

        Parameters
        ----------
        bounds : Bounds
            In the ticks of the type, or of no domain.
        kind : pyarrow.DataType
            The type.
        """
        here = kind_of(kind)
        known = bounds if bounds.domain is here.domain else Bounds.unknown(bounds.num_values)
        return cls(
            families=here.family.group.value,
            lower=encode_bounds(known.lower, known.has_lower, kind=here, end=End.LOWER),
            upper=encode_bounds(known.upper, known.has_upper, kind=here, end=End.UPPER),
            lower_exact=_exact(known.lower, known.lower_exact, here),
            upper_exact=_exact(known.upper, known.upper_exact, here),
            num_values=bounds.num_values,
            null_count=bounds.null_count,
            nan_count=bounds.nan_count,
        )

    def compares_with(self, kind: pa.DataType) -> bool:
        """Return whether values of some unit compare with those of a type."""
        family = kind_of(kind).family.group.value
        return self.families == family if isinstance(self.families, str) else family in self.families

    def decode(self, kind: pa.DataType) -> Bounds:
        """Return the bounds in the ticks of a type; there are none where the values do not compare with it.

        Raises
        ------
        IndexFormatError
            A bound is not encoded as those of its family are.
        """
        here, n = kind_of(kind), len(self)
        family = here.family.group.value
        if isinstance(self.families, str):
            alike = np.full(n, self.families == family)
        else:
            alike = np.array([name == family for name in self.families], bool)
        # Columns of other types hold no NaN, and nobody counts any for them.
        nans = np.where(alike, self.nan_count, -1) if here.domain is Domain.FLOAT else np.zeros(n, np.int64)
        if here.domain is Domain.NONE:
            nans = self.nan_count
        low, has_low = decode_bounds(self.lower, kind=here, end=End.LOWER, wanted=alike)
        high, has_high = decode_bounds(self.upper, kind=here, end=End.UPPER, wanted=alike)
        return Bounds(
            here.domain, low, high, has_low, has_high, self.num_values, self.null_count, nans,
            self.lower_exact & alike, self.upper_exact & alike,
        )  # fmt: skip

    # -- tables ----------------------------------------------------------------------------------

    def arrays(self) -> list[pa.Array]:
        """Return the columns of a table, as `BOUND_FIELDS` has them."""
        if not isinstance(self.families, str):
            raise TypeError("bounds of several families are written part by part")
        return [
            pa.repeat(one(self.families.encode(), pa.string()), len(self)),
            self.lower,
            self.upper,
            bools(self.lower_exact),
            bools(self.upper_exact),
            _nullable(self.null_count),
            _nullable(self.nan_count),
            from_numpy(self.num_values),
        ]

    @classmethod
    def of_table(cls, table: pa.Table) -> StoredBounds:
        """Return the bounds in the rows of a table that has the columns of `BOUND_FIELDS`."""
        columns = {}
        for known in BOUND_FIELDS:
            column = table.column(known.name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.nulls(0, known.type)
            columns[known.name] = column
        return cls(
            families=columns["family"].to_pylist(),
            lower=columns["lower"],
            upper=columns["upper"],
            lower_exact=mask(columns["lower_exact"]),
            upper_exact=mask(columns["upper_exact"]),
            num_values=_known(columns["num_rows"]),
            null_count=_known(columns["null_count"]),
            nan_count=_known(columns["nan_count"]),
        )

    # -- embedded indexes ------------------------------------------------------------------------

    def write(self, out: BlobWriter) -> None:
        """Append the fields of an embedded index; whoever reads them knows the number of units."""
        if not isinstance(self.families, str):
            raise TypeError("bounds of several families are written part by part")
        out.block(self.families.encode())
        for counts in (self.num_values, self.null_count, self.nan_count):
            out.array(counts, "<i8")
        for ends, exact in ((self.lower, self.lower_exact), (self.upper, self.upper_exact)):
            out.flags(exact)
            out.optional_bytes(ends)

    @classmethod
    def read(cls, blob: BlobReader, units: int) -> StoredBounds:
        """Read what `write` wrote.

        Raises
        ------
        IndexFormatError
            They are other bytes, or contradict each other.
        """
        family = bytes(blob.block()).decode("utf-8", "replace")
        rows, nulls, nans = (blob.array(units, "<i8").astype(np.int64) for _ in range(3))
        good = (nulls >= 0) & (nans >= 0) & (nulls <= rows) & (nans <= rows - nulls)
        if not bool(good.all()):
            raise IndexFormatError("an index has counts that contradict each other")
        low_exact, lower = blob.flags(units), blob.optional_bytes(units)
        high_exact, upper = blob.flags(units), blob.optional_bytes(units)
        checked = _CHECKED.get(family)
        if checked is not None:
            for ends, end in ((lower, End.LOWER), (upper, End.UPPER)):
                decode_bounds(ends, kind=checked, end=end)
        return cls(family, lower, upper, low_exact, high_exact, rows, nulls, nans)


_CHECKED: Final = {
    Family.BOOLEAN.value: kind_of(pa.bool_()),
    **dict.fromkeys(
        (one.value for one in (Family.INTEGER, Family.TIMESTAMP, Family.TIME, Family.DURATION)),
        kind_of(pa.float64()),
    ),
}
"""The kinds as which the bytes of a family are checked; those of others may be any."""


def _exact(ends: npt.NDArray[Any], exact: Bools | None, kind: Kind) -> Bools:
    """Return which bounds occur, and still do after they were encoded."""
    if exact is None or not bool(exact.any()):
        return np.zeros(len(ends), bool)
    return exact & encoded_whole(ends, kind)


def _nullable(counts: Int64s) -> pa.Array:
    """Return counts, null where one is unknown."""
    known = counts >= 0
    nulls = None if bool(known.all()) else pa.py_buffer(pack_bits(known))
    buffers = [nulls, pa.py_buffer(np.ascontiguousarray(counts, np.int64).tobytes())]
    return pa.Array.from_buffers(pa.int64(), len(counts), buffers, len(counts) - int(known.sum()))


def _known(array: pa.Array) -> Int64s:
    """Return counts, -1 where one is unknown."""
    return np.where(validity(array), np.asarray(integers(array), np.int64), -1)
