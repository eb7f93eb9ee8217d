"""`sketch`: an estimate of the number of distinct values and of their distribution, for planning.

It proves nothing, so it never prunes. The HyperLogLog sketch takes 2 KB and the quantiles 1 KB, whatever the
data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, mask
from accel.errors import IndexFormatError
from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.indexes.native import Tag, code_values, hash_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.prune import Evidence

__all__ = ["ParsedSketch", "Sketch"]

Floats = npt.NDArray[np.float64]

_MAGIC = b"AISk"
_MAX_SKETCH = 1 << 20
_MAX_BUCKETS = 1 << 16
_KLL_K = 400
_LIKE_GUESS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch(IndexKind):
    """An estimate of the distinct count, and quantiles.

    Parameters
    ----------
    lg_k : int
        Base-two logarithm of the HyperLogLog registers, 4 to 18; the error is about 1 / sqrt(2 ** lg_k).
    buckets : int
        Buckets of the histogram; each holds the same number of values.
    """

    name: ClassVar[str] = "sketch"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset()

    lg_k: int = 12
    buckets: int = 128

    def __post_init__(self) -> None:
        if not 4 <= self.lg_k <= 18 or not 1 <= self.buckets <= _MAX_BUCKETS:
            raise ValueError("a sketch has lg_k of 4 to 18 and 1 to 65536 buckets")

    def check_installed(self) -> None:
        """Raise ValueError if the package that builds sketches is not there; reading them does not need
        it."""
        _datasketches()

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(self)

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedSketch:
        """Parse an index; see `IndexKind.parse`."""
        blob = BlobReader(data, _MAGIC)
        code = blob.u32()
        if code > max(Tag) or units != 1:
            raise IndexFormatError("a sketch is of one unit and of a known type")
        rows, nulls, nans = blob.u64(), blob.u64(), blob.u64()
        if nulls > rows or nans > rows - nulls:
            raise IndexFormatError("a sketch's counts contradict each other")
        distinct = float(blob.array(1, "<f8")[0])
        buckets = blob.u32()
        if buckets > _MAX_BUCKETS:
            raise IndexFormatError(f"a sketch of {buckets} buckets")
        edges = blob.array(buckets + 1 if buckets else 0, "<f8").astype(np.float64)
        if not math.isfinite(distinct) or distinct < 0:
            raise IndexFormatError("a sketch has no distinct count")
        if bool(np.isnan(edges).any()) or bool((edges[1:] < edges[:-1]).any()):
            raise IndexFormatError("a sketch has quantiles out of order")
        registers = bytes(blob.block())
        blob.end()
        if len(registers) > _MAX_SKETCH:
            raise IndexFormatError("a sketch is too large")
        return ParsedSketch(
            tag=Tag(code) if code else None,
            rows=rows,
            nulls=nulls,
            nans=nans,
            distinct=distinct,
            edges=edges,
            registers=registers,
        )

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        return {"lg_k": self.lg_k, "buckets": self.buckets}


def _datasketches() -> Any:
    try:
        import datasketches  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError(
            "to build a sketch takes the package datasketches: pip install 'accel-parquet[sketch]' "
            "(it has no wheel for Python 3.14)"
        ) from error
    return datasketches


class _Builder:
    def __init__(self, kind: Sketch) -> None:
        datasketches = _datasketches()
        self.kind = kind
        self.distinct = datasketches.hll_sketch(kind.lg_k, datasketches.tgt_hll_type.HLL_4)
        self.spread = datasketches.kll_doubles_sketch(_KLL_K)
        self.rows = self.nulls = self.nans = 0
        self.tag = 0

    def add(self, chunk: ChunkValues) -> None:
        coded = code_values(chunk.array)
        self.tag = tag_of(coded.values.type) or 0
        for key in hash_values(coded.values).view(np.int64).tolist():
            self.distinct.update(key)
        places = _places(coded.values)
        present = coded.codes[coded.codes >= 0]
        numbers = places[present] if len(places) else places
        nan = np.isnan(numbers)
        self.rows += chunk.num_rows
        self.nulls += chunk.num_rows - len(present)
        self.nans += int(nan.sum())
        if len(numbers) > int(nan.sum()):
            self.spread.update(numbers[~nan])

    def finish(self) -> bytes:
        out = BlobWriter(_MAGIC)
        out.u32(self.tag)
        for count in (self.rows, self.nulls, self.nans):
            out.u64(count)
        out.array(np.array([self.distinct.get_estimate()]), "<f8")
        buckets, spread = self.kind.buckets, self.spread
        if spread.is_empty():
            out.u32(0)
        else:
            ranks = np.linspace(0.0, 1.0, buckets + 1)
            inner = spread.get_quantiles(ranks[1:-1]) if buckets > 1 else []
            edges = [spread.get_min_value(), *inner, spread.get_max_value()]
            out.u32(buckets)
            out.array(np.maximum.accumulate(np.array(edges, np.float64)), "<f8")
        out.block(self.distinct.serialize_compact())
        return out.bytes()


def _places(values: pa.Array) -> Floats:
    """Return doubles in the order of the values; text is ordered by its first six bytes."""
    tag = tag_of(values.type)
    if tag is Tag.BYTES:
        return np.array([_place(value) for value in values.to_pylist()], np.float64)
    if tag is Tag.BOOLEAN:
        return mask(values).astype(np.float64)
    return integers(values).astype(np.float64)


def _place(value: bytes) -> float:
    return float(int.from_bytes(value[:6].ljust(6, b"\0"), "big"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedSketch:
    """A parsed sketch."""

    tag: Tag | None
    rows: int
    nulls: int
    nans: int
    distinct: float
    """The estimate."""
    edges: Floats
    """Edges of the buckets, one more than there are buckets."""
    registers: bytes
    """The HyperLogLog sketch, as Apache DataSketches serialises it."""

    @property
    def nbytes(self) -> int:
        return len(self.registers) + int(self.edges.nbytes) + 256

    def prune(self, question: LeafQuestion) -> Evidence | None:
        return None

    def selectivity(self, question: LeafQuestion) -> float:
        """Return the estimated fraction of rows, 0 to 1, for which the question is true."""
        if not self.rows:
            return 0.0
        if question.op is LeafOp.IS_NULL:
            return self.nulls / self.rows
        values = self.rows - self.nulls
        if question.tag is not self.tag or question.op is LeafOp.LIKE:
            return _LIKE_GUESS * values / self.rows
        if question.op in (LeafOp.EQ, LeafOp.IN):
            share = sum(self._equal(value) for value in question.values)
        else:
            share = self._below(_double(question.value)) * (values - self.nans) / max(values, 1)
        return min(share, 1.0) * values / self.rows

    def _equal(self, value: Any) -> float:
        if isinstance(value, float) and math.isnan(value):
            return self.nans / max(self.rows - self.nulls, 1)
        at = _double(value)
        if not len(self.edges) or not self.edges[0] <= at <= self.edges[-1]:
            return 0.0
        # A value that fills whole buckets is as frequent as they; the others are assumed to be equally
        # frequent.
        low, high = np.searchsorted(self.edges, at, "left"), np.searchsorted(self.edges, at, "right")
        return max(float(high - low - 1) / (len(self.edges) - 1), 1.0 / max(self.distinct, 1.0))

    def _below(self, at: float) -> float:
        """Return the share of the values up to a point."""
        if not len(self.edges) or at < self.edges[0]:
            return 0.0
        if at >= self.edges[-1]:
            return 1.0
        bucket = int(np.searchsorted(self.edges, at, "right")) - 1
        low, high = float(self.edges[bucket]), float(self.edges[bucket + 1])
        part = (at - low) / (high - low) if high > low and math.isfinite(high - low) else 0.5
        return (bucket + part) / (len(self.edges) - 1)

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        return {"distinct": round(self.distinct), "rows": self.rows, "nulls": self.nulls}


def _double(value: Any) -> float:
    return _place(value) if isinstance(value, bytes) else float(value)
