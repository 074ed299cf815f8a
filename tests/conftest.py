"""What every test shares: Hypothesis that prints how to repeat a failure and does not race the clock, a Spark
whose Java and Python start quickly, and an order in which no process is left alone with the longest files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.worker_python import worker_python

# A Java that lives for seconds spends more on its second compiler and its collector's threads than it gains
# by them: a session with a few queries takes 14 s of CPU with these, 25 s without. For every driver, master
# and worker that a test, or a page of the documentation, starts.
for _java_options in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_java_options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

os.environ.setdefault("PYSPARK_PYTHON", worker_python())

settings.register_profile(
    "kourou",
    deadline=None,  # a busy machine is not a bug
    derandomize=True,  # the same examples for everybody; `make fuzz` looks for others
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", parent=settings.get_profile("kourou"), derandomize=False, max_examples=2000
)
settings.load_profile("kourou")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Without what brokers say that other tests have left running in this process, in their own threads."""
    others = set(threading.enumerate()) - {
        threading.current_thread()
    }  # not by number: a new one may get an old one's
    caplog.handler.addFilter(lambda record: threading.current_thread() not in others)
    return caplog


_LONG = ("spark", "docs", "chaos")
"""Folders with files that take minutes: they come first, so that the short ones fill up the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With --no-loadscope-reorder, as `make test` says: otherwise files come by their number of tests, and
    those with one test of a minute in the end."""
    here = Path(__file__).parent
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}

    def place(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        return _LONG.index(folder) if folder in _LONG else len(_LONG), item.path not in slow

    items.sort(key=place)
