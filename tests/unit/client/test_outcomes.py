from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from kourou.client.delays import DelayLevel
from kourou.client.outcomes import DELAY_SECONDS, DeadLetter, RetryLater, delay_level
from kourou.errors import ConfigError


@pytest.mark.parametrize(
    ("delay", "level", "seconds"),
    [
        (None, 0, None),
        (0, 1, 0),
        (1, 1, 1),
        (1.5, 2, 1.5),
        (10, 3, 10),
        (timedelta(minutes=2), 6, 120),
        (7200, 18, 7200),
        (DelayLevel(3), 3, 10),
        (DelayLevel(18), 18, 7200),
    ],
)
def test_a_while_is_rounded_up_to_a_delay_level(delay: Any, level: int, seconds: float | None) -> None:
    outcome = RetryLater(delay)
    assert (outcome.level, outcome.seconds) == (level, seconds)


@pytest.mark.parametrize("delay", [-1, 7201, timedelta(days=1), "soon", datetime(2030, 1, 1)])
def test_a_while_no_broker_knows_is_refused(delay: Any) -> None:
    with pytest.raises(ConfigError, match="7200 seconds, a timedelta or a DelayLevel"):
        RetryLater(delay)


def test_every_failure_has_its_level() -> None:
    assert delay_level(RetryLater(30)) == 4
    assert delay_level(ValueError("no")) == 0
    assert delay_level(DeadLetter()) == -1
    assert len(DELAY_SECONDS) == 18
