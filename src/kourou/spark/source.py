"""What Spark is told of us: `format("rocketmq")`, read and written, once or on and on; system tables.

Spark makes one of these, in a Python process of its own, for each thing it wants to know. So nothing is asked
of the cluster here, and what is not needed is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kourou.errors import ConfigError, MQError
from kourou.spark.plain_errors import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from kourou.spark.options import Given

COMMIT_LOG = "commitlog"


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ as tables of Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @in_one_line
    def schema(self) -> StructType:
        from kourou.spark.options import source_options
        from kourou.spark.schema import spark_schema
        from kourou.spark.table_options import with_options

        given = _given(self.options)
        if given.text("table") is None and given.text("topic") is None:
            source_options(self.options, streaming=None)  # so that load() tells, and not the first count()
        return with_options(spark_schema(_offered(given)), self.options, given.values)

    @in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        from kourou.spark.options import source_options
        from kourou.spark.schema import chosen
        from kourou.spark.table_options import options_of

        options = options_of(schema, self.options)
        given = _given(options)
        table = given.text("table")
        columns = chosen(schema, _offered(given))
        if table == COMMIT_LOG:
            from kourou.spark.store_scan import StoreScanReader

            return StoreScanReader(options, columns)
        if table is not None:
            from kourou.spark.tables import table_reader

            return table_reader(table, options, columns)
        from kourou.spark.reader import TopicReader

        return TopicReader(source_options(options, streaming=False), columns)

    @in_one_line
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kourou.spark.refused_stream import RefusedStreamReader

        try:
            return self._stream_reader(schema)
        except MQError as error:
            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from kourou.spark.options import source_options
        from kourou.spark.schema import chosen
        from kourou.spark.stream import TopicStreamReader
        from kourou.spark.table_options import options_of

        options = options_of(schema, self.options)
        given = _given(options)
        table = given.text("table")
        if table is not None:
            raise ConfigError(
                f"table {table!r} shows what is there now: read it with spark.read, not readStream"
            )
        return TopicStreamReader(source_options(options, streaming=True), chosen(schema, _offered(given)))

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kourou.spark.table_options import options_of
        from kourou.spark.writer import batch_writer

        return batch_writer(options_of(schema, self.options), schema, overwrite)

    @in_one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kourou.spark.table_options import options_of
        from kourou.spark.writer import stream_writer

        return stream_writer(options_of(schema, self.options), schema, overwrite)


def _given(options: Mapping[str, str]) -> Given:
    from kourou.spark.options import ALL_NAMES, Given

    return Given(options, ALL_NAMES)


def _offered(given: Given) -> pa.Schema:
    """The columns there are to choose from."""
    table = given.text("table")
    if table == COMMIT_LOG:
        from kourou.spark.store_scan import SCHEMA

        return SCHEMA
    if table is not None:
        from kourou.spark.tables import table_schema

        return table_schema(table)
    from kourou.spark.schema import MAP, RAW, message_schema

    form = given.text("properties") or MAP
    if form not in (MAP, RAW):
        given.refuse("properties", f"must be {MAP} or {RAW}")
    return message_schema(form)
