"""The filters that Spark pushes into a data source in Python, as accel's predicates.

The list of filters is a conjunction over rows.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from accel.spark.column_tests import NOTHING, ColumnTest, Operator, Translated, translate_not, translate_test

__all__ = ["Translated", "translate"]

_OPERATORS: dict[type, Operator] = {
    spark.EqualTo: Operator.EQUAL,
    spark.EqualNullSafe: Operator.EQUAL_NULL_SAFE,
    spark.GreaterThan: Operator.GREATER,
    spark.GreaterThanOrEqual: Operator.GREATER_EQUAL,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.LESS_EQUAL,
    spark.In: Operator.IN,
    spark.IsNull: Operator.IS_NULL,
    spark.IsNotNull: Operator.IS_NOT_NULL,
    spark.StringStartsWith: Operator.STARTS_WITH,
    spark.StringEndsWith: Operator.ENDS_WITH,
    spark.StringContains: Operator.CONTAINS,
}


def translate(given: spark.Filter, columns: pa.Schema, schema: StructType) -> Translated:
    """Translate a filter.

    Parameters
    ----------
    given : pyspark.sql.datasource.Filter
        The filter.
    columns : pyarrow.Schema
        The columns in the types of the files.
    schema : StructType
        The same in Spark's types.

    Returns
    -------
    Translated
        The predicate.
    """
    if isinstance(given, spark.Not):
        return translate_not(translate(given.child, columns, schema))
    operator = _OPERATORS.get(type(given))
    if operator is None:
        return NOTHING
    test = ColumnTest(operator, getattr(given, "attribute", ()), getattr(given, "value", None))
    return translate_test(test, columns, schema)
