"""The few structs of the metastore's Thrift service that a reader needs, for `thrift`'s compiled protocol.

The generated module has 200 structs and takes two seconds to import; this takes a twentieth. Fields that are
not named here are skipped by the compiled decoder, so a partition does not make objects of its columns.

Source: Apache Hive, `hive_metastore.thrift`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from thrift.protocol.TBase import TBase
from thrift.Thrift import TType

__all__ = ["METHODS", "FieldSchema", "Partition", "SerDeInfo", "StorageDescriptor", "Struct", "Table"]

_TEXT = TType.STRING, "UTF8"
TEXTS = TType.LIST, (*_TEXT, False)
_PAIRS = TType.MAP, (*_TEXT, *_TEXT, False)


def spec_of(*fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the fields as `thrift` wants them: each at the place of its number."""
    by_number = {field[0]: (*field, None) for field in fields}
    return tuple(by_number.get(number) for number in range(max(by_number) + 1))


def struct_of(number: int, name: str, kind: type[Struct]) -> tuple[Any, ...]:
    return number, TType.STRUCT, name, [kind, kind.thrift_spec]


def list_of(number: int, name: str, kind: type[Struct]) -> tuple[Any, ...]:
    return number, TType.LIST, name, (TType.STRUCT, [kind, kind.thrift_spec], False)


class Struct(TBase):  # type: ignore[misc]
    """A struct whose fields are attributes, None where they are not set."""

    thrift_spec: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, **given: Any) -> None:
        for field in self.thrift_spec:
            if field is not None:
                setattr(self, field[2], given.get(field[2]))


class FieldSchema(Struct):
    """A column, and its type in Hive's words."""

    thrift_spec = spec_of((1, TType.STRING, "name", "UTF8"), (2, TType.STRING, "type", "UTF8"))
    name: str
    type: str


class SerDeInfo(Struct):
    """What turns rows into bytes."""

    thrift_spec = spec_of(
        (2, TType.STRING, "serializationLib", "UTF8"), (3, _PAIRS[0], "parameters", _PAIRS[1])
    )
    serializationLib: str | None
    parameters: dict[str, str] | None


class StorageDescriptor(Struct):
    """Where files lie, and in which format."""

    thrift_spec = spec_of(
        list_of(1, "cols", FieldSchema),
        (2, TType.STRING, "location", "UTF8"),
        (3, TType.STRING, "inputFormat", "UTF8"),
        (4, TType.STRING, "outputFormat", "UTF8"),
        struct_of(7, "serdeInfo", SerDeInfo),
    )
    cols: list[FieldSchema] | None
    location: str | None
    inputFormat: str | None
    outputFormat: str | None
    serdeInfo: SerDeInfo | None


class _PlaceOfPartition(Struct):
    """The same without columns."""

    thrift_spec = spec_of(
        (2, TType.STRING, "location", "UTF8"),
        (3, TType.STRING, "inputFormat", "UTF8"),
        struct_of(7, "serdeInfo", SerDeInfo),
    )


class Table(Struct):
    """A table."""

    thrift_spec = spec_of(
        (1, TType.STRING, "tableName", "UTF8"),
        (2, TType.STRING, "dbName", "UTF8"),
        struct_of(7, "sd", StorageDescriptor),
        list_of(8, "partitionKeys", FieldSchema),
        (9, _PAIRS[0], "parameters", _PAIRS[1]),
        (12, TType.STRING, "tableType", "UTF8"),
    )
    tableName: str
    dbName: str
    sd: StorageDescriptor | None
    partitionKeys: list[FieldSchema] | None
    parameters: dict[str, str] | None
    tableType: str | None


class Partition(Struct):
    """A partition."""

    thrift_spec = spec_of(
        (1, TEXTS[0], "values", TEXTS[1]),
        struct_of(6, "sd", _PlaceOfPartition),
        (7, _PAIRS[0], "parameters", _PAIRS[1]),
    )
    values: list[str] | None
    sd: _PlaceOfPartition | None
    parameters: dict[str, str] | None


class Refusal(Struct):
    """Any of the service's exceptions."""

    thrift_spec = spec_of((1, TType.STRING, "message", "UTF8"))


class _TableRequest(Struct):
    thrift_spec = spec_of((1, TType.STRING, "dbName", "UTF8"), (2, TType.STRING, "tblName", "UTF8"))


class _TableResult(Struct):
    thrift_spec = spec_of(struct_of(1, "table", Table))


_DATABASE = (1, TType.STRING, "db_name", "UTF8")
_TABLE = (2, TType.STRING, "tbl_name", "UTF8")
_FAILURES = struct_of(1, "o1", Refusal), struct_of(2, "o2", Refusal)


def _method(
    name: str, arguments: tuple[Any, ...], result: tuple[Any, ...]
) -> tuple[type[Struct], type[Struct]]:
    """Return the classes of the arguments and of the result of a method."""
    given = type(f"{name}_args", (Struct,), {"thrift_spec": spec_of(*arguments)})
    answer = type(f"{name}_result", (Struct,), {"thrift_spec": spec_of(result, *_FAILURES)})
    return given, answer


METHODS = {
    "get_all_databases": _method("get_all_databases", (_DATABASE,), (0, TEXTS[0], "success", TEXTS[1])),
    "get_table": _method(
        "get_table", ((1, TType.STRING, "dbname", "UTF8"), _TABLE), struct_of(0, "success", Table)
    ),
    "get_table_req": _method(
        "get_table_req", (struct_of(1, "req", _TableRequest),), struct_of(0, "success", _TableResult)
    ),
    "get_partition_names": _method(
        "get_partition_names",
        (_DATABASE, _TABLE, (3, TType.I16, "max_parts", None)),
        (0, TEXTS[0], "success", TEXTS[1]),
    ),
    "get_partitions_by_filter": _method(
        "get_partitions_by_filter",
        (_DATABASE, _TABLE, (3, TType.STRING, "filter", "UTF8"), (4, TType.I16, "max_parts", None)),
        list_of(0, "success", Partition),
    ),
    "get_partitions_by_names": _method(
        "get_partitions_by_names",
        (_DATABASE, _TABLE, (3, TEXTS[0], "names", TEXTS[1])),
        list_of(0, "success", Partition),
    ),
}
"""By the name of a method, the classes of its arguments and of its result."""


def table_request(database: str, table: str) -> Struct:
    """Return the argument of `get_table_req`."""
    return _TableRequest(dbName=database, tblName=table)
