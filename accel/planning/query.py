"""A scan's question, put to one file: which leaves filter, which come out, where each value is from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError, SchemaMismatchError
from accel.format.model import ParquetSchema
from accel.planning.evolution import NO_EVOLUTION, Evolution
from accel.planning.projection import field_leaves, find_type, indexed_as_read, path_leaves, zoned_schema

if TYPE_CHECKING:
    from accel.predicate.bind import Bound, KeyCache
    from accel.predicate.expr import Expr

__all__ = ["FileQuery", "Question", "compile_query", "constant_fields", "with_partition"]

# The compiled forms that a question stores, one for each file schema.
_MOST_COMPILED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """The question of a scan, the same for all of its files."""

    where: Expr | None
    schema: pa.Schema
    """The schema of the data set: the files' columns, then the partition columns."""
    output: pa.Schema
    """The schema of the result."""
    partition_names: tuple[str, ...]
    """Columns whose values come from the paths. Where the scan's first file has a column of that name the
    files' columns are meant, and it is not listed here."""
    embedded: Mapping[tuple[str, ...], str] = dataclasses.field(default_factory=dict)
    """Paths of columns that an unlabelled index in the files is said to cover: "idx1" for that of
    DataFusion's example."""
    row_number: str | None = None
    """The column of the result that has the number of each row in its file, if there is one. It is no column
    of the predicate."""
    evolution: Evolution = NO_EVOLUTION
    """How the columns of files may differ from those of the data set."""
    compiled: _Compiled = dataclasses.field(default_factory=lambda: _Compiled(), init=False, repr=False)
    """The compiled forms, for the next file of the same schema."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FileQuery:
    """A question compiled for the schema of one file."""

    bound: Bound | None
    """The predicate over the file's own types, but for the columns in `conformed`; None where there is
    none."""
    filter_paths: Mapping[tuple[str, ...], tuple[int, ...]]
    """For each column of the predicate that the file has: its leaves."""
    constants: Mapping[tuple[str, ...], pa.Scalar]
    """For each other one: its value, which is the same in every row (a partition's, or null)."""
    output: pa.Schema
    output_leaves: tuple[int, ...]
    filter_leaves: tuple[int, ...]
    output_constants: Mapping[str, pa.Scalar]
    """Columns of the result that are not in the file."""
    prunable: tuple[tuple[tuple[str, ...], int, pa.DataType], ...]
    """The columns of the predicate that metadata can describe, being one plain leaf each and compared as the
    file has them: path, leaf, Arrow type."""
    conformed: Mapping[tuple[str, ...], pa.DataType] = dataclasses.field(default_factory=dict)
    """The columns of the predicate that are brought to the data set's type before they are compared: there
    the same literal says something else of the file's type."""
    filled: Mapping[tuple[str, ...], tuple[tuple[str, ...], pa.DataType]] = dataclasses.field(
        default_factory=dict
    )
    """The columns of the predicate that the file lacks below a struct, and that have a default there: the
    struct, and its type with nothing but that column. `filter_paths` has a leaf for the nulls of the
    struct."""
    coalesced: Mapping[str, pa.Scalar] = dataclasses.field(default_factory=dict)
    """Columns of the file whose nulls stand for a value: see `Evolution.coalesced`."""


class _Compiled:
    """The compiled forms of one question, by the file's schema; for files without partition values.

    Files share their schema objects where their schemas are equal (`decode.arrow`), so identity finds nearly
    all.
    """

    def __init__(self) -> None:
        self.bound: Bound | None = None
        """The predicate, bound to the data set's own schema."""
        self.keys: KeyCache = {}
        """The compiled lists of the predicate, which may be long."""
        self._found: dict[int, tuple[ParquetSchema, pa.Schema, FileQuery]] = {}
        self._pickled: tuple[Bound, bytes] | None = None
        self._mark: tuple[int | None] | None = None

    def get(self, file_schema: ParquetSchema, arrow_schema: pa.Schema) -> FileQuery | None:
        found = self._found.get(id(file_schema))
        # Arrow schemas of one Parquet schema mostly differ in their metadata only, if at all.
        if found is None or not (found[1] is arrow_schema or found[1].equals(arrow_schema)):
            return None
        return found[2]

    def put(self, file_schema: ParquetSchema, arrow_schema: pa.Schema, query: FileQuery) -> None:
        if len(self._found) >= _MOST_COMPILED:
            self._found.clear()
        # The entry keeps the schema alive: its id stays its own.
        self._found[id(file_schema)] = (file_schema, arrow_schema, query)

    def pickled(self, bound: Bound) -> bytes:
        """Return one of its predicates, which may be long and is mostly the last one again."""
        if self._pickled is None or self._pickled[0] is not bound:
            import pickle

            self._pickled = bound, pickle.dumps(bound, 5)
        return self._pickled[1]

    def mark(self, where: Expr | None) -> int | None:
        """Return the hash of its predicate; None for one that is too long to be looked at once more."""
        if self._mark is None:
            self._mark = (None if where is not None and _is_long(where) else hash(where),)
        return self._mark[0]

    def __reduce__(self) -> tuple[type[_Compiled], tuple[()]]:
        return _Compiled, ()


def _is_long(where: Expr) -> bool:
    from accel.predicate.bind import binds_long

    return binds_long(where)


def constant_fields(
    question: Question, names: Sequence[str], *, partition: Sequence[object]
) -> dict[str, pa.Scalar]:
    """Return the partition columns' values of one file, as scalars of the data set's types."""
    out: dict[str, pa.Scalar] = {}
    for name, value in zip(names, partition, strict=True):
        if name in question.partition_names:
            out[name] = make_scalar(value, question.schema.field(name).type)
    return out


def compile_query(
    question: Question,
    *,
    file_schema: ParquetSchema,
    arrow_schema: pa.Schema,
    partition: Mapping[str, pa.Scalar],
    url: str,
) -> FileQuery:
    """Put a question to a file.

    Files of one schema share the result, as far as they agree on `partition`.

    Raises
    ------
    SchemaMismatchError
        A column that comes out, or that the predicate looks at, does not widen to the data set's type without
        loss.
    PredicateError
        A literal has no meaning for the data set's type of a column.
    """
    query = question.compiled.get(file_schema, arrow_schema)
    if query is None:
        query = _compile(question, file_schema, arrow_schema, url)
        question.compiled.put(file_schema, arrow_schema, query)
    return with_partition(query, partition) if partition else query


def with_partition(query: FileQuery, partition: Mapping[str, pa.Scalar]) -> FileQuery:
    """Return a compiled question for a file with these partition values."""
    constants = {
        path: partition.get(path[0], value) if len(path) == 1 else value
        for path, value in query.constants.items()
    }
    return dataclasses.replace(
        query,
        constants=constants,
        output_constants={name: partition.get(name, value) for name, value in query.output_constants.items()},
        coalesced={name: partition.get(name, value) for name, value in query.coalesced.items()},
    )


def _compile(question: Question, file_schema: ParquetSchema, arrow_schema: pa.Schema, url: str) -> FileQuery:
    """Compile a question for a file without partition values: a column that it lacks is null."""
    result = _result_of(question, file_schema, arrow_schema, url)
    named, same = result.named, result.same
    bound: Bound | None = None
    filter_paths: dict[tuple[str, ...], tuple[int, ...]] = {}
    constants: dict[tuple[str, ...], pa.Scalar] = {}
    conformed: Mapping[tuple[str, ...], pa.DataType] = {}
    filled: dict[tuple[str, ...], tuple[tuple[str, ...], pa.DataType]] = {}
    if question.where is not None:
        bound = question.compiled.bound if same else None
        try:
            if bound is None and not same:
                _check_filter(
                    question.where,
                    question,
                    pa.schema(named),
                    url=url,
                    zoned=zoned_schema(file_schema, arrow_schema),
                )
            if bound is None:
                bound, conformed = _bind(question.where, question, None if same else pa.schema(named))
        except AccelError as error:
            raise error.at(path=url) from None
        if len(result.names) < len(named):
            _refuse_ambiguous(named, [column.path[0] for column in bound.columns], url=url)
        for column in bound.columns:
            leaves = path_leaves(file_schema, arrow_schema, path=column.path)
            if leaves is not None and column.path[0] in result.names:
                filter_paths[column.path] = tuple(leaves)
                continue
            found = _fill(question, file_schema, arrow_schema, column.path)
            if found is not None:
                filled[column.path], filter_paths[column.path] = found
                continue
            constants[column.path] = make_scalar(None, column.type)
    return FileQuery(
        bound=bound,
        filter_paths=filter_paths,
        constants=constants,
        output=question.output,
        output_leaves=result.leaves,
        filter_leaves=tuple(sorted({x for leaves in filter_paths.values() for x in leaves})),
        output_constants=result.constants,
        prunable=_prunable(
            file_schema, bound, filter_paths, {*conformed, *filled, *((name,) for name in result.coalesced)}
        ),
        conformed=conformed,
        filled=filled,
        coalesced=result.coalesced,
    )


def _fill(
    question: Question, file_schema: ParquetSchema, arrow_schema: pa.Schema, path: tuple[str, ...]
) -> tuple[tuple[tuple[str, ...], pa.DataType], tuple[int, ...]] | None:
    """Return how `FileQuery.filled` has a column that the file lacks, and the leaf for the nulls of the
    struct above; None where it is null."""
    if question.evolution.defaults.values.get(path) is None:
        return None
    above, leaf = path[:-1], path[-1]
    leaves = path_leaves(file_schema, arrow_schema, path=above)
    if not leaves:
        return None
    kind = find_type(pa.struct(list(question.schema)), path)
    return None if kind is None else ((above, pa.struct([(leaf, kind)])), tuple(leaves[:1]))


def _check_filter(
    where: Expr, question: Question, file: pa.Schema, *, url: str, zoned: pa.Schema | None
) -> None:
    """Raise SchemaMismatchError where a column of the predicate does not widen: beside the file's own type a
    literal may mean something else than in the result."""
    from accel.planning.conform import check_paths, check_variants

    bound = question.compiled.bound
    if bound is None:
        bound = question.compiled.bound = _bind(where, question, None)[0]
    paths = [column.path for column in bound.columns]
    check_variants(file, question.schema, names=dict.fromkeys(path[0] for path in paths), url=url)
    check_paths(file, question.schema, paths, url=url, zoned=zoned, promotion=question.evolution.promotion)


def _bind(
    where: Expr, question: Question, file: pa.Schema | None
) -> tuple[Bound, Mapping[tuple[str, ...], pa.DataType]]:
    """Return the predicate for a file, whose columns are given where they are not the data set's; and those
    of them that are conformed first."""
    from accel.predicate.bind import bind

    schema, keys = question.schema, question.compiled.keys
    if file is None:
        return bind(where, schema, key_cache=keys), {}
    from accel.planning.conform import conformed_columns, overlay

    bound = bind(where, overlay(schema, file), query_schema=schema, key_cache=keys)
    return bound, conformed_columns(bound, schema, file=file)


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    """The part of a compiled question that does not depend on the predicate."""

    named: tuple[pa.Field, ...]
    """The file's columns that are meant."""
    names: frozenset[str]
    same: bool
    """Whether the file has all columns of the data set, in its types."""
    leaves: tuple[int, ...]
    constants: Mapping[str, pa.Scalar]
    coalesced: Mapping[str, pa.Scalar]


# The results compiled last, by the schema objects: lookups in one file share them, whatever they look for.
_MOST_RESULTS = 16
_results: dict[tuple[object, ...], tuple[tuple[object, ...], _Result]] = {}


def _result_of(question: Question, file_schema: ParquetSchema, arrow_schema: pa.Schema, url: str) -> _Result:
    """Return what `_compile_result` does; the same objects give the same object."""
    schemas = (file_schema, arrow_schema, question.schema, question.output, question.evolution)
    key = (*map(id, schemas), question.partition_names, question.row_number)
    found = _results.get(key)
    if found is None:
        # The entry keeps the schemas alive: their ids stay their own.
        found = schemas, _compile_result(question, file_schema, arrow_schema, url)
        if len(_results) >= _MOST_RESULTS:
            _results.clear()
        _results[key] = found
    return found[1]


def _compile_result(
    question: Question, file_schema: ParquetSchema, arrow_schema: pa.Schema, url: str
) -> _Result:
    coalesced = question.evolution.coalesced
    # Numbers of rows that a mapped file has itself come before those that are counted.
    own = {*coalesced, question.row_number}
    named = tuple(f for f in arrow_schema if f.name in own or f.name not in question.partition_names)
    # Most files have the data set's columns, all of them and of its types.
    same = arrow_schema.equals(question.schema)
    if not same:
        from accel.planning.conform import check_schema, check_variants

        have = pa.schema(named)
        check_variants(have, question.schema, names=question.output.names, url=url)
        zoned = zoned_schema(file_schema, arrow_schema)
        check_schema(have, question.output, url=url, zoned=zoned, promotion=question.evolution.promotion)
    _refuse_ambiguous(named, question.output.names, url=url)
    names = frozenset(field.name for field in named)
    leaves: set[int] = set()
    constants: dict[str, pa.Scalar] = {}
    for field in question.output:
        if field.name in names:
            leaves.update(field_leaves(file_schema, arrow_schema, field.name, field.type))
        elif field.name != question.row_number:
            constants[field.name] = make_scalar(None, field.type)
    nulls = {name: make_scalar(None, question.schema.field(name).type) for name in coalesced & names}
    return _Result(named, names, same, tuple(sorted(leaves)), constants, nulls)


def _prunable(
    schema: ParquetSchema,
    bound: Bound | None,
    paths: Mapping[tuple[str, ...], tuple[int, ...]],
    changed: Collection[tuple[str, ...]],
) -> tuple[tuple[tuple[str, ...], int, pa.DataType], ...]:
    out = []
    for column in bound.columns if bound is not None else ():
        leaves = paths.get(column.path, ())
        if len(leaves) == 1 and column.path not in changed:
            leaf = schema.leaves[leaves[0]]
            plain = leaf.max_repetition == 0 and len(leaf.path) == len(column.path)
            if plain and indexed_as_read(schema.elements[leaf.element], column.type):
                out.append((column.path, leaves[0], column.type))
    return tuple(out)


def _refuse_ambiguous(named: Sequence[pa.Field], used: Sequence[str], *, url: str) -> None:
    """Refuse names that a file has twice.

    A later file may hold twice what the first one, which settled the question, holds once.
    """
    counts = Counter(field.name for field in named)
    for name in used:
        if counts[name] > 1:
            raise SchemaMismatchError(
                f"the file has {counts[name]} columns named {name!r}",
                path=url,
                hint="name others in `columns=` and `where=`",
            )
