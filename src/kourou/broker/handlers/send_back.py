"""A consumer hands a message back: it shall be delivered to its group once more, later, or given up."""

from __future__ import annotations

import logging

import msgspec

from kourou.access.rules import HIDDEN_TOPICS, SUB, topic_need
from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.later import Later, again, stored_properties
from kourou.broker.retries import FIRST_LEVEL, Retries
from kourou.broker.stats import Stats
from kourou.doors.failpoints import reached
from kourou.errors import NotFound, Refused
from kourou.protocol.bodies import PERM_WRITE
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import SendBack
from kourou.protocol.properties import find, with_added
from kourou.protocol.record import Record
from kourou.remoting.access import Require
from kourou.remoting.answer import Answer
from kourou.store.flush import OK, StoreStatus
from kourou.store.store import Draft, Store

logger = logging.getLogger(__name__)


class SendBackHandler:
    """CONSUMER_SEND_MSG_BACK (36)."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        groups: Groups,
        retries: Retries,
        later: Later,
        store: Store,
        stats: Stats,
        advertised: Advertised,
        require: Require,
    ) -> None:
        self._config = config
        self._groups = groups
        self._retries = retries
        self._later = later
        self._store = store
        self._stats = stats
        self._advertised = advertised
        self._require = require

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(SendBack)
        group = self._groups.get_or_create(header.group)
        if not self._config.permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {self._config.broker_name} is not writable: its brokerPermission is "
                f"{self._config.permission}",
            )
        if group.retry_queue_nums <= 0:  # the group does not want to see it again
            answer(request.reply())
            return
        topic, queue_id = self._retries.retry_queue(group, unit_mode=bool(header.unit_mode))
        record = self._record(header.physical_offset)
        self._require(request, answer, topic_need(record.topic.decode(), SUB, header.group))
        level = header.delay_level or FIRST_LEVEL + record.reconsume_times
        tries_max = self._retries.tries_max(group, header.max_reconsume_times, request.version)
        is_dead = record.reconsume_times >= tries_max or header.delay_level < 0
        if is_dead:
            reached("before-dlq-append")
            topic, queue_id = self._retries.dead_letter_queue(header.group)
            level = 0
            logger.info(
                "%s gave up a message after %d tries: %s in %s",
                *(header.group, record.reconsume_times + 1, record.offset_id(), topic),
            )
        draft = self._later.redirect(self._next_try(record, topic, queue_id, level))
        reached("before-retry-append")
        appended = self._store.append(draft)
        reached("after-retry-append")
        if is_dead:
            reached("after-dlq-append")
        self._stats.put(draft.topic, 1, appended.size)

        def accepted(status: StoreStatus) -> None:
            if status is OK:
                answer(request.reply())
            else:
                answer(request.reply(code=ResponseCode.SYSTEM_ERROR, remark=status.reason))

        self._store.when_stored(appended.end, accepted)

    def _record(self, physical_offset: int) -> Record:
        data = self._store.record_at(physical_offset)
        if data is None:
            raise NotFound(
                ResponseCode.SYSTEM_ERROR,
                f"no message begins at {physical_offset} of the commit log of broker "
                f"{self._config.broker_name}: it may have been too old to be kept",
            )
        record = Record(data)
        topic = record.topic.decode()
        if topic in HIDDEN_TOPICS:  # nobody received it from there: a half message is not out yet
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the message at {physical_offset} is in {topic}, which no group can subscribe to",
            )
        return record

    def _next_try(self, record: Record, topic: str, queue_id: int, level: int) -> Draft:
        """The same message, under `topic`, tried once more often."""
        properties = stored_properties(record)
        if find(properties, b"RETRY_TOPIC") is None:
            properties = with_added(properties, b"RETRY_TOPIC", record.topic)
        if find(properties, b"ORIGIN_MESSAGE_ID") is None:
            properties = with_added(properties, b"ORIGIN_MESSAGE_ID", record.offset_id().encode())
        properties = with_added(properties, b"WAIT", b"false")
        properties = with_added(properties, b"DELAY", b"%d" % level)
        return msgspec.structs.replace(
            again(record, topic, queue_id, properties),
            store_host=self._advertised.packed,
            reconsume_times=record.reconsume_times + 1,
        )
