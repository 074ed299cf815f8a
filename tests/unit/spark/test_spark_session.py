"""What a session is told: where it runs decides what it needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kourou.spark import session, spark_session

PREPARED = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
SAID = ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_ENV_LOADED", "PYSPARK_SUBMIT_ARGS")


class Builder:
    """Notes what it is told, and starts nothing."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Builder:
        return self

    def remote(self, url: str) -> Builder:
        return self

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Builder:
        return self


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of the session that is made, in an environment that says nothing."""
    for name in (*PREPARED, *SAID):
        monkeypatch.setenv(name, "for pytest to remember")
        monkeypatch.delenv(name)
    builder = Builder()
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.setattr(spark_session, "find_java_home", lambda environment: "/java")
    return builder.settings


@pytest.mark.parametrize(("master", "remote"), [(None, None), ("local[2]", None), (None, "local[2]")])
def test_a_spark_of_this_process_gets_java_its_python_and_loopback(
    told: dict[str, str], master: str | None, remote: str | None
) -> None:
    session(master=master, remote=remote)
    assert [os.environ[name] for name in PREPARED] == ["/java", sys.executable, sys.executable]
    assert told["spark.driver.host"] == "127.0.0.1"
    assert told["spark.speculation"] == "false"


def test_a_server_elsewhere_has_its_own(told: dict[str, str]) -> None:
    session(remote="sc://host:15002", settings={"spark.sql.shuffle.partitions": "2"})
    assert told == {"spark.sql.shuffle.partitions": "2"}
    assert not set(PREPARED) & set(os.environ)


def test_a_cluster_is_not_told_that_the_driver_is_on_loopback(told: dict[str, str]) -> None:
    session(master="spark://host:7077")
    assert told["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in told
    assert "JAVA_HOME" in os.environ


def test_what_was_said_wins(told: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    session(settings={"spark.speculation": "true", "spark.driver.host": "me", "spark.master": "yarn"})
    assert (told["spark.speculation"], told["spark.driver.host"], told["spark.master"]) == (
        "true",
        "me",
        "yarn",
    )
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "./environment/bin/python", "executors take this one, too"


def test_java_logs_as_we_have_it_unless_there_is_a_configuration(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session()
    option, _, file = told.pop("spark.driver.defaultJavaOptions").partition("=")
    assert option == "-Dlog4j2.configurationFile"
    assert Path(file.removeprefix("file://")).is_file()
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    session()
    assert "spark.driver.defaultJavaOptions" not in told
