"""The Spark schema of Arrow data, as a StructType or as DDL text, which needs no pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.arrays import is_zoned
from accel.decode.spark_types import spark_arrow_schema
from accel.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["spark_ddl", "spark_schema"]

# Arrow type (as spark_arrow_schema gives it) -> name in DDL, class in pyspark.sql.types.
_SIMPLE: dict[Any, tuple[str, str]] = {
    pa.null(): ("VOID", "NullType"),
    pa.bool_(): ("BOOLEAN", "BooleanType"),
    pa.int8(): ("TINYINT", "ByteType"),
    pa.int16(): ("SMALLINT", "ShortType"),
    pa.int32(): ("INT", "IntegerType"),
    pa.int64(): ("BIGINT", "LongType"),
    pa.float32(): ("FLOAT", "FloatType"),
    pa.float64(): ("DOUBLE", "DoubleType"),
    pa.string(): ("STRING", "StringType"),
    pa.large_string(): ("STRING", "StringType"),
    pa.binary(): ("BINARY", "BinaryType"),
    pa.large_binary(): ("BINARY", "BinaryType"),
    pa.date32(): ("DATE", "DateType"),
    pa.time64("ns"): ("TIME(6)", "TimeType"),
    pa.timestamp("us"): ("TIMESTAMP_NTZ", "TimestampNTZType"),
    pa.duration("us"): ("INTERVAL DAY TO SECOND", "DayTimeIntervalType"),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of Arrow data, as mapInArrow and createDataFrame take it.

    Everything is nullable, as in Spark's own file sources: a later file may lack a column of the first.
    A timestamp with a zone is TimestampType (an instant), one without TimestampNTZType.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the Arrow data, as of `accel.scan(...).schema`.

    Returns
    -------
    pyspark.sql.types.StructType
        The schema in Spark's types.

    Raises
    ------
    SchemaMismatchError
        A column has a type for which Spark, or the installed version of it, has no counterpart.
    """
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _type(f.type, f.name), True) for f in spark_arrow_schema(schema)])


def spark_ddl(schema: pa.Schema) -> str:
    """Return the Spark schema of Arrow data as DDL text: "`id` BIGINT, `name` STRING".

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the Arrow data.

    Returns
    -------
    str
        DDL text, which `mapInArrow` takes as a schema.

    Raises
    ------
    SchemaMismatchError
        A column has a type for which Spark has no counterpart.
    """
    return ", ".join(f"{_quoted(f.name)} {_ddl(f.type)}" for f in spark_arrow_schema(schema))


def _type(kind: Any, path: str) -> DataType:
    import pyspark.sql.types as spark

    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and is_zoned(kind):
        return spark.TimestampType()
    if pa.types.is_map(kind):
        return spark.MapType(
            _type(kind.key_type, f"{path}.key"), _type(kind.item_type, f"{path}.value"), True
        )
    if pa.types.is_list(kind):
        return spark.ArrayType(_type(kind.value_type, f"{path}.element"), True)
    if pa.types.is_struct(kind):
        return spark.StructType(
            [spark.StructField(f.name, _type(f.type, f"{path}.{f.name}"), True) for f in kind]
        )
    ddl, name = _SIMPLE[kind]
    found = getattr(spark, name, None)
    if found is None:
        raise SchemaMismatchError(
            f"this Spark has no {ddl} type",
            place=f"column {path}",
            hint="leave the column out with `columns=`",
        )
    return found()  # type: ignore[no-any-return]


def _ddl(kind: Any) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and is_zoned(kind):
        return "TIMESTAMP"
    if pa.types.is_map(kind):
        return f"MAP<{_ddl(kind.key_type)}, {_ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "STRUCT<" + ", ".join(f"{_quoted(f.name)}: {_ddl(f.type)}" for f in kind) + ">"
    return _SIMPLE[kind][0]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
