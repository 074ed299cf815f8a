"""The options of a table in Spark's catalog, carried by its schema.

    CREATE TABLE orders USING rocketmq OPTIONS (namesrvAddr '…', subscribe 'orders')

Spark 4 tells a Python source the options of such a table when it is created, and never again: what reads it,
or writes to it, gets an empty set. But the schema that was told then lies in the catalog, and comes back each
time. So the options travel as metadata of the first column. No secrets are among them: those are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from kourou.errors import ConfigError

KEY = "kourou.options"
OF_CATALOG = "provider"
"""An option that Spark adds when a table is being created."""


def with_options(schema: StructType, options: Mapping[str, str], values: Mapping[str, str]) -> StructType:
    """The schema with `values` in it, if it is that of a table to be created; else as it is."""
    if OF_CATALOG not in {name.lower() for name in options}:
        return schema
    first, *others = schema.fields
    marked = StructField(first.name, first.dataType, first.nullable, {KEY: json.dumps(dict(values))})
    return StructType([marked, *others])


def options_of(schema: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """What was said, or what the schema of a table brings along; raises ConfigError when it is neither."""
    for column in schema.fields:
        if KEY in column.metadata:
            return {**json.loads(column.metadata[KEY]), **options}
    if not options:
        raise ConfigError(
            "Spark does not tell the options of this table: create it without a list of columns, or read it "
            "with SELECT … FROM … WITH (`namesrvAddr` = '…', `subscribe` = '…')"
        )
    return options
