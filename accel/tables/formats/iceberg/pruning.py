"""What manifests and partition values say of the columns of a filter: bounds of the files of a block, and
which manifests hold none that may match.

Partition values become bounds of the columns that they are made of, so one pruning serves statistics and
partitions of every spec. Buckets have no order: a comparison of a column with single values is joined by the
same comparison of their buckets, which is true for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy, integers, validity, values_array
from accel.errors import AccelError
from accel.planning.column_bounds import ColumnBounds
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    BoundColumn,
    IsTrue,
    Keys,
    Negation,
    Node,
    Order,
)
from accel.predicate.bind import bind
from accel.predicate.expr import Expr
from accel.predicate.prune import prune
from accel.tables.formats.iceberg.manifests import Manifest, ManifestEntry
from accel.tables.formats.iceberg.schema import TableSchema
from accel.tables.formats.iceberg.single_values import decode_values
from accel.tables.formats.iceberg.transforms import (
    PartitionField,
    PartitionSpec,
    bucket_of,
    equal_buckets,
    range_of,
)

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["Filter", "excluded_manifests", "typed_values"]

_BUCKET: Final = "\ufdd2"
"""A noncharacter of Unicode, which begins the names of columns of buckets."""
_MOST_BUCKETED: Final = 10_000
"""Values of a list whose buckets are made."""
_BYTE_TEXTS: Final = frozenset({"string", "binary"})


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The filter of a scan, bound to the columns of a table."""

    schema: TableSchema
    bound: Bound
    """With comparisons of buckets."""
    ids: Mapping[tuple[str, ...], int]
    """By the path of a column of the filter, its field id."""

    @classmethod
    def of(cls, where: Expr | None, schema: TableSchema, specs: Iterable[PartitionSpec]) -> Filter | None:
        """Make the filter; None where there is none, or it does not fit the columns, which the scan says
        then."""
        if where is None:
            return None
        try:
            bound = bind(where, schema.arrow)
        except AccelError:
            return None
        by_path = {path: number for number, path in schema.paths.items()}
        ids = {column.path: by_path[column.path] for column in bound.columns if column.path in by_path}
        bucketed: dict[int, list[tuple[BoundColumn, int]]] = {}
        for spec in specs:
            for field in spec.fields:
                if field.transform.name == "bucket":
                    column = BoundColumn((_bucket_name(field),), pa.int32())
                    bucketed.setdefault(field.source_id, []).append((column, field.transform.parameter))
        return cls(schema, _with_buckets(bound, ids, bucketed), ids)

    def excluded(self, bounds: Mapping[tuple[str, ...], ColumnBounds], num_rows: Any, n: int) -> Bools:
        """Return which of some units it rules out by their bounds."""
        known = {}
        for column in self.bound.columns:
            found = bounds.get(column.path)
            if found is not None:
                known[column.path] = found.judged(column.type, num_rows)
        if not known:
            return np.zeros(n, bool)
        return ~prune(self.bound, known, n).may_true

    @property
    def has_buckets(self) -> bool:
        """Whether it compares buckets."""
        return any(column.path[0].startswith(_BUCKET) for column in self.bound.columns)

    def bounds_of(self, manifest: Manifest, spec: PartitionSpec) -> dict[tuple[str, ...], ColumnBounds]:
        """Return the bounds of its columns in the files of a manifest, those of buckets among them."""
        out: dict[tuple[str, ...], ColumnBounds] = {}
        for path, number in self.ids.items():
            kind = self.schema.type_of(path)
            lower, upper = manifest.lower.of(number), manifest.upper.of(number)
            is_top = len(path) == 1
            found = ColumnBounds(
                lower=None if lower is None else decode_values(lower, kind),
                upper=None if upper is None else decode_values(upper, kind),
                # Writers differ on whether a null struct counts for its fields.
                null_count=manifest.null_counts.of(number) if is_top else None,
                nan_count=manifest.nan_counts.of(number) if is_top else None,
            )
            if any(array is not None for array in found.arrays):
                out[path] = found
        for field in spec.fields:
            values = manifest.partition.get(field.field_id)
            source = self.schema.paths.get(field.source_id)
            if values is None or source is None or field.transform.name == "void":
                continue
            if field.transform.name == "bucket":
                out[_bucket_name(field),] = ColumnBounds(
                    lower=values, upper=values, null_count=_null_counts(values, manifest.num_rows)
                )
            elif source in self.ids:
                own = self._partition_bounds(field, source, values, manifest.num_rows)
                out[source] = own if source not in out else _narrower(own, out[source], field)
        return out

    def _partition_bounds(
        self, field: PartitionField, path: tuple[str, ...], values: pa.Array, num_rows: Any
    ) -> ColumnBounds:
        kind = self.schema.type_of(path)
        plain = typed_values(values, kind, field)
        found = None if plain is None else range_of(field.transform, kind, plain, plain)
        known = field.transform.name in _KNOWN
        return ColumnBounds(
            lower=None if found is None else found[0],
            upper=None if found is None else found[1],
            null_count=_null_counts(values, num_rows) if known and len(path) == 1 else None,
        )

    def summary_bounds(
        self, entries: Sequence[ManifestEntry], spec: PartitionSpec
    ) -> dict[tuple[str, ...], ColumnBounds]:
        """Return the bounds of its columns in the files of whole manifests of one spec, by summaries."""
        out: dict[tuple[str, ...], ColumnBounds] = {}
        for at, field in enumerate(spec.fields):
            path = self.schema.paths.get(field.source_id)
            if path is None or field.transform.name not in _KNOWN:
                continue
            found = [
                None if entry.summaries is None or at >= len(entry.summaries) else entry.summaries[at]
                for entry in entries
            ]
            is_bucket = field.transform.name == "bucket"
            source = self.schema.type_of(path)
            kind = pa.int32() if is_bucket else _result_type(field, source)
            if kind is None:
                continue
            lower = decode_values(values_array([x and x.lower for x in found], pa.binary()), kind)
            upper = decode_values(values_array([x and x.upper for x in found], pa.binary()), kind)
            no_null = values_array(
                [0 if x is not None and not x.contains_null else None for x in found], pa.int64()
            )
            no_nan = values_array(
                [0 if x is not None and x.contains_nan is False else None for x in found], pa.int64()
            )
            if lower is None or upper is None:
                continue
            if is_bucket:
                out[_bucket_name(field),] = ColumnBounds(lower=lower, upper=upper, null_count=no_null)
                continue
            if path not in self.ids or path in out:
                continue
            both = range_of(field.transform, source, lower, upper)
            out[path] = ColumnBounds(
                lower=None if both is None else both[0],
                upper=None if both is None else both[1],
                null_count=no_null if len(path) == 1 else None,
                nan_count=no_nan if len(path) == 1 and field.transform.name == "identity" else None,
            )
        return out


