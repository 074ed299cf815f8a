"""A program that archives a topic for ever, to be killed: it, its executors, its workers, or the broker it
reads from.

    python -m tests.spark.archive_program MASTER NAME_SERVER LAKE TOPIC ROWS_A_BATCH

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
from tests.spark.shooting import SMALL


def main(master: str, name_server: str, lake: str, topic: str, rows_a_batch: str) -> None:
    cluster = Reach(name_server, {"maxOffsetsPerTrigger": rows_a_batch, "pullTimeoutMs": "3000"})
    failures: tuple[type[Exception], ...] = (MQError, *spark_errors())
    with quiet_session("archive-program", master=master, settings=SMALL) as spark:
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
