"""Several topics made at once, and those that are the broker's own."""

from __future__ import annotations

import logging
from typing import Final

from kourou.broker.handlers.made import Made
from kourou.broker.handlers.topics import changed_topic_attributes
from kourou.broker.topics import Topics, check_new_topic
from kourou.errors import Refused
from kourou.protocol.admin_bodies import TopicConfigList
from kourou.protocol.bodies import TopicList
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import SYSTEM_TOPICS
from kourou.remoting.answer import Answer

TOPICS_AT_ONCE_MAX: Final = 10_000

logger = logging.getLogger(__name__)


class CreateTopicsHandler:
    """UPDATE_AND_CREATE_TOPIC_LIST (18): all are checked before the first is made."""

    def __init__(self, topics: Topics, made: Made) -> None:
        self._topics = topics
        self._made = made

    def __call__(self, request: Command, answer: Answer) -> None:
        wanted = TopicConfigList.decode_request(request.body).topic_config_list
        if len(wanted) > TOPICS_AT_ONCE_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"{len(wanted)} topics at once: at most {TOPICS_AT_ONCE_MAX} are taken",
            )
        for topic in wanted:
            check_new_topic(
                topic.topic_name,
                topic.read_queue_nums,
                topic.write_queue_nums,
                topic.perm,
                self._topics.born_with,
                topic.topic_filter_type,
            )
            known = self._topics.get(topic.topic_name)
            topic.attributes = changed_topic_attributes(
                {} if known is None else known.attributes, topic.attributes
            )
        self._topics.save({topic.topic_name: topic for topic in wanted})
        logger.info("%d topics saved for %s", len(wanted), answer.connection.peer)
        names = [topic.topic_name for topic in wanted]
        self._made.topics(request, answer, f"{len(wanted)} topics are", names)


class SystemTopicsHandler:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __call__(self, request: Command, answer: Answer) -> None:
        names = sorted(SYSTEM_TOPICS | self._topics.born_with)
        answer(request.reply(body=TopicList(topic_list=names).encode()))
