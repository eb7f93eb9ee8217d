"""Embedded sketches of a predicate's columns: what tells how selective it is, where the first read brought them."""

from __future__ import annotations

from dataclasses import dataclass

from accel.errors import IndexFormatError
from accel.format.embedded import Entry, verify_blob
from accel.indexes.kind import Level
from accel.indexes.registry import find_kind, guarded
from accel.indexes.sketch import ParsedSketch, Sketch
from accel.planning.handle import FileHandle
from accel.planning.need import OnBadIndex
from accel.planning.query import FileQuery
from accel.ranges import ByteRange

__all__ = ["Sketches"]


@dataclass(slots=True)
class Sketches:
    """Those of one file that say something of a predicate.

    Only what the first read already brought is used: a guess is not worth a request.
    """

    handle: FileHandle
    on_bad_index: OnBadIndex
    entries: list[tuple[int, Entry]]

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery, on_bad_index: OnBadIndex) -> Sketches | None:
        """None where the file has none for the predicate's columns."""
        if query.bound is None or handle.toc is None or handle.distrusted:
            return None
        paths = {path for path, _, _ in query.prunable}
        entries = [
            (ordinal, entry)
            for ordinal, entry in enumerate(handle.toc.entries)
            if entry.kind == Sketch.name and entry.version == Sketch.version and entry.column in paths
        ]
        return cls(handle, on_bad_index, entries) if entries else None

    def of_group(self, row_group: int) -> dict[tuple[str, ...], ParsedSketch]:
        """By column path; a row group's own sketch goes before the file's."""
        found: dict[tuple[str, ...], ParsedSketch] = {}
        for ordinal, entry in sorted(self.entries, key=lambda item: item[1].row_group):
            if entry.row_group in (-1, row_group) and (sketch := self._parsed(ordinal, entry)) is not None:
                found[entry.column] = sketch
        return found

    def _parsed(self, ordinal: int, entry: Entry) -> ParsedSketch | None:
        held = self.handle.indexes
        if ordinal not in held:
            data = self.handle.in_tail(ByteRange(entry.offset, entry.offset + entry.length))
            kind = find_kind(entry.kind, entry.version)
            if data is None or kind is None:
                return None
            try:
                verify_blob(entry, data)
                held[ordinal] = guarded(kind.parse, bytes(data), level=Level(entry.level), units=entry.units)
            except IndexFormatError as error:
                held[ordinal] = None
                error.at(path=self.handle.id.path, place=f"embedded sketch, column {'.'.join(entry.column)}")
                self.on_bad_index(error)
        sketch = held[ordinal]
        return sketch if isinstance(sketch, ParsedSketch) else None
