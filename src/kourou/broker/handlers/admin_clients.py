"""What operators ask of clients, through the broker they are connected to; and who is connected at all.

The answers of clients are passed on as they are: those of the C++ client are no JSON that could be read and
written again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.members import Member, Members
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import MQError, ProtocolError, Refused, TimedOut
from kourou.protocol.admin_bodies import ConsumerStatus, ProducerInfo, ProducerTable
from kourou.protocol.admin_headers import ConsumerStatusAsked, DirectConsumption
from kourou.protocol.bodies import QueuePlaces
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import GetConsumerStatus, GetRunningInfo
from kourou.protocol.message_id import parse_offset_id
from kourou.protocol.names import printable
from kourou.protocol.versions import version_name
from kourou.remoting.address import format_address, parse_address
from kourou.remoting.answer import Answer
from kourou.store.store import Store

CALL_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000
TELLS_FROM_VERSION: Final = 62
"""V3_1_8_SNAPSHOT: older clients do not answer such questions."""


class RunningInfoHandler:
    """GET_CONSUMER_RUNNING_INFO (307): a member tells of itself."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(GetRunningInfo)
        member = _member(self._members, header.consumer_group, header.client_id or "")
        question = make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        _pass_on(request, answer, member, question, header.consumer_group)


class DirectConsumptionHandler:
    """CONSUME_MESSAGE_DIRECTLY (309): a member handles one message now."""

    def __init__(
        self, config: BrokerConfig, *, members: Members, topics: Topics, groups: Groups, store: Store
    ) -> None:
        self._config = config
        self._members = members
        self._topics = topics
        self._groups = groups
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(DirectConsumption)
        try:
            place = parse_offset_id(header.offset_id or "").physical_offset
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
        record = self._store.record_at(place)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {place}: nothing is there"
            )
        member = _member(self._members, header.consumer_group, header.client_id or "")
        topic = self._topics.get(header.topic or "")
        group = self._groups.get(header.consumer_group)
        passed = DirectConsumption(
            header.consumer_group,
            header.client_id,
            header.offset_id,
            self._config.broker_name,
            header.topic,
            None if topic is None else topic.topic_sys_flag,
            None if group is None else group.group_sys_flag,
        )
        question = make_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, passed, record)
        _pass_on(request, answer, member, question, header.consumer_group)


def _member(members: Members, group: str, client_id: str) -> Member:
    found = members.consumer_group(group)
    for member in found.members.values() if found is not None else ():
        if member.client_id == client_id:
            if member.version < TELLS_FROM_VERSION:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"The Consumer <{printable(client_id)}> Version <{version_name(member.version)}> too low "
                    "to finish, please upgrade it to V3_1_8_SNAPSHOT",
                )
            return member
    raise Refused(
        ResponseCode.SYSTEM_ERROR,
        f"The Consumer <{printable(group)}> <{printable(client_id)}> not online",
    )


def _pass_on(request: Command, answer: Answer, member: Member, question: Command, group: str) -> None:
    def told(outcome: Command | Exception) -> None:
        if isinstance(outcome, Command):
            answer(request.reply(body=outcome.body, code=outcome.code, remark=outcome.remark))
            return
        who = f"consumer <{printable(group)}> <{printable(member.client_id)}>"
        if isinstance(outcome, TimedOut):
            code, remark = ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {outcome}"
        else:
            code, remark = ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {outcome}"
        answer(request.reply(code=code, remark=remark))

    member.connection.call(question, CALL_TIMEOUT_MS, told)


class ConsumerStatusHandler:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): how far the members of a group are, by their own word.

    A member that does not answer is left out, as in the original.
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(ConsumerStatusAsked)
        group = self._members.consumer_group(header.group)
        asked = [
            member
            for member in (group.members.values() if group is not None else ())
            if header.client_addr in (None, "", member.client_id)
        ]
        if not asked:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{printable(header.group)}]",
            )
        status = ConsumerStatus(consumer_table={})
        round_ = _Round(len(asked), lambda: answer(request.reply(body=status.encode_fastjson())))
        for member in asked:
            question = make_request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(header.topic, header.group)
            )
            told = partial(self._told, status, member.client_id, round_)
            member.connection.call(question, STATUS_TIMEOUT_MS, told)

    def _told(
        self, status: ConsumerStatus, client_id: str, round_: _Round, outcome: Command | Exception
    ) -> None:
        if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS and outcome.body:
            with suppress(MQError):  # what makes no sense is no reason to leave the others out
                places = QueuePlaces.decode_request(outcome.body)  # a client may send what it likes
                status.consumer_table[client_id] = places.message_queue_table
        round_.one_more()


class _Round:
    """Calls `then` after so many answers."""

    def __init__(self, count: int, then: Callable[[], None]) -> None:
        self._left = count
        self._then = then

    def one_more(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()


class AllProducersHandler:
    """GET_ALL_PRODUCER_INFO (328)."""

    def __init__(self, members: Members, clock: Clock) -> None:
        self._members = members
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        table = ProducerTable(
            data={
                group: [self._info(member) for member in members.values()]
                for group, members in sorted(self._members.producer_groups.items())
            }
        )
        answer(request.reply(body=table.encode()))

    def _info(self, member: Member) -> ProducerInfo:
        silent_ms = (self._clock.monotonic() - member.last_heard) * 1000
        return ProducerInfo(
            client_id=member.client_id,
            language=member.language,
            last_update_timestamp=round(self._clock.now_ms() - silent_ms),
            remote_ip=format_address(*parse_address(member.connection.peer)),
            version=member.version,
        )
