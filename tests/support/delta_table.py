"""A Delta table made by hand, in memory: commits as the caller writes them, and files with true statistics."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accel.testing import DictStore

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
_NAMES = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.string(): "string",
    pa.float64(): "double",
    pa.timestamp("us", "UTC"): "timestamp",
}


class DeltaTableInMemory:
    """A table in a store; each call of `commit` writes a version.

    Parameters
    ----------
    schema : pyarrow.Schema
    partition_columns : sequence of str
    protocol : mapping
    configuration : mapping
    at : str
        Its directory in the store.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        partition_columns: Sequence[str] = (),
        protocol: Mapping[str, Any] = PROTOCOL,
        configuration: Mapping[str, str] | None = None,
        at: str = "t",
    ) -> None:
        self.store = DictStore({})
        self.at = at
        self.version = -1
        self.schema = schema
        self.metadata = {
            "id": "4b4f4b4f-0000-0000-0000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string(schema),
            "partitionColumns": list(partition_columns),
            "configuration": dict(configuration or {}),
        }
        self.commit({"protocol": dict(protocol)}, {"metaData": self.metadata})

    def commit(self, *actions: Mapping[str, Any]) -> int:
        """Write a version, and return its number."""
        self.version += 1
        self.write_log(
            f"{self.version:020d}.json", "\n".join(json.dumps(action) for action in actions).encode()
        )
        return self.version

    def write_log(self, name: str, data: bytes) -> None:
        self.store.put(f"{self.at}/_delta_log/{name}", data)

    def add(self, path: str, rows: pa.Table, **more: Any) -> dict[str, Any]:
        """Write a file, and return the action that adds it; `partitionValues`, `stats` and others may be
        given."""
        data = self.write_file(path, rows)
        action = {
            "path": path,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(statistics(rows)),
        }
        return {"add": {**action, **more}}

    def write_file(self, path: str, rows: pa.Table) -> bytes:
        out = io.BytesIO()
        pq.write_table(rows, out)
        self.store.put(f"{self.at}/{path}", out.getvalue())
        return out.getvalue()

    def checkpoint(self, adds: Sequence[Mapping[str, Any]], *, name: str | None = None) -> None:
        """Write a classic checkpoint of the present version, with statistics as JSON."""
        fields = [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ]
        rows: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {**self.metadata, "configuration": []}},
            *(
                {"add": {**add["add"], "partitionValues": list(add["add"]["partitionValues"].items())}}
                for add in adds
            ),
        ]
        schema = pa.schema(
            [
                ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
                (
                    "metaData",
                    pa.struct(
                        [
                            ("id", pa.string()),
                            (
                                "format",
                                pa.struct(
                                    [
                                        ("provider", pa.string()),
                                        ("options", pa.map_(pa.string(), pa.string())),
                                    ]
                                ),
                            ),
                            ("schemaString", pa.string()),
                            ("partitionColumns", pa.list_(pa.string())),
                            ("configuration", pa.map_(pa.string(), pa.string())),
                        ]
                    ),
                ),
                ("add", pa.struct(fields)),
            ]
        )
        for row in rows:
            if "metaData" in row:
                row["metaData"]["format"] = {"provider": "parquet", "options": []}
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema), out)
        self.write_log(name or f"{self.version:020d}.checkpoint.parquet", out.getvalue())


def schema_string(schema: pa.Schema) -> str:
    fields = [
        {"name": field.name, "type": _NAMES[field.type], "nullable": True, "metadata": {}} for field in schema
    ]
    return json.dumps({"type": "struct", "fields": fields})


def statistics(rows: pa.Table) -> dict[str, Any]:
    """Return what a writer says of a file; times are cut at milliseconds, as Spark cuts them."""
    out: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        out["nullCount"][name] = column.null_count
        ends = pc.min_max(column)
        for which, end in (("minValues", "min"), ("maxValues", "max")):
            value = ends[end]
            if value.is_valid:
                out[which][name] = (
                    value.as_py().isoformat(timespec="milliseconds")
                    if pa.types.is_timestamp(value.type)
                    else value.as_py()
                )
    return out
