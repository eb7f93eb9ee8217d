"""Globs over `/`-separated paths, matched a segment at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Glob", "has_hidden", "is_hidden", "split_glob"]

_GLOB = r"[*?]|\[!?[^/][^/\]]*\]"
_AUTHORITY = r"([A-Za-z][A-Za-z0-9+.-]*)://[^/]*/?"
_SPECIAL = frozenset("*?[")
_NOT_LISTED = frozenset({"http", "https"})


def is_hidden(name: str) -> bool:
    """Whether a directory passes over this name: `_SUCCESS`, `_temporary`, `.part-0.crc`, ..."""
    return name.startswith(("_", "."))


def has_hidden(relative: str) -> bool:
    """Whether any name of a path below a directory is hidden. The path is not split: listings are long."""
    return is_hidden(relative) or "/_" in relative or "/." in relative


def split_glob(text: str) -> tuple[str, str] | None:
    """Cut a URL or path before its first segment that holds `*`, `?` or `[...]`.

    Returns the fixed part, which ends in `/` or is empty, and the pattern; None when the text is no
    glob. Over http and https nothing is a glob: there is no listing, and `?` starts the query. The
    bucket or host is never part of a pattern.
    """
    if _SPECIAL.isdisjoint(text):  # most texts: no expression is compiled
        return None
    authority = re.match(_AUTHORITY, text)
    if authority and authority[1].lower() in _NOT_LISTED:
        return None
    start = authority.end() if authority else 0
    special = re.compile(_GLOB).search(text, start)
    if special is None:
        return None
    cut = max(text.rfind("/", 0, special.start()) + 1, start)
    return text[:cut], text[cut:]


@dataclass(frozen=True, slots=True)
class Glob:
    """A glob, run as a small automaton over a path's segments.

    `*`, `?`, `[abc]`, `[a-z]` and `[!a]` match within one segment, case-sensitively; a segment that is
    `**` matches any number of them, none included. What a directory passes over (names that begin
    with `_` or `.`) is matched only by a segment that begins with that character itself. A trailing
    `/` means directories. States are sets of segment numbers, so matching is linear in the path.
    """

    segments: tuple[re.Pattern[str] | None, ...]
    """None is `**`."""
    open: tuple[bool, ...]
    """Whether the segment begins with a wildcard."""
    directories: bool
    """Whether the pattern ends in `/`."""

    @classmethod
    def compile(cls, text: str) -> Glob:
        import fnmatch

        parts = [part for part in text.split("/") if part]
        if parts and parts[-1] == "**":
            parts.append("*")  # what is below, not the directory itself
        return cls(
            tuple(None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts),
            tuple(part[0] in "*?" for part in parts),
            text.endswith("/"),
        )

    @property
    def start(self) -> frozenset[int]:
        return self._closure({0})

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """The states after one more segment; empty when nothing below can match."""
        hidden = is_hidden(name)
        after = set()
        for i in states:
            if i == len(self.segments) or (hidden and self.open[i]):
                continue
            segment = self.segments[i]
            if segment is None:
                after.add(i)
            elif segment.match(name):
                after.add(i + 1)
        return self._closure(after)

    def accepts(self, states: frozenset[int]) -> bool:
        return len(self.segments) in states

    def match(self, path: str) -> bool:
        """Whether the whole path matches."""
        states = self.start
        for name in path.split("/"):
            states = self.step(states, name)
        return self.accepts(states)

    def match_above(self, path: str) -> bool:
        """Whether a directory above the path matches, with nothing hidden from there down."""
        names = path.split("/")
        states = self.start
        for i, name in enumerate(names[:-1]):
            states = self.step(states, name)
            if self.accepts(states):
                return not any(map(is_hidden, names[i + 1 :]))
        return False

    def _closure(self, states: set[int]) -> frozenset[int]:
        for i, segment in enumerate(self.segments):
            if segment is None and i in states:
                states.add(i + 1)
        return frozenset(states)
