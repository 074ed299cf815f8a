"""What tests of groups with Java and Kourou members need: a topic, and members that agree."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import kourou
from kourou.client import operations
from kourou.client.drive import BlockingDriver
from kourou.client.name_servers import NameServers
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from tests.interop.ours import wait_until


def make_topic(name_server: str, topic: str, queues: int) -> None:
    """At every master there is."""
    driver = BlockingDriver()
    names = NameServers((name_server,), Chance(), RealClock())
    for master in driver.run(operations.masters(names)):
        driver.run(operations.create_topic(master.address, operations.TopicSettings(topic, queues, queues)))
    driver.close()


def warm_up(
    producer: kourou.Producer, topic: str, queues: int, counts: Callable[[], tuple[int, int]]
) -> None:
    """Send one message to each queue, again and again, until each of them comes once: all have rebalanced.

    A member hears from its broker that others came; one that has not heard yet still reads their queues.
    """
    for _ in range(40):
        wanted = sum(counts()) + queues
        for queue in producer.queues(topic):
            producer.send(kourou.Message(topic, b"warm up"), queue=queue)
        wait_until(partial(_reaches, counts, wanted), 30, "the warm-up came")
        time.sleep(0.5)
        if sum(counts()) == wanted:
            return
    raise AssertionError("the members of the group do not agree on their queues")


def _reaches(counts: Callable[[], tuple[int, int]], wanted: int) -> bool:
    return sum(counts()) >= wanted
