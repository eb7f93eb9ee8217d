"""The arguments of a scan, checked and unchanged from then on."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from numbers import Integral
from operator import index
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypedDict, Unpack

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import (
    AccelError,
    AccessDeniedError,
    ColumnNotFoundError,
    EncryptedFileError,
    ObjectNotFoundError,
    ParquetFormatError,
    PredicateError,
    redact,
)
from accel.options import Options, check_options
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.predicate.expr import Expr, columns_of
from accel.predicate.where import to_expr
from accel.runtime.time_limits import check_timeout

if TYPE_CHECKING:
    from accel.planning.plan import Plan
    from accel.planning.row_order import SortKey
    from accel.scanning.file_source import FileSource, SourceMaker
    from accel.scanning.files_index import FilesIndex

__all__ = [
    "AUTO",
    "DEFAULT_CACHE",
    "SCAN_DEFAULTS",
    "SKIPPED",
    "ColumnOptions",
    "FrameOptions",
    "OnError",
    "Partitioning",
    "Path",
    "Paths",
    "PlanOptions",
    "QueryOptions",
    "RowOptions",
    "ScanOptions",
    "ScanSpec",
    "Source",
    "SourceOptions",
    "check_arguments",
    "check_count",
    "is_planned",
    "is_source",
    "is_stream",
    "refuse_beside_a_plan",
]

Path: TypeAlias = "str | os.PathLike[str]"
"""A URL or path; a pattern or a directory too."""
Paths: TypeAlias = "Path | Sequence[Path]"
"""One, or several as a list or tuple."""
Source: TypeAlias = (
    "Path | Sequence[Path | ScanTask] | FileSource | SourceMaker | Plan | ScanTask | Iterator[pa.RecordBatch]"
)
"""The sources of a scan: paths, one of the caller's own, a plan or its tasks, or the batches that
`mapInArrow` passes."""
Partitioning: TypeAlias = 'Literal["auto", "hive"] | pa.Schema | None'
"""How directory names are read."""
Selection: TypeAlias = "Mapping[Any, Any]"
"""By file, a path or URL, and by row group, ranges of rows. A mapping's keys are of one very type: text or a
path."""

AUTO: Final = "auto"
"""Stands for the index that lies beside the files, if there is one."""
DEFAULT_CACHE: Final = Cache()
"""The cache that the scans of a process share unless they are given another."""


class SourceOptions(TypedDict, total=False):
    """What a verb is told of its files, and how they are reached: see `ScanOptions`."""

    schema: pa.Schema | Literal["union"] | None
    partitioning: Partitioning
    glob: bool
    table: Literal["auto", "delta", "iceberg"] | None
    index: Path | FilesIndex | None
    listing: str
    store: object | None
    storage_options: Mapping[str, Any] | None
    cache: Cache | None
    options: Options | None


class RowOptions(SourceOptions, total=False):
    """The arguments of all that asks about rows, on Spark too: see `ScanOptions`."""

    selection: Selection | None
    embedded: Mapping[str, str] | None
    file_path: str | None
    row_number: str | None
    timeout: float | None


class FrameOptions(RowOptions, total=False):
    """The arguments of a DataFrame of Spark: see `ScanOptions`."""

    columns: Sequence[str] | None


class QueryOptions(RowOptions, total=False):
    """The arguments of all verbs that ask about rows: see `ScanOptions`."""

    case_sensitive: bool


class ColumnOptions(QueryOptions, total=False):
    """The arguments of all verbs whose result has several columns: see `ScanOptions`."""

    columns: Sequence[str] | None


class PlanOptions(ColumnOptions, total=False):
    """The arguments of `accel.plan`: see `ScanOptions`."""

    learn: bool


class ScanOptions(PlanOptions, total=False):
    """The arguments of `accel.scan`. They are written, documented and given their defaults here alone.

    Parameters
    ----------
    columns : sequence of str, optional
        Names, or dotted paths into structs, in the order of the result; None for all, [] for row counts only.
    limit : int, optional
        Stop after this many rows: the first in file order, or any of them with `order=False`.
    selection : mapping, optional
        The caller's own access plan, `{path: {row group: [(start, stop), ...]}}`: half-open rows within each
        row group. Files and row groups not named are not read. It is intersected with what pruning finds.
        A path may stand for a URL unless a file of another store has the same path.
    schema : pyarrow.Schema or "union", optional
        The schema of the data set; by default that of the first file, with the partition columns appended.
        "union" takes the columns of all files, each in a type that holds the values of every file; all of
        their metadata is read first.
    partitioning : {"auto", "hive", None} or pyarrow.Schema
        How directory names are read: "hive" makes a column of every `key=value`, a schema makes those that it
        names, in its types, and None makes none. "auto" is "hive", or None for an iterator, whose paths come
        bit by bit while keys and types depend on all of them. For a folder only names below it count
        (docs/stores.md).
    glob : bool
        Whether `*`, `?` and `[` in a path form a pattern.
    table : {"auto", "delta", "iceberg", None}
        How files are read that are part of a table, which knows which of them count: "auto" reads the
        directory of a Delta table as that table, and refuses what is seen to be part of another one with a
        TableFormatError; a format reads the path as such a table; None reads the files as files
        (docs/tables).
    order : bool
        Whether rows come in file order; False may interleave files, each with its own rows in order.
    order_by : str or sequence, optional
        `"ts desc"`, `"price, ts desc nulls first"`, or a list of such: the rows come in that order, and are
        the first of it. It takes a `limit`, or `head`. Files, row groups and pages are read from the best
        bounds down, until no other can hold a row of the result. NaN and then null come last; rows that
        compare equal come in file order.
    on_error : {"raise", "skip"}
        What happens to a file that is missing, damaged, encrypted, or that the store refuses: its error is
        raised, or the scan goes on without it, from where it broke. `metrics.skipped` has the reasons, and
        the first is a warning. A file that was replaced under the scan is an error either way.
    embedded : mapping, optional
        `{column: "idx1"}`: the files hold the distinct-value index of DataFusion's example, and it covers
        this column. That index names no column and has no checksum, so the caller vouches for it. accel's own
        indexes (docs/indexes.md) are found without being named.
    index : "auto", str, PathLike, FilesIndex, or None
        The directory of an index outside the files, which `accel.build_index` has made: it rules files out
        before they are opened, and has the metadata of the others. Out of date it costs time, and never a
        row. "auto" is `_accel/` in the directory that is scanned, if there is one; None takes none. An object
        with a method `files` is an index of your own (docs/catalog.md).
    listing : {"store", "index"}
        Where the list of files comes from: the store, or the index as it was refreshed last, which saves the
        listing.
    learn : bool
        Whether the index takes in the metadata of files that the scan opens and that it lacks
        (docs/catalog.md). That happens beside the answer, and now and then; `close` waits for it. An index
        that is not there yet is made. With `index="auto"` it is that of the directory, `_accel/`.
    file_path : str, optional
        The name of a further column, the last one, that has the URL of the file that a row is from, secrets
        in it redacted. `where` may name it, and rules files out by it.
    row_number : str, optional
        The name of a further column, an int64 behind all others, that has the number of each row in its file:
        0 for the first, whichever rows are left out. `where` does not name it; `accel.rows` reads by it.
    case_sensitive : bool
        Whether names of columns are those of the files in case, too. False finds columns and fields of
        structs in any case, as Spark does: in `where`, `columns`, `order_by`, aggregates and the names of
        directories, and in files that spell a column differently. The result is spelled as `schema`, the
        table or the first file spells it. A name that means two columns is an error (docs/predicates.md).
    timeout : float, optional
        Seconds from the start of a run, or of planning, after which it ends with ScanTimeoutError, whatever
        it waits for: the store, or a caller who takes its batches one by one. On Spark that is the planning
        on the driver.
    store : obstore store or RangeStore, optional
        Replaces the store that URLs name; paths are relative to it.
    storage_options : mapping, optional
        obstore's keys (`endpoint`, `access_key_id`, `region`, ...), which differ by store (docs/stores.md),
        and `profile` for one of AWS; by default the usual environment variables and files
        (docs/credentials.md).
    cache : Cache or None
        By default one for the process; None for no caching beyond this scan.
    options : Options, optional
        Every setting that a caller may change.
    """

    limit: int | None
    order: bool
    order_by: str | Sequence[str | tuple[str, str]] | None
    on_error: Literal["raise", "skip"]


SCAN_DEFAULTS: Final[ScanOptions] = {
    "columns": None,
    "limit": None,
    "selection": None,
    "schema": None,
    "partitioning": "auto",
    "glob": True,
    "table": "auto",
    "order": True,
    "order_by": None,
    "on_error": "raise",
    "embedded": None,
    "index": AUTO,
    "listing": "store",
    "learn": False,
    "file_path": None,
    "row_number": None,
    "case_sensitive": True,
    "timeout": None,
    "store": None,
    "storage_options": None,
    "cache": DEFAULT_CACHE,
    "options": None,
}
"""The defaults of all arguments, in the order in which signatures and docstrings list them."""


class OnError(enum.StrEnum):
    """What happens to a file that is missing or broken."""

    RAISE = "raise"
    """Its error is raised."""
    SKIP = "skip"
    """The file is left out from there on, and named in the warnings of the metrics."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f'on_error is "raise" or "skip", not {value!r:.80}')


