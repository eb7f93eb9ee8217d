"""Selected rows of selected columns, decoded by pyarrow from chosen pages of one row group."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.decode.arrow import ParquetReader, fields_of, open_reader, translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.dictionary_arrays import Values, check_indices, is_indexed, join_arrays, look_up
from accel.decode.dictionary_decode import read_as_indices, splice_indices
from accel.decode.direct_decoders import direct_units, read_directly
from accel.decode.extensions import is_composite
from accel.decode.instants import check_instants, with_stored_instants
from accel.decode.rewritten_pages import uncompressed_chunk, verify_readable
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
    "StoredRowGroup",
    "cut_calls",
    "decode_columns",
    "splice_units",
]


@dataclass(frozen=True, slots=True)
class StoredRowGroup:
    """A row group, and what its file says of all of them.

    What is computed from these very `schema` and `key_value` is cached for the next call.
    """

    path: str
    """Names the file in errors."""
    row_group: int
    schema: ParquetSchema
    key_value: Mapping[str, bytes]
    created_by: str = ""
    """The file's writer: pyarrow corrects what some old writers did wrong."""
    int96_unit: str = INT96_UNIT
    """The unit that timestamps of INT96 decode to: "ns" or "us"."""


def decode_columns(
    group: StoredRowGroup,
    chunks: Mapping[int, ChunkPages],
    *,
    rows: RowSelection,
    arrow_schema: pa.Schema,
    values: Values = Values.DECODED,
    memory_limit: int | None = None,
    verify_checksums: bool = True,
    left: list[int] | None = None,
) -> list[pa.Array | pa.ChunkedArray]:
    """Decode the selected rows of some leaves of one row group.

    Parameters
    ----------
    group : StoredRowGroup
    chunks : mapping
        The pages of each leaf, by ordinal; they hold at least all of `rows`.
    rows : RowSelection
        Within the row group.
    arrow_schema : pyarrow.Schema
        What `projected_schema` returns for the leaves.
    memory_limit : int, optional
        Bytes that one column may decode to.
    verify_checksums : bool
        Whether pages that have a checksum are compared with it.
    left : list of int, optional
        Receives the leaves that a direct decoder began and left to pyarrow.

    Returns
    -------
    list of pyarrow.Array or pyarrow.ChunkedArray
        An array of `rows.count` rows for each field of `arrow_schema`, in order. It is chunked where one
        array cannot hold it, or where joining its chunks would cost more than it is worth. With
        `Values.INDEXED` it may be a DictionaryArray instead, for `look_up`.

    Raises
    ------
    ParquetFormatError
        The pages contradict their headers, the offset index or the schema, or do not decode.
    MemoryLimitError
        They decode to more than `memory_limit`.
    ValueError
        A chunk does not hold all of `rows`.
    """
    if not rows:
        return [pa.nulls(0, field.type) for field in arrow_schema]
    schema = group.schema
    leaves = sorted(chunks)
    fields = fields_of(schema, leaves)
    if len(fields) != len(arrow_schema):
        raise ValueError(f"{len(arrow_schema)} fields in the Arrow schema, {len(fields)} among the leaves")
    try:
        verified = _verify(group, chunks, leaves, memory_limit, verify_checksums)
        job = _Job(verified, group, rows, arrow_schema)
        units = cut_units(verified, fields, arrow_schema=arrow_schema)
        arrays = job.read_directly(units, left)
        rest = [unit for unit in units if unit not in arrays]
        if rest:
            indexed = [unit.leaves[0] for unit in units if unit.indexed]
            with translate_errors():
                plan = plan_splice(
                    schema, group.key_value, fields=fields, created_by=group.created_by, indexed=indexed
                )
            for call in cut_calls(verified, rest):
                arrays |= job.read_spliced(plan, call)
        return job.join(units, arrays, values)
    except AccelError as error:
        raise error.at(path=group.path, place=f"row group {group.row_group}")


