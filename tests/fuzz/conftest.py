"""What a fuzzed server logs goes to the one who looks for faults in it, and to nobody else: for one test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logs_stay_here() -> Iterator[None]:
    logger = logging.getLogger("kourou")
    was = logger.propagate
    logger.propagate = False
    yield
    logger.propagate = was