SKIPPED = (ObjectNotFoundError, AccessDeniedError, ParquetFormatError, EncryptedFileError)
"""The errors of a missing, forbidden or broken file. That a file was replaced is none: rows of two versions
would mix."""


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
    unites: bool = False
    """The schema is the union of those of all files."""
    in_store: bool = False
    """The caller gave a store."""
    partitioning: Literal["hive"] | pa.Schema | None = "hive"
    glob: bool = True
    table: Literal["auto"] | None = "auto"
    order: bool = True
    order_by: tuple[SortKey, ...] = ()
    """The order of the rows; those of a scan with a limit are the first of it."""
    on_error: OnError = OnError.RAISE
    by_position: bool = False
    """The consumer matches columns by position (mapInArrow): every file must have the first one's
    names in its order, unless `columns` or `schema` say what comes out."""
    embedded: Mapping[str, str] = field(default_factory=dict)
    file_path: str | None = None
    """The name of the column that has the URL of the file."""
    row_number: str | None = None
    """The name of the column that has the number of each row in its file."""
    case_sensitive: bool = True
    """Whether names of columns are compared exactly, and not in lower case."""
    timeout: float | None = None
    """Seconds that a run or planning may take."""
    gradual: bool = False
    """Whoever takes the rows may have enough of them soon, and does not say so before."""
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        if self.row_number is not None and self.where is not None:
            _refuse_numbers(self.where, self.row_number)

    def at_most(self, limit: int | None) -> int | None:
        """Return the lesser of a limit and the scan's own; None for no limit."""
        return self.limit if limit is None else limit if self.limit is None else min(limit, self.limit)

    def with_settled(self, schema: pa.Schema) -> ScanSpec:
        """Return the scan with the schema that its first files have settled, to which `file_path` and
        `row_number` are added anew."""
        added = self.file_path, self.row_number
        return replace(self, schema=pa.schema([field for field in schema if field.name not in added]))

    def explain_error(
        self, error: AccelError, url: str, *, hint_for: Callable[[str, str], str | None], of_first: bool
    ) -> AccelError:
        """Return an error that no file can mend, with what the caller wrote and, where that settled the
        schema, the first file.

        Parameters
        ----------
        hint_for : callable
            Tells, for a missing column and the URL of a file, what to do about it, if the source knows
            better.
        of_first : bool
            Whether the first of several files settles the columns.
        """
        if isinstance(error, PredicateError):
            error.text = error.text or self.where_text
        elif isinstance(error, ColumnNotFoundError) and error.column is not None:
            known = hint_for(error.column, url)
            error.hint = known or error.hint
            meant = known is not None or "did you mean" in (error.hint or "")
            if of_first and not meant and not self.unites:
                more = 'the columns are those of the first file, `schema="union"` takes those of all'
                error.hint = f"{error.hint}; {more}" if error.hint else more
        return error if self.schema is not None else error.at(path=url)

    @property
    def texts(self) -> frozenset[str]:
        """The columns that `schema` says are texts or bytes: of a partition `code=007`, whose value would be
        7 otherwise."""
        if self.schema is None:
            return frozenset()
        from accel.planning.conform import is_bytes, is_text

        kinds = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in self.schema
        }
        return frozenset(name for name, kind in kinds.items() if is_text(kind) or is_bytes(kind))

    @property
    def spelled_as(self) -> tuple[str, ...] | None:
        """The columns that `schema` names, where names are compared without regard to case; else None: see
        `partition_paths.settle`."""
        if self.case_sensitive:
            return None
        return () if self.schema is None else tuple(self.schema.names)

    @property
    def prunes_blocks(self) -> bool:
        """Whether files may be pruned together, before any is planned by itself."""
        # With a selection the caller chooses the rows; an IDX1 that is named has to be looked up.
        return self.where is not None and self.selection is None and not self.embedded


