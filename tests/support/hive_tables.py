"""Tables and partitions that a test makes in a Hive Metastore by Thrift, with whatever they are to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thrift.Thrift import TType

from accel.tables.formats.hive import thrift_types as types
from accel.tables.formats.hive.metastore import Conversation, metastore_at

__all__ = ["PARQUET", "make_partitions", "make_table", "parquet_at"]

PARQUET = {
    "inputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "outputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
}
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


class _Partition(types.Struct):
    thrift_spec = types.spec_of(
        (1, types.TEXTS[0], "values", types.TEXTS[1]),
        (2, TType.STRING, "dbName", "UTF8"),
        (3, TType.STRING, "tableName", "UTF8"),
        types.struct_of(6, "sd", types.StorageDescriptor),
    )


def _answer(*fields: Any) -> type[types.Struct]:
    failures = [types.struct_of(number, f"o{number}", types.Refusal) for number in (1, 2, 3, 4)]
    return type("answer", (types.Struct,), {"thrift_spec": types.spec_of(*fields, *failures)})


def _arguments(*fields: Any) -> type[types.Struct]:
    return type("arguments", (types.Struct,), {"thrift_spec": types.spec_of(*fields)})


_METHODS = {
    "create_table": (
        _arguments(types.struct_of(1, "tbl", types.Table)),
        _answer((0, TType.BOOL, "success", None)),
    ),
    "add_partitions": (
        _arguments(types.list_of(1, "new_parts", _Partition)),
        _answer((0, TType.I32, "success", None)),
    ),
}


def parquet_at(
    location: str | None, columns: Mapping[str, str], *, serde: str = _SERDE, **given: Any
) -> types.StorageDescriptor:
    """Return the storage of Parquet files at a location; `given` are other fields, and `parameters` those of
    the serde."""
    parameters = given.pop("parameters", {})
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name=name, type=kind) for name, kind in columns.items()],
        location=location,
        serdeInfo=types.SerDeInfo(serializationLib=serde, parameters=parameters),
        **{**PARQUET, **given},
    )


def make_table(
    url: str,
    name: str,
    storage: types.StorageDescriptor,
    *,
    keys: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
    kind: str = "EXTERNAL_TABLE",
) -> None:
    """Make a table in the database `default`."""
    _ask(
        url,
        "create_table",
        tbl=types.Table(
            tableName=name,
            dbName="default",
            sd=storage,
            partitionKeys=[types.FieldSchema(name=key, type=one) for key, one in (keys or {}).items()],
            parameters={"EXTERNAL": "TRUE", **(parameters or {})},
            tableType=kind,
        ),
    )


def make_partitions(
    url: str, name: str, partitions: Sequence[tuple[Sequence[str], types.StorageDescriptor]]
) -> None:
    """Add partitions to a table of the database `default`."""
    made = [
        _Partition(values=list(values), dbName="default", tableName=name, sd=storage)
        for values, storage in partitions
    ]
    _ask(url, "add_partitions", new_parts=made)


def _ask(url: str, method: str, **arguments: Any) -> None:
    types.METHODS.update(_METHODS)
    metastore = metastore_at(url)

    def work(talk: Conversation) -> None:
        talk.ask(method, **arguments)

    Conversation(metastore, metastore.servers[0]).hold(work)
