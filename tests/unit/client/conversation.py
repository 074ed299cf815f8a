"""Play the world to an operation: answer its steps, without a network, and keep what it asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.client.steps import Call, Operation, Result, Step
from kourou.errors import MQError
from kourou.protocol import record
from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import FLAG_REPLY, Command, field_texts

Answer = Callable[[Any], object]


def play(operation: Operation[Result], answer: Answer) -> tuple[Result, list[Any]]:
    """Its result and its steps; `answer` gives each step's outcome, or raises the MQError it failed with."""
    steps: list[Step] = []
    try:
        step = next(operation)
        while True:
            steps.append(step)
            try:
                outcome = answer(step)
            except MQError as error:
                step = operation.throw(error)
            else:
                step = operation.send(outcome)
    except StopIteration as done:
        return done.value, steps


def reply(
    header: Any = None, body: bytes = b"", *, code: int = ResponseCode.SUCCESS, remark: str = ""
) -> Command:
    fields = {} if header is None else field_texts(header)
    return Command(code, fields, body, flag=FLAG_REPLY, remark=remark or None)


def route_of(
    brokers: dict[str, dict[int, str]], *, read: int = 4, write: int = 4, perm: int = 6, cluster: str = "c"
) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs=addresses, cluster=cluster)
            for name, addresses in brokers.items()
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)
            for name in brokers
        ],
    )


TWO_BROKERS = {"broker-b": {0: "b:10911"}, "broker-a": {0: "a:10911", 1: "a1:10911"}}


def asked(step: Any) -> tuple[str, int]:
    """Whom a call asks, and for what."""
    assert isinstance(step, Call), step
    return step.address, int(step.command.code)


def stored(queue_offset: int, tag: str | None = None, *, topic: str = "t", queue_id: int = 2) -> bytes:
    """A message as a pull reply carries it."""
    host = record.pack_host("127.0.0.1", 10911)
    return record.encode(
        topic=topic.encode(),
        queue_id=queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 100,
        sys_flag=0,
        born_ms=1,
        born_host=host,
        store_ms=2,
        store_host=host,
        reconsume_times=0,
        prepared_offset=0,
        body=b"body",
        properties=f"TAGS\x01{tag}\x02".encode() if tag else b"",
    )
