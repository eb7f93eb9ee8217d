"""The arguments of a scan, checked and unchanged from then on."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pyarrow as pa

from accel.errors import (
    AccelError,
    ColumnNotFoundError,
    EncryptedFileError,
    ObjectNotFoundError,
    ParquetFormatError,
    PredicateError,
    redact,
)
from accel.options import Options
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.predicate.expr import Expr
from accel.predicate.where import to_expr

if TYPE_CHECKING:
    from accel.planning.plan import Plan

__all__ = [
    "SKIPPED",
    "OnError",
    "Partitioning",
    "Path",
    "PathKey",
    "Paths",
    "ScanSpec",
    "Source",
    "check_arguments",
    "check_count",
    "is_planned",
    "is_stream",
    "refuse_beside_a_plan",
]

Path: TypeAlias = "str | os.PathLike[str]"
"""A URL or path; a pattern or a directory too."""
PathKey = TypeVar("PathKey", bound="str | os.PathLike[str]")
"""A path that is a key: the keys of a mapping are of one very type, which may be either."""
Paths: TypeAlias = "Path | Sequence[Path]"
"""One, or several as a list or tuple."""
Source: TypeAlias = "Path | Sequence[Path | ScanTask] | Plan | ScanTask | Iterator[pa.RecordBatch]"
"""The sources of a scan: paths, a plan or its tasks, or the batches that `mapInArrow` passes."""
Partitioning: TypeAlias = 'Literal["auto", "hive"] | pa.Schema | None'
"""How directory names are read."""


class OnError(enum.StrEnum):
    """What happens to a file that is missing or broken."""

    RAISE = "raise"
    """Its error is raised."""
    SKIP = "skip"
    """The file is left out from there on, and named in the warnings of the metrics."""


SKIPPED = (ObjectNotFoundError, ParquetFormatError, EncryptedFileError)
"""The errors of a missing or broken file. That a file was replaced is none: rows of two versions would mix."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ScanSpec:
    """The arguments of a scan, checked. As text it is nameless: the source may be a presigned URL."""

    source: Any
    where: Expr | None = None
    where_text: str | None = None
    """The text that `where` was parsed from, for error messages."""
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    selection: Mapping[str, Mapping[int, RowSelection]] | None = None
    schema: pa.Schema | None = None
    partitioning: Literal["hive"] | pa.Schema | None = "hive"
    glob: bool = True
    order: bool = True
    by_position: bool = False
    """The consumer matches columns by position (mapInArrow): every file must have the first one's
    names in its order, unless `columns` or `schema` say what comes out."""
    embedded: Mapping[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=Options)

    def at_most(self, limit: int | None) -> int | None:
        """Return the lesser of a limit and the scan's own; None for no limit."""
        return self.limit if limit is None else limit if self.limit is None else min(limit, self.limit)

    def explain_error(
        self, error: AccelError, url: str, *, hint_for: Callable[[str, str], str | None]
    ) -> AccelError:
        """Return an error that no file can mend, with what the caller wrote and, where that settled the schema, the first file.

        Parameters
        ----------
        hint_for : callable
            Tells, for a missing column and the URL of a file, what to do about it, if the source knows better.
        """
        if isinstance(error, PredicateError):
            error.text = error.text or self.where_text
        elif isinstance(error, ColumnNotFoundError) and error.column is not None:
            error.hint = hint_for(error.column, url) or error.hint
        return error if self.schema is not None else error.at(path=url)

    @property
    def texts(self) -> frozenset[str]:
        """The columns that `schema` says are texts or bytes: of a partition `code=007`, whose value would be 7 otherwise."""
        if self.schema is None:
            return frozenset()
        from accel.planning.conform import is_bytes, is_text

        kinds = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in self.schema
        }
        return frozenset(name for name, kind in kinds.items() if is_text(kind) or is_bytes(kind))

    @property
    def prunes_blocks(self) -> bool:
        """Whether files may be pruned together, before any is planned by itself."""
        # With a selection the caller chooses the rows; an IDX1 that is named has to be looked up.
        return self.where is not None and self.selection is None and not self.embedded


# Parquet counts rows in 64 bits.
_MOST = 2**63 - 1


def is_stream(source: object) -> bool:
    """Whether a source is what mapInArrow passes: an iterator, which can be read once."""
    return isinstance(source, Iterator) and not isinstance(source, str | bytes)


def is_planned(source: object) -> bool:
    """Whether a source already is planned: a Plan, or tasks of one."""
    if isinstance(source, str | os.PathLike):
        return False
    from accel.planning.plan import Plan

    if isinstance(source, Plan | ScanTask):
        return True
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(s, ScanTask) for s in source)


