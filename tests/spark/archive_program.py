"""A program that archives a topic for ever, to be killed: it, its workers, or the broker it reads from.

    python -m tests.spark.archive_program NAME_SERVER LAKE TOPIC ROWS_A_BATCH

Prints a line when it begins and one for every commit. When a run fails, as it does while the broker is away,
it begins another one.
"""

from __future__ import annotations

import sys
import time

from kourou.errors import MQError
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.quiet import quiet_session, spark_errors
from kourou.spark.pipelines.reach import Reach


def main(name_server: str, lake: str, topic: str, rows_a_batch: str) -> None:
    cluster = Reach(name_server, {"maxOffsetsPerTrigger": rows_a_batch, "pullTimeoutMs": "3000"})
    settings = {"spark.driver.memory": "512m", "spark.sql.streaming.pollingDelay": "10ms"}
    failures: tuple[type[Exception], ...] = (MQError, *spark_errors())
    with quiet_session("archive-program", master="local[2,3]", settings=settings) as spark:
        while True:
            print("begins", flush=True)
            try:
                archive(
                    spark,
                    cluster,
                    lake,
                    topics=[topic],
                    batch_bytes="64m",
                    continuous=True,
                    every=0.05,
                    progress=lambda done, _: print(f"archived {done}", flush=True),
                )
            except failures as error:
                print(f"failed: {error}", flush=True)
                time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
