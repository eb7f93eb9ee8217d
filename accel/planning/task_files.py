"""An opened file, as the tasks of one scan have it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from accel.format.footer import ARROW_SCHEMA_KEY
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.query import Question, compile_query
from accel.planning.task import TaskFile

__all__ = ["describe_file"]


def describe_file(
    file: FileEntry,
    handle: FileHandle,
    question: Question,
    *,
    partition: Mapping[str, pa.Scalar],
    arrow_schema: pa.Schema,
    int96_unit: str,
) -> TaskFile:
    """What the tasks of an opened file share, which is read with this Arrow schema."""
    metadata = handle.metadata
    kept = {k: v for k, v in metadata.key_value.items() if k == ARROW_SCHEMA_KEY}
    return TaskFile(
        root=file.root,
        url=file.url,
        id=handle.id,
        schema=metadata.schema,
        arrow_schema=arrow_schema,
        key_value=kept,
        created_by=metadata.created_by,
        partition=partition,
        question=question,
        query=compile_query(
            question,
            file_schema=metadata.schema,
            arrow_schema=arrow_schema,
            partition=partition,
            url=file.url,
        ),
        int96_unit=int96_unit,
        at_hand=((0, memoryview(handle.tail)),) if handle.tail_start == 0 else (),
    )
