"""Bounds as bytes: the order of the bytes is the order of the values, so that any store compares them as it
compares byte strings.

There is one encoding for each way in which values compare, whatever type a file stores them in:

- Numbers, and instants, dates, times and durations as nanoseconds: ten bytes. The first two hold the sign and
  the exponent to the base 2, the other eight the mantissa, whose highest bit is set; of a negative number all
  bits are inverted. Integers of 64 bits and doubles are exact. Of longer ones the lower bound is rounded down
  and the upper bound is rounded up.
- Text, binary values and UUIDs: the value itself. A longer value than `LONGEST` is cut; an upper bound that
  is cut is raised, so that it stays above all values.
- Booleans: one byte, 0 or 1.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import bytes_array, pack_bits, validity
from accel.errors import IndexFormatError
from accel.format.domain import Domain
from accel.predicate.atoms import successor
from accel.predicate.kinds import Kind

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["LONGEST", "End", "decode_bounds", "encode_bounds", "encode_natives", "encoded_whole"]

LONGEST: Final = 64
"""Bytes of a bound of text or binary; a longer one is cut."""

_WIDTH: Final = 10
_MANTISSA_BITS: Final = 64
_BIAS: Final = 0x4000
_POSITIVE: Final = 0x8000
_INFINITE: Final = 0x7FFF
_INT64_LIMIT: Final = 1 << 63
_CERTAIN: Final = 1 << 62
"""Between the bounds of a smaller native integer, whatever it stands for, there is no other one."""
_LEAST_NORMAL: Final = -1021
"""The exponent of the least double that has all bits of its mantissa."""

_Values = npt.NDArray[Any]
_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]


class End(enum.Enum):
    """The end of a range that a bound is of: what is not exact is moved outward."""

    LOWER = "lower"
    UPPER = "upper"


def encode_bounds(values: _Values, has: Bools, *, kind: Kind, end: End) -> pa.Array:
    """Encode bounds.

    Parameters
    ----------
    values : numpy array
        Native values of `kind`, as `Bounds` has them.
    has : array of bool
        Where there is a bound.
    kind : Kind
        How the column compares.
    end : End

    Returns
    -------
    pyarrow.BinaryArray
        Null where there is no bound.
    """
    if kind.domain is Domain.BYTES:
        cut = [
            _cut(value, end) if there else None
            for value, there in zip(values.tolist(), has.tolist(), strict=True)
        ]
        return bytes_array(cut, pa.binary())
    if kind.domain is Domain.BOOLEAN:
        return _as_binary(values.astype(np.uint8)[:, None], has)
    if kind.domain is Domain.NONE:
        return pa.nulls(len(values), pa.binary())
    if kind.domain is Domain.FLOAT:
        heads, mantissas = _pack_floats(np.where(has, values, 0.0).astype(np.float64))
    else:
        heads, mantissas = _pack_integers(np.where(has, values, 0), kind, end)
    rows = np.empty((len(values), _WIDTH), np.uint8)
    rows[:, :2] = heads.astype(">u2").view(np.uint8).reshape(-1, 2)
    rows[:, 2:] = mantissas.astype(">u8").view(np.uint8).reshape(-1, 8)
    return _as_binary(rows, has)


def encode_natives(values: Sequence[Any], kind: Kind, end: End) -> list[bytes | None]:
    """Return the bounds of some native values; None for None, and where nothing of this length is above."""
    has = np.array([value is not None for value in values], bool)
    filler: Any = b"" if kind.domain is Domain.BYTES else 0
    ends = np.empty(len(values), {Domain.FLOAT: float, Domain.BOOLEAN: bool}.get(kind.domain, object))
    ends[:] = [filler if value is None else value for value in values]
    found: list[bytes | None] = encode_bounds(ends, has, kind=kind, end=end).to_pylist()
    return found


def decode_bounds(
    encoded: pa.Array, *, kind: Kind, end: End, wanted: Bools | None = None
) -> tuple[_Values, Bools]:
    """Decode bounds into native values of `kind`, which may differ from the kind that they were encoded from
    as far as both compare with each other. Where `wanted` is given, only those are decoded.

    Returns
    -------
    values : numpy array
        The tightest native values that are still bounds.
    has : array of bool
        Where there is a bound.

    Raises
    ------
    IndexFormatError
        A bound is not as long as its encoding has it.
    """
    has = validity(encoded)
    if wanted is not None:
        has = has & wanted
    if kind.domain is Domain.BYTES:
        values = np.empty(len(encoded), object)
        values[:] = [b"" if value is None else value for value in encoded.to_pylist()]
        return values, has
    if kind.domain is Domain.NONE:
        return np.zeros(len(encoded), np.int64), np.zeros(len(encoded), bool)
    if kind.domain is Domain.BOOLEAN:
        flags = _from_binary(encoded, has, 1)[:, 0]
        if bool((flags > 1).any()):
            raise IndexFormatError("a stored bound is no truth value")
        return flags == 1, has
    rows = _from_binary(encoded, has, _WIDTH)
    heads = rows[:, :2].copy().view(">u2")[:, 0].astype(np.int64)
    mantissas = rows[:, 2:].copy().view(">u8")[:, 0].astype(np.uint64)
    negative = heads < _POSITIVE
    heads = np.where(negative, ~heads & 0xFFFF, heads) & 0x7FFF
    mantissas = np.where(negative, ~mantissas, mantissas)
    zero = (heads == 0) & (mantissas == 0) | ~has
    exponents = np.where(zero, 0, heads - _BIAS)
    mantissas = np.where(zero, np.uint64(0), mantissas)
    if bool((has & ~zero & (mantissas >> np.uint64(63) == 0)).any()):
        raise IndexFormatError("a stored bound is no number")
    if kind.domain is Domain.FLOAT:
        return _to_floats(exponents, mantissas, negative & ~zero, end), has
    infinite = has & (heads == _INFINITE)
    if bool(infinite.any()):
        # No integer is infinite: such a bound bounds nothing.
        has = has & ~infinite
        exponents, mantissas = np.where(infinite, 0, exponents), np.where(infinite, np.uint64(0), mantissas)
    return _to_integers(exponents, mantissas, negative, kind=kind, end=end), has


def encoded_whole(values: _Values, kind: Kind) -> Bools:
    """Return which native values `decode_bounds` gives back as they were."""
    if kind.domain is Domain.BYTES:
        return np.array([len(value) <= LONGEST for value in values.tolist()], bool)
    if kind.domain is not Domain.INTEGER or (kind.step == (1, 1) and values.dtype != object):
        return np.ones(len(values), bool)
    return np.array([abs(value) < _CERTAIN for value in values.tolist()], bool)


# -- bytes -------------------------------------------------------------------------------------------


def _cut(value: bytes, end: End) -> bytes | None:
    if len(value) <= LONGEST:
        return value
    return value[:LONGEST] if end is End.LOWER else successor(value[:LONGEST])


def _as_binary(rows: npt.NDArray[np.uint8], has: Bools) -> pa.Array:
    n, width = rows.shape
    lengths = np.where(has, width, 0)
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = None if bool(has.all()) else pa.py_buffer(pack_bits(has))
    data = np.ascontiguousarray(rows[has]).tobytes()
    return pa.Array.from_buffers(
        pa.binary(), n, [nulls, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)], n - int(has.sum())
    )


def _from_binary(encoded: pa.Array, has: Bools, width: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of each bound as a row, zeros where there is none."""
    _, offsets_buffer, data = encoded.buffers()
    first = encoded.offset
    offsets = (
        np.frombuffer(offsets_buffer, np.int32)[first : first + len(encoded) + 1] if len(encoded) else _EMPTY
    )
    rows = np.zeros((len(encoded), width), np.uint8)
    if not bool(has.any()):
        return rows
    starts, stops = offsets[:-1][has], offsets[1:][has]
    if bool((stops - starts != width).any()):
        raise IndexFormatError("a stored bound has not the length of its encoding")
    rows[has] = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(width)]
    return rows


