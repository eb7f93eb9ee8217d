"""Statistics of files: a filter as a condition on them, which the database judges, and as bounds, which are
judged again here.

The catalog has them as text, in the type that the column had when the file was written. What a cast does not
take says nothing: the file stays.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import bytes_array, make_scalar
from accel.planning.column_bounds import ColumnBounds
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    IsTrue,
    Matches,
    Negation,
    Node,
    Null,
    Order,
)
from accel.tables.formats.ducklake.databases import Session

__all__ = ["Condition", "FileConditions", "JudgedColumn", "column_bounds", "family_of"]

_MOST_KEYS: Final = 64
"""Values of an IN list that the database judges one by one; longer lists are judged by their ends."""
_MOST_TEXT: Final = 10_000
_MARGIN: Final = decimal.Decimal("1e-6")
"""How far floats and decimals may be off in the database, as a part of the value. Bounds of a FLOAT have few
digits: as those of the DOUBLE that it has become, they are not exact."""
_LEAST_MARGIN: Final = decimal.Decimal("2e-45")
"""The same beside zero, where 32-bit floats are sparse."""
_NO_TEXT: Final = make_scalar(None, pa.string())
_CUT: Final = 256
"""Characters at which DuckDB cuts texts in statistics: those that may be cut are not compared."""
_LARGE: Final = 10**18
"""Integers from here on are not cast in the database."""
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def family_of(kind: str) -> str | None:
    """Return what the statistics of a column's type compare as; None where accel does not use them."""
    kind = kind.lower()
    if kind.startswith(("int", "uint")) and kind != "interval":
        return None if kind.endswith("128") else "integer"
    if kind.startswith("decimal("):
        return "number"
    return {
        "float32": "number",
        "float64": "number",
        "varchar": "text",
        "date": "date",
        "timestamp": "instant",
        "timestamp_us": "instant",
        "timestamp_ms": "instant",
        "timestamp_ns": "instant",
        "timestamp_s": "instant",
        "timestamptz": "zoned",
        "uuid": "uuid",
    }.get(kind)


@dataclass(frozen=True, slots=True)
class JudgedColumn:
    """A column of the filter whose statistics are asked for."""

    path: tuple[str, ...]
    column: int
    """Its id."""
    family: str
    type: pa.DataType
    nested: bool
    """Whether it is below a struct."""


class Condition(NamedTuple):
    """A condition in SQL, with its parameters in the order of their marks."""

    sql: str
    parameters: tuple[str, ...] = ()


def _joined(word: str, parts: Sequence[Condition]) -> Condition | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    text = f" {word} ".join(part.sql for part in parts)
    return Condition(f"({text})", tuple(one for part in parts for one in part.parameters))


