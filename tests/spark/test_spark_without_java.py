"""A machine without Java: what `pip install 'kourou[spark]'` brings along is enough to read any topic.

And what somebody sees there who has done nothing but install it: when something is wrong, no wall of Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import kourou

SCRIPT = """
import sys, kourou.spark
spark = kourou.spark.session()
source = {"namesrvAddr": sys.argv[1], "subscribe": sys.argv[2]}
print("rows", len(spark.read.format("rocketmq").options(**source).schema("body binary").load().collect()))
stream = spark.readStream.format("rocketmq").options(**source, startingOffsets="earliest").load()
written = stream.writeStream.format("noop").option("checkpointLocation", sys.argv[3])
query = written.trigger(availableNow=True).start()
query.awaitTermination()
print("streamed", sum(progress.numInputRows for progress in query.recentProgress))
failing = spark.readStream.format("rocketmq").options(**source, endingOffsets="latest").load()
query = failing.writeStream.format("noop").option("checkpointLocation", sys.argv[3] + "-failing").start()
try:
    query.awaitTermination()
except Exception as error:
    print("refused", "is for a batch" in str(error))
try:
    spark.read.format("rocketmq").options(**source, maxInflatedBytes="1").load().collect()
except Exception as error:
    print("failed", "inflates beyond 1 bytes" in str(error))
"""


OTHER_EXTRAS = ("click", "rich", "uvloop", "prometheus_client", "isal", "yaml", "starlette", "pyiceberg")


@pytest.mark.slow
def test_no_java_of_one_s_own_is_needed(
    broker: kourou.LocalBroker, new_topic: Callable[..., str], fill: Callable[..., None], tmp_path: Path
) -> None:
    topic = new_topic(2)
    fill(topic, [b"x"] * 7)
    ways: tuple[Literal["zlib", "lz4", "zstd"], ...] = ("zlib", "lz4", "zstd")
    for way in ways:
        with kourou.Producer("p", broker.name_server, compress_over=100, compression=way) as producer:
            producer.send(kourou.Message(topic, bytes(1000)))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "chmod",
        "dirname",
        "cat",
        "uname",
        "ps",
        "nice",
        "rm",
        "ls",
        "env",
        "readlink",
    ):
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    missing = tmp_path / "missing"
    missing.mkdir()
    for name in OTHER_EXTRAS:
        (missing / f"{name}.py").write_text("raise ImportError('not installed')")
    prepared = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")  # what a user has not
    environment = {name: value for name, value in os.environ.items() if name not in prepared}
    paths = os.pathsep.join(filter(None, (str(missing), os.environ.get("PYTHONPATH"))))
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": paths}
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.name_server, topic, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=220,
    )
    assert said.returncode == 0, said.stderr[-2000:]
    assert said.stdout.split() == ["rows", "10", "streamed", "10", "refused", "True", "failed", "True"]
    assert "is for a batch" in said.stderr, "a query that nobody waits for says it in the log"
    assert "\tat " not in said.stderr, said.stderr
    assert len(said.stderr.splitlines()) < 40, said.stderr
