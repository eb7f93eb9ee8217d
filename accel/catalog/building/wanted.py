"""The indexes that a caller asks for, looked for in the files before anything is written: what no file can
have is an error."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from accel.catalog.describing import column_text, leaf_columns, path_of_text, paths_of_text
from accel.catalog.head import CatalogHead, Segment
from accel.catalog.kinds.kind import CatalogIndex
from accel.catalog.kinds.registry import KINDS, indexes_of
from accel.catalog.stored_names import StoredNames
from accel.errors import AccelError, ColumnNotFoundError, SchemaMismatchError, TableFormatError
from accel.planning.projection import split_name, type_at
from accel.predicate.expr import quoted_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pyarrow as pa

    from accel.planning.column_mapping import ColumnMapping
    from accel.planning.file_entry import FileEntry
    from accel.planning.handle import FileHandle

    Opener = Callable[
        [Sequence[tuple[str, FileEntry]]], Awaitable[Sequence[tuple[str, FileHandle | AccelError]]]
    ]

__all__ = ["coverage_notes", "is_lacking", "settled_head", "with_indexes"]

_AT_ONCE: Final = (1, 15, 240)
"""Files that are opened one wave after the other; the last number counts for all that follow."""
_BOUNDS: Final = "bounds"


@dataclass(frozen=True, slots=True, eq=False)
class _OpenedFile:
    """A file under the names of the data set, and under those of the catalog."""

    named: FileHandle
    stored: FileHandle
    columns: ColumnMapping | None

    @classmethod
    def of(cls, handle: FileHandle, file: FileEntry, names: StoredNames) -> _OpenedFile:
        """Show an opened file under both. Raises as `StoredNames.view` does."""
        return cls(names.view(handle, file.columns), names.view(handle, file.stored_columns), file.columns)

    def path(self, path: tuple[str, ...], *, is_dotted: bool) -> tuple[str, ...]:
        """Return what the catalog calls a column of the data set. Raises as `split_name` does."""
        found = _path_in(self.named.arrow_schema, path, is_dotted=is_dotted)
        stored = found if self.columns is None else self.columns.stored_path(found)
        if stored is None:
            raise ColumnNotFoundError(f"the data set has no column {path[0]!r}", column=path[0])
        return stored


@dataclass(slots=True)
class _Wanted:
    """An index, or the bounds of a column, that a caller asks for."""

    kind: str
    """`_BOUNDS`, or a kind of index."""
    of: str
    """What it is of, as the caller writes it: it may turn out that a dotted name is that of one column."""
    found: str | None = None
    """What it is of, once a file can have it."""
    type: pa.DataType | None = None
    """The type of a column for which a file cannot have it."""
    missing: AccelError | None = field(default=None)
    """How a file lacks a column of it."""

    def look(self, opened: _OpenedFile, dotted: Collection[tuple[str, ...]]) -> None:
        """Look whether a file can have it."""
        handle = opened.stored
        index = None if self.kind == _BOUNDS else KINDS[self.kind](self.of)
        own = (path_of_text(self.of),) if index is None else index.columns
        paths = []
        for path in own:
            try:
                paths.append(opened.path(path, is_dotted=path in dotted))
            except AccelError as error:
                self.missing = self.missing or error
                return
        self.type = type_at(handle.arrow_schema, paths[0])
        if index is None:
            text = column_text(paths[0])
            if any(path[: len(paths[0])] == paths[0] for path, *_ in leaf_columns(handle)):
                self.found = text
            return
        text = _rewritten(index, paths)
        if KINDS[self.kind](text).builder().accepts(handle):
            self.found = text

    def refusal(self, files: Collection[str]) -> AccelError:
        """Return the error that no file can have it."""
        shown = self.of if self.kind == _BOUNDS else f"{self.kind!r} of {self.of}"
        if self.type is not None:
            what = "bounds" if self.kind == _BOUNDS else f"an index of kind {shown}"
            return SchemaMismatchError(
                f"no file can have {what}: the column is {self.type}", hint=_hint(self.kind)
            )
        for path in paths_of_text(self.of):
            if len(path) == 1 and any(f"/{path[0]}=" in f"/{file}" for file in files):
                return ColumnNotFoundError(
                    f"no file has the column {path[0]!r}: its values are in the paths",
                    column=path[0],
                    hint="an index rules files out by these as it is: leave the column out",
                )
        if isinstance(self.missing, ColumnNotFoundError):
            if self.kind != _BOUNDS and len(paths_of_text(self.of)) > 1:
                return ColumnNotFoundError(
                    f"no file has all columns of an index of kind {shown}: the first lacks "
                    f"{self.missing.column!r}",
                    column=self.missing.column,
                    hint=self.missing.hint,
                )
            return ColumnNotFoundError(
                f"no file has the column that is to be indexed: {self.missing.message}",
                column=self.missing.column,
                hint=self.missing.hint,
            )
        return self.missing or ColumnNotFoundError(f"no file has the column {self.of!r}", column=self.of)


async def settled_head(
    make: CatalogHead,
    known: CatalogHead | None,
    files: Mapping[str, FileEntry],
    *,
    source: str,
    dotted: Collection[tuple[str, ...]],
    opened: Opener,
) -> CatalogHead:
    """Return the head that a caller asks for, with its columns as the files have them.

    Parameters
    ----------
    make : CatalogHead
    known : CatalogHead or None
        The head that is there, whose own indexes are not looked for.
    files : mapping
        The files by their paths.
    source : str
        The URL of their directory, for messages.
    dotted : collection of tuples of str
        Paths that may be the name of one column with dots in it.
    opened : callable
        Opens files.

    Raises
    ------
    ColumnNotFoundError, SchemaMismatchError
        No file can have an index, or bounds, that are wanted.
    """
    wanted = [
        _Wanted(kind, of)
        for of, kinds in make.indexes.items()
        for kind in kinds
        if known is None or kind not in known.indexes.get(of, ())
    ]
    if known is None:
        wanted += [_Wanted(_BOUNDS, of) for of in make.columns or ()]
    left, readable, names = list(wanted), False, StoredNames()
    for block in _waves(sorted(files.items())):
        if not left:
            break
        for path, handle in await opened(block):
            if isinstance(handle, AccelError):
                continue
            readable = True
            with suppress(TableFormatError):  # said again where the file is described
                shown = _OpenedFile.of(handle, files[path], names)
                for one in left:
                    one.look(shown, dotted)
            left = [one for one in left if one.found is None]
    if left and readable:
        raise left[0].refusal(files.keys()).at(path=source)
    found = {(one.kind, one.of): one.found or one.of for one in wanted}
    indexes: dict[str, list[str]] = {}
    for of, kinds in make.indexes.items():
        for kind in kinds:
            indexes.setdefault(found.get((kind, of), of), []).append(kind)
    columns = None if make.columns is None else tuple(found.get((_BOUNDS, of), of) for of in make.columns)
    return replace(make, columns=columns, indexes={of: tuple(kinds) for of, kinds in indexes.items()})


def is_lacking(head: CatalogHead, indexes: Mapping[str, Sequence[str]]) -> bool:
    """Return whether any of some indexes is not among those of a head."""
    return any(kind not in head.indexes.get(of, ()) for of, kinds in indexes.items() for kind in kinds)


def with_indexes(head: CatalogHead, indexes: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    """Return the indexes of a head and some more."""
    every = {of: tuple(kinds) for of, kinds in head.indexes.items()}
    for of, kinds in indexes.items():
        every[of] = tuple(dict.fromkeys((*every.get(of, ()), *kinds)))
    return every


def coverage_notes(head: CatalogHead, described: Sequence[Segment]) -> tuple[str, ...]:
    """Return what to tell of files, in segments that were just written, that the indexes of a head leave
    out."""
    files = sum(one.num_files for one in described)
    left_out = {
        index.table: sum(
            int((~one.covered_by(index.table)).sum()) for one in described if index.table in one.tables
        )
        for index in indexes_of(head.indexes)
    }
    return tuple(
        f"the index {table!r} leaves out {count} of {files} files that were added: they lack the column, "
        "have it in another type than the first file, or have too many values. Scans read them as if there "
        "were no such index"
        for table, count in sorted(left_out.items())
        if count
    )


def _waves(files: Sequence[tuple[str, FileEntry]]) -> Iterator[Sequence[tuple[str, FileEntry]]]:
    start, sizes = 0, iter(_AT_ONCE)
    size = _AT_ONCE[-1]
    while start < len(files):
        size = next(sizes, size)
        yield files[start : start + size]
        start += size


def _path_in(schema: pa.Schema, path: tuple[str, ...], *, is_dotted: bool) -> tuple[str, ...]:
    """Return the path of a column in a file. Raises as `split_name` does."""
    if is_dotted:
        return split_name(".".join(path), schema)
    if len(path) == 1 and (schema.get_all_field_indices(path[0]) or "." not in path[0]):
        return split_name(path[0], schema)
    return split_name(".".join(map(quoted_name, path)), schema)


def _rewritten(index: CatalogIndex, paths: Sequence[tuple[str, ...]]) -> str:
    """Return the text of what the index is of, with other paths for its columns."""
    inner = ", ".join(map(column_text, paths))
    call, parenthesis, _ = index.of.partition("(")
    return f"{call}({inner})" if parenthesis and '"' not in call else inner


def _hint(kind: str) -> str:
    if kind == _BOUNDS:
        return "bounds are of columns, and of fields of structs, with one value for each row"
    return f"an index of kind {kind!r} is of columns, and of fields of structs, with {KINDS[kind].values}"
