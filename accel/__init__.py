"""accel: selective queries over Parquet files in object stores, in about the time the network needs.

These names are the whole public interface; each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel._version import __version__ as __version__

if TYPE_CHECKING:
    from accel import indexes as indexes
    from accel import otel as otel
    from accel import polars as polars
    from accel import spark as spark
    from accel import stores as stores
    from accel import tables as tables
    from accel.api import distinct as distinct
    from accel.api import distinct_async as distinct_async
    from accel.api import plan as plan
    from accel.api import plan_async as plan_async
    from accel.api import rows as rows
    from accel.api import rows_async as rows_async
    from accel.api import scan as scan
    from accel.cache.cache import Cache as Cache
    from accel.cache.cache import CacheStats as CacheStats
    from accel.catalog.building.builder import IndexReport as IndexReport
    from accel.catalog.verbs import build_index as build_index
    from accel.catalog.verbs import build_index_async as build_index_async
    from accel.catalog.verbs import compact_index as compact_index
    from accel.catalog.verbs import compact_index_async as compact_index_async
    from accel.catalog.verbs import refresh_index as refresh_index
    from accel.catalog.verbs import refresh_index_async as refresh_index_async
    from accel.catalog.verbs import vacuum_index as vacuum_index
    from accel.catalog.verbs import vacuum_index_async as vacuum_index_async
    from accel.errors import AccelError as AccelError
    from accel.errors import AccessDeniedError as AccessDeniedError
    from accel.errors import ColumnNotFoundError as ColumnNotFoundError
    from accel.errors import EncryptedFileError as EncryptedFileError
    from accel.errors import IndexFormatError as IndexFormatError
    from accel.errors import MemoryLimitError as MemoryLimitError
    from accel.errors import ObjectChangedError as ObjectChangedError
    from accel.errors import ObjectNotFoundError as ObjectNotFoundError
    from accel.errors import ParquetFormatError as ParquetFormatError
    from accel.errors import PredicateError as PredicateError
    from accel.errors import ScanTimeoutError as ScanTimeoutError
    from accel.errors import SchemaMismatchError as SchemaMismatchError
    from accel.errors import StoreError as StoreError
    from accel.errors import TableFormatError as TableFormatError
    from accel.events import Event as Event
    from accel.indexes.registry import register_index as register_index
    from accel.maintenance.embedding_files import EmbedFilesReport as EmbedFilesReport
    from accel.maintenance.embedding_files import embed_files as embed_files
    from accel.maintenance.embedding_files import embed_files_async as embed_files_async
    from accel.maintenance.optimizing import OptimizeReport as OptimizeReport
    from accel.maintenance.optimizing import optimize as optimize
    from accel.maintenance.optimizing import optimize_async as optimize_async
    from accel.maintenance.progress import JobProgress as JobProgress
    from accel.metrics import Metrics as Metrics
    from accel.options import Int96Unit as Int96Unit
    from accel.options import Options as Options
    from accel.options import Phases as Phases
    from accel.options import Transport as Transport
    from accel.planning.column_bounds import ColumnBounds as ColumnBounds
    from accel.planning.column_mapping import ColumnMapping as ColumnMapping
    from accel.planning.column_mapping import MappedColumn as MappedColumn
    from accel.planning.deleted_rows import DeletedRows as DeletedRows
    from accel.planning.file_entry import FileBlock as FileBlock
    from accel.planning.plan import Explain as Explain
    from accel.planning.plan import Plan as Plan
    from accel.planning.task import ScanTask as ScanTask
    from accel.predicate.column import col as col
    from accel.scanning.file_source import FileSource as FileSource
    from accel.scanning.file_source import SourceRequest as SourceRequest
    from accel.scanning.files_index import FilesIndex as FilesIndex
    from accel.scanning.files_index import IndexedFile as IndexedFile
    from accel.scanning.files_index import PredicateView as PredicateView
    from accel.scanning.scan import Scan as Scan
    from accel.sql.dataset import dataset as dataset
    from accel.writing import EmbedProgress as EmbedProgress
    from accel.writing import EmbedReport as EmbedReport
    from accel.writing import embed as embed
    from accel.writing import embed_async as embed_async
    from accel.writing import write_table as write_table

_HOMES = {
    "accel.api": "distinct distinct_async plan plan_async rows rows_async scan",
    "accel.cache.cache": "Cache CacheStats",
    "accel.catalog.building.builder": "IndexReport",
    "accel.catalog.verbs": (
        "build_index build_index_async compact_index compact_index_async refresh_index "
        "refresh_index_async vacuum_index vacuum_index_async"
    ),
    "accel.errors": (
        "AccelError AccessDeniedError ColumnNotFoundError EncryptedFileError IndexFormatError "
        "MemoryLimitError ObjectChangedError ObjectNotFoundError ParquetFormatError "
        "PredicateError ScanTimeoutError SchemaMismatchError StoreError TableFormatError"
    ),
    "accel.events": "Event",
    "accel.indexes.registry": "register_index",
    "accel.maintenance.embedding_files": "EmbedFilesReport embed_files embed_files_async",
    "accel.maintenance.optimizing": "OptimizeReport optimize optimize_async",
    "accel.maintenance.progress": "JobProgress",
    "accel.metrics": "Metrics",
    "accel.options": "Int96Unit Options Phases Transport",
    "accel.planning.column_mapping": "ColumnMapping MappedColumn",
    "accel.planning.deleted_rows": "DeletedRows",
    "accel.planning.column_bounds": "ColumnBounds",
    "accel.planning.file_entry": "FileBlock",
    "accel.planning.plan": "Explain Plan",
    "accel.planning.task": "ScanTask",
    "accel.predicate.column": "col",
    "accel.scanning.file_source": "FileSource SourceRequest",
    "accel.scanning.files_index": "FilesIndex IndexedFile PredicateView",
    "accel.scanning.scan": "Scan",
    "accel.sql.dataset": "dataset",
    "accel.writing": "EmbedProgress EmbedReport embed embed_async write_table",
}
"""The public names, by the module that has them."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = list(_MODULES)
__all__ += ["indexes", "otel", "polars", "spark", "stores", "tables"]


def __getattr__(name: str) -> object:
    import importlib

    if name in ("indexes", "otel", "polars", "spark", "stores", "tables"):
        return importlib.import_module(f"accel.{name}")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'accel' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
