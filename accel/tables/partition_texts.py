"""Partition values that a table keeps as texts, in the types of their columns.

Source: the Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import make_scalar
from accel.errors import TableFormatError

__all__ = ["cast_texts"]

_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)$"


def cast_texts(
    texts: pa.Array, kind: pa.DataType, *, column: str, null: str, time_zone: str | None = "UTC"
) -> pa.Array:
    """Return the values of a partition column.

    Parameters
    ----------
    texts : pyarrow.Array
        Of strings; null is null.
    kind : pyarrow.DataType
    column : str
        Its name, for messages.
    null : str
        The text that stands for null.
    time_zone : str, optional
        That of timestamps whose text names none. A column without a zone has none, either. None: it is not
        known, and timestamps are refused.

    Raises
    ------
    TableFormatError
        A text is no value of the type.
    """
    # Files and partitions share few values.
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary
    is_null = pc.equal(distinct, make_scalar(null, pa.string()))
    distinct = pc.if_else(is_null, make_scalar(None, pa.string()), distinct)
    try:
        return _cast(distinct, kind, time_zone).take(encoded.indices)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableFormatError(
            f"a value of the partition column {column!r} is no {kind}: {error!s:.160}"
        ) from None


def _cast(texts: pa.Array, kind: pa.DataType, time_zone: str | None) -> pa.Array:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_null(kind):
        return pa.nulls(len(texts))
    if pa.types.is_timestamp(kind):
        if time_zone is None:
            raise pa.ArrowNotImplementedError(
                "a partition by timestamps depends on the time zone of its writer"
            )
        return _instants(texts, "UTC" if kind.tz is None else time_zone).cast(kind)
    if pa.types.is_boolean(kind):
        return pc.utf8_lower(texts).cast(kind)
    if pa.types.is_floating(kind):
        return pc.replace_substring(texts, "Infinity", "inf").cast(kind)
    return texts.cast(kind)


def _instants(texts: pa.Array, time_zone: str) -> pa.Array:
    """Return instants: Spark writes them in the zone of its session, others in UTC and say so."""
    zoned = pc.match_substring_regex(texts, _ZONE)
    if time_zone == "UTC":
        whole = pc.if_else(
            zoned,
            texts,
            pc.binary_join_element_wise(texts, *(make_scalar(text, pa.string()) for text in ("Z", ""))),
        )
        return whole.cast(pa.timestamp("us", "UTC"))
    none = make_scalar(None, pa.string())
    local = pc.if_else(zoned, none, texts).cast(pa.timestamp("us"))
    # An hour that a clock went through twice is taken for the first, one that it left out for what follows.
    local = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="latest")
    instants = pc.if_else(zoned, texts, none).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(instants, local.cast(pa.timestamp("us", "UTC")))