_KNOWN: Final = frozenset({"identity", "bucket", "truncate", "year", "month", "day", "hour"})


def excluded_manifests(
    given: Filter, entries: Sequence[ManifestEntry], specs: Mapping[int, PartitionSpec]
) -> Bools:
    """Return which manifests hold no file that may match, by the summaries of their partition fields."""
    out = np.zeros(len(entries), bool)
    by_spec: dict[int, list[int]] = {}
    for place, entry in enumerate(entries):
        by_spec.setdefault(entry.spec_id, []).append(place)
    for spec_id, places in by_spec.items():
        spec = specs.get(spec_id)
        if spec is not None:
            bounds = given.summary_bounds([entries[place] for place in places], spec)
            rows = np.full(len(places), -1, np.int64)
            out[places] = given.excluded(bounds, rows, len(places))
    return out


def _bucket_name(field: PartitionField) -> str:
    return f"{_BUCKET}{field.field_id} {field.transform.parameter}"


def _null_counts(values: pa.Array, num_rows: Any) -> pa.Array:
    """Return the nulls of a column by which files are partitioned: all rows, or none."""
    return from_numpy(np.where(validity(values), 0, num_rows).astype(np.int64))


def _result_type(field: PartitionField, source: pa.DataType) -> pa.DataType | None:
    """Return the type in which the bounds of a summary are."""
    if field.transform.name in ("identity", "truncate"):
        return source
    return pa.int32()


