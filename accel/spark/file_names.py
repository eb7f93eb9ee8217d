"""`pathGlobFilter`, `modifiedAfter` and `modifiedBefore`: only files whose names match a pattern, and that
were changed in a certain time, as Spark's own file source has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from accel.api import scan
from accel.errors import ObjectNotFoundError, redact
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.runtime import io_loop
from accel.spark.credentials import with_credentials
from accel.spark.read_records import name_of_source
from accel.spark.source_options import SourceOptions

__all__ = ["name_matcher", "source_of"]


def source_of(settings: SourceOptions) -> tuple[Any, dict[str, Any]]:
    """Return the source that the options of a query mean, and its keywords of planning.

    Where only some files are to be read, they are listed now, and the source is the list of those.

    Raises
    ------
    ObjectNotFoundError
        There is no such file.
    ValueError
        It is a table, which says by itself which files count, and which of their rows; or it is a file that
        is named, of which no listing tells the time.
    """
    keywords = settings.planning()
    if not settings.chooses_files:
        return settings.scanned, keywords
    matches = _matcher(settings)
    engine = scan(settings.scanned, **with_credentials(keywords, settings.credentials)).engine

    metrics = Metrics()

    async def find() -> tuple[list[str], Any]:
        found = engine.resolve(metrics)
        async with aclosing(found):
            first = await found.first_block()
            block: FileBlock | None = first
            urls: list[str] = []
            of_table = settings.names_table
            while block is not None:
                of_table |= any(file.deleted is not None or file.columns is not None for file in block.files)
                urls += [file.url for file in block.files if matches(file)]
                block = await found.next_block()
        if of_table or metrics.table is not None:
            raise ValueError(
                f"option {_named(settings)} chooses files, and a table has its own: leave it out"
            )
        return urls, first.partition_schema

    urls, keys = io_loop.run(find())
    if not urls:
        raise ObjectNotFoundError(
            f"{_named(settings)} leaves no file",
            path=name_of_source(settings.source),
            hint="pathGlobFilter is compared with the last part of each path, the times with the last change",
        )
    of_list = {"glob": False, "index": None, "listing": "store"}
    return urls, keywords | of_list | {"partitioning": keys if len(keys) else None}


def _named(settings: SourceOptions) -> str:
    given = {
        "pathGlobFilter": settings.file_names,
        "modifiedAfter": settings.modified_after,
        "modifiedBefore": settings.modified_before,
    }
    return " and ".join(name for name, value in given.items() if value is not None)


def _matcher(settings: SourceOptions) -> Callable[[FileEntry], bool]:
    """Return what tells whether a file is to be read."""
    has_name = name_matcher(settings.file_names or "*")
    after, before = settings.modified_after, settings.modified_before

    def matches(file: FileEntry) -> bool:
        if not has_name(file.path):
            return False
        if after is None and before is None:
            return True
        if file.modified is None:
            raise ValueError(
                f"option {_named(settings)} needs the times of files, and none is known of "
                f"{redact(file.url)}: load the directory that it is in, which is listed"
            )
        return (after is None or file.modified > after) and (before is None or file.modified < before)

    return matches


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether the last part of a path matches a pattern of Hadoop: `*`, `?`, `[a-z]`,
    `[^a]` and `{a,b}`.

    Raises
    ------
    ValueError
        It is no pattern.
    """
    regex = re.compile(_regex_of(pattern), re.DOTALL)
    return lambda path: regex.fullmatch(path.rstrip("/").rpartition("/")[2]) is not None


def _regex_of(pattern: str) -> str:
    parts, at, braces = [], 0, 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            parts.append(".*")
        elif letter == "?":
            parts.append(".")
        elif letter == "\\" and at < len(pattern):
            parts.append(re.escape(pattern[at]))
            at += 1
        elif letter == "[":
            end = pattern.find("]", at + 1)
            if end < 0:
                raise ValueError(f"option pathGlobFilter has a [ that is not closed: {pattern!r:.80}")
            inside = pattern[at:end]
            negated = inside[:1] in ("^", "!")
            body = re.sub(r"([\\\[\]&~|^])", r"\\\1", inside[negated:])
            parts.append(f"[{'^' * negated}{body}]")
            at = end + 1
        elif letter == "{":
            braces += 1
            parts.append("(?:")
        elif letter == "}" and braces:
            braces -= 1
            parts.append(")")
        elif letter == "," and braces:
            parts.append("|")
        else:
            parts.append(re.escape(letter))
    if braces:
        raise ValueError(f"option pathGlobFilter has a {{ that is not closed: {pattern!r:.80}")
    try:
        re.compile("".join(parts))
    except re.error as error:
        raise ValueError(f"option pathGlobFilter is no pattern: {error}: {pattern!r:.80}") from None
    return "".join(parts)
