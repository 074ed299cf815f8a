"""Programs that use a client for a while and say what came of it, each in a process of its own.

    python -m bench.client_programs ours-async   NAME_SERVER TOPIC SECONDS SENDERS
    python -m bench.client_programs naive        BROKER      TOPIC SECONDS SENDERS   on one connection
    python -m bench.client_programs naive-many   BROKER      TOPIC SECONDS SENDERS   on one each
    python -m bench.client_programs cpp-async    NAME_SERVER TOPIC SECONDS SENDERS
    python -m bench.client_programs ours-threads NAME_SERVER TOPIC SECONDS THREADS
    python -m bench.client_programs cpp-threads  NAME_SERVER TOPIC SECONDS THREADS
    python -m bench.client_programs ours-push    NAME_SERVER TOPIC MESSAGES SECONDS
    python -m bench.client_programs cpp-push     NAME_SERVER TOPIC MESSAGES SECONDS
    python -m bench.client_programs ours-idle    NAME_SERVER TOPIC SECONDS QUEUES

The last line printed is JSON: messages, seconds, and the CPU seconds this process took for them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

BODY = b"x" * 1024
GROUP = "BenchClients"
NAIVE_QUEUES = 8
SETTLE_SECONDS = 3.0


def ours_async(name_server: str, topic: str, seconds: float, senders: int) -> dict[str, float]:
    import kourou

    async def main() -> dict[str, float]:
        sent = 0
        message = kourou.Message(topic, BODY)
        async with kourou.AsyncProducer(GROUP, name_server) as producer:
            await producer.send(message)
            before, began = cpu_seconds(), time.perf_counter()
            deadline = began + seconds

            async def keep_sending() -> None:
                nonlocal sent
                while time.perf_counter() < deadline:
                    await producer.send(message)
                    sent += 1

            await asyncio.gather(*(keep_sending() for _ in range(senders)))
            return figures(sent, began, before)

    return asyncio.run(main())


def naive(broker: str, topic: str, seconds: float, senders: int, connections: int = 1) -> dict[str, float]:
    from bench.naive import send_for

    before = cpu_seconds()
    sent, spent = asyncio.run(send_for(broker, topic, NAIVE_QUEUES, BODY, senders, connections, seconds))
    return {"messages": sent, "seconds": spent, "cpu": cpu_seconds() - before}


def naive_many(broker: str, topic: str, seconds: float, senders: int) -> dict[str, float]:
    return naive(broker, topic, seconds, senders, senders)


def ours_threads(name_server: str, topic: str, seconds: float, threads: int) -> dict[str, float]:
    import kourou

    message = kourou.Message(topic, BODY)
    with kourou.Producer(GROUP, name_server) as producer:
        return sent_by_threads(lambda: producer.send(message), seconds, threads)


def cpp_threads(name_server: str, topic: str, seconds: float, threads: int) -> dict[str, float]:
    from rocketmq.client import Message, Producer

    producer = Producer(GROUP, timeout=10_000)
    producer.set_namesrv_addr(name_server)
    producer.start()

    def send() -> None:
        message = Message(topic)
        message.set_body(BODY)
        producer.send_sync(message)

    done = sent_by_threads(send, seconds, threads)
    producer.shutdown()
    return done


def cpp_async(name_server: str, topic: str, seconds: float, in_flight: int) -> dict[str, float]:
    from rocketmq.client import Message, Producer

    producer = Producer(GROUP, timeout=10_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    room = threading.Semaphore(in_flight)
    answered = 0

    def success(result: Any) -> None:
        nonlocal answered
        answered += 1
        room.release()

    def failed(error: Exception) -> None:
        room.release()

    before, began = cpu_seconds(), time.perf_counter()
    deadline = began + seconds
    while time.perf_counter() < deadline:
        if room.acquire(timeout=1.0):
            message = Message(topic)
            message.set_body(BODY)
            producer.send_async(message, success, failed)
    done = figures(answered, began, before)
    time.sleep(1.0)
    producer.shutdown()
    return done


def sent_by_threads(send: Callable[[], object], seconds: float, threads: int) -> dict[str, float]:
    for _ in range(10):
        send()
    counts = [0] * threads
    before, began = cpu_seconds(), time.perf_counter()
    deadline = began + seconds

    def keep_sending(number: int) -> None:
        while time.perf_counter() < deadline:
            send()
            counts[number] += 1

    running = [threading.Thread(target=keep_sending, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return figures(sum(counts), began, before)


def ours_push(name_server: str, topic: str, messages: int, seconds: float) -> dict[str, float]:
    import kourou

    counted = Counted(messages)

    async def main() -> dict[str, float]:
        async with kourou.AsyncPushConsumer(
            f"{GROUP}-ours-{time.time_ns()}", name_server, start="earliest"
        ) as consumer:

            @consumer.on(topic)
            async def handle(message: kourou.ReceivedMessage) -> None:
                counted.one(message.body)
                if counted.is_done:
                    consumer.stop()

            async with asyncio.timeout(seconds):
                await consumer.run_until_stopped()
        return counted.figures()

    return asyncio.run(main())


def ours_push_threads(name_server: str, topic: str, messages: int, seconds: float) -> dict[str, float]:
    import kourou

    counted = Counted(messages)
    with kourou.PushConsumer(f"{GROUP}-threads-{time.time_ns()}", name_server, start="earliest") as consumer:

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            counted.one(message.body)

        consumer.start()
        counted.wait(seconds)
    return counted.figures()


def cpp_push(name_server: str, topic: str, messages: int, seconds: float) -> dict[str, float]:
    from rocketmq.client import PushConsumer

    counted = Counted(messages)
    consumer = PushConsumer(f"{GROUP}-cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(name_server)

    def handle(message: Any) -> None:
        counted.one(message.body)

    consumer.subscribe(topic, handle)
    consumer.start()
    counted.wait(seconds)
    done = counted.figures()
    consumer.shutdown()
    return done


class Counted:
    """Messages as they come, from the first to the last."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._left = iter(range(wanted - 1, -1, -1))
        self._began = self._ended = self._cpu_before = self._cpu_after = 0.0
        self.is_done = False
        self._done = threading.Event()
        self._lock = threading.Lock()

    def one(self, body: bytes) -> None:
        left = next(self._left, -1)  # one step of the interpreter: no lock for each message
        if left == self._wanted - 1:
            self._cpu_before, self._began = cpu_seconds(), time.perf_counter()
        elif left == 0:
            self._ended, self._cpu_after = time.perf_counter(), cpu_seconds()
            self.is_done = True
            self._done.set()

    def wait(self, seconds: float) -> None:
        if not self._done.wait(seconds):
            sys.exit(f"not all of {self._wanted} messages came in {seconds} s")

    def figures(self) -> dict[str, float]:
        spent = self._ended - self._began
        return {"messages": self._wanted, "seconds": spent, "cpu": self._cpu_after - self._cpu_before}


