"""The question of a scan, once the columns of its data set are known.

Names that the caller writes in any case become those of the data set here, so that all behind it goes by
exact names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.planning.caseless_names import CaselessNames, refuse_alike
from accel.planning.projection import settle_schemas, spelled_name
from accel.planning.query import Question
from accel.runtime.threads import WORK
from accel.scanning.spec import ScanSpec

if TYPE_CHECKING:
    from accel.planning.data_set import DataSet
    from accel.planning.evolution import Evolution
    from accel.predicate.bind import KeyCache

__all__ = ["caseless_names", "settle_question", "spelled"]


async def settle_question(
    spec: ScanSpec, columns: DataSet, *, alone: bool, folded: bool, evolution: Evolution
) -> Question:
    """Return the question that a scan asks of a data set, with its predicate bound: what no file could answer
    is refused before any is read.

    Parameters
    ----------
    spec : ScanSpec
    columns : DataSet
    alone, folded : bool
        As for `settle_schemas`.
    evolution : Evolution
        What the source says has become of the columns.

    Raises
    ------
    AccelError
        A column does not exist or is ambiguous, or a literal has no meaning for its type.
    """
    spec = spelled(spec, columns.schema)
    data_set, output = settle_schemas(columns.schema, spec.columns, alone=alone, folded=folded)
    embedded: dict[tuple[str, ...], str] = {}
    if spec.embedded:
        from accel.predicate.bind import resolve_named

        embedded = {resolve_named(name, data_set).path: kind for name, kind in spec.embedded.items()}
    bound = None
    keys: KeyCache = {}
    if spec.where is not None:
        from accel.predicate.bind import bind, binds_long

        work = partial(bind, spec.where, data_set, key_cache=keys)
        bound = await WORK.run(work) if binds_long(spec.where) else work()
    question = Question(
        spec.where,
        data_set,
        output,
        columns.partition_names,
        embedded=embedded,
        row_number=spec.row_number,
        evolution=evolution,
    )
    question.compiled.bound, question.compiled.keys = bound, keys
    return question


def spelled(spec: ScanSpec, schema: pa.Schema) -> ScanSpec:
    """Return a scan with its columns as a schema spells them; those that it lacks stay as they are.

    Raises
    ------
    PredicateError, SchemaMismatchError
        Columns of the schema that a name means differ in case alone.
    """
    if spec.case_sensitive:
        return spec
    from accel.predicate.spelling import spelled_where

    columns = spec.columns
    if columns is not None:
        # What is no name is refused with the others.
        columns = tuple(spelled_name(one, schema) if isinstance(one, str) else one for one in columns)
    return replace(
        spec,
        where=None if spec.where is None else spelled_where(spec.where, schema),
        columns=columns,
        embedded={spelled_name(name, schema): kind for name, kind in spec.embedded.items()},
    )


def caseless_names(question: Question, *, result: Question) -> CaselessNames:
    """Return how files have the columns of a question, whatever their case.

    Parameters
    ----------
    question : Question
    result : Question
        The same, or the one that says what comes out where rows are first read by other columns.

    Raises
    ------
    SchemaMismatchError
        Columns of the result differ in case alone.
    """
    refuse_alike(result.output)
    used = {*question.output.names, *result.output.names}
    bound = question.compiled.bound
    if bound is not None:
        used |= {column.path[0] for column in bound.columns}
    return CaselessNames.of(question.schema, used)