_EMPTY = np.zeros(1, np.int32)


# -- numbers -----------------------------------------------------------------------------------------


def _pack(exponents: _I64, mantissas: _U64, negative: Bools) -> tuple[_I64, _U64]:
    """Return the two parts of the encoding of the magnitudes `mantissa * 2 ** (exponent - 64)`."""
    zero = mantissas == 0
    heads = np.where(zero, _POSITIVE, _POSITIVE | (exponents + _BIAS))
    flip = negative & ~zero
    return np.where(flip, ~heads & 0xFFFF, heads), np.where(flip, ~mantissas, mantissas)


def _pack_floats(values: npt.NDArray[np.float64]) -> tuple[_I64, _U64]:
    infinite = np.isinf(values)
    fractions, exponents = np.frexp(np.abs(np.where(infinite, 1.0, values)))
    mantissas = (fractions * 2.0**53).astype(np.uint64) << np.uint64(11)
    wide = np.where(infinite, _INFINITE - _BIAS, exponents.astype(np.int64))
    return _pack(wide, mantissas, values < 0)


def _pack_integers(values: _Values, kind: Kind, end: End) -> tuple[_I64, _U64]:
    """Pack native integers, which stand for `n * numerator / denominator`."""
    if values.dtype.kind in "iu" and kind.denominator == 1:
        widest = max((abs(int(edge)) for edge in (values.min(initial=0), values.max(initial=0))), default=0)
        if kind.numerator == 1 or max(widest, 1) * kind.numerator < _INT64_LIMIT:
            scaled = values * values.dtype.type(kind.numerator) if kind.numerator != 1 else values
            negative = scaled < 0
            magnitudes = (
                np.abs(scaled).astype(np.uint64) if scaled.dtype.kind == "i" else scaled.astype(np.uint64)
            )
            lengths = _bit_lengths(magnitudes)
            shifts = np.where(magnitudes == 0, 0, _MANTISSA_BITS - lengths).astype(np.uint64)
            return _pack(lengths, magnitudes << shifts, negative)
    packed = [_pack_rational(int(value) * kind.numerator, kind.denominator, end) for value in values.tolist()]
    exponents = np.array([exponent for exponent, _, _ in packed], np.int64)
    mantissas = np.array([mantissa for _, mantissa, _ in packed], np.uint64)
    return _pack(exponents, mantissas, np.array([negative for _, _, negative in packed], bool))