def typed_values(values: pa.Array, kind: pa.DataType, field: PartitionField) -> pa.Array | None:
    """Return partition values as they are stored in the type of the column, or of the transform."""
    t = pa.types
    if field.transform.name not in ("identity", "truncate"):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return (
            pa.ExtensionArray.from_storage(kind, values.cast(kind.storage_type))
            if t.is_binary(values.type)
            else None
        )
    try:
        if t.is_decimal(kind):
            return decode_values(values, kind) if t.is_binary(values.type) else None
        if t.is_timestamp(kind) or t.is_time(kind):
            return values.cast(pa.int64()).cast(kind) if t.is_integer(values.type) else None
        if t.is_date(kind):
            return values.cast(pa.int32()).cast(kind) if t.is_integer(values.type) else None
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _narrower(own: ColumnBounds, other: ColumnBounds, field: PartitionField) -> ColumnBounds:
    """Return the bounds of a partition value, and those of the statistics where it has none; those of the
    statistics first, where the transform is a range."""
    if field.transform.name != "identity":
        own, other = other, own

    def first(one: pa.Array | None, two: pa.Array | None) -> pa.Array | None:
        if one is None or two is None:
            return two if one is None else one
        if not one.type.equals(two.type) or isinstance(one.type, pa.BaseExtensionType):
            return one
        take_first = validity(one)
        if take_first.all():
            return one
        both = pa.concat_arrays([one, two])
        return both.take(from_numpy(np.where(take_first, 0, len(one)) + np.arange(len(one))))

    return ColumnBounds(
        lower=first(own.lower, other.lower),
        upper=first(own.upper, other.upper),
        null_count=first(own.null_count, other.null_count),
        nan_count=first(own.nan_count, other.nan_count),
    )


def _with_buckets(
    bound: Bound,
    ids: Mapping[tuple[str, ...], int],
    bucketed: Mapping[int, Sequence[tuple[BoundColumn, int]]],
) -> Bound:
    """Return the predicate with comparisons of buckets beside those of their columns."""
    columns = list(bound.columns)

    def ordinal(column: BoundColumn) -> int:
        if column not in columns:
            columns.append(column)
        return columns.index(column)

    def buckets(at: int, values: Sequence[Any]) -> list[Node]:
        column = bound.columns[at]
        found: list[Node] = []
        for bucket, count in bucketed.get(ids.get(column.path, -1), ()):
            numbers = bucket_of(values, column.type, count)
            if numbers is not None:
                array = equal_buckets(numbers)
                found.append(Among(ordinal(bucket), Keys(array, integers(array)), False))
        return found

    def walk(node: Node) -> Node:
        match node:
            case AllOf() | AnyOf():
                return replace(node, operands=tuple(walk(each) for each in node.operands))
            case Negation() | IsTrue():
                return replace(node, operand=walk(node.operand))
            case Against(order=Order.EQ):
                more = buckets(node.column, [node.value])
                return AllOf((node, *more)) if more else node
            case Among() if (
                not node.with_null and not node.keys.nan and len(node.keys.sorted) <= _MOST_BUCKETED
            ):
                more = buckets(node.column, node.keys.sorted.tolist())
                return AllOf((node, *more)) if more else node
            case _:
                return node

    root = walk(bound.root)
    return Bound(tuple(columns), root)
