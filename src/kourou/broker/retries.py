"""What becomes of a message that a consumer group could not process.

    consumed, failed ──▶ %RETRY%group, later and later ──▶ … ──▶ %DLQ%group, when it was tried often enough

The group's settings say how often (`retryMaxTimes`) and over how many queues (`retryQueueNums`); a client may
name another number of tries with its request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kourou.broker.groups import Groups
from kourou.broker.topics import READ_WRITE, Topics
from kourou.doors.chance import Chance
from kourou.errors import Refused
from kourou.protocol import names
from kourou.protocol.bodies import PERM_WRITE, SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode

TRIES_SINCE_VERSION: Final = 121
"""V3_4_9: clients before it say nothing sensible about how often to try."""

FIRST_LEVEL: Final = 3
UNIT_SUBSCRIPTION: Final = 2


class Retries:
    """Where failed messages go."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        chance: Chance,
        is_ordered: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_ordered(group)` says whether members of the group hold queue locks."""
        self._topics = topics
        self._groups = groups
        self._chance = chance
        self._is_ordered = is_ordered

    def retry_queue(self, group: SubscriptionGroupConfig, *, unit_mode: bool) -> tuple[str, int]:
        """A queue of the group's retry topic, which is made when it is not there."""
        name = names.retry_topic(group.group_name)
        topic = self._topics.ensure(
            name, group.retry_queue_nums, READ_WRITE, UNIT_SUBSCRIPTION if unit_mode else 0
        )
        if not topic.perm & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"topic '{name}' is not writable: its perm is {topic.perm}"
            )
        # The topic may have been made when the group wanted fewer; nobody reads queues it does not have.
        return name, self._chance.randrange(max(1, topic.write_queue_nums))

    def dead_letter_queue(self, group: str) -> tuple[str, int]:
        """The queue for the group's dead letters, readable from the start."""
        name = names.dead_letter_topic(group)
        self._topics.ensure(name, 1, READ_WRITE)
        return name, 0

    def tries_max(self, group: SubscriptionGroupConfig, given: int | None, version: int) -> int:
        """How often the group may try, as its client or its settings say."""
        return given if given is not None and version >= TRIES_SINCE_VERSION else group.retry_max_times

    def instead_of(self, topic: str, times: int, given: int | None, version: int) -> tuple[str, int] | None:
        """Where a message sent to a retry topic goes instead: to the dead letters, or (None) nowhere else.

        Raises Refused when the group is unknown and may not be made.
        """
        name = topic.removeprefix(names.RETRY_PREFIX).partition("+")[0]  # pop consumers add "+topic"
        group = self._groups.get_or_create(name)
        if times > self.tries_max(group, given, version) or self._is_ordered(name):
            return self.dead_letter_queue(name)
        return None
