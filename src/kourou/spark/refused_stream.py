"""A streaming query that cannot be: it says why when it is asked where it begins.

Not earlier: when making a reader fails, the process Spark has for it tries to stop the reader it has not got,
and the user is told of that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kourou.errors import MQError
from kourou.spark.plain_errors import in_one_line


class RefusedStreamReader(DataSourceStreamReader):
    """Instead of a reader for options or a schema that make no sense."""

    def __init__(self, error: MQError) -> None:
        self._error = error

    @in_one_line
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @in_one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error  # a query that has a checkpoint may ask for these first

    @in_one_line
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error