def refuse_beside_a_plan(
    *,
    where: object,
    columns: object,
    selection: object,
    schema: object,
    embedded: object,
    partitioning: object = None,
) -> None:
    """Raise ValueError for what tasks were planned with: given once more, it would be without effect."""
    given = {
        "where": where,
        "columns": columns,
        "selection": selection,
        "schema": schema,
        "embedded": embedded,
        "partitioning": partitioning,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(f"{', '.join(named)}: a plan has its own; plan again with them")


def check_arguments(
    source: Any,
    where: Any = None,
    *,
    columns: Sequence[str] | None,
    limit: int | None,
    selection: Mapping[PathKey, Any] | None,
    schema: pa.Schema | None,
    partitioning: Any,
    glob: bool,
    order: bool,
    embedded: Mapping[str, str] | None = None,
    options: Options,
) -> ScanSpec:
    """Make a `ScanSpec`, or raise what is wrong with the arguments."""
    stream = is_stream(source)
    if is_planned(source):
        keys = None if isinstance(partitioning, str) and partitioning == "auto" else True
        refuse_beside_a_plan(
            where=where,
            columns=columns,
            selection=selection,
            schema=schema,
            embedded=embedded,
            partitioning=keys,
        )
    elif hasattr(source, "read") or not (stream or isinstance(source, str | os.PathLike | list | tuple)):
        raise TypeError(
            f"a {type(source).__name__} is no source: give a path or URL, a list of them, or a Plan"
            f"{_source_hint(source)}"
        )
    _check_columns(columns)
    for name, flag in (("glob", glob), ("order", order)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} is True or False, not {flag!r:.80}")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise TypeError(f"schema is a pyarrow.Schema, not a {type(schema).__name__}")
    # Only texts are compared: another object may not support comparison.
    named = partitioning is None or (isinstance(partitioning, str) and partitioning in ("auto", "hive"))
    if not named and not isinstance(partitioning, pa.Schema):
        raise ValueError(
            f"partitioning is 'auto', 'hive', None, or a pyarrow.Schema, not {partitioning!r:.80}"
        )
    if stream and partitioning == "hive":
        raise ValueError(
            "partitioning='hive' is not for an iterator, which shows some of the paths at a time: give the keys and "
            "their types, partitioning=pyarrow.schema([...])"
        )
    chosen = None if selection is None else _check_selection(selection)
    if embedded is not None:
        _check_embedded(embedded)
    return ScanSpec(
        source=source,
        where=to_expr(where),
        where_text=where if isinstance(where, str) else None,
        columns=None if columns is None else tuple(columns),
        limit=None if limit is None else check_count(limit, "limit"),
        selection=chosen,
        schema=schema,
        partitioning=partitioning if partitioning != "auto" else None if stream else "hive",
        glob=glob,
        order=order,
        by_position=stream,
        embedded=dict(embedded or {}),
        options=options.for_spark() if stream else options,
    )


def _source_hint(source: object) -> str:
    if isinstance(source, bytes | bytearray) or hasattr(source, "read"):
        return "; bytes can be an object of an obstore MemoryStore"
    if isinstance(source, pa.Table):
        return "; tasks in a table are read by accel.Plan.from_arrow"
    if isinstance(source, AbstractSet):
        return "; sorted makes a list of a set"
    for name in ("tolist", "to_list"):
        if hasattr(source, name):
            return f"; its {name}() makes a list"
    # A pyarrow data set has them.
    return "; its .files are such a list" if isinstance(getattr(source, "files", None), list) else ""


def check_count(value: Any, what: str = "a number of rows") -> int:
    """See that rows are counted by a whole number; numpy's count as well. More than any file has are all."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ValueError(f"{what} is a non-negative int, not {value!r}")
    return min(int(value), _MOST)


def _check_columns(columns: Any) -> None:
    # A set has no order, and renaming is not for a scan.
    listed = isinstance(columns, Iterable) and not isinstance(columns, str | Mapping | AbstractSet)
    if columns is not None and not listed:
        shown = f"a {type(columns).__name__}"
        if isinstance(columns, str):
            shown = (
                f"the string {columns!r}: write [{columns!r}]" if columns != "*" else "'*': None takes all"
            )
        raise TypeError(f"columns is a list of names, not {shown}")


def _check_embedded(embedded: Any) -> None:
    if (
        not isinstance(embedded, Mapping)
        or len(embedded) > 1
        or not all(isinstance(column, str) and kind == "idx1" for column, kind in embedded.items())
    ):
        raise ValueError(
            f"embedded names the one column that the files' IDX1 index covers, as in {{'category': 'idx1'}}, "
            f"not {embedded!r}"
        )


def _check_selection(selection: Any) -> dict[str, dict[int, RowSelection]]:
    """Read the caller's selection once: ranges may come from an iterator, and their holder may change."""
    if not isinstance(selection, Mapping):
        raise TypeError(
            f"selection is a mapping of files to row groups to row ranges, not a {type(selection).__name__}"
        )
    chosen: dict[str, dict[int, RowSelection]] = {}
    for given, groups in selection.items():
        name = redact(str(given))
        if not isinstance(groups, Mapping):
            raise TypeError(f"selection[{name!r}] is a mapping of row groups to row ranges, not {groups!r}")
        rows = chosen.setdefault(str(given), {})
        for group, ranges in groups.items():
            if isinstance(group, bool) or not isinstance(group, Integral):
                raise TypeError(f"selection[{name!r}] has a row group {group!r}, which is not an int")
            try:
                # Whole numbers only: neither text nor 0.5.
                rows[int(group)] = RowSelection.of([(index(start), index(stop)) for start, stop in ranges])
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(
                    f"selection[{name!r}][{group}] is a list of (start, stop) with 0 <= start <= stop: {error}"
                ) from None
    return chosen
