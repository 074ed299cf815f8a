"""`writeStream` of a session of ours: a query's checkpoint is looked at before Spark reads it.

Spark asks no source and no sink before it reads a checkpoint, and what it fails with then is a wall of Java,
so this is the only place where whoever starts a query can be told in a line which file is the matter. A
query whose checkpoint is new, or whole, notices nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kourou.spark.checkpoints import check_checkpoint

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOCATION = "checkpointLocation"


def check_before_every_start() -> None:
    """From now on, in this process. For DataFrames of Spark Connect the checkpoint is the server's."""
    DataFrame.writeStream = property(CheckedStreamWriter)  # type: ignore[method-assign,assignment]


class CheckedStreamWriter(DataStreamWriter):
    """Knows where its query keeps its checkpoint."""

    _location: str | None = None

    def option(self, key: str, value: Any) -> CheckedStreamWriter:
        self._notice({key: value})
        super().option(key, value)
        return self

    def options(self, **options: Any) -> CheckedStreamWriter:
        self._notice(options)
        super().options(**options)
        return self

    def start(self, path: str | None = None, *named: Any, **options: Any) -> StreamingQuery:
        self._check(options)
        return super().start(path, *named, **options)

    def toTable(self, tableName: str, *named: Any, **options: Any) -> StreamingQuery:
        self._check(options)
        return super().toTable(tableName, *named, **options)

    def _notice(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name.lower() == LOCATION.lower() and value is not None:
                self._location = str(value)

    def _check(self, options: dict[str, Any]) -> None:
        self._notice(options)
        if self._location is not None:
            check_checkpoint(self._location)
