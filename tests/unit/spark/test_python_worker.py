"""What is done once in a Python worker of Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from kourou.spark import python_worker
from kourou.spark.python_worker import settle


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    python_worker._settle_once.cache_clear()
    yield
    python_worker._settle_once.cache_clear()
    gc.unfreeze()


def test_only_a_task_settles_its_process_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before, "a driver is somebody else's programme"
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    settle()
    settled = gc.get_freeze_count()
    assert settled > before
    kept: list[list[int]] = [[] for _ in range(1000)]
    settle()
    assert gc.get_freeze_count() <= settled  # what was frozen may have ended meanwhile
    assert len(kept) == 1000