# Parquet counts rows in 64 bits.
_MOST = 2**63 - 1


def _order_of(given: Any) -> tuple[SortKey, ...]:
    """Return the order that a caller asks for."""
    from accel.planning.row_order import parse_order

    return parse_order(given)


def is_stream(source: object) -> bool:
    """Return whether a source is what mapInArrow passes: an iterator, which can be read once."""
    # Paths first: to ask an abstract class takes longer.
    return not isinstance(source, str | bytes | list | tuple) and isinstance(source, Iterator)


def is_source(source: object) -> bool:
    """Return whether a source is no path, but says itself which files there are.

    Such a source is a `FileSource`, or a `SourceMaker`.
    """
    if isinstance(source, str | list | tuple):
        return False
    from accel.scanning.file_source import FileSource

    return isinstance(source, FileSource) or (
        not isinstance(source, type) and isinstance(getattr(type(source), "source", None), FunctionType)
    )


def is_planned(source: object) -> bool:
    """Return whether a source already is planned: a Plan, or tasks of one."""
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
    file_path: object = None,
    row_number: object = None,
) -> None:
    """Raise ValueError for what tasks were planned with: given once more, it would be without effect."""
    given = {
        "where": where,
        "columns": columns,
        "selection": selection,
        "schema": schema,
        "embedded": embedded,
        "partitioning": partitioning,
        "file_path": file_path,
        "row_number": row_number,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(f"{', '.join(named)}: a plan has its own; plan again with them")


def check_arguments(
    source: Any, where: Any = None, *, in_store: bool = False, **arguments: Unpack[ScanOptions]
) -> ScanSpec:
    """Make a `ScanSpec`, or raise what is wrong with the arguments."""
    given = SCAN_DEFAULTS | arguments
    columns, selection, schema = given["columns"], given["selection"], given["schema"]
    partitioning, embedded, options = (
        given["partitioning"],
        given["embedded"],
        check_options(given["options"]),
    )
    stream = is_stream(source)
    _check_source(source, where, given)
    _check_columns(columns)
    _check_flags(glob=given["glob"], order=given["order"], case_sensitive=given["case_sensitive"])
    if given["table"] not in ("auto", None):
        raise ValueError(
            f'table is "auto", the name of a format that goes with a path, or None, not '
            f"{given['table']!r:.80}"
        )
    unites = isinstance(schema, str) and schema == "union"
    if schema is not None and not unites and not isinstance(schema, pa.Schema):
        shown = repr(schema) if isinstance(schema, str) else f"a {type(schema).__name__}"
        raise TypeError(f'schema is a pyarrow.Schema or "union", not {shown:.80}')
    if unites and stream:
        raise ValueError("the union of schemas needs all files at once, and an iterator shows some at a time")
    # Only texts are compared: another object may not support comparison.
    named = partitioning is None or (isinstance(partitioning, str) and partitioning in ("auto", "hive"))
    if not named and not isinstance(partitioning, pa.Schema):
        raise ValueError(
            f"partitioning is 'auto', 'hive', None, or a pyarrow.Schema, not {partitioning!r:.80}"
        )
    if stream and partitioning == "hive":
        raise ValueError(
            "partitioning='hive' is not for an iterator, which shows some of the paths at a time: give the "
            "keys and their types, partitioning=pyarrow.schema([...])"
        )
    if given["order_by"] is not None and (stream or is_planned(source)):
        raise ValueError("order_by is for files: a plan and an iterator are read in their own order")
    chosen = None if selection is None else _check_selection(selection)
    if embedded is not None:
        _check_embedded(embedded)
    expr, names = to_expr(where), None if columns is None else tuple(columns)
    if not given["case_sensitive"]:
        expr, names = _spelled_as_added(expr, names, (given["file_path"], given["row_number"]))
    return ScanSpec(
        source=source,
        where=expr,
        where_text=where if isinstance(where, str) else None,
        columns=names,
        limit=None if given["limit"] is None else check_count(given["limit"], "limit"),
        selection=chosen,
        schema=schema if isinstance(schema, pa.Schema) else None,
        unites=unites,
        in_store=in_store,
        partitioning=partitioning if partitioning != "auto" else None if stream else "hive",
        glob=given["glob"],
        table=given["table"],
        order=given["order"],
        order_by=() if given["order_by"] is None else _order_of(given["order_by"]),
        on_error=OnError(given["on_error"]),
        by_position=stream,
        embedded=dict(embedded or {}),
        file_path=_check_name("file_path", given["file_path"]),
        row_number=_check_name("row_number", given["row_number"]),
        case_sensitive=given["case_sensitive"],
        timeout=None if given["timeout"] is None else check_timeout(given["timeout"]),
        options=options.for_spark() if stream else options,
    )


def _spelled_as_added(
    where: Expr | None, columns: tuple[str, ...] | None, added: Sequence[str | None]
) -> tuple[Expr | None, tuple[str, ...] | None]:
    """Return predicate and columns with the names of columns that the scan adds as their arguments spell
    them."""
    own = pa.schema([pa.field(name, pa.string()) for name in added if isinstance(name, str)])
    if not len(own):
        return where, columns
    from accel.planning.projection import spelled_name
    from accel.predicate.spelling import spelled_where

    where = None if where is None else spelled_where(where, own)
    names = (spelled_name(name, own) if isinstance(name, str) else name for name in columns or ())
    return where, None if columns is None else tuple(names)


def _check_source(source: Any, where: Any, given: ScanOptions) -> None:
    """Check that there is a source, and that what it settles itself is not given beside it."""
    partitioning = given["partitioning"]
    if is_planned(source):
        keys = None if isinstance(partitioning, str) and partitioning == "auto" else True
        refuse_beside_a_plan(
            where=where,
            columns=given["columns"],
            selection=given["selection"],
            schema=given["schema"],
            embedded=given["embedded"],
            partitioning=keys,
            file_path=given["file_path"],
            row_number=given["row_number"],
        )
    elif is_source(source):
        if not (isinstance(partitioning, str) and partitioning == "auto"):
            raise ValueError("partitioning is for paths: this source says its partition columns itself")
    elif hasattr(source, "read") or not (
        is_stream(source) or isinstance(source, str | os.PathLike | list | tuple)
    ):
        raise TypeError(
            f"a {type(source).__name__} is no source: give a path or URL, a list of them, or a Plan"
            f"{_source_hint(source)}"
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
    """Return a number of rows as an int, at most all that a file has; refuse what is no whole number."""
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


def _check_flags(**flags: Any) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} is True or False, not {flag!r:.80}")


def _check_name(argument: str, name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"{argument} is the name of a column, or None, not {name!r:.80}")
    return name


def _refuse_numbers(where: Expr, name: str) -> None:
    """Raise PredicateError for a predicate over row numbers."""
    if any(column.top_level == name or column.name == name for column in columns_of(where)):
        raise PredicateError(
            f"the predicate names {name!r}, which is the number of the row in its file",
            hint="filter the rows that come out",
        )


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
                    f"selection[{name!r}][{group}] is a list of (start, stop) with 0 <= start <= stop: "
                    f"{error}"
                ) from None
    return chosen
