"""accel: selective queries over Parquet files in object stores, in about the time the network needs.

These names are the whole public interface; each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel import indexes as indexes
    from accel import spark as spark
    from accel import stores as stores
    from accel.api import distinct as distinct
    from accel.api import distinct_async as distinct_async
    from accel.api import plan as plan
    from accel.api import plan_async as plan_async
    from accel.api import scan as scan
    from accel.cache.cache import Cache as Cache
    from accel.cache.cache import CacheStats as CacheStats
    from accel.catalog.building import IndexReport as IndexReport
    from accel.catalog.own_index import FilesIndex as FilesIndex
    from accel.catalog.own_index import IndexedFile as IndexedFile
    from accel.catalog.own_index import PredicateView as PredicateView
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
    from accel.errors import SchemaMismatchError as SchemaMismatchError
    from accel.errors import StoreError as StoreError
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
    from accel.planning.plan import Explain as Explain
    from accel.planning.plan import Plan as Plan
    from accel.planning.task import ScanTask as ScanTask
    from accel.predicate.column import col as col
    from accel.scanning.scan import Scan as Scan
    from accel.writing import EmbedProgress as EmbedProgress
    from accel.writing import EmbedReport as EmbedReport
    from accel.writing import embed as embed
    from accel.writing import embed_async as embed_async
    from accel.writing import write_table as write_table

__version__ = "0.1.0"

_HOMES = {
    "Cache": "accel.cache.cache",
    "CacheStats": "accel.cache.cache",
    "EmbedProgress": "accel.writing",
    "EmbedReport": "accel.writing",
    "Explain": "accel.planning.plan",
    "Int96Unit": "accel.options",
    "Metrics": "accel.metrics",
    "Options": "accel.options",
    "Phases": "accel.options",
    "Plan": "accel.planning.plan",
    "Scan": "accel.scanning.scan",
    "ScanTask": "accel.planning.task",
    "Transport": "accel.options",
    "col": "accel.predicate.column",
    "distinct": "accel.api",
    "distinct_async": "accel.api",
    "plan": "accel.api",
    "plan_async": "accel.api",
    "embed": "accel.writing",
    "embed_async": "accel.writing",
    "register_index": "accel.indexes.registry",
    "scan": "accel.api",
    "write_table": "accel.writing",
    "FilesIndex": "accel.catalog.own_index",
    "IndexReport": "accel.catalog.building",
    "IndexedFile": "accel.catalog.own_index",
    "PredicateView": "accel.catalog.own_index",
    **dict.fromkeys(("OptimizeReport", "optimize", "optimize_async"), "accel.maintenance.optimizing"),
    **dict.fromkeys(
        ("EmbedFilesReport", "embed_files", "embed_files_async"), "accel.maintenance.embedding_files"
    ),
    "JobProgress": "accel.maintenance.progress",
    **dict.fromkeys(
        (
            "build_index",
            "build_index_async",
            "compact_index",
            "compact_index_async",
            "refresh_index",
            "refresh_index_async",
            "vacuum_index",
            "vacuum_index_async",
        ),
        "accel.catalog.verbs",
    ),
    **dict.fromkeys(
        (
            "AccelError",
            "AccessDeniedError",
            "ColumnNotFoundError",
            "EncryptedFileError",
            "IndexFormatError",
            "MemoryLimitError",
            "ObjectChangedError",
            "ObjectNotFoundError",
            "ParquetFormatError",
            "PredicateError",
            "SchemaMismatchError",
            "StoreError",
        ),
        "accel.errors",
    ),
}

__all__ = list(_HOMES)
__all__ += ["indexes", "spark", "stores"]


def __getattr__(name: str) -> object:
    import importlib

    if name in ("indexes", "spark", "stores"):
        return importlib.import_module(f"accel.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'accel' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
