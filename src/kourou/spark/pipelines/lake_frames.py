"""A lake as a Spark DataFrame: exactly the files that count, with the columns of a message and `date`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kourou.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_lake(spark: SparkSession, lake: str | Lake, topics: Iterable[str] | None = None) -> DataFrame:
    """The messages of a lake, of all topics or of these.

    Also while it is written to: a file counts from its commit on. Partitioned by `topic` and `date`, so a
    condition on them reads only the files it needs.
    """
    from pyspark.sql.types import DateType

    from kourou.spark.columns import SCHEMA
    from kourou.spark.schema import spark_schema

    source = lake if isinstance(lake, Lake) else Lake(lake)
    source.format()
    schema = spark_schema(SCHEMA).add("date", DateType())
    paths = [source.path_of(file) for file in source.files(topics)]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", source.folder).parquet(*paths)
