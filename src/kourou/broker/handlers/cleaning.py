"""Letting go of what nobody needs, at an operator's word."""

from __future__ import annotations

from kourou.broker.offsets import CommittedOffsets
from kourou.broker.registration import Registration
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import Refused
from kourou.protocol import names
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import TopicNamed
from kourou.remoting.answer import Answer
from kourou.store.store import Store


class CleanLogHandler:
    """DELETE_EXPIRED_COMMITLOG (329): remove log files past their time now, whatever the hour."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        self._store.clean_expired_log()
        answer(request.reply())


class CleanQueuesHandler:
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): forget queues all of whose messages are gone."""

    def __init__(self, store: Store, offsets: CommittedOffsets) -> None:
        self._store = store
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        for topic, queue_id in self._store.clean_expired_queues():
            self._offsets.remove_queue(topic, queue_id)  # it begins anew, with the first offset
        answer(request.reply())


class CleanTopicsHandler:
    """CLEAN_UNUSED_TOPIC (316): forget the queues of topics that no longer exist."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    def __call__(self, request: Command, answer: Answer) -> None:
        for name in self._store.topics():
            if self._topics.get(name) is None and name not in names.NOT_SENDABLE:
                self._store.delete_topic(name)
        answer(request.reply())


class DeleteTopicHandler:
    """DELETE_TOPIC_IN_BROKER (215): a topic, its queues, and where its readers were.

    Its records stay in the log until their file goes.
    """

    def __init__(
        self,
        topics: Topics,
        store: Store,
        offsets: CommittedOffsets,
        registration: Registration,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._registration = registration
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        name = request.parse(TopicNamed).topic
        if not name.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if name in self._topics.born_with or name in names.NOT_SENDABLE:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{names.printable(name)}] is conflict with system topic: it is not deleted",
            )
        self._topics.delete(name)
        self._offsets.remove_topic(name)
        self._offsets.save(self._clock.now_ms())  # or they would come back, and skip what is new
        self._store.delete_topic(name)
        self._registration.register_now(lambda _: answer(request.reply()))
