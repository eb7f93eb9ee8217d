"""A table in memory: a source that says its schema, its files with their bounds, the rows that are gone, and
renamed columns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accel.planning.column_bounds import ColumnBounds
from accel.planning.column_mapping import ColumnMapping
from accel.planning.deleted_rows import DeletedRows
from accel.planning.file_entry import FileBlock
from accel.scanning.file_source import FileSource, SourceRequest
from accel.testing.stores import DictStore

__all__ = ["TableFile", "TableSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One file of a table, as its log has it."""

    path: str
    """The path in the store."""
    size: int
    """Its size in bytes."""
    num_rows: int
    """Its rows, the deleted ones included."""
    etag: str | None = None
    """None: the table vouches that the path never changes."""
    lower: Mapping[str, Any] = field(default_factory=dict)
    """By column of the table, a value that none in the file is less than."""
    upper: Mapping[str, Any] = field(default_factory=dict)
    """By column of the table, a value that none in the file is greater than."""
    null_count: Mapping[str, int] = field(default_factory=dict)
    """By column of the table, its nulls."""
    deleted: Sequence[int] = ()
    """The numbers of the rows that are gone."""
    partition: Mapping[str, Any] = field(default_factory=dict)
    """The values of the partition columns."""


class TableSource(FileSource):
    """A table whose log is a list in memory; the files lie in a store. It notes whose deletes it loads.

    Parameters
    ----------
    schema : pyarrow.Schema or None
        The columns of the table, partition columns among them; None leaves it to the first file.
    files : sequence of TableFile, optional
        The files, in the order of the result; `write` adds others.
    partition_schema : pyarrow.Schema, optional
        The columns whose values are those of `TableFile.partition`.
    columns : ColumnMapping, optional
        Which columns of the files are meant.
    per_block : int
        Files of a block.
    loads_deletes : bool
        The row numbers that are gone are loaded when a file is planned, as a table does that has them in
        files.

    Examples
    --------
    >>> store = DictStore({})
    >>> source = TableSource(pa.schema([("id", pa.int64())]))
    >>> source.write(store, "a.parquet", pa.table({"id": [1, 2, 3]}), deleted=[1])
    >>> accel.scan(source, store=store).count_rows()
    2
    """

    def __init__(
        self,
        schema: pa.Schema | None,
        files: Sequence[TableFile] = (),
        *,
        partition_schema: pa.Schema | None = None,
        columns: ColumnMapping | None = None,
        per_block: int = 100_000,
        loads_deletes: bool = False,
    ) -> None:
        self._schema = schema
        self.files = list(files)
        self._partition_schema = pa.schema([]) if partition_schema is None else partition_schema
        self._columns = columns
        self._per_block = per_block
        self._loads_deletes = loads_deletes
        self.loaded: list[str] = []
        """The paths of the files whose deleted rows were loaded, in order."""

    def write(
        self,
        store: DictStore,
        path: str,
        rows: pa.Table,
        *,
        names: Mapping[str, str] | None = None,
        deleted: Iterable[int] = (),
        partition: Mapping[str, Any] | None = None,
        bounded: Iterable[str] = (),
        etags: bool = False,
        **written: Any,
    ) -> None:
        """Write a file into a store, and add it to the table.

        Parameters
        ----------
        store : DictStore
            Where the file is put.
        path : str
            Its path there.
        rows : pyarrow.Table
            Under the names of the file.
        names : mapping of str to str, optional
            By a name of the file, that of the table, where it is another.
        deleted : iterable of int
            The rows that are gone.
        partition : mapping, optional
            The values of the partition columns.
        bounded : iterable of str
            Columns of the file whose bounds the table has.
        etags : bool
            The table knows the etag, and does not vouch for the path.
        **written
            Passed to `pyarrow.parquet.write_table`.
        """
        out = pa.BufferOutputStream()
        pq.write_table(rows, out, **written)
        data = out.getvalue().to_pybytes()
        store.put(path, data)
        lower, upper, nulls = {}, {}, {}
        for column in bounded:
            name = (names or {}).get(column, column)
            ends = pc.min_max(rows[column])
            lower[name], upper[name] = ends["min"].as_py(), ends["max"].as_py()
            nulls[name] = rows[column].null_count
        self.files.append(
            TableFile(
                path=path,
                size=len(data),
                num_rows=rows.num_rows,
                etag=store.etags[path] if etags else None,
                lower=lower,
                upper=upper,
                null_count=nulls,
                deleted=tuple(deleted),
                partition=dict(partition or {}),
            )
        )

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the table.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks.

        Returns
        -------
        pyarrow.Schema or None
            As it was given.
        """
        return self._schema

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files, some at a time.

        Parameters
        ----------
        request : SourceRequest
            What the scan asks.

        Yields
        ------
        FileBlock
            At most `per_block` files.
        """
        for start in range(0, max(1, len(self.files)), self._per_block):
            some = self.files[start : start + self._per_block]
            yield self._block(request, some, more=start + len(some) < len(self.files))

    def _block(self, request: SourceRequest, files: Sequence[TableFile], *, more: bool) -> FileBlock:
        bounded = dict.fromkeys(name for file in files for name in file.lower)
        etags = [file.etag for file in files]
        return request.block(
            [file.path for file in files],
            sizes=[file.size for file in files],
            etags=etags if any(etags) else None,
            immutable=not any(etags),
            num_rows=pa.array([file.num_rows for file in files], pa.int64()),
            partition={
                field.name: pa.array([file.partition.get(field.name) for file in files], field.type)
                for field in self._partition_schema
            },
            bounds={
                name: ColumnBounds(
                    lower=_array([file.lower.get(name) for file in files], self._type_of(name)),
                    upper=_array([file.upper.get(name) for file in files], self._type_of(name)),
                    null_count=pa.array([file.null_count.get(name) for file in files], pa.int64()),
                )
                for name in bounded
            },
            deleted={place: self._deleted(file) for place, file in enumerate(files) if file.deleted},
            columns=self._columns,
            more=more,
        )

    def _type_of(self, name: str) -> pa.DataType | None:
        return None if self._schema is None else self._schema.field(name).type

    def _deleted(self, file: TableFile) -> DeletedRows:
        if not self._loads_deletes:
            return DeletedRows.of(file.deleted)

        async def load() -> Sequence[int]:
            self.loaded.append(file.path)
            return file.deleted

        return DeletedRows.later(load, count=len(set(file.deleted)))


def _array(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    return pa.array(values, kind)


def made_files(count: int, *, rows: int = 1000) -> list[TableFile]:
    """Return so many files that nobody has written, each with the bounds of a column `k` that counts on."""
    firsts = (np.arange(count, dtype=np.int64) * rows).tolist()
    return [
        TableFile(
            path=f"part-{at:06d}.parquet",
            size=1000,
            num_rows=rows,
            lower={"k": first},
            upper={"k": first + rows - 1},
            null_count={"k": 0},
        )
        for at, first in enumerate(firsts)
    ]
