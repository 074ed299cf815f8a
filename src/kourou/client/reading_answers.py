"""What a broker may ask of a pull consumer, an administrator's questions passed on: how it is, and how far.

As in the original it is not told to go elsewhere, nor given a message to handle: it has its own mind. The
async form answers at any time, the blocking one, which has no thread of its own, while it waits for messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.client.reading import Lane, Reading
from kourou.errors import Refused
from kourou.protocol.bodies import ConsumerRunningInfo, ConsumeType, HeldQueueInfo, QueuePlaces
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GetConsumerStatus, GetRunningInfo
from kourou.remoting.answer import Answer, Handler


def reading_answers(reading: Reading) -> Mapping[int, Handler]:
    """The handlers of one consumer, for its connections."""

    def status(request: Command, answer: Answer) -> None:
        header = request.parse(GetConsumerStatus)
        _check(reading, header.group)
        places = {
            lane.queue: lane.position
            for lane in reading.lanes()
            if lane.position is not None and lane.queue.topic == header.topic
        }
        answer(request.reply(body=QueuePlaces(message_queue_table=places).encode_fastjson()))

    def running_info(request: Command, answer: Answer) -> None:
        header = request.parse(GetRunningInfo)
        _check(reading, header.consumer_group)
        info = _running_info(reading)
        if header.jstack_enable:
            from kourou.client.answers import thread_stacks

            info.jstack = thread_stacks()
        answer(request.reply(body=info.encode_fastjson()))

    return {
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: running_info,
    }


def _check(reading: Reading, group: str) -> None:
    if group != reading.group:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"no consumer of group {group} here: this is one of {reading.group}"
        )


def _running_info(reading: Reading) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        mq_table={lane.queue: _lane_info(lane) for lane in reading.lanes()},
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(reading.routes.name_servers.addresses),
            "PROP_CONSUME_TYPE": ConsumeType.PULL.value,
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(reading.started_at_ms),
        },
        subscription_set=reading.consumer_data().subscription_data_set,
    )


def _lane_info(lane: Lane) -> HeldQueueInfo:
    buffered = lane.buffered
    return HeldQueueInfo(
        cached_msg_count=len(buffered),
        cached_msg_min_offset=buffered[0].queue_offset if buffered else 0,
        cached_msg_max_offset=buffered[-1].queue_offset if buffered else 0,
        commit_offset=lane.committed or 0,
    )
