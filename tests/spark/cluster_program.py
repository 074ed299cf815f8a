"""The same small job wherever Spark runs: archive a topic, read the lake, say what came of it in JSON.

python -m tests.spark.cluster_program MASTER NAME_SERVER TOPIC FOLDER
python -m tests.spark.cluster_program sc://HOST:PORT NAME_SERVER TOPIC FOLDER
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kourou.spark import session
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.lake_frames import read_lake
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.stats import stats

SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),  # as the driver's
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


def archived(spark: SparkSession, name_server: str, topic: str, folder: str) -> dict[str, object]:
    """Into a lake and into another topic, in many small batches, told as they are done: somebody may want to
    shoot."""
    cluster = Reach(name_server, {"maxOffsetsPerTrigger": "500", "minPartitions": "2"})
    lake = f"{folder}/lake"
    done = archive(
        spark, cluster, lake, topics=[topic], progress=lambda rows, _: print(f"archived {rows}", flush=True)
    )
    rows = read_lake(spark, lake)
    copy(spark, name_server, topic, folder, maxOffsetsPerTrigger="300", minPartitions="2")
    return {
        "rows": rows.count(),
        "distinct": rows.select("body").distinct().count(),
        "commits": done.commits,
        **counted(spark, name_server, topic),
    }


def copy(spark: SparkSession, name_server: str, topic: str, folder: str, **limits: str) -> None:
    """A stream through the sink, exactly once; tells how many rows it has copied."""
    query = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=topic, startingOffsets="earliest", **limits)
        .schema("body binary")
        .load()
        .writeStream.format("rocketmq")
        .options(namesrvAddr=name_server, topic=f"{topic}-copy", delivery="exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    told = 0
    while query.isActive:
        time.sleep(0.1)
        copied = sum(progress.numInputRows for progress in query.recentProgress)
        if copied > told:
            print(f"copied {copied}", flush=True)
            told = copied
    query.awaitTermination()  # raises what it failed with


def counted(spark: SparkSession, name_server: str, topic: str) -> dict[str, object]:
    """What the copy has."""
    copied = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=f"{topic}-copy")
        .schema("body binary")
        .load()
    )
    found = copied.agg(f.count("*").alias("rows"), f.count_distinct("body").alias("different")).collect()[0]
    return {"copied": found.rows, "different": found.different}


def connected(spark: SparkSession, name_server: str, topic: str, folder: str) -> dict[str, object]:
    """Batch, stream and sink through a Spark Connect server."""
    print("connected", flush=True)
    copy(spark, name_server, topic, folder)
    print("streamed", flush=True)
    found = counted(spark, name_server, topic)
    print("counted", flush=True)
    return {**found, "messages": stats(spark, name_server, topics=[topic]).topics[0].messages}


def wait_for_server(host: str, port: str) -> None:
    """Until it takes connections: a client that came too early would look again only after a minute."""
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        time.sleep(0.1)


def main(where: str, *arguments: str) -> None:
    if where.startswith("sc://"):
        wait_for_server(*where.removeprefix("sc://").split(":"))
        spark = session("cluster-program", remote=where)
        told = connected(spark, *arguments)
    else:
        spark = session("cluster-program", master=where, settings=SMALL)
        told = archived(spark, *arguments)
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
