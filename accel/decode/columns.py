"""Selected rows of selected columns, decoded by pyarrow from chosen pages of one row group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.decode.arrow import ParquetReader, fields_of, open_reader, translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.dictionary_arrays import Values, check_indices, is_indexed, join_arrays, look_up
from accel.decode.dictionary_decode import read_as_indices, splice_indices
from accel.decode.direct_decoders import direct_units, read_directly
from accel.decode.extensions import is_dressed
from accel.decode.instants import check_instants, with_stored_instants
from accel.decode.rewritten_pages import verify_readable
from accel.decode.splice import SplicedChunk, SplicePlan, plan_splice, splice
from accel.decode.trim import place_rows, trim
from accel.decode.units import Unit, Verified, cut_units, group_units, step_of
from accel.decode.verify import PageFacts, check_text_sizes, page_body
from accel.errors import AccelError, MemoryLimitError, ParquetFormatError
from accel.format.model import INT96_UNIT, Codec, ParquetSchema
from accel.planning.projection import has_instants
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.decode.nested import Siblings

__all__ = [
    "cut_calls",
    "decode_columns",
    "splice_units",
]


def decode_columns(
    schema: ParquetSchema,
    key_value: Mapping[str, bytes],
    *,
    chunks: Mapping[int, ChunkPages],
    rows: RowSelection,
    arrow_schema: pa.Schema,
    leaves: Sequence[int],
    path: str,
    row_group: int,
    values: Values = Values.DECODED,
    memory_limit: int | None = None,
    created_by: str = "",
    int96_unit: str = INT96_UNIT,
    verify_checksums: bool = True,
    left: list[int] | None = None,
) -> list[pa.Array | pa.ChunkedArray]:
    """Decode the selected rows of some leaves of one row group.

    Parameters
    ----------
    schema, key_value
        Of the file. Parts of the work are kept for the next call with these very objects.
    chunks : mapping
        By leaf ordinal, for each of `leaves`: the pages, which hold at least all of `rows`.
    rows : RowSelection
        Within the row group.
    arrow_schema : pyarrow.Schema
        What `projected_schema` gives for `leaves`.
    leaves : sequence of int
        Ordinals, in any order.
    path : str
        Names the file in errors.
    memory_limit : int, optional
        Bytes that one column may decode to.
    created_by : str
        Of the file: pyarrow makes up for what some old writers did wrong.
    int96_unit : str
        Of INT96 timestamps, as `arrow_schema` has them: "ns" or "us".
    verify_checksums : bool
        Whether pages that have a checksum are held against it.
    left : list of int, optional
        Given the leaves that were begun by a way of their own and left to pyarrow.

    Returns
    -------
    list of pyarrow.Array or pyarrow.ChunkedArray
        For each field of `arrow_schema` an array of its type with `rows.count` rows, in order. Chunked
        only where one array cannot hold it (dictionaries that differ, offsets beyond 2 GiB), or where joining
        much of what was decoded apart would cost more than it is worth. With
        `Values.INDEXED` some may be DictionaryArrays instead, to be looked up later.

    Raises
    ------
    ParquetFormatError
        The pages contradict their headers, the offset index or the schema, or do not decode.
    MemoryLimitError
        They decode to more than `memory_limit`.
    ValueError
        A chunk is missing, or does not hold all of `rows`.
    """
    fields = fields_of(schema, leaves)
    if len(fields) != len(arrow_schema):
        raise ValueError(f"{len(arrow_schema)} fields in the Arrow schema, {len(fields)} among the leaves")
    if not rows:
        return [pa.nulls(0, field.type) for field in arrow_schema]
    try:
        job = _Job(
            schema,
            chunks,
            rows,
            row_group,
            memory_limit,
            int96_unit=int96_unit,
            created_by=created_by,
            verify_checksums=verify_checksums,
        )
        job.verify(sorted(set(leaves)))
        units = cut_units(job.known, fields, arrow_schema=arrow_schema)
        job.read_directly(units, arrow_schema, left)
        indexed = [unit.leaves[0] for unit in units if unit.indexed]
        plan = partial(plan_splice, schema, key_value, fields=fields, created_by=created_by, indexed=indexed)
        return job.decode(plan, units, arrow_schema, values)
    except AccelError as error:
        raise error.at(path=path, place=f"row group {row_group}")


class _Job:
    """One call of `decode_columns`."""

    def __init__(
        self,
        schema: ParquetSchema,
        chunks: Mapping[int, ChunkPages],
        rows: RowSelection,
        row_group: int,
        memory_limit: int | None,
        *,
        int96_unit: str,
        created_by: str,
        verify_checksums: bool,
    ) -> None:
        self._verify_checksums = verify_checksums
        self._int96_unit = int96_unit
        self._created_by = created_by
        self._schema = schema
        self._chunks = chunks = dict(chunks)
        self._rows = rows
        self._row_group = row_group
        self._memory_limit = memory_limit
        self._facts: dict[int, PageFacts] = {}
        self._direct: dict[Unit, pa.ChunkedArray] = {}
        # Not a method of this object: in a circle with it, pages would be held until Python collects garbage.
        self._place = partial(_place, schema, row_group)
        self.known = Verified(
            schema=schema, chunks=chunks, facts=self._facts, memory_limit=memory_limit, place=self._place
        )

    def verify(self, leaves: Sequence[int]) -> None:
        if not self._chunks.keys() >= {*leaves}:
            raise ValueError(f"no pages for a leaf among {leaves}")
        for ordinal in leaves:
            leaf, chunk = self._schema.leaves[ordinal], self._chunks[ordinal]
            self._chunks[ordinal], self._facts[ordinal] = verify_readable(
                chunk,
                leaf,
                element=self._schema.elements[leaf.element],
                memory_limit=self._memory_limit,
                place=partial(self._place, (ordinal,)),
                verify_checksums=self._verify_checksums,
            )

    def read_directly(self, units: Sequence[Unit], arrow_schema: pa.Schema, left: list[int] | None) -> None:
        """Decode the units that a direct decoder takes, for `decode`."""
        for unit in direct_units(self.known, units, self._rows):
            array = read_directly(self.known, unit, self._rows, arrow_schema.field(unit.field), left=left)
            if array is not None:
                self._direct[unit] = array

    def decode(
        self, plan: Callable[[], SplicePlan], units: Sequence[Unit], arrow_schema: pa.Schema, values: Values
    ) -> list[pa.Array | pa.ChunkedArray]:
        arrays = dict(self._direct)
        left = [unit for unit in units if unit not in arrays]
        if left:
            with translate_errors():
                planned = plan()
            for call in cut_calls(self.known, left):
                self._read_all(planned, call, arrow_schema, arrays)
        found: list[list[pa.ChunkedArray]] = [[] for _ in arrow_schema]
        for unit in units:
            found[unit.field].append(arrays[unit])
        out = []
        for field, parts in zip(arrow_schema, found, strict=True):
            array = parts[0] if len(parts) == 1 and not is_dressed(field.type) else self._merge(parts, field)
            array = array.chunk(0) if array.num_chunks == 1 else array
            indexed = is_indexed(array, field.type)
            if not (indexed or array.type.equals(field.type)) or len(array) != self._rows.count:
                raise ParquetFormatError(
                    f"column {field.name} decoded to {len(array)} rows of {array.type}, due are "
                    f"{self._rows.count} of {field.type}"
                )
            if indexed and values is Values.DECODED:
                place = f"row group {self._row_group}, column {field.name}"
                array = look_up(array, field.type, memory_limit=self._memory_limit, place=place)
            out.append(array)
        return out

    def _read_all(
        self,
        plan: SplicePlan,
        units: Sequence[Unit],
        arrow_schema: pa.Schema,
        arrays: dict[Unit, pa.ChunkedArray],
    ) -> None:
        """Decode these units by pyarrow, from one file in memory."""
        leaves = [leaf for unit in units for leaf in unit.leaves]
        num_rows = max(unit.num_rows for unit in units)
        if not units[0].joined and any(self._schema.leaves[leaf].max_repetition for leaf in leaves):
            # One row more than the longest column has: rows that nobody promised would show. Where each value is
            # a row they have been counted, and pyarrow would reserve twice the memory for one more than 2**20.
            num_rows += 1
        with translate_errors(place=partial(self._place, leaves)):
            data = splice_units(self.known, plan, units=units, num_rows=num_rows)
            reader = open_reader(data, int96_unit=self._int96_unit)
        steps = {unit: step for unit in units if (step := step_of(self.known, unit)) is not None}
        if any(self._schema.leaves[leaf].max_repetition for unit in steps for leaf in unit.leaves):
            from accel.decode.nested import weigh_lists

            steps = weigh_lists(self.known, steps, plan=plan, data=data)
        siblings = self._siblings(units)
        for batch in group_units(units, steps):
            step = steps.get(batch[0])
            for unit, array in zip(batch, self._read(reader, plan, batch, step), strict=True):
                arrays[unit] = self._cut(unit, array, arrow_schema.field(unit.field).type)
                if has_instants(self._schema, unit.leaves):
                    self._check_instants(arrays[unit], plan.fields, unit, num_rows, step)
                if siblings is not None:
                    siblings.add(unit.leaves[0], array)
        if siblings is not None:
            siblings.check()

    def _check_instants(
        self, array: pa.ChunkedArray, fields: Sequence[int], unit: Unit, num_rows: int, step: int | None
    ) -> None:
        with translate_errors(place=partial(self._place, unit.leaves)):
            stored_as = with_stored_instants(self._schema)
            plan = plan_splice(stored_as, {}, fields=fields, created_by=self._created_by)
            data = splice_units(self.known, plan, units=[unit], num_rows=num_rows)
            (stored,) = self._read(open_reader(data), plan, [unit], step)
            check_instants(array, self._cut(unit, stored, array.type))

    def _siblings(self, units: Sequence[Unit]) -> Siblings | None:
        if len({unit.field for unit in units}) == len(units):
            return None
        from accel.decode.nested import Siblings

        return Siblings(self.known, units, wanted=self._rows.count)

    def _read(
        self, reader: ParquetReader, plan: SplicePlan, batch: Sequence[Unit], step: int | None
    ) -> list[pa.ChunkedArray]:
        leaves = [leaf for unit in batch for leaf in unit.leaves]
        columns = [plan.column(leaf) for leaf in leaves]
        if step is not None:
            return [self._read_slowly(reader, batch[0], columns, step)]
        try:
            with translate_errors(place=partial(self._place, leaves)):
                return list(reader.read_row_groups([0], columns, use_threads=False).columns)
        except AccelError:
            if len(batch) == 1:
                raise
        # One by one, so that the error names its column.
        return [array for unit in batch for array in self._read(reader, plan, [unit], None)]

    def _read_slowly(
        self, reader: ParquetReader, unit: Unit, columns: Sequence[int], step: int
    ) -> pa.ChunkedArray:
        place = self._place(unit.leaves)
        arrays: list[pa.Array] = []
        held = 0
        with translate_errors(place=place):
            for batch in reader.iter_batches(step, [0], columns, use_threads=False):
                arrays.append(batch.column(0))
                held += int(batch.nbytes)
                if self._memory_limit is not None and held > self._memory_limit:
                    raise MemoryLimitError(
                        f"the column decodes to more than {self._memory_limit} bytes",
                        place=place,
                        hint="raise options.memory_limit",
                    )
            return join_arrays(arrays)

    def _cut(self, unit: Unit, array: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """The selected rows of a decoded unit, once it is sure that it has the rows promised."""
        if len(array) != unit.num_rows:
            raise ParquetFormatError(
                f"{len(array)} rows were decoded, promised are {unit.num_rows}",
                place=self._place(unit.leaves),
            )
        chunk = self._chunks[unit.leaves[0]]
        if not chunk.whole and self._schema.leaves[chunk.leaf].max_repetition > 0:
            from accel.decode.nested import check_levels

            with translate_errors(place=partial(self._place, (chunk.leaf,))):
                check_levels(chunk, array, page_values=self._facts[chunk.leaf].page_values)
        placed = place_rows(chunk, self._rows)
        with translate_errors(place=partial(self._place, unit.leaves)):
            array = check_indices(array)
            facts = self._facts[chunk.leaf]
            body = partial(page_body, chunk, facts.tables, self._memory_limit)
            check_text_sizes(array, facts, leaf=self._schema.leaves[chunk.leaf], body=body)
            kept = trim(array, placed)
            return self._name_entries(kept, chunk, kind) if unit.indexed else kept

    def _name_entries(
        self, indices: pa.ChunkedArray, chunk: ChunkPages, kind: pa.DataType
    ) -> pa.ChunkedArray:
        named = self._facts[chunk.leaf].dictionary
        if named is None:
            raise ValueError("there is no dictionary to read as indices")
        element = self._schema.elements[self._schema.leaves[chunk.leaf].element]
        return read_as_indices(indices, named, codec=chunk.codec, element=element, kind=kind)

    def _merge(self, parts: Sequence[pa.ChunkedArray], field: pa.Field) -> pa.ChunkedArray:
        """One field out of its leaves, cut where any of them has a chunk's end."""
        from accel.decode.nested import merge_leaves

        cuts = sorted({0, *(int(end) for part in parts for end in np.cumsum([len(c) for c in part.chunks]))})
        merged = []
        for start, stop in itertools.pairwise(cuts):
            pieces = [part.slice(start, stop - start) for part in parts]
            with translate_errors(place=f"row group {self._row_group}, column {field.name}"):
                merged.append(merge_leaves([_join(piece.chunks) for piece in pieces], field.type))
        return pa.chunked_array(merged, type=field.type)


