"""Which files of a catalog have columns that the scan cannot take: a scan without the catalog would refuse
them.

A file says by its schema what its columns are, and the catalog has a fingerprint of each schema. Files whose
schema is that of the first file of the scan are not looked at. Of each other schema the metadata of one file
is: whether what the question looks at widens to the types of the data set. Files that do not are never ruled
out, so that the scan opens them and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.catalog.segments import SegmentReader, SegmentTables
from accel.decode.arrow import arrow_schema
from accel.errors import AccelError
from accel.format.footer import parse_footer, parse_tail
from accel.format.model import ParquetSchema
from accel.options import Int96Unit
from accel.planning.projection import settle_schemas, split_name
from accel.planning.query import Question, compile_query

if TYPE_CHECKING:
    from accel.arrays import Bools
    from accel.planning.column_mapping import ColumnMapping
    from accel.predicate.expr import Expr

__all__ = ["TypeCheck"]


@dataclass(frozen=True, slots=True, eq=False)
class TypeCheck:
    """Tells which files a scan would refuse for their types."""

    question: Question
    int96_unit: Int96Unit
    """The unit that INT96 timestamps are read to."""
    mappings: Sequence[ColumnMapping | None] = (None,)
    """How files have the columns of the data set: a file has to fit by each, as it is not known which is
    its."""
    _fits: dict[str, bool] = field(default_factory=dict)
    """By the fingerprint of a schema, whether its columns widen to those of the data set."""

    @classmethod
    def of(
        cls,
        data_set: pa.Schema,
        *,
        where: Expr | None,
        columns: Sequence[str] | None,
        facts_of: Sequence[str] | None,
        partition_names: Sequence[str],
        int96_unit: Int96Unit,
        fingerprint: str | None,
        mappings: Sequence[ColumnMapping | None] = (None,),
        case_sensitive: bool = True,
    ) -> TypeCheck:
        """Make the check of a scan.

        Parameters
        ----------
        data_set : pyarrow.Schema
        where : Expr or None
        columns : sequence or None
            Those of the result; None for all.
        facts_of : sequence of str or None
            The columns of an aggregate, which looks at no others; None where that is not known.
        partition_names : sequence of str
            The columns that paths spell.
        int96_unit : Int96Unit
        fingerprint : str or None
            That of files which settle the data set, and need not be looked at; None where a caller gives the
            schema.
        mappings : sequence of ColumnMapping or None
            How files have the columns of the data set.
        case_sensitive : bool
            As for `split_name`, of the columns of an aggregate; the others are spelled as the data set is.

        Raises
        ------
        AccelError
            There are no such columns.
        """
        _, output = settle_schemas(
            data_set, None if columns is None else tuple(columns), alone=False, folded=True
        )
        if facts_of is not None:
            names: dict[str, None] = {}
            with suppress(AccelError):
                paths = (split_name(name, data_set, case_sensitive=case_sensitive) for name in facts_of)
                names = dict.fromkeys(path[0] for path in paths)
                output = pa.schema([data_set.field(name) for name in names])
        question = Question(where, data_set, output, tuple(partition_names))
        return cls(question, int96_unit, mappings, {} if fingerprint is None else {fingerprint: True})

    async def refused(self, tables: SegmentTables, reader: SegmentReader) -> Bools | None:
        """Return whether each file of a segment is one that the scan refuses; None where none is."""
        segment = tables.segment
        listed = segment.fingerprints
        if listed is not None and all(self._fits.get(one, False) for one in listed):
            return None
        if listed is not None and len(listed) == 1:
            fingerprints = list(listed)
            places = {fingerprints[0]: tables.first}
        else:
            fingerprints = list((await reader.load_counts(tables)).fingerprints)
            places = {}
            for at in np.flatnonzero(tables.live()).tolist():
                places.setdefault(fingerprints[at], at)
        unknown = {one: at for one, at in places.items() if one not in self._fits}
        missing = {one: at for one, at in unknown.items() if one not in tables.schemas}
        if missing:
            sizes = (await reader.load_directory(tables)).sizes
            metadata = await reader.metadata(tables, sorted(missing.values()))
            for one, at in missing.items():
                with suppress(AccelError):  # opened in its turn, it says what is wrong
                    tables.schemas[one] = _schemas(metadata[at], sizes[at], self.int96_unit)
        for one in unknown:
            found = tables.schemas.get(one)
            self._fits[one] = found is not None and self._fits_by_all(*found)
        if len(fingerprints) < segment.num_files:
            return None if self._fits[fingerprints[0]] else np.ones(segment.num_files, bool)
        refused = np.array([not self._fits.get(one, True) for one in fingerprints], bool)
        return refused if bool(refused.any()) else None

    def _fits_by_all(self, schema: ParquetSchema, arrow: pa.Schema, texts: Mapping[str, bytes]) -> bool:
        for mapping in self.mappings:
            if mapping is None:
                fits = self.fits(schema, arrow)
            else:
                try:
                    named = mapping.relabel(schema)
                except AccelError:
                    return False
                unit = Int96Unit(mapping.int96_unit or self.int96_unit)
                fits = self.fits(named, arrow_schema(named, texts, int96_unit=unit))
            if not fits:
                return False
        return True

    def fits(self, file_schema: ParquetSchema, arrow: pa.Schema) -> bool:
        """Return whether what the question looks at widens to the types of the data set."""
        try:
            compile_query(self.question, file_schema=file_schema, arrow_schema=arrow, partition={}, url="")
        except AccelError:
            return False
        return True


def _schemas(
    tail: bytes, size: int, int96_unit: Int96Unit
) -> tuple[ParquetSchema, pa.Schema, Mapping[str, bytes]]:
    """Return the schemas of a file and the texts of its footer, given the bytes of its end."""
    length = parse_tail(memoryview(tail)[-8:]).length
    footer = parse_footer(tail[-8 - length : -8], file_size=size, footer_start=size - 8 - length)
    arrow = arrow_schema(footer.schema, footer.key_value, int96_unit=int96_unit)
    return footer.schema, arrow, footer.key_value
