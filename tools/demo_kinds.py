"""The part of `make demo` that shows what RocketMQ's messages can do besides arriving.

Each function is one kind of message, small enough to be copied: it sends, receives, and raises DemoFailed
when what came back is not what was asked for.
"""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import kourou

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
DELAY_SECONDS = 1.5
ORDERS = ("order 1", "order 2", "order 3")
STATES = ("placed", "paid", "brewed", "served")


class DemoFailed(Exception):
    """Something did not happen as it should; the text says what."""


Tell = Callable[[str, str], None]


def every_kind(name_server: str, tell: Tell) -> None:
    """Run them all, and `tell` of each."""
    for title, kind in (
        ("tags", tags),
        ("a delay", delay),
        ("order", order),
        ("a retry, a dead letter", retry_and_dead_letter),
        ("a transaction", transaction),
    ):
        tell(title, kind(name_server))


def tags(name_server: str) -> str:
    """The broker leaves out what a consumer does not want."""
    with kourou.Producer("demo-tags", name_server) as producer:
        for number in range(10):
            producer.send(
                kourou.Message("drinks", b"%d" % number, tags="tea" if number % 5 == 0 else "coffee")
            )
    with kourou.PullConsumer("demo-tea", "drinks", name_server, tags="tea") as consumer:
        bodies = {message.body for message in receive(consumer, 2)}
    expect(bodies == {b"0", b"5"}, f"teas 0 and 5 were wanted, {sorted(bodies)} came")
    return "10 drinks sent, the 2 teas received: the broker filters"


def delay(name_server: str) -> str:
    """A message that is not to be seen before its time."""
    with kourou.Producer("demo-delay", name_server) as producer:
        sent_at = time.monotonic()
        producer.send(kourou.Message("reminders", b"the milk is warm"), delay=DELAY_SECONDS)
    with kourou.PullConsumer("demo-delay", "reminders", name_server) as consumer:
        receive(consumer, 1)
        waited = time.monotonic() - sent_at
    expect(waited >= DELAY_SECONDS, f"it came {DELAY_SECONDS - waited:.3f} s early")
    return f"sent with delay={DELAY_SECONDS}, received after {waited:.2f} s"


def order(name_server: str) -> str:
    """What belongs together arrives in the order it was sent."""
    seen: dict[str, list[str]] = defaultdict(list)
    done: queue.Queue[str] = queue.Queue()
    with kourou.Producer("demo-order", name_server) as producer:
        for state in STATES:
            for each in ORDERS:
                producer.send(kourou.Message("states", state.encode(), keys=each), key=each)
    with kourou.PushConsumer("demo-order", name_server, start="earliest") as consumer:

        @consumer.on("states", ordered=True)
        def note(message: kourou.ReceivedMessage) -> None:
            each = message.keys or ""
            seen[each].append(message.body.decode())
            done.put(each)

        consumer.start()
        for _ in range(len(ORDERS) * len(STATES)):
            wait_for(done, "the states of an order")
    expect(all(seen[each] == list(STATES) for each in ORDERS), f"out of order: {dict(seen)}")
    return f"{len(ORDERS)} orders, each {' → '.join(STATES)}, handled in this order"


def retry_and_dead_letter(name_server: str) -> str:
    """A message its handler cannot cope with comes again, and in the end is set aside."""
    attempts: queue.Queue[int] = queue.Queue()
    group = "demo-bakery"
    with kourou.Producer("demo-retry", name_server) as producer:
        producer.send(kourou.Message("cakes", b"a square wheel", keys="cake 7"))
    with kourou.PushConsumer(group, name_server, start="earliest", retries=1) as consumer:

        @consumer.on("cakes")
        def bake(message: kourou.ReceivedMessage) -> None:
            attempts.put(message.reconsume_times)
            raise kourou.RetryLater(1)

        consumer.start()
        tried = [wait_for(attempts, "an attempt") for _ in range(2)]
        letters = receive_once_there("demo-triage", f"%DLQ%{group}", name_server)
    expect(tried == [0, 1], f"attempts were numbered {tried}")
    expect(letters[0].keys == "cake 7", f"the dead letter is {letters[0]!r}")
    return "failed, came again 1 s later, failed again, and lies in %DLQ%demo-bakery with its key"


def transaction(name_server: str) -> str:
    """A message that is seen if and only if a piece of work was done."""

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        return kourou.TransactionState.UNKNOWN  # asked only about transactions nobody ended

    with kourou.TransactionProducer("demo-bank", check, name_server) as producer:
        with producer.transaction(kourou.Message("payments", b"2.80 for an espresso")):
            pass  # the caller's own work: a row in a database, say
        try:
            with producer.transaction(kourou.Message("payments", b"1000000.00 for a yacht")):
                raise LookupError("the account is empty")
        except LookupError:
            pass
    with kourou.PullConsumer("demo-bank", "payments", name_server) as consumer:
        bodies = [message.body for message in receive(consumer, 1)]
        bodies += [message.body for message in consumer.receive(timeout=0.5)]
    expect(bodies == [b"2.80 for an espresso"], f"payments seen: {bodies}")
    return "one committed, one rolled back; one was seen"


def receive(consumer: kourou.PullConsumer, count: int) -> list[kourou.ReceivedMessage]:
    """`count` messages, within reason."""
    received: list[kourou.ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(received) < count and time.monotonic() < deadline:
        received += consumer.receive(timeout=1.0)
    expect(len(received) >= count, f"{count} messages were awaited, {len(received)} came")
    return received


def receive_once_there(group: str, topic: str, name_server: str) -> list[kourou.ReceivedMessage]:
    """The first messages of a topic that is about to be made."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with kourou.PullConsumer(group, topic, name_server) as consumer:
                return receive(consumer, 1)
        except kourou.NotFound:
            expect(time.monotonic() < deadline, f"{topic} was not made")
            time.sleep(0.05)


def wait_for(arrivals: queue.Queue[T], what: str) -> T:
    try:
        return arrivals.get(timeout=PATIENCE_SECONDS)
    except queue.Empty:
        raise DemoFailed(f"{what} was awaited for {PATIENCE_SECONDS:.0f} s and did not come") from None


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(otherwise)
