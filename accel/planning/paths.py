"""What the paths of files say of their partition columns, worked out once for each combination of values."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError, SchemaMismatchError
from accel.planning.file import DataFile
from accel.planning.pruning import partition_evidence
from accel.planning.query import Question, constant_fields
from accel.predicate.expr import Expr

__all__ = ["PathValues"]

_Values = tuple[object, ...]


class PathValues:
    """The partition values of one scan's files.

    Parameters
    ----------
    where : Expr or None
    listed : pyarrow.Schema
        The partition columns, as the listing found them.
    """

    def __init__(self, where: Expr | None, listed: pa.Schema) -> None:
        self._where = where
        self._listed = listed
        self._seeming: dict[_Values, bool] = {}
        self._scalars: dict[_Values, dict[str, pa.Scalar]] = {}
        self._excluded: dict[_Values, bool] = {}

    def seem_to_exclude(self, file: DataFile) -> bool:
        """Whether the values alone exclude a file, if its path's columns are meant as listed."""
        if self._where is None or not file.partition:
            return False
        found = self._seeming.get(file.partition)
        if found is None:
            values = {
                f.name: make_scalar(v, f.type) for f, v in zip(self._listed, file.partition, strict=True)
            }
            found = self._seeming[file.partition] = _excludes(self._where, values)
        return found

    def exclude(self, file: DataFile, question: Question) -> bool:
        """Whether they do, now that the question is settled (one question a scan).

        Raises SchemaMismatchError, as `of`.
        """
        if not self.seem_to_exclude(file):
            return False
        found = self._excluded.get(file.partition)
        if found is None:
            whole = all(name in question.partition_names for name in self._listed.names)
            found = whole and _excludes(self._where, self.of(file, question))
            self._excluded[file.partition] = found
        return found

    def of(self, file: DataFile, question: Question) -> Mapping[str, pa.Scalar]:
        """The values of a file, in the data set's types.

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
                    hint="partitioning=None leaves the paths alone",
                ) from error
            self._scalars[file.partition] = found
        return found


def _excludes(where: Expr | None, values: Mapping[str, pa.Scalar]) -> bool:
    if where is None:
        return False
    try:
        return not bool(partition_evidence(where, values).may_true[0])
    except AccelError:
        # Not comparable with the partition's type: the full binding says so, or a column of the file is meant.
        return False
