"""When the versions of a Delta table were committed, for scans of the version of a moment.

The time is in the commit itself, from the version on at which the table was told to have it there; before,
it is when the object of the commit was written, as the listing of the store has it. Clocks go back: a commit
that seems older than the one before it counts as a millisecond younger.

Source: the Delta protocol, "In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from accel.errors import TableFormatError
from accel.store.range_store import ObjectEntry
from accel.tables.formats.delta.log_files import LogListing

__all__ = ["CommitTimes"]


class CommitTimes:
    """Finds the version of a moment.

    Parameters
    ----------
    listing : LogListing
    configuration : mapping of str to str
        The properties of the table in its newest version.
    read_time : callable
        Returns the time that is in a commit.
    """

    def __init__(
        self,
        listing: LogListing,
        configuration: Mapping[str, str],
        read_time: Callable[[ObjectEntry], Awaitable[int | None]],
    ) -> None:
        self._commits = listing.commits
        self._read_time = read_time
        self._first_inside: int | None = None
        if configuration.get("delta.enableInCommitTimestamps", "").lower() == "true":
            given = configuration.get("delta.inCommitTimestampEnablementVersion", "0")
            if not given.isascii() or not given.isdigit():
                raise TableFormatError(f"in-commit timestamps begin at version {given!r:.40}")
            self._first_inside = int(given)

    async def version_at(self, milliseconds: int) -> int:
        """Return the last version that was committed at a moment, or before it.

        Raises
        ------
        TableFormatError
            There is none, or the store tells no times.
        """
        versions = sorted(self._commits)
        inside = [] if self._first_inside is None else [v for v in versions if v >= self._first_inside]
        outside = [v for v in versions if self._first_inside is None or v < self._first_inside]
        if inside and await self._time_in(inside[0]) <= milliseconds:
            low, high = 0, len(inside) - 1
            while low < high:
                middle = (low + high + 1) // 2
                if await self._time_in(inside[middle]) <= milliseconds:
                    low = middle
                else:
                    high = middle - 1
            return inside[low]
        found, last = None, None
        for version in outside:
            modified = self._commits[version].modified
            if modified is None:
                raise TableFormatError(
                    "the store does not tell when its objects were written, by which the versions are dated",
                    hint="give version=",
                )
            time = int(modified * 1000)
            last = time if last is None or time > last else last + 1
            if last <= milliseconds:
                found = version
        if found is None:
            first = f", the first of which is {versions[0]}" if versions else ""
            raise TableFormatError(
                f"the moment is before all versions that are left of the table{first}",
                hint="give a later timestamp",
            )
        return found

    async def _time_in(self, version: int) -> int:
        found = await self._read_time(self._commits[version])
        if found is None:
            raise TableFormatError(
                f"version {version} has no time, though the table has in-commit timestamps"
            )
        return found