def _verify(
    group: StoredRowGroup,
    chunks: Mapping[int, ChunkPages],
    leaves: Sequence[int],
    memory_limit: int | None,
    verify_checksums: bool,
) -> Verified:
    """Return the chunks of these leaves once their page headers have been verified."""
    schema = group.schema
    place = partial(_place, schema, group.row_group)
    readable: dict[int, ChunkPages] = {}
    facts: dict[int, PageFacts] = {}
    for ordinal in leaves:
        leaf = schema.leaves[ordinal]
        readable[ordinal], facts[ordinal] = verify_readable(
            chunks[ordinal],
            leaf,
            element=schema.elements[leaf.element],
            memory_limit=memory_limit,
            place=partial(place, (ordinal,)),
            verify_checksums=verify_checksums,
        )
    return Verified(schema=schema, chunks=readable, facts=facts, memory_limit=memory_limit, place=place)


@dataclass(frozen=True, slots=True)
class _Job:
    """One call of `decode_columns`."""

    verified: Verified
    group: StoredRowGroup
    rows: RowSelection
    arrow_schema: pa.Schema

    def read_directly(self, units: Sequence[Unit], left: list[int] | None) -> dict[Unit, pa.ChunkedArray]:
        """Decode the units that a direct decoder takes."""
        arrays: dict[Unit, pa.ChunkedArray] = {}
        for unit in direct_units(self.verified, units, self.rows):
            array = read_directly(
                self.verified, unit, self.rows, self.arrow_schema.field(unit.field), left=left
            )
            if array is not None:
                arrays[unit] = array
        return arrays

    def join(
        self, units: Sequence[Unit], arrays: Mapping[Unit, pa.ChunkedArray], values: Values
    ) -> list[pa.Array | pa.ChunkedArray]:
        """Return the fields of the Arrow schema, each made of its units."""
        parts: list[list[pa.ChunkedArray]] = [[] for _ in self.arrow_schema]
        for unit in units:
            parts[unit.field].append(arrays[unit])
        out = []
        for field, own in zip(self.arrow_schema, parts, strict=True):
            array = own[0] if len(own) == 1 and not is_composite(field.type) else self._merge(own, field)
            array = array.chunk(0) if array.num_chunks == 1 else array
            indexed = is_indexed(array, field.type)
            if not (indexed or array.type.equals(field.type)) or len(array) != self.rows.count:
                raise ParquetFormatError(
                    f"column {field.name} decoded to {len(array)} rows of {array.type}, due are "
                    f"{self.rows.count} of {field.type}"
                )
            if indexed and values is Values.DECODED:
                place = f"row group {self.group.row_group}, column {field.name}"
                array = look_up(array, field.type, memory_limit=self.verified.memory_limit, place=place)
            out.append(array)
        return out

    def read_spliced(self, plan: SplicePlan, units: Sequence[Unit]) -> dict[Unit, pa.ChunkedArray]:
        """Decode these units by pyarrow, from one file in memory."""
        verified = self.verified
        leaves = [leaf for unit in units for leaf in unit.leaves]
        num_rows = max(unit.num_rows for unit in units)
        if not units[0].joined and self._is_repeated(leaves):
            # With one row more than the longest column has, rows beyond those promised would show. Where each
            # value is a row they have been counted, and pyarrow would reserve twice the memory for one more
            # than 2**20.
            num_rows += 1
        with translate_errors(place=partial(verified.place, leaves)):
            data = splice_units(verified, plan, units=units, num_rows=num_rows)
            reader = open_reader(data, int96_unit=self.group.int96_unit)
        steps = {unit: step for unit in units if (step := step_of(verified, unit)) is not None}
        if any(self._is_repeated(unit.leaves) for unit in steps):
            from accel.decode.nested import weigh_lists

            steps = weigh_lists(verified, steps, plan=plan, data=data)
        siblings = self._siblings(units)
        arrays: dict[Unit, pa.ChunkedArray] = {}
        for batch in group_units(units, steps):
            step = steps.get(batch[0])
            for unit, array in zip(batch, self._read(reader, plan, batch, step), strict=True):
                arrays[unit] = self._select(unit, array, self.arrow_schema.field(unit.field).type)
                if has_instants(verified.schema, unit.leaves):
                    self._check_instants(arrays[unit], plan.fields, unit, num_rows, step)
                if siblings is not None:
                    siblings.add(unit.leaves[0], array)
        if siblings is not None:
            siblings.check()
        return arrays

    def _is_repeated(self, leaves: Sequence[int]) -> bool:
        return any(self.verified.schema.leaves[leaf].max_repetition for leaf in leaves)

    def _check_instants(
        self, array: pa.ChunkedArray, fields: Sequence[int], unit: Unit, num_rows: int, step: int | None
    ) -> None:
        """Decode a unit again as the bytes of INT96, and compare the timestamps with them."""
        with translate_errors(place=partial(self.verified.place, unit.leaves)):
            schema = with_stored_instants(self.verified.schema)
            plan = plan_splice(schema, {}, fields=fields, created_by=self.group.created_by)
            data = splice_units(self.verified, plan, units=[unit], num_rows=num_rows)
            (stored,) = self._read(open_reader(data), plan, [unit], step)
            check_instants(array, self._select(unit, stored, array.type))

    def _siblings(self, units: Sequence[Unit]) -> Siblings | None:
        if len({unit.field for unit in units}) == len(units):
            return None
        from accel.decode.nested import Siblings

        return Siblings(self.verified, units, wanted=self.rows.count)

    def _read(
        self, reader: ParquetReader, plan: SplicePlan, batch: Sequence[Unit], step: int | None
    ) -> list[pa.ChunkedArray]:
        leaves = [leaf for unit in batch for leaf in unit.leaves]
        columns = [plan.column(leaf) for leaf in leaves]
        if step is not None:
            return [self._read_in_steps(reader, batch[0], columns, step)]
        try:
            with translate_errors(place=partial(self.verified.place, leaves)):
                return list(reader.read_row_groups([0], columns, use_threads=False).columns)
        except AccelError:
            if len(batch) == 1:
                raise
        # They are read one by one, so that the error names its column.
        return [array for unit in batch for array in self._read(reader, plan, [unit], None)]

    def _read_in_steps(
        self, reader: ParquetReader, unit: Unit, columns: Sequence[int], step: int
    ) -> pa.ChunkedArray:
        place, limit = self.verified.place(unit.leaves), self.verified.memory_limit
        arrays: list[pa.Array] = []
        nbytes = 0
        with translate_errors(place=place):
            for batch in reader.iter_batches(step, [0], columns, use_threads=False):
                arrays.append(batch.column(0))
                nbytes += int(batch.nbytes)
                if limit is not None and nbytes > limit:
                    raise MemoryLimitError(
                        f"the column decodes to more than {limit} bytes",
                        place=place,
                        hint="raise `options.memory_limit`",
                    )
            return join_arrays(arrays)

    def _select(self, unit: Unit, array: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Return the selected rows of a decoded unit, after verifying that it has the rows promised."""
        verified = self.verified
        chunk = verified.chunks[unit.leaves[0]]
        leaf, facts = verified.schema.leaves[chunk.leaf], verified.facts[chunk.leaf]
        if len(array) != unit.num_rows:
            raise ParquetFormatError(
                f"{len(array)} rows were decoded, promised are {unit.num_rows}",
                place=verified.place(unit.leaves),
            )
        if not chunk.whole and leaf.max_repetition > 0:
            from accel.decode.nested import check_levels

            with translate_errors(place=partial(verified.place, (chunk.leaf,))):
                check_levels(chunk, array, page_values=facts.page_values)
        placed = place_rows(chunk, self.rows)
        with translate_errors(place=partial(verified.place, unit.leaves)):
            array = check_indices(array)
            body = partial(page_body, chunk, facts.tables, verified.memory_limit)
            check_text_sizes(array, facts, leaf=leaf, body=body)
            selected = trim(array, placed)
            if not unit.indexed:
                return selected
            if facts.dictionary is None:
                raise ValueError("there is no dictionary to read as indices")
            element = verified.schema.elements[leaf.element]
            return read_as_indices(selected, facts.dictionary, codec=chunk.codec, element=element, kind=kind)

    def _merge(self, parts: Sequence[pa.ChunkedArray], field: pa.Field) -> pa.ChunkedArray:
        """Return one field made of its leaves, cut where any of them has a chunk's end."""
        from accel.decode.nested import merge_leaves

        cuts = sorted({0, *(int(end) for part in parts for end in np.cumsum([len(c) for c in part.chunks]))})
        merged = []
        for start, stop in itertools.pairwise(cuts):
            arrays = [_join(part.slice(start, stop - start).chunks) for part in parts]
            with translate_errors(place=f"row group {self.group.row_group}, column {field.name}"):
                merged.append(merge_leaves(arrays, field.type))
        return pa.chunked_array(merged, type=field.type)


def _place(schema: ParquetSchema, row_group: int, leaves: Iterable[int]) -> str:
    names = [".".join(schema.leaves[leaf].path) for leaf in leaves]
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"row group {row_group}, column{'s' if len(names) > 1 else ''} {shown}"


def _join(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


MOST_DECOMPRESSED: Final = 8 << 20
"""Bytes of decompressed pages in one file: all of them stay in memory until the last has been decoded."""


def cut_calls(verified: Verified, units: Sequence[Unit]) -> list[list[Unit]]:
    """Group the units by the file in memory that they are decoded from; those of a field stay together.

    There is one file, unless pages may be decompressed in it, and another one for units that are `joined`.
    """
    joined = [unit for unit in units if unit.joined]
    if joined and len(joined) < len(units):
        others = [unit for unit in units if not unit.joined]
        return [*cut_calls(verified, joined), *cut_calls(verified, others)]
    if not any(verified.chunks[leaf].codec == Codec.SNAPPY for unit in units for leaf in unit.leaves):
        return [list(units)]
    calls: list[list[Unit]] = []
    nbytes = 0
    for unit in units:
        size = sum(verified.facts[leaf].uncompressed for leaf in unit.leaves)
        if not calls or (nbytes + size > MOST_DECOMPRESSED and calls[-1][-1].field != unit.field):
            calls.append([])
            nbytes = 0
        calls[-1].append(unit)
        nbytes += size
    return calls


def splice_units(verified: Verified, plan: SplicePlan, *, units: Sequence[Unit], num_rows: int) -> pa.Buffer:
    """Return a file of one row group that has the pages of these units, decompressed where that is faster.

    `num_rows` is that of `splice`.
    """
    stored: dict[int, SplicedChunk] = {}
    chunks: dict[int, SplicedChunk] = {}
    for leaf in (leaf for unit in units for leaf in unit.leaves):
        chunk, facts = verified.chunks[leaf], verified.facts[leaf]
        indexed = leaf in plan.indexed
        if indexed and facts.dictionary is not None:
            stored[leaf] = splice_indices(chunk, facts, named=facts.dictionary)
        else:
            stored[leaf] = SplicedChunk(facts.parts, chunk.codec, facts.num_values, facts.uncompressed)
        chunks[leaf] = stored[leaf]
        if chunk.codec == Codec.SNAPPY:
            chunks[leaf] = uncompressed_chunk(chunk, facts, indexed=indexed) or stored[leaf]
    try:
        return splice(plan, chunks, num_rows=num_rows)
    except ParquetFormatError:
        # pyarrow reports what is wrong with a page that does not decompress.
        return splice(plan, stored, num_rows=num_rows)
