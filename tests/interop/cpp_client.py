"""Run the official C++ client, as the `rocketmq` wheel bundles it, and print what happened as JSON lines.

    python cpp_client.py produce NAMESERVER GROUP TOPIC COUNT
    python cpp_client.py push    NAMESERVER GROUP TOPIC COUNT SECONDS
    python cpp_client.py pull    NAMESERVER GROUP TOPIC COUNT SECONDS
    python cpp_client.py keep-on NAMESERVER GROUP TOPIC COUNT SECONDS     sends, whatever fails

A programme of its own because the client is a native library with threads: whoever runs it gives it a time
limit and a HOME it may write its logs to (see stock_clients.py).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

_printing = threading.Lock()


def produce(name_server: str, group: str, topic: str, count: int) -> None:
    """Message n is sent in one of four ways, by turns, so that one run shows them all."""
    producer = Producer(group, timeout=10_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    answered = threading.Semaphore(0)

    def answered_async(n: int) -> Callable[[Any], None]:
        def success(result: Any) -> None:
            tell(
                "sent",
                number=n,
                way="async",
                status=int(result.status),
                id=result.msg_id,
                offset=result.offset,
            )
            answered.release()

        return success

    def failed(error: Exception) -> None:
        tell("failed", error=str(error))
        answered.release()

    waiting = 0
    for n in range(count):
        message = _message(topic, n)
        way = ("sync", "async", "oneway", "orderly")[n % 4]
        if way == "async":
            producer.send_async(message, answered_async(n), failed)
            waiting += 1
        elif way == "oneway":
            producer.send_oneway(message)
        else:
            result = producer.send_orderly(message, n) if way == "orderly" else producer.send_sync(message)
            tell("sent", number=n, way=way, status=int(result.status), id=result.msg_id, offset=result.offset)
    for _ in range(waiting):
        answered.acquire(timeout=10)
    time.sleep(0.5)  # nothing answers a one-way send: give the bytes time to leave
    producer.shutdown()


def keep_on(name_server: str, group: str, topic: str, count: int, seconds: float) -> None:
    """Send, whatever fails, for so long; every send is told with the time it ended."""
    producer = Producer(group, timeout=3_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    deadline = time.time() + seconds
    n = 0
    while time.time() < deadline and n < count:
        n += 1
        try:
            result = producer.send_sync(_message(topic, n))
            tell("sent", number=n, status=int(result.status), at=time.time())
        except Exception as error:
            tell("failed", number=n, error=str(error), at=time.time())
        time.sleep(0.1)
    producer.shutdown()


def _message(topic: str, n: int) -> Message:
    message = Message(topic)
    message.set_body(f"cpp-{n}")
    message.set_keys(f"key-{n}")
    message.set_tags("even" if n % 2 == 0 else "odd")
    message.set_property("number", str(n))
    return message


def push(name_server: str, group: str, topic: str, count: int, seconds: float) -> None:
    received = 0

    def listen(message: Any) -> None:
        nonlocal received
        tell_received(message)
        received += 1

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_thread_count(1)
    consumer.subscribe(topic, listen)
    consumer.start()
    _wait_until(lambda: received >= count, seconds)
    time.sleep(1.5)  # a message delivered twice would show up now
    consumer.shutdown()


def pull(name_server: str, group: str, topic: str, count: int, seconds: float) -> None:
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.start()
    received = 0
    deadline = time.monotonic() + seconds
    while received < count and time.monotonic() < deadline:
        for message in consumer.pull(topic):
            tell_received(message)
            received += 1
    consumer.shutdown()


def tell_received(message: Any) -> None:
    tell(
        "received",
        body=message.body.decode(),
        topic=message.topic,
        keys=message.keys.decode(),
        tags=message.tags.decode(),
        number=message["number"].decode(),
        id=message.id,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
    )


def tell(event: str, **values: object) -> None:
    with _printing:
        print(json.dumps({"event": event, **values}), flush=True)


def _wait_until(happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    verb, name_server, group, topic, count, *rest = sys.argv[1:]
    if verb == "produce":
        produce(name_server, group, topic, int(count))
    else:
        {"push": push, "pull": pull, "keep-on": keep_on}[verb](
            name_server, group, topic, int(count), float(rest[0])
        )
    tell("done")
    os._exit(0)  # the library's own threads and destructors may hang or crash on a normal exit
