"""The same small job wherever Spark runs: archive a topic, read the lake, say what came of it in JSON.

python -m tests.spark.cluster_program MASTER NAME_SERVER TOPIC FOLDER
python -m tests.spark.cluster_program connect NAME_SERVER TOPIC FOLDER
"""

from __future__ import annotations

import json
import os
import sys

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
    """In many small batches, told as they are done: somebody may want to shoot."""
    cluster = Reach(name_server, {"maxOffsetsPerTrigger": "500", "minPartitions": "2"})
    lake = f"{folder}/lake"
    done = archive(
        spark, cluster, lake, topics=[topic], progress=lambda rows, _: print(f"archived {rows}", flush=True)
    )
    rows = read_lake(spark, lake)
    return {"rows": rows.count(), "distinct": rows.select("body").distinct().count(), "commits": done.commits}


def connected(spark: SparkSession, name_server: str, topic: str, folder: str) -> dict[str, object]:
    """Batch, stream and sink through a Spark Connect server."""
    query = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=topic, startingOffsets="earliest")
        .schema("body binary")
        .load()
        .writeStream.format("rocketmq")
        .options(namesrvAddr=name_server, topic=f"{topic}-copy", delivery="exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=f"{topic}-copy")
        .schema("body binary")
        .load()
    )
    counted = copied.agg(f.count("*").alias("rows"), f.count_distinct("body").alias("different")).collect()[0]
    found = stats(spark, name_server, topics=[topic])
    return {"rows": counted.rows, "distinct": counted.different, "messages": found.topics[0].messages}


def main(where: str, *arguments: str) -> None:
    if where == "connect":
        spark = session("cluster-program", remote="local[2]", settings=SMALL)
        told = connected(spark, *arguments)
    else:
        spark = session("cluster-program", master=where, settings=SMALL)
        told = archived(spark, *arguments)
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
