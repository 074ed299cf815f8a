"""A program that copies a topic into another one for ever, exactly once, to be killed: it, its executors,
its workers, or the broker.

    python -m tests.spark.sink_program MASTER NAME_SERVER FROM TO CHECKPOINT ROWS_A_BATCH

Each row it writes says where it was read: queue and offset. Prints a line when it begins and one for every
batch. When the query fails, as it does while the broker is away for long, it begins another one.
"""

from __future__ import annotations

import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kourou.spark import session
from tests.spark.shooting import SMALL


def main(master: str, name_server: str, source: str, target: str, checkpoint: str, rows_a_batch: str) -> None:
    spark = session("sink-program", master=master, settings=SMALL)
    while True:
        print("begins", flush=True)
        query = copying(spark, name_server, source, target, checkpoint, rows_a_batch)
        try:
            last = -1
            while query.isActive:
                time.sleep(0.05)
                progress = query.lastProgress
                if progress is not None and progress.numInputRows and progress.batchId > last:
                    last = progress.batchId
                    print(f"batch {last}", flush=True)
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"failed: {error}", flush=True)
            time.sleep(0.1)


def copying(
    spark: SparkSession, name_server: str, source: str, target: str, checkpoint: str, rows_a_batch: str
) -> StreamingQuery:
    rows = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_a_batch)
        .option("pullTimeoutMs", "5000")
        .load()
    )
    where_read = rows.selectExpr("concat(queueId, ':', queueOffset) AS body", "keys")
    return (
        where_read.writeStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("topic", target)
        .option("delivery", "exactly-once")
        .option("sendTimeoutMs", "5000")
        .option("checkpointLocation", checkpoint)
        .start()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
