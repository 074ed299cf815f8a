from __future__ import annotations

import pytest

from kourou.client.reading import Lane, Reading
from kourou.client.reading_answers import reading_answers
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import Refused
from kourou.protocol.bodies import MessageQueue, QueuePlaces
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetConsumerStatus, GetRunningInfo


@pytest.fixture
def reading() -> Reading:
    made = Reading("billing", "orders", "n:1", "*", "earliest", True, SimulatedClock(), Chance(7))
    for number in range(2):
        queue = MessageQueue(topic="orders", broker_name="a", queue_id=number)
        made._lanes[queue] = Lane(queue)
    made.lanes()[0].move_to(7)
    return made


def ask(reading: Reading, command: Command) -> Command:
    answers: list[Command] = []
    reading_answers(reading)[command.code](command, answers.append)  # type: ignore[arg-type]
    return answers[0]


def test_it_says_how_far_it_is_where_that_is_known(reading: Reading) -> None:
    command = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("orders", "billing"))
    told = QueuePlaces.decode(ask(reading, command).body).message_queue_table
    assert {queue.queue_id: offset for queue, offset in told.items()} == {0: 7}


@pytest.mark.parametrize(
    "command",
    [
        request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("orders", "another")),
        request(RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("another")),
    ],
)
def test_it_says_nothing_for_another_group(reading: Reading, command: Command) -> None:
    with pytest.raises(Refused, match="no consumer of group another here"):
        ask(reading, command)
