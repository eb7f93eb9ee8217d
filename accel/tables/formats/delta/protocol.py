"""The protocol and the metadata of a Delta table: what a reader must know, and what the table is.

Source: the Delta protocol, "Protocol Evolution", "Change Metadata", "Table Features".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from accel.errors import TableFormatError

__all__ = ["Metadata", "Protocol"]

_READ: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
"""The reader features that are implemented."""
_MOST_READER_VERSION: Final = 3
_CATALOG: Final = ("catalogManaged", "catalogOwned-preview", "catalogOwned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a reader of the table must know."""

    reader_version: int
    writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Protocol:
        """Read the action `protocol`.

        Raises
        ------
        TableFormatError
            It is none.
        """
        reader, writer = found.get("minReaderVersion"), found.get("minWriterVersion")
        if not (_is_int(reader) and _is_int(writer)):
            raise TableFormatError(f"the protocol of the table has no versions: {dict(found)!r:.200}")
        features = found.get("readerFeatures")
        if reader == _MOST_READER_VERSION and features is None:
            raise TableFormatError("the protocol has reader version 3, and no reader features")
        return cls(
            reader_version=int(reader),  # type: ignore[arg-type]
            writer_version=int(writer),  # type: ignore[arg-type]
            reader_features=_texts(features, "readerFeatures"),
            writer_features=_texts(found.get("writerFeatures"), "writerFeatures"),
        )

    def check(self) -> None:
        """Raise TableFormatError where the table needs what is not implemented."""
        managed = [name for name in _CATALOG if name in (*self.reader_features, *self.writer_features)]
        if managed:
            raise TableFormatError(
                f"the table is managed by a catalog (feature {managed[0]!r}), which alone knows its newest "
                "version",
                hint="read it by its catalog",
            )
        if not 1 <= self.reader_version <= _MOST_READER_VERSION:
            raise TableFormatError(
                f"the table needs reader version {self.reader_version}: accel reads 1 to 3"
            )
        unknown = sorted(set(self.reader_features) - _READ) if self.reader_version == 3 else []
        if unknown:
            raise TableFormatError(
                f"the table needs the reader feature{'s' if len(unknown) > 1 else ''} "
                f"{', '.join(map(repr, unknown))}, which accel does not implement",
                hint="read it by Spark, or by DuckDB's delta_scan",
            )

    @property
    def maps_columns(self) -> bool:
        """Whether the mode of column mapping counts."""
        return self.reader_version == 2 or "columnMapping" in self.reader_features

    @property
    def features(self) -> tuple[str, ...]:
        """All features, of readers and writers."""
        return tuple(dict.fromkeys((*self.reader_features, *self.writer_features)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What the table is."""

    id: str
    schema_text: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Metadata:
        """Read the action `metaData`.

        Raises
        ------
        TableFormatError
            It is none.
        """
        schema = found.get("schemaString")
        if not isinstance(schema, str):
            raise TableFormatError("the metadata of the table has no schema")
        form = (found.get("format") or {}).get("provider", "parquet")
        if form != "parquet":
            raise TableFormatError(f"the files of the table are in the format {form!r:.80}, not Parquet")
        configuration = found.get("configuration") or {}
        if not isinstance(configuration, Mapping):  # as Arrow gives maps
            configuration = dict(configuration)
        return cls(
            id=str(found.get("id")),
            schema_text=schema,
            partition_columns=_texts(found.get("partitionColumns"), "partitionColumns"),
            configuration={str(key): str(value) for key, value in configuration.items() if value is not None},
            name=found.get("name"),
        )

    def mode(self, protocol: Protocol) -> str:
        """Return how columns are mapped: "none", "name" or "id"."""
        given = self.configuration.get("delta.columnMapping.mode", "none")
        return given if protocol.maps_columns else "none"


def _texts(found: Any, what: str) -> tuple[str, ...]:
    if found is None:
        return ()
    if (
        not isinstance(found, Sequence)
        or isinstance(found, str)
        or not all(isinstance(x, str) for x in found)
    ):
        raise TableFormatError(f"{what} is a list of texts, not {found!r:.100}")
    return tuple(found)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
