"""One source as the user names it: its text, its location, and whether it looks like a file, a directory or a
glob."""

from __future__ import annotations

import enum
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.planning.file_entry import FileEntry
from accel.store.local_store import etag_of
from accel.store.location import Location, parse_url
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import system_error
from accel.tables.file_urls import is_file_url

__all__ = [
    "Glob",
    "NamedSource",
    "SourceShape",
    "has_hidden_name",
    "is_hidden",
    "may_be_local",
    "read_remote",
    "read_source",
    "split_glob",
    "working_directory_hint",
]


class SourceShape(enum.Enum):
    """What a source looks like before a request is sent."""

    FILE = "file"
    DIRECTORY = "directory"
    GLOB = "glob"
    OPEN = "open"
    """A file or a directory, which a listing decides."""


@dataclass(frozen=True, slots=True)
class NamedSource:
    """One source of a scan."""

    text: str
    """The text that the user wrote."""
    location: Location
    """The file or directory; for a glob, the directory before the first wildcard."""
    shape: SourceShape
    base: str
    """The prefix that turns the name of a file below `location` into the URL that the user would write."""
    pattern: Glob | None = None
    entry: ObjectEntry | None = None
    """The size and etag of a local file, which validate its cached metadata."""

    @property
    def is_plain_file(self) -> bool:
        """Whether the name is that of a file whose path can spell no column, so that there is nothing to
        list."""
        return self.shape is SourceShape.FILE and "=" not in self.text and "=" not in self.location.path

    @property
    def prefix(self) -> str:
        """The path to list."""
        return self.location.path.rstrip("/")

    def as_file(self, entry: ObjectEntry | None = None) -> FileEntry:
        """Return the source itself as a file."""
        entry = entry or self.entry
        if entry is None:
            return FileEntry(root=self.location.root, path=self.location.path, url=self.text)
        return _listed(self.location.root, entry, self.text)

    def placing(self) -> Callable[[ObjectEntry, str], FileEntry]:
        """Return a function that makes a file of a listed object and its path below the source."""
        root, base = self.location.root, self.base
        if is_file_url(self.text):
            name = self._name
            return lambda entry, relative: _listed(root, entry, name(relative))
        return lambda entry, relative: _listed(root, entry, base + relative)

    def named_below(self, relative: str, version: tuple[int, str] | None = None) -> FileEntry:
        """Return a file below the source that no store listed; `version` is its size and etag, if known."""
        path = f"{self.prefix}/{relative}" if self.prefix else relative
        return FileEntry(self.location.root, path, self._name(relative), *version or (None, None))

    def relative(self, entry: ObjectEntry) -> str:
        """Return the path of an object below the source."""
        prefix = self.prefix
        return entry.path[len(prefix) + 1 :] if prefix else entry.path

    def directories(self, file: FileEntry, *, below: bool) -> Sequence[str]:
        """Return the directories in the path of a file that may spell partitions: all, or those below the
        source."""
        if below:
            prefix = self.prefix
            path = file.path[len(prefix) + 1 :] if prefix else file.path
        elif self.location.scheme == "file" and not is_file_url(self.text):
            # The URL may be relative: the working directory is not part of the data set.
            path = file.url
        else:
            path = file.path if self.location.globs else file.path.partition("?")[0]
        return path.split("/")[:-1]

    def _name(self, relative: str) -> str:
        if not is_file_url(self.text):
            return self.base + relative
        from urllib.parse import quote

        return self.base + quote(relative, safe="/=:@+,;!$&'()", errors="surrogateescape")


def read_source(text: str, *, glob: bool, in_store: bool) -> NamedSource:
    """Return what one text names, as far as that is clear without a request.

    Raises
    ------
    ObjectNotFoundError
        A local path does not exist.
    StoreError
        accel does not support such URLs.
    """
    cut = split_glob(text) if glob else None
    if cut is not None:
        fixed, pattern = cut
        if fixed:
            try:
                location = parse_url(fixed, in_store=in_store)
            except StoreError as error:
                raise error.of(text) from None
        else:
            location = Location("store", "store:", "") if in_store else parse_url("./")
        if not (location.scheme == "file" and os.path.lexists(parse_url(text).url)):
            if is_file_url(text):
                from urllib.parse import unquote

                pattern = unquote(pattern, errors="surrogateescape")
            return NamedSource(text, location, SourceShape.GLOB, fixed, Glob.compile(pattern))
    location = parse_url(text, in_store=in_store)
    base = text if text.endswith("/") else f"{text}/"
    if location.scheme != "file":
        return NamedSource(text, location, _shape(location), base)
    entry = _local_file(text, location)
    return NamedSource(
        text, location, SourceShape.FILE if entry else SourceShape.DIRECTORY, base, entry=entry
    )


@lru_cache(256)
def read_remote(text: str, *, glob: bool, in_store: bool) -> NamedSource | None:
    """Return what one text names in a store; None if it may be local, or is not supported."""
    if not in_store and may_be_local(text):
        return None
    try:
        return read_source(text, glob=glob, in_store=in_store)
    except AccelError:
        return None


def may_be_local(text: str) -> bool:
    """Return whether `read_source` may look into the file system, unless the caller gave a store."""
    return "://" not in text or is_file_url(text)


