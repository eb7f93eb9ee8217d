"""Partition pruning: files are excluded by the values in their paths, once for each combination of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError, SchemaMismatchError
from accel.planning.file_entry import FileEntry
from accel.planning.query import Question, constant_fields
from accel.predicate.expr import Expr, name_key
from accel.predicate.prune import Evidence, prune

__all__ = ["PartitionValues", "partition_evidence"]

_Values: TypeAlias = tuple[object, ...]
_Terms: TypeAlias = "dict[tuple[int, ...], tuple[object, list[pa.Scalar], Evidence]]"
"""The evidence of partition values about single terms, by the identity of the term and of the values."""


class PartitionValues:
    """The partition values of one scan's files.

    Parameters
    ----------
    where : Expr or None
    listed : pyarrow.Schema
        The partition columns, as the listing found them.
    case_sensitive : bool
        Whether the predicate names them in their case, too.
    """

    def __init__(self, where: Expr | None, listed: pa.Schema, *, case_sensitive: bool = True) -> None:
        self._where = where
        self._listed = listed
        self._case_sensitive = case_sensitive
        self._seeming: dict[_Values, bool] = {}
        self._scalars: dict[_Values, dict[str, pa.Scalar]] = {}
        self._excluded: dict[_Values, bool] = {}
        # Equal values share one object, by whose identity `_terms` is looked up.
        self._made: dict[tuple[str, object], pa.Scalar] = {}
        self._terms: _Terms = {}

    def exclude_as_listed(self, file: FileEntry) -> bool:
        """Return whether the partition values exclude a file, if the listed columns are partition columns."""
        if self._where is None or not file.partition:
            return False
        found = self._seeming.get(file.partition)
        if found is None:
            fields = zip(self._listed, file.partition, strict=True)
            values = {f.name: self._scalar(f, value) for f, value in fields}
            found = self._seeming[file.partition] = self._excludes(values, self._terms)
        return found

    def _scalar(self, field: pa.Field, value: object) -> pa.Scalar:
        found = self._made.get((field.name, value))
        if found is None:
            found = self._made[field.name, value] = make_scalar(value, field.type)
        return found

    def exclude(self, file: FileEntry, question: Question) -> bool:
        """Return whether the partition values exclude a file under the scan's one question.

        Raises SchemaMismatchError, as `of`.
        """
        if not self.exclude_as_listed(file):
            return False
        found = self._excluded.get(file.partition)
        if found is None:
            found = all(name in question.partition_names for name in self._listed.names)
            # Columns of the listed types need no second look.
            if found and any(question.schema.field(f.name).type != f.type for f in self._listed):
                found = self._excludes(self.of(file, question), {})
            self._excluded[file.partition] = found
        return found

    def _excludes(self, values: Mapping[str, pa.Scalar], terms: _Terms) -> bool:
        if self._where is None:
            return False
        try:
            found = partition_evidence(self._where, values, terms=terms, case_sensitive=self._case_sensitive)
        except AccelError:
            # The types are not comparable: binding raises it later, unless a column of the file is meant.
            return False
        return not bool(found.may_true[0])

    def of(self, file: FileEntry, question: Question) -> Mapping[str, pa.Scalar]:
        """Return the values of a file, in the data set's types.

        Raises
        ------
        SchemaMismatchError
            A value does not fit its type.
        """
        found = self._scalars.get(file.partition)
        if found is None:
            try:
                found = constant_fields(question, self._listed.names, partition=file.partition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaMismatchError(
                    f"a partition value of its path does not fit the scan's schema: {error}",
                    path=file.url,
                    hint="`partitioning=None` leaves the paths alone",
                ) from error
            self._scalars[file.partition] = found
        return found


def partition_evidence(
    where: object,
    partition: Mapping[str, pa.Scalar],
    *,
    terms: _Terms | None = None,
    case_sensitive: bool = True,
) -> Evidence:
    """Return what the partition values alone prove, before any file's schema is known.

    Terms over other columns are unknown. Used to avoid opening files; it is checked again with the
    schema, since a column of the file of the same name wins. `terms` takes what each term comes to, for the
    next partition that has the same scalar objects for the term's columns.
    """
    from accel.predicate import expr as e
    from accel.predicate.bind import bind
    from accel.predicate.value_bounds import constant_bounds

    terms = {} if terms is None else terms
    key_of = name_key(case_sensitive=case_sensitive)
    partition = {key_of(name): value for name, value in partition.items()}

    def judge_term(term: object, values: Mapping[str, pa.Scalar]) -> Evidence:
        schema = pa.schema([pa.field(name, value.type) for name, value in values.items()])
        one = np.array([1], np.int64)
        bounds = {(name,): constant_bounds(value, one) for name, value in values.items()}
        return prune(bind(term, schema), bounds, 1)  # type: ignore[arg-type]

    def judge(node: object) -> Evidence:
        match node:
            case e.Not():
                return ~judge(node.operand)
            case e.And() | e.Or():
                parts = [judge(operand) for operand in node.operands]
                total = parts[0]
                for part in parts[1:]:
                    total = total & part if isinstance(node, e.And) else total | part
                return total
            case _:
                # Before the schema of the files is settled, a path into structs is no partition column.
                tops = [column.top_level for column in e.columns_of(node)]  # type: ignore[arg-type]
                values = {
                    name: value
                    for name in tops
                    if name is not None and (value := partition.get(key_of(name))) is not None
                }
                if len(values) < len(set(tops)):
                    return Evidence.unknown(1)
                scalars = list(values.values())
                key = id(node), *map(id, scalars)
                found = terms.get(key)
                if found is None:
                    # The entry keeps them alive: their ids stay their own.
                    found = terms[key] = node, scalars, judge_term(node, values)
                return found[2]

    return judge(where)
