"""Indexes of many row groups made into one, by the kinds that can: one lookup then takes one part, not one of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from accel.errors import AccelError, IndexFormatError
from accel.indexes.kind import Level
from accel.writing.building import BuiltIndex
from accel.writing.scratch import Scratch, ScratchBytes

if TYPE_CHECKING:
    from accel.indexes.kind import JoinableKind

__all__ = ["MANY_GROUPS", "join_groups"]

MANY_GROUPS: Final = 4
"""Row groups; of fewer each keeps its own index."""


def join_groups(built: Sequence[BuiltIndex], scratch: Scratch, *, path: str) -> list[BuiltIndex]:
    """The indexes of a file, of which those by page of many row groups are one where their kind has a method `join`.

    `path` is the file's, for messages.
    """
    out: list[BuiltIndex] = []
    runs: dict[int, list[BuiltIndex]] = {}
    for index in built:
        if index.wanted.level is Level.PAGE and hasattr(index.wanted.kind, "join"):
            runs.setdefault(id(index.wanted), []).append(index)
        else:
            out.append(index)
    for run in runs.values():
        ordered = sorted(run, key=lambda index: index.row_group)
        joined = _join(ordered, scratch, path) if len(run) >= MANY_GROUPS else None
        out += ordered if joined is None else [joined]
    return out


def _join(run: Sequence[BuiltIndex], scratch: Scratch, path: str) -> BuiltIndex | None:
    first, kind = run[0], cast("JoinableKind", run[0].wanted.kind)
    parts: list[ScratchBytes] = []
    begun = time.thread_time()
    try:
        head = kind.join(
            [index.data.read for index in run], keep=lambda data: parts.append(scratch.keep(data))
        )
    except IndexFormatError as error:
        raise AccelError(
            f"indexes of kind {kind.name} do not join: {error.message}",
            path=path,
            place=f"column {first.wanted.column}",
        ) from error
    if head is None:
        return None
    return BuiltIndex(
        first.wanted,
        -1,
        sum(index.units for index in run),
        first.signatures,
        ScratchBytes.joined([ScratchBytes(len(head), data=head), *parts]),
        sum(index.seconds for index in run) + time.thread_time() - begun,
        version=kind.joined_version,
    )
