"""Topics as tables of Spark: `format("rocketmq")`, its sink, and the pipelines made of them.

    spark_session.py java.py             a Spark session that works at once
    source.py options.py schema.py       what Spark is told of us; every option; every column
    cluster.py offsets.py planning.py    what the brokers have, which of it is read next, by how many tasks
    reader.py stream.py                  one read of a topic; a query that goes on
    pulls.py columns.py                  bytes from brokers, and Arrow columns out of them
    tables.py                            what a cluster knows of itself, as tables

Spark finds the source by the package `pyspark_rocketmq`. It needs the extra `kourou[spark]`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kourou.spark.spark_session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """On first use: a Spark worker imports this package for each task, and pays for what it needs."""
    if name == "session":
        return importlib.import_module("kourou.spark.spark_session").session
    raise AttributeError(f"module 'kourou.spark' has no attribute {name!r}")
