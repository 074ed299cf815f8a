"""A Spark session for the command line: its chatter goes nowhere, and what goes wrong is one line.

Java says a few things when it starts, and Spark's own log follows; whoever waits for a report wants neither.
The Java process inherits where our standard error goes when it is started, so that is turned aside for this
moment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kourou.errors import MQError
from kourou.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "8"}
_OWN_ERROR = re.compile(r"kourou\.[\w.]+: (?P<said>.+)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ?")
_FROM_JAVA = re.compile(r"^An error occurred while calling .*\n: *([\w.$]+: )?")
"""What py4j puts before the words of a Java exception that Spark has no Python class for."""


@contextmanager
def quiet_session(
    app_name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session, stopped afterwards. What Spark raises comes out as an MQError of one line."""
    with _plain_errors(), _standard_error_aside():
        spark = session(app_name, master=master, remote=remote, settings={**QUIET, **(settings or {})})
    try:
        with _plain_errors():
            yield spark
    finally:
        with _standard_error_aside():
            spark.stop()


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except MQError:
        raise
    except spark_errors() as error:
        raise MQError(in_one_line(error)) from None


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises, whichever way it was asked."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


@contextmanager
def _standard_error_aside() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def in_one_line(error: BaseException) -> str:
    """What was said first, without the way it took through Java: our own words, if they are there.

    >>> in_one_line(Exception("Job aborted\\n  ...\\nkourou.errors.NotFound: no topic 'x'\\n  at org.apache"))
    "no topic 'x'"
    >>> in_one_line(Exception("An error occurred while calling o7.x.\\n: a.b.C: [X] no such master\\n at x"))
    'no such master'
    """
    text = _FROM_JAVA.sub("", str(error))
    own = _OWN_ERROR.findall(text)
    if own:
        return str(own[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _CONDITION.sub("", lines[0]) if lines else type(error).__name__
