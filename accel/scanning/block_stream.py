"""BlockStream: the blocks that a source yields, taken one after the other, and closed with whatever takes
them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from accel.errors import AccelError
from accel.planning.file_entry import FileBlock
from accel.runtime.tasks import closed_early, end_stream

__all__ = ["BlockStream"]


class BlockStream:
    """Takes the blocks of a source.

    Parameters
    ----------
    blocks : asynchronous iterator of FileBlock
        As `FileSource.blocks` returns it.
    name : str
        The source, as errors name it.
    """

    def __init__(self, blocks: AsyncIterator[FileBlock], *, name: str) -> None:
        self._blocks = blocks
        self._name = name
        self._ended = False
        """The last block came out."""
        self._closed = False

    async def next(self) -> FileBlock | None:
        """Return the next block; None after the last.

        Raises
        ------
        AccelError
            The source yields a block after its last one, or the stream was closed before its end.
        """
        if self._ended:
            return None
        if self._closed:
            raise closed_early()
        block = await anext(self._blocks, None)
        self._ended = block is None or not block.more
        if block is not None and self._ended and await anext(self._blocks, None) is not None:
            # Nobody would take it: its files would be left out in silence.
            raise AccelError(
                "the source yields files after a block that says that it is the last one",
                path=self._name,
                hint="give all blocks but the last one `more=True`",
            )
        return block

    async def aclose(self) -> None:
        """End what the source has under way for blocks that nobody has taken."""
        self._closed = True
        await end_stream(self._blocks)
