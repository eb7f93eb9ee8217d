"""The metadata file of an Iceberg table: its schemas, partition specs, snapshots, branches and tags.

Source: the Iceberg specification, "Table Metadata", "Snapshots" and appendix C.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from accel.errors import TableFormatError
from accel.options import MIB
from accel.tables.formats.iceberg.schema import NameMapping, TableSchema, whole_number
from accel.tables.formats.iceberg.transforms import PartitionSpec

__all__ = ["MOST_METADATA_BYTES", "Ref", "SnapshotEntry", "TableMetadata", "parse_metadata"]

_VERSIONS: Final = (1, 2, 3)
MOST_METADATA_BYTES: Final = 256 * MIB
"""Bytes of an unpacked metadata file, beyond which it is refused."""
_NONE: Final = -1
"""The id of the current snapshot where there is none."""
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One snapshot, as the metadata file names it."""

    id: int
    timestamp_ms: int
    manifest_list: str | None
    """The path of its manifest list; None where the metadata name the manifests."""
    manifests: tuple[str, ...] = ()
    schema_id: int | None = None
    encrypted: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A branch or a tag."""

    snapshot_id: int
    kind: str
    """"branch" or "tag"."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableMetadata:
    """What a metadata file says."""

    format_version: int
    location: str
    """Where the table was when the file was written."""
    schemas: Mapping[int, TableSchema]
    current_schema_id: int
    specs: Mapping[int, PartitionSpec]
    snapshots: Mapping[int, SnapshotEntry]
    current_snapshot_id: int | None
    refs: Mapping[str, Ref]
    log: tuple[tuple[int, int], ...]
    """The history: when which snapshot became the current one, in milliseconds and ids, in order."""
    properties: Mapping[str, str]
    names: NameMapping | None
    nbytes: int
    """The memory that it takes, roughly."""

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return self.schemas[self.current_schema_id]

    def at_id(self, snapshot_id: int) -> SnapshotEntry:
        """Return a snapshot.

        Raises
        ------
        TableFormatError
            The table has none of that id.
        """
        found = self.snapshots.get(snapshot_id)
        if found is None:
            known = sorted(self.snapshots.values(), key=lambda one: one.timestamp_ms)[-5:]
            raise TableFormatError(
                f"the table has no snapshot {snapshot_id}",
                hint="it may have expired; the newest are " + ", ".join(str(one.id) for one in known)
                if known
                else "it has no snapshot at all",
            )
        return found

    def at_time(self, moment: datetime) -> SnapshotEntry:
        """Return the snapshot that was current at a time.

        Raises
        ------
        TableFormatError
            The table had none then, or it has expired.
        """
        wanted = int(moment.timestamp() * 1000)
        found = [snapshot_id for when, snapshot_id in self.log if when <= wanted]
        if not found:
            first = self.log[0][0] if self.log else None
            raise TableFormatError(
                f"the table had no snapshot at {moment.isoformat()}",
                hint="it has no snapshot at all" if first is None else f"the first is of {_iso(first)}",
            )
        return self.at_id(found[-1])

    def at_ref(self, name: str, kind: str) -> SnapshotEntry:
        """Return the snapshot of a branch or a tag.

        Raises
        ------
        TableFormatError
            The table has none of that name and kind.
        """
        ref = self.refs.get(name)
        if ref is None or ref.kind != kind:
            known = sorted(each for each, one in self.refs.items() if one.kind == kind)
            other = f", but a {ref.kind}" if ref is not None else ""
            raise TableFormatError(
                f"the table has no {kind} {name!r}{other}",
                hint=f"it has {', '.join(known)}" if known else None,
            )
        return self.at_id(ref.snapshot_id)


