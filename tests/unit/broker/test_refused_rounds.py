"""What a disk refuses while open transactions are asked about: nobody is asked, and nothing is forgotten."""

from __future__ import annotations

import errno

import pytest

from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.broker.test_transactions import (
    CHECK_SECONDS,
    COMMIT,
    asked_about,
    checks,
    end,
    orders,
    prepare,
    producer_of,
)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_round_the_disk_refused_asks_nobody_and_is_held_again(
    world: BrokerWorld, flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.start(flush_disk_type=flush)
    world.make_topic("orders")
    producer = producer_of(world)
    prepare(world, producer)
    world.pass_time(CHECK_SECONDS - 2)
    assert checks(producer) == []
    world.files.fail("pwrite", error=errno.ENOSPC, times=1_000)
    world.pass_time(4)
    assert "open transactions are not checked now" in caplog.text, "no round was refused"
    assert checks(producer) == [], "a producer was asked about a copy that is not there"
    world.files.fail("pwrite", times=0)
    world.pass_time(2 * CHECK_SECONDS)
    asked = checks(producer)
    assert asked, "the transaction was forgotten"
    assert end(producer, asked_about(asked[-1]), COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"paid"]
