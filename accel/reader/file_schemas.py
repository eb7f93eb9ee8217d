"""The schemas that one scan reads files with: by its unit of INT96, and under the names of its source."""

from __future__ import annotations

import pyarrow as pa

from accel.decode.arrow import arrow_schema, holds_instants
from accel.errors import AccelError
from accel.format.model import ParquetSchema
from accel.options import Int96Unit, Options
from accel.planning.caseless_names import CaselessNames
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.projection import zoned_schema

__all__ = ["FileSchemas"]


class FileSchemas:
    """Finds the schemas of files for one scan.

    Parameters
    ----------
    options : Options
    """

    def __init__(self, options: Options) -> None:
        nanos = options.int96_unit in (Int96Unit.AUTO, Int96Unit.NS)
        self.int96_unit = Int96Unit.NS if nanos else Int96Unit.US
        """The unit that INT96 timestamps are read to."""
        self._zoned = options.int96_unit == Int96Unit.US_UTC
        self.caseless: CaselessNames | None = None
        """How files have the columns of the scan, once these are settled, where names are compared without
        regard to case."""

    def of(self, handle: FileHandle) -> pa.Schema:
        """Return the Arrow schema that this scan reads a file with."""
        shared = handle.shared
        if self.int96_unit == Int96Unit.NS or not holds_instants(shared.schema):
            return handle.arrow_schema
        return arrow_schema(shared.schema, shared.key_value, int96_unit=self.int96_unit)

    def under_names(self, file: FileEntry, handle: FileHandle) -> tuple[ParquetSchema, pa.Schema]:
        """Return the schemas that this scan reads a file with: its own, or those under the names that its
        source maps, or that the data set spells otherwise.

        Raises
        ------
        TableFormatError, SchemaMismatchError
            Two columns of the file are the same one of the data set.
        """
        shared = handle.shared
        names = self.caseless if file.columns is None else file.columns
        if names is None:
            return shared.schema, self.of(handle)
        try:
            schema = names.relabel(shared.schema)
        except AccelError as error:
            raise error.at(path=file.url) from None
        if schema is shared.schema and file.columns is None:
            return schema, self.of(handle)
        return schema, arrow_schema(schema, shared.key_value, int96_unit=self.int96_unit_of(file))

    def int96_unit_of(self, file: FileEntry) -> str:
        """Return the unit in which INT96 timestamps of a file are read."""
        return (None if file.columns is None else file.columns.int96_unit) or self.int96_unit

    def of_rows(self, handle: FileHandle) -> pa.Schema:
        """Return the Arrow schema of the scan's rows, if this file settles it.

        It is that of the file, but for INT96: files are read without a zone, and the rows may get one.
        """
        schema = self.of(handle)
        if not self._zoned:
            return schema
        return zoned_schema(handle.shared.schema, schema) or schema
