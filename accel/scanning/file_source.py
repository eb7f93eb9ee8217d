"""FileSource: the seam that everything outside a file plugs into. Stage 1 of the pipeline.

In: what the scan asks. Out: blocks of `FileEntry`, in the order in which rows are to come out. A block bounds what is
in memory of a source at a time: a directory is one block, as its partition types are settled over all of its files; a
catalog of a million files yields many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.predicate.expr import Expr
from accel.reader.reader import Reader

__all__ = ["FactAnswers", "FileSource", "SourceRequest"]


class FactAnswers(Protocol):
    """Answers a question about all rows of a file from the facts of its source, which need no metadata of it then."""

    def fact_columns(self) -> tuple[str, ...] | None:
        """Return the columns whose bounds and counts it takes, as the caller wrote them; None where facts answer nothing."""
        ...

    @property
    def takes_values(self) -> bool:
        """Whether it takes the distinct values of these columns, where the source has them."""
        ...

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether facts answer for a file.

        Parameters
        ----------
        facts : FileFacts
        paths : mapping
            By the names of `fact_columns`, the paths of the columns that the file has.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceRequest:
    """What a scan asks of a source, and the means to answer."""

    reader: Reader
    """Reaches the stores, opens files and counts requests."""
    where: Expr | None = None
    """A source may leave out files that cannot match, and no others."""
    columns: tuple[str, ...] | None = None
    """The columns of the result; None for all."""
    answers: FactAnswers | None = None
    """What answers from facts, where the scan asks about all rows; None where it reads rows."""
    on_entries: Callable[[Iterable[FileEntry]], None] | None = None
    """Is shown the first entries of a block while the source still waits for the others. The entries are sure to be
    in the block."""


class FileSource(ABC):
    """Which files may hold rows for a scan. A source may be wrong in one direction only: too many files.

    One instance serves one run. It is used on the I/O loop.
    """

    @abstractmethod
    def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Find the files. All blocks but the last have `more` set, and no block is empty.

        Raises
        ------
        ObjectNotFoundError
            The source names no file.
        StoreError
            The store did not answer, or refused.
        """
        raise NotImplementedError

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """The only block that the source is likely to yield, without asking the store; None where nothing is expected.

        A run reads by it while `confirm` asks the store, and hands out no row before that.
        """
        return None

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """Ask the store whether the source still holds the versions of the files that `expected` returned.

        Returns
        -------
        FileBlock or None
            The same files, with the round trips that it took. Where a single file was expected and its metadata is
            cached, its facts have the handle that the store has confirmed. None where the source holds something else,
            which `blocks` yields.
        """
        return None

    def finish(self, request: SourceRequest) -> None:
        """Take notice that the run opens no more files. Called on the I/O loop, and nothing is awaited."""

    def hint_for(self, column: str, url: str) -> str | None:
        """What to do where a file lacks a column that its URL seems to spell; None where the source knows nothing."""
        return None
