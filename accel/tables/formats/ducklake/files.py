"""The data files of a version, as columns, and the rows in them that the catalog itself says are deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import Int64s, make_scalar, mask, values_array
from accel.errors import TableFormatError
from accel.predicate.atoms import Bound
from accel.tables.formats.ducklake.databases import Session
from accel.tables.formats.ducklake.metadata import LakeVersion, visible
from accel.tables.formats.ducklake.statistics import FileConditions, JudgedColumn

__all__ = ["FilePage", "LakeFile", "read_deleted_rows", "read_files"]

_MOST_IDS: Final = 500
"""Files whose inlined deletes are asked for by their ids; those of more files come all together."""
_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "id": pa.int64(),
    "path": pa.string(),
    "relative": pa.bool_(),
    "rows": pa.int64(),
    "size": pa.int64(),
    "footer": pa.int64(),
    "mapping": pa.int64(),
    "newest": pa.int64(),
    "delete_path": pa.string(),
    "delete_relative": pa.bool_(),
    "delete_format": pa.string(),
    "delete_rows": pa.int64(),
    "delete_size": pa.int64(),
    "delete_newest": pa.int64(),
    "format": pa.string(),
    "key": pa.string(),
    "delete_key": pa.string(),
}
_NEVER_NULL: Final = ("id", "path", "relative", "rows", "size", "format")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """A data file of which rows are gone, as the catalog has it."""

    id: int
    path: str
    relative: bool
    rows: int
    """The deleted ones included."""
    size: int
    newest: int | None
    """The greatest version of its rows, where they came in several."""
    delete_path: str | None
    delete_relative: bool | None
    delete_format: str | None
    delete_rows: int | None
    delete_size: int | None
    delete_newest: int | None
    """The greatest version of its deletes, where they came in several."""


class FilePage:
    """Some files, as columns.

    Parameters
    ----------
    rows : sequence of tuple
        As the query gives them.
    judged : sequence of JudgedColumn
        The columns whose statistics were asked for.

    Raises
    ------
    TableFormatError
        A file is no Parquet, is encrypted, or has numbers that cannot be.
    """

    __slots__ = ("columns", "statistics")

    def __init__(self, rows: Sequence[tuple[Any, ...]], judged: Sequence[JudgedColumn]) -> None:
        by_column = list(zip(*rows, strict=True)) or [()] * (len(_COLUMNS) + 4 * len(judged))
        self.columns = {
            name: _column(name, kind, values)
            for (name, kind), values in zip(_COLUMNS.items(), by_column, strict=False)
        }
        """By name, those of `_COLUMNS`."""
        said = by_column[len(_COLUMNS) :]
        self.statistics = {
            one.column: _statistics(said[4 * at : 4 * at + 4]) for at, one in enumerate(judged)
        }
        """By the id of a column, least and greatest as text, nulls, and whether there is NaN."""
        self._check()

    def __len__(self) -> int:
        return len(self.columns["id"])

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        arrays = [*self.columns.values(), *(array for four in self.statistics.values() for array in four)]
        return int(sum(array.nbytes for array in arrays))

    def _check(self) -> None:
        columns = self.columns
        for name in _NEVER_NULL:
            if columns[name].null_count:
                raise TableFormatError(f"the catalog has files without {name}")
        for name, kind in _COLUMNS.items():
            if pa.types.is_integer(kind) and len(self) and (pc.min(columns[name]).as_py() or 0) < 0:
                raise TableFormatError(f"the catalog has files with a negative {name}")
        if columns["key"].null_count + columns["delete_key"].null_count < 2 * len(self):
            raise TableFormatError("a file of the table is encrypted, which accel does not read")
        for kind in pc.unique(columns["format"]).to_pylist():
            if kind.lower() != "parquet":
                raise TableFormatError(f"a file of the table is of the format {kind[:40]!r}")
        bare = pc.and_(
            pc.is_valid(columns["delete_path"]),
            pc.or_(pc.is_null(columns["delete_rows"]), pc.is_null(columns["delete_size"])),
        )
        if pc.any(bare).as_py():
            raise TableFormatError("a delete file has no size, or no number of rows")

    def changed(self, version: int, deleted: Mapping[int, Int64s]) -> list[int]:
        """Return the places of the files of which rows are gone in a version."""
        newer = pc.greater(self.columns["newest"], make_scalar(version, pa.int64()))
        some = pc.or_(
            pc.is_valid(self.columns["delete_path"]), pc.fill_null(newer, make_scalar(False, pa.bool_()))
        )
        if deleted:
            ids = values_array(list(deleted), pa.int64())
            some = pc.or_(some, pc.is_in(self.columns["id"], value_set=ids))
        places: list[int] = np.flatnonzero(mask(some)).tolist()
        return places

    def file(self, place: int) -> LakeFile:
        """Return one of the files."""
        values = {name: self.columns[name][place].as_py() for name in LakeFile.__slots__}
        return LakeFile(**values)


def _column(name: str, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_boolean(kind):  # SQLite has numbers
        values = [None if value is None else bool(value) for value in values]
    try:
        return values_array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise TableFormatError(f"the catalog has other than {kind} as the {name} of a file") from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 62


def _statistics(columns: Sequence[Sequence[Any]]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Return statistics, each null where it is none."""
    lower, upper, nulls, nan = columns
    return (
        values_array([value if isinstance(value, str) else None for value in lower], pa.string()),
        values_array([value if isinstance(value, str) else None for value in upper], pa.string()),
        values_array([one if _is_count(one) else None for one in nulls], pa.int64()),
        values_array([None if value is None else bool(value) for value in nan], pa.bool_()),
    )


