"""What is asked beside statistics about row groups in doubt: embedded indexes, bloom filters, dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from accel.planning.handle import FileHandle
from accel.planning.need import OnBadIndex, Steps
from accel.planning.page_indexes import fetch_or_recall
from accel.planning.pruning import KeptGroups
from accel.planning.query import FileQuery
from accel.planning.task import ScanTask
from accel.planning.witness import Witnesses
from accel.ranges import ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.planning.blooms import Blooms
    from accel.planning.dictionaries import Dictionaries, ReadDictionary
    from accel.planning.embedded import Embedded

__all__ = ["Probes", "find_embedded"]

# An index that is read in parts, or a filter whose header was not of the usual shape, takes a second look; so does a
# filter whose block has no bit.
_ROUNDS = 3
# An embedded index is fetched when the pages in doubt are so many times its size.
_WORTH = 2
# Of what may come early, what may turn out to be needless is one part in so many at most.
_ALONG = 4
# More row groups are not drafted twice to save a round trip.
_MOST_GROUPS = 64


class Probes:
    """All that can be asked of one file about one question, where it may save more than it costs."""

    def __init__(
        self,
        handle: FileHandle,
        query: FileQuery,
        *,
        embedded: Embedded | None,
        probe_min_bytes: int,
        read_dictionary: ReadDictionary,
        on_bad_index: OnBadIndex,
    ) -> None:
        self._handle = handle
        self._query = query
        self._embedded = embedded
        self._blooms = _find_blooms(handle, query)
        self._probe_min_bytes = probe_min_bytes
        self._read_dictionary = read_dictionary
        self._on_bad_index = on_bad_index
        self._found: dict[ReadKey, memoryview] = {}

    def along(
        self,
        wants: Sequence[Want],
        kept: KeptGroups,
        draft: Callable[[KeptGroups], Mapping[int, ScanTask]],
        early_bytes: int,
    ) -> list[Want]:
        """What to ask together with page indexes, that may make it needless.

        Nothing unless these have to be asked for, and several row groups could not be told apart, so that their
        pages hardly can; nor where it comes to more than one part in four of `early_bytes`.
        """
        alike = 1 < len(kept) <= _MOST_GROUPS and len(kept) == self._handle.metadata.num_row_groups
        if not early_bytes or not alike or any(certain for _, certain in kept):
            return []
        if all(self._handle.in_tail(want.range) is not None for want in wants):
            return []
        drafts = draft(kept)
        nbytes = _nbytes(drafts)
        dictionaries = self._dictionaries(nbytes)
        first = self._wants(drafts, nbytes, dictionaries)
        at_hand = {want.key: data for want in first if (data := self._handle.in_tail(want.range)) is not None}
        if at_hand:  # the head of an index, which says what to ask of it
            self.learn(at_hand)
            first = self._wants(drafts, nbytes, dictionaries)
        return first if _ALONG * sum(want.range.length for want in first) <= early_bytes else []

    def learn(self, stash: Stash) -> None:
        """Take in what came."""
        self._found |= stash
        for error in self._blooms.learn(stash) if self._blooms is not None else ():
            error.at(path=self._handle.id.path, place="bloom filter")
            self._on_bad_index(error)
        if self._embedded is not None:
            self._embedded.learn(stash, self._on_bad_index)

    def ask(self, drafts: Mapping[int, ScanTask], witnesses: Witnesses) -> Steps[int]:
        """Ask about the row groups in doubt; the round trips that it took."""
        trips = 0
        nbytes = _nbytes(drafts)
        dictionaries = self._dictionaries(nbytes)
        for _ in range(_ROUNDS):
            wants = self._wants(drafts, nbytes, dictionaries)
            if not wants:
                break
            stash, trip = yield from fetch_or_recall(self._handle, wants)
            trips += trip
            self.learn(stash)
        if self._embedded is not None:
            self._embedded.testify(drafts, witnesses, self._on_bad_index)
        if self._blooms is not None:
            self._blooms.testify(drafts, witnesses)
        if dictionaries is not None:
            dictionaries.testify(drafts, self._found, witnesses)
        return trips

    def _dictionaries(self, nbytes: int) -> Dictionaries | None:
        if nbytes < self._probe_min_bytes:
            return None
        from accel.planning.dictionaries import Dictionaries

        return Dictionaries.of(self._handle, self._query, self._read_dictionary)

    def _wants(
        self, drafts: Mapping[int, ScanTask], nbytes: int, dictionaries: Dictionaries | None
    ) -> list[Want]:
        """What to ask for next, of row groups whose pages in doubt come to so many bytes."""
        costly = nbytes >= self._probe_min_bytes
        wants = self._blooms.wants(drafts) if self._blooms is not None and costly else []
        if self._embedded is not None:
            wants += self._embedded.wants(
                drafts, self._on_bad_index, most_bytes=nbytes // _WORTH if costly else 0
            )
        if dictionaries is not None:
            wants += [want for want in dictionaries.wants(drafts) if want.key not in self._found]
        return wants


def _nbytes(drafts: Mapping[int, ScanTask]) -> int:
    return sum(draft.nbytes for draft in drafts.values())


def find_embedded(
    handle: FileHandle,
    query: FileQuery,
    *,
    named: Mapping[tuple[str, ...], str],
    on_bad_index: OnBadIndex,
) -> Embedded | None:
    """The indexes embedded in a file that the question can ask, if there are any."""
    if handle.toc is None and not named:
        return None
    from accel.planning.embedded import Embedded

    return Embedded.of(handle, query, named, on_bad_index)


def _find_blooms(handle: FileHandle, query: FileQuery) -> Blooms | None:
    if not bool((handle.metadata.chunks.bloom_offset > 0).any()):
        return None
    from accel.planning.blooms import Blooms

    return Blooms.of(handle, query)
