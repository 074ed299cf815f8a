"""Topics made to order."""

from __future__ import annotations

from kourou.broker.registration import Registration
from kourou.broker.topics import Topics, check_new_topic
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import CreateTopic
from kourou.remoting.answer import Answer


class CreateTopicHandler:
    """UPDATE_AND_CREATE_TOPIC (17). Answered when the name servers know: the route is right at once."""

    def __init__(self, topics: Topics, registration: Registration) -> None:
        self._topics = topics
        self._registration = registration

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(CreateTopic)
        check_new_topic(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            self._topics.born_with,
        )
        known = self._topics.get(header.topic)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order or False,
            attributes=dict(known.attributes) if known is not None else {},
        )
        self._topics.save({header.topic: topic})

        def registered(refusals: list[str]) -> None:
            if refusals:
                remark = f"topic '{header.topic}' is made, but not registered: {'; '.join(refusals)}"
                answer(request.reply(code=ResponseCode.SYSTEM_ERROR, remark=remark))
            else:
                answer(request.reply())

        self._registration.register_now(registered)