def _iso(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def parse_metadata(data: memoryview) -> TableMetadata:
    """Parse a metadata file, packed by gzip or not.

    Raises
    ------
    TableFormatError
        It is none, of an unknown version, or contradicts itself.
    """
    text = bytes(data)
    if text[:2] == _GZIP:
        text = _unpacked(text)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableFormatError("the metadata file is no JSON", hint="it may be cut off") from error
    if not isinstance(given, dict):
        raise TableFormatError("the metadata file is no JSON object")
    try:
        return _parsed(given, len(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableFormatError(
            f"the metadata file lacks what it must have: {type(error).__name__}: {error}"
        ) from error


def _unpacked(data: bytes) -> bytes:
    machine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        out = machine.decompress(data, MOST_METADATA_BYTES)
    except zlib.error as error:
        raise TableFormatError("the metadata file does not unpack") from error
    if not machine.eof:
        raise TableFormatError("the metadata file does not unpack, or to more bytes than metadata may have")
    return out


def _parsed(given: dict[str, Any], nbytes: int) -> TableMetadata:
    version = given.get("format-version")
    if version not in _VERSIONS or isinstance(version, bool):
        raise TableFormatError(
            f"the format version {str(version)[:40]!r} is not supported",
            hint=f"accel reads the versions {', '.join(map(str, _VERSIONS))}",
        )
    listed = given.get("schemas") or [given["schema"]]
    schemas = {schema.id: schema for schema in map(TableSchema.parse, _list(listed, "schemas"))}
    current = given.get("current-schema-id")
    if current is None:
        current = next(iter(schemas))
    if current not in schemas:
        raise TableFormatError(f"the metadata file has no schema {str(current)[:40]!r}, the current one")
    specs_given = given.get("partition-specs")
    if specs_given is None:
        specs_given = [{"spec-id": 0, "fields": given.get("partition-spec") or []}]
    specs = {spec.id: spec for spec in map(PartitionSpec.parse, _list(specs_given, "partition-specs"))}
    snapshots = {one.id: one for one in map(_snapshot, _list(given.get("snapshots") or [], "snapshots"))}
    now = given.get("current-snapshot-id")
    now = None if now is None or now == _NONE else whole_number(now, "current-snapshot-id")
    refs = {
        str(name): Ref(snapshot_id=whole_number(one["snapshot-id"], "snapshot-id"), kind=str(one["type"]))
        for name, one in (given.get("refs") or {}).items()
    }
    if now is not None and "main" not in refs:
        refs["main"] = Ref(snapshot_id=now, kind="branch")
    properties = {str(name): str(value) for name, value in (given.get("properties") or {}).items()}
    return TableMetadata(
        format_version=version,
        location=str(given["location"]),
        schemas=schemas,
        current_schema_id=current,
        specs=specs,
        snapshots=snapshots,
        current_snapshot_id=now,
        refs=refs,
        log=tuple(
            (
                whole_number(one["timestamp-ms"], "timestamp-ms"),
                whole_number(one["snapshot-id"], "snapshot-id"),
            )
            for one in _list(given.get("snapshot-log") or [], "snapshot-log")
        ),
        properties=properties,
        names=_names(properties.get("schema.name-mapping.default")),
        nbytes=4096 + 4 * nbytes,
    )


def _list(given: object, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise TableFormatError(f"{what} of the metadata file is no list")
    return given


def _names(text: str | None) -> NameMapping | None:
    if not text:
        return None
    try:
        return NameMapping(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise TableFormatError("the property schema.name-mapping.default is no name mapping") from error


def _snapshot(given: dict[str, Any]) -> SnapshotEntry:
    schema_id = given.get("schema-id")
    listed = given.get("manifest-list")
    return SnapshotEntry(
        id=whole_number(given["snapshot-id"], "snapshot-id"),
        timestamp_ms=whole_number(given["timestamp-ms"], "timestamp-ms"),
        manifest_list=None if listed is None else str(listed),
        manifests=tuple(map(str, given.get("manifests") or ())) if listed is None else (),
        schema_id=None if schema_id is None else whole_number(schema_id, "schema-id"),
        encrypted=given.get("key-id") is not None,
        summary=given.get("summary") or {},
    )