class FileConditions:
    """Says what a filter asks of the statistics of a file, as SQL over `f`, the file, and `s7`, those of
    column 7.

    Parameters
    ----------
    bound : Bound
        The filter, bound to the columns of the version.
    judged : sequence of JudgedColumn or None
        By the place of a column in `bound`; None for those without statistics.
    session : Session
        Says how the database casts and compares.
    """

    def __init__(self, bound: Bound, judged: Sequence[JudgedColumn | None], session: Session) -> None:
        self._bound = bound
        self._judged = judged
        self._session = session

    def condition(self) -> Condition | None:
        """Return what has to hold for a file that may have a row that matches; None where that is nothing."""
        return self._may(self._bound.root, True)

    def _may(self, node: Node, wanted: bool) -> Condition | None:
        """Return the condition that a row may make a node TRUE (or FALSE); None where that is not known."""
        match node:
            case Negation():
                return self._may(node.operand, not wanted)
            case IsTrue():
                return self._may(node.operand, True) if wanted else None
            case AllOf() | AnyOf():
                parts = [self._may(part, wanted) for part in node.operands]
                known = [part for part in parts if part is not None]
                if isinstance(node, AllOf) == wanted:
                    return _joined("AND", known)
                return _joined("OR", known) if len(known) == len(parts) else None
            case Against() | Among() | Matches() | Null():
                return self._atom(node, wanted)
        return None

    def _atom(self, node: Against | Among | Matches | Null, wanted: bool) -> Condition | None:
        judged = self._judged[node.column]
        if judged is None:
            return None
        statistics = f"s{judged.column}"
        some = None
        if not judged.nested:
            some = Condition(f"COALESCE({statistics}.null_count < f.record_count, TRUE)")
        if isinstance(node, Null):
            if judged.nested:
                return None
            return Condition(f"COALESCE({statistics}.null_count > 0, TRUE)") if wanted else some
        within = self._within(node, judged, wanted)
        return _joined("AND", [part for part in (within, some) if part is not None])

    def _within(
        self, node: Against | Among | Matches, judged: JudgedColumn, wanted: bool
    ) -> Condition | None:
        """Return the condition that the bounds of a column leave room for a test of its value."""
        match node:
            case Against(order=Order.EQ):
                return self._between(judged, node.value, node.value) if wanted else None
            case Against():
                if wanted:
                    return self._between(judged, None, node.value)
                found = self._between(judged, node.value, None)
                if found is not None and pa.types.is_floating(judged.type):
                    # NaN is above all numbers, and within no bounds.
                    some_nan = f"COALESCE(s{judged.column}.contains_nan, TRUE)"
                    return Condition(f"({found.sql} OR {some_nan})", found.parameters)
                return found
            case Among() if wanted and not node.keys.nan and len(node.keys.values):
                keys = node.keys.sorted.tolist()
                if len(keys) > _MOST_KEYS:
                    return self._between(judged, keys[0], keys[-1])
                parts = [self._between(judged, key, key) for key in keys]
                known = [part for part in parts if part is not None]
                return _joined("OR", known) if len(known) == len(parts) else None
            case Matches(pattern=pattern) if wanted and pattern.lower and not pattern.ignore_case:
                return self._between(judged, pattern.lower, pattern.upper)
        return None

    def _between(self, judged: JudgedColumn, low: Any, high: Any) -> Condition | None:
        """Return the condition that a value may lie between two, which are included; None is no end."""
        parts = []
        for end, side, order in ((low, "max_value", ">="), (high, "min_value", "<=")):
            literal = None if end is None else self._literal(judged, end, upwards=side == "min_value")
            if literal is not None:
                term = self._term(judged, f"s{judged.column}.{side}")
                parts.append(Condition(f"COALESCE({term} {order} {literal.sql}, TRUE)", literal.parameters))
        return _joined("AND", parts)

    def _literal(self, judged: JudgedColumn, value: Any, *, upwards: bool) -> Condition | None:
        """Return a native value in SQL, floats a little higher or lower; None where it cannot be written."""
        text: str | None = None
        match judged.family:
            case "integer":
                return Condition(str(int(value))) if -_LARGE < value < _LARGE else None
            case "number":
                exact = _number(judged.type, value)
                if exact is None:
                    return None
                margin = abs(exact) * _MARGIN + _LEAST_MARGIN
                moved = exact + margin if upwards else exact - margin
                return Condition(self._session.float_literal(float(moved)))
            case "text":
                text = _text(value) if self._session.utf8 else None
            case "uuid":
                text = str(uuid.UUID(bytes=value)) if len(value) == 16 else None
            case "date" | "instant" | "zoned":
                text = _moment(judged.type, int(value))
        return None if text is None else Condition("?", (text,))

    def _term(self, judged: JudgedColumn, text: str) -> str:
        """Return the term for a bound; NULL where it is no value of the column's type, or one that does not
        compare as text."""
        session = self._session
        match judged.family:
            case "integer":
                return session.integer(text)
            case "number":
                return session.number(text)
            case "date":
                sound = session.matches(text, "0000-00-00")
            case "instant":
                sound = session.matches(text, "0000-00-00 00:00:00*")
                sound += f" AND REPLACE({text}, '+', '') = {text}"
                sound += f" AND LENGTH(REPLACE({text}, '-', '')) = LENGTH({text}) - 2"
            case "zoned":
                sound = session.matches(text, "0000-00-00 00:00:00*")
                sound += f" AND SUBSTR({text}, LENGTH({text}) - 2) = '+00'"
            case "uuid":
                sound = f"LENGTH({text}) = 36"
            case _:
                sound = f"LENGTH({text}) < {_CUT}"
        sound = f"{session.is_text(text)} AND {sound}"
        return session.binary_text(f"(CASE WHEN {sound} THEN {text} END)")


