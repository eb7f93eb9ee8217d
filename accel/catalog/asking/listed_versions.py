"""The versions that an index lists, where nobody asks the store which ones there are (`listing="index"`).

A file that was replaced since is noticed where it is read, and is read as it is now, with a note. What the
index answers by itself is true of the versions that it lists. One scan has one answer all the same: once a
file was found replaced, its runs take nothing from the index for it; once a run was answered without the
data, a file that turns out to be replaced is an error.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from accel.errors import ObjectChangedError, redact
from accel.planning.file_entry import FileBlock, FileEntry

__all__ = ["ListedVersions", "replaced_text"]

_MOST_NAMED: Final = 3
"""Files that a warning names."""


class ListedVersions:
    """What the runs of one scan have found of the versions that an index lists. Used on the I/O loop."""

    def __init__(self) -> None:
        self._replaced: set[tuple[str, str]] = set()
        self._has_answered = False

    def note_answered(self) -> None:
        """Note that a run has answered a question about all rows, perhaps without reading them."""
        self._has_answered = True

    def note_replaced(self, file: FileEntry, *, index: str) -> None:
        """Note that the store has another version of a file.

        Raises
        ------
        ObjectChangedError
            The scan has answered by the listed versions.
        """
        if self._has_answered:
            raise ObjectChangedError(
                "the file was replaced since the index listed it, and the scan has answered by the index "
                "before",
                path=file.url,
                hint=f'refresh the index at {index}, or let the store list the files: `listing="store"`',
            )
        self._replaced.add((file.root, file.path))

    def without_replaced(self, block: FileBlock) -> tuple[FileBlock, list[str]]:
        """Return the block, and the URLs of files in it that are known to be replaced: nothing is said of
        these, so that they are opened in whatever version is there."""
        if not self._replaced:
            return block, []
        files, replaced = list(block.files), []
        for at, file in enumerate(files):
            if (file.root, file.path) in self._replaced:
                files[at] = replace(file, size=None, etag=None, facts=None)
                replaced.append(file.url)
        return replace(block, files=tuple(files)), replaced


def replaced_text(urls: Collection[str], *, index: str) -> str:
    """Return the warning about files that were replaced, by their URLs."""
    named = ", ".join(map(redact, sorted(urls)[:_MOST_NAMED]))
    more = f" and {len(urls) - _MOST_NAMED} more" if len(urls) > _MOST_NAMED else ""
    was = "a file was" if len(urls) == 1 else f"{len(urls)} files were"
    return (
        f"{was} replaced since the index at {index} was refreshed: {named}{more}. What is there now is "
        "read, as far as the index does not rule it out: refresh the index"
    )
