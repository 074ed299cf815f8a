"""Where a pipeline's cluster is: for the driver, for its tasks, and for what Spark reads and writes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.admin.connection import Connection
from kourou.spark.access import ClusterAccess
from kourou.spark.options import SOURCE_NAMES, Given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Reach:
    """A name server, and what else is to be said: `options` are those of `format("rocketmq")`.

    A text is enough where nothing else is: `Reach.of("localhost:9876")`.
    """

    name_server: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, where: Reach | str) -> Reach:
        return where if isinstance(where, Reach) else cls(where)

    def source_options(self, **more: str | None) -> dict[str, str]:
        given = {"namesrvAddr": self.name_server, **self.options}
        return given | {name: value for name, value in more.items() if value is not None}

    def read(self, spark: SparkSession, schema: str | None = None, **options: str | None) -> DataFrame:
        """A batch of messages, or a system table."""
        reader = spark.read.format("rocketmq").options(**self.source_options(**options))
        return (reader if schema is None else reader.schema(schema)).load()

    def read_stream(self, spark: SparkSession, schema: str | None = None, **options: str | None) -> DataFrame:
        reader = spark.readStream.format("rocketmq").options(**self.source_options(**options))
        return (reader if schema is None else reader.schema(schema)).load()

    def connection(self) -> Connection:
        """For questions and for sends of our own, in whichever process this is called."""
        access = ClusterAccess.given(Given(self.source_options(), SOURCE_NAMES))
        settings = access.settings()
        return Connection(access.name_server, access=settings.access, tls=settings.tls)
