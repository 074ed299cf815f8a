"""Registers `format("rocketmq")` with Spark, which looks for importable packages named `pyspark_*` by itself.

One such package that cannot be imported hides all others from Spark, so nothing is imported here that may be
missing: without `kourou[spark]` this stays empty, and the rest of Spark works on.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]

try:
    from kourou.spark.source import RocketMQDataSource as DefaultSource
except ImportError:  # pyspark itself, pyarrow or NumPy is missing: no source, and no harm to others

    def __getattr__(name: str) -> Any:
        if name == "DefaultSource":
            raise AttributeError("format('rocketmq') needs an extra: pip install 'kourou[spark]'")
        raise AttributeError(f"module 'pyspark_rocketmq' has no attribute {name!r}")