def _local_file(text: str, location: Location) -> ObjectEntry | None:
    """Return the size and etag of a local file; None for a directory."""
    try:
        found = os.stat(location.url)
    except PermissionError as error:
        hint = "check the permissions of the directories above it"
        raise system_error(error, path=text, hint=hint) from None
    except (OSError, ValueError) as error:
        meant = _meant(text) or working_directory_hint(text)
        if isinstance(error, NotADirectoryError):
            meant = "what stands before a slash there is a file, not a directory"
        raise ObjectNotFoundError("there is no such file or directory", path=text, hint=meant) from None
    if stat.S_ISDIR(found.st_mode):
        return None
    return ObjectEntry(location.path, found.st_size, etag_of(found))


def _shape(location: Location) -> SourceShape:
    path = location.path
    if not location.globs:
        # Over HTTP every path is a file unless it ends in `/`.
        return SourceShape.DIRECTORY if "?" not in path and path[-1:] in ("", "/") else SourceShape.FILE
    if not path or path.endswith("/"):
        return SourceShape.DIRECTORY
    return SourceShape.FILE if _has_extension(path) else SourceShape.OPEN


def _meant(text: str) -> str | None:
    """Return a hint at what a missing path may have meant."""
    if is_file_url(text):
        return "a file: URL is percent-encoded, % itself as %25; a bare path is not" if "%" in text else None
    if "{" in text and "}" in text:
        return "braces are not expanded, a list of paths is taken"
    if "$" in text:
        return "variables are not expanded: os.path.expandvars does that"
    if re.match(r"[A-Za-z][A-Za-z0-9]+:/?[^/]", text):
        return "a URL has two slashes: s3://bucket/path"
    if "\\" in text and os.sep == "/":
        return "folders are separated by / here"
    return None


def working_directory_hint(text: str) -> str | None:
    """Return a hint at the working directory of a relative path, which in notebooks and services may
    surprise."""
    if os.path.isabs(os.path.expanduser(text)) or is_file_url(text):
        return None
    try:
        return f"looked for in {os.getcwd()}"
    except OSError:
        return "the working directory is gone"


def _has_extension(path: str) -> bool:
    """Return whether a path ends in an extension; `v1.2` is more likely a version than one."""
    stem, _, extension = path.rpartition(".")
    plain = extension.isascii() and extension.replace("_", "0").isalnum() and extension[0].isalpha()
    return plain and stem != "" and not stem.endswith("/")


_GLOB = r"[*?]|\[!?[^/][^/\]]*\]"
_AUTHORITY = r"([A-Za-z][A-Za-z0-9+.-]*)://[^/]*/?"
_SPECIAL = frozenset("*?[")
_NOT_LISTED = frozenset({"http", "https"})


def is_hidden(name: str) -> bool:
    """Return whether directories skip this name: `_SUCCESS`, `_temporary`, `.part-0.crc`, ..."""
    return name.startswith(("_", "."))


def has_hidden_name(relative: str) -> bool:
    """Return whether any name in a path below a directory is hidden."""
    return is_hidden(relative) or "/_" in relative or "/." in relative


def split_glob(text: str) -> tuple[str, str] | None:
    """Cut a URL or path before its first segment that holds `*`, `?` or `[...]`.

    Returns the fixed part, which ends in `/` or is empty, and the pattern; None if the text is no glob. An
    http or https URL is no glob: nothing lists it, and `?` starts the query. The bucket or host is never part
    of a pattern.
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
    """A glob, run as a small automaton over the segments of a path.

    `*`, `?`, `[abc]`, `[a-z]` and `[!a]` match within one segment, case-sensitively; the segment `**` matches
    any number of segments, none included. A hidden name, which begins with `_` or `.`, is matched only by a
    segment that begins with that character. A trailing `/` means directories. States are sets of segment
    numbers, so matching is linear in the path.
    """

    segments: tuple[re.Pattern[str] | None, ...]
    """None is `**`."""
    open: tuple[bool, ...]
    """Whether the segment begins with a wildcard."""
    directories: bool
    """Whether the pattern ends in `/`."""

    @classmethod
    def compile(cls, text: str) -> Glob:
        """Return the automaton of a pattern."""
        import fnmatch

        parts = [part for part in text.split("/") if part]
        if parts and parts[-1] == "**":
            parts.append("*")  # the files below, not the directory itself
        return cls(
            tuple(None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts),
            tuple(part[0] in "*?" for part in parts),
            text.endswith("/"),
        )

    @property
    def start(self) -> frozenset[int]:
        """The states before the first segment."""
        return self._closure({0})

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Return the states after one more segment; none if nothing below can match."""
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
        """Return whether a path that leads to these states matches."""
        return len(self.segments) in states

    def match(self, path: str) -> bool:
        """Return whether the whole path matches."""
        states = self.start
        for name in path.split("/"):
            states = self.step(states, name)
        return self.accepts(states)

    def match_above(self, path: str) -> bool:
        """Return whether a directory above the path matches, with no hidden name below it."""
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


def _listed(root: str, entry: ObjectEntry, url: str) -> FileEntry:
    return FileEntry(root, entry.path, url, entry.size, entry.etag, modified=entry.modified)
