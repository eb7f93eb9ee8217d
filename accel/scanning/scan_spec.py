"""What a scan was asked for, checked and unchanged from then on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pyarrow as pa

from accel.errors import AccelError, ColumnNotFoundError, PredicateError
from accel.options import Options
from accel.planning.selection import RowSelection
from accel.predicate.expr import Expr

if TYPE_CHECKING:
    from accel.planning.plan import Plan
    from accel.planning.task import ScanTask

__all__ = ["Partitioning", "Path", "PathKey", "Paths", "ScanSpec", "Source"]

Path: TypeAlias = "str | os.PathLike[str]"
"""A URL or path; a pattern or a directory too."""
PathKey = TypeVar("PathKey", bound="str | os.PathLike[str]")
"""A path that is a key: the keys of a mapping are of one very type, which may be either."""
Paths: TypeAlias = "Path | Sequence[Path]"
"""One, or several as a list or tuple."""
Source: TypeAlias = "Path | Sequence[Path | ScanTask] | Plan | ScanTask | Iterator[pa.RecordBatch]"
"""What is scanned: paths, a plan or tasks of one, or what `mapInArrow` passes."""
Partitioning: TypeAlias = 'Literal["auto", "hive"] | pa.Schema | None'
"""How directory names are read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ScanSpec:
    """The arguments of a scan, checked. As text it is nameless: the source may be a presigned URL."""

    source: Any
    where: Expr | None = None
    where_text: str | None = None
    """What `where` was parsed from, for the messages of errors."""
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
        """The lesser of a limit and the scan's own; None for no limit."""
        return self.limit if limit is None else limit if self.limit is None else min(limit, self.limit)

    def tell(self, error: AccelError, url: str) -> AccelError:
        """What no file can answer, with what the caller wrote and, where that settled the schema, the first file."""
        if isinstance(error, PredicateError):
            error.text = error.text or self.where_text
        elif isinstance(error, ColumnNotFoundError) and error.column is not None:
            from accel.tables.hive import hint_of_key

            hint = hint_of_key(error.column, url, source=self.source, partitioning=self.partitioning)
            error.hint = hint or error.hint
        return error if self.schema is not None else error.at(path=url)

    @property
    def texts(self) -> frozenset[str]:
        """The columns that `schema` says are texts or bytes: of a partition `code=007`, whose value would be 7 otherwise."""
        return frozenset(field.name for field in self.schema or () if _is_text(field.type))

    @property
    def screens(self) -> bool:
        """Whether files may be judged together, before any is planned by itself."""
        # With a selection a file's rows are chosen by hand; an IDX1 that is named may have something to say.
        return self.where is not None and self.selection is None and not self.embedded


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    several = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(texts or several or pa.types.is_fixed_size_binary(kind))