def ours_idle(name_server: str, topic: str, seconds: float, queues: int) -> dict[str, float]:
    import kourou

    with kourou.PushConsumer(f"{GROUP}-idle", name_server) as consumer:

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            raise AssertionError("nobody sends here")

        consumer.start()
        time.sleep(SETTLE_SECONDS)
        held = [queue for queue in consumer.positions() if queue.topic == topic]
        if len(held) != queues:
            sys.exit(f"{len(held)} queues are read, not {queues}")
        before, began = cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        return figures(0, began, before)


def figures(messages: int, began: float, cpu_before: float) -> dict[str, float]:
    spent = time.perf_counter() - began
    return {"messages": messages, "seconds": spent, "cpu": cpu_seconds() - cpu_before}


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


PROGRAMS: dict[str, Callable[..., dict[str, float]]] = {
    "ours-async": ours_async,
    "naive": naive,
    "naive-many": naive_many,
    "ours-threads": ours_threads,
    "cpp-async": cpp_async,
    "cpp-threads": cpp_threads,
    "ours-push": ours_push,
    "ours-push-threads": ours_push_threads,
    "cpp-push": cpp_push,
    "ours-idle": ours_idle,
}


def main(name: str, server: str, topic: str, *numbers: str) -> None:
    first, second = map(float, numbers)
    is_counted = name.endswith(("push", "push-threads"))
    arguments = (int(first), second) if is_counted else (first, int(second))
    print(json.dumps(PROGRAMS[name](server, topic, *arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
