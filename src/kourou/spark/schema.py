"""The columns as Spark names their types, and the choice a user makes among them.

Spark does not tell a Python source which columns a query needs, but a schema given by the user reaches it:
`.schema("topic string, queueOffset bigint")` reads those two and copies no body.
"""

from __future__ import annotations

from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kourou.errors import ConfigError
from kourou.spark import columns

RAW, MAP = "raw", "map"


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns in Spark's words; each may be null, as Spark wants it of a source."""
    return StructType([StructField(field.name, spark_type(field.type)) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """The types our columns have; KeyError for any other."""
    if pa.types.is_map(kind):
        return MapType(StringType(), StringType())
    return _SPARK_TYPES[kind]()


_SPARK_TYPES: dict[pa.DataType, type[DataType]] = {
    pa.string(): StringType,
    pa.binary(): BinaryType,
    pa.int32(): IntegerType,
    pa.int64(): LongType,
    pa.float64(): DoubleType,
    pa.bool_(): BooleanType,
    columns.TIMESTAMP: TimestampType,
}


def message_schema(properties: str = MAP) -> pa.Schema:
    """All columns of a message; `properties` as a map, or raw."""
    if properties == MAP:
        return columns.SCHEMA
    return pa.schema(
        [(name, pa.string() if name == "properties" else kind) for name, kind in columns.TYPES.items()]
    )


def chosen(wanted: StructType, offered: pa.Schema) -> pa.Schema:
    """The columns of a user's schema, as Arrow makes them; raises ConfigError for one that is not offered.

    `properties string` is the raw form of `properties map<string,string>`.
    """
    fields = []
    for column in wanted.fields:
        kind = _kind(column.name, offered)
        if column.name == "properties" and isinstance(column.dataType, StringType):
            kind = pa.string()
        expected = spark_type(kind)
        if not _is_same(column.dataType, expected):
            raise ConfigError(
                f"column {column.name} is {expected.simpleString()}, and the schema says "
                f"{column.dataType.simpleString()}; read it as it is, and cast it afterwards"
            )
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)


def _kind(name: str, offered: pa.Schema) -> pa.DataType:
    if name in offered.names:
        return offered.field(name).type
    by_lower = {each.lower(): each for each in offered.names}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    hint = f"did you mean {by_lower[near[0]]}?" if near else f"there are: {', '.join(offered.names)}"
    raise ConfigError(f"there is no column {name!r}; {hint}")


def _is_same(given: DataType, expected: DataType) -> bool:
    """Whether they are the same type, whatever is said about nulls inside a map."""
    return given.simpleString() == expected.simpleString()
