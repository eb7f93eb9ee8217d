"""How a scan answers an aggregate: part from metadata, the rest from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from accel.planning.file import DataFile
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.planning.task import ScanTask
from accel.reader.reader import Reader

__all__ = ["Answering"]


class Answering(Protocol):
    """Told of every file that is planned, before anything of it is read."""

    def narrow(self, question: Question) -> Question:
        """The question, with no other columns as its output than those that may have to be read."""
        ...

    async def answer(
        self, reader: Reader, file: DataFile, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """Answer what a file's metadata can; what is left to read, and the round trips it took.

        Called again for a file that is planned again: the last call counts.
        """
        ...

    def begin_again(self) -> None:
        """Forget what was answered: other files are going to be planned."""
        ...

    def answer_planned(
        self, reader: Reader, tasks: Sequence[ScanTask], schema: pa.Schema
    ) -> Sequence[ScanTask]:
        """The same for tasks of a plan, whose output has that schema."""
        ...