def _place(schema: ParquetSchema, row_group: int, leaves: Iterable[int]) -> str:
    names = [".".join(schema.leaves[leaf].path) for leaf in leaves]
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"row group {row_group}, column{'s' if len(names) > 1 else ''} {shown}"


def _join(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


_MOST_BARE: Final = 8 << 20
"""Bytes of pages that are decompressed beside one another: all of them are held until the last has been decoded."""


def cut_calls(known: Verified, units: Sequence[Unit]) -> list[list[Unit]]:
    """The units, those of a field together, by the file that they are decoded from: one, but where pages may be
    decompressed in it, and another for those that are `joined`."""
    joined = [unit for unit in units if unit.joined]
    if joined and len(joined) < len(units):
        others = [unit for unit in units if not unit.joined]
        return [*cut_calls(known, joined), *cut_calls(known, others)]
    if not any(known.chunks[leaf].codec == Codec.SNAPPY for unit in units for leaf in unit.leaves):
        return [list(units)]
    calls: list[list[Unit]] = []
    held = 0
    for unit in units:
        size = sum(known.facts[leaf].uncompressed for leaf in unit.leaves)
        if not calls or (held + size > _MOST_BARE and calls[-1][-1].field != unit.field):
            calls.append([])
            held = 0
        calls[-1].append(unit)
        held += size
    return calls


def splice_units(known: Verified, plan: SplicePlan, *, units: Sequence[Unit], num_rows: int) -> pa.Buffer:
    """A file of one row group that has the pages of these units; decompressed, where that is faster so.

    `num_rows` is that of `splice`.
    """
    leaves = [leaf for unit in units for leaf in unit.leaves]
    bare = _bare_chunks(known, plan, leaves)
    chunks = {leaf: bare.get(leaf) or _as_stored(known, plan, leaf) for leaf in leaves}
    try:
        return splice(plan, chunks, num_rows=num_rows)
    except ParquetFormatError:
        # pyarrow will say what is wrong with a page that does not decompress.
        return splice(plan, {leaf: _as_stored(known, plan, leaf) for leaf in leaves}, num_rows=num_rows)


def _as_stored(known: Verified, plan: SplicePlan, leaf: int) -> SplicedChunk:
    chunk, facts = known.chunks[leaf], known.facts[leaf]
    if leaf in plan.indexed and facts.dictionary is not None:
        return splice_indices(chunk, facts, named=facts.dictionary)
    return SplicedChunk(facts.parts, chunk.codec, facts.num_values, facts.uncompressed)


def _bare_chunks(known: Verified, plan: SplicePlan, leaves: Sequence[int]) -> Mapping[int, SplicedChunk]:
    """Those of the chunks whose pages are decompressed as they are spliced."""
    snappy = [leaf for leaf in leaves if known.chunks[leaf].codec == Codec.SNAPPY]
    if not snappy:
        return {}
    from accel.decode.rewritten_pages import bare_chunk

    found: dict[int, SplicedChunk] = {}
    for leaf in snappy:
        chunk, facts = known.chunks[leaf], known.facts[leaf]
        bare = bare_chunk(chunk, facts, indexed=leaf in plan.indexed)
        if bare is not None:
            found[leaf] = bare
    return found
