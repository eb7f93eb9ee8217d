"""What a metastore says of a table, checked: that it is a table of Parquet files, where they lie, and what
its columns are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from accel.errors import TableFormatError, redact
from accel.tables.formats.hive.columns import TableColumns

if TYPE_CHECKING:
    from accel.tables.formats.hive.thrift_types import Partition, Table

__all__ = ["DescribedTable", "OtherFormat", "check_partition", "file_location", "other_format"]

_INPUTS: Final = frozenset((
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "parquet.hive.MapredParquetInputFormat",
    "parquet.hive.DeprecatedParquetInputFormat",
))  # fmt: skip
_SERDES: Final = frozenset((
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "parquet.hive.serde.ParquetHiveSerDe",
))  # fmt: skip
_PROVIDER: Final = "spark.sql.sources.provider"
_BY_POSITION: Final = "parquet.column.index.access"


@dataclass(frozen=True, slots=True)
class OtherFormat:
    """A table of another format, which the metastore only names."""

    format: str
    """"Delta" or "Iceberg"."""
    place: str
    """Its directory, or of an Iceberg table its metadata file."""


@dataclass(frozen=True, slots=True, eq=False)
class DescribedTable:
    """A table of Parquet files."""

    version: int
    """The moment of its last change, in seconds since 1970, as far as the metastore notes it; else 0."""
    columns: TableColumns
    location: str
    formats: frozenset[tuple[str | None, str | None]]
    """The input format and the serde of the table itself, where Spark stores others than it uses."""
    properties: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table, *, shown: str) -> DescribedTable:
        """Check a table.

        Parameters
        ----------
        table : Table
        shown : str
            Names it in errors.

        Raises
        ------
        TableFormatError
            It is none of Parquet files, or cannot be read.
        """
        try:
            return cls._of(table)
        except TableFormatError as error:
            raise error.at(path=shown) from None

    @classmethod
    def _of(cls, table: Table) -> DescribedTable:
        parameters = {str(name): str(value) for name, value in (table.parameters or {}).items()}
        storage, kind = table.sd, (table.tableType or "").upper()
        if "VIEW" in kind:
            raise TableFormatError(
                f"this is a {kind.lower().replace('_', ' ')}, which is a query and no files",
                hint="scan the tables that it is of",
            )
        if storage is None or storage.cols is None:
            raise TableFormatError("the metastore says nothing of its storage")
        if _is_true(parameters.get("transactional")):
            raise TableFormatError(
                "this is a transactional (ACID) table, whose files hold rows that are gone",
                hint="read it by Hive",
            )
        if parameters.get("storage_handler"):
            raise TableFormatError(f"its rows are in {parameters['storage_handler']!r:.120}, not in files")
        provider = parameters.get(_PROVIDER, "hive").lower()
        if provider not in ("hive", "parquet") and not provider.endswith("parquet.ParquetFileFormat".lower()):
            raise TableFormatError(f"this is a table of {provider!r:.80}, and accel reads Parquet")
        serde = None if storage.serdeInfo is None else storage.serdeInfo.serializationLib
        given = (storage.serdeInfo.parameters if storage.serdeInfo is not None else None) or {}
        own: frozenset[tuple[str | None, str | None]] = frozenset()
        location = storage.location
        if provider == "hive":
            _check_format(storage.inputFormat, serde)
        else:
            # Where Hive could not read it, Spark notes formats that it does not use, and another location.
            own = frozenset(((storage.inputFormat, serde),))
            location = given.get("path") or location
        if _is_true(given.get(_BY_POSITION)) or _is_true(parameters.get(_BY_POSITION)):
            raise TableFormatError(f"its columns are matched by position ({_BY_POSITION})")
        keys = [(key.name, key.type) for key in table.partitionKeys or ()]
        of_spark = parameters.get("spark.sql.sources.schema.numPartCols", "0")
        if of_spark.isdecimal() and int(of_spark) > len(keys):
            raise TableFormatError(
                "its partitions are not in the metastore, but only in the paths of its files",
                hint="MSCK REPAIR TABLE puts them there; or scan its directory",
            )
        return cls(
            version=_moment(parameters.get("transient_lastDdlTime")),
            columns=TableColumns.of([(one.name, one.type) for one in storage.cols], keys, parameters),
            location=file_location(location),
            formats=own,
            properties={
                "location": redact(location or ""),
                "partition_columns": [key for key, _ in keys],
                "provider": provider,
                "table_type": kind,
            },
        )


def other_format(table: Table) -> OtherFormat | None:
    """Return the table of another format that the parameters of a table tell of; None where they tell of
    none.

    Raises
    ------
    TableFormatError
        They do not say where it is.
    """
    parameters = table.parameters or {}
    provider = parameters.get(_PROVIDER, "").lower()
    handler = parameters.get("storage_handler", "").lower()
    storage = table.sd
    if parameters.get("table_type", "").upper() == "ICEBERG" or provider == "iceberg" or "iceberg" in handler:
        place = parameters.get("metadata_location")
        if not place:
            raise TableFormatError("this is an Iceberg table without a metadata_location")
        return OtherFormat("Iceberg", file_location(place))
    if provider == "delta" or "delta" in handler:
        given = (storage.serdeInfo.parameters if storage and storage.serdeInfo else None) or {}
        return OtherFormat(
            "Delta", file_location(given.get("path") or (storage.location if storage else None))
        )
    return None


def check_partition(partition: Partition, table: DescribedTable) -> str:
    """Return the location of a partition, once its input format and serde are seen to be those of Parquet.

    Raises
    ------
    TableFormatError
        They are others, or it has no location.
    """
    storage = partition.sd
    if storage is None:
        raise TableFormatError("the metastore says nothing of its storage")
    serde = None if storage.serdeInfo is None else storage.serdeInfo.serializationLib
    if (storage.inputFormat, serde) not in table.formats:
        _check_format(storage.inputFormat, serde)
    return file_location(storage.location)


def _check_format(input_format: str | None, serde: str | None) -> None:
    if input_format not in _INPUTS:
        hint = "Hudi's tables are not read" if "hudi" in (input_format or "").lower() else None
        raise TableFormatError(f"its input format {input_format!r:.120} is not that of Parquet", hint=hint)
    if serde not in _SERDES:
        raise TableFormatError(f"its serde {serde!r:.120} is not that of Parquet")


def file_location(text: str | None) -> str:
    """Return a location as accel takes it. In Hadoop's paths nothing is percent-encoded: a `%2F` in one is a
    part of a name.

    Raises
    ------
    TableFormatError
        It is none.
    """
    if not text:
        raise TableFormatError("the metastore names no location")
    if "\ufffd" in text:
        # The decoder has replaced what was no UTF-8.
        raise TableFormatError(f"the location {redact(text)!r:.200} is no UTF-8")
    local = re.match(r"file:(?://(?:localhost)?(?=/))?(/.*)", text, re.IGNORECASE | re.DOTALL)
    if local is not None:
        return local[1]
    if not text.startswith("/") and "://" not in text:
        raise TableFormatError(f"the location {redact(text)!r:.200} is no URL and no absolute path")
    return text


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _moment(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else 0