def _number(kind: pa.DataType, value: Any) -> decimal.Decimal | None:
    if pa.types.is_decimal(kind):
        return decimal.Decimal(int(value)).scaleb(-kind.scale)
    exact = decimal.Decimal(value)
    return exact if exact.is_finite() and abs(exact) < 10**300 else None


def _text(value: bytes) -> str | None:
    if len(value) > _MOST_TEXT or b"\0" in value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _moment(kind: pa.DataType, value: int) -> str | None:
    """Return a day or an instant as DuckLake writes it; None where it writes others differently."""
    if pa.types.is_date(kind):
        ticks, per_second = value * 86_400, 1
    else:
        ticks, per_second = value, {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    seconds, rest = divmod(ticks, per_second)
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return None
    if pa.types.is_date(kind):
        return moment.date().isoformat()
    digits = len(str(per_second)) - 1
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{moment.isoformat(sep=' ')}{fraction}{'+00' if kind.tz is not None else ''}"


# -- bounds --------------------------------------------------------------------------------------


def column_bounds(judged: JudgedColumn, said: tuple[pa.Array, pa.Array, pa.Array, pa.Array]) -> ColumnBounds:
    """Return the bounds of a column in some files, each from its text; null where that is no value.

    Parameters
    ----------
    said : tuple of pyarrow.Array
        Least and greatest as text, nulls, and whether there is NaN.
    """
    lower, upper, nulls, nan = said
    nans = None
    if pa.types.is_floating(judged.type):
        nans = pc.if_else(pc.invert(nan), make_scalar(0, pa.int64()), make_scalar(None, pa.int64()))
    return ColumnBounds(
        lower=_moved(_bounds(judged, lower), upwards=False),
        upper=_moved(_bounds(judged, upper), upwards=True),
        null_count=None if judged.nested else nulls,
        nan_count=nans,
    )


def _moved(bounds: pa.Array | None, *, upwards: bool) -> pa.Array | None:
    """Return bounds of floats a little lower or higher: the text of a bound may be that of a FLOAT or DECIMAL
    that the column was before, and was rounded in another way than its values."""
    if bounds is None or not pa.types.is_floating(bounds.type):
        return bounds
    part, least = (make_scalar(float(one), bounds.type) for one in (_MARGIN, _LEAST_MARGIN))
    margin = pc.add(pc.multiply(pc.abs(bounds), part), least)
    return pc.add(bounds, margin) if upwards else pc.subtract(bounds, margin)


def _bounds(judged: JudgedColumn, array: pa.Array) -> pa.Array | None:
    if judged.family == "text":
        array = pc.if_else(pc.less(pc.utf8_length(array), make_scalar(_CUT, pa.int32())), array, _NO_TEXT)
    pattern = _FORMS.get(judged.family)
    if pattern is not None:
        array = pc.if_else(pc.match_substring_regex(array, pattern), array, _NO_TEXT)
    try:
        if judged.family == "uuid":
            raw = [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()]
            stored = bytes_array(raw, pa.binary()).cast(pa.binary(16))
            extended = isinstance(judged.type, pa.BaseExtensionType)
            return judged.type.wrap_array(stored) if extended else stored
        if judged.family == "zoned":
            array = pc.utf8_slice_codeunits(array, 0, -3)
            return array.cast(pa.timestamp(judged.type.unit)).cast(judged.type)
        return array if judged.family == "text" else array.cast(judged.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None


_FORMS: Final[Mapping[str, str]] = {
    "integer": r"^-?[0-9]{1,20}$",
    "number": r"^-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]{1,3})?$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "instant": r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?$",
    "zoned": r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?[+]00$",
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}
"""By family, the texts that are values of it, as RE2 has it."""
