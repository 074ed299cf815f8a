"""What somebody sees of a Spark that does not start: one line."""

from __future__ import annotations

from typing import NoReturn

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from kourou.cli.main import run
from kourou.spark.pipelines import quiet

FROM_JAVA = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": org.apache.spark.SparkException: [INVALID_URL] Could not parse Master URL: 'nonsense'\n"
    "\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3273)"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Py4JError(FROM_JAVA), "Could not parse Master URL: 'nonsense'"),
        (PySparkRuntimeError("Java gateway process exited\nbefore its time"), "Java gateway process exited"),
    ],
)
def test_a_spark_that_does_not_start_is_told_in_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(quiet, "session", fail)
    assert run(["pipeline", "stats", "orders", "--master", "nonsense", "-n", "127.0.0.1:1"]) == 1
    told = capsys.readouterr().err.strip()
    assert told.endswith(said)
    assert len(told.splitlines()) == 1
