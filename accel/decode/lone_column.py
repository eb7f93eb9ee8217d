"""The schema of a file of one column, for values that are decoded apart from theirs."""

from __future__ import annotations

from accel.format.model import Leaf, ParquetSchema, Physical, Repetition, SchemaElement
from accel.format.thrift import BINARY, I32, Struct, write_struct

__all__ = ["lone_column"]


def lone_column(name: str, physical: Physical, *, repetition: Repetition) -> ParquetSchema:
    """A root with one flat column that has no logical type.

    Source: parquet-format `parquet.thrift` (SchemaElement).
    """
    root: Struct = {4: (BINARY, b"schema"), 5: (I32, 1)}
    own: Struct = {1: (I32, int(physical)), 3: (I32, int(repetition)), 4: (BINARY, name.encode())}
    leaf = Leaf(
        ordinal=0,
        path=(name,),
        element=1,
        ancestors=(),
        max_definition=int(repetition is Repetition.OPTIONAL),
        max_repetition=0,
    )
    return ParquetSchema(
        elements=(
            _element("schema", None, Repetition.REQUIRED, root),
            _element(name, physical, repetition, own),
        ),
        leaves=(leaf,),
        fields=(1,),
        subtree_ends=(2, 2),
        field_leaves=((0, 1),),
    )


def _element(name: str, physical: Physical | None, repetition: Repetition, fields: Struct) -> SchemaElement:
    return SchemaElement(
        name=name,
        physical=physical,
        type_length=0,
        repetition=repetition,
        num_children=0 if physical is not None else 1,
        converted_type=None,
        logical_type=None,
        logical_params={},
        scale=0,
        precision=0,
        field_id=None,
        raw=write_struct(fields),
    )