def read_files(
    session: Session, found: LakeVersion, bound: Bound | None, judged: Sequence[JudgedColumn | None]
) -> list[FilePage]:
    """Return the files that may hold rows that match, in pages, by one query.

    Parameters
    ----------
    bound : Bound or None
        The filter.
    judged : sequence of JudgedColumn or None
        Its columns; None for those without statistics.

    Raises
    ------
    TableFormatError
        As `FilePage` raises it.
    """
    table, at = found.table, found.version
    condition = None if bound is None else FileConditions(bound, judged, session).condition()
    by_column = {one.column: one for one in judged if one is not None}
    joins = "".join(
        f" LEFT JOIN ducklake_file_column_stats s{number} ON s{number}.data_file_id = f.data_file_id AND "
        f"s{number}.table_id = {table} AND s{number}.column_id = {number}"
        for number in by_column
    )
    statistics = "".join(
        f", s{number}.min_value, s{number}.max_value, s{number}.null_count, s{number}.contains_nan"
        for number in by_column
    )
    statement = (
        "SELECT f.data_file_id, f.path, f.path_is_relative, f.record_count, f.file_size_bytes, "
        "f.footer_size, f.mapping_id, f.partial_max, d.path, d.path_is_relative, d.format, d.delete_count, "
        f"d.file_size_bytes, d.partial_max, f.file_format, f.encryption_key, d.encryption_key{statistics} "
        "FROM ducklake_data_file f LEFT JOIN (SELECT * FROM ducklake_delete_file x WHERE "
        f"x.table_id = {table} AND {visible('x', at)}) d ON d.data_file_id = f.data_file_id{joins} "
        f"WHERE f.table_id = {table} AND {visible('f', at)}"
    )
    if condition is not None:
        statement += f" AND {condition.sql}"
    statement += " ORDER BY f.data_file_id"
    parameters = () if condition is None else condition.parameters
    columns = list({one.column: one for one in judged if one is not None}.values())
    return [FilePage(page, columns) for page in session.pages(statement, parameters)]


def read_deleted_rows(session: Session, found: LakeVersion, pages: Sequence[FilePage]) -> dict[int, Int64s]:
    """Return the rows that the catalog itself says are deleted, by the id of their file."""
    files = sum(map(len, pages))
    if found.deletes is None or not files:
        return {}
    statement = f"SELECT file_id, row_id FROM {found.deletes} WHERE begin_snapshot <= {found.version}"
    if files <= _MOST_IDS:
        ids = [number for page in pages for number in page.columns["id"].to_pylist()]
        statement += f" AND file_id IN ({', '.join(map(str, ids))})"
    rows = session.fetch(f"{statement} ORDER BY file_id")
    try:
        pairs = np.array(rows, np.int64).reshape(-1, 2)
    except (ValueError, TypeError, OverflowError):
        raise TableFormatError("the catalog has other than numbers for deleted rows") from None
    numbers, starts = np.unique(pairs[:, 0], return_index=True)
    parts = np.split(pairs[:, 1], starts[1:])
    return dict(zip(numbers.tolist(), parts, strict=True)) if len(numbers) else {}
