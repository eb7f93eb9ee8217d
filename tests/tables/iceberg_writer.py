"""Writes Iceberg tables into a store in memory, with metadata that a test declares: for what no engine writes, and
for exact requests."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from accel.testing import DictStore

ROOT = "s3://lake/t"


def schema_json(columns: Sequence[tuple[int, str, Any]], number: int = 0) -> dict[str, Any]:
    return {
        "type": "struct",
        "schema-id": number,
        "fields": [
            {
                "id": each[0],
                "name": each[1],
                "type": each[2],
                "required": False,
                **(each[3] if len(each) > 3 else {}),
            }
            for each in columns
        ],
    }


def parquet_bytes(columns: Mapping[str, tuple[int | None, pa.Array]], **written: Any) -> bytes:
    fields = [
        pa.field(name, array.type, metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for name, (number, array) in columns.items()
    ]
    table = pa.table([array for _, array in columns.values()], schema=pa.schema(fields))
    out = io.BytesIO()
    pq.write_table(table, out, store_schema=False, **written)
    return out.getvalue()


def _optional(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(number: int, name: str, keys: tuple[int, int], kind: str) -> dict[str, Any]:
    record = {
        "type": "record",
        "name": f"k{keys[0]}_v{keys[1]}",
        "fields": [
            {"name": "key", "type": "int", "field-id": keys[0]},
            {"name": "value", "type": kind, "field-id": keys[1]},
        ],
    }
    return _optional(number, name, {"type": "array", "items": record, "logicalType": "map"})


def manifest_schema(partition: Sequence[tuple[int, str, Any]]) -> dict[str, Any]:
    file = {
        "type": "record",
        "name": "r2",
        "fields": [
            {"name": "content", "type": "int", "field-id": 134},
            {"name": "file_path", "type": "string", "field-id": 100},
            {"name": "file_format", "type": "string", "field-id": 101},
            {
                "name": "partition",
                "field-id": 102,
                "type": {
                    "type": "record",
                    "name": "r102",
                    "fields": [_optional(number, name, kind) for number, name, kind in partition],
                },
            },
            {"name": "record_count", "type": "long", "field-id": 103},
            {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
            _map(110, "null_value_counts", (121, 122), "long"),
            _map(125, "lower_bounds", (126, 127), "bytes"),
            _map(128, "upper_bounds", (129, 130), "bytes"),
            _optional(131, "key_metadata", "bytes"),
            _optional(135, "equality_ids", {"type": "array", "items": "int", "element-id": 136}),
            _optional(143, "referenced_data_file", "string"),
            _optional(144, "content_offset", "long"),
            _optional(145, "content_size_in_bytes", "long"),
            _optional(142, "first_row_id", "long"),
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            {"name": "data_file", "type": file, "field-id": 2},
        ],
    }


LIST_SCHEMA = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "content", "type": "int", "field-id": 517},
        {"name": "sequence_number", "type": "long", "field-id": 515},
        {"name": "added_snapshot_id", "type": "long", "field-id": 503},
        {"name": "added_files_count", "type": "int", "field-id": 504},
        {"name": "existing_files_count", "type": "int", "field-id": 505},
        _optional(
            507,
            "partitions",
            {
                "type": "array",
                "element-id": 508,
                "items": {
                    "type": "record",
                    "name": "r508",
                    "fields": [
                        {"name": "contains_null", "type": "boolean", "field-id": 509},
                        _optional(518, "contains_nan", "boolean"),
                        _optional(510, "lower_bound", "bytes"),
                        _optional(511, "upper_bound", "bytes"),
                    ],
                },
            },
        ),
        _optional(519, "key_metadata", "bytes"),
        _optional(520, "first_row_id", "long"),
    ],
}


def avro_bytes(schema: Any, records: Sequence[Any], codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


@dataclass
class IcebergWriter:
    """A table of one snapshot; `save` writes what was declared."""

    columns: Sequence[Any]
    specs: Sequence[dict[str, Any]] = ({"spec-id": 0, "fields": []},)
    version: int = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    store: DictStore = field(default_factory=lambda: DictStore({}))
    manifests: list[dict[str, Any]] = field(default_factory=list)
    changes: Mapping[str, Any] = field(default_factory=dict)
    root: str = ROOT
    """Where its paths say that it is."""

    def put(self, path: str, data: bytes) -> str:
        self.store.put(f"t/{path}", data)
        return f"{self.root}/{path}"

    def file(self, path: str, data: bytes, rows: int, **facts: Any) -> dict[str, Any]:
        """Put a file, and return its entry."""
        return entry(self.put(path, data), len(data), rows, **facts)

    def manifest(
        self,
        entries: Sequence[dict[str, Any]],
        *,
        partition: Sequence[tuple[int, str, Any]] = (),
        spec: int = 0,
        content: int = 0,
        sequence: int = 1,
        summaries: Any = None,
        first_row_id: int | None = None,
        codec: str = "deflate",
        data: bytes | None = None,
    ) -> str:
        """Write a manifest, and name it in the list."""
        body = avro_bytes(manifest_schema(partition), entries, codec) if data is None else data
        path = self.put(f"metadata/m{len(self.manifests)}.avro", body)
        self.manifests.append(
            {
                "manifest_path": path,
                "manifest_length": len(body),
                "partition_spec_id": spec,
                "content": content,
                "sequence_number": sequence,
                "added_snapshot_id": 7,
                "added_files_count": len(entries) if data is None else 1,
                "existing_files_count": 0,
                "partitions": summaries,
                "key_metadata": None,
                "first_row_id": first_row_id,
            }
        )
        return path

    def save(self) -> str:
        """Write the list of manifests and the metadata file; return its URL."""
        listed = self.put("metadata/snap-7.avro", avro_bytes(LIST_SCHEMA, self.manifests))
        metadata = {
            "format-version": self.version,
            "table-uuid": "00000000-0000-0000-0000-000000000000",
            "location": self.root,
            "schemas": [schema_json(self.columns)],
            "current-schema-id": 0,
            "partition-specs": list(self.specs),
            "default-spec-id": 0,
            "properties": dict(self.properties),
            "current-snapshot-id": 7,
            "snapshots": [{"snapshot-id": 7, "timestamp-ms": 1000, "manifest-list": listed, "schema-id": 0}],
            "snapshot-log": [{"snapshot-id": 7, "timestamp-ms": 1000}],
            **self.changes,
        }
        return self.put("metadata/v1.metadata.json", json.dumps(metadata).encode())


def entry(path: str, size: int, rows: int, **facts: Any) -> dict[str, Any]:
    sequence, status = facts.pop("sequence", None), facts.pop("status", 1)

    def pairs(name: str) -> Any:
        given = facts.pop(name, None)
        return None if given is None else [{"key": key, "value": value} for key, value in given.items()]

    file = {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": rows,
        "file_size_in_bytes": size,
        "null_value_counts": pairs("null_value_counts"),
        "lower_bounds": pairs("lower_bounds"),
        "upper_bounds": pairs("upper_bounds"),
        "key_metadata": None,
        "equality_ids": None,
        "referenced_data_file": None,
        "content_offset": None,
        "content_size_in_bytes": None,
        "first_row_id": None,
    }
    return {"status": status, "snapshot_id": 7, "sequence_number": sequence, "data_file": {**file, **facts}}
