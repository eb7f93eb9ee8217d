"""Globs in the file system, walked a directory at a time: what cannot match is not entered."""

from __future__ import annotations

import os
from collections.abc import Sequence

from accel.planning.file_entry import FileEntry
from accel.store.local_store import etag_of
from accel.store.location import Location
from accel.store.request_errors import system_error
from accel.tables.listed import nothing
from accel.tables.source import Named, SourceShape

__all__ = ["expand"]


def expand(item: Named) -> tuple[Sequence[FileEntry], Sequence[Named]]:
    """The files that match a local glob, sorted by path, and else the directories that do.

    Symbolic links are followed, save in a circle.

    Raises
    ------
    ObjectNotFoundError
        Neither a file nor a directory matches.
    StoreError
        A directory on the way cannot be read.
    """
    pattern = item.pattern
    if pattern is None:
        raise TypeError("a glob has a pattern")
    files: list[str] = []
    directories: list[str] = []
    root = f"/{item.prefix}" if item.prefix else "/"
    pending = [("", pattern.start, frozenset[tuple[int, int]]())]
    while pending:
        relative, states, above = pending.pop()
        names, identity = _read(os.path.join(root, relative), item)
        if identity is None or identity in above:
            continue
        for name, is_directory in names:
            after = pattern.step(states, name)
            path = f"{relative}/{name}" if relative else name
            if not after:
                continue
            if is_directory:
                if pattern.accepts(after):
                    directories.append(path)
                pending.append((path, after, above | {identity}))
            elif pattern.accepts(after) and not pattern.directories:
                files.append(path)
    if not files and not directories:
        nothing(item)
    return [item.named_below(path, _version(root, path)) for path in sorted(files)], [
        _directory(item, path) for path in sorted(_outermost(directories))
    ]


def _version(root: str, relative: str) -> tuple[int, str] | None:
    try:
        found = os.stat(os.path.join(root, relative))
    except OSError:  # it went since: whoever opens it says so
        return None
    return found.st_size, etag_of(found)


def _read(path: str, item: Named) -> tuple[list[tuple[str, bool]], tuple[int, int] | None]:
    try:
        status = os.stat(path)
        with os.scandir(path) as entries:
            names = [(e.name, e.is_dir()) for e in entries if e.is_dir() or e.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except OSError as error:
        raise system_error(error, path=path, place=f"pattern {item.text}") from error
    return names, (status.st_dev, status.st_ino)


def _outermost(directories: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(directories, key=lambda d: d.split("/")):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def _directory(item: Named, relative: str) -> Named:
    file = item.named_below(relative)
    location = Location(item.location.scheme, item.location.root, file.path + "/")
    return Named(item.text, location, SourceShape.DIRECTORY, file.url + "/")