def _pack_rational(numerator: int, denominator: int, end: End) -> tuple[int, int, bool]:
    """Return the exponent, the mantissa and the sign of a fraction, rounded outward."""
    negative, magnitude = numerator < 0, abs(numerator)
    if not magnitude:
        return 0, 0, False
    exponent = magnitude.bit_length() - denominator.bit_length()
    while True:
        shift = _MANTISSA_BITS - exponent
        up, down = (magnitude << shift, denominator) if shift >= 0 else (magnitude, denominator << -shift)
        mantissa, rest = divmod(up, down)
        if mantissa >> _MANTISSA_BITS:
            exponent += 1
        elif not mantissa >> (_MANTISSA_BITS - 1):
            exponent -= 1
        else:
            break
    if rest and negative == (end is End.LOWER):
        mantissa += 1
        if mantissa >> _MANTISSA_BITS:
            mantissa, exponent = mantissa >> 1, exponent + 1
    return exponent, mantissa, negative


def _bit_lengths(magnitudes: _U64) -> _I64:
    lengths = np.frexp(magnitudes.astype(np.float64))[1].astype(np.int64)
    # Rounding to a double may have carried into the next power of two.
    carried = (lengths > 0) & (magnitudes >> np.maximum(lengths - 1, 0).astype(np.uint64) == 0)
    exact: _I64 = lengths - carried
    return exact


def _to_floats(exponents: _I64, mantissas: _U64, negative: Bools, end: End) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp(mantissas.astype(np.float64), exponents - _MANTISSA_BITS)
    values = np.where(exponents == _INFINITE - _BIAS, np.inf, values)
    values = np.where(negative, -values, values)
    # The bits of the mantissa that a double has no room for; subnormal ones have room for fewer.
    spare = np.clip(11 + np.maximum(0, _LEAST_NORMAL - exponents), 11, _MANTISSA_BITS)
    lost = np.where(
        spare == _MANTISSA_BITS,
        mantissas,
        mantissas & ((np.uint64(1) << (spare % _MANTISSA_BITS).astype(np.uint64)) - np.uint64(1)),
    )
    rounded = (lost != 0) | (np.isinf(values) & (exponents != _INFINITE - _BIAS))
    with np.errstate(over="ignore", under="ignore"):
        outward = np.nextafter(values, -np.inf if end is End.LOWER else np.inf)
    values = np.where(rounded, outward, values)
    # Zeros of either sign are equal.
    return np.where(values == 0, -0.0 if end is End.LOWER else 0.0, values)


def _to_integers(exponents: _I64, mantissas: _U64, negative: Bools, *, kind: Kind, end: End) -> _Values:
    up = end is End.LOWER
    small = kind.denominator == 1 and kind.numerator < _INT64_LIMIT
    if small and bool((exponents < _MANTISSA_BITS).all()):
        shifts = np.clip(_MANTISSA_BITS - exponents, 1, _MANTISSA_BITS - 1).astype(np.uint64)
        below_one = exponents <= 0
        whole = np.where(below_one, np.uint64(0), mantissas >> shifts)
        rest = np.where(below_one, mantissas, mantissas & ((np.uint64(1) << shifts) - np.uint64(1))) != 0
        # Fewer than 64 bits: they fit.
        signed = whole.astype(np.int64)
        signed = np.where(negative, -signed, signed)
        values: _Values = signed + (rest & ~negative) if up else signed - (rest & negative)
        if kind.numerator != 1:
            values = -(-values // kind.numerator) if up else values // kind.numerator
        return values
    return _whole_numbers(exponents.tolist(), mantissas.tolist(), negative.tolist(), kind=kind, up=up)


def _whole_numbers(
    exponents: Sequence[int], mantissas: Sequence[int], negative: Sequence[bool], *, kind: Kind, up: bool
) -> _Values:
    out = []
    for exponent, mantissa, minus in zip(exponents, mantissas, negative, strict=True):
        shift = exponent - _MANTISSA_BITS
        numerator = (-mantissa if minus else mantissa) * kind.denominator << max(shift, 0)
        denominator = kind.numerator << max(-shift, 0)
        out.append(-(-numerator // denominator) if up else numerator // denominator)
    if all(-_INT64_LIMIT <= value < _INT64_LIMIT for value in out):
        return np.array(out, np.int64)
    if all(0 <= value < 2 * _INT64_LIMIT for value in out):
        return np.array(out, np.uint64)
    wide = np.empty(len(out), object)
    wide[:] = out
    return wide
